"""The result of an audit: plain values that are the same for every engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.model.store_facts import StoreIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.store_facts import DirectoryOwner, StoreFacts
    from recovery.audit.model.store_tables import StoreTables


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCoverage:
    """How much was read, and what was not read."""

    files: int = 0
    bytes: int = 0
    entries: int = 0
    index_rows: int = 0
    journals: int = 0
    logs: int = 0
    not_covered: tuple[str, ...] = ()
    """Each with its reason."""


@dataclass(frozen=True, slots=True)
class Check:
    """One question about a store, and its answer: `status` is passed, failed or not run."""

    id: str
    title: str
    status: str
    why: str = ""
    findings: int = 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoreReport:
    """The results for one store."""

    store: str
    owner: DirectoryOwner
    is_live: bool
    findings: tuple[Finding, ...]
    facts: StoreFacts
    coverage: ReadCoverage
    identity: StoreIdentity = field(default_factory=StoreIdentity)
    checks: tuple[Check, ...] = ()
    live_sizes: Mapping[int, int] | None = None
    """For each entry log the size of the records that the index points at, or `None` without an index."""
    tables: StoreTables | None = None
    """The runs of the store. A report reads them as long as it has the engine for queries."""
    seconds: float = 0.0


class StoreShare(NamedTuple):
    """How many entries a store should hold, how many of these it holds, and how many it holds in addition."""

    should: int
    held: int
    beside: int


@dataclass(frozen=True, slots=True)
class CopyCounts:
    """How many of the required entries of a ledger have how many copies."""

    ledger_id: int
    is_open: bool
    copies: tuple[int, ...]
    """The number of entries for each number of copies, from 0 to the write quorum."""

    @property
    def entries(self) -> int:
        return sum(self.copies)

    @property
    def is_whole(self) -> bool:
        """Whether every entry has all copies."""
        return not any(self.copies[:-1])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplicaReport:
    """The result of comparing replicas."""

    findings: tuple[Finding, ...]
    ledgers: tuple[CopyCounts, ...]
    """By ledger: how many entries have how many copies."""
    stores: Mapping[str, StoreShare]
    """By the stores' names: how many entries each should hold, does hold, and holds in addition."""
    paths: Mapping[str, str]
    compared_by_entry: tuple[int, ...] = ()
    """The ledgers whose copies were compared entry by entry. All others were compared by fingerprints."""
    not_covered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AuditReport:
    """The results for all stores. Times are ISO 8601, UTC."""

    stores: tuple[StoreReport, ...]
    engine: str
    started: str
    ended: str
    argv: tuple[str, ...] = ()
    seconds: float = 0.0
    bytes_read: int = 0
    bytes_reused: int = 0
    wrong_password_ledgers: tuple[int, ...] = ()
    """Ledgers whose password is wrong, so that their entries are unverified."""
    replicas: ReplicaReport | None = None
    findings: tuple[Finding, ...] = field(default=())
    """The findings of all stores and of the comparison of replicas, in report order."""
