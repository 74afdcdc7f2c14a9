"""What is known of one store's files, before anything is judged."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.verify.runs import no_runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.verify.finding import Finding
    from recovery.verify.parts import FlawAt, JournalPart, MapRecord, RowFlaw
    from recovery.verify.runs import Runs
    from storage.codec.entrylog import EmptyLog, Header
    from storage.entry import DigestType
    from storage.errors import CorruptionError
    from storage.index import NoIndex
    from storage.index_state import IndexState
    from storage.lastmark import LoadedMark
    from storage.outcome import Damaged, Stop
    from storage.row import LedgerRow


class Owner(enum.Enum):
    """Who wrote in a directory last."""

    OURS = "ledgerstore"
    BOOKIE = "a bookie"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogFacts:
    """All that was found in one entry log, its parts put together."""

    log_id: int
    file_size: int
    header: Header | EmptyLog | Damaged
    limit: int | None = None
    """Where its durable content ends; `None`: nobody knows, and everything counts that is sound."""
    is_active: bool = False
    """Whether somebody may be writing to it, or was when a crash came: its end may be torn."""
    is_leftover: bool = False
    """Ours, and no checkpoint has completed it: nothing in it counts."""
    runs: Runs = field(default_factory=no_runs)
    records: int = 0
    size: int = 0
    reach: int = 0
    """Behind the last record that begins in front of its durable end: just there, unless a size is wrong."""
    flaws: tuple[FlawAt, ...] = ()
    maps: tuple[MapRecord, ...] = ()
    stop: Stop | None = None
    types: Mapping[int, DigestType] = field(default_factory=dict)
    unverified: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class IndexFacts:
    """All that was found in our index."""

    state: IndexState
    runs: Runs = field(default_factory=no_runs)
    count: int = 0
    flaws: tuple[RowFlaw, ...] = ()


@dataclass(frozen=True, slots=True)
class NotLookedAt:
    """An index of another kind: a bookie's, which is not ours to read."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoreFacts:
    """One store."""

    store: str
    owner: Owner
    mark: LoadedMark
    rows: Mapping[int, LedgerRow] = field(default_factory=dict)
    rows_damage: CorruptionError | None = None
    logs: tuple[LogFacts, ...] = ()
    """In the order in which their ids were given out."""
    journals: tuple[JournalPart, ...] = ()
    index: IndexFacts | NoIndex | Damaged | NotLookedAt = field(default_factory=NotLookedAt)
    complaints: tuple[Finding, ...] = ()
    """What whoever gathered all this found on the way: cookies, unknown files, files that cannot be read."""
