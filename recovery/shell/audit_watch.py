"""What a person sees while stores are read: bytes, bytes a second, and how long it will take."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Self

from recovery.shell.progress import PATIENCE_S, start_bar

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from recovery.audit.asked import Progress

_STEP_S = 0.1


class AuditWatch:
    """A bar for each stage, on a terminal only, and not before a second has passed."""

    def __init__(self) -> None:
        self._seen = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + PATIENCE_S
        self._stage = ""
        self._bar: tuple[Bar, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, progress: Progress) -> None:
        if not self._seen or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _STEP_S
        if progress.stage != self._stage or self._bar is None:
            self._end()
            self._stage = progress.stage
            self._bar = start_bar(progress.stage, progress.bytes_total)
        self._bar[0].update(self._bar[1], completed=progress.bytes_done)

    def _end(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None
