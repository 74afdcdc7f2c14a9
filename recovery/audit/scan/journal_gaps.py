"""Find what is wrong in a part of a ledgerstore journal that no valid seal covers, record by record.

Digests identify each damaged entry. Where the framing is lost it is found again at an entry whose digest
matches, or at padding that ends in a seal. If all entries of a group are sound, the damage is in bytes that
no digest protects: in its padding or seal, if these show it, or where one wrong byte explains the checksum,
otherwise somewhere between its two ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.model.scan_results import FlawAt, FlawKind
from recovery.audit.scan.journal_framing import JournalFraming
from recovery.audit.scan.journal_seals import GroupInProgress, SealReader
from storage.disk.search import find_record
from storage.entry.digest import DigestCheck
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, Flaw
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.reader import StoredPadding, StoredRecord
from storage.journal.seal import GroupFlag, NoSeal, StoredSeal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.entry.digest_inference import EntryVerifier
    from storage.entry.read_result import Stop
    from storage.journal.reader import JournalReader

_MARK = journal_seal.encode_atomic_mark()
_MARK_SAME_MIN = 8
"""No record shares that many bytes with it."""

_SECTOR = min(journal_seal.ALIGNMENTS)

_FAR = 1 << 20
_SEARCHED_MAX = 1 << 20
_HOPS_MAX = 64
"""The number of consecutive damaged records after which their framing is not trusted any more."""


class GapReader:
    """Reads the gaps of one journal."""

    def __init__(self, reader: JournalReader, verifier: EntryVerifier) -> None:
        self.records = 0
        """The number of records with correct framing, including damaged ones."""
        self._reader = reader
        self._framing = JournalFraming(reader, verifier, reader.size)
        self._seals = SealReader(reader)
        self._group = GroupInProgress(0, None)

    def flaws(self, start: int, end: int) -> Iterator[FlawAt]:
        """Yield all flaws between the begin of a group and the place at which groups are sound again."""
        self._framing.end = end
        self._begin(start, self._number_at(start))
        at = start
        while at < end:
            if at == self._group.start and self._has_damaged_mark():
                after = at + len(_MARK)
                yield FlawAt(FlawKind.RECORD, Flaw.BAD_FIELD, at, after, detail="the atomic mark")
                self._group.flags, self._group.is_explained = GroupFlag.ATOMIC, True
                at = after
                continue
            item = self._framing.item(at)
            match item:
                case StoredRecord():
                    flaws, at = self._record(item)
                case StoredPadding() if self._ends_something(item):
                    flaws, at = list(self._padding(item)), item.end
                case _:
                    flaws, at = list(self._lost(item)), self._next_place(at + 1)
            yield from flaws

    def _begin(self, start: int, number: int | None) -> None:
        self._group = GroupInProgress(start, number)

    def _lost(self, item: StoredPadding | Stop) -> Iterator[FlawAt]:
        """Handle bytes that are no record, and padding that cannot be there."""
        at = item.offset
        if isinstance(item, StoredPadding):
            item = Damaged(at, Flaw.LENGTH_NEGATIVE, f"length {journal_format.PADDING}")
        yield from self._half_zeroed(at)
        yield self._framing.around_stop(item, self._next_place(at + 1))
        self._lose_framing()

    def _lose_framing(self) -> None:
        # Seals may have been skipped.
        group = self._group
        group.is_explained, group.is_framed, group.number = True, False, None

    def _number_at(self, start: int) -> int | None:
        """Return the number of the group that begins here, from the seal before it."""
        if start <= self._reader.records_start:
            return 1
        stored = journal_seal.decode(self._reader.window.peek(start - journal_seal.SIZE, journal_seal.SIZE))
        return stored.seal.sequence + 1 if isinstance(stored, StoredSeal) else None

    def header_padding(self) -> Iterator[FlawAt]:
        """Yield what is not zero between the header and the first group, where no checksum covers it."""
        item = self._framing.item(self._reader.records_start)
        if isinstance(item, StoredPadding) and isinstance(item.seal, NoSeal) and not item.atomic_mark:
            yield from self._seals.filling(item.offset + journal_format.PREFIX_SIZE, item.end)

    def _ends_something(self, item: StoredPadding) -> bool:
        """Return whether padding may be here: as the mark of an atomic group, or to fill a sector."""
        is_mark = item.atomic_mark and item.offset == self._group.start
        return is_mark or item.end % _SECTOR == 0

    def _has_damaged_mark(self) -> bool:
        """Return whether an atomic group begins here whose mark is damaged, but mostly intact."""
        found = bytes(self._reader.window.peek(self._group.start, len(_MARK)))
        same = sum(one == due for one, due in zip(found, _MARK, strict=False))
        return _MARK_SAME_MIN <= same < len(_MARK)

    # ── records ──────────────────────────────────────────────────────────────────────────────────────

    def _record(self, item: StoredRecord) -> tuple[list[FlawAt], int]:
        """Check a record. Return its flaws, and the offset where the scan goes on."""
        group, framing = self._group, self._framing
        self.records += 1
        group.records += 1
        match item.record:
            case journal_format.EntryRecord(data=data):
                check = framing.check(data)
                if check is DigestCheck.MISMATCH:
                    return self._wrong(item, FlawKind.DIGEST, Damaged(0, Flaw.DIGEST))
                if check is DigestCheck.UNVERIFIED:
                    group.unproven.append((item.offset, item.end, *framing.ids(item.offset)))
            case Damaged() as damage:
                return self._wrong(item, FlawKind.RECORD, damage)
            case journal_format.UnknownRecord(entry_id=entry_id):
                damage = Damaged(0, Flaw.ENTRY_NEGATIVE, f"entry {entry_id}")
                return self._wrong(item, FlawKind.RECORD, damage)
            case record:
                group.unproven.append((item.offset, item.end, record.ledger_id, None))
        return [], item.end

    def _wrong(self, item: StoredRecord, kind: FlawKind, damage: Damaged) -> tuple[list[FlawAt], int]:
        around = self._framing.around_record(item, kind, damage, self._next_place)
        self._group.is_explained = True
        if not around.is_framed:
            self._lose_framing()
        return around.flaws, around.resume_at

    def _half_zeroed(self, at: int) -> Iterator[FlawAt]:
        """Yield the record before a hole that begins with a zeroed sector, if the sector begins inside the
        record.

        The record has no digest that would show the damage.
        """
        edge = at - at % _SECTOR
        for start, end, ledger_id, entry_id in self._group.unproven[-1:]:
            if start < edge < end == at and not any(self._reader.window.view(edge, at - edge)):
                yield FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, start, end, ledger_id, entry_id)

    # ── where reading continues ──────────────────────────────────────────────────────────────────────────

    def _next_place(self, start: int) -> int:
        """Return the next proven entry or sealed padding, or the end of the gap."""
        entry = find_record(self._reader.window, start, self._framing.proves, self._framing.end)
        limit = self._framing.end if entry is None else entry
        return self._framing.first_special(start, next(self._paddings(start, limit), limit))

    def _paddings(self, start: int, end: int) -> Iterator[int]:
        """Yield the places of padding records that end in something like a seal."""
        while start < end:
            block = bytes(self._reader.window.view(start, min(_FAR, end - start + LENGTH_WORD_SIZE - 1)))
            at = block.find(journal_format.PADDING_WORD)
            while at >= 0:
                if start + at < end and self._is_sealed_padding(start + at):
                    yield start + at
                at = block.find(journal_format.PADDING_WORD, at + 1)
            start += _FAR - LENGTH_WORD_SIZE + 1

    def _is_sealed_padding(self, place: int) -> bool:
        frame = self._reader.frame_at(place)
        if (
            not isinstance(frame, journal_format.JournalFrame)
            or frame.end > self._framing.end
            or frame.end % _SECTOR
        ):
            return False
        return not isinstance(self._reader.padding(frame).seal, NoSeal)

    # ── the end of a group ───────────────────────────────────────────────────────────────────────────────

    def _padding(self, item: StoredPadding) -> Iterator[FlawAt]:
        group = self._group
        if isinstance(item.seal, StoredSeal):
            yield from self._seals.flaws(item, item.seal, group)
            self._begin(item.end, None if group.number is None else group.number + 1)
        elif item.atomic_mark and item.offset == group.start:
            group.flags = GroupFlag.ATOMIC
        elif item.offset == self._reader.records_start:
            self._begin(item.end, 1)
        else:
            seal_start = max(item.offset, item.end - journal_seal.SIZE)
            is_filled = any(self._seals.filling(item.offset + journal_format.PREFIX_SIZE, seal_start))
            start = item.offset if is_filled else seal_start
            yield FlawAt(FlawKind.RECORD, Flaw.SEAL_MISSING, start, item.end)
            self._begin(item.end, None if group.number is None else group.number + 1)
