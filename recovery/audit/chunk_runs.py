"""Runs made of columns of entries: sorted by ledger, cut where ids do not go on, fingerprints of each.

The numbers are those of `recovery.verify.runs.mix`, made in place: the part that both fingerprints share is
made once, and the last step, which XOR does not disturb, for runs instead of entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.verify import runs as codec
from recovery.verify.runs import RUN, no_runs
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.chunk_columns import Columns
    from recovery.verify.runs import Fingerprints, Numbers, Runs

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

_SAMPLE = 64
_APART = 40_503  # so that residues of one ledger get codes of their own
_ROWS_MAX = 8 << 10
"""So many rows wait before they are put together."""


class RunMaker:
    """Makes runs of one log's entries, however many there are: it holds few runs that could be joined."""

    def __init__(self, log_id: int, steps: Mapping[int, int]) -> None:
        self._log_id = log_id
        self._ledgers = np.array(sorted(steps), dtype=np.int64)
        self._steps = np.array([steps[ledger] for ledger in sorted(steps)], dtype=np.int64)
        self._parts: list[Runs] = []
        self._rows = 0
        self._rows_max = _ROWS_MAX

    def add(self, columns: Columns) -> Runs:
        """The runs of what the columns hold, which are kept."""
        if not columns.count:
            return no_runs()
        made = self._made(columns)
        self._parts.append(made)
        self._rows += len(made)
        if self._rows > self._rows_max:
            self._parts = [joined(np.concatenate(self._parts))]
            self._rows = len(self._parts[0])
            self._rows_max = max(_ROWS_MAX, 2 * self._rows)
        return made

    def runs(self) -> Runs:
        """All that were made, put together."""
        return codec.merged([joined(np.concatenate(self._parts))] if self._parts else [])

    def _made(self, columns: Columns) -> Runs:
        count = columns.count
        ledgers, entries = columns.ledgers[:count], columns.entries[:count]
        steps = self._steps_of(ledgers)
        order = _order(ledgers, entries, steps)
        if order is None:
            return self._of_sorted(columns, steps, slice(0, count))
        return self._of_sorted(columns, steps if steps is None else steps[order], order)

    def _steps_of(self, ledgers: Numbers) -> Numbers | None:
        if not len(self._ledgers):
            return None
        found = np.searchsorted(self._ledgers, ledgers).clip(max=len(self._ledgers) - 1)
        return np.where(self._ledgers[found] == ledgers, self._steps[found], 1)

    def _of_sorted(self, columns: Columns, steps: Numbers | None, order: Any) -> Runs:
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
        shared = _times(ledgers, codec.LEDGER_FACTOR)
        shared ^= _times(entries, codec.ENTRY_FACTOR)
        places = columns.offsets[order] + (self._log_id << 32 | LENGTH_WORD_SIZE)
        runs["places"] = _folded(_stirred(places, shared), begins)
        digests = _stirred(columns.digests[order], shared)
        if columns.bad:
            bad = ~columns.good[order]
            digests[bad] = 0
            runs["bad"] = np.add.reduceat(bad, begins, dtype=np.int64)
        runs["digests"] = _folded(digests, begins)
        return runs


def _summed(sizes: Numbers, order: Any, begins: Numbers, counts: Numbers) -> Numbers:
    is_one = sizes[0] == sizes[-1] and sizes.min() == sizes.max()
    summed: Numbers = counts * sizes[0] if is_one else np.add.reduceat(sizes[order], begins)
    return summed


def _order(ledgers: Numbers, entries: Numbers, steps: Numbers | None) -> Numbers | None:
    """A stable order in which the entries of a ledger stand together; `None` where they mostly do.

    Nothing depends on it but the number of runs: those of one ledger are put together later anyway.
    """
    if steps is not None:
        return np.lexsort((entries % steps, ledgers))
    few = slice(0, _SAMPLE)
    if np.count_nonzero(ledgers[few][1:] != ledgers[few][:-1]) * 8 < min(len(ledgers), _SAMPLE):
        return None
    # By the lower half of a ledger's id: 16 bits are sorted in two rounds, without comparing.
    order: Numbers = ledgers.astype(np.uint16).argsort(kind="stable")
    return order


def _times(numbers: Any, factor: np.uint64) -> Fingerprints:
    product: Fingerprints = numbers.view(np.uint64) * factor
    return product


def _stirred(values: Any, shared: Fingerprints) -> Fingerprints:
    """The numbers of the entries but for the last step of `mix`."""
    mixed = _times(values, codec.VALUE_FACTOR)
    mixed += shared
    mixed ^= mixed >> codec.HALF
    mixed *= codec.STIR_FACTOR
    return mixed


def _folded(mixed: Fingerprints, begins: Numbers) -> Fingerprints:
    folded: Fingerprints = np.bitwise_xor.reduceat(mixed, begins)
    folded ^= folded >> codec.MOST
    return folded


def joined(runs: Runs) -> Runs:
    """Neighbours put together that follow each other in the order of the log: not sorted, nor all of them."""
    codes = runs["ledger"] + runs["first"] % runs["step"] * _APART
    runs = runs[codes.astype(np.uint16).argsort(kind="stable")]
    goes_on = runs["first"][1:] == runs["last"][:-1] + runs["step"][1:]
    goes_on &= runs["ledger"][1:] == runs["ledger"][:-1]
    goes_on &= runs["step"][1:] == runs["step"][:-1]
    return codec.put_together(runs, np.flatnonzero(np.append(True, ~goes_on)))
