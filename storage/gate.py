"""A gate: many pass at almost no cost, and whoever must be alone waits until nobody is inside.

Without a lock: appending to a list, popping from it, and reading an attribute are one step each for all
threads. Who enters puts a token down first and looks at the gate second; who wants to be alone shuts the gate
first and looks at the tokens second. So of two that come at once, at least one sees the other.
"""

from __future__ import annotations

import errno
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL_S = 0.0005


class Gate:
    """Guards what is named; the name is for messages.

    Who waits gives up after `wait_max_s`: one who never leaves must not hang the others forever.
    """

    def __init__(self, name: str, wait_max_s: float = 60.0) -> None:
        self._name = name
        self._wait_max_s = wait_max_s
        self._inside: list[None] = []
        self.leave: Callable[[], None] = self._inside.pop
        """Undoes one `enter`."""
        self._key = [None]  # there is one: whoever has popped it is, or waits to be, alone
        self._shut = False
        self._closed = False

    def enter(self) -> None:
        """Lets the caller in, at once or when the gate opens again; `OSError` if it never will."""
        self._inside.append(None)
        if self._shut:
            self._wait_for_entry()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While it lasts nobody is inside. After an error nobody ever will be: something is half done."""
        self._shut_out()
        try:
            yield
        except BaseException:
            self._closed = True
            raise
        self._shut = False
        self._key.append(None)

    def close(self) -> None:
        """When it returns, nobody is inside, and nobody will be."""
        try:
            self._shut_out()
        except OSError:
            if not self._closed:  # by another, in the meantime or long ago
                raise
        self._closed = True

    def _wait_for_entry(self) -> None:
        self._inside.pop()
        while self._shut:
            if self._closed:
                raise self._is_closed()
            time.sleep(_POLL_S)
        self.enter()

    def _shut_out(self) -> None:
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
            raise OSError(errno.EBUSY, "a reader has not come back", self._name)
        time.sleep(_POLL_S)

    def _is_closed(self) -> OSError:
        return OSError(errno.EBADF, "closed", self._name)
