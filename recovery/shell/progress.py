"""A progress bar, for a person who waits while the rows go elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S = 1.0
_STEP = 1 << 18


class ByteProgress:
    """Shows how far into a file the listing is: not before a second has passed, and only where it is seen."""

    def __init__(self, title: str, size: int) -> None:
        self._title = title
        self._size = size
        self._seen = sys.stderr.isatty() and not sys.stdout.isatty()
        self._next = 0
        self._began = time.monotonic()
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def reach(self, offset: int) -> None:
        """Called for every item, so almost always it must do nothing."""
        if offset < self._next:
            return
        self._next = offset + _STEP
        if not self._seen or time.monotonic() - self._began < PATIENCE_S:
            return
        if self._bar is None:
            self._bar = start_bar(self._title, self._size)
        self._bar[0].update(self._bar[1], completed=offset)


def start_bar(title: str, size: int) -> tuple[Progress, TaskID]:
    """A bar of bytes, shown from now on until it is stopped."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        Speed(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task(title, total=size)
