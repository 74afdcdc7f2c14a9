"""Walk through a ledgerstore journal: sealed groups that are valid, and gaps between them.

Groups that the opening's scan has verified are not verified again. A gap is what no valid seal covers. It is
read record by record in `recovery.audit.scan.journal_gaps`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.scan import journal_chunks
from storage.entry.read_result import Damaged, EndOfData, Flaw
from storage.journal import format as journal_format
from storage.journal.group_reader import SealedGroup, groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.scan.journal_chunks import JournalChunk
    from recovery.audit.scan.journal_content import JournalContent
    from storage.disk.files import ReadFile
    from storage.entry.read_result import Stop
    from storage.journal.reader import JournalReader
    from storage.journal.scan import JournalScan


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
