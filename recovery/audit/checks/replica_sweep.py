"""The sweep: find for every required entry which of the stores that should hold it do.

Each stripe is an event where it begins and another after its end, with a bit for its store. Summed up in
order, the events give the holders of every piece of a group. A few rows stand for any number of entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.checks.replica_spans import cut

if TYPE_CHECKING:
    from recovery.audit.checks.replica_spans import Spans
    from recovery.audit.checks.stripes import Stripes
    from recovery.audit.model.runs import Numbers

    Pieces = np.ndarray[Any, Any]
    Placed = np.ndarray[Any, Any]

PLACED = np.dtype(
    [
        ("span", "<i8"),
        ("residue", "<i8"),
        ("store", "<i8"),
        ("first", "<i8"),
        ("last", "<i8"),
        ("column", "<i8"),  # its number in the write set; -1: it need not hold them
        ("bit", "<i8"),  # the same, and a number of its own for each store outside the write set
    ]
)
"""Entries that a store holds in one group."""

PIECE = np.dtype(
    [
        ("span", "<i8"),
        ("residue", "<i8"),
        ("first", "<i8"),  # turns, both included
        ("last", "<i8"),
        ("held", "<i8"),  # a bit for each store that holds all of it
    ]
)
"""A piece of a group whose entries are all held by the same stores."""

_BITS = 62
"""The number of stores with copies of one entry that are told apart. Stores outside the write set are dropped
first.
"""


@dataclass(frozen=True, slots=True, eq=False)
class SweepResult:
    """Which store holds which entries: by store, and by piece."""

    placed: Placed
    pieces: Pieces


def sweep(rows: Stripes, spans: Spans) -> SweepResult:
    """Sweep the rows. They are united: every entry is in at most one of them."""
    placed = _placed(rows, spans)
    return SweepResult(placed, _pieces(placed, spans))


def _placed(rows: Stripes, spans: Spans) -> Placed:
    pieces = cut(rows, spans)
    row, span = rows[pieces.row], pieces.span
    placed = np.empty(len(row), dtype=PLACED)
    for name in ("residue", "store"):
        placed[name] = row[name]
    placed["span"] = span
    placed["first"] = np.maximum(row["first"], spans.first_turn(span, row["residue"]))
    placed["last"] = np.minimum(row["last"], spans.last_turn(span, row["residue"]))
    placed = placed[placed["first"] <= placed["last"]]
    placed["column"] = spans.columns(placed["span"], placed["residue"], placed["store"])
    placed["bit"] = placed["column"]
    beside = np.flatnonzero(placed["column"] < 0)
    placed["bit"][beside] = spans.write[placed["span"][beside]] + _ranks(placed[beside])
    return placed


def _ranks(placed: Placed) -> Numbers:
    """Return for each row the number of its store among those of the group."""
    order = np.lexsort((placed["store"], placed["residue"], placed["span"]))
    rows = placed[order]
    new_group = np.ones(len(rows), dtype=bool)
    new_group[1:] = rows["span"][1:] != rows["span"][:-1]
    new_group[1:] |= rows["residue"][1:] != rows["residue"][:-1]
    new_store = new_group.copy()
    new_store[1:] |= rows["store"][1:] != rows["store"][:-1]
    counted = np.cumsum(new_store)
    firsts = np.maximum.accumulate(np.where(new_group, counted, 0))
    ranks = np.empty(len(rows), dtype=np.int64)
    ranks[order] = counted - firsts
    return ranks


def _pieces(placed: Placed, spans: Spans) -> Pieces:
    span, residue = _owed_groups(spans)
    relevant = placed[(spans.write[placed["span"]] > 0) & (placed["bit"] < _BITS)]
    own = spans.group[relevant["span"]] + relevant["residue"]
    group, bit = spans.group[span] + residue, np.int64(1) << relevant["bit"]
    nothing = np.zeros(len(group), dtype=np.int64)
    firsts, lasts = spans.first_turn(span, residue), spans.last_turn(span, residue)
    groups = np.concatenate([group, group, own, own])
    # The number after the last turn may not fit into a signed number.
    ends = [lasts.astype(np.uint64) + np.uint64(1), relevant["last"].astype(np.uint64) + np.uint64(1)]
    turns = np.concatenate([firsts.astype(np.uint64), ends[0], relevant["first"].astype(np.uint64), ends[1]])
    changes = np.concatenate([nothing, nothing, bit, -bit])
    order = np.lexsort((turns, groups))
    groups, turns, changes = groups[order], turns[order], changes[order]

    new = np.ones(len(groups), dtype=bool)
    new[1:] = (groups[1:] != groups[:-1]) | (turns[1:] != turns[:-1])
    starts = np.flatnonzero(new)
    groups, turns = groups[starts], turns[starts]
    changes = np.add.reduceat(changes, starts) if len(starts) else changes
    held = np.cumsum(changes)

    inside = np.flatnonzero(groups[1:] == groups[:-1])
    pieces = np.empty(len(inside), dtype=PIECE)
    pieces["span"] = np.searchsorted(spans.group, groups[inside], side="right") - 1
    pieces["residue"] = groups[inside] - spans.group[pieces["span"]]
    pieces["first"], pieces["last"] = turns[inside], turns[inside + 1] - np.uint64(1)
    pieces["held"] = held[inside]
    return pieces


def _owed_groups(spans: Spans) -> tuple[Numbers, Numbers]:
    """Return span and residue of every group that has entries which a store has to hold."""
    owed = np.flatnonzero(spans.write > 0)
    steps = spans.step[owed]
    span = np.repeat(owed, steps)
    residue = np.arange(len(span)) - np.repeat(np.cumsum(steps) - steps, steps)
    kept = spans.first_turn(span, residue) <= spans.last_turn(span, residue)
    return span[kept], residue[kept]
