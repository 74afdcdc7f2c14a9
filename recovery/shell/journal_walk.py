"""Walking along a journal by its length words alone, which is cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.codec import journal as codec
from storage.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.files import ReadFile
    from storage.outcome import Stop


class JournalWalk:
    """One journal, seen through a window of its own."""

    def __init__(self, file: ReadFile, header: codec.Header) -> None:
        self._window = Window(file)
        self._header = header

    def frame_at(self, offset: int) -> codec.Frame | Stop:
        """What begins at the offset, which must be a record's place."""
        remaining = max(0, self._window.size - offset)
        return codec.frame(self._window.view(offset, codec.PREFIX_SIZE), offset, remaining, self._header)

    def bytes_of(self, frame: codec.Frame) -> bytes:
        """The whole record, length word included."""
        return bytes(self._window.view(frame.offset, frame.end - frame.offset))

    def bodies(self, start: int) -> Iterator[tuple[int, memoryview]]:
        """The records from `start` on as far as framing holds: offset, and body, good until the next one."""
        at = start
        while isinstance(frame := self.frame_at(at), codec.Frame):
            if frame.kind is codec.FrameKind.RECORD:
                yield frame.offset, self._window.view(frame.body, frame.end - frame.body)
            at = frame.end

    def place_of(self, offset: int, start: int) -> int:
        """Where the record that covers `offset` begins, or where framing is lost before it."""
        at = start
        while isinstance(frame := self.frame_at(at), codec.Frame) and frame.end <= offset:
            at = frame.end
        return at
