"""Scan the index: return its rows as runs of entries whose places follow each other in a log.

It is read from a copy that does not change, see `recovery.audit.snapshot.live_store`. The result does not
depend on how it is cut into tasks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recovery.audit.model import fingerprint
from recovery.audit.model.runs import RUN, merged, no_runs
from recovery.audit.model.scan_results import IndexPart, RowFlaw
from recovery.audit.scan.index_rows import IndexRows, RowReader
from recovery.audit.scan.periods import LedgerSteps
from storage.disk.posix import open_file
from storage.entry.model import ID_MAX
from storage.entry.read_result import Damaged
from storage.index import format as index_format
from storage.index.lmdb.leaves import DATA, LeafReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.engines.task import ReadThrottle
    from recovery.audit.model.runs import Fingerprints, Runs

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

_LOG_SHIFT = 32
_ROWS_OF_A_TASK = 8 << 20
"""The number of rows below which a task costs more than reading them."""

_TASKS_FOR_EACH = 2
_RUNS_AT_ONCE = 1 << 17
_FLAWS_MAX = 10_000
"""The number of invalid rows that are reported, because a foreign file may have any number."""


@dataclass(frozen=True, slots=True)
class ScanIndex:
    """The task to read the rows of some ledgers, both ends included. `path` is the directory of a copy."""

    path: str
    first_ledger: int
    last_ledger: int
    steps: Mapping[int, int] = field(default_factory=dict)
    rows: int = 0
    """The number of rows, if they were counted."""
    needs_this_machine: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"index {self.first_ledger}..{self.last_ledger}"

    @property
    def size(self) -> int:
        return self.rows * index_format.VALUE_SIZE

    def run(self, throttle: ReadThrottle) -> IndexPart:
        clock = time.monotonic()
        scan = _IndexScan(self, throttle)
        scan.run()
        return IndexPart(
            runs=merged(scan.runs),
            count=scan.count,
            flaws=tuple(scan.flaws),
            seconds=time.monotonic() - clock,
        )


def plan_index(path: str, jobs: int) -> list[tuple[int, int, int]]:
    """Return ranges of ledgers with their number of rows: a few about equal ranges that cover everything."""
    with open_file(f"{path}/{DATA}") as data:
        counted = [
            (ledger_id, count)
            for key, count in LeafReader(data).counts()
            if not isinstance(ledger_id := index_format.decode_key(key), Damaged)
        ]
    total = sum(count for _, count in counted)
    pieces = max(1, min(_TASKS_FOR_EACH * jobs, total // _ROWS_OF_A_TASK))
    return list(_cut(counted, -(-total // pieces) if pieces > 1 else total + 1))


def _cut(counted: list[tuple[int, int]], weight_max: int) -> Iterator[tuple[int, int, int]]:
    first, weight = 0, 0
    for ledger_id, count in counted:
        if weight and weight + count > weight_max:
            yield first, ledger_id - 1, weight
            first, weight = ledger_id, 0
        weight += count
    yield first, ID_MAX, weight


class _IndexScan:
    """One pass over some ledgers, and another over those in which an entry has two rows."""

    def __init__(self, task: ScanIndex, throttle: ReadThrottle) -> None:
        self._task = task
        self._throttle = throttle
        self.count = 0
        self.runs: list[Runs] = []
        self.flaws: list[RowFlaw] = []

    def run(self) -> None:
        task = self._task
        reader = RowReader(task.path, self._throttle.read)
        steps = LedgerSteps(task.steps)
        waiting = 0
        for rows in reader.rows(task.first_ledger, task.last_ledger):
            self.count += len(rows)
            some = runs_of(self._sensible(rows), steps)
            self.runs.append(some)
            waiting += len(some)
            if waiting > _RUNS_AT_ONCE:
                self.runs, waiting = [merged(self.runs)], 0
        for invalid in reader.invalid_keys:
            self.flaws.append(RowFlaw(invalid.ledger_id, -1, 0, invalid.why))
        self._find_duplicates()
        self.flaws.sort(key=lambda flaw: (flaw.ledger_id, flaw.entry_id, flaw.location))

    def _sensible(self, rows: IndexRows) -> IndexRows:
        """Return the valid rows and report the others."""
        if not len(rows) or (rows.entries.min() >= 0 and rows.locations.min() > 0):
            return rows
        wrong = (rows.entries < 0) | (rows.locations <= 0)
        for ledger_id, entry_id, location in _first_rows(rows.select(wrong)):
            why = "a negative entry id" if entry_id < 0 else "no place in a log"
            self.flaws.append(RowFlaw(ledger_id, entry_id, location, why))
        return rows.select(~wrong)

    def _find_duplicates(self) -> None:
        for ledger_id, first, last in _overlaps(merged(self.runs)):
            reader = RowReader(self._task.path, self._throttle.read)
            found = [_within(rows, first, last) for rows in reader.rows(ledger_id, ledger_id)]
            every = IndexRows(*(np.concatenate([getattr(one, name) for one in found]) for name in _COLUMNS))
            every = every.select(np.lexsort((every.locations, every.entries)))
            again = np.flatnonzero(every.entries[1:] == every.entries[:-1]) + 1
            for _, entry_id, location in _first_rows(every.select(again)):
                why = "the entry has another place too"
                self.flaws.append(RowFlaw(ledger_id, entry_id, location, why, is_double=True))


_COLUMNS = ("of", "counts", "entries", "locations")


def runs_of(rows: IndexRows, steps: LedgerSteps) -> Runs:
    """Return the rows as runs, in any order. Steps that they show are learned."""
    runs = _runs(rows, steps)
    return _runs(rows, steps) if steps.learn(runs) else runs


def _runs(rows: IndexRows, steps: LedgerSteps) -> Runs:
    if not len(rows):
        return no_runs()
    of_stretch = steps.of(rows.of)
    step = None if of_stretch is None else np.repeat(of_stretch, rows.counts)
    if step is not None:
        order = np.lexsort((np.arange(len(rows)), rows.entries % step, rows.ledgers))
        rows, step = rows.select(order), step[order]
    first = _begins(rows, step)
    last = np.append(first[1:], len(rows)) - 1
    runs = np.zeros(len(first), dtype=RUN)
    runs["file"] = rows.locations[first] >> _LOG_SHIFT
    runs["ledger"] = rows.of[np.searchsorted(rows.starts, first, "right") - 1]
    runs["step"] = 1 if step is None else step[first]
    runs["first"], runs["last"] = rows.entries[first], rows.entries[last]
    runs["count"] = last - first + 1
    runs["places"] = _fingerprints(rows, first)
    return runs


def _begins(rows: IndexRows, step: Numbers | None) -> Numbers:
    """Return where runs begin: at another log, at another ledger, or where ids are not consecutive."""
    logs = rows.locations >> _LOG_SHIFT
    begins = np.ones(len(rows), dtype=bool)
    np.not_equal(rows.entries[1:] - rows.entries[:-1], 1 if step is None else step[1:], out=begins[1:])
    begins[1:] |= logs[1:] != logs[:-1]
    begins[rows.starts[1:][rows.of[1:] != rows.of[:-1]]] = True
    return np.flatnonzero(begins)


def _fingerprints(rows: IndexRows, first: Numbers) -> Fingerprints:
    """Return the fingerprints of the places for each run."""
    shared = np.repeat(fingerprint.ledger_part(rows.of), rows.counts)
    stirred = fingerprint.add_entry_part(shared, rows.entries)
    # Both arrays are overwritten, because a new one costs more in page faults than the arithmetic.
    fingerprint.stir(rows.locations, shared, out=stirred, scratch=shared)
    return fingerprint.fold(stirred, first)


def _first_rows(rows: IndexRows) -> list[tuple[int, int, int]]:
    some = rows.select(slice(_FLAWS_MAX))
    return list(zip(some.ledgers.tolist(), some.entries.tolist(), some.locations.tolist(), strict=True))


def _overlaps(runs: Runs) -> Iterator[tuple[int, Numbers, Numbers]]:
    """Yield each ledger with entries that are in more than one run, and the spans of these entries,
    ascending.
    """
    order = np.lexsort((runs["last"], runs["first"], _residues(runs), runs["ledger"]))
    runs = runs[order]
    residue = _residues(runs)
    over = runs["first"][1:] <= runs["last"][:-1]
    over &= (runs["ledger"][1:] == runs["ledger"][:-1]) & (residue[1:] == residue[:-1])
    for ledger_id in np.unique(runs["ledger"][1:][over]).tolist():
        of = runs[runs["ledger"] == ledger_id]
        yield ledger_id, *_doubled(of["first"].tolist(), of["last"].tolist(), _residues(of).tolist())


def _residues(runs: Runs) -> Numbers:
    """Return the residue of each run, or 0 in ledgers with runs of several steps: those may overlap in spans
    without an entry in common, and then they are read again for nothing.
    """
    ledgers, of = np.unique(runs["ledger"], return_inverse=True)
    least, most = np.full(len(ledgers), 2**62), np.zeros(len(ledgers), dtype=np.int64)
    np.minimum.at(least, of, runs["step"])
    np.maximum.at(most, of, runs["step"])
    residues: Numbers = np.where((least == most)[of], runs["first"] % runs["step"], 0)
    return residues


def _doubled(firsts: list[int], lasts: list[int], residues: list[int]) -> tuple[Numbers, Numbers]:
    spans, end, of = [], -1, -1
    for first, last, residue in zip(firsts, lasts, residues, strict=True):
        if residue != of:
            end, of = -1, residue
        if first <= end:
            spans.append((first, min(end, last)))
        end = max(end, last)
    spans.sort()
    begin, after = np.array(spans, dtype=np.int64).T
    return begin, np.maximum.accumulate(after)


def _within(rows: IndexRows, first: Numbers, last: Numbers) -> IndexRows:
    """Return the rows whose entries are in one of the spans."""
    at = np.searchsorted(first, rows.entries, "right") - 1
    return rows.select((at >= 0) & (rows.entries <= last[at]))
