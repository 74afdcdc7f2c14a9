"""Reading a journal: every record and padding with its place, up to where the file stops making sense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.codec import journal as codec
from storage.codec import seal as seal_codec
from storage.codec.survey import matching_checksum
from storage.outcome import Damaged, EndOfData, Flaw, Stop
from storage.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.codec.seal import NoSeal, Seal, StoredSeal
    from storage.files import ReadFile

_LONG_HEADER = codec.Header(codec.VERSION_MAX)
_SECTOR = min(seal_codec.ALIGNMENTS)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record in its place; `Damaged` when it is framed but says nothing sensible."""

    offset: int
    end: int
    record: codec.Record | Damaged


@dataclass(frozen=True, slots=True)
class StoredPadding:
    """A padding record in its place, with the seal at its end if there is one."""

    offset: int
    end: int
    seal: StoredSeal | NoSeal
    atomic_mark: bool


class Summed(NamedTuple):
    """The checksum of a group from its start up to `end`."""

    end: int
    checksum: int = 0


class JournalReader:
    """One journal file, ours or a bookie's, of any version. Reads only; may stand beside a live writer."""

    def __init__(self, file: ReadFile, journal_id: int) -> None:
        self.journal_id = journal_id
        self.name = file.name
        self.window = Window(file)
        self.size = self.window.size
        self.header = self._read_header()

    def _read_header(self) -> codec.Header | codec.Void | Damaged:
        header = codec.decode_header(self.window.view(0, codec.HEADER_SIZE_MAX))
        match header:
            case Damaged(flaw=Flaw.BAD_MAGIC) if self._begins_with_an_entry():
                return codec.VERSION_1
            # A header is synced before its file gets a name, so zeros in front of data are damage.
            case codec.Void() if self._is_zero_before_data(0):
                return Damaged(0, Flaw.BAD_MAGIC, "zeros in front of data")
            # A long header whose version is damaged, not a short one: its records would begin at once.
            case codec.Header(version=2 | 3 | 4) if self._is_zero_before_data(header.size):
                return Damaged(4, Flaw.BAD_VERSION, "zeros in front of data")
        return header

    def _is_zero_before_data(self, start: int) -> bool:
        first = self.window.first_nonzero(start)
        return first is not None and first >= codec.HEADER_SIZE_MAX

    def _begins_with_an_entry(self) -> bool:
        """A journal from before headers proves itself by its first record: its digest must match."""
        frame = self._frame(0, codec.VERSION_1)
        if not isinstance(frame, codec.Frame):
            return False
        return matching_checksum(self.body(frame)) is not None

    @property
    def framing(self) -> codec.Header:
        """The rules its records are read by; those of the newest version when the header cannot tell."""
        return self.header if isinstance(self.header, codec.Header) else _LONG_HEADER

    @property
    def salt(self) -> int | None:
        """Ours, from the header; `None` in a bookie's journal, and where the header cannot tell."""
        return self.header.salt if isinstance(self.header, codec.Header) else None

    @property
    def has_lost_its_end(self) -> bool:
        """Whether the file is shorter than it was before anything could be written to it."""
        return isinstance(self.header, codec.Header) and self.size < self.header.filled_until

    @property
    def records_start(self) -> int:
        return self.framing.size

    def items(self, start: int = 0) -> Iterator[StoredRecord | StoredPadding | Stop]:
        """Every item from `start` on (0: from the first record). The last one says how it ended."""
        at = max(start, self.records_start)
        while True:
            item = self.item_at(at)
            yield item
            if not isinstance(item, StoredRecord | StoredPadding):
                return
            at = item.end

    def item_at(self, offset: int) -> StoredRecord | StoredPadding | Stop:
        """The item that begins at the offset, which must be a record's place, or how the items end there."""
        frame = self.frame_at(offset)
        if isinstance(frame, EndOfData):
            frame = self._at_the_end(frame)
        if not isinstance(frame, codec.Frame):
            return frame
        if frame.kind is codec.FrameKind.PADDING:
            return self.padding(frame)
        record = codec.decode_record(self.body(frame), self.framing.version)
        return StoredRecord(offset, frame.end, record)

    def frame_at(self, offset: int) -> codec.Frame | Stop:
        """What begins at the offset, which must be a record's place."""
        return self._frame(offset, self.framing)

    def _frame(self, at: int, header: codec.Header) -> codec.Frame | Stop:
        return codec.frame(self.window.peek(at, codec.PREFIX_SIZE), at, max(0, self.size - at), header)

    def body(self, frame: codec.Frame) -> memoryview:
        """The record's bytes behind its length. Valid until the next call."""
        return self.window.view(frame.body, frame.end - frame.body)

    def padding(self, frame: codec.Frame) -> StoredPadding:
        """A padding record in its place."""
        length = frame.end - frame.body
        tail = self.window.view(frame.end - min(length, seal_codec.SIZE), min(length, seal_codec.SIZE))
        seal = seal_codec.decode(tail)
        return StoredPadding(frame.offset, frame.end, seal, bytes(tail) == seal_codec.ATOMIC_MARK)

    def _at_the_end(self, end: EndOfData) -> codec.Frame | Stop:
        """Zeros are only the end of the data when nothing else follows them."""
        nonzero = self.window.first_nonzero(end.offset)
        if nonzero is None:
            return end
        # A live writer may have written here since the zeros were read: then there is a record by now.
        self.window.refresh()
        again = self.frame_at(end.offset)
        if not isinstance(again, EndOfData):
            return again
        return Damaged(end.offset, Flaw.NOT_ZERO, f"first at {nonzero}")

    def checksum(self, start: int, end: int, before: int = 0) -> int:
        """The CRC-32C of a range, `before` being that of what stands in front of it."""
        for _, piece in self.window.pieces(start, end):
            before = crc32c(piece, before)
        return before

    def seal_flaw(self, stored: StoredSeal, end: int, summed: Summed | None = None) -> Flaw | None:
        """Why the seal that ends at `end` is not this file's or does not fit its group; `None` if it does.

        `summed` is what the caller has summed already, from the group's start on.
        """
        seal = stored.seal
        if seal.journal_id != self.journal_id or self.salt not in (None, seal.salt):
            return Flaw.OTHER_PLACE
        return self._misfit(stored, end, summed)

    def _misfit(self, stored: StoredSeal, end: int, summed: Summed | None = None) -> Flaw | None:
        """Why the seal does not fit its group, whatever file it names."""
        seal = stored.seal
        if not self.records_start <= seal.group_start <= end - seal_codec.SIZE:
            return Flaw.OTHER_PLACE
        begun = summed or Summed(seal.group_start)
        checksum = self.checksum(begun.end, end - seal_codec.CHECKSUM_SIZE, begun.checksum)
        return stored.flaw if checksum == stored.checksum else Flaw.CHECKSUM

    def seals_behind(self, start: int) -> Iterator[StoredSeal]:
        """The seals behind `start` whose checksums hold, those of a newer version included.

        They are looked for wherever an aligned group could end.
        """
        for stored, end in self._stored_seals(start):
            if self.seal_flaw(stored, end) in (None, Flaw.FUTURE_VERSION):
                yield stored

    def stranger_behind(self, start: int) -> Seal | None:
        """The first seal behind `start` that has this file's id and another salt, or its salt and another id.

        It fits its place and its group, so header and groups are of two files; a payload that contains a
        journal stands elsewhere than that journal did, or has neither.
        """
        for stored, end in self._stored_seals(start):
            seal = stored.seal
            is_half_ours = (seal.journal_id == self.journal_id) is not (seal.salt == self.salt)
            if is_half_ours and self._misfit(stored, end) is None:
                return seal
        return None

    def _stored_seals(self, start: int) -> Iterator[tuple[StoredSeal, int]]:
        """What looks like a seal, wherever an aligned group could end, and where it ends itself."""
        # A seal ends its sector, so that none lies across two pieces.
        for offset, piece in self.window.pieces(start - start % _SECTOR, self.size):
            for place in seal_codec.places(piece):
                at = offset + place
                stored = seal_codec.decode(self.window.peek(at, seal_codec.SIZE))
                if isinstance(stored, seal_codec.StoredSeal):
                    yield stored, at + seal_codec.SIZE
