"""What the series of a topic asks for, and what it reports. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.topics.list_change import ReadList, WriteList

if TYPE_CHECKING:
    from storage.cluster.errors import ClusterError


class PendingEntry:
    """An entry that is not acknowledged yet. Its owner adds what it needs to answer."""

    __slots__ = ("payload",)

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


# ── what is to be done ──────────────────────────────────────────────────────────────────────────────────────


class ReadStates(NamedTuple):
    """Read the state of each of these ledgers."""

    ledger_ids: tuple[int, ...]


class Recover(NamedTuple):
    """Take a ledger over."""

    ledger_id: int


class CreateLedger(NamedTuple):
    """Create a ledger."""


class Append(NamedTuple):
    """Add an entry to the current ledger."""

    ledger_id: int
    payload: bytes


class CloseLedger(NamedTuple):
    """Close a ledger when its adds are answered."""

    ledger_id: int


class DeleteLedger(NamedTuple):
    """Delete a ledger that no list names."""

    ledger_id: int


# ── reports ─────────────────────────────────────────────────────────────────────────────────────────────────


class Opened(NamedTuple):
    """The topic has a current ledger: now, or again after a roll-over."""

    ledger_id: int


class Acknowledged(NamedTuple):
    """An entry is durable at this place."""

    entry: PendingEntry
    ledger_id: int
    entry_id: int


class Failed(NamedTuple):
    """An entry has failed."""

    entry: PendingEntry
    error: ClusterError


class Trimmed(NamedTuple):
    """These ledgers are no longer in the list."""

    ledger_ids: tuple[int, ...]


class Ended(NamedTuple):
    """The series takes no more entries: it was closed, or the error says why."""

    error: ClusterError | None


Work = ReadList | WriteList | ReadStates | Recover | CreateLedger | CloseLedger | DeleteLedger
Effect = Work | Append | Opened | Acknowledged | Failed | Trimmed | Ended
