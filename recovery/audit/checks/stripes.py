"""Stripes: entries of one ledger and one residue on one store, as an interval.

Runs are converted to stripes before stores are compared. Entry e of a ledger with step s is counted by its
residue e mod s and its turn e div s. In turns, the entries of a residue that a store holds have no gaps,
whatever share of the ledger the store holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from recovery.audit.model.runs import Mask, Numbers, Runs

    Stripes = np.ndarray[Any, Any]

STRIPE = np.dtype(
    [
        ("ledger", "<i8"),  # its number among those looked at, not its id
        ("residue", "<i8"),
        ("store", "<i8"),  # its number
        ("first", "<i8"),  # turns, both included
        ("last", "<i8"),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class LedgerNumbers:
    """The ledgers that are compared: ids in ascending order, and the step of each."""

    ids: Numbers
    steps: Numbers

    def numbers(self, ids: Any) -> Numbers:
        """Return the number of each of these ledgers, or -1 if it is not compared."""
        if not len(self.ids):
            return np.full(len(ids), -1)
        found = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
        return np.where(self.ids[found] == ids, found, -1)


@dataclass(frozen=True, slots=True, eq=False)
class StripedRuns:
    """Runs as stripes, and the run of each stripe."""

    rows: Stripes
    runs: Numbers


def to_stripes(runs: Runs, ledgers: LedgerNumbers, store: int) -> StripedRuns:
    """Convert the runs of compared ledgers. Runs with a smaller step are split by residue."""
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
    rows = np.empty(len(kept), dtype=STRIPE)
    rows["store"] = store
    rows["ledger"], rows["residue"] = number[kept], (firsts % step)[kept]
    rows["first"], rows["last"] = (firsts // step)[kept], ((lasts - firsts) // step + firsts // step)[kept]
    return StripedRuns(rows, sources[kept])


def _ordinals(counts: Numbers) -> Numbers:
    """Return 0 … n-1 for each n, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def ordered(rows: Stripes) -> Numbers:
    """Return the order by ledger, residue, store and first turn."""
    return np.lexsort((rows["first"], keys(rows, "ledger", "residue", "store")))


def keys(rows: Stripes, *names: str) -> Numbers:
    """Combine the columns into one number with the same order. The columns are small numbers, not ids."""
    key = np.zeros(len(rows), dtype=np.int64)
    for name in names:
        key *= rows[name].max(initial=0) + 1
        key += rows[name]
    return key


def breaks(rows: Stripes, *names: str) -> Mask:
    """Return where one of these columns differs from the row before. The rows are sorted."""
    new = np.ones(len(rows), dtype=bool)
    if len(rows):
        new[1:] = False
    for name in names:
        new[1:] |= rows[name][1:] != rows[name][:-1]
    return new


def reaches(rows: Stripes, new: Mask) -> Numbers:
    """Return for each row the last turn that an earlier row of its group reaches, or -1 for the first row."""
    groups = np.cumsum(new)
    order = np.lexsort((rows["last"], groups))
    ranks = np.empty(len(rows), dtype=np.int64)
    ranks[order] = np.arange(len(rows))
    # A later group has higher ranks, so that one running maximum serves all groups.
    furthest = rows["last"][order[np.maximum.accumulate(ranks)]] if len(rows) else rows["last"]
    before = np.full(len(rows), -1)
    before[1:] = np.where(new[1:], -1, furthest[:-1])
    return before


def united(rows: Stripes) -> Stripes:
    """Return the same entries once: stripes of one store that touch or overlap are joined. The result is
    sorted.
    """
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


def _overlaps(rows: Stripes, new: Mask) -> bool:
    return bool((~new[1:] & (rows["first"][1:] <= rows["last"][:-1])).any())


def last_at_or_before(starts: Numbers, low: Numbers, high: Numbers, values: Numbers) -> Numbers:
    """Return for each value the last place in [low, high) of `starts`, ascending there, that is not above it.

    If all are above it, return the first place.
    """
    low, high = low.copy(), high.copy()
    while len(low) and (high - low > 1).any():
        middle = (low + high) // 2
        goes_up = (high - low > 1) & (starts[middle.clip(max=len(starts) - 1)] <= values)
        low = np.where(goes_up, middle, low)
        high = np.where(goes_up | (high - low <= 1), high, middle)
    return low
