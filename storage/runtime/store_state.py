"""The state of a store: open, failed (reads only) or closed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.entry.credentials import Purpose
from storage.errors import DiskFull, EntryUnreadable, ForkedStore, StoreClosed, StoreFailed
from storage.runtime.events import Events

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class LowSpace:
    """Adds are refused, except those of recoveries, because little space is left."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoReserve:
    """All adds are refused, because the space that is left is for work that frees space."""

    reason: str


Refusal = LowSpace | NoReserve


class StoreState:
    """Moves in one direction only: open, failed, closed.

    After a failed write or sync it is unknown what is durable, and a second sync that succeeds proves
    nothing. So nothing is acknowledged any more, and the next opening finds out what is durable.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.events = Events(path)
        """The store's log messages."""
        # Each field is set by any thread and read by any thread, without a lock. None ever goes back except
        # `refusal`, so a thread that reads an old value only acts as if it had come a moment earlier.
        self.is_open = True
        """Whether adds are accepted: nothing has failed, `close` has not begun, and there is space."""
        self.refusal: Refusal | None = None
        """Why adds are refused for lack of space; `None` if they are not."""
        self.failure: BaseException | None = None
        """The first error that stopped the store from writing."""
        self.gone: type[StoreClosed | ForkedStore] | None = None
        """The error that every call raises once the store is closed or this process is a fork."""
        self._is_closing = False

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be written."""
        return self._is_closing or self.gone is not None or self.failure is not None

    @property
    def is_closed(self) -> bool:
        return self._is_closing or self.gone is not None

    def fail(self, error: BaseException) -> None:
        """Stop writing. Only the first error is kept."""
        if self.failure is None:
            self.failure = error
        self.is_open = False
        # Logged after the store has stopped, because a log handler may block or be interrupted.
        self.events.failed(self.failure)

    def refuse_adds(self, refusal: Refusal | None) -> None:
        """Refuse adds from now on, or accept them again. One thread at a time may call."""
        before, self.refusal = self.refusal, refusal
        if refusal is not None:
            self.is_open = False
            if before is None:
                self.events.adds_are_refused(refusal.reason)
            return
        self.is_open = True
        # Checked afterwards, because another thread may have ended the store in between.
        if self.has_ended:
            self.is_open = False
        elif before is not None:
            self.events.adds_are_accepted()

    def check_space(self, purpose: Purpose) -> None:
        """Raise unless there is space for adds of this purpose."""
        refusal = self.refusal
        if isinstance(refusal, NoReserve) or (refusal is not None and purpose is Purpose.WRITING):
            raise DiskFull(self.path, refusal.reason)

    def begin_close(self) -> bool:
        """Stop adds. Return whether the caller is the first to close the store and must finish it."""
        is_first = not self._is_closing and self.gone is None
        self._is_closing = True
        self.is_open = False
        return is_first

    def close(self) -> None:
        """Stop everything."""
        self.gone = self.gone or StoreClosed
        self.is_open = False

    def fork(self) -> None:
        """Stop everything, because this process is a fork of the one that owns the store."""
        self.gone = ForkedStore
        self.is_open = False

    def check_reads(self) -> None:
        """Raise unless entries can be read."""
        if self.gone is not None:
            raise self.gone(self.path)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Like `check_reads`, also if the store is closed during the `with`."""
        self.check_reads()
        try:
            yield
        except (EntryUnreadable, OSError):
            # Another thread may have closed the files, so the entry need not be damaged.
            self.check_reads()
            raise

    def check_writes(self) -> None:
        """Raise unless entries can be added."""
        self.check_reads()
        if self._is_closing:
            raise StoreClosed(self.path)
        if self.failure is not None:
            self.events.failed(self.failure)  # because an interrupted add sets the failure without `fail`
            raise StoreFailed(self.path) from self.failure

    def check_not_failed(self) -> None:
        """Raise the failure itself in a thread that is about to write; wrap a Ctrl-C that hit another
        thread."""
        if self.failure is not None:
            raise self.failure if isinstance(self.failure, Exception) else self.as_told(self.failure)

    def as_told(self, error: BaseException) -> BaseException:
        """Return a new error for one caller, because an error that many threads raise collects all
        tracebacks."""
        copy = DiskFull(error.path, error.reason) if isinstance(error, DiskFull) else StoreFailed(self.path)
        copy.__cause__ = error
        return copy
