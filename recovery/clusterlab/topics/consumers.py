"""Consumers of a subscription: the reader and the cursor of production, as coroutines on the world's time.

Consumers do not look whether another one has the subscription: a session may expire while its process still
runs, so that the cursor alone has to refuse the former one.
"""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from recovery.clusterlab.clients import ModelProcess
from recovery.clusterlab.oracles import InvariantViolated
from recovery.clusterlab.topics.cursor_oracle import BATCH
from recovery.clusterlab.topics.oracles import TOPIC
from recovery.clusterlab.world import EventKind
from storage.cluster.errors import LedgerNotClosed, MetadataUnavailable, NoSuchLedgerExistsOnMetadataServer
from storage.cluster.metadata.znodes import Deleted, Gone, Unknown
from storage.cluster.topics.cursor_store import CursorStore, delete_subscription
from storage.cluster.topics.errors import LedgerMissing
from storage.cluster.topics.format import encode_entry
from storage.cluster.topics.managed_ledger import Position, TopicName
from storage.cluster.topics.message_id import EARLIEST, MessageId
from storage.cluster.topics.reader import AsyncTopicReader
from storage.cluster.topics.subscription import open_cursor
from storage.entry.model import Entry
from storage.errors import NoSuchEntry, StoreError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable

    from recovery.clusterlab.topics.cursor_oracle import CursorOracle
    from recovery.clusterlab.topics.ledgers import ListNode, ModelLedger, ModelLedgers
    from recovery.clusterlab.virtual_loop import VirtualLoop
    from recovery.clusterlab.world import World
    from storage.cluster.metadata.znodes import CreateAnswer, DeleteAnswer, Node, SetAnswer
    from storage.cluster.topics.ledgers_port import ClosedLedger, TopicLedgers

_NAME = TopicName.parse(TOPIC)
_SUBSCRIPTION = "s"
_REOPEN = 40.0
_PAUSE = 30.0
_ROUNDS = 3
"""How often a consumer reads up to the end of the topic, and saves, before it closes."""


