"""Test that our client and the unmodified Java client share ledgers, on bookies of both kinds.

    python tests/interop/clients.py              all of it, as `make interop-client` does
    python tests/interop/clients.py ours|real|mixed    only on these bookies, with our metadata server

On four bookies each (ours, BookKeeper's own, two of both), with our metadata server and with ZooKeeper: the
steps of an application (client_steps.py) show the same with our client and with the Java client, with both
versions of the protocol; a ledger of each client is read by the other; a ledger that its writer has left open
is taken over by the other, and its writer is fenced; and our client writes on while a bookie is killed. Then
random histories with disturbances are played for a minute on each kind of bookies (histories.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from difflib import unified_diff
from typing import TYPE_CHECKING

from bookies import DIRECTORY, ledgerstore, our_metadata, wait_until_registered
from client_steps import steps_of
from disturbed_cluster import empty_directory
from histories import KINDS, play_briefly
from jvm import exit_code_of
from ledger_clients import PASSWORD, End, JavaClients, Refusal, our_client
from zookeeper_processes import free_port, real_zookeeper

from storage.cluster import connect_async
from storage.cluster.client.distribution import Quorums

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ledger_clients import LedgerClient

PROTOCOLS = ("v2", "v3")
THREE = (3, 3, 2)
ENTRIES = 100
_CHANGE_S = 60


def expected(writer: str, count: int) -> list[str]:
    """Return the lines of a ledger of these entries."""
    texts = [f"{writer} {number}" for number in range(count)]
    lines = [f"{number} {text}" for number, text in enumerate(texts)]
    return [*lines, str(End(count - 1, sum(map(len, texts))))]


async def read_all(reader: LedgerClient, ledger: int) -> list[str]:
    """Take the ledger over, and return the same lines."""
    end = await reader.take_over(ledger)
    entries = await reader.read(ledger, 0, end.last)
    return [*(f"{entry.entry_id} {entry.text}" for entry in entries), str(end)]


async def share_ledgers(writer: LedgerClient, other: LedgerClient) -> None:
    """Let another client read a ledger that the writer has closed, and take over one that it still writes."""
    closed, left = await writer.create(THREE), await writer.create(THREE)
    for ledger in (closed, left):
        texts = [f"{writer.name} {number}" for number in range(ENTRIES)]
        adds = [await writer.begin_append(ledger, text) for text in texts]
        assert await asyncio.gather(*adds) == list(range(ENTRIES))
    await writer.close(closed)
    for ledger in (closed, left):
        found = await read_all(other, ledger)
        assert found == expected(writer.name, ENTRIES), found[-3:]
    try:
        await (await writer.begin_append(left, "too late"))
    except Refusal:
        return
    raise AssertionError(f"{writer.name} has added an entry to a ledger that {other.name} has taken over")


async def write_while_a_bookie_is_killed(uri: str, pids: Mapping[str, int]) -> None:
    """Kill a bookie of the ensemble in the middle of a ledger, and read everything."""
    async with connect_async(uri) as cluster:
        writer = await cluster.create(Quorums(*THREE), PASSWORD.encode())
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
        async with our_client("reader", uri) as reader:
            assert await read_all(reader, writer.id) == expected("python", count)


async def share_and_step(uri: str) -> dict[str, list[str]]:
    """Let clients share ledgers; return by client what the steps show."""
    found: dict[str, list[str]] = {}
    for protocol in PROTOCOLS:
        process = JavaClients(DIRECTORY / f"java-{protocol}", uri, protocol)
        names = (f"ours {protocol}", f"ours {protocol} too")
        try:
            async with (
                our_client(names[0], uri, protocol) as ours,
                our_client(names[1], uri, protocol) as too,
            ):
                theirs = await process.client(f"java {protocol}")
                await share_ledgers(ours, theirs)
                await share_ledgers(theirs, ours)
                found[ours.name] = await steps_of(ours, too)
                found[theirs.name] = await steps_of(theirs, await process.client(f"java {protocol} too"))
        finally:
            await process.stop()
    return found


def test_on(
    kind: str, metadata: Callable[[], AbstractContextManager[int]], name: str
) -> dict[str, list[str]]:
    """Return by client what the steps show on these bookies."""
    began = time.monotonic()
    empty_directory()
    with ExitStack() as held:
        uri = f"zk://127.0.0.1:{held.enter_context(metadata())}/ledgers"
        subprocess.run(ledgerstore("cluster", "init", uri), check=True, capture_output=True)
        pids = {}
        for bookie in KINDS[kind]:
            port = free_port()
            pids[f"127.0.0.1:{port}"] = held.enter_context(bookie(uri, DIRECTORY / str(port), port))
        wait_until_registered(uri, len(pids))
        found = asyncio.run(share_and_step(uri))
        asyncio.run(write_while_a_bookie_is_killed(uri, pids))
    print(f"{kind} bookies, {name}: {', '.join(found)} ({time.monotonic() - began:.0f} s)", flush=True)
    return {f"{client} on {kind} bookies and {name}": lines for client, lines in found.items()}


def different(found: Mapping[str, list[str]]) -> int:
    """Return how many clients see something else than the first one."""
    first, expected_lines = next(iter(found.items()))
    others = {name: lines for name, lines in found.items() if lines != expected_lines}
    for name, lines in others.items():
        print(*unified_diff(expected_lines, lines, first, name, lineterm=""), sep="\n")
    print(f"{len(expected_lines)} steps, {len(found)} times: {len(others)} are different", flush=True)
    return len(others)


def main(words: Sequence[str]) -> int:
    found: dict[str, list[str]] = {}
    for kind in words or KINDS:
        found |= test_on(kind, our_metadata, "our metadata server")
        if not words:
            found |= test_on(kind, real_zookeeper, "ZooKeeper")
    wrong = different(found)
    for kind in words or KINDS:
        wrong += play_briefly(kind)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(exit_code_of("interop-client", lambda: main(sys.argv[1:])))
