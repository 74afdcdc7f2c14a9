"""Processor time of the ledger client for each add and each read, without sockets.

    python bench/studies/client_calls.py [ROUNDS]

Everything of the client takes part but the sockets: state machines, drivers, the bytes of requests and
answers, and the event loop. The bookies are transports that answer in the next pass of the loop. Their
processor time is not counted. Figures are medians of rounds, in microseconds for each entry of 1 KB, which
three bookies get.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any, cast

from storage.cluster.client.async_reader import AsyncLedgerReader
from storage.cluster.client.async_writer import AsyncLedgerWriter
from storage.cluster.client.cluster import AsyncCluster
from storage.cluster.client.connections import ConnectionOptions
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.entries import entry_codec
from storage.cluster.client.placement import Candidates, ZoneRules
from storage.cluster.client.writer import LedgerWriter
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.registration import Endpoint
from storage.cluster.metadata.update import Versioned
from storage.cluster.wire import frames, v2, v3
from storage.cluster.wire.messages import BatchRead, FoundEntries, FoundEntry, Incoming, ReadEntry
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from storage.cluster.metadata.znodes import Znodes

ROUNDS = 7
COUNT = 10_000
IN_FLIGHT = (1, 64, 512)
_PAYLOAD = bytes(1024)
_BOOKIES = ("b1", "b2", "b3", "b4", "b5")
_LEDGER = 7
_ENTRIES = entry_codec(_LEDGER, DigestType.CRC32C, b"secret")


class _SocketOfBookie:
    def setsockopt(self, *_: object) -> None: ...


class AnsweringBookie(asyncio.Transport):
    """A connection to a bookie that stores nothing, and answers everything."""

    not_counted_s = 0.0
    """Processor time of all bookies."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: asyncio.Protocol) -> None:
        super().__init__({"socket": _SocketOfBookie()})
        self._loop = loop
        self._client = client
        self._received = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._received:
            self._loop.call_soon(self._answer)
        self._received += data

    def _answer(self) -> None:
        began = process_time()
        data, self._received = self._received, b""
        answers = b"".join(_answers(data))
        AnsweringBookie.not_counted_s += process_time() - began
        self._client.data_received(answers)

    def abort(self) -> None: ...


def _answers(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        found = v3.decode_adds(data, at, frames.FRAME_SIZE_MAX)
        if found is not None:
            run, at = found
            yield b"".join(run.successes)
            continue
        split = frames.split(data, at=at, count_max=1)
        at = split.consumed
        (body,) = split.bodies
        is_v3 = body.startswith(frames.V3_FIRST)
        incoming = v3.decode_request(body) if is_v3 else v2.decode_request(body)
        assert isinstance(incoming, Incoming)
        match incoming.request:
            case ReadEntry(_, entry_id):
                yield v3.encode_answer(incoming, FoundEntry(_entry(entry_id), entry_id, entry_id))
            case BatchRead(_, first, _, count):
                entries = FoundEntries(tuple(map(_entry, range(first, first + count))))
                yield v2.encode_answer(incoming, entries) or b""


def _entry(entry_id: int) -> bytes:
    return _ENTRIES.encode(entry_id, entry_id - 1, (entry_id + 1) * len(_PAYLOAD), _PAYLOAD)


class PlayedLoop(asyncio.SelectorEventLoop):
    """An event loop whose connections lead to played bookies."""

    async def create_connection(self, factory: Callable[[], Any], *_: object, **__: object) -> Any:  # type: ignore[override]
        protocol = factory()
        transport = AnsweringBookie(self, protocol)
        protocol.connection_made(transport)
        return transport, protocol


class ClusterWithoutMetadata(AsyncCluster):
    """A client without metadata."""

    async def _resolve(self, bookie: str) -> Endpoint:
        return Endpoint("bookie", bookie, 0, "bookie-rpc")


def _cluster() -> ClusterWithoutMetadata:
    paths = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
    return ClusterWithoutMetadata(cast("Znodes", None), paths, ConnectionOptions(), ZoneRules())


def _metadata(quorums: Quorums) -> Versioned[ClusterLedgerMetadata]:
    segment = LedgerSegment(0, _BOOKIES[: quorums.ensemble])
    return Versioned(
        ClusterLedgerMetadata(quorums.ensemble, quorums.write, quorums.ack, (segment,), password=b"secret"), 0
    )


async def _counted(work: Awaitable[None]) -> float:
    """Return the microseconds of each entry that this takes, without those of the bookies."""
    began, not_counted = process_time(), AnsweringBookie.not_counted_s
    await work
    return (process_time() - began - (AnsweringBookie.not_counted_s - not_counted)) / COUNT * 1e6


async def _add(writer: AsyncLedgerWriter, in_flight: int) -> None:
    under_way: deque[asyncio.Future[int]] = deque()
    for _ in range(COUNT):
        if len(under_way) == in_flight:
            await under_way.popleft()
        under_way.append(await writer.submit(_PAYLOAD))
    for one in under_way:
        await one


async def _add_pieces(writer: AsyncLedgerWriter) -> None:
    for _ in range(0, COUNT, 100):
        await writer.append_many([_PAYLOAD] * 100)


async def _read(reader: AsyncLedgerReader) -> None:
    async for _ in reader.entries(0, COUNT - 1):
        pass


async def one_round() -> dict[str, float]:
    """Return the microseconds of each row."""
    found = {}
    cluster = _cluster()
    for quorums in (Quorums(3, 3, 2), Quorums(5, 3, 2)):
        metadata = _metadata(quorums)
        for in_flight in IN_FLIGHT:
            machine = LedgerWriter(_ENTRIES, metadata, Candidates(frozenset(_BOOKIES)), 1)
            work = _add(AsyncLedgerWriter(cluster, machine, _LEDGER), in_flight)
            found[f"add, E={quorums.ensemble}, {in_flight} in flight"] = await _counted(work)
    machine = LedgerWriter(_ENTRIES, _metadata(Quorums(3, 3, 2)), Candidates(frozenset(_BOOKIES)), 1)
    found["append_many of 100, E=3"] = await _counted(
        _add_pieces(AsyncLedgerWriter(cluster, machine, _LEDGER))
    )
    for name, quorums in (("in batches, E=3", Quorums(3, 3, 2)), ("one by one, E=5", Quorums(5, 3, 2))):
        closed = Versioned(_metadata(quorums).value.closed(COUNT - 1, COUNT * len(_PAYLOAD)), 1)
        found[f"read {name}"] = await _counted(_read(AsyncLedgerReader(cluster, _ENTRIES, closed)))
    await cluster.close()
    return found


def main() -> None:
    rounds = []
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS):
        with asyncio.Runner(loop_factory=PlayedLoop) as runner:
            rounds.append(runner.run(one_round()))
    for name in rounds[0]:
        figures = sorted(one[name] for one in rounds)
        print(f"{name:28}{median(figures):7.1f} µs   ({figures[0]:.1f} to {figures[-1]:.1f})")


if __name__ == "__main__":
    main()
