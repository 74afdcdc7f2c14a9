"""What looking at stores has come to: plain values, whichever engine looked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.replicas import ReplicaReport
    from recovery.verify.facts import Owner, StoreFacts
    from recovery.verify.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much was read, and what was not."""

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
    """One question that was asked of a store. `status` is passed, failed or not run."""

    id: str
    title: str
    status: str
    why: str = ""
    findings: int = 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoreReport:
    """One store."""

    store: str
    owner: Owner
    is_live: bool
    findings: tuple[Finding, ...]
    facts: StoreFacts
    coverage: Coverage
    checks: tuple[Check, ...] = ()
    live_sizes: Mapping[int, int] | None = None
    """For each entry log the bytes of the records that the index points at; `None`: no index tells."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AuditReport:
    """All stores. Times are ISO 8601, UTC."""

    stores: tuple[StoreReport, ...]
    engine: str
    started: str
    ended: str
    argv: tuple[str, ...] = ()
    seconds: float = 0.0
    bytes_read: int = 0
    bytes_reused: int = 0
    misfits: tuple[int, ...] = ()
    """Ledgers whose password does not fit: their entries are unverified."""
    replicas: ReplicaReport | None = None
    findings: tuple[Finding, ...] = field(default=())
    """Of all stores and of their replicas, in order."""
