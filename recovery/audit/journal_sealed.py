"""Through a journal of ours: sealed groups that hold, and gaps between them.

What the scan has found sound is not summed again. A gap is what no seal that holds covers: it is looked at
record by record, in `recovery.audit.journal_gaps`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit import journal_chunks
from storage.codec import journal as codec
from storage.journal_groups import Group, groups
from storage.outcome import Damaged, EndOfData, Flaw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.journal_chunks import Chunk
    from recovery.audit.journal_taken import Taken
    from storage.files import ReadFile
    from storage.journal_reader import JournalReader
    from storage.journal_scan import JournalScan
    from storage.outcome import Stop


@dataclass(frozen=True, slots=True)
class Sound:
    """Groups whose seals hold."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Gap:
    """What no seal covers that holds."""

    start: int
    end: int
    is_tail: bool = False
    """Nothing behind it proves that it was ever whole."""


class SealedWalk:
    """One walk through a journal that was scanned from the mark on, or from its first record."""

    def __init__(self, reader: JournalReader, scan: JournalScan) -> None:
        self._reader = reader
        self._scan = scan
        self._found: list[Sound | Gap] = []
        self._is_reached = scan.start <= reader.records_start or scan.start >= reader.size

    @property
    def is_boundary(self) -> bool | None:
        """Whether a group begins, or the data ends, where the scan began; `None`: all around is damaged."""
        start = self._scan.start
        if self._is_reached or self._scan.end > start:
            return True
        in_gap = any(isinstance(one, Gap) and one.start < start <= one.end for one in self._found)
        return None if in_gap else False

    def stretches(self) -> Iterator[Sound | Gap]:
        """The journal from its first group on, stretch by stretch."""
        at = self._reader.records_start
        while True:
            end, stop = self._sound_until(at)
            if end > at:
                yield self._note(Sound(at, end))
            if isinstance(stop, EndOfData):
                self._is_reached |= end == self._scan.start
                yield from map(self._note, self._up_to_the_mark(end))
                return
            again = self._behind_damage(end)
            if again is None:
                yield from map(self._note, self._tail(end))
                return
            yield self._note(Gap(end, again))
            at = again

    def _note(self, one: Sound | Gap) -> Sound | Gap:
        self._found.append(one)
        return one

    def _sound_until(self, at: int) -> tuple[int, Stop]:
        """How far groups hold from here, and what stands there."""
        end, stop = self._passed(at)
        if isinstance(stop, EndOfData):
            return end, stop
        # Once more: beside a live writer a group may have been read before it was all there.
        self._reader.window.refresh()
        return self._passed(end, stop)

    def _passed(self, at: int, stop: Stop | None = None) -> tuple[int, Stop]:
        scan = self._scan
        self._is_reached |= at == scan.start
        if at == scan.start and stop is None:
            return scan.end, scan.stop
        for found in groups(self._reader, at):
            if not isinstance(found, Group):
                return at, found if stop is None or isinstance(found, EndOfData) else stop
            at, stop = found.end, None
            self._is_reached |= at == scan.start
            if at == scan.start:
                return scan.end, scan.stop
        raise AssertionError("groups end with a stop")

    def _behind_damage(self, end: int) -> int | None:
        behind = (found.seal.group_start for found in self._reader.seals_behind(end))
        return next((start for start in behind if start > end), None)

    def _up_to_the_mark(self, end: int) -> Iterator[Gap]:
        """Up to the mark there was more, whatever stands there now."""
        mark = min(self._scan.start, self._reader.size)
        if end < mark:
            yield Gap(end, mark)

    def _tail(self, end: int) -> Iterator[Gap]:
        """What nothing sound follows: before the mark it was durable all the same."""
        yield from self._up_to_the_mark(end)
        begin, behind = max(end, self._scan.start), end_of_data(self._reader, end)
        if begin < behind:
            yield Gap(begin, behind, is_tail=True)


def end_of_data(reader: JournalReader, start: int) -> int:
    """Behind the last byte from `start` on that is not zero."""
    end = start
    for offset, piece in reader.window.pieces(start, reader.size):
        used = len(bytes(piece).rstrip(b"\0"))
        end = offset + used if used else end
    return end


def take(
    reader: JournalReader, file: ReadFile, extent: tuple[int, int], taken: Taken
) -> Iterator[tuple[int, int, Damaged]]:
    """Takes what stands in a part of a journal that is known to be sound; tells the records that cannot be.

    `OSError` where it does not frame any more: the file has changed.
    """
    at, end = extent
    size = journal_chunks.CHUNK_SIZE
    while at < end:
        chunk = journal_chunks.take_apart(file.read(at, min(size, end - at)), at, reader.framing)
        if chunk.end > at:
            yield from _take_chunk(chunk, reader.framing.version, taken)
            at, size = chunk.end, journal_chunks.CHUNK_SIZE
            continue
        frame = reader.frame_at(at)
        if not isinstance(frame, codec.Frame) or not at + size < frame.end <= end:
            raise OSError(errno.EIO, "the file changed while it was read", reader.name)
        size = frame.end - at


def _take_chunk(chunk: Chunk, version: int, taken: Taken) -> Iterator[tuple[int, int, Damaged]]:
    taken.entries(chunk.entries, taken.digests(chunk.entries))
    for number in chunk.others:
        offset, end = chunk.place(number)
        record = codec.decode_record(chunk.body(number), version)
        match record:
            case Damaged():
                yield offset, end, record
            case codec.UnknownRecord(entry_id=entry_id):
                yield offset, end, Damaged(0, Flaw.FUTURE_VERSION, f"a record of kind {entry_id}")
            case codec.EntryRecord():
                taken.short_entry(offset, record)
            case _:
                taken.fact(offset, record)
