"""The client for threads: the same client on an event loop in a thread of its own.

Any thread may use it, and several at once. A call that a signal interrupts goes on in the other thread.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar, Unpack

from storage.cluster.client.async_reader import BATCH_COUNT, BATCH_SIZE
from storage.cluster.client.connect import connect_async
from storage.cluster.client.deferred_writer import SyncMode
from storage.cluster.client.loop_thread import LoopThread, pass_on, shown_as
from storage.cluster.errors import ClusterError
from storage.cluster.wire.messages import Protocol
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from storage.cluster.client.async_reader import AsyncLedgerReader
    from storage.cluster.client.async_writer import AsyncLedgerWriter
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.connections import CallLimits
    from storage.cluster.client.distribution import Quorums
    from storage.cluster.client.placement import ZoneRules
    from storage.cluster.client.writer import WriterLimits
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.registration import Bookies
    from storage.cluster.tls import ClientTls
    from storage.cluster.topics.blocking import Topic
    from storage.cluster.topics.policies import TopicOptions
    from storage.cluster.topics.topic import AsyncTopic
    from storage.entry.model import Entry

_T = TypeVar("_T")

_PIECE = 256
"""Entries that are read in one call of the other thread."""


@contextmanager
def connect(
    uri: str,
    limits: CallLimits | None = None,
    protocol: Protocol = Protocol.V3,
    tls: ClientTls | None = None,
    zones: ZoneRules | None = None,
    metadata_tls: ClientTls | None = None,
) -> Iterator[Cluster]:
    """Open a client of the cluster at an address such as zk://localhost:2181/ledgers, and close it.

    `protocol` is the version that bookies are asked in. With `tls` the connections to bookies have TLS,
    with `metadata_tls` the one to ZooKeeper, at its port for TLS. `zones` say where bookies are.
    """
    with _loop_in_a_thread() as thread:
        opened = AsyncExitStack()
        connected = connect_async(uri, limits, protocol, tls, zones, metadata_tls)
        try:
            yield Cluster(thread, thread.run(opened.enter_async_context(connected)))
        finally:
            thread.run(opened.aclose())


@contextmanager
def _loop_in_a_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    try:
        yield thread
    finally:
        thread.stop()


class Cluster:
    """A client of one cluster. The methods are those of `AsyncCluster`."""

    def __init__(self, thread: LoopThread, cluster: AsyncCluster) -> None:
        self._thread = thread
        self._cluster = cluster

    def __repr__(self) -> str:
        return shown_as(self, self._cluster)

    def create(
        self,
        quorums: Quorums,
        password: bytes = b"",
        digest: DigestType = DigestType.CRC32C,
        limits: WriterLimits | None = None,
        sync: SyncMode = SyncMode.EACH_ADD,
    ) -> ClusterLedgerWriter:
        """Create a ledger and return its writer. Raise `NotEnoughBookies` before anything is written."""
        writer = self._thread.run(self._cluster.create(quorums, password, digest, limits, sync))
        return ClusterLedgerWriter(self._thread, writer)

    def take_over(self, ledger_id: int, password: bytes = b"") -> ClusterLedgerReader:
        """Fence the ledger against its writer, find its end, close it there, and return a reader."""
        reader = self._thread.run(self._cluster.take_over(ledger_id, password))
        return ClusterLedgerReader(self._thread, reader)

    def view(self, ledger_id: int, password: bytes = b"") -> ClusterLedgerReader:
        """Return a reader of the ledger as it is now. Nothing is changed."""
        reader = self._thread.run(self._cluster.view(ledger_id, password))
        return ClusterLedgerReader(self._thread, reader)

    def delete(self, ledger_id: int) -> None:
        """Delete a closed ledger. Raise `LedgerNotClosed` if it may have a writer."""
        self._thread.run(self._cluster.delete(ledger_id))

    def delete_open(self, ledger_id: int) -> None:
        """Delete a ledger whatever its state is. A writer of it fails sooner or later."""
        self._thread.run(self._cluster.delete_open(ledger_id))

    def topic(self, name: str, quorums: Quorums | None = None, **options: Unpack[TopicOptions]) -> Topic:
        """Return the topic of that name: see `storage.cluster.topics`. Nothing is written before its first
        message.
        """
        from storage.cluster.topics.blocking import Topic

        return Topic(self._thread, self._thread.run(self._topic(name, quorums, options)))

    async def _topic(self, name: str, quorums: Quorums | None, options: TopicOptions) -> AsyncTopic:
        return self._cluster.topic(name, quorums, **options)

    def metadata(self, ledger_id: int) -> ClusterLedgerMetadata:
        """Return the metadata of a ledger."""
        return self._thread.run(self._cluster.metadata(ledger_id))

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers of the cluster, ascending."""
        return self._thread.run(_all_of(self._cluster.ledgers()))

    def bookies(self) -> Bookies:
        """Return the bookies that are registered now."""
        return self._thread.run(self._cluster.bookies())


