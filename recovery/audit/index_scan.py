"""What the index holds, as runs: places that stand in a log one behind the other in the order of their ids.

It is read from a copy that lies still: see `recovery.audit.snapshot`. How it is cut into tasks does not
matter to the answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recovery.audit.index_rows import RowReader, Rows
from recovery.verify import runs as runs_codec
from recovery.verify.parts import IndexPart, RowFlaw
from recovery.verify.runs import RUN, merged, no_runs
from storage.codec import index as codec
from storage.entry import ID_MAX
from storage.lmdb_leaves import DATA, LeafReader
from storage.outcome import Damaged
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.task import Pace
    from recovery.verify.runs import Fingerprints, Runs

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

_LOG_SHIFT = 32
_ROWS_OF_A_TASK = 8 << 20
"""Fewer take less time than a task costs by itself."""

_TASKS_FOR_EACH = 2
_RUNS_AT_ONCE = 1 << 17
_FLAWS_MAX = 10_000
"""Of rows that cannot be, no more are named: somebody has written something else there."""


@dataclass(frozen=True, slots=True)
class ScanIndex:
    """The rows of some ledgers, both ends included. `path` is the directory of a copy."""

    path: str
    first_ledger: int
    last_ledger: int
    steps: Mapping[int, int] = field(default_factory=dict)
    rows: int = 0
    """How many there are, where somebody has counted them."""
    stays: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"index {self.first_ledger}..{self.last_ledger}"

    @property
    def size(self) -> int:
        return self.rows * codec.VALUE_SIZE

    def run(self, pace: Pace) -> IndexPart:
        clock = time.monotonic()
        scan = _Scan(self, pace)
        scan.run()
        return IndexPart(
            runs=merged(scan.runs),
            count=scan.count,
            flaws=tuple(scan.flaws),
            seconds=time.monotonic() - clock,
        )


def plan_index(path: str, jobs: int) -> list[tuple[int, int, int]]:
    """Ledgers from the one to the other, and how many rows they have: in some equal parts, all together."""
    with open_file(f"{path}/{DATA}") as data:
        counted = [
            (ledger_id, count)
            for key, count in LeafReader(data).counts()
            if not isinstance(ledger_id := codec.decode_key(key), Damaged)
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


class _Scan:
    """One pass over some ledgers, and another one over those in which an entry has two rows."""

    def __init__(self, task: ScanIndex, pace: Pace) -> None:
        self._task = task
        self._pace = pace
        self.count = 0
        self.runs: list[Runs] = []
        self.flaws: list[RowFlaw] = []

    def run(self) -> None:
        task = self._task
        reader = RowReader(task.path, self._pace.read)
        waiting = 0
        for rows in reader.rows(task.first_ledger, task.last_ledger):
            self.count += len(rows)
            some = runs_of(self._sensible(rows), task.steps)
            self.runs.append(some)
            waiting += len(some)
            if waiting > _RUNS_AT_ONCE:
                self.runs, waiting = [merged(self.runs)], 0
        for misfit in reader.misfits:
            self.flaws.append(RowFlaw(misfit.ledger_id, -1, 0, misfit.why))
        self._look_for_doubles()
        self.flaws.sort(key=lambda flaw: (flaw.ledger_id, flaw.entry_id, flaw.location))

    def _sensible(self, rows: Rows) -> Rows:
        """Those that can be; the others are told."""
        if not len(rows) or (rows.entries.min() >= 0 and rows.locations.min() > 0):
            return rows
        wrong = (rows.entries < 0) | (rows.locations <= 0)
        for ledger_id, entry_id, location in _told(rows.those(wrong)):
            why = "a negative entry id" if entry_id < 0 else "no place in a log"
            self.flaws.append(RowFlaw(ledger_id, entry_id, location, why))
        return rows.those(~wrong)

    def _look_for_doubles(self) -> None:
        for ledger_id, first, last in _overlaps(merged(self.runs)):
            reader = RowReader(self._task.path, self._pace.read)
            found = [_within(rows, first, last) for rows in reader.rows(ledger_id, ledger_id)]
            every = Rows(*(np.concatenate([getattr(one, name) for one in found]) for name in _COLUMNS))
            every = every.those(np.lexsort((every.locations, every.entries)))
            again = np.flatnonzero(every.entries[1:] == every.entries[:-1]) + 1
            for _, entry_id, location in _told(every.those(again)):
                why = "the entry has another place too"
                self.flaws.append(RowFlaw(ledger_id, entry_id, location, why, is_double=True))


_COLUMNS = ("of", "counts", "entries", "locations")


def runs_of(rows: Rows, steps: Mapping[int, int]) -> Runs:
    """The rows as runs, in any order."""
    if not len(rows):
        return no_runs()
    step = _steps(rows, steps)
    if step is not None:
        order = np.lexsort((np.arange(len(rows)), rows.entries % step, rows.ledgers))
        rows, step = rows.those(order), step[order]
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


def _begins(rows: Rows, step: Numbers | None) -> Numbers:
    """Where runs begin: the log changes, or ids do not go on, or the ledger is another."""
    logs = rows.locations >> _LOG_SHIFT
    begins = np.ones(len(rows), dtype=bool)
    np.not_equal(rows.entries[1:] - rows.entries[:-1], 1 if step is None else step[1:], out=begins[1:])
    begins[1:] |= logs[1:] != logs[:-1]
    begins[rows.starts[1:][rows.of[1:] != rows.of[:-1]]] = True
    return np.flatnonzero(begins)


def _fingerprints(rows: Rows, first: Numbers) -> Fingerprints:
    """As `recovery.verify.runs.mix` makes them, in place; its last step, which XOR leaves alone, for runs."""
    mixed = np.repeat(rows.of.view(np.uint64) * runs_codec.LEDGER_FACTOR, rows.counts)
    room = rows.entries.view(np.uint64) * runs_codec.ENTRY_FACTOR
    mixed ^= room
    np.multiply(rows.locations.view(np.uint64), runs_codec.VALUE_FACTOR, out=room)
    mixed += room
    np.right_shift(mixed, runs_codec.HALF, out=room)
    mixed ^= room
    mixed *= runs_codec.STIR_FACTOR
    folded: Fingerprints = np.bitwise_xor.reduceat(mixed, first)
    folded ^= folded >> runs_codec.MOST
    return folded


def _steps(rows: Rows, steps: Mapping[int, int]) -> Numbers | None:
    """How far apart each row's ledger has its entries; `None` where that is 1 for all."""
    of_stretch = [steps.get(ledger_id, 1) for ledger_id in rows.of.tolist()] if steps else []
    if max(of_stretch, default=1) == 1:
        return None
    return np.repeat(np.array(of_stretch, dtype=np.int64), rows.counts)


