"""One journal, whole: what an opening would judge it by, its entries as runs, and everything that is damaged.

The scan is the opening's own. The second reading, which takes the entries, does not verify again what the
scan has: of a journal of ours it sums the groups before the mark, of a bookie's it holds each entry against
its digest, many at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.chunk_types import Types
from recovery.audit.journal_digests import DigestWalk
from recovery.audit.journal_gaps import GapReader
from recovery.audit.journal_sealed import SealedWalk, Sound, take
from recovery.audit.journal_taken import Taken
from recovery.audit.told_file import ToldFile
from recovery.replay import verifier_of
from recovery.verify.parts import FlawAt, FlawKind, JournalPart
from storage.codec import journal as codec
from storage.journal_groups import Group, groups
from storage.journal_reader import JournalReader
from storage.journal_scan import Owner, scan
from storage.outcome import Damaged, Flaw
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.task import Pace
    from recovery.audit.ways import Ways
    from storage.files import ReadFile
    from storage.position import JournalPosition
    from storage.row import LedgerRow

_NO_MARK = 1 << 62


@dataclass(frozen=True, slots=True)
class ScanJournal:
    """A journal. `start`: from where it is replayed; `None`: not at all, it lies before the mark."""

    path: str
    journal_id: int
    start: int | None
    rows: Mapping[int, LedgerRow]
    ways: Ways
    steps: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"journal {self.journal_id:x}"

    @property
    def size(self) -> int:
        try:
            return Path(self.path).stat().st_size
        except OSError:
            return 0  # whoever reads it will say so

    def run(self, pace: Pace) -> JournalPart:
        with open_file(self.path) as file:
            return read_journal(file, self, pace)


def read_journal(file: ReadFile, task: ScanJournal, pace: Pace) -> JournalPart:
    """The task's answer, from a file that is open."""
    clock = time.monotonic()
    found = _Scan(task, ToldFile(file, pace))
    found.run()
    return found.part(time.monotonic() - clock)


class _Scan:
    """What is done with one journal."""

    def __init__(self, task: ScanJournal, file: ReadFile) -> None:
        self._task = task
        self._file = file
        self._reader = reader = JournalReader(file, task.journal_id)
        opening_s = verifier_of(reader, task.rows)
        self._scan = scan(reader, opening_s, task.start or 0)
        verifier = task.ways.verifier()
        # The scan has looked at all entries: what they tell of their types is known from the beginning.
        verifier.survey = opening_s.survey
        self._verifier = verifier
        self._taken = self._take_nothing_yet()
        self._flaws: list[FlawAt] = []
        self._tail: list[FlawAt] = []
        self._is_boundary: bool | None = True

    def _take_nothing_yet(self) -> Taken:
        task, verifier = self._task, self._verifier
        return Taken(task.steps, Types(task.ways, verifier), verifier, *self._cuts())

    def _cuts(self) -> tuple[int, int]:
        """Up to where entries are before the mark, and up to where those behind it count."""
        if self._task.start is None:
            return _NO_MARK, _NO_MARK
        return self._scan.start, max(self._scan.end, self._scan.kept.end)

    def run(self) -> None:
        self._look_at_header()
        match self._scan.owner:
            case Owner.OURS:
                self._walk_sealed()
            case Owner.BOOKIE | Owner.UNKNOWN:
                self._walk_by_digests()
            case Owner.NOBODY:
                start = self._scan.start
                self._is_boundary = start <= self._reader.records_start or start >= self._reader.size

    def part(self, seconds: float) -> JournalPart:
        taken, journal_id = self._taken, self._task.journal_id
        return JournalPart(
            journal_id=journal_id,
            file_size=self._reader.size,
            scan=self._scan,
            before=taken.before.runs(journal_id),
            behind=taken.behind.runs(journal_id),
            flaws=tuple(self._flaws),
            tail=tuple(self._tail),
            facts=tuple(taken.facts),
            named=self._named(),
            marked_at_record=self._is_boundary if self._task.start else None,
            records=taken.records,
            types=taken.kinds(),
            unverified=dict(taken.unverified),
            seconds=seconds,
        )

    def _named(self) -> JournalPosition | None:
        if self._scan.owner is not Owner.OURS:
            return None
        first = next(groups(self._reader, self._reader.records_start))
        return first.seal.durable_up_to if isinstance(first, Group) else None

    # ── the header ───────────────────────────────────────────────────────────────────────────────────

    def _look_at_header(self) -> None:
        reader, stop = self._reader, self._scan.stop
        if isinstance(reader.header, Damaged):
            damage = reader.header
            self._add(FlawAt(FlawKind.RECORD, damage.flaw, 0, reader.records_start, detail=damage.detail))
        elif isinstance(stop, Damaged) and stop.flaw is Flaw.OTHER_HEADER:
            self._add(FlawAt(FlawKind.RECORD, stop.flaw, 0, reader.records_start))
        elif isinstance(reader.header, codec.Header) and reader.has_lost_its_end:
            self._add(FlawAt(FlawKind.HOLE, Flaw.FILE_CUT, reader.size, reader.header.filled_until))

    def _add(self, flaw: FlawAt) -> None:
        self._flaws.append(flaw)

    # ── a journal of ours ────────────────────────────────────────────────────────────────────────────

    def _walk_sealed(self) -> None:
        walk, gaps = SealedWalk(self._reader, self._scan), GapReader(self._reader, self._taken.verifier)
        self._flaws += gaps.header_padding()
        for one in walk.stretches():
            if isinstance(one, Sound):
                self._take(one.start, one.end)
                continue
            (self._tail if one.is_tail else self._flaws).extend(gaps.flaws(one.start, one.end))
            if one.start == self._scan.kept.start and self._task.start is not None:
                gaps.records -= self._scan.kept.count
                self._take(self._scan.kept.start, self._scan.kept.end)
        self._taken.records += gaps.records
        self._is_boundary = walk.is_boundary

    def _take(self, start: int, end: int) -> None:
        for offset, behind, damage in take(self._reader, self._file, (start, end), self._taken):
            self._add(FlawAt(FlawKind.RECORD, damage.flaw, offset, behind, detail=damage.detail))

    # ── a bookie's ───────────────────────────────────────────────────────────────────────────────────

    def _walk_by_digests(self) -> None:
        walk = self._walked()
        if any(self._is_known_by_now(ledger_id) for ledger_id in self._taken.unverified):
            # What stands behind damage may be the first to tell how a ledger in front of it is protected.
            self._taken = self._take_nothing_yet()
            walk = self._walked()
        tail = walk.tail()
        self._flaws += [flaw for flaw in walk.flaws if flaw.offset < tail]
        self._tail += [flaw for flaw in walk.flaws if flaw.offset >= tail]
        self._is_boundary = walk.is_boundary

    def _walked(self) -> DigestWalk:
        walk = DigestWalk(self._reader, self._file, self._scan, self._taken)
        walk.run()
        return walk

    def _is_known_by_now(self, ledger_id: int) -> bool:
        known = self._verifier.digester(ledger_id)
        return known is not None and known.verifies