class ClusterLedgerWriter:
    """Writes one ledger that this client has created. Leaving its block closes the ledger."""

    def __init__(self, thread: LoopThread, writer: AsyncLedgerWriter) -> None:
        self.id = writer.id
        self._thread = thread
        self._writer = writer

    def __repr__(self) -> str:
        return shown_as(self, self._writer)

    @property
    def last_add_confirmed(self) -> int:
        """The id of the last acknowledged entry; -1 without any."""
        return self._writer.last_add_confirmed

    @property
    def length(self) -> int:
        """The length of all acknowledged payloads."""
        return self._writer.length

    @property
    def metadata(self) -> ClusterLedgerMetadata:
        """The newest metadata that the writer has written or read."""
        return self._writer.metadata

    def append(self, payload: bytes) -> int:
        """Add an entry, and return its id when Qa bookies have it durably."""
        return self._thread.run(self._writer.append(payload))

    def append_many(self, payloads: Sequence[bytes]) -> list[int]:
        """Add entries, and return their ids when all of them are acknowledged."""
        return self._thread.run(self._writer.append_many(payloads))

    def submit(self, payload: bytes) -> Future[int]:
        """Add an entry, and return a future of its id. Wait only while too much is in flight."""
        result: Future[int] = Future()
        self._thread.run(self._submit(payload, result))
        return result

    async def _submit(self, payload: bytes, result: Future[int]) -> None:
        added = await self._writer.submit(payload)
        added.add_done_callback(partial(pass_on, result))

    def force(self) -> int:
        """Make durable what is acknowledged now, and return the last add confirmed."""
        return self._thread.run(self._writer.force())

    def close(self) -> ClusterLedgerMetadata:
        """Wait for the adds under way, then close the ledger after the last acknowledged entry."""
        return self._thread.run(self._writer.close())

    def __enter__(self) -> ClusterLedgerWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            # The ledger is closed all the same. The error that the block has raised is more useful than one
            # from here.
            with suppress(ClusterError):
                self.close()


class ClusterLedgerReader:
    """Reads one ledger."""

    def __init__(self, thread: LoopThread, reader: AsyncLedgerReader) -> None:
        self.id = reader.id
        self._thread = thread
        self._reader = reader

    def __repr__(self) -> str:
        return shown_as(self, self._reader)

    @property
    def metadata(self) -> ClusterLedgerMetadata:
        """The metadata that the reader has read."""
        return self._reader.metadata

    @property
    def last_entry(self) -> int:
        """The id of the last entry of a closed ledger; -1 without any. Raise if the ledger is open."""
        return self._reader.last_entry

    def read_last_add_confirmed(self) -> int:
        """Return the last add confirmed that the bookies know now; of a closed ledger its last entry."""
        return self._thread.run(self._reader.read_last_add_confirmed())

    def read(self, entry_id: int) -> Entry:
        """Return an entry, its digest verified. In an open ledger it need not be acknowledged."""
        return self._thread.run(self._reader.read(entry_id))

    def read_batch(self, first: int, count_max: int = BATCH_COUNT, size_max: int = BATCH_SIZE) -> list[Entry]:
        """Return entries from one on: at least one, and at most so many of about this size together."""
        return self._thread.run(self._reader.read_batch(first, count_max, size_max))

    def entries(self, first: int = 0, last: int | None = None) -> Iterator[Entry]:
        """Yield the entries of a closed ledger, from one id to another; by default all."""
        end = self.last_entry if last is None else min(last, self.last_entry)
        for start in range(first, end + 1, _PIECE):
            piece = self._reader.entries(start, min(end, start + _PIECE - 1))
            yield from self._thread.run(_all_of(piece))

    def payloads(self, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        """Yield the payloads of a closed ledger, from one id to another; by default all."""
        for entry in self.entries(first, last):
            yield entry.payload

    def follow(self, first: int = 0) -> Iterator[Entry]:
        """Yield the entries from one on, also while they are written. End when the ledger is closed."""
        followed = self._reader.follow(first)
        try:
            while (entry := self._thread.run(_next_of(followed))) is not None:
                yield entry
        finally:
            self._thread.run(followed.aclose())


async def _all_of(found: AsyncIterator[_T]) -> list[_T]:
    return [one async for one in found]


async def _next_of(entries: AsyncIterator[Entry]) -> Entry | None:
    return await anext(entries, None)
