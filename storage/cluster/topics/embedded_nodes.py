"""The nodes of the topics in one local store: a log in a ledger of the store, and its content in memory.

Each change is one entry. It is answered when the entry is durable, and seen by readers from then on. After a
crash the log is read again, and the last entry of a node counts; so a change is there as a whole or not at
all, because an entry of the store is.

When most of the log is out of date, the state of every node is appended once more, and the log is truncated
before that. A crash between the two leaves both, which does no harm: the later entries say the same as the
earlier ones.

A new ledger gets its id from the entry that announces it. Entries of the log never have the id of an earlier
one, not even after a truncation, so a ledger never has the id of another one that was deleted.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from storage.cluster.errors import MetadataUnavailable
from storage.cluster.metadata.znodes import (
    ANY_VERSION,
    ChildNames,
    Conflict,
    Created,
    CreateMode,
    Deleted,
    Exists,
    Gone,
    Node,
    NodeStat,
    NoParent,
    NotEmpty,
    Unchanged,
    Unknown,
    Written,
)
from storage.cluster.topics.node_format import AnnouncedLedger, NodeState, decode_change, encode_change
from storage.errors import DiskFull, EntryTooLarge, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from storage.aio.ledger import AsyncLedger
    from storage.cluster.metadata.znodes import CreateAnswer, DeleteAnswer, SetAnswer

_Answer = TypeVar("_Answer")

_REWRITE_SIZE_MIN = 1 << 20
"""A log smaller than this is never rewritten."""

_NOTHING = NodeState("", None)


class _Change(NamedTuple):
    """A change that waits for its turn: what is to be written and answered, by the nodes at its turn."""

    decide: Callable[[], tuple[NodeState | AnnouncedLedger | None, Any]]
    answer: asyncio.Future[Any]


class EmbeddedNodes:
    """The nodes of one store. For the coroutines of its loop."""

    def __init__(
        self,
        log: AsyncLedger,
        after_load: Callable[[], Coroutine[object, object, None]],
        entry_size_max: int,
    ) -> None:
        """`after_load` is called once, before any node is read or written."""
        self._log = log
        self._entry_size_max = entry_size_max
        self._after_load = after_load
        self._loading = asyncio.Lock()
        self._is_loaded = False
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[str, NodeState] = {}
        self._children: dict[str, set[str]] = {}
        self._ephemeral: set[str] = set()
        self._created: dict[str, int] = {}
        """By path: a number that no other node of this path has had since the store was opened."""
        self._creations = 0
        self._pending: dict[str, NodeState] = {}
        """The nodes as the changes leave them that are being written."""
        self._waiting: list[_Change] = []
        self._writer: asyncio.Task[None] | None = None
        self._size = self._live_size = 0
        """The bytes of the log, and of the newest state of each node."""
        self._watches: dict[str, set[asyncio.Event]] = {}

    async def _ready(self) -> None:
        """Read the log at the first use."""
        if self._is_loaded:
            return
        async with self._loading:
            if not self._is_loaded:
                await self._load()
                await self._after_load()
                self._is_loaded = True

    async def _load(self) -> None:
        if await self._log.last_entry_id() is None:
            return
        async for entry in self._log.entries():
            change = decode_change(f"entry {entry.entry_id} of ledger {self._log.id}", entry.payload)
            self._size += len(entry.payload)
            if isinstance(change, NodeState):
                self._apply(change)

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, path: str) -> Node | Gone:
        await self._ready()
        return self._node(path)

    async def get_all(self, paths: Sequence[str]) -> list[Node | Gone]:
        await self._ready()
        return [self._node(path) for path in paths]

    async def children(self, path: str) -> ChildNames | Gone:
        await self._ready()
        node = self._node(path)
        if isinstance(node, Gone):
            return node
        return ChildNames(tuple(sorted(self._children.get(path, ()))), node.stat)

    async def sync(self, path: str) -> None:
        """Do nothing, because every read sees all changes that were answered."""

    def watch(self, path: str) -> _Watch:
        changed = asyncio.Event()
        self._watches.setdefault(path, set()).add(changed)
        return _Watch(self, path, changed)

    def end_watch(self, path: str, changed: asyncio.Event) -> None:
        watching = self._watches.get(path, set())
        watching.discard(changed)
        if not watching:
            self._watches.pop(path, None)

    def content(self) -> list[tuple[str, bytes]]:
        """Return the paths and data of all nodes, in the order of the paths."""
        return [(path, node.data or b"") for path, node in sorted(self._nodes.items())]

    def _node(self, path: str) -> Node | Gone:
        found = self._nodes.get(path)
        if found is None or found.data is None:
            return Gone()
        children = len(self._children.get(path, ()))
        stat = NodeStat(
            self._created[path],
            0,
            found.created_ms,
            found.modified_ms,
            found.version,
            0,
            0,
            0,
            len(found.data),
            children,
            0,
        )
        return Node(found.data, stat)

    # ── writes ────────────────────────────────────────────────────────────────────────────────────────

    async def create(
        self, path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT
    ) -> CreateAnswer:
        """Create a node. An ephemeral one is only in memory, so that it is gone when the store is closed."""
        assert mode in (CreateMode.PERSISTENT, CreateMode.EPHEMERAL), "topics need no others"

        def decide() -> tuple[NodeState | None, CreateAnswer]:
            if self._newest(path).data is not None:
                return None, Exists()
            if self._newest(path.rpartition("/")[0]).data is None:
                return None, NoParent()
            now_ms = int(time.time() * 1000)
            if mode is CreateMode.EPHEMERAL:
                self._ephemeral.add(path)
            return self._logged(NodeState(path, data, 0, now_ms, now_ms)), Created(path)

        return await self._change(decide)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> SetAnswer:
        def decide() -> tuple[NodeState | None, SetAnswer]:
            node = self._newest(path)
            if node.data is None:
                return None, Gone()
            if version not in (ANY_VERSION, node.version):
                return None, Conflict()
            now_ms = int(time.time() * 1000)
            changed = NodeState(path, data, node.version + 1, node.created_ms, now_ms)
            return self._logged(changed), Written(changed.version)

        return await self._change(decide)

    async def delete(self, path: str, version: int = ANY_VERSION) -> DeleteAnswer:
        def decide() -> tuple[NodeState | None, DeleteAnswer]:
            node = self._newest(path)
            if node.data is None:
                return None, Gone()
            if version not in (ANY_VERSION, node.version):
                return None, Conflict()
            if self._children.get(path) or any(
                one.startswith(f"{path}/") and state.data is not None for one, state in self._pending.items()
            ):
                return None, NotEmpty()
            return self._logged(NodeState(path, None)), Deleted()

        return await self._change(decide)

    async def announce(self, topic: str, cursor: str | None) -> int:
        """Announce a ledger, and return a number that no other ledger ever gets."""
        await self._ready()
        answer: asyncio.Future[int] = self._loop.create_future()
        self._enqueue(_Change(lambda: (AnnouncedLedger(topic, cursor), 0), answer))
        return await answer

    async def close(self) -> None:
        """Wait for the changes under way."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    async def _change(self, decide: Callable[[], tuple[NodeState | None, _Answer]]) -> _Answer | Unknown:
        await self._ready()
        answer: asyncio.Future[_Answer] = self._loop.create_future()
        self._enqueue(_Change(decide, answer))
        try:
            return await answer
        except (DiskFull, EntryTooLarge) as error:
            raise MetadataUnavailable(str(error)) from error  # nothing was stored
        except StoreError as error:
            return Unknown(str(error))

    def _enqueue(self, change: _Change) -> None:
        self._waiting.append(change)
        if self._writer is None:
            self._writer = self._loop.create_task(self._write())
            self._writer.add_done_callback(self._written)

    def _written(self, _: asyncio.Task[None]) -> None:
        self._writer = None
        if self._waiting:
            self._writer = self._loop.create_task(self._write())
            self._writer.add_done_callback(self._written)

    async def _write(self) -> None:
        """Write what waits, one group of changes after the other."""
        while self._waiting:
            group, self._waiting = self._waiting, []
            await self._write_group(group)
            if self._size > max(_REWRITE_SIZE_MIN, 2 * self._live_size):
                await self._rewrite()

    async def _write_group(self, group: Sequence[_Change]) -> None:
        decided = self._decided(group)
        if not decided:
            return
        try:
            ids = await self._log.append_many([entry for _, _, entry, _ in decided])
        except StoreError as error:
            for one, _, _, _ in decided:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        finally:
            self._pending.clear()
        for (one, change, entry, answer), entry_id in zip(decided, ids, strict=True):
            self._size += len(entry)
            if isinstance(change, NodeState):
                self._apply(change)
                _settle(one.answer, answer)
            else:
                _settle(one.answer, entry_id)

    def _decided(
        self, group: Sequence[_Change]
    ) -> list[tuple[_Change, NodeState | AnnouncedLedger, bytes, object]]:
        """Return the changes that have to be written, with their entries and answers. Answer the others."""
        decided: list[tuple[_Change, NodeState | AnnouncedLedger, bytes, object]] = []
        for one in group:
            change, answer = one.decide()
            if change is None:
                _settle(one.answer, answer)
                continue
            entry = encode_change(change)
            if len(entry) > self._entry_size_max:
                # The entry is not put into the commit, because it would fail all others.
                if not one.answer.done():
                    one.answer.set_exception(EntryTooLarge(len(entry), self._entry_size_max))
                continue
            if isinstance(change, NodeState):
                self._pending[change.path] = change
            decided.append((one, change, entry, answer))
        return decided

    def _logged(self, change: NodeState) -> NodeState | None:
        """Return a change that has to be written. That of an ephemeral node is made at once."""
        if change.path not in self._ephemeral:
            return change
        self._apply(change)
        return None

    async def _rewrite(self) -> None:
        """Append the state of every node, and only then give up what was before."""
        kept = [one for path, one in self._nodes.items() if path not in self._ephemeral]
        entries = [encode_change(one) for one in kept]
        if not entries:
            return
        try:
            ids = await self._log.append_many(entries)
            await self._log.truncate(ids.start)
        except StoreError:
            self._size = 0  # tried again when the log has grown as much once more
            return
        self._size = self._live_size = sum(map(len, entries))

    def _newest(self, path: str) -> NodeState:
        """Return a node as the changes before leave it."""
        if path in ("", "/"):
            return NodeState("/", b"")
        return self._pending.get(path) or self._nodes.get(path, _NOTHING)

    def _apply(self, change: NodeState) -> None:
        parent, _, name = change.path.rpartition("/")
        before = self._nodes.pop(change.path, None)
        self._live_size -= 0 if before is None else _size_of(before)
        if change.data is None:
            self._ephemeral.discard(change.path)
            self._created.pop(change.path, None)
            siblings = self._children.get(parent)
            if siblings is not None:
                siblings.discard(name)
                if not siblings:
                    del self._children[parent]
        else:
            if before is None:
                self._creations += 1
                self._created[change.path] = self._creations
            self._nodes[change.path] = change
            self._live_size += _size_of(change)
            self._children.setdefault(parent, set()).add(name)
        for path in (change.path, parent):
            for event in self._watches.get(path, ()):
                event.set()


class _Watch:
    """Follows one node."""

    def __init__(self, nodes: EmbeddedNodes, path: str, changed: asyncio.Event) -> None:
        self._nodes = nodes
        self._path = path
        self._changed = changed
        self._last: Node | Gone | None = None

    async def next(self, timeout_s: float | None = None) -> Node | Gone | Unchanged:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._changed.clear()
                    node = await self._nodes.get(self._path)
                    if node != self._last:
                        self._last = node
                        return node
                    await self._changed.wait()
        except TimeoutError:
            return Unchanged()

    def close(self) -> None:
        self._nodes.end_watch(self._path, self._changed)


def _size_of(node: NodeState) -> int:
    return len(node.path) + len(node.data or b"") + 32


def _settle(future: asyncio.Future[Any], answer: object) -> None:
    if not future.done():
        future.set_result(answer)
