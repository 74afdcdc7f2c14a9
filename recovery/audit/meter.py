"""How far an audit has come, whoever does the work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.asked import Progress

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Meter:
    """Sums up what workers have read, stage by stage."""

    watch: Callable[[Progress], None]
    everything: int = 0
    """Bytes that were read, in all stages."""
    reused: int = 0
    """Bytes that did not have to be read: their parts were kept."""
    _stage: str = ""
    _total: int = 0
    _done: int = 0

    def begin(self, stage: str, total: int) -> None:
        """A stage in which so many bytes are to be read."""
        self._stage, self._total, self._done = stage, total, 0
        self._tell()

    def read(self, size: int) -> None:
        """So many more bytes were read."""
        self._done += size
        self.everything += size
        self._tell()

    def reuse(self, reused: int) -> None:
        """Of all that is to be read so many bytes need not be, counted from the first stage on."""
        if reused > self.reused:
            self._total -= reused - self.reused
            self.reused = reused
            self._tell()

    def _tell(self) -> None:
        self.watch(Progress(self._stage, min(self._done, self._total), self._total))
