"""Processor time of a bookie for each add and each read, without sockets.

    python bench/studies/bookie_calls.py [ROUNDS]

Everything of the bookie takes part but the sockets: bytes of requests and answers, connection, adds and
reads, store. The client is a transport that takes all answers, and sends the next requests when it has those
to the ones before. The store is on a file system in memory, so that no sync takes time. Checkpoints are left
to their thread, and their processor time counts. Figures are medians of rounds, in microseconds for each
entry of 1 KB; the two versions of the protocol take turns.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import defaultdict
from statistics import median
from time import process_time
from typing import TYPE_CHECKING

from recovery import open_store
from storage.aio.opening import AsyncOpening
from storage.cluster.bookie.served_connection import BookieConnection
from storage.cluster.bookie.server import BookieServer
from storage.cluster.wire import v2, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, AddOptions, ReadEntry
from storage.entry import format as entry_format
from storage.entry.digest import Digester, master_key
from storage.entry.model import DigestType, Entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from storage.aio.store import AsyncStore
    from storage.entry.credentials import Purpose

ROUNDS = 7
ADDS = {1: 4_000, 8: 16_000, 64: 32_000, 512: 32_000}
"""By requests that arrive together: how many adds a row measures."""
READ_AT_ONCE = (8, 64)
_PAYLOAD = b"x" * 1024
_KEY = master_key(b"secret")
_DIGESTER = Digester(DigestType.CRC32C)
_ADD_ANSWER_MIN = 20


class _SocketOfClient:
    def setsockopt(self, *_: object) -> None: ...


class TakingClient(asyncio.Transport):
    """A connection whose client takes every answer at once."""

    def __init__(self) -> None:
        super().__init__({"socket": _SocketOfClient()})
        self.taken = 0
        self.awaited = 0
        self.has_all = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.taken += len(data)
        if self.taken >= self.awaited:
            self.has_all.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return True

    def close(self) -> None: ...

    def abort(self) -> None: ...


def _add_frames(protocol: str, ledger_id: int, ids: range) -> bytes:
    frames = []
    for entry_id in ids:
        entry = Entry(ledger_id, entry_id, entry_id - 1, (entry_id + 1) * len(_PAYLOAD), _PAYLOAD)
        data = entry_format.encode(entry, _DIGESTER)
        request = AddEntry(ledger_id, entry_id, _KEY, data, AddOptions(), b"")
        is_v3 = protocol == "v3"
        frames.append(v3.encode_request(request, entry_id) if is_v3 else v2.encode_request(request))
    return b"".join(frames)


def _read_frames(protocol: str, ledger_id: int, ids: range) -> bytes:
    requests = [ReadEntry(ledger_id, entry_id) for entry_id in ids]
    if protocol == "v3":
        return b"".join([v3.encode_request(one, one.entry_id) for one in requests])
    return b"".join(map(v2.encode_request, requests))


async def _ask(server: BookieServer, batches: Sequence[bytes], answer_min: int, count: int) -> float:
    """Return the microseconds of each request. `answer_min` is less than the bytes of any answer."""
    client, connection = TakingClient(), BookieConnection(server)
    connection.connection_made(client)
    at_once = count // len(batches)
    began = process_time()
    for batch in batches:
        # The sizes of the answers are nearly equal, so that their sum says how many there are.
        client.taken, client.awaited = 0, at_once * answer_min
        client.has_all.clear()
        connection.data_received(batch)
        await client.has_all.wait()
    found = (process_time() - began) / count * 1e6
    connection.connection_lost(None)
    return found


async def _any_ledger(_: int, __: Purpose) -> Code:
    return Code.OK


async def one_round(
    store: AsyncStore, server: BookieServer, first_ledger: int, adds: Mapping[int, int]
) -> dict[str, float]:
    """Return the microseconds of each row."""
    found = {}
    ledger_id = first_ledger
    for at_once, count in adds.items():
        for protocol in ("v2", "v3"):
            ledger_id += 1
            starts = range(0, count, at_once)
            first = _add_frames(protocol, ledger_id, range(1))
            await _ask(server, [first], _ADD_ANSWER_MIN, 1)
            batches = [_add_frames(protocol, ledger_id, range(1 + n, 1 + n + at_once)) for n in starts]
            found[f"{protocol}, adds, {at_once} at once"] = await _ask(
                server, batches, _ADD_ANSWER_MIN, count
            )
    for place in ("memory", "logs"):
        for at_once in READ_AT_ONCE:
            for protocol in ("v2", "v3"):
                starts = range(0, count, at_once)
                batches = [_read_frames(protocol, ledger_id, range(n, n + at_once)) for n in starts]
                found[f"{protocol}, reads of {place}, {at_once} at once"] = await _ask(
                    server, batches, len(_PAYLOAD) + entry_format.HEAD.size, count
                )
        if place == "memory":
            await store.checkpoint()
    return found


async def rounds_of(path: str, rounds: int, adds: Mapping[int, int]) -> dict[str, list[float]]:
    """Return the microseconds of each row in each round."""
    found = defaultdict(list)
    async with AsyncOpening(lambda: open_store(path)) as store:
        server = BookieServer(store.bookie, store.path, 10.0, _any_ledger)
        for number in range(rounds):
            for name, figure in (await one_round(store, server, 100 * number, adds)).items():
                found[name].append(figure)
        await server.stop()
    return found


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        found = asyncio.run(rounds_of(path, rounds, ADDS))
    for name, figures in found.items():
        print(f"{name:36}{median(figures):7.2f} µs   ({min(figures):.2f} to {max(figures):.2f})")


if __name__ == "__main__":
    main()
