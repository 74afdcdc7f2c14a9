"""Scan an entry log: verify every byte of a range, return its entries as runs and its flaws with their
places.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recovery.audit.model.scan_results import FlawAt, FlawKind, LogPart, MapRecord
from recovery.audit.scan.chunk_runs import RunMaker
from recovery.audit.scan.entry_log_flaws import FlawList
from recovery.audit.scan.entry_log_walk import LogWalk
from recovery.audit.scan.read_around import ReadAroundFile
from storage.disk.posix import open_file
from storage.entry.digest_inference import matching_checksum
from storage.entry.read_result import Flaw
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.format import HEADER_SIZE
from storage.entrylog.reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog.scan import Hole, LogFiller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.engines.task import ReadThrottle
    from recovery.audit.model.runs import Mask
    from recovery.audit.scan.chunk_columns import ChunkColumns
    from storage.disk.files import ReadFile
    from storage.entry.digest_inference import EntryVerifier


@dataclass(frozen=True, slots=True)
class ScanLog:
    """The task to read and verify one range of an entry log."""

    path: str
    log_id: int
    start: int
    end: int
    """Every record whose length word begins before this offset belongs to the range."""
    policy: DigestPolicy
    steps: Mapping[int, int] = field(default_factory=dict)
    """For striped ledgers the distance of the ids in a run."""
    entry: int | None = None
    """Where the first record begins; `None` means at the first sound record from `start` on."""

    @property
    def name(self) -> str:
        return f"{self.path}@{self.start}"

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def run(self, throttle: ReadThrottle) -> LogPart:
        with ReadAroundFile(open_file(self.path)) as file:
            part = scan(file, self, throttle)
            return replace(part, unreadable=file.unreadable())


def scan(file: ReadFile, task: ScanLog, throttle: ReadThrottle) -> LogPart:
    """Scan a file that is already open."""
    clock = time.perf_counter()
    verifier = task.policy.verifier()
    reader = EntryLogReader(file, task.log_id, verifier)
    entry = _entry(reader, task)
    once = _LogScan(file, task, verifier, throttle)
    part = once.run(entry, clock)
    if not once.walk.depends_on_types:
        return part
    # Types inferred from the last entries of a ledger apply to its first entries too.
    twice = _LogScan(file, task, verifier, throttle.without_reporting())
    twice.walk.types.start_with(once.walk.types)
    return twice.run(entry, clock)


def _entry(reader: EntryLogReader, task: ScanLog) -> int:
    if task.entry is not None:
        return task.entry
    if task.start <= HEADER_SIZE:
        return HEADER_SIZE
    found = entrylog_scan.first_sound(reader, task.start, min(task.end, reader.size))
    return max(task.start, task.end) if found is None else found


class _LogScan:
    """One walk over the range, and what it finds."""

    def __init__(
        self, file: ReadFile, task: ScanLog, verifier: EntryVerifier, throttle: ReadThrottle
    ) -> None:
        self.walk = LogWalk(file, task.log_id, task.policy, verifier, self, throttle)
        self._task = task
        self._verifier = verifier
        self._made = RunMaker(task.log_id, task.steps)
        self._records = 0
        self._flaws = FlawList()
        self._holes: list[FlawAt] = []
        """Holes after which no entry has been reported yet."""
        self._maps: list[MapRecord] = []
        self._fillers = 0
        self._unverified: Counter[int] = Counter()
        self._unknown = FlawList()

    def run(self, entry: int, clock: float) -> LogPart:
        reader = self.walk.reader
        after = self.walk.run(entry, self._task.end)
        for hole in self._holes:
            self._flaws.add(hole)
        self._report_doubtful()
        runs = self._made.runs()
        return LogPart(
            log_id=self._task.log_id,
            start=self._task.start,
            end=self._task.end,
            entry=entry,
            exit=after,
            file_size=reader.size,
            header=reader.header,
            runs=runs,
            records=self._records,
            size=after - entry,
            flaws=self._flaws.all(),
            maps=tuple(self._maps),
            fillers=self._fillers,
            stop=self.walk.stop,
            types=self.walk.types.among(runs["ledger"]),
            unverified=dict(self._unverified),
            seconds=time.perf_counter() - clock,
        )

    def _report_doubtful(self) -> None:
        """Report entries of unknown ledgers as flaws if the ledger is doubtful, which is known when all were
        read.
        """
        doubted = False
        for flaw in self._unknown.all():
            doubted = self._verifier.is_doubtful(flaw.ledger_id) if flaw.ledger_id is not None else doubted
            if doubted:
                self._flaws.add(flaw)

    # ── listener of the walk ─────────────────────────────────────────────────────────────────────────────

    def entries(self, columns: ChunkColumns) -> None:
        self._report_holes(columns)
        self._records += columns.count
        self._made.add(columns)
        count = columns.count
        nonsense = columns.confirmed[:count] >= columns.entries[:count]
        if nonsense.any():
            self._report_confirmed(columns, nonsense & columns.good[:count])

    def _report_holes(self, columns: ChunkColumns) -> None:
        """Report the waiting holes. If only a length word is damaged, name the entry that follows it."""
        if not self._holes or not columns.count:
            return
        reached = int(columns.offsets[columns.count - 1])
        holes = [hole for hole in self._holes if hole.offset <= reached]
        self._holes = self._holes[len(holes) :]
        for hole in holes:
            (found,) = (columns.offsets[: columns.count] == hole.offset).nonzero()
            if len(found):
                ids = int(columns.ledgers[found[0]]), int(columns.entries[found[0]])
                hole = replace(hole, ledger_id=ids[0], entry_id=ids[1])
            self._flaws.add(hole)

    def _report_confirmed(self, columns: ChunkColumns, nonsense: Mask) -> None:
        for index in nonsense.nonzero()[0].tolist():
            offset = int(columns.offsets[index])
            ids = int(columns.ledgers[index]), int(columns.entries[index])
            self._flaws.add(
                FlawAt(FlawKind.CONFIRMED, None, offset, offset + int(columns.sizes[index]), *ids)
            )

    def mismatch(self, entry: LogEntry) -> None:
        flaw = _flaw_of(FlawKind.DIGEST, Flaw.DIGEST, entry)
        self._flaws.add(replace(flaw, is_proven_otherwise=matching_checksum(entry.data) is not None))

    def unverified(self, ledger_id: int, count: int) -> None:
        self._unverified[ledger_id] += count

    def unknown(self, entry: LogEntry) -> None:
        self._unverified[entry.ids[0]] += 1
        self._unknown.add(_flaw_of(FlawKind.DOUBT, Flaw.DIGEST_UNKNOWN, entry))

    def other(self, item: LogMap | LogFiller | Hole) -> None:
        match item:
            case LogMap(offset, end, pairs):
                self._maps.append(MapRecord(offset, end, tuple(pairs) if isinstance(pairs, list) else pairs))
            case LogFiller(offset, end):
                self._fillers += end - offset
            case Hole(offset, end, flaw):
                self._holes.append(FlawAt(FlawKind.HOLE, flaw, offset, end))


def _flaw_of(kind: FlawKind, flaw: Flaw, entry: LogEntry) -> FlawAt:
    return FlawAt(kind, flaw, entry.position.offset, entry.end, *entry.ids)
