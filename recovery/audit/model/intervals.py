"""The entry ids that runs cover together, as intervals, whatever the steps of the runs are.

The runs of a ledger may have different steps: a scan makes runs with a step where it sees that ids have one.
All runs of a ledger are therefore divided by the least common multiple S of their steps. Entry e has the
residue e mod S and the turn e div S, and an interval is one of turns of one residue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.audit.model.runs import no_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.audit.model.runs import Mask, Numbers, Runs

    Intervals = np.ndarray[Any, Any]

INTERVAL = np.dtype(
    [
        ("ledger", "<i8"),
        ("residue", "<i8"),
        ("first", "<i8"),  # turns, both included
        ("last", "<i8"),
        ("step", "<i8"),  # of the ledger
        ("file", "<i8"),
    ]
)
_GROUP = ("ledger", "residue")


class IdRange(NamedTuple):
    """The ids `first`, `first + step` … `last` of a ledger."""

    ledger_id: int
    first: int
    last: int
    step: int

    @property
    def entries(self) -> int:
        return (self.last - self.first) // self.step + 1


@dataclass(frozen=True, slots=True)
class Cover:
    """The ids of one ledger as disjoint intervals of turns, in the order of residues and turns."""

    ledger_id: int
    intervals: Intervals

    @property
    def entries(self) -> int:
        return sum((self.intervals["last"] - self.intervals["first"] + 1).tolist())

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last id."""
        rows = self.intervals
        firsts = rows["first"] * rows["step"] + rows["residue"]
        return int(firsts.min()), int((rows["last"] * rows["step"] + rows["residue"]).max())

    def gaps(self) -> list[IdRange]:
        """Return the ids that are missing between the first and the last of a residue, ascending."""
        rows = self.intervals
        inside = np.flatnonzero(~_begins(rows)[1:])
        pairs = zip(rows[inside].tolist(), rows["first"][inside + 1].tolist(), strict=True)
        found = [
            IdRange(self.ledger_id, (last + 1) * step + residue, (following - 1) * step + residue, step)
            for (_, residue, _, last, step, _), following in pairs
        ]
        return sorted(found)


def covers(runs: Iterable[Runs]) -> Iterator[Cover]:
    """Yield for each ledger what its runs cover together."""
    rows = _united(_intervals(np.concatenate([no_runs(), *runs])))
    ledgers, begins = np.unique(rows["ledger"], return_index=True)
    ends = np.append(begins[1:], len(rows))[: len(ledgers)]
    for ledger_id, begin, end in zip(ledgers.tolist(), begins.tolist(), ends.tolist(), strict=True):
        yield Cover(ledger_id, rows[begin:end])


def missing(wanted: Runs, there: Iterable[Runs]) -> list[IdRange]:
    """Return the ids that `wanted` covers and `there` does not, by ledger and first id."""
    others = np.concatenate([no_runs(), *there])
    others = others[np.isin(others["ledger"], wanted["ledger"])]
    rows = _intervals(np.concatenate([wanted, others]), np.arange(len(wanted) + len(others)) < len(wanted))
    sides = [_united(rows[rows["file"] == side]) for side in (1, 0)]
    # An interval counts from the turn before its first one, so that no turn exceeds the largest id.
    bounds = np.concatenate([np.concatenate([one, one]) for one in sides])
    turns = np.concatenate([turn for one in sides for turn in (one["first"] - 1, one["last"])])
    weights = np.repeat([1, -1, 2, -2], [len(one) for one in (sides[0], sides[0], sides[1], sides[1])])
    order = np.lexsort((turns, bounds["residue"], bounds["ledger"]))
    bounds, turns, state = bounds[order], turns[order], np.cumsum(weights[order])
    at = np.flatnonzero((state[:-1] == 1) & (turns[1:] > turns[:-1]))
    pieces = zip(bounds[at].tolist(), turns[at].tolist(), turns[at + 1].tolist(), strict=True)
    return sorted(
        IdRange(ledger, (before + 1) * step + residue, last * step + residue, step)
        for (ledger, residue, _, _, step, _), before, last in pieces
    )


def overlaps(runs: Iterable[Runs]) -> Iterator[tuple[int, IdRange]]:
    """Yield what a run shares with runs that begin before it, and the file of the run."""
    rows = _intervals(np.concatenate([no_runs(), *runs]))
    rows = rows[np.lexsort((rows["file"], rows["first"], rows["residue"], rows["ledger"]))]
    reached = _reached(rows)
    for at in np.flatnonzero(rows["first"] <= reached).tolist():
        ledger, residue, first, last, step, file = rows[at].tolist()
        until = min(last, int(reached[at]))
        yield file, IdRange(ledger, first * step + residue, until * step + residue, step)


def _intervals(runs: Runs, files: Any = None) -> Intervals:
    """Return the runs as intervals. `files` replaces the files of the runs."""
    ledgers, ledger = np.unique(runs["ledger"], return_inverse=True)
    steps = np.ones(len(ledgers), dtype=np.int64)
    np.lcm.at(steps, ledger, runs["step"])
    step = steps[ledger]
    # A run with a smaller step has entries of several residues, unless it has only one entry.
    shares = np.where(runs["first"] == runs["last"], 1, step // runs["step"])
    run = np.repeat(np.arange(len(runs)), shares)
    number = np.arange(len(run)) - np.repeat(np.cumsum(shares) - shares, shares)
    has_entry = number * runs["step"][run] <= runs["last"][run] - runs["first"][run]
    run, number = run[has_entry], number[has_entry]
    first = runs["first"][run] + number * runs["step"][run]
    rows = np.empty(len(run), dtype=INTERVAL)
    rows["ledger"], rows["step"] = runs["ledger"][run], step[run]
    rows["file"] = (runs["file"] if files is None else files)[run]
    rows["residue"], rows["first"] = first % step[run], first // step[run]
    rows["last"] = rows["first"] + (runs["last"][run] - first) // step[run]
    return rows


def _begins(rows: Intervals) -> Mask:
    """Return where another ledger or residue begins."""
    begins = np.zeros(len(rows), dtype=bool)
    begins[:1] = True
    for name in _GROUP:
        begins[1:] |= rows[name][1:] != rows[name][:-1]
    return begins


def _reached(rows: Intervals) -> Numbers:
    """Return for each sorted row the last turn that an earlier one of its group reaches, or -1 if none is."""
    begins = _begins(rows)
    groups = np.cumsum(begins)
    order = np.lexsort((rows["last"], groups))
    ranks = np.empty(len(rows), dtype=np.int64)
    ranks[order] = np.arange(len(rows))
    # A later group has higher ranks, so that one running maximum serves all groups.
    furthest = rows["last"][order[np.maximum.accumulate(ranks)]] if len(rows) else rows["last"]
    before = np.full(len(rows), -1)
    before[1:] = np.where(begins[1:], -1, furthest[:-1])
    return before


def _united(rows: Intervals) -> Intervals:
    """Return the same ids once, sorted: intervals that touch or overlap are joined."""
    rows = rows[np.lexsort((rows["first"], rows["residue"], rows["ledger"]))]
    starts = np.flatnonzero(_begins(rows) | (rows["first"] - 1 > _reached(rows)))
    together: Intervals = rows[starts]
    if len(rows):
        together["last"] = np.maximum.reduceat(rows["last"], starts)
    return together
