"""Measure topics beside the ledgers that they are made of, on three of our bookies and in one store.

    python bench/topic_speed.py                 as `make bench-cluster` does
    python bench/topic_speed.py --json FILE     also writes the figures
    python bench/topic_speed.py --rounds 1      a first look

The compared programs take turns in each round, and a ratio is the median of the ratios of the rounds. A
payload has 1 KB. The ledger and the topic have the same quorums, three copies and two acknowledgements, and
about as many bytes in flight: the ledger all of its 5 MB, the topic at most 8 MB. The exit code is 1 if a bar
is missed.

Beside each figure stands the processor time for a message, of this process and of the bookies and the
metadata server together, because other work on the machine changes it less than the time of the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bookies import cluster, our_bookie, our_metadata
from speed_bars import Figures, SpeedBar, judge, print_medians

import ledgerstore
from storage.cluster.client.connect import connect_async
from storage.cluster.client.distribution import Quorums
from storage.cluster.topics.message_id import MessageId
from storage.cluster.topics.policies import RollOver
from storage.cluster.topics.producer import NO_BATCHES, Batching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    with _measured(note, "ledger, adds/s", ADDS):
        await writer.append_many(payloads)
    await writer.close()

    roll_over = RollOver(entries=1_000_000, size=1 << 40)
    topic = client.topic(f"public/bench/topic-{number}", _QUORUMS, roll_over=roll_over)
    await topic.take_over()
    for name, batch, count in (("single", NO_BATCHES, ADDS), ("batches of 100", _BATCH, BATCHED)):
        with _measured(note, f"topic, messages/s, {name}", count):
            await topic.send_many([_PAYLOAD] * count, batch)
        await topic.roll_over()
    await topic.close()

    for ledger, name, count in zip(
        await topic.ledgers(), ("single", "batches of 100"), (ADDS, BATCHED), strict=True
    ):
        with _measured(note, f"ledger reader, messages/s, {name}", count):
            size = sum([len(one.payload) async for one in (await client.view(ledger.ledger_id)).entries()])
            assert size > count * len(_PAYLOAD)
        with _measured(note, f"topic reader, messages/s, {name}", count):
            reader = topic.reader(MessageId(ledger.ledger_id, 0))
            left = count
            async for message in reader.messages():
                assert len(message.payload) == len(_PAYLOAD)
                left -= 1
                if not left:
                    break


@contextmanager
def _measured(note: Callable[[str, float], None], name: str, count: int) -> Iterator[None]:
    """Note how many messages a second were handled, and the processor time of each in microseconds."""
    began, own, servers = time.perf_counter(), time.process_time(), _children_time()
    yield
    note(name, count / (time.perf_counter() - began))
    note(f"{name}: µs here", (time.process_time() - own) / count * 1e6)
    note(f"{name}: µs of servers", (_children_time() - servers) / count * 1e6)


def _children_time() -> float:
    """Return the processor time of the processes that this one has started, in seconds."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


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
        *(
            (f"reader of a topic ÷ of a ledger, {name}", f"topic {row}, {name}", f"ledger {row}, {name}", 0.7)
            for row in ("reader, messages/s",)
            for name in ("single", "batches of 100")
        ),
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
