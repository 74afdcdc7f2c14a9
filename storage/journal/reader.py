"""A reader of journals: every record and padding in its place, up to the first thing that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.disk.buffered import CHUNK_SIZE, Window
from storage.entry.digest_inference import matching_checksum
from storage.entry.read_result import Damaged, EndOfData, Flaw, Stop
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.disk.files import ReadFile
    from storage.journal.seal import NoSeal, Seal, StoredSeal

_LONG_HEADER = journal_format.JournalHeader(journal_format.VERSION_MAX)
_ZEROS = bytes(CHUNK_SIZE)
_SECTOR = min(journal_seal.ALIGNMENTS)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record in its place. `Damaged` if it is framed but makes no sense."""

    offset: int
    end: int
    record: journal_format.Record | Damaged


@dataclass(frozen=True, slots=True)
class StoredPadding:
    """A padding record in its place, with the seal at its end if there is one."""

    offset: int
    end: int
    seal: StoredSeal | NoSeal
    atomic_mark: bool


class PartialChecksum(NamedTuple):
    """The checksum of a group from its start up to `end`."""

    end: int
    checksum: int = 0


class JournalReader:
    """One journal file of any version, ours or a bookie's. Reads only; the file may have a live writer."""

    def __init__(self, file: ReadFile, journal_id: int, read_ahead: int = CHUNK_SIZE) -> None:
        self.journal_id = journal_id
        self.name = file.name
        self.window = Window(file, read_ahead)
        self.size = self.window.size
        self.header = self._read_header()

    def _read_header(self) -> journal_format.JournalHeader | journal_format.Void | Damaged:
        header = journal_format.decode_header(self.window.view(0, journal_format.HEADER_SIZE_MAX))
        match header:
            case Damaged(flaw=Flaw.BAD_MAGIC) if self._begins_with_an_entry():
                return journal_format.VERSION_1
            # A header is synced before its file gets a name, so zeros before data are damage.
            case journal_format.Void() if self._is_zero_before_data(0):
                return Damaged(0, Flaw.BAD_MAGIC, "zeros before data")
            # The header is a long one whose version is damaged. After a short header the records would begin
            # at once.
            case journal_format.JournalHeader(version=2 | 3 | 4) if self._is_zero_before_data(header.size):
                return Damaged(4, Flaw.BAD_VERSION, "zeros before data")
        return header

    def _is_zero_before_data(self, start: int) -> bool:
        first = self.window.first_nonzero(start)
        return first is not None and first >= journal_format.HEADER_SIZE_MAX

    def _begins_with_an_entry(self) -> bool:
        """Return whether the first record proves a journal from before headers: its digest must match."""
        frame = self._frame(0, journal_format.VERSION_1)
        if not isinstance(frame, journal_format.JournalFrame):
            return False
        return matching_checksum(self.body(frame)) is not None

    @property
    def framing(self) -> journal_format.JournalHeader:
        """The header by whose rules the records are read.

        It is that of the newest version if the header cannot tell.
        """
        return self.header if isinstance(self.header, journal_format.JournalHeader) else _LONG_HEADER

    @property
    def salt(self) -> int | None:
        """The salt in a header of ours; `None` in a bookie's journal, and if the header cannot tell."""
        return self.header.salt if isinstance(self.header, journal_format.JournalHeader) else None

    @property
    def has_lost_its_end(self) -> bool:
        """Return whether the file is shorter than it was before anything could be written to it."""
        return isinstance(self.header, journal_format.JournalHeader) and self.size < self.header.filled_until

    @property
    def records_start(self) -> int:
        return self.framing.size

    def items(self, start: int = 0) -> Iterator[StoredRecord | StoredPadding | Stop]:
        """Return every item from `start` on (0: from the first record).

        The last one says how the items ended.
        """
        at = max(start, self.records_start)
        while True:
            item = self.item_at(at)
            yield item
            if not isinstance(item, StoredRecord | StoredPadding):
                return
            at = item.end

    def item_at(self, offset: int) -> StoredRecord | StoredPadding | Stop:
        """Return the item that begins at the offset of a record, or how the items end there."""
        frame = self.frame_at(offset)
        if isinstance(frame, EndOfData):
            frame = self._at_the_end(frame)
        if not isinstance(frame, journal_format.JournalFrame):
            return frame
        if frame.kind is journal_format.JournalFrameKind.PADDING:
            return self.padding(frame)
        record = journal_format.decode_record(self.body(frame), self.framing.version)
        return StoredRecord(offset, frame.end, record)

    def frame_at(self, offset: int) -> journal_format.JournalFrame | Stop:
        """Return the frame that begins at the offset of a record."""
        return self._frame(offset, self.framing)

    def _frame(self, at: int, header: journal_format.JournalHeader) -> journal_format.JournalFrame | Stop:
        return journal_format.frame(
            self.window.peek(at, journal_format.PREFIX_SIZE), at, max(0, self.size - at), header
        )

    def body(self, frame: journal_format.JournalFrame) -> memoryview:
        """Return the record's bytes after its length word. Valid until the next call."""
        return self.window.view(frame.body, frame.end - frame.body)

    def padding(self, frame: journal_format.JournalFrame) -> StoredPadding:
        """Decode a padding record."""
        length = frame.end - frame.body
        tail = self.window.view(frame.end - min(length, journal_seal.SIZE), min(length, journal_seal.SIZE))
        seal = journal_seal.decode(tail)
        return StoredPadding(frame.offset, frame.end, seal, bytes(tail) == journal_seal.ATOMIC_MARK)

    def _at_the_end(self, end: EndOfData) -> journal_format.JournalFrame | Stop:
        """Return the end, if only zeros follow. Otherwise a live writer has written here, or it is damage."""
        nonzero = self.window.first_nonzero(end.offset)
        if nonzero is None:
            return end
        # A live writer may have written here since the zeros were read.
        self.window.refresh()
        again = self.frame_at(end.offset)
        if not isinstance(again, EndOfData):
            return again
        return Damaged(end.offset, Flaw.NOT_ZERO, f"first at {nonzero}")

    def checksum(self, start: int, end: int, before: int = 0) -> int:
        """Continue the CRC-32C `before` of the bytes before the range with those of the range."""
        for _, piece in self.window.pieces(start, end):
            before = crc32c(piece, before)
        return before

    def seal_flaw(self, stored: StoredSeal, end: int, summed: PartialChecksum | None = None) -> Flaw | None:
        """Return why the seal that ends at `end` is not this file's or does not fit its group.

        `None` if it does.

        `summed` is what the caller has summed already, from the group's start on.
        """
        seal = stored.seal
        if seal.journal_id != self.journal_id or self.salt not in (None, seal.salt):
            return Flaw.OTHER_PLACE
        return self._group_flaw(stored, end, summed)

    def _group_flaw(self, stored: StoredSeal, end: int, summed: PartialChecksum | None = None) -> Flaw | None:
        """Return why the seal does not fit its group, whatever file it names."""
        seal = stored.seal
        if not self.records_start <= seal.group_start <= end - journal_seal.SIZE:
            return Flaw.OTHER_PLACE
        begun = summed or PartialChecksum(seal.group_start)
        checksum = self.checksum(begun.end, end - journal_seal.CHECKSUM_SIZE, begun.checksum)
        return stored.flaw if checksum == stored.checksum else Flaw.CHECKSUM

    def seals_after(self, start: int) -> Iterator[StoredSeal]:
        """Return the seals after `start` whose checksums hold, those of a newer version included.

        They are looked for wherever an aligned group could end.
        """
        for stored, end in self._stored_seals(start):
            if self.seal_flaw(stored, end) in (None, Flaw.FUTURE_VERSION):
                yield stored

    def last_seal(self, start: int) -> Seal | None:
        """Return the last seal after `start` whose checksum holds; `None` if no group of ours is there.

        A journal is mostly zeros when it is opened, so that the end of its content is searched by halves. A
        chunk of zeros inside a large payload can make the answer an earlier seal.
        """
        begin = max(start, self.records_start)
        if not self._has_group_at(begin):
            return None
        begin -= begin % _SECTOR
        written, unwritten = 0, -(-(self.size - begin) // CHUNK_SIZE)
        while unwritten - written > 1:
            middle = (written + unwritten) // 2
            chunk = self.window.view(begin + middle * CHUNK_SIZE, CHUNK_SIZE)
            if _ZEROS.startswith(chunk):
                unwritten = middle
            else:
                written = middle
        for offset in range(begin + written * CHUNK_SIZE, begin - 1, -CHUNK_SIZE):
            for place in reversed(journal_seal.candidates(self.window.view(offset, CHUNK_SIZE))):
                stored = journal_seal.decode(self.window.peek(offset + place, journal_seal.SIZE))
                if not isinstance(stored, journal_seal.StoredSeal):
                    continue
                if self.seal_flaw(stored, offset + place + journal_seal.SIZE) is None:
                    return stored.seal
        return None

    def _has_group_at(self, start: int) -> bool:
        """Return whether anything was written there. Most openings find nothing after the mark."""
        frame = self.frame_at(start)
        if (
            isinstance(frame, journal_format.JournalFrame)
            and frame.kind is journal_format.JournalFrameKind.PADDING
        ):
            if isinstance(self.padding(frame).seal, journal_seal.StoredSeal):
                return True
            start = frame.end  # the padding between the header and the first group
        return any(self.window.peek(start, journal_format.PREFIX_SIZE))

    def foreign_seal_after(self, start: int) -> Seal | None:
        """Return the first seal after `start` that has only one of this file's id and salt.

        It fits its place and its group, so header and groups are of two files. A payload that contains a
        journal stands elsewhere than that journal did, or has neither.
        """
        for stored, end in self._stored_seals(start):
            seal = stored.seal
            is_half_ours = (seal.journal_id == self.journal_id) is not (seal.salt == self.salt)
            if is_half_ours and self._group_flaw(stored, end) is None:
                return seal
        return None

    def _stored_seals(self, start: int) -> Iterator[tuple[StoredSeal, int]]:
        """Return everything that looks like a seal, wherever an aligned group could end, and its own end."""
        # A seal ends at the end of its sector, so that none lies across two pieces.
        for offset, piece in self.window.pieces(start - start % _SECTOR, self.size):
            for place in journal_seal.candidates(piece):
                at = offset + place
                stored = journal_seal.decode(self.window.peek(at, journal_seal.SIZE))
                if isinstance(stored, journal_seal.StoredSeal):
                    yield stored, at + journal_seal.SIZE
