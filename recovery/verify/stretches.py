"""Stretches: entries of one ledger, of one residue, on one store, as an interval.

What runs become before stores are compared. An entry e of a ledger whose ensemble makes runs of `step` is
counted by its residue e mod step and its turn e div step: in turns, what a store has of a residue is without
gaps, whatever share of the ledger it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from recovery.verify.runs import Numbers, Runs

    Stretches = np.ndarray[Any, Any]
    Mask = np.ndarray[Any, np.dtype[np.bool_]]

STRETCH = np.dtype(
    [
        ("ledger", "<i8"),  # its number among those looked at, not its id
        ("residue", "<i8"),
        ("store", "<i8"),  # its number
        ("first", "<i8"),  # turns, both included
        ("last", "<i8"),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Ledgers:
    """The ledgers that are looked at: ids, ascending, and how far apart their runs' entries are."""

    ids: Numbers
    steps: Numbers

    def numbers(self, ids: Any) -> Numbers:
        """The number of each of those ledgers; -1: it is not looked at."""
        if not len(self.ids):
            return np.full(len(ids), -1)
        found = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
        return np.where(self.ids[found] == ids, found, -1)


@dataclass(frozen=True, slots=True, eq=False)
class Stretched:
    """Runs as stretches, and the run that each is of."""

    rows: Stretches
    runs: Numbers


def stretched(runs: Runs, ledgers: Ledgers, store: int) -> Stretched:
    """The runs of ledgers that are looked at. Those of a finer step are dealt out to the residues."""
    numbers = ledgers.numbers(runs["ledger"])
    steps = np.where(numbers >= 0, ledgers.steps[numbers] if len(ledgers.steps) else 1, 1)
    fits = (runs["step"] == steps) | (runs["count"] == 1)
    if (~fits & (steps % runs["step"] != 0) & (numbers >= 0)).any():
        raise ValueError("runs were made with a step that does not fit the ensembles")
    shares = np.where(fits, 1, steps // runs["step"])
    shares[numbers < 0] = 0
    sources = np.repeat(np.arange(len(runs)), shares)
    number, step = numbers[sources], steps[sources]
    firsts = runs["first"][sources] + _ordinals(shares) * runs["step"][sources]
    lasts = runs["last"][sources]
    kept = np.flatnonzero(firsts <= lasts)
    rows = np.empty(len(kept), dtype=STRETCH)
    rows["store"] = store
    rows["ledger"], rows["residue"] = number[kept], (firsts % step)[kept]
    rows["first"], rows["last"] = (firsts // step)[kept], ((lasts - firsts) // step + firsts // step)[kept]
    return Stretched(rows, sources[kept])


def _ordinals(counts: Numbers) -> Numbers:
    """0 … n-1 for each n, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def ordered(rows: Stretches) -> Numbers:
    """Their order: by ledger, residue, store and first turn."""
    return np.lexsort((rows["first"], keys(rows, "ledger", "residue", "store")))


def keys(rows: Stretches, *names: str) -> Numbers:
    """One number for those columns together, in the same order. They are small numbers, never ids."""
    key = np.zeros(len(rows), dtype=np.int64)
    for name in names:
        key *= rows[name].max(initial=0) + 1
        key += rows[name]
    return key


def breaks(rows: Stretches, *names: str) -> Mask:
    """Of rows in order: where one of those columns differs from the row before."""
    new = np.ones(len(rows), dtype=bool)
    if len(rows):
        new[1:] = False
    for name in names:
        new[1:] |= rows[name][1:] != rows[name][:-1]
    return new


def reaches(rows: Stretches, new: Mask) -> Numbers:
    """For each row the last turn that any row before it in its group reaches; -1 for the first."""
    groups = np.cumsum(new)
    order = np.lexsort((rows["last"], groups))
    ranks = np.empty(len(rows), dtype=np.int64)
    ranks[order] = np.arange(len(rows))
    # A later group has higher ranks: one running maximum serves all of them.
    furthest = rows["last"][order[np.maximum.accumulate(ranks)]] if len(rows) else rows["last"]
    before = np.full(len(rows), -1)
    before[1:] = np.where(new[1:], -1, furthest[:-1])
    return before


def united(rows: Stretches) -> Stretches:
    """The same entries, each once: what touches or overlaps on one store is put together. In order."""
    rows = rows[ordered(rows)]
    new = breaks(rows, "ledger", "residue", "store")
    if _overlaps(rows, new):
        begins = new | (rows["first"] - 1 > reaches(rows, new))
    else:
        begins = new.copy()
        begins[1:] |= rows["first"][1:] - 1 != rows["last"][:-1]
    starts = np.flatnonzero(begins)
    together = rows[starts]
    if len(rows):
        together["last"] = np.maximum.reduceat(rows["last"], starts)
    return together


def _overlaps(rows: Stretches, new: Mask) -> bool:
    return bool((~new[1:] & (rows["first"][1:] <= rows["last"][:-1])).any())


def last_at_or_before(starts: Numbers, low: Numbers, high: Numbers, values: Numbers) -> Numbers:
    """For each value the last place in [low, high) of `starts`, ascending there, that is not above it.

    The first one where all are above it.
    """
    low, high = low.copy(), high.copy()
    while len(low) and (high - low > 1).any():
        middle = (low + high) // 2
        goes_up = (high - low > 1) & (starts[middle.clip(max=len(starts) - 1)] <= values)
        low = np.where(goes_up, middle, low)
        high = np.where(goes_up | (high - low <= 1), high, middle)
    return low
