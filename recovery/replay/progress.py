"""Reports the progress of a long reading of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.open_report import RebuildProgress

if TYPE_CHECKING:
    from collections.abc import Callable

_STEP = 1 << 20


def ignore(_: object) -> None:
    """Default callback for progress: does nothing."""


class ReadMeter:
    """Adds up the bytes that are read of several files. Called for each record, it rarely calls `report`."""

    def __init__(self, total: int, report: Callable[[RebuildProgress], None]) -> None:
        self.entries = 0
        self._total = total
        self._callback = report
        self._before = 0
        self._next = _STEP

    def reach(self, offset: int) -> None:
        """Note how far the current file is read."""
        if offset >= self._next:
            self._next = offset + _STEP
            self._report(self._before + offset)

    def pass_over(self, size: int) -> None:
        """Note that all of a file of that size is read."""
        self._before += size
        self._next = _STEP
        self._report(self._before)

    def _report(self, done: int) -> None:
        self._callback(RebuildProgress(min(done, self._total), self._total, self.entries))
