"""The port of topics to what keeps them: ledgers, and nodes with versions.

`cluster_ledgers.py` keeps them on the bookies and in the ZooKeeper of a cluster, `embedded_ledgers.py` in one
local store. Above this port a topic does not know where it is.

Nodes are those of ZooKeeper, in its words (`metadata/znodes.py`): a write answers `Unknown` if it may have
happened or not, and the caller decides by the content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Sequence

    from storage.cluster.metadata.znodes import (
        ChildNames,
        CreateAnswer,
        CreateMode,
        DeleteAnswer,
        Gone,
        Node,
        NodeWatch,
        SetAnswer,
    )
    from storage.entry.model import Entry


@dataclass(frozen=True, slots=True)
class ClosedLedger:
    """A ledger that takes no more entries, and where it ends."""

    entries: int
    size: int
    """The length of all payloads."""


@dataclass(frozen=True, slots=True)
class OpenLedger:
    """A ledger that may still have a writer, so that its end is not known."""


@dataclass(frozen=True, slots=True)
class MissingLedger:
    """There is no ledger of this id."""


LedgerState = ClosedLedger | OpenLedger | MissingLedger


class LedgerAppender(Protocol):
    """The writer of one ledger, which it has created."""

    @property
    def id(self) -> int: ...

    def submit(self, payload: bytes) -> asyncio.Future[int]:
        """Add an entry, and return a future of its id, which is done when the entry is acknowledged.

        Ids are given in the order of the calls, from 0 on without a gap. The caller bounds what is in flight.
        Raise if the ledger takes no more entries. No error says whether the entry is in the ledger: `close`
        does.
        """
        ...

    async def close(self) -> ClosedLedger:
        """Wait for the adds under way, and close the ledger after the last acknowledged entry.

        Raise `LedgerFenced` if another client has taken the ledger over, and another error if it is not known
        where the ledger ends.
        """
        ...


class LedgerReader(Protocol):
    """Reads one ledger. `AsyncLedgerReader` is one."""

    async def read_last_add_confirmed(self) -> int: ...

    async def read(self, entry_id: int) -> Entry: ...

    async def read_batch(self, first: int, count_max: int = ..., size_max: int = ...) -> list[Entry]: ...

    def entry_batches(self, first: int = 0, last: int | None = None) -> AsyncGenerator[list[Entry], None]:
        """Yield the entries of a closed ledger, from one id to another, some at once; by default all."""
        ...

    def follow(self, first: int = 0) -> AsyncGenerator[Entry, None]:
        """Yield the entries from one on, also while they are written. End when the ledger is closed."""
        ...


class TopicNodes(Protocol):
    """The part of `Znodes` that topics use."""

    async def create(self, path: str, data: bytes = b"", mode: CreateMode = ...) -> CreateAnswer: ...

    async def set(self, path: str, data: bytes, version: int = ...) -> SetAnswer: ...

    async def delete(self, path: str, version: int = ...) -> DeleteAnswer: ...

    async def get(self, path: str) -> Node | Gone: ...

    async def get_all(self, paths: Sequence[str]) -> Sequence[Node | Gone]: ...

    async def children(self, path: str) -> ChildNames | Gone: ...

    async def sync(self, path: str) -> None: ...

    def watch(self, path: str) -> NodeWatch[Node | Gone]: ...


class TopicLedgers(Protocol):
    """The ledgers and nodes of the topics of one cluster or store."""

    @property
    def nodes(self) -> TopicNodes: ...

    @property
    def entry_size_max(self) -> int:
        """The size of the largest entry that a ledger takes, without its head."""
        ...

    async def create(self, topic: str, cursor: str | None = None) -> LedgerAppender:
        """Create a ledger for the messages of a topic, or for one of its cursors."""
        ...

    async def take_over(self, ledger_id: int) -> ClosedLedger:
        """Fence the ledger against its writer, find its end and close it there.

        Raise `NoSuchLedgerExistsOnMetadataServer` if there is none.
        """
        ...

    async def view(self, ledger_id: int) -> LedgerReader:
        """Return a reader of the ledger as it is now. Nothing is changed."""
        ...

    async def states(self, ledger_ids: Sequence[int]) -> list[LedgerState]:
        """Return the state of each ledger, in this order. Many are looked up at the same time."""
        ...

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger whatever its state is. Nothing happens if there is none."""
        ...

    async def ledgers_of(self, topic: str) -> dict[int, str | None]:
        """Return all ledgers that were created for the topic: `None`, or the cursor that each is for.

        Takes long in a cluster with many ledgers.
        """
        ...
