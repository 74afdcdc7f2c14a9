"""A client of a cluster, for coroutines: it drives the state machines and decides nothing.

create      a new ledger, whose writer is this client
take_over   recovers a ledger: its writer is fenced, and it is closed
view        reads a ledger as it is, also while it is written
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar, Unpack
from weakref import WeakSet

from storage.cluster.client.async_reader import AsyncLedgerReader
from storage.cluster.client.async_writer import AsyncLedgerWriter
from storage.cluster.client.connections import ConnectionOptions, Connections
from storage.cluster.client.deferred_writer import DeferredLedgerWriter, SyncMode
from storage.cluster.client.driver import MachineDriver, refuse, settle
from storage.cluster.client.effects import (
    Recovered,
    RecoveryFailed,
    Send,
    WriteMetadata,
)
from storage.cluster.client.entries import entry_codec, undeclared_codec
from storage.cluster.client.placement import Candidates, ZoneRules, choose_ensemble
from storage.cluster.client.recoverer import LedgerRecoverer
from storage.cluster.client.writer import LedgerWriter
from storage.cluster.errors import (
    ClientClosed,
    ClusterError,
    LedgerExists,
    LedgerNotClosed,
    MetadataUnavailable,
    NoSuchCluster,
    UnauthorizedAccess,
)
from storage.cluster.metadata import ids, ledger, registration, underreplication, update
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, list_ledgers, read_tree
from storage.cluster.metadata.registration import BookieMode
from storage.cluster.metadata.znodes import Gone, Unchanged, Unknown
from storage.entry.model import NO_ENTRY, DigestType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence

    from storage.cluster.client.add_calls import AddsAnswered
    from storage.cluster.client.distribution import Quorums
    from storage.cluster.client.effects import (
        BookieAnswer,
        Effect,
        MetadataRead,
        MetadataWritten,
        Sending,
    )
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.client.writer import WriterLimits
    from storage.cluster.metadata.ledger import CustomField
    from storage.cluster.metadata.paths import LedgerTree
    from storage.cluster.metadata.registration import Bookies, Endpoint
    from storage.cluster.metadata.update import Versioned
    from storage.cluster.metadata.znodes import Znodes
    from storage.cluster.topics.policies import TopicOptions
    from storage.cluster.topics.topic import AsyncTopic
    from storage.cluster.wire.messages import AddEntry

_T = TypeVar("_T")

_LOG = logging.getLogger("ledgerstore.client")

_CREATE_ATTEMPTS_MAX = 10

_WITHOUT_BATCHES_S = 300.0
"""How long a bookie that has closed the connection at a batch read is asked for single entries only. It may
have an old version, which does not know batch reads and has no other way to say so."""


class AsyncCluster:
    """A client of one cluster. It belongs to the event loop on which it was opened."""

    def __init__(
        self, znodes: Znodes, paths: LedgerPaths, options: ConnectionOptions, rules: ZoneRules
    ) -> None:
        self._rules = rules
        self._znodes = znodes
        self._paths = paths
        self._root = paths.root
        self._connections = Connections(self._resolve, self._tell_candidates, options, self._tell_lost)
        self._writable: frozenset[str] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()
        self._marks: set[asyncio.Task[None]] = set()
        """The tasks that mark ledgers."""
        self._mark_timeout_s = options.limits.call_timeout_s
        self._writers: set[AsyncLedgerWriter] = set()
        self._without_batches: dict[str, float] = {}
        """By bookie: when it has answered no batch read."""
        self._topics: WeakSet[AsyncTopic] = WeakSet()
        self._recoveries: set[asyncio.Future[Versioned[ClusterLedgerMetadata]]] = set()

    def __repr__(self) -> str:
        bookies, writers = len(self._writable), len(self._writers)
        return f"<{type(self).__name__} at {self._root}: {bookies} bookies take adds, {writers} writers>"

    # ── ledgers ───────────────────────────────────────────────────────────────────────────────────────

    async def create(
        self,
        quorums: Quorums,
        password: bytes = b"",
        digest: DigestType = DigestType.CRC32C,
        limits: WriterLimits | None = None,
        sync: SyncMode = SyncMode.EACH_ADD,
        custom: Sequence[CustomField] = (),
    ) -> AsyncLedgerWriter:
        """Create a ledger and return its writer. Raise `NotEnoughBookies` before anything is written.

        `custom` are values that an application keeps in the metadata of its ledgers.
        """
        seed = random.getrandbits(63)
        ensemble = choose_ensemble(self.candidates(), quorums, seed)
        metadata = ClusterLedgerMetadata(
            quorums.ensemble,
            quorums.write,
            quorums.ack,
            (LedgerSegment(NO_ENTRY + 1, ensemble),),
            digest_type=digest,
            password=password,
            creator_token=secrets.randbits(62) + 1,
            custom=tuple(custom),
        )
        ledger_id, created = await self._create_with_new_id(metadata)
        entries = entry_codec(ledger_id, digest, password)
        kind = LedgerWriter if sync is SyncMode.EACH_ADD else DeferredLedgerWriter
        machine = kind(entries, created, self.candidates(), seed, limits)
        writer = AsyncLedgerWriter(self, machine, ledger_id)
        self._writers.add(writer)
        return writer

    async def _create_with_new_id(
        self, metadata: ClusterLedgerMetadata
    ) -> tuple[int, Versioned[ClusterLedgerMetadata]]:
        attempts = 1
        while True:
            ledger_id = await ids.new_ledger_id(self._znodes, self._root)
            try:
                return ledger_id, await update.create_ledger(self._znodes, self._paths, ledger_id, metadata)
            except LedgerExists:
                # The ledger was made with an id of its own, by an application that does not count them.
                if attempts == _CREATE_ATTEMPTS_MAX:
                    raise
                attempts += 1

    async def take_over(
        self,
        ledger_id: int,
        password: bytes = b"",
        before_write: Callable[[ClusterLedgerMetadata], Awaitable[None]] | None = None,
    ) -> AsyncLedgerReader:
        """Fence the ledger against its writer, find its end, close it there, and return a reader.

        It is BookKeeper's `openLedger`. Raise `RecoveryIncomplete` if too many bookies are silent.
        `before_write` is awaited before each change of the metadata, and ends the take-over if it raises.
        """
        found = await update.read_ledger(self._znodes, self._paths, ledger_id)
        entries = _entries_of(ledger_id, found.value, password)
        machine = LedgerRecoverer(entries, found, self.candidates(), random.getrandbits(63))
        driver = MachineDriver(self, ledger_id, machine)
        done: asyncio.Future[Versioned[ClusterLedgerMetadata]] = driver.future()

        def report(effect: Effect) -> None:
            if isinstance(effect, Recovered):
                settle(done, effect.metadata)
            elif isinstance(effect, RecoveryFailed):
                refuse(done, effect.error)

        driver.report = report
        if before_write is not None:
            driver.before_write, driver.refused = before_write, partial(refuse, done)
        driver.perform(machine.begin())
        self._recoveries.add(done)
        done.add_done_callback(self._recoveries.discard)
        return AsyncLedgerReader(self, entries, await done)

    async def view(self, ledger_id: int, password: bytes = b"") -> AsyncLedgerReader:
        """Return a reader of the ledger as it is now. Nothing is changed.

        It is BookKeeper's `openLedgerNoRecovery`.
        """
        found = await update.read_ledger(self._znodes, self._paths, ledger_id)
        return AsyncLedgerReader(self, _entries_of(ledger_id, found.value, password), found)

    async def delete(self, ledger_id: int) -> None:
        """Delete a closed ledger. Raise `LedgerNotClosed` if it may have a writer."""
        found = await update.read_ledger(self._znodes, self._paths, ledger_id)
        if not found.value.is_closed:
            raise LedgerNotClosed(ledger_id)
        await update.delete_ledger(self._znodes, self._paths, ledger_id, found.version)

    async def delete_open(self, ledger_id: int) -> None:
        """Delete a ledger whatever its state is. A writer of it fails sooner or later."""
        await update.delete_ledger(self._znodes, self._paths, ledger_id)

    def topic(self, name: str, quorums: Quorums | None = None, **options: Unpack[TopicOptions]) -> AsyncTopic:
        """Return the topic of that name: see `storage.cluster.topics`. Nothing is written before its first
        message.

        `quorums` are those of its ledgers, by default 3 bookies, 3 copies and 2 acknowledgements.
        """
        from storage.cluster.topics.cluster_ledgers import cluster_topic

        topic = cluster_topic(self, name, quorums, options)
        self._topics.add(topic)
        return topic

    async def metadata(self, ledger_id: int) -> ClusterLedgerMetadata:
        """Return the metadata of a ledger."""
        return (await update.read_ledger(self._znodes, self._paths, ledger_id)).value

    async def metadata_of_all(self, ledger_ids: Sequence[int]) -> list[ClusterLedgerMetadata | Gone]:
        """Return the metadata of many ledgers in this order. Many requests are under way at the same time."""
        paths = [self._paths.path_of(ledger_id) for ledger_id in ledger_ids]
        nodes = await self._znodes.get_all(paths)
        return [
            node if isinstance(node, Gone) else update.decode_ledger(path, node).value
            for path, node in zip(paths, nodes, strict=True)
        ]

    async def ledgers(self) -> AsyncIterator[int]:
        """Yield the ids of all ledgers of the cluster, ascending."""
        async for ledger_id in list_ledgers(self._znodes, self._paths):
            if isinstance(ledger_id, int):
                yield ledger_id

    @property
    def znodes(self) -> Znodes:
        """The session with the metadata."""
        return self._znodes

    async def bookies(self) -> Bookies:
        """Return the bookies that are registered now."""
        return await registration.read_bookies(self._znodes, self._root)

    # ── what the machines need ────────────────────────────────────────────────────────────────────────

    def candidates(self) -> Candidates:
        """Return the bookies that take adds. Those that have failed lately are taken last."""
        return Candidates(self._writable, self._connections.failed_lately(), self._rules)

    def slow_bookies(self) -> frozenset[str]:
        """Return the bookies that are asked last for an entry."""
        return self._connections.failed_lately()

    def bookies_for_batches(self, bookies: Iterable[str]) -> list[str]:
        """Return those of the bookies that may know batch reads, the slow ones last."""
        since = asyncio.get_running_loop().time() - _WITHOUT_BATCHES_S
        slow = self.slow_bookies()
        known = [bookie for bookie in bookies if self._without_batches.get(bookie, since) <= since]
        return sorted(known, key=slow.__contains__)

    def note_without_batches(self, bookies: Iterable[str]) -> None:
        """Ask these bookies for no batches for a while."""
        self._without_batches |= dict.fromkeys(bookies, asyncio.get_running_loop().time())

    def call(self, send: Send, answered: Callable[[BookieAnswer], None]) -> None:
        self._connections.call(send.bookie, send.request, answered)

    def send_adds(self, copies: Sequence[tuple[AddEntry, Sequence[Sending]]], answered: AddsAnswered) -> None:
        self._connections.add(copies, answered)

    def write_soon(self, write: Callable[[], None]) -> None:
        self._connections.write_soon(write)

    async def write_metadata(self, ledger_id: int, write: WriteMetadata) -> MetadataWritten:
        path = self._paths.path_of(ledger_id)
        try:
            return await self._znodes.set(path, ledger.encode(write.metadata), write.version)
        except MetadataUnavailable as error:
            return Unknown(error.reason)

    async def read_metadata(self, ledger_id: int) -> MetadataRead:
        """Read what is true now, and not what a server that lags behind still shows."""
        path = self._paths.path_of(ledger_id)
        try:
            await self._znodes.sync(path)
            node = await self._znodes.get(path)
            return node if isinstance(node, Gone) else update.decode_ledger(path, node)
        except ClusterError as error:
            return Unknown(str(error))

    async def follow_metadata(
        self, ledger_id: int, changed: Callable[[Versioned[ClusterLedgerMetadata]], None]
    ) -> None:
        """Call with the metadata of a ledger, now and after each change, until it is deleted."""
        path = self._paths.path_of(ledger_id)
        watch = self._znodes.watch(path)
        try:
            while not isinstance(node := await watch.next(), Gone):
                if not isinstance(node, Unchanged):
                    changed(update.decode_ledger(path, node))
        finally:
            watch.close()

    def mark(self, ledger_id: int, bookies: frozenset[str]) -> None:
        """Mark a ledger for repair, because these bookies lack entries. Best effort: a check finds it too."""
        marking = self.run(self._mark(ledger_id, bookies))
        self._marks.add(marking)
        marking.add_done_callback(self._marks.discard)

    async def _mark(self, ledger_id: int, bookies: frozenset[str]) -> None:
        try:
            await underreplication.prepare(self._znodes, self._root)
            now_ms = int(time.time() * 1000)
            await underreplication.mark_ledger(self._znodes, self._root, ledger_id, sorted(bookies), now_ms)
        except ClusterError as error:
            _LOG.warning("ledger %d is not marked as under-replicated: %s", ledger_id, error)

    def run(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a coroutine beside the others."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def forget(self, writer: AsyncLedgerWriter) -> None:
        self._writers.discard(writer)

    async def _resolve(self, bookie: str) -> Endpoint:
        info = await registration.read_service_info(self._znodes, self._root, bookie)
        if isinstance(info, Gone):
            raise MetadataUnavailable(f"bookie {bookie} is not registered")
        return info.bookie_endpoint(bookie)

    async def follow_bookies(self, is_known: asyncio.Event) -> None:
        """Keep the bookies that take adds up to date."""
        with suppress(MetadataUnavailable):
            bookies = registration.follow_bookies(self._znodes, self._root, BookieMode.WRITABLE)
            async for self._writable in bookies:
                is_known.set()
                self._tell_candidates()

    def _tell_candidates(self) -> None:
        """Let the writers know which bookies may replace others."""
        for writer in self._writers:
            writer.use(self.candidates())

    def _tell_lost(self, bookie: str) -> None:
        """Let the writers know that a bookie may have been restarted."""
        for writer in list(self._writers):
            writer.connection_lost(bookie)

    async def close(self) -> None:
        """Close all connections, and end all calls. Ledgers that are still written stay open."""
        for topic in list(self._topics):
            topic.abandon()
        for writer in list(self._writers):
            writer.abandon()
        for recovery in list(self._recoveries):
            refuse(recovery, ClientClosed())
        if self._marks:
            # Because most programs end when they have closed their ledgers.
            await asyncio.wait(self._marks, timeout=self._mark_timeout_s)
        await self._connections.close()
        # After the connections, because the end of a call may have begun a task.
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def open_cluster(
    znodes: Znodes,
    root: str,
    tree: LedgerTree | None = None,
    options: ConnectionOptions | None = None,
    rules: ZoneRules | None = None,
    make: Callable[[Znodes, LedgerPaths, ConnectionOptions, ZoneRules], AsyncCluster] = AsyncCluster,
) -> AsyncIterator[AsyncCluster]:
    """Open a client with a session that is there already. The LAYOUT node says the tree if none is given.

    `make` makes the client. A simulation gives it one whose calls reach models of bookies.
    """
    paths = LedgerPaths(root, tree or await read_tree(znodes, root))
    cluster = make(znodes, paths, options or ConnectionOptions(), rules or ZoneRules())
    is_known = asyncio.Event()
    following = cluster.run(cluster.follow_bookies(is_known))
    known = asyncio.ensure_future(is_known.wait())
    try:
        await asyncio.wait({following, known}, return_when=asyncio.FIRST_COMPLETED)
        if not is_known.is_set():
            # Raises if the session has ended, which says nothing about the cluster.
            await znodes.exists(root)
            raise NoSuchCluster(root)
        yield cluster
    finally:
        known.cancel()
        await cluster.close()


def _entries_of(ledger_id: int, metadata: ClusterLedgerMetadata, password: bytes) -> EntryCodec:
    """Return the codec of a ledger, or raise `UnauthorizedAccess` before any bookie is asked."""
    if metadata.password is not None and metadata.password != password:
        raise UnauthorizedAccess(ledger_id)
    if metadata.password is None:
        return undeclared_codec(ledger_id, password)
    return entry_codec(ledger_id, metadata.digest_type or DigestType.CRC32C, password)
