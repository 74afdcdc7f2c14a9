"""What a store is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.adding import Adding
    from storage.checkpoint import Checkpointer
    from storage.commit import Committer
    from storage.config import StoreConfig
    from storage.entry_logs import EntryLogs
    from storage.journals import Journals
    from storage.latch import Latch
    from storage.memtable import Slot
    from storage.reading import Reading
    from storage.registry import Registry
    from storage.scanning import Scanning
    from storage.tail import Tails
    from storage.warden import Warden


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a store is made of; opening puts it together."""

    path: str
    config: StoreConfig
    latch: Latch
    slot: Slot
    tails: Tails
    warden: Warden
    journals: Journals
    committer: Committer
    adding: Adding
    logs: EntryLogs
    checkpointer: Checkpointer
    reading: Reading
    registry: Registry
    scanning: Scanning
