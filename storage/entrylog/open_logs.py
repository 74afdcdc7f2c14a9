"""A bounded cache of entry logs that are open for reading.

Readers find an open log with one look-up in a dict and take no lock. A log leaves the cache because another
log needs its place, or because it is dropped; its file is closed after the last read in it. For that, each
reader holds a reference to the `OpenLog` while it reads: the interpreter frees the object with the last
reference, and freeing it closes the file.

The logs leave in the order in which they came, but one that was read since then stays for another round
(second chance): a hit costs one assignment, where a strict order of use would cost a lock.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.entry.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from contextlib import AbstractContextManager

    from storage.disk.files import ReadFile

OFFSET = 0xFFFF_FFFF
"""The part of a packed location that is the offset in the log."""

OPEN_LOGS_MAX = 384
"""The most logs that stay open. A mapped log takes two descriptors, and a process may have only 1024."""


class OpenLog:
    """One open log. Each reader holds a reference meanwhile; the file is closed with the last reference."""

    __slots__ = ("file", "is_used", "read", "read_into")

    def __init__(self, file: ReadFile) -> None:
        self.file = file
        # The file's own methods, so that a read through this object costs no call more.
        self.read = file.read
        self.read_into = file.read_into
        self.is_used = False
        """Whether it was read since the cache last looked for a log to close. Set without a lock."""

    def __del__(self) -> None:
        self.file.close()


class OpenEntryLogs:
    """Entry logs open for reading. Threads may share them."""

    def __init__(
        self,
        open_log: Callable[[str], ReadFile],
        lock: AbstractContextManager[object],
        open_max: int = OPEN_LOGS_MAX,
    ) -> None:
        """`open_log` opens the log of that name. The lock is held to change the dict, never to read a log."""
        self._open = open_log
        self._lock = lock
        self._open_max = open_max
        self._logs: OrderedDict[int, OpenLog] = OrderedDict()
        """Changed under the lock, except by `close`; read by any thread without it."""
        self._drops = 0
        """How many logs were dropped. Changed under the lock; read without it before a log is opened."""
        self._is_closed = False
        self.find = self._logs.get
        """Return the log of that id, if it is open. A caller that reads it sets its `is_used`."""

    def read(self, packed: int, size: int) -> bytes:
        """Return bytes of a log from an entry's length word on; fewer only where the log ends."""
        log = self._logs.get(packed >> 32) or self._opened(packed >> 32)
        log.is_used = True
        return log.read((packed & OFFSET) - LENGTH_WORD_SIZE, size)

    def read_into(self, packed: int, buffer: memoryview) -> int:
        """Read into a buffer; return how many bytes were read."""
        log = self._logs.get(packed >> 32) or self._opened(packed >> 32)
        log.is_used = True
        return log.read_into((packed & OFFSET) - LENGTH_WORD_SIZE, buffer)

    def _opened(self, log_id: int) -> OpenLog:
        # Opened outside the lock, so that a slow disk holds up only the readers of this log.
        drops = self._drops
        opened = OpenLog(self._open(filenames.entry_log(log_id)))
        with self._lock:
            if self._drops != drops:
                return opened  # not kept, because it may be this log that was dropped meanwhile
            log = self._logs.setdefault(log_id, opened)
            while len(self._logs) > self._open_max:
                self._let_go_of_one()
        if self._is_closed:
            # Checked after the insert, because `close` takes no lock: at least one of the two then sees the
            # other's change.
            self._logs.clear()
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return log

    def _let_go_of_one(self) -> None:
        log_id, log = next(iter(self._logs.items()))
        if log.is_used:
            log.is_used = False
            self._logs.move_to_end(log_id)
        else:
            del self._logs[log_id]

    def drop(self, log_id: int) -> None:
        """Drop a log whose file is about to be removed. It is closed now, or after the last read in it."""
        with self._lock:
            self._drops += 1
            self._logs.pop(log_id, None)

    def keep_only(self, log_ids: Container[int]) -> None:
        """Drop all other logs, as `drop` does."""
        with self._lock:
            self._drops += 1
            for log_id in [one for one in self._logs if one not in log_ids]:
                del self._logs[log_id]

    def close(self) -> None:
        """Drop all logs. From here on opening one is an `OSError`."""
        # Without the lock, because in a fork a thread that does not exist there may hold it for ever.
        self._is_closed = True
        self._logs.clear()
