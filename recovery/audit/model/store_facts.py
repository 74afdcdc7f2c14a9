"""Facts about one store's files: the input of the checks, beside the tables of runs."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.entry.position import START
from storage.entrylog.lineage import NoLineage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.scan_results import FlawAt, JournalPart, MapRecord, RowFlaw
    from storage.checkpoint.mark import LoadedMark
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.model import DigestType
    from storage.entry.position import JournalPosition
    from storage.entry.read_result import Damaged, Stop
    from storage.entrylog.format import EmptyLog, LogHeader
    from storage.entrylog.lineage_format import Lineage
    from storage.errors import CorruptionError
    from storage.index.port import NoIndex
    from storage.index.state import IndexState


class DirectoryOwner(enum.Enum):
    """The program that wrote to a directory last."""

    OURS = "ledgerstore"
    BOOKIE = "a bookie"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIdentity:
    """Where a store is and whose it is, so that reports of several machines can be put together."""

    host: str = ""
    """The name of the machine that read its files."""
    bookie_id: str = ""
    """The bookie that the cookie names; empty if no bookie has ever used the store."""
    instance_id: str = ""
    """The instance id in the cookie: that of the cluster, or of a store of ours."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogFacts:
    """All results for one entry log, its parts merged."""

    log_id: int
    file_size: int
    header: LogHeader | EmptyLog | Damaged
    limit: int | None = None
    """Where its durable content ends; `None` if unknown, and then everything sound counts."""
    is_active: bool = False
    """Whether a process may be writing to it, or was when it crashed, so that its end may be torn."""
    is_leftover: bool = False
    """Written by ledgerstore and not completed by a checkpoint, so that nothing in it counts."""
    records: int = 0
    size: int = 0
    reach: int = 0
    """The end of the last record that begins before the durable end. It is equal to it unless a size is
    wrong.
    """
    flaws: tuple[FlawAt, ...] = ()
    maps: tuple[MapRecord, ...] = ()
    stop: Stop | None = None
    types: Mapping[int, DigestType] = field(default_factory=dict)
    unverified: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class IndexFacts:
    """All results for an index of ledgerstore."""

    state: IndexState
    count: int = 0
    flaws: tuple[RowFlaw, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexNotRead:
    """An index of another kind, a bookie's, which the audit does not read."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BookieIndexFacts:
    """All rows of a bookie's own index, except those of deleted ledgers."""

    count: int = 0
    invalid: int = 0
    is_changing: bool = False
    """Whether the bookie was running, so that rows of ledgers that it has just deleted may be there still."""


@dataclass(frozen=True, slots=True)
class UnreadBookieIndex:
    """A bookie's own index that is there and could not be read."""

    why: str
    is_damaged: bool
    """Otherwise it may be whole: a program that reads it is missing, or the bookie changes it too fast."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoreFacts:
    """The facts about one store."""

    store: str
    owner: DirectoryOwner
    mark: LoadedMark
    replay_from: JournalPosition = START
    """The position from which an opening would replay the journals."""
    rows: Mapping[int, LedgerRecord] = field(default_factory=dict)
    rows_damage: CorruptionError | None = None
    logs: tuple[LogFacts, ...] = ()
    """In the order in which their ids were assigned."""
    unread_logs: frozenset[int] = frozenset()
    """Logs that are there and cannot be read at all."""
    journals: tuple[JournalPart, ...] = ()
    index: IndexFacts | NoIndex | Damaged | IndexNotRead = field(default_factory=IndexNotRead)
    bookie_index: BookieIndexFacts | UnreadBookieIndex | None = None
    """`None` if no bookie has kept an index in RocksDB here."""
    truncated_before: Mapping[int, int] = field(default_factory=dict)
    """For each ledger whose truncation the index has: the first entry that may have a place in it."""
    void_in_index: frozenset[int] = frozenset()
    """Ledgers that were deleted since the index was changed: its rows of them are void."""
    lineage: Lineage | NoLineage | Damaged = field(default_factory=NoLineage)
    """Which logs remain after others were removed. It is not older than the index."""
    inventory_findings: tuple[Finding, ...] = ()
    """Findings of the inventory: cookies, unknown files, files that cannot be read."""
