"""The entry logs that are being read, opened when they are first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage import filenames
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.files import ReadFile

OFFSET = 0xFFFF_FFFF
"""The part of a packed location that says where in its log the entry begins."""

_OPEN_LOGS_MAX = 384  # one that is mapped takes two descriptors, and a process may have 1024


class LogShelf:
    """Entry logs open for reading. Threads may share them."""

    def __init__(self, open_log: Callable[[str], ReadFile]) -> None:
        """`open_log` opens the log of that name."""
        self._open = open_log
        self._files: dict[int, ReadFile] = {}
        self.find = self._files.get
        """The log of that id, if it is open."""

    def read(self, packed: int, size: int) -> bytes:
        """Bytes of a log from an entry's length word on; fewer only where the log ends."""
        log_id, offset = packed >> 32, (packed & OFFSET) - LENGTH_WORD_SIZE
        file = self._files.get(log_id)
        if file is not None:
            return file.read(offset, size)
        file = self._open(filenames.entry_log(log_id))
        if len(self._files) < _OPEN_LOGS_MAX and self._files.setdefault(log_id, file) is file:
            return file.read(offset, size)
        with file:
            return file.read(offset, size)

    def read_into(self, packed: int, buffer: memoryview) -> int:
        """The same, into a buffer; how many bytes they are."""
        log = self._files.get(packed >> 32)
        if log is not None:
            return log.read_into((packed & OFFSET) - LENGTH_WORD_SIZE, buffer)
        data = self.read(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        for file in list(self._files.values()):
            file.close()
