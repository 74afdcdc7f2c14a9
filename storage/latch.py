"""What a store still does: everything, only reads after a failed write, or nothing once it is closed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from storage.errors import DiskFull, EntryUnreadable, ForkedStore, StoreClosed, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Iterator


class Latch:
    """Moves one way only. After a failed write or sync nobody knows what is durable, and a second sync that
    succeeds proves nothing: so no answer is given any more, and opening again finds out."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_open = True
        """Whether everything may be done: nothing has failed, and nobody closes it."""
        self.failure: BaseException | None = None
        """The first error that stopped the store from writing."""
        self.gone: type[StoreClosed | ForkedStore] | None = None
        """What is said to who asks anything, once nothing is answered any more."""
        self._is_closing = False

    @property
    def has_ended(self) -> bool:
        """Whether waiting for anything to be written is in vain."""
        return self._is_closing or self.gone is not None or self.failure is not None

    @property
    def is_closed(self) -> bool:
        return self._is_closing or self.gone is not None

    def fail(self, error: BaseException) -> None:
        """From here on nothing is written; the first error is the one that is told."""
        if self.failure is None:
            self.failure = error
        self.is_open = False

    def begin_close(self) -> bool:
        """From here on nothing is added; whether the caller is the one to close it."""
        is_first = not self._is_closing and self.gone is None
        self._is_closing = True
        self.is_open = False
        return is_first

    def close(self) -> None:
        """From here on nothing is answered."""
        self.gone = self.gone or StoreClosed
        self.is_open = False

    def fork(self) -> None:
        """This process is a copy of the one that owns the store."""
        self.gone = ForkedStore
        self.is_open = False

    def check_reads(self) -> None:
        """Raises unless entries can be read."""
        if self.gone is not None:
            raise self.gone(self.path)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """As `check_reads`, also for a store that is closed meanwhile."""
        self.check_reads()
        try:
            yield
        except (EntryUnreadable, OSError):
            # Its files were closed under the reader: nothing is known to be wrong with what it has read.
            self.check_reads()
            raise

    def check_writes(self) -> None:
        """Raises unless entries can be added."""
        self.check_reads()
        if self._is_closing:
            raise StoreClosed(self.path)
        if self.failure is not None:
            raise StoreFailed(self.path) from self.failure

    def as_told(self, error: BaseException) -> BaseException:
        """An error of its own for each caller: one that many threads raise collects all their tracebacks."""
        told = DiskFull(error.path) if isinstance(error, DiskFull) else StoreFailed(self.path)
        told.__cause__ = error
        return told
