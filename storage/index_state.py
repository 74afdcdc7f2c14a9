"""What an index says of itself, beside the places of the entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.position import START, JournalPosition, LogPosition

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class IndexState:
    """Committed with every change of the index."""

    generation: int = 0
    """One more with each change: an index whose generation is below the mark's is an older copy."""
    mark: JournalPosition = START
    """Every journal record before it is in the entry logs, and has its place in the index."""
    last_log: int | None = None
    """The log written last; ids may wrap, so it need not be the largest."""
    log_ends: Mapping[int, int] = field(default_factory=dict)
    """For each log where its durable content ends. What lies behind is a leftover."""
    rows_sequence: int = 0
    """The last durable group of the ledger rows."""
    is_whole: bool = True
    """Whether nothing is missing that was acknowledged; not so when it was made from damaged logs."""

    @property
    def log_end(self) -> LogPosition | None:
        """Where the durable content of the log written last ends."""
        return None if self.last_log is None else LogPosition(self.last_log, self.log_ends[self.last_log])
