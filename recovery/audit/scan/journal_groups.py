"""Walk through a ledgerstore journal: sealed groups that are valid, and gaps between them.

Groups that the opening's scan has verified are not verified again. A gap is what no valid seal covers. It is
read record by record: the damaged entries are named, or the whole group if no entry shows the damage.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from recovery.audit.model.scan_results import FlawAt, FlawKind
from recovery.audit.scan import journal_chunks
from recovery.audit.scan.journal_framing import JournalFraming
from storage.disk.search import find_record
from storage.entry.digest import DigestCheck
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, EndOfData, Flaw
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.group_reader import SealedGroup, groups
from storage.journal.reader import StoredPadding, StoredRecord
from storage.journal.seal import NoSeal, StoredSeal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.scan.journal_chunks import JournalChunk
    from recovery.audit.scan.journal_content import JournalContent
    from storage.disk.files import ReadFile
    from storage.entry.digest_inference import EntryVerifier
    from storage.entry.read_result import Stop
    from storage.journal.reader import JournalReader
    from storage.journal.scan import JournalScan
    from storage.journal.seal import Seal

_SECTOR = min(journal_seal.ALIGNMENTS)
_FAR = 1 << 20
"""The number of bytes that are searched at once."""


@dataclass(frozen=True, slots=True)
class SoundGroups:
    """Consecutive groups with valid seals."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class UnsealedGap:
    """A region that no valid seal covers."""

    start: int
    end: int
    is_tail: bool = False
    """Whether nothing after it proves that it was ever whole."""


class SealedWalk:
    """One walk through a journal that was scanned from the mark on, or from its first record."""

    def __init__(self, reader: JournalReader, scan: JournalScan) -> None:
        self._reader = reader
        self._scan = scan
        self._found: list[SoundGroups | UnsealedGap] = []
        self._is_reached = scan.start <= reader.records_start or scan.start >= reader.size

    @property
    def is_boundary(self) -> bool | None:
        """Whether a group begins, or the data ends, where the scan began; `None` if the surroundings are
        damaged.
        """
        start = self._scan.start
        if self._is_reached or self._scan.end > start:
            return True
        in_gap = any(isinstance(one, UnsealedGap) and one.start < start <= one.end for one in self._found)
        return None if in_gap else False

    def regions(self) -> Iterator[SoundGroups | UnsealedGap]:
        """Yield the regions of the journal from its first group on."""
        at = self._reader.records_start
        while True:
            end, stop = self._sound_until(at)
            if end > at:
                yield self._note(SoundGroups(at, end))
            if isinstance(stop, EndOfData):
                self._is_reached |= end == self._scan.start
                yield from map(self._note, self._up_to_the_mark(end))
                return
            again = self._after_damage(end)
            if again is None:
                yield from map(self._note, self._tail(end))
                return
            yield self._note(UnsealedGap(end, again))
            at = again

    def _note(self, one: SoundGroups | UnsealedGap) -> SoundGroups | UnsealedGap:
        self._found.append(one)
        return one

    def _sound_until(self, at: int) -> tuple[int, Stop]:
        """Return how far the groups are valid, and what follows them."""
        end, stop = self._passed(at)
        if isinstance(stop, EndOfData):
            return end, stop
        # Try again, because a live writer may not have finished the group when it was read first.
        self._reader.window.refresh()
        return self._passed(end, stop)

    def _passed(self, at: int, stop: Stop | None = None) -> tuple[int, Stop]:
        scan = self._scan
        self._is_reached |= at == scan.start
        if at == scan.start and stop is None:
            return scan.end, scan.stop
        for found in groups(self._reader, at):
            if not isinstance(found, SealedGroup):
                return at, found if stop is None or isinstance(found, EndOfData) else stop
            at, stop = found.end, None
            self._is_reached |= at == scan.start
            if at == scan.start:
                return scan.end, scan.stop
        raise AssertionError("groups end with a stop")

    def _after_damage(self, end: int) -> int | None:
        after = (found.seal.group_start for found in self._reader.seals_after(end))
        return next((start for start in after if start > end), None)

    def _up_to_the_mark(self, end: int) -> Iterator[UnsealedGap]:
        """Yield a gap up to the mark, because the data once extended that far."""
        mark = min(self._scan.start, self._reader.size)
        if end < mark:
            yield UnsealedGap(end, mark)

    def _tail(self, end: int) -> Iterator[UnsealedGap]:
        """Yield the rest that nothing sound follows. Before the mark it was durable nevertheless."""
        yield from self._up_to_the_mark(end)
        begin, after = max(end, self._scan.start), end_of_data(self._reader, end)
        if begin < after:
            yield UnsealedGap(begin, after, is_tail=True)


