"""Walking along a journal by its length words alone, which is cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.codec import journal as codec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.journal_reader import JournalReader


def bodies(reader: JournalReader, start: int) -> Iterator[tuple[int, memoryview]]:
    """The records from `start` on as far as framing holds: offset, and body, good until the next one."""
    at = start
    while isinstance(frame := reader.frame_at(at), codec.Frame):
        if frame.kind is codec.FrameKind.RECORD:
            yield frame.offset, reader.body(frame)
        at = frame.end


def place_of(reader: JournalReader, offset: int) -> int:
    """Where the record that covers `offset` begins, or where framing is lost before it."""
    at = reader.records_start
    while isinstance(frame := reader.frame_at(at), codec.Frame) and frame.end <= offset:
        at = frame.end
    return at
