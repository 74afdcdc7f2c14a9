"""Make runs from columns of entries: sort by ledger, cut where ids are not consecutive, compute
fingerprints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.model import fingerprint
from recovery.audit.model.runs import RUN, merged, no_runs, put_together
from recovery.audit.scan.chunk_columns import CAPACITY
from recovery.audit.scan.periods import LedgerSteps
from storage.entry.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.model.runs import Fingerprints, Numbers, Runs
    from recovery.audit.scan.chunk_columns import ChunkColumns


_SAMPLE = 64
_APART = 40_503  # a factor that gives the residues of one ledger different codes
_ROWS_MAX = 8 << 10
"""The number of rows that are collected before neighbours are joined."""


class RunMaker:
    """Makes the runs of one log's entries. Its memory does not grow with their number, because it
    joins runs.
    """

    def __init__(self, log_id: int, steps: Mapping[int, int]) -> None:
        self._log_id = log_id
        self._steps = LedgerSteps(steps)
        self._parts: list[Runs] = []
        self._rows = 0
        self._rows_max = _ROWS_MAX
        self._work = np.empty((2, CAPACITY), dtype=np.uint64)

    def add(self, columns: ChunkColumns) -> Runs:
        """Make and keep the runs of the entries in the columns, and return them."""
        if not columns.count:
            return no_runs()
        made = self._make(columns)
        if self._steps.learn(made):
            made = self._make(columns)
        self._parts.append(made)
        self._rows += len(made)
        if self._rows > self._rows_max:
            self._parts = [joined(np.concatenate(self._parts))]
            # In one chunk there may be too few entries of a ledger to see a period.
            self._steps.learn(self._parts[0])
            self._rows = len(self._parts[0])
            self._rows_max = max(_ROWS_MAX, 2 * self._rows)
        return made

    def runs(self) -> Runs:
        """Return all runs, joined."""
        return merged([joined(np.concatenate(self._parts))] if self._parts else [])

    def _make(self, columns: ChunkColumns) -> Runs:
        count = columns.count
        ledgers, entries = columns.ledgers[:count], columns.entries[:count]
        steps = self._steps.of(ledgers)
        order = _order(ledgers, entries, steps)
        if order is None:
            return self._runs_of_sorted(columns, steps, slice(0, count))
        return self._runs_of_sorted(columns, steps if steps is None else steps[order], order)

    def _workspace(self, count: int) -> Fingerprints:
        """Return two arrays of that size.

        They are reused, because the system takes back the memory of arrays that are allocated and freed for
        every chunk, and then each of their pages costs a fault again.
        """
        if count > self._work.shape[1]:
            self._work = np.empty((2, count), dtype=np.uint64)
        return self._work[:, :count]

    def _runs_of_sorted(self, columns: ChunkColumns, steps: Numbers | None, order: Any) -> Runs:
        ledgers, entries = columns.ledgers[order], columns.entries[order]
        breaks = np.empty(len(ledgers), dtype=np.bool_)
        breaks[0] = True
        np.not_equal(entries[1:] - entries[:-1], 1 if steps is None else steps[1:], out=breaks[1:])
        breaks[1:] |= ledgers[1:] != ledgers[:-1]
        (begins,) = breaks.nonzero()
        ends = np.append(begins[1:], len(ledgers)) - 1
        runs = np.empty(len(begins), dtype=RUN)
        runs["file"] = self._log_id
        runs["ledger"] = ledgers[begins]
        runs["step"] = 1 if steps is None else steps[begins]
        runs["first"], runs["last"] = entries[begins], entries[ends]
        runs["count"] = ends - begins + 1
        runs["size"] = _summed(columns.sizes[: columns.count], order, begins, runs["count"])
        runs["bad"] = 0
        shared = fingerprint.ledger_part(ledgers)
        out, scratch = self._workspace(len(shared))
        fingerprint.add_entry_part(shared, entries, scratch)
        places = columns.offsets[order] + (self._log_id << 32 | LENGTH_WORD_SIZE)
        runs["places"] = fingerprint.fold(fingerprint.stir(places, shared, out, scratch), begins)
        stirred = fingerprint.stir(columns.digests[order], shared, out, scratch)
        if columns.bad:
            bad = ~columns.good[order]
            stirred[bad] = 0
            runs["bad"] = np.add.reduceat(bad, begins, dtype=np.int64)
        runs["digests"] = fingerprint.fold(stirred, begins)
        return runs


def _summed(sizes: Numbers, order: Any, begins: Numbers, counts: Numbers) -> Numbers:
    is_one = sizes[0] == sizes[-1] and sizes.min() == sizes.max()
    summed: Numbers = counts * sizes[0] if is_one else np.add.reduceat(sizes[order], begins)
    return summed


def _order(ledgers: Numbers, entries: Numbers, steps: Numbers | None) -> Numbers | None:
    """Return a stable order that puts the entries of each ledger together, or `None` if they mostly are
    already.

    Only the number of runs depends on it, because the runs of one ledger are joined later anyway.
    """
    if steps is not None:
        return np.lexsort((entries % steps, ledgers))
    few = slice(0, _SAMPLE)
    if np.count_nonzero(ledgers[few][1:] != ledgers[few][:-1]) * 8 < min(len(ledgers), _SAMPLE):
        return None
    # By the lower 16 bits of the ledger id, because they are radix sorted in two passes without comparisons.
    order: Numbers = ledgers.astype(np.uint16).argsort(kind="stable")
    return order


def joined(runs: Runs) -> Runs:
    """Join neighbours that continue each other, in the order of the log. The result is not sorted, and not
    all are joined.
    """
    codes = runs["ledger"] + runs["first"] % runs["step"] * _APART
    runs = runs[codes.astype(np.uint16).argsort(kind="stable")]
    goes_on = runs["first"][1:] == runs["last"][:-1] + runs["step"][1:]
    goes_on &= runs["ledger"][1:] == runs["ledger"][:-1]
    goes_on &= runs["step"][1:] == runs["step"][:-1]
    return put_together(runs, np.flatnonzero(np.append(True, ~goes_on)))