def end_of_data(reader: JournalReader, start: int) -> int:
    """Return the offset after the last byte from `start` on that is not zero."""
    end = start
    for offset, piece in reader.window.pieces(start, reader.size):
        used = len(bytes(piece).rstrip(b"\0"))
        end = offset + used if used else end
    return end


def take(
    reader: JournalReader, file: ReadFile, extent: tuple[int, int], content: JournalContent
) -> Iterator[tuple[int, int, Damaged]]:
    """Take the records of a region that is known to be sound. Yield the records that are invalid.

    Raise `OSError` if the framing is not intact any more, because the file has changed.
    """
    at, end = extent
    size = journal_chunks.CHUNK_SIZE
    while at < end:
        chunk = journal_chunks.split_chunk(file.read(at, min(size, end - at)), at, reader.framing)
        if chunk.end > at:
            yield from _take_chunk(chunk, reader.framing.version, content)
            at, size = chunk.end, journal_chunks.CHUNK_SIZE
            continue
        frame = reader.frame_at(at)
        if not isinstance(frame, journal_format.JournalFrame) or not at + size < frame.end <= end:
            raise OSError(errno.EIO, "the file changed while it was read", reader.name)
        size = frame.end - at


def _take_chunk(
    chunk: JournalChunk, version: int, content: JournalContent
) -> Iterator[tuple[int, int, Damaged]]:
    content.entries(chunk.entries, content.digests(chunk.entries))
    for number in chunk.others:
        offset, end = chunk.place(number)
        record = journal_format.decode_record(chunk.body(number), version)
        match record:
            case Damaged():
                yield offset, end, record
            case journal_format.UnknownRecord(entry_id=entry_id):
                yield offset, end, Damaged(0, Flaw.FUTURE_VERSION, f"a record of kind {entry_id}")
            case journal_format.EntryRecord():
                content.short_entry(offset, record)
            case _:
                content.fact(offset, record)


# ── what no valid seal covers ─────────────────────────────────────────────────────────────────────────────