class ConsumerProcess(ModelProcess):
    """A process that opens the subscription, as often as it may."""

    def __init__(
        self,
        name: str,
        world: World,
        loop: VirtualLoop,
        ledgers: ModelLedgers,
        cursor_ledgers: ModelLedgers,
        nodes: tuple[ListNode, ListNode],
        oracle: CursorOracle,
        lives: int,
    ) -> None:
        """`nodes` are that of the list, and that of the cursor."""
        super().__init__(name, world)
        self._loop = loop
        calls = _ModelCalls(self, loop)
        both = _ShownNodes(
            calls, dict(zip((_NAME.path, _NAME.cursor_path(_SUBSCRIPTION)), nodes, strict=True))
        )
        self._topic = cast("TopicLedgers", _ShownLedgers(calls, both, ledgers, _as_a_batch))
        self._cursors = cast("TopicLedgers", _ShownLedgers(calls, both, cursor_ledgers, _as_it_is))
        self._calls = calls
        self._oracle = oracle
        self._lives = lives
        self.tasks: list[asyncio.Task[None]] = []
        self.shown: dict[str, list[Position]] = {}
        """By life: the entries that its reader has shown."""

    def open(self) -> None:
        if len(self.shown) < self._lives:
            life = f"{self.name}.{len(self.shown) + 1}"
            self.shown[life] = []
            self._run(self._consume(life), self._reopen)

    def forget(self) -> None:
        """Delete the subscription, with all that it has acknowledged."""
        self._run(delete_subscription(self._cursors, _NAME, _SUBSCRIPTION), lambda: None)

    def _reopen(self) -> None:
        self.world.after(_REOPEN, self.deliver, self.open)

    def _run(self, work: Any, ended: Callable[[], None]) -> None:
        def report(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                return
            error = task.exception()
            self.world.note(EventKind.REPORT, self.name, f"ends: {error!r}")
            if isinstance(error, LedgerMissing):
                raise InvariantViolated("O1", f"{self.name} misses a ledger: {error}")
            if error is not None and not isinstance(error, StoreError):
                raise error
            ended()

        task = self._loop.create_task(work)
        task.add_done_callback(report)
        self.tasks.append(task)

    async def _consume(self, life: str) -> None:
        reader = AsyncTopicReader(self._topic, _NAME)
        store = CursorStore(self._cursors, _NAME, _SUBSCRIPTION, life.encode())
        known = self._oracle.begin_opening(life)
        extents, _ = await open_cursor(store, reader, EARLIEST)
        self._oracle.opened(life, store.cursor, known)
        reader.rewind(extents.after(store.cursor.mark_delete))
        for _ in range(_ROUNDS):
            await self._read_and_acknowledge(life, reader, store)
            if not store.is_saved:
                save = self._oracle.begin_save(life)
                await store.save()
                self._oracle.saved(life, save)
            await self._calls.wait(_PAUSE)
        await store.close()

    async def _read_and_acknowledge(self, life: str, reader: AsyncTopicReader, store: CursorStore) -> None:
        pick = self.world.choices.pick
        async with aclosing(reader.entries()) as entries:
            async for position, _, _ in entries:
                self.shown[life].append(position)
                kind = pick(6)
                for index in range(BATCH):
                    if kind in (index, 2, 3, 4):
                        self._oracle.acknowledges(life, position, index)
                        place = MessageId(*position, -1, index)
                        store.cursor.acknowledge(place, BATCH, reader.extents())


# ── what reader and cursor ask for ───────────────────────────────────────────────────────────────────────


class _ModelCalls:
    """Calls of one process to models, as coroutines. A process that was killed gets no answer."""

    def __init__(self, process: ModelProcess, loop: VirtualLoop) -> None:
        self.process = process
        self.loop = loop

    async def ask(self, begin: Callable[[ModelProcess, Callable[..., None]], None]) -> Any:
        """Return the answer of a model. Raise it if it is an error."""
        answered: asyncio.Future[Any] = self.loop.create_future()

        def answer(given: object) -> None:
            if not answered.done():
                answered.set_result(given)

        begin(self.process, answer)
        found = await answered
        if isinstance(found, StoreError):
            raise found
        return found

    async def wait(self, delay: float) -> None:
        world = self.process.world
        await self.ask(lambda process, answer: world.after(delay, process.deliver, answer, None))

    async def travel(self) -> None:
        """Wait as long as a message takes."""
        await self.wait(self.process.world.delay())


class _ShownNodes:
    """The list of the topic, and the node of the cursor."""

    def __init__(self, calls: _ModelCalls, nodes: dict[str, ListNode]) -> None:
        self._calls = calls
        self._nodes = nodes

    async def sync(self, path: str) -> None:
        """Do nothing, because reads show what is true now."""

    async def get(self, path: str) -> Node | Gone:
        answer: Node | Gone | Unknown = await self._calls.ask(self._nodes[path].read)
        if isinstance(answer, Unknown):
            raise MetadataUnavailable(answer.reason)
        return answer

    async def create(self, path: str, data: bytes) -> CreateAnswer:
        answer: CreateAnswer = await self._write(path, data, None)
        return answer

    async def set(self, path: str, data: bytes, version: int) -> SetAnswer:
        answer: SetAnswer = await self._write(path, data, version)
        return answer

    async def _write(self, path: str, data: bytes, version: int | None) -> Any:
        write = self._nodes[path].write
        return await self._calls.ask(lambda process, answer: write(process, data, version, answer))

    async def delete(self, path: str, version: int) -> DeleteAnswer:
        del version
        await self._calls.travel()
        self._nodes[path].delete()
        return Deleted()


class _ShownLedgers:
    """Model ledgers, whose entries are shown in the form that their reader expects."""

    def __init__(
        self, calls: _ModelCalls, nodes: _ShownNodes, ledgers: ModelLedgers, shown: Callable[[bytes], bytes]
    ) -> None:
        self.nodes = nodes
        self._calls = calls
        self._ledgers = ledgers
        self._shown = shown

    async def create(self, topic: str, cursor: str | None = None) -> _CursorAppender:
        del topic, cursor
        return _CursorAppender(self._calls, self._ledgers, await self._calls.ask(self._ledgers.create))

    async def take_over(self, ledger_id: int) -> ClosedLedger:
        recover = self._ledgers.recover
        end: ClosedLedger = await self._calls.ask(lambda process, answer: recover(process, ledger_id, answer))
        return end

    async def view(self, ledger_id: int) -> _ModelLedgerReader:
        await self._calls.travel()
        ledger = self._ledgers.by_id[ledger_id]
        if ledger.is_deleted:
            raise NoSuchLedgerExistsOnMetadataServer(ledger_id)
        return _ModelLedgerReader(self._calls, ledger, self._shown)

    async def delete(self, ledger_id: int) -> None:
        self._ledgers.delete(self._calls.process, ledger_id)
        await self._calls.travel()


class _CursorAppender:
    """Writes a ledger of the cursor."""

    def __init__(self, calls: _ModelCalls, ledgers: ModelLedgers, ledger_id: int) -> None:
        self.id = ledger_id
        self._calls = calls
        self._ledgers = ledgers
        self._waiting: deque[asyncio.Future[int]] = deque()

    def submit(self, payload: bytes) -> asyncio.Future[int]:
        added: asyncio.Future[int] = self._calls.loop.create_future()
        self._waiting.append(added)
        self._ledgers.append(self._calls.process, self.id, payload, self._added, self._failed)
        return added

    def _added(self, _: int, entry_id: int) -> None:
        self._waiting.popleft().set_result(entry_id)

    def _failed(self, _: int, error: StoreError) -> None:
        self._waiting.popleft().set_exception(error)

    async def close(self) -> ClosedLedger:
        end: ClosedLedger = await self._calls.ask(
            lambda process, answer: self._ledgers.close(process, self.id, answer)
        )
        return end


class _ModelLedgerReader:
    """Reads a model ledger. Like a bookie it also has entries that are not acknowledged."""

    def __init__(self, calls: _ModelCalls, ledger: ModelLedger, shown: Callable[[bytes], bytes]) -> None:
        self._calls = calls
        self._ledger = ledger
        self._shown = shown

    async def read_last_add_confirmed(self) -> int:
        await self._calls.travel()
        self._check()
        return len(self._ledger.entries) - 1

    async def read(self, entry_id: int) -> Entry:
        return (await self.read_batch(entry_id, 1))[0]

    async def read_batch(self, first: int, count_max: int) -> list[Entry]:
        await self._calls.travel()
        self._check()
        ledger = self._ledger
        payloads = ledger.payloads if ledger.end is None else ledger.entries
        found = [
            Entry(ledger.id, entry_id, -1, 0, self._shown(payload))
            for entry_id, payload in enumerate(payloads[first : first + count_max], first)
        ]
        if not found:
            raise NoSuchEntry(ledger.id, first)
        return found

    async def entry_batches(
        self, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[list[Entry], None]:
        end = self._ledger.end
        if end is None:
            raise LedgerNotClosed(self._ledger.id)
        end = end if last is None else min(last + 1, end)
        while first < end:
            batch = await self.read_batch(first, min(2, end - first))
            yield batch
            first += len(batch)

    def _check(self) -> None:
        if self._ledger.is_deleted:
            raise NoSuchLedgerExistsOnMetadataServer(self._ledger.id)


def _as_a_batch(payload: bytes) -> bytes:
    """Return the entry of a topic with this message, which consumers see as a batch."""
    return encode_entry([payload] * BATCH, producer_name="p", sequence_ids=range(BATCH), publish_time_ms=1)


def _as_it_is(payload: bytes) -> bytes:
    return payload
