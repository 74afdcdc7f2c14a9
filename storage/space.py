"""The space that a store takes, by kind of file: the values that `Store.space` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.stats import FileStats


@dataclass(frozen=True, slots=True)
class LogSpace:
    """The entry logs of a store. `live`, `dead` and `unknown` add up to `bytes`."""

    count: int
    bytes: int
    live: int
    """Bytes of records of entries that exist, as far as that can be told from the logs' ledgers maps."""
    dead: int
    """All other bytes of these logs. A collection gives most of them back."""
    unknown: int
    """Bytes of logs that have no ledgers map yet, such as the one that checkpoints write to."""


@dataclass(frozen=True, slots=True)
class IndexSpace:
    """The index."""

    bytes: int
    used: int
    free: int
    """Bytes of the file that later changes fill before the file grows."""


@dataclass(frozen=True, slots=True)
class StoreSpace:
    """The space that a store takes, in bytes."""

    journals: FileStats
    """All journals, with the space filled ahead."""
    journal_backups: FileStats
    """Those of them that no opening needs any more."""
    entry_logs: LogSpace
    index: IndexSpace
    metadata_log: int
    """The size of `ledgers.rows`, which has the metadata and the tombstones of ledgers."""
    tombstones: int
    """Deleted ledgers that the store still has to remember."""
    quarantine: FileStats
    """Bytes that were put aside before a handover, and a damaged index that was replaced."""
    audit_links: FileStats
    """Removed files that come back when the audits that hold them by hard links end."""
    reserve: int
    """Zeros that are kept for deletes and checkpoints on a full disk."""
    others: FileStats
    """Marks, cookies, drafts, and files that are not the store's."""

    @property
    def total(self) -> int:
        """The bytes of all files."""
        files = (self.journals, self.quarantine, self.audit_links, self.others)
        single = self.entry_logs.bytes + self.index.bytes + self.metadata_log + self.reserve
        return sum(one.bytes for one in files) + single
