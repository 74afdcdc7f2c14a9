"""Measure how fast auto-recovery makes a cluster whole after a bookie was killed: ours, and BookKeeper's.

    python bench/autorecovery_speed.py                  200 ledgers with 1 GB, two rounds
    python bench/autorecovery_speed.py --quick          40 ledgers with 100 MB, one round
    python bench/autorecovery_speed.py --index 1000000  only the audit of so many simulated ledgers
    python bench/autorecovery_speed.py --json FILE      also writes the figures

Four bookies of ours and a metadata server have ledgers with E = 3 and Qw = Qa = 2. In each turn one process
repairs, ours or `AutoRecoveryMain` with its defaults, while four writers append 1 KB entries one after the
other. A bookie is killed, and the time runs from the SIGKILL until no closed ledger names it and no mark and
no lock is left. Then it is started again; its copies are needed no more. Both processes take turns on the
same cluster. The bookies' sessions end after five seconds, in which nothing can be done.

The audit reads the metadata of simulated ledgers, encoded as those of a cluster are, and finds those of a
lost bookie. Its memory is that of a process of its own. The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

import autorecovery
import bookies
from bookies import ledgerstore, our_bookie, our_metadata, wait_until_registered
from jvm import exit_code_of
from zookeeper_processes import KillableServer, free_port

from recovery.autorecovery.audits import read_chunks
from recovery.autorecovery.fragments import fixed_fragments, lost_of
from storage.cluster.client.cluster import open_cluster
from storage.cluster.client.distribution import Quorums
from storage.cluster.metadata.address import parse_address
from storage.cluster.metadata.election import read_auditor
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment, encode
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.registration import read_bookies
from storage.cluster.metadata.underreplication import base_path, list_marked
from storage.cluster.metadata.znodes import ChildNames, Gone, Node, NodeStat
from storage.cluster.zookeeper.client import ClientConfig, connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.client.async_writer import AsyncLedgerWriter
    from storage.cluster.metadata.znodes import Znodes

_DIRECTORY = Path(".bench-autorecovery").absolute()
BOOKIES = 4
QUORUMS = Quorums(3, 2, 2)
ENTRY_SIZE = 16 << 10
WRITERS = 4
BEFORE_S = 15.0
_LOOK_S = 0.1
_WHOLE_S = 900.0
_RECOVERIES = {"ours": autorecovery.our_recovery, "Java": autorecovery.real_recovery}

TIME_BAR = RATE_BAR = 1.0
P99_BAR = 3.0
INDEX_LEDGERS = 1_000_000
INDEX_CPU_BAR_S = 30.0
INDEX_MEMORY_BAR = 256 << 20


class Scale(NamedTuple):
    ledgers: int
    size: int
    rounds: int


FULL, QUICK = Scale(200, 1_000_000_000, 2), Scale(40, 100_000_000, 1)


class Turn(NamedTuple):
    """One loss and its repair."""

    seconds: float
    """From the SIGKILL until all is whole."""
    copying_s: float
    """The part of it from the first mark on."""
    size: int
    """Bytes of the entries that the bookie had."""
    p99_before_ms: float
    p99_ms: float

    @property
    def bytes_per_s(self) -> float:
        return self.size / self.copying_s


# ── repairs ───────────────────────────────────────────────────────────────────────────────────────────────


def measure(scale: Scale) -> dict[str, list[Turn]]:
    """Return the turns of each process that repairs."""
    for directory in (_DIRECTORY, bookies.DIRECTORY, autorecovery.DIRECTORY):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
    turns: dict[str, list[Turn]] = {name: [] for name in _RECOVERIES}
    with ExitStack() as held:
        uri = f"zk://127.0.0.1:{held.enter_context(our_metadata())}/ledgers"
        subprocess.run(ledgerstore("cluster", "init", uri), check=True, capture_output=True)  # noqa: S603
        ports = [free_port() for _ in range(BOOKIES)]
        servers = []
        for port in ports:
            (_DIRECTORY / f"bookie-{port}").mkdir()
            run = partial(our_bookie, uri, _DIRECTORY / f"bookie-{port}", port, "--session-timeout", "5")
            servers.append(KillableServer(run, held))
        wait_until_registered(uri, BOOKIES)
        asyncio.run(_fill(uri, scale))
        for number in range(scale.rounds):
            # The order changes, because the first one of a round may find the disk busy with a restart.
            for name in sorted(_RECOVERIES, reverse=number % 2 == 1):
                victim = sum(map(len, turns.values())) % BOOKIES
                with _RECOVERIES[name](uri, _DIRECTORY / f"recovery-{name}-{number}"):
                    turn = asyncio.run(_lose(uri, servers[victim], f"127.0.0.1:{ports[victim]}"))
                servers[victim].start()
                wait_until_registered(uri, BOOKIES)
                turns[name].append(turn)
                print(f"round {number + 1}, {name}: {_shown(turn)}", flush=True)
    shutil.rmtree(_DIRECTORY)
    return turns


def _shown(turn: Turn) -> str:
    rate = f"{turn.size / 1e6:.0f} MB copied at {turn.bytes_per_s / 1e6:.1f} MB/s"
    return (
        f"whole after {turn.seconds:.1f} s, {rate},"
        f" p99 of adds {turn.p99_before_ms:.1f} ms before and {turn.p99_ms:.1f} ms meanwhile"
    )


async def _fill(uri: str, scale: Scale) -> None:
    """Write closed ledgers with random bytes."""
    address = parse_address(uri)
    entries = scale.size // scale.ledgers // ENTRY_SIZE
    payload = random.Random(1).randbytes(ENTRY_SIZE)  # noqa: S311
    async with connect(ClientConfig(address.hosts)) as znodes, open_cluster(znodes, address.root) as cluster:
        for _ in range(scale.ledgers):
            async with await cluster.create(QUORUMS) as writer:
                await writer.append_many([payload] * entries)


async def _lose(uri: str, server: KillableServer, victim: str) -> Turn:
    """Kill a bookie, and return when no closed ledger names it and nothing is marked or locked."""
    address = parse_address(uri)
    paths = LedgerPaths(address.root, LedgerTree.HIERARCHICAL)
    async with connect(ClientConfig(address.hosts)) as znodes, open_cluster(znodes, address.root) as cluster:
        while isinstance(await read_auditor(znodes, address.root), Gone):
            await asyncio.sleep(_LOOK_S)
        size = await _size_at(znodes, paths, victim)
        adds: list[tuple[float, float]] = []
        writers = [await cluster.create(QUORUMS) for _ in range(WRITERS)]
        writing = [asyncio.ensure_future(_append(one, adds)) for one in writers]
        await asyncio.sleep(BEFORE_S)
        killed_at = time.monotonic()
        server.kill()
        marked_at = None
        while await _is_owed(znodes, paths, victim):
            if marked_at is None and [one async for one in list_marked(znodes, paths.root)]:
                marked_at = time.monotonic()
            assert time.monotonic() - killed_at < _WHOLE_S, "it does not get whole"
            assert not any(one.done() for one in writing), writing
            await asyncio.sleep(_LOOK_S)
        whole_at = time.monotonic()
        for one in writing:
            one.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        for writer in writers:
            await writer.close()
            # Otherwise the next turn would have more to copy.
            await cluster.delete(writer.id)
    before = [seconds for at, seconds in adds if at < killed_at]
    during = [seconds for at, seconds in adds if at >= killed_at]
    return Turn(
        whole_at - killed_at,
        whole_at - (marked_at or killed_at),
        size,
        1000 * quantiles(before, n=100)[-1],
        1000 * quantiles(during, n=100)[-1],
    )


async def _append(writer: AsyncLedgerWriter, adds: list[tuple[float, float]]) -> None:
    payload = bytes(1024)
    while True:
        begun = time.monotonic()
        await writer.append(payload)
        adds.append((begun, time.monotonic() - begun))


def _pass_over(_: object) -> None:
    """Take no note of nodes that are no ledgers."""


async def _size_at(znodes: Znodes, paths: LedgerPaths, bookie: str) -> int:
    """Return the bytes of the entries that a bookie has of closed ledgers."""
    size = 0.0
    async for chunk in read_chunks(znodes, paths, _pass_over):
        for ledger in chunk:
            metadata = ledger.metadata
            count = sum(one.count for one in fixed_fragments(metadata) if one.bookie == bookie)
            if count and metadata.last_entry is not None:
                size += count * metadata.length / (metadata.last_entry + 1)
    return round(size)


async def _is_owed(znodes: Znodes, paths: LedgerPaths, victim: str) -> bool:
    """Return whether something is still to be done for a lost bookie."""
    if victim in (await read_bookies(znodes, paths.root)).all:
        return True
    locks = await znodes.children(f"{base_path(paths.root)}/locks")
    if not isinstance(locks, Gone) and locks.names:
        return True
    if [one async for one in list_marked(znodes, paths.root)]:
        return True
    async for chunk in read_chunks(znodes, paths, _pass_over):
        for ledger in chunk:
            segments = ledger.metadata.segments
            if ledger.metadata.is_closed and any(victim in one.bookies for one in segments):
                return True
    return False


# ── the audit of a million ledgers ────────────────────────────────────────────────────────────────────────


class _ManyLedgers:
    """The reads of a session with so many ledgers; the metadata of every ten-thousandth are equal."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._names = [f"10.0.{number // 256}.{number % 256}:3181" for number in range(100)]
        self._random = random.Random(1)  # noqa: S311
        self._nodes = [self._node(number) for number in range(10_000)]
        self._read = 0

    def _node(self, number: int) -> Node:
        firsts = range(0, 200, 100) if number % 10 == 0 else range(1)
        segments = tuple(LedgerSegment(one, tuple(self._random.sample(self._names, 3))) for one in firsts)
        metadata = ClusterLedgerMetadata(
            3, 2, 2, segments, password=b"secret", created_ms=1_700_000_000_000, creator_token=1 << 40
        )
        return Node(encode(metadata.closed(300, 300_000)), _STAT)

    @property
    def registered(self) -> frozenset[str]:
        return frozenset(self._names[1:])

    async def sync(self, path: str) -> None:
        pass

    async def children(self, path: str) -> ChildNames:
        return self._children(path)

    async def children_of_all(self, parents: Sequence[str]) -> list[ChildNames]:
        return [self._children(path) for path in parents]

    def _children(self, path: str) -> ChildNames:
        """Ledger 1234567 is at /ledgers/00/0123/L4567."""
        levels = path.removeprefix("/ledgers").strip("/").split("/") if path != "/ledgers" else []
        thousands = range((self._count + 9999) // 10_000)
        if not levels:
            names = ["00"]
        elif len(levels) == 1:
            names = [f"{one:04}" for one in thousands]
        else:
            first = int(levels[1]) * 10_000
            names = [f"L{one:04}" for one in range(min(10_000, self._count - first))]
        return ChildNames(tuple(names), _STAT)

    async def get_all(self, paths: Sequence[str]) -> list[Node]:
        first, self._read = self._read, self._read + len(paths)
        return [self._nodes[number % len(self._nodes)] for number in range(first, self._read)]


_STAT = NodeStat(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


async def _audit(count: int) -> tuple[int, float]:
    """Return how many ledgers name a lost bookie, and the processor time that it took to find them."""
    many = _ManyLedgers(count)
    begun = time.process_time()
    paths = LedgerPaths("/ledgers", LedgerTree.HIERARCHICAL)
    found = 0
    async for chunk in read_chunks(many, paths, _pass_over):  # type: ignore[arg-type]
        found += sum(bool(lost_of(ledger.metadata, many.registered)) for ledger in chunk)
    return found, time.process_time() - begun


def audit_in_a_child(count: int) -> dict[str, float]:
    """Return the figures of the audit in a process of its own."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, __file__, "--index", str(count)], capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def index_figures(count: int) -> dict[str, float]:
    found, cpu_s = asyncio.run(_audit(count))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {"ledgers": count, "lost": found, "cpu_s": round(cpu_s, 2), "memory_mib": round(memory / 2**20, 1)}


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────


def missed_bars(turns: dict[str, list[Turn]], index: dict[str, float]) -> list[str]:
    """Return the bars that were missed, in words."""
    ours, java = turns["ours"], turns["Java"]
    times = median(one.seconds / other.seconds for one, other in zip(ours, java, strict=True))
    rates = median(one.bytes_per_s / other.bytes_per_s for one, other in zip(ours, java, strict=True))
    p99 = median(one.p99_ms / one.p99_before_ms for one in ours)
    print(
        f"time {times:.2f} x that of Java, copied bytes a second {rates:.2f} x, p99 {p99:.1f} x that before"
    )
    return [
        text
        for text, is_missed in (
            (f"the time until all is whole: {times:.2f} x", times > TIME_BAR),
            (f"copied bytes a second: {rates:.2f} x", rates < RATE_BAR),
            (f"p99 of adds: {p99:.1f} x", p99 > P99_BAR),
            (f"processor time of the audit: {index['cpu_s']} s", index["cpu_s"] > INDEX_CPU_BAR_S),
            (f"its memory: {index['memory_mib']} MiB", index["memory_mib"] * 2**20 > INDEX_MEMORY_BAR),
        )
        if is_missed
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="40 ledgers with 100 MB, one round")
    parser.add_argument("--rounds", type=int, help="how often each process repairs")
    parser.add_argument("--index", type=int, metavar="N", help="only the audit of N simulated ledgers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    arguments = parser.parse_args()
    if arguments.index is not None:
        print(json.dumps(index_figures(arguments.index)))
        return 0
    scale = QUICK if arguments.quick else FULL
    index = audit_in_a_child(INDEX_LEDGERS)
    print(f"audit of {INDEX_LEDGERS:,} ledgers: {index['cpu_s']} s, {index['memory_mib']} MiB", flush=True)
    turns = measure(scale._replace(rounds=arguments.rounds or scale.rounds))
    if arguments.json is not None:
        figures = {name: [one._asdict() for one in some] for name, some in turns.items()}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"turns": figures, "index": index}, indent=1))
    missed = missed_bars(turns, index)
    for text in missed:
        print(f"missed: {text}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(exit_code_of("autorecovery_speed", main))
