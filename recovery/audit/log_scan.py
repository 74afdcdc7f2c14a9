"""Entry logs into parts: every byte of a range verified, its entries as runs, its flaws with their places."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recovery.audit.chunk_runs import RunMaker
from recovery.audit.log_flaws import FlawList
from recovery.audit.log_walk import LogWalk
from recovery.verify.parts import FlawAt, FlawKind, LogPart, MapRecord
from storage import entrylog_scan
from storage.codec.entrylog import HEADER_SIZE
from storage.codec.survey import matching_checksum
from storage.entrylog_reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog_scan import Hole, LogFiller
from storage.outcome import Flaw
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.chunk_columns import Columns, Mask
    from recovery.audit.task import Pace
    from recovery.audit.ways import Ways
    from storage.codec.survey import EntryVerifier
    from storage.files import ReadFile


@dataclass(frozen=True, slots=True)
class ScanLog:
    """A range of one entry log, read and verified."""

    path: str
    log_id: int
    start: int
    end: int
    """Every record whose length word begins before it belongs to the range."""
    ways: Ways
    steps: Mapping[int, int] = field(default_factory=dict)
    """Of ledgers that are striped: how far apart the ids of a run are."""
    entry: int | None = None
    """Where its first record begins; `None`: at the first sound one from `start` on."""

    @property
    def name(self) -> str:
        return f"{self.path}@{self.start}"

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def run(self, pace: Pace) -> LogPart:
        with open_file(self.path) as file:
            return scan(file, self, pace)


def scan(file: ReadFile, task: ScanLog, pace: Pace) -> LogPart:
    """The same for a file that comes from anywhere."""
    clock = time.perf_counter()
    verifier = task.ways.verifier()
    reader = EntryLogReader(file, task.log_id, verifier)
    entry = _entry(reader, task)
    once = _Scan(file, task, verifier, pace)
    part = once.run(entry, clock)
    if not once.walk.depends_on_types:
        return part
    # What the last entry of a ledger tells of it counts for the first one too.
    twice = _Scan(file, task, verifier, pace.unseen())
    twice.walk.types.believe(once.walk.types)
    return twice.run(entry, clock)


def _entry(reader: EntryLogReader, task: ScanLog) -> int:
    if task.entry is not None:
        return task.entry
    if task.start <= HEADER_SIZE:
        return HEADER_SIZE
    found = entrylog_scan.first_sound(reader, task.start, min(task.end, reader.size))
    return max(task.start, task.end) if found is None else found


class _Scan:
    """One walk, and what it finds."""

    def __init__(self, file: ReadFile, task: ScanLog, verifier: EntryVerifier, pace: Pace) -> None:
        self.walk = LogWalk(file, task.log_id, task.ways, verifier, self, pace)
        self._task = task
        self._verifier = verifier
        self._made = RunMaker(task.log_id, task.steps)
        self._records = 0
        self._flaws = FlawList()
        self._holes: list[FlawAt] = []
        """Those behind which the entries have not been told yet."""
        self._maps: list[MapRecord] = []
        self._fillers = 0
        self._unverified: Counter[int] = Counter()
        self._unknown = FlawList()

    def run(self, entry: int, clock: float) -> LogPart:
        reader = self.walk.reader
        behind = self.walk.run(entry, self._task.end)
        for hole in self._holes:
            self._flaws.add(hole)
        self._judge_unknown()
        runs = self._made.runs()
        return LogPart(
            log_id=self._task.log_id,
            start=self._task.start,
            end=self._task.end,
            entry=entry,
            exit=behind,
            file_size=reader.size,
            header=reader.header,
            runs=runs,
            records=self._records,
            size=behind - entry,
            flaws=self._flaws.all(),
            maps=tuple(self._maps),
            fillers=self._fillers,
            stop=self.walk.stop,
            types=self.walk.types.among(runs["ledger"]),
            unverified=dict(self._unverified),
            seconds=time.perf_counter() - clock,
        )

    def _judge_unknown(self) -> None:
        """Whether a ledger of which nothing tells is one at all is known when all others were seen."""
        doubted = False
        for flaw in self._unknown.all():
            doubted = self._verifier.doubts(flaw.ledger_id) if flaw.ledger_id is not None else doubted
            if doubted:
                self._flaws.add(flaw)

    # ── what the walk tells ──────────────────────────────────────────────────────────────────────────

    def entries(self, columns: Columns) -> None:
        self._tell_holes(columns)
        self._records += columns.count
        self._made.add(columns)
        count = columns.count
        nonsense = columns.confirmed[:count] >= columns.entries[:count]
        if nonsense.any():
            self._tell_nonsense(columns, nonsense & columns.good[:count])

    def _tell_holes(self, columns: Columns) -> None:
        """Of a damaged length word behind which its entry was found whole, that entry is told too."""
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

    def _tell_nonsense(self, columns: Columns, nonsense: Mask) -> None:
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
