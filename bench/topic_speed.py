"""Measure topics beside the ledgers that they are made of, on three of our bookies and in one store.

    python bench/topic_speed.py                 as `make bench-cluster` does
    python bench/topic_speed.py --json FILE     also writes the figures
    python bench/topic_speed.py --rounds 1      a first look

What is compared takes turns in each round, and a ratio is the median of the ratios of the rounds. A payload
has 1 KB. The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bookies import cluster, our_bookie, our_metadata
from speed_bars import Figures, SpeedBar, judge, print_medians

import ledgerstore
from storage.cluster.client.connect import connect_async
from storage.cluster.client.distribution import Quorums
from storage.cluster.topics.policies import RollOver
from storage.cluster.topics.producer import NO_BATCHES, Batching

if TYPE_CHECKING:
    from storage.cluster.client.cluster import AsyncCluster

_DIRECTORY = Path(".bench-topics").absolute()
_PAYLOAD = bytes(range(256)) * 4
_QUORUMS = Quorums(3, 3, 2)
_BATCH = Batching(count=100, size=1 << 20, delay_s=1.0)
ADDS, BATCHED, EMBEDDED = 5_000, 50_000, 50_000
IDLE, LEDGERS = 10_000, 1_000


async def _round(client: AsyncCluster, number: int, found: Figures) -> None:
    """Measure every row once."""

    def note(name: str, figure: float) -> None:
        print(f"  {name}: {figure:,.1f}", file=sys.stderr, flush=True)
        found[name].append(figure)

    payloads = [_PAYLOAD] * ADDS
    writer = await client.create(_QUORUMS)
    began = time.perf_counter()
    await writer.append_many(payloads)
    note("ledger, adds/s", ADDS / (time.perf_counter() - began))
    await writer.close()

    roll_over = RollOver(entries=1_000_000, size=1 << 40)
    topic = client.topic(f"public/bench/topic-{number}", _QUORUMS, roll_over=roll_over)
    await topic.take_over()
    for name, batch, count in (("single", NO_BATCHES, ADDS), ("batches of 100", _BATCH, BATCHED)):
        began = time.perf_counter()
        await topic.send_many([_PAYLOAD] * count, batch)
        note(f"topic, messages/s, {name}", count / (time.perf_counter() - began))
    await topic.close()

    ledger_id = (await topic.ledgers())[0].ledger_id
    began, size = time.perf_counter(), 0
    async for entry in (await client.view(ledger_id)).entries():
        size += len(entry.payload)
    note("ledger reader, MB/s", size / (time.perf_counter() - began) / 1e6)
    began, size = time.perf_counter(), 0
    async for message in topic.reader().messages():
        size += len(message.payload)
    note("topic reader, MB/s", size / (time.perf_counter() - began) / 1e6)


def _embedded(number: int, found: Figures) -> None:
    """Measure a topic in one store beside a ledger, with the same bytes."""
    directory = _DIRECTORY / f"store-{number}"
    with ledgerstore.open(str(directory)) as store:
        ledger = store.ledger(1)
        pieces = [[_PAYLOAD] * _BATCH.count for _ in range(EMBEDDED // _BATCH.count)]
        began = time.perf_counter()
        for piece in pieces:
            ledger.append_many(piece)
        found["append_many, messages/s"].append(EMBEDDED / (time.perf_counter() - began))
        with store.topic("bench") as topic:
            topic.take_over()
            began = time.perf_counter()
            topic.send_many([_PAYLOAD] * EMBEDDED, _BATCH)
            found["embedded topic, messages/s"].append(EMBEDDED / (time.perf_counter() - began))
    shutil.rmtree(directory)


async def _many_topics(client: AsyncCluster, found: Figures) -> None:
    """Measure the memory of idle topics, each of which has a ledger that it could write to."""
    before = _memory()
    topics = [client.topic(f"public/idle/topic-{number}", _QUORUMS) for number in range(IDLE)]
    for at in range(0, IDLE, 100):
        await asyncio.gather(*(topic.take_over() for topic in topics[at : at + 100]))
    found["idle topics, MiB"].append((_memory() - before) / (1 << 20))


async def _many_ledgers(client: AsyncCluster, found: Figures) -> None:
    """Measure the opening of a topic with many ledgers, of which all but the last are closed."""
    name, roll_over = "public/bench/long", RollOver(entries=1)
    topic = client.topic(name, _QUORUMS, roll_over=roll_over)
    for _ in range(LEDGERS):
        await topic.send(b"x")
    await topic.close()
    again = client.topic(name, _QUORUMS, roll_over=roll_over)
    began = time.perf_counter()
    await again.take_over()
    found["opening, seconds"].append(time.perf_counter() - began)
    await again.close()


def _memory() -> int:
    """Return the resident bytes of this process."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


async def _measure(uri: str, rounds: int, found: Figures) -> None:
    async with connect_async(uri) as client:
        for number in range(rounds):
            print(f"round {number + 1}", file=sys.stderr)
            await _round(client, number, found)
        await _many_ledgers(client, found)
        await _many_topics(client, found)


def _ratio(found: Figures, mine: str, other: str) -> float:
    return median(a / b for a, b in zip(found[mine], found[other], strict=True))


def bars(found: Figures) -> list[SpeedBar]:
    """Return all figures that have a bar."""
    at_least = [
        ("batches of 100 ÷ adds of a ledger", "topic, messages/s, batches of 100", "ledger, adds/s", 10.0),
        ("single messages ÷ adds of a ledger", "topic, messages/s, single", "ledger, adds/s", 0.8),
        ("reader of a topic ÷ of a ledger", "topic reader, MB/s", "ledger reader, MB/s", 0.7),
        ("embedded topic ÷ append_many", "embedded topic, messages/s", "append_many, messages/s", 0.8),
    ]
    ratios = [(name, _ratio(found, mine, other), bar) for name, mine, other, bar in at_least]
    at_most = [
        (f"memory of {IDLE:,} idle topics, MiB", median(found["idle topics, MiB"]), 300.0),
        (f"opening of a topic with {LEDGERS:,} ledgers, s", median(found["opening, seconds"]), 1.0),
    ]
    return [
        *(SpeedBar(name, figure, f"≥ {bar:g}", figure >= bar) for name, figure, bar in ratios),
        *(SpeedBar(name, figure, f"≤ {bar:g}", figure <= bar) for name, figure, bar in at_most),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: Figures = defaultdict(list)
    shutil.rmtree(_DIRECTORY, ignore_errors=True)
    _DIRECTORY.mkdir()
    for number in range(options.rounds):
        _embedded(number, found)
    with cluster(our_metadata, our_bookie, 3) as uri:
        asyncio.run(_measure(uri, options.rounds, found))
    shutil.rmtree(_DIRECTORY)
    print_medians(found)
    return judge(found, bars(found), options.json)


if __name__ == "__main__":
    sys.exit(main())
