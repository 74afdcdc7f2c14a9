"""How far a long reading of files has come, told now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.report import RebuildProgress

if TYPE_CHECKING:
    from collections.abc import Callable

_STEP = 1 << 20


def nowhere(_: RebuildProgress) -> None:
    """Progress that nobody watches."""


class Meter:
    """Adds up what is read of several files. It is asked for each record, and almost always does nothing."""

    def __init__(self, total: int, tell: Callable[[RebuildProgress], None]) -> None:
        self.entries = 0
        self._total = total
        self._tell = tell
        self._before = 0
        self._next = _STEP

    def reach(self, offset: int) -> None:
        """So far into the file that is being read."""
        if offset >= self._next:
            self._next = offset + _STEP
            self._tell_of(self._before + offset)

    def pass_over(self, size: int) -> None:
        """All of a file of that size is read, whatever was made of it."""
        self._before += size
        self._next = _STEP
        self._tell_of(self._before)

    def _tell_of(self, done: int) -> None:
        self._tell(RebuildProgress(min(done, self._total), self._total, self.entries))
