"""The log of a server: its changes, durable in a store of ours, and the snapshots that keep it short.

The ledgers of generation g have the ids 2g (a snapshot) and 2g + 1 (the changes after it). Generation 0 has
no snapshot. The order of a snapshot, and why no crash between two steps loses a change:

    1. The log goes on in the ledger of the next generation. Changes up to here are in older ledgers.
    2. The snapshot is written in pieces while changes go on, and its last entry makes it whole. A crash
       before that leaves a snapshot without an end: the next opening deletes it and reads the older
       generation, and then the changes of both.
    3. Only then are the ledgers of older generations deleted, in any order, because no opening reads them.

A change that is in the snapshot and also in the log after it is skipped at the opening, by its zxid.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from storage.cluster.zookeeper import log_format
from storage.cluster.zookeeper.jute import MalformedRecord
from storage.cluster.zookeeper.log_format import SnapshotEnd
from storage.cluster.zookeeper.tree import ZnodeTree, new_tree
from storage.errors import NoSuchEntry, NoSuchLedger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from storage.aio.store import AsyncStore
    from storage.cluster.zookeeper.tree import DurableSession, Znode
    from storage.entry.model import Entry

_PIECE_SIZE = 32 << 10
_PIECE_NODES = 256
"""A piece of a snapshot ends with this size or number: the loop serves clients between two pieces."""


class DamagedLog(Exception):
    """The ledgers of the log do not follow on each other, or an entry is no change."""


class LogLedger(Protocol):
    """The part of a ledger that reading a log needs. Ledgers of stores and of views have it."""

    @property
    def last_entry_id(self) -> int | None: ...

    def read(self, entry_id: int) -> Entry: ...

    def payloads(self, first: int = 0, last: int | None = None) -> Iterator[bytes]: ...


class LogLedgers(Protocol):
    """The part of a store that reading a log needs. A view of a store has it, too."""

    def ledgers(self) -> list[int]: ...

    def ledger(self, ledger_id: int) -> LogLedger: ...


@dataclass(frozen=True, slots=True)
class LogLimits:
    """After how many changes or bytes of changes the next snapshot is due."""

    changes: int = 10_000
    size: int = 8 << 20


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """The content of a log, read from its ledgers."""

    tree: ZnodeTree
    generation: int
    """The newest that has a ledger."""
    whole: int
    """The newest with a whole snapshot; 0 if there is none."""
    changes: int
    """Those that came after the snapshot."""
    size: int
    """The bytes of those."""


def snapshot_ledger(generation: int) -> int:
    return 2 * generation


def change_ledger(generation: int) -> int:
    return 2 * generation + 1


def load(store: LogLedgers) -> LoadedLog:
    """Read the newest whole snapshot and the changes after it. Changes nothing."""
    ledgers = store.ledgers()
    newest = max(ledgers, default=0) // 2
    tree, whole = new_tree(), 0
    for generation in sorted((one // 2 for one in ledgers if one % 2 == 0), reverse=True):
        found = _load_snapshot(store, generation)
        if found is not None:
            tree, whole = found, generation
            break
    counted = size = 0
    for generation in range(whole, newest + 1):
        for entry in _payloads(store, change_ledger(generation)):
            counted, size = counted + _replay(tree, entry), size + len(entry)
    if not whole and newest and not counted:
        raise DamagedLog("there is neither a whole snapshot nor the changes from the beginning")
    return LoadedLog(tree, newest, whole, counted, size)


def _payloads(store: LogLedgers, ledger_id: int) -> Iterator[bytes]:
    ledger = store.ledger(ledger_id)
    if ledger.last_entry_id is not None:
        yield from ledger.payloads()


def _replay(tree: ZnodeTree, entry: bytes) -> int:
    """Apply a change unless the tree has it; return 1 if it was applied."""
    try:
        change = log_format.decode_change(entry)
    except MalformedRecord as error:
        raise DamagedLog(f"after zxid {tree.zxid}: {error}") from error
    if change.zxid <= tree.zxid:
        return 0
    if change.zxid != tree.zxid + 1:
        raise DamagedLog(f"after zxid {tree.zxid} comes {change.zxid}")
    if not tree.apply(*change).is_applied:
        raise DamagedLog(f"the change with zxid {change.zxid} cannot be applied")
    return 1


def _load_snapshot(store: LogLedgers, generation: int) -> ZnodeTree | None:
    """Return the tree of the snapshot, or `None` if it was not written to its end."""
    ledger = store.ledger(snapshot_ledger(generation))
    last = ledger.last_entry_id
    if last is None:
        return None
    try:
        final = ledger.read(last).payload
        if final[:1] != log_format.END:
            return None
        end = log_format.decode_end(final)
        tree = ZnodeTree()
        for entry in islice(ledger.payloads(), last):
            if entry[:1] == log_format.NODES:
                for path, node in log_format.decode_nodes(entry):
                    tree.restore_node(path, node)
            else:
                tree.sessions.update(log_format.decode_sessions(entry))
    except (MalformedRecord, NoSuchEntry, NoSuchLedger) as error:
        raise DamagedLog(f"snapshot {generation}: {error}") from error
    if (len(tree.nodes), len(tree.sessions)) != (end.nodes, end.sessions):
        raise DamagedLog(f"snapshot {generation} has {len(tree.nodes)} nodes, but its end says {end.nodes}")
    tree.zxid = end.zxid
    return tree


class DurableLog:
    """Appends changes, and writes a snapshot when one is due. For the coroutines of one loop."""

    def __init__(self, store: AsyncStore, loaded: LoadedLog, limits: LogLimits) -> None:
        self._store = store
        self._tree = loaded.tree
        self._limits = limits
        self._generation = loaded.generation
        self._whole = loaded.whole
        self._ledger = store.ledger(change_ledger(self._generation))
        self._changes, self._size = loaded.changes, loaded.size
        self._snapshot: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, store: AsyncStore, limits: LogLimits) -> DurableLog:
        """Read the log of the store, and delete what a crash has left of an unfinished snapshot."""
        # On the loop, which serves no client before the tree is known.
        log = cls(store, load(store.blocking), limits)
        await log._delete_leftovers()
        return log

    @property
    def tree(self) -> ZnodeTree:
        """The tree as the log has it when it is opened; later as the server has changed it."""
        return self._tree

    @property
    def generation(self) -> int:
        """How many snapshots were begun."""
        return self._generation

    async def append(self, changes: Sequence[bytes]) -> None:
        """Return when the changes are durable. One call at a time, so that they keep their order."""
        self._begin_snapshot_if_due()
        await self._ledger.append_many(changes)
        self._changes += len(changes)
        self._size += sum(map(len, changes))

    async def close(self) -> None:
        """Wait for a snapshot under way, also if it fails: nothing is lost without it."""
        if self._snapshot is not None:
            await asyncio.wait([self._snapshot])

    # ── snapshots ─────────────────────────────────────────────────────────────────────────────────────

    def _begin_snapshot_if_due(self) -> None:
        if self._snapshot is not None:
            if not self._snapshot.done():
                return
            self._snapshot.result()  # its failure is one of the store, and ends the server
        if self._changes < self._limits.changes and self._size < self._limits.size:
            return
        # A change that was applied and not yet appended goes to both the snapshot and the new ledger.
        self._generation += 1
        self._ledger = self._store.ledger(change_ledger(self._generation))
        self._changes = self._size = 0
        snapshot = _Snapshot(self._tree.zxid, dict(self._tree.nodes), dict(self._tree.sessions))
        self._snapshot = asyncio.create_task(self._write(self._generation, snapshot))

    async def _write(self, generation: int, snapshot: _Snapshot) -> None:
        ledger = self._store.ledger(snapshot_ledger(generation))
        for piece in snapshot.pieces():
            await ledger.append(piece)
        self._whole = generation
        await self._delete_leftovers()

    async def _delete_leftovers(self) -> None:
        """Delete the generations before the whole snapshot, and snapshots that were not finished."""
        for ledger_id in sorted(await self._store.ledgers()):
            generation, is_changes = divmod(ledger_id, 2)
            if generation < self._whole or (not is_changes and generation > self._whole):
                await self._store.ledger(ledger_id).delete()


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The tree as it was at a zxid. Its nodes are immutable, so that changes go on meanwhile."""

    zxid: int
    nodes: Mapping[str, Znode]
    sessions: Mapping[int, DurableSession]

    def pieces(self) -> Iterator[bytes]:
        """Yield the entries, the end last."""
        group: list[tuple[str, Znode]] = []
        size = 0
        for path, node in self.nodes.items():
            group.append((path, node))
            size += len(path) + len(node.data or b"")
            if size >= _PIECE_SIZE or len(group) >= _PIECE_NODES:
                yield log_format.encode_nodes(group)
                group, size = [], 0
        yield log_format.encode_nodes(group)
        sessions = iter(self.sessions.items())
        while some := list(islice(sessions, _PIECE_NODES)):
            yield log_format.encode_sessions(some)
        yield log_format.encode_end(SnapshotEnd(self.zxid, len(self.nodes), len(self.sessions)))
