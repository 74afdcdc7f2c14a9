"""Find the step of a ledger by arithmetic: a store with two of every three entries has the ids 0 1 3 4 6 7 …

Runs with consecutive ids then have two entries each, and a run table of millions of rows. If the first ids of
neighbouring runs are the same distance apart again and again, the ledger gets this distance as its step: then
each residue is one long run. A wrong guess costs nothing but rows, because runs say what their step is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.model.runs import Numbers, Runs

STEP_MAX = 16
"""The largest ensemble for which this is done. A longer distance is rather a gap."""

_ENTRIES_OF_A_RUN = 4
"""If the runs are longer on average, there is no need for steps."""
_ROWS_MIN = 64
_SHARE = 0.75
"""The share of the distances that must be equal to the ones before them."""


class LedgerSteps:
    """The steps of ledgers: those that ensembles declare, and those that were found."""

    def __init__(self, declared: Mapping[int, int]) -> None:
        self._steps = dict(declared)
        self._sort()

    def _sort(self) -> None:
        ledgers = sorted(self._steps)
        self._ledgers = np.array(ledgers, dtype=np.int64)
        self._values = np.array([self._steps[ledger] for ledger in ledgers], dtype=np.int64)

    def of(self, ledgers: Numbers) -> Numbers | None:
        """Return the step of each ledger, or `None` if all are 1."""
        if not len(self._ledgers):
            return None
        found = np.searchsorted(self._ledgers, ledgers).clip(max=len(self._ledgers) - 1)
        steps = np.where(self._ledgers[found] == ledgers, self._values[found], 1)
        return None if (steps == 1).all() else steps

    def learn(self, runs: Runs) -> bool:
        """Find the steps of ledgers whose runs show a period. Return whether there is a new one.

        The runs of each ledger follow one another, in any order of the ledgers.
        """
        if len(runs) < _ROWS_MIN or int(runs["count"].sum()) > _ENTRIES_OF_A_RUN * len(runs):
            return False
        found = periods(runs)
        new = {ledger: step for ledger, step in found.items() if ledger not in self._steps}
        if new:
            self._steps |= new
            self._sort()
        return bool(new)


def periods(runs: Runs) -> dict[int, int]:
    """Return the ledgers whose runs with consecutive ids begin at a constant distance, and this distance."""
    some = runs[runs["step"] == 1]
    some = some[np.lexsort((some["first"], some["ledger"]))]
    distance = some["first"][1:] - some["first"][:-1]
    distance[some["ledger"][1:] != some["ledger"][:-1]] = 0
    ledgers, begins, counts = np.unique(some["ledger"], return_index=True, return_counts=True)
    again = (distance[1:] == distance[:-1]) & (distance[1:] > 1) & (distance[1:] <= STEP_MAX)
    totals = np.append(0, np.cumsum(again))
    firsts = begins.clip(max=len(again))
    agreeing = totals[(begins + counts - 2).clip(min=firsts, max=len(again))] - totals[firsts]
    steps = {}
    for ledger, begin, count, agree in zip(
        ledgers.tolist(), begins.tolist(), counts.tolist(), agreeing.tolist(), strict=True
    ):
        if agree > 1 and agree >= _SHARE * (count - 2):
            steps[ledger] = int(distance[begin : begin + count - 2][again[begin : begin + count - 2]][0])
    return steps
