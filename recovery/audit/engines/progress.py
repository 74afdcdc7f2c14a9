"""How far an audit has come, for any engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class AuditProgress:
    """How far an audit has come. `stage` names the current step for users."""

    stage: str
    bytes_done: int
    bytes_total: int


@dataclass(slots=True)
class ProgressMeter:
    """Sums up what workers have read, stage by stage."""

    watch: Callable[[AuditProgress], None]
    everything: int = 0
    """The number of bytes read in all stages."""
    reused: int = 0
    """The number of bytes that need not be read, because their parts were kept."""
    _stage: str = ""
    _total: int = 0
    _done: int = 0

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage in which `total` bytes are to be read."""
        self._stage, self._total, self._done = stage, total, 0
        self._tell()

    def read(self, size: int) -> None:
        """Count bytes that were read."""
        self._done += size
        self.everything += size
        self._tell()

    def reuse(self, reused: int) -> None:
        """Note the total number of bytes that need not be read, counted from the first stage on."""
        if reused > self.reused:
            self._total -= reused - self.reused
            self.reused = reused
            self._tell()

    def _tell(self) -> None:
        self.watch(AuditProgress(self._stage, min(self._done, self._total), self._total))