def _told(rows: Rows) -> list[tuple[int, int, int]]:
    some = rows.those(slice(_FLAWS_MAX))
    return list(zip(some.ledgers.tolist(), some.entries.tolist(), some.locations.tolist(), strict=True))


def _overlaps(runs: Runs) -> Iterator[tuple[int, Numbers, Numbers]]:
    """Each ledger with entries that stand in more than one run: from where to where, ascending."""
    residue = runs["first"] % runs["step"]
    order = np.lexsort((runs["last"], runs["first"], residue, runs["ledger"]))
    runs, residue = runs[order], residue[order]
    over = runs["first"][1:] <= runs["last"][:-1]
    over &= (runs["ledger"][1:] == runs["ledger"][:-1]) & (residue[1:] == residue[:-1])
    for ledger_id in np.unique(runs["ledger"][1:][over]).tolist():
        of = runs[runs["ledger"] == ledger_id]
        yield (
            ledger_id,
            *_doubled(of["first"].tolist(), of["last"].tolist(), (of["first"] % of["step"]).tolist()),
        )


def _doubled(firsts: list[int], lasts: list[int], residues: list[int]) -> tuple[Numbers, Numbers]:
    spans, end, of = [], -1, -1
    for first, last, residue in zip(firsts, lasts, residues, strict=True):
        if residue != of:
            end, of = -1, residue
        if first <= end:
            spans.append((first, min(end, last)))
        end = max(end, last)
    spans.sort()
    begin, behind = np.array(spans, dtype=np.int64).T
    return begin, np.maximum.accumulate(behind)


def _within(rows: Rows, first: Numbers, last: Numbers) -> Rows:
    """Those whose entries lie in one of the spans."""
    at = np.searchsorted(first, rows.entries, "right") - 1
    return rows.those((at >= 0) & (rows.entries <= last[at]))
