"""The entry ids that the runs of several files cover together, as intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.model.runs import no_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.audit.model.runs import Numbers, Runs


@dataclass(frozen=True, slots=True)
class Cover:
    """The ids of one ledger as disjoint intervals in ascending order, both ends included."""

    ledger_id: int
    firsts: Numbers
    lasts: Numbers

    def gaps(self) -> Iterator[tuple[int, int]]:
        """Yield the ids that are missing between the first and the last."""
        for before, after in zip(self.lasts[:-1].tolist(), self.firsts[1:].tolist(), strict=True):
            yield before + 1, after - 1

    def missing(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [first, last] that are not covered."""
        at = int(np.searchsorted(self.lasts, first))
        while first <= last:
            if at == len(self.firsts) or self.firsts[at] > last:
                yield first, last
                return
            if first < self.firsts[at]:
                yield first, int(self.firsts[at]) - 1
            first = int(self.lasts[at]) + 1
            at += 1


NOTHING = np.empty(0, dtype=np.int64)


def covers(runs: Iterable[Runs]) -> Iterator[Cover]:
    """Yield for each ledger what its runs cover together. Only runs with step 1 count."""
    rows = np.concatenate([no_runs(), *runs])
    rows = rows[rows["step"] == 1]
    if not len(rows):
        return
    rows = rows[np.lexsort((rows["first"], rows["ledger"]))]
    ledgers, begins = np.unique(rows["ledger"], return_index=True)
    ends = np.append(begins[1:], len(rows))
    for ledger_id, begin, end in zip(ledgers.tolist(), begins.tolist(), ends.tolist(), strict=True):
        firsts, lasts = rows["first"][begin:end], np.maximum.accumulate(rows["last"][begin:end])
        # A gap of no ids between two runs means that they belong to one interval.
        opens = np.concatenate([[True], firsts[1:] - 1 > lasts[:-1]])
        closes = np.append(opens[1:], True)
        yield Cover(ledger_id, firsts[opens], lasts[closes])


def overlaps(runs: Iterable[Runs]) -> Iterator[tuple[int, int, int, int]]:
    """Yield file, ledger, first and last id of what a run shares with runs that begin before it."""
    rows = np.concatenate([no_runs(), *runs])
    rows = rows[rows["step"] == 1]
    if not len(rows):
        return
    rows = rows[np.lexsort((rows["file"], rows["first"], rows["ledger"]))]
    ledgers, begins = np.unique(rows["ledger"], return_index=True)
    ends = np.append(begins[1:], len(rows))
    for ledger_id, begin, end in zip(ledgers.tolist(), begins.tolist(), ends.tolist(), strict=True):
        some = rows[begin:end]
        reached = np.maximum.accumulate(some["last"])[:-1]
        for at in np.flatnonzero(some["first"][1:] <= reached).tolist():
            run = some[at + 1]
            yield int(run["file"]), ledger_id, int(run["first"]), min(int(run["last"]), int(reached[at]))


def striped(runs: Iterable[Runs]) -> frozenset[int]:
    """Return the ledgers that have runs with a step above 1."""
    rows = np.concatenate([no_runs(), *runs])
    return frozenset(np.unique(rows["ledger"][rows["step"] > 1]).tolist())
