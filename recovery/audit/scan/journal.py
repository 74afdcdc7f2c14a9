"""Scan one journal: the scan of an opening, its entries as runs, and everything that is damaged.

The first reading is the opening's own scan. The second reading takes the entries and does not verify again
what the first has verified: in a ledgerstore journal it verifies the groups before the mark by their seals,
in a bookie's journal it verifies each entry by its digest, many at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.digests.mixed_types import InferredTypes
from recovery.audit.engines.metered_file import MeteredFile
from recovery.audit.model.scan_results import FlawAt, FlawKind, JournalPart
from recovery.audit.scan.journal_content import JournalContent
from recovery.audit.scan.journal_digests import DigestWalk
from recovery.audit.scan.journal_groups import GapReader, SealedWalk, SoundGroups, take
from recovery.audit.scan.read_around import ReadAroundFile
from recovery.replay.journals import verifier_of
from storage.disk.posix import open_file
from storage.entry.read_result import Damaged, Flaw
from storage.journal import format as journal_format
from storage.journal.group_reader import SealedGroup, groups
from storage.journal.reader import JournalReader
from storage.journal.scan import Owner, scan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.engines.task import ReadThrottle
    from storage.disk.files import ReadFile
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.position import JournalPosition

_NO_MARK = 1 << 62


@dataclass(frozen=True, slots=True)
class ScanJournal:
    """The task to read a journal. `start` is where replay begins, or `None` if the journal is before the
    mark.
    """

    path: str
    journal_id: int
    start: int | None
    rows: Mapping[int, LedgerRecord]
    policy: DigestPolicy
    steps: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"journal {self.journal_id:x}"

    @property
    def size(self) -> int:
        try:
            return Path(self.path).stat().st_size
        except OSError:
            return 0  # reading it reports the error

    def run(self, throttle: ReadThrottle) -> JournalPart:
        with ReadAroundFile(open_file(self.path)) as file:
            part = read_journal(file, self, throttle)
            return replace(part, unreadable=file.unreadable())


def read_journal(file: ReadFile, task: ScanJournal, throttle: ReadThrottle) -> JournalPart:
    """Run the task on a file that is already open."""
    clock = time.monotonic()
    found = _JournalScanner(task, MeteredFile(file, throttle))
    found.run()
    return found.part(time.monotonic() - clock)


class _JournalScanner:
    """The work on one journal."""

    def __init__(self, task: ScanJournal, file: ReadFile) -> None:
        self._task = task
        self._file = file
        self._reader = reader = JournalReader(file, task.journal_id)
        opening_s = verifier_of(reader, task.rows)
        self._scan = scan(reader, opening_s, task.start or 0)
        verifier = task.policy.verifier()
        # The scan has read all entries, so that the types inferred from them are known from the beginning.
        verifier.survey = opening_s.survey
        self._verifier = verifier
        self._content = self._empty_content()
        self._flaws: list[FlawAt] = []
        self._tail: list[FlawAt] = []
        self._is_boundary: bool | None = True

    def _empty_content(self) -> JournalContent:
        task, verifier = self._task, self._verifier
        return JournalContent(task.steps, InferredTypes(task.policy, verifier), verifier, *self._cuts())

    def _cuts(self) -> tuple[int, int]:
        """Return where the mark is, and where the entries after it stop counting."""
        if self._task.start is None:
            return _NO_MARK, _NO_MARK
        return self._scan.start, max(self._scan.end, self._scan.kept.end)

    def run(self) -> None:
        self._check_header()
        match self._scan.owner:
            case Owner.OURS:
                self._walk_sealed()
            case Owner.BOOKIE | Owner.UNKNOWN:
                self._walk_by_digests()
            case Owner.VOID:
                start = self._scan.start
                self._is_boundary = start <= self._reader.records_start or start >= self._reader.size

    def part(self, seconds: float) -> JournalPart:
        content, journal_id = self._content, self._task.journal_id
        return JournalPart(
            journal_id=journal_id,
            file_size=self._reader.size,
            scan=self._scan,
            before_mark=content.before_mark.runs(journal_id),
            after_mark=content.after_mark.runs(journal_id),
            flaws=tuple(self._flaws),
            tail=tuple(self._tail),
            facts=tuple(content.facts),
            named=self._named(),
            marked_at_record=self._is_boundary if self._task.start else None,
            records=content.records,
            types=content.kinds(),
            unverified=dict(content.unverified),
            seconds=seconds,
        )

    def _named(self) -> JournalPosition | None:
        if self._scan.owner is not Owner.OURS:
            return None
        first = next(groups(self._reader, self._reader.records_start))
        return first.seal.durable_up_to if isinstance(first, SealedGroup) else None

    # ── the header ───────────────────────────────────────────────────────────────────────────────────

    def _check_header(self) -> None:
        reader, stop = self._reader, self._scan.stop
        if isinstance(reader.header, Damaged):
            damage = reader.header
            self._add(FlawAt(FlawKind.RECORD, damage.flaw, 0, reader.records_start, detail=damage.detail))
        elif isinstance(stop, Damaged) and stop.flaw is Flaw.OTHER_HEADER:
            self._add(FlawAt(FlawKind.RECORD, stop.flaw, 0, reader.records_start))
        elif isinstance(reader.header, journal_format.JournalHeader) and reader.has_lost_its_end:
            self._add(FlawAt(FlawKind.HOLE, Flaw.FILE_CUT, reader.size, reader.header.filled_until))

    def _add(self, flaw: FlawAt) -> None:
        self._flaws.append(flaw)

    # ── a ledgerstore journal ────────────────────────────────────────────────────────────────────────────

    def _walk_sealed(self) -> None:
        walk, gaps = SealedWalk(self._reader, self._scan), GapReader(self._reader, self._content.verifier)
        self._flaws += gaps.header_padding()
        for one in walk.regions():
            if isinstance(one, SoundGroups):
                self._take(one.start, one.end)
                continue
            (self._tail if one.is_tail else self._flaws).extend(gaps.flaws(one.start, one.end))
            if one.start == self._scan.kept.start and self._task.start is not None:
                gaps.records -= self._scan.kept.count
                self._take(self._scan.kept.start, self._scan.kept.end)
        self._content.records += gaps.records
        self._is_boundary = walk.is_boundary

    def _take(self, start: int, end: int) -> None:
        for offset, after, damage in take(self._reader, self._file, (start, end), self._content):
            self._add(FlawAt(FlawKind.RECORD, damage.flaw, offset, after, detail=damage.detail))

    # ── a bookie's journal ───────────────────────────────────────────────────────────────────────────────

    def _walk_by_digests(self) -> None:
        walk = self._walked()
        if any(self._is_known_by_now(ledger_id) for ledger_id in self._content.unverified):
            # Entries after damage may be the first that determine the digest type of a ledger before it.
            self._content = self._empty_content()
            walk = self._walked()
        tail = walk.tail()
        self._flaws += [flaw for flaw in walk.flaws if flaw.offset < tail]
        self._tail += [flaw for flaw in walk.flaws if flaw.offset >= tail]
        self._is_boundary = walk.is_boundary

    def _walked(self) -> DigestWalk:
        walk = DigestWalk(self._reader, self._file, self._scan, self._content)
        walk.run()
        return walk

    def _is_known_by_now(self, ledger_id: int) -> bool:
        known = self._verifier.digester(ledger_id)
        return known is not None and known.verifies
