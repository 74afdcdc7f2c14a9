"""The state of an index, which is committed together with its locations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.entry.position import START, JournalPosition, LogPosition

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state that is committed with each change of the index."""

    generation: int = 0
    """Grows by one with each change. An index with a smaller generation than the mark is an older copy."""
    mark: JournalPosition = START
    """Every journal record before it is in the entry logs, and its location is in the index."""
    last_log: int | None = None
    """The id of the log written last. It need not be the largest id, because ids may wrap around."""
    log_ends: Mapping[int, int] = field(default_factory=dict)
    """The end of the durable content of each log. Bytes after it are left over from a crash."""
    rows_sequence: int = 0
    """The last durable group of `ledgers.rows`."""
    is_whole: bool = True
    """Whether the index has every acknowledged entry; false if it was rebuilt from damaged logs."""
    gone: tuple[int, ...] = ()
    """The logs that were removed and whose unlink is not known to be durable, ascending: a power cut may
    bring them back."""

    @property
    def log_end(self) -> LogPosition | None:
        """The end of the durable content of the log written last."""
        return None if self.last_log is None else LogPosition(self.last_log, self.log_ends[self.last_log])
