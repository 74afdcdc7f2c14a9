"""Test that our client and the unmodified Java client share ledgers, on bookies of both kinds.

    python tests/interop/clients.py              all of it, as `make interop-client` does
    python tests/interop/clients.py ours|real|mixed    only on these bookies

On four bookies each (ours, BookKeeper's own, two of both), with our metadata server and once with a real
ZooKeeper: a ledger of each client is read by the other; a ledger that its writer has left open is taken over
by the other, and its writer is fenced; and our client writes on while a bookie is killed.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bookies import DIRECTORY, java, ledgerstore, our_bookie, our_metadata, real_bookie, wait_until_registered
from jvm import exit_code_of
from zookeeper_processes import free_port, real_zookeeper

from storage.cluster import connect_async
from storage.cluster.client.distribution import Quorums
from storage.cluster.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bookies import Bookie

    from storage.cluster.client.cluster import AsyncCluster

KINDS: Mapping[str, tuple[Bookie, ...]] = {
    "ours": (our_bookie, our_bookie, our_bookie, our_bookie),
    "real": (real_bookie, real_bookie, real_bookie, real_bookie),
    "mixed": (our_bookie, real_bookie, our_bookie, real_bookie),
}
THREE = Quorums(3, 3, 2)
PASSWORD = b"secret"
ENTRIES = 100
_JAVA_S = 120
_CHANGE_S = 60


def run_java(uri: str, protocol: str, *words: object) -> list[str]:
    """Run one command of `ClientLedgers`, and return its lines."""
    command = java("interop.ClientLedgers", uri, protocol, *map(str, words))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_JAVA_S)
    lines = [line for line in done.stdout.splitlines() if re.match(r"(\d+|ledger|end) ", line)]
    assert done.returncode == 0, f"{words}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    return lines


async def run_java_beside(uri: str, protocol: str, *words: object) -> list[str]:
    """Run it in a thread, because our clients have to go on."""
    return await asyncio.to_thread(run_java, uri, protocol, *words)


def expected(writer: str, count: int) -> list[str]:
    """Return what Java prints of a ledger of these entries."""
    payloads = [f"{writer} {number}" for number in range(count)]
    lines = [f"{number} {payload}" for number, payload in enumerate(payloads)]
    return [*lines, f"end {count - 1} {sum(map(len, payloads))}"]


async def read_by_ours(cluster: AsyncCluster, ledger_id: int) -> list[str]:
    """Take the ledger over, and return the same lines."""
    reader = await cluster.take_over(ledger_id, PASSWORD)
    lines = [f"{entry.entry_id} {entry.payload.decode()}" async for entry in reader.entries()]
    return [*lines, f"end {reader.last_entry} {reader.metadata.length}"]


async def share_ledgers(uri: str, protocol: str) -> None:
    """Write with each client, and read and take over with the other."""
    async with connect_async(uri) as cluster:
        async with await cluster.create(THREE, PASSWORD) as writer:
            await writer.append_many([b"python %d" % number for number in range(ENTRIES)])
        assert await run_java_beside(uri, protocol, "read", writer.id) == expected("python", ENTRIES)

        writer = await cluster.create(THREE, PASSWORD)
        await writer.append_many([b"python %d" % number for number in range(ENTRIES)])
        assert await run_java_beside(uri, protocol, "recover", writer.id) == expected("python", ENTRIES)
        try:
            await writer.append(b"too late")
        except OutcomeUnknown:
            pass
        else:
            raise AssertionError("the writer of a ledger that was taken over has added an entry")

        for command in ("write", "leave"):
            (line,) = await run_java_beside(uri, protocol, command, ENTRIES)
            found = await read_by_ours(cluster, int(line.split()[1]))
            assert found == expected("java", ENTRIES), found[-3:]


async def write_while_a_bookie_is_killed(uri: str, pids: Mapping[str, int]) -> None:
    """Kill a bookie of the ensemble in the middle of a ledger, and read everything."""
    async with connect_async(uri) as cluster:
        writer = await cluster.create(THREE, PASSWORD)
        pending = [await writer.submit(b"python %d" % number) for number in range(500)]
        killed = writer.metadata.segments[0].bookies[0]
        os.kill(pids[killed], signal.SIGKILL)
        pending += [await writer.submit(b"python %d" % number) for number in range(500, 1000)]
        assert await asyncio.gather(*pending) == list(range(1000))
        # All of them may have been at the other two bookies before the loss of the connection was noticed.
        count = len(pending)
        async with asyncio.timeout(_CHANGE_S):
            while killed in writer.metadata.segments[-1].bookies:
                assert await writer.append(b"python %d" % count) == count
                count += 1
        await writer.close()
        assert await read_by_ours(cluster, writer.id) == expected("python", count)


def test_on(kind: str, metadata: Callable[[], AbstractContextManager[int]], name: str) -> None:
    began = time.monotonic()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    with ExitStack() as held:
        uri = f"zk://127.0.0.1:{held.enter_context(metadata())}/ledgers"
        subprocess.run(ledgerstore("cluster", "init", uri), check=True, capture_output=True)
        pids = {}
        for bookie in KINDS[kind]:
            port = free_port()
            pids[f"127.0.0.1:{port}"] = held.enter_context(bookie(uri, DIRECTORY / str(port), port))
        wait_until_registered(uri, len(pids))
        for protocol in ("v2", "v3"):
            asyncio.run(share_ledgers(uri, protocol))
        asyncio.run(write_while_a_bookie_is_killed(uri, pids))
    print(f"{kind} bookies, {name}: as expected ({time.monotonic() - began:.0f} s)", flush=True)


def main(words: Sequence[str]) -> int:
    for kind in words or KINDS:
        test_on(kind, our_metadata, "our metadata server")
    if not words:
        test_on("mixed", real_zookeeper, "ZooKeeper")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of("interop-client", lambda: main(sys.argv[1:])))
