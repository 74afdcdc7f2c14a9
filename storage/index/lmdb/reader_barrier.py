"""A barrier between readers, which enter at almost no cost, and a thread that needs exclusive access.

There is no lock, because the interpreter makes `list.append`, `list.pop` and reading an attribute atomic. A
reader appends a token first and then checks whether the barrier is shut. The exclusive thread shuts the
barrier first and then checks for tokens. So if both come at the same moment, at least one sees the other.
"""

from __future__ import annotations

import errno
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL_S = 0.0005


class ReaderBarrier:
    """Guards one resource, which messages call by `name`.

    Waiting for readers ends with an error after `wait_max_s`, because a reader that never leaves must not
    block other threads for ever.
    """

    def __init__(self, name: str, wait_max_s: float = 60.0) -> None:
        self._name = name
        self._wait_max_s = wait_max_s
        # Each field is read and written by any thread, without a lock.
        self._inside: list[None] = []
        """One token for each reader that is inside."""
        self.leave: Callable[[], None] = self._inside.pop
        """Undo one `enter`."""
        self._key = [None]
        """One key: the thread that has popped it has exclusive access, or waits for it."""
        self._shut = False
        """Written only by the thread that has the key."""
        self._closed = False
        """Set once, and never reset."""

    def enter(self) -> None:
        """Return when the caller is inside; `OSError` if the barrier is closed."""
        self._inside.append(None)
        if self._shut:
            self._wait_for_entry()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold exclusive access during the `with`. An error in it closes the barrier, because the resource
        may be half changed."""
        self._wait_for_readers()
        try:
            yield
        except BaseException:
            self._closed = True
            raise
        self._shut = False
        self._key.append(None)

    def close(self) -> None:
        """Return when no reader is inside; none can enter afterwards."""
        try:
            self._wait_for_readers()
        except OSError:
            if not self._closed:  # another thread may have closed it
                raise
        self._closed = True

    def _wait_for_entry(self) -> None:
        self._inside.pop()
        while self._shut:
            if self._closed:
                raise self._is_closed()
            time.sleep(_POLL_S)
        self.enter()

    def _wait_for_readers(self) -> None:
        deadline = time.monotonic() + self._wait_max_s
        while not self._take_key():
            self._poll(deadline)
        self._shut = True
        try:
            while self._inside:
                self._poll(deadline)
        except BaseException:
            self._shut = False
            self._key.append(None)
            raise

    def _take_key(self) -> bool:
        try:
            self._key.pop()
        except IndexError:
            return False
        return True

    def _poll(self, deadline: float) -> None:
        if self._closed:
            raise self._is_closed()
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, "a reader did not finish in time", self._name)
        time.sleep(_POLL_S)

    def _is_closed(self) -> OSError:
        return OSError(errno.EBADF, "closed", self._name)