class GapReader:
    """Finds what is wrong in the parts of one journal that no valid seal covers, record by record.

    Digests identify each damaged entry. Where the framing is lost it is found again at an entry whose digest
    matches, or at padding that ends in a seal. If all entries of a group are sound, the damage is in bytes
    that no digest protects, and the whole group is named.
    """

    def __init__(self, reader: JournalReader, verifier: EntryVerifier) -> None:
        self.records = 0
        """The number of records with correct framing, including damaged ones."""
        self._reader = reader
        self._framing = JournalFraming(reader, verifier, reader.size)
        self._start = 0
        """Where the group begins that is being read."""
        self._is_explained = False
        """Whether something was found in the group that explains a wrong checksum."""
        self._unproven: FlawAt | None = None
        """The last record that no digest proves, as it is named if it is damaged."""

    def flaws(self, start: int, end: int) -> Iterator[FlawAt]:
        """Yield all flaws between the begin of a group and the place at which groups are sound again."""
        self._framing.end = end
        self._begin(start)
        at = start
        while at < end:
            item = self._framing.item(at)
            match item:
                case StoredRecord():
                    flaws, at = self._record(item)
                    yield from flaws
                case StoredPadding() if item.atomic_mark and at == self._start:
                    at = item.end
                case StoredPadding() if item.end % _SECTOR == 0:
                    yield from self._end_of_group(item)
                    self._begin(item.end)
                    at = item.end
                case _:
                    yield from self._lost(item)
                    at = self._next_place(at + 1)

    def _begin(self, start: int) -> None:
        self._start, self._is_explained, self._unproven = start, False, None

    def _lost(self, item: StoredPadding | Stop) -> Iterator[FlawAt]:
        """Handle bytes that are no record, and padding that cannot be there."""
        at = item.offset
        if isinstance(item, StoredPadding):
            item = Damaged(at, Flaw.LENGTH_NEGATIVE, f"length {journal_format.PADDING}")
        yield from self._half_zeroed(at)
        yield self._framing.around_stop(item, self._next_place(at + 1))
        self._is_explained = True

    def _half_zeroed(self, at: int) -> Iterator[FlawAt]:
        """Yield the record before a hole that begins with a zeroed sector, if the sector begins inside the
        record. The record has no digest that would show the damage.
        """
        edge, one = at - at % _SECTOR, self._unproven
        is_cut = one is not None and one.offset < edge < one.end == at
        if one is not None and is_cut and not any(self._reader.window.view(edge, at - edge)):
            yield one

    def header_padding(self) -> Iterator[FlawAt]:
        """Yield what is not zero between the header and the first group, where no checksum covers it."""
        item = self._framing.item(self._reader.records_start)
        if not self._is_before_the_first_group(item):
            return
        start = item.offset + journal_format.PREFIX_SIZE
        content = bytes(self._reader.window.view(start, max(0, item.end - start)))
        if wrong := content.strip(b"\0"):
            first = start + content.index(wrong)
            yield FlawAt(FlawKind.RECORD, Flaw.NOT_ZERO, first, first + len(wrong), detail="padding")

    def _is_before_the_first_group(
        self, item: StoredRecord | StoredPadding | Stop
    ) -> TypeGuard[StoredPadding]:
        if not isinstance(item, StoredPadding) or item.offset != self._reader.records_start:
            return False
        return isinstance(item.seal, NoSeal) and not item.atomic_mark

    def _record(self, item: StoredRecord) -> tuple[list[FlawAt], int]:
        framing, self._unproven = self._framing, None
        self.records += 1
        match item.record:
            case journal_format.EntryRecord(data=data):
                check = framing.check(data)
                if check is DigestCheck.MISMATCH:
                    return self._wrong(item, FlawKind.DIGEST, Damaged(0, Flaw.DIGEST))
                if check is DigestCheck.OK:
                    return [], item.end
                ids = framing.ids(item.offset)
            case Damaged() as damage:
                return self._wrong(item, FlawKind.RECORD, damage)
            case journal_format.UnknownRecord(entry_id=entry_id):
                damage = Damaged(0, Flaw.ENTRY_NEGATIVE, f"entry {entry_id}")
                return self._wrong(item, FlawKind.RECORD, damage)
            case record:
                ids = (record.ledger_id, None)
        self._unproven = FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, item.offset, item.end, *ids)
        return [], item.end

    def _wrong(self, item: StoredRecord, kind: FlawKind, damage: Damaged) -> tuple[list[FlawAt], int]:
        around = self._framing.around_record(item, kind, damage, self._next_place)
        self._is_explained = True
        return around.flaws, around.resume_at

    def _end_of_group(self, item: StoredPadding) -> Iterator[FlawAt]:
        """Yield the whole group if no record of it explains why its seal is not valid."""
        if self._is_before_the_first_group(item):
            return
        match item.seal:
            case NoSeal():
                yield FlawAt(FlawKind.RECORD, Flaw.SEAL_MISSING, item.offset, item.end)
            case StoredSeal(seal=seal) if self._is_foreign(seal, item.end):
                detail = (
                    f"a seal of journal {seal.journal_id:x}, of a group that begins at {seal.group_start}"
                )
                yield FlawAt(FlawKind.RECORD, Flaw.BAD_FIELD, item.offset, item.end, detail=detail)
            case StoredSeal(flaw=Flaw.FUTURE_VERSION) if self._holds(item.seal, item.end):
                pass
            case _ if not self._is_explained:
                yield FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, self._start, item.end)

    def _is_foreign(self, seal: Seal, end: int) -> bool:
        return seal.journal_id != self._reader.journal_id or not self._start <= seal.group_start < end

    def _holds(self, stored: StoredSeal, end: int) -> bool:
        start = stored.seal.group_start
        if not self._reader.records_start <= start <= end - journal_seal.SIZE:
            return False
        return self._reader.checksum(start, end - journal_seal.CHECKSUM_SIZE) == stored.checksum

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
        if not isinstance(frame, journal_format.JournalFrame) or frame.end > self._framing.end:
            return False
        return frame.end % _SECTOR == 0 and not isinstance(self._reader.padding(frame).seal, NoSeal)
