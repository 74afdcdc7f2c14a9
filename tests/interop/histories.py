"""Random histories of our client and the Java client on ledgers that they take over from each other.

    python tests/interop/histories.py 2000            so many histories on mixed bookies, from seed 1
    python tests/interop/histories.py 2000 real 7     on real ones, from another seed

In each history one client writes a ledger, a reader looks at it, and it ends in one of several ways: its
writer closes it, the other client takes it over while entries are under way, or both at once. Many histories
go on at a time. Beside them bookies, the metadata server, connections and clients are disturbed. What ends
without an answer is noted as unknown. At last both clients take the ledger over and read it all. The history
checker decides.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from bookies import DIRECTORY, our_bookie, real_bookie
from disturbed_cluster import disturbed_cluster, empty_directory
from history import History
from history_checker import check
from jvm import exit_code_of
from ledger_clients import ClientKilled, Refusal, SessionLost
from recorded_client import CallFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from bookies import Bookie
    from disturbed_cluster import DisturbedCluster
    from history_checker import Verdict
    from ledger_clients import End
    from recorded_client import RecordedClient

KINDS: Mapping[str, tuple[Bookie, ...]] = {
    "ours": (our_bookie,) * 4,
    "real": (real_bookie,) * 4,
    "mixed": (our_bookie, real_bookie, our_bookie, real_bookie),
}
_AT_A_TIME = 12
_QUORUMS = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (2, 2, 1), (3, 3, 3))
_RETRY_S = 0.5
_RECOVERED_S = 180
"""So long the last reads of a ledger may fail because of a disturbance."""


@dataclass(frozen=True, slots=True)
class Style:
    """The shape of the histories."""

    bursts: range
    burst: tuple[int, ...]
    """Entries that are begun at once."""
    sizes: tuple[int, ...]
    deletes: bool
    """Whether the ledger is deleted in the end."""


SHORT = Style(bursts=range(1, 8), burst=(1, 1, 5, 20), sizes=(0, 0, 200, 9000), deletes=True)


class _Play:
    """One history."""

    def __init__(self, cluster: DisturbedCluster, style: Style, seed: int, number: int) -> None:
        self._cluster = cluster
        self._style = style
        self._number = number
        self._dice = Random(f"{seed} {number}")
        pair = [cluster.ours, cluster.java]
        self._dice.shuffle(pair)
        self._writer, self._other = pair
        self._adds: list[asyncio.Task[int]] = []
        self._count = 0

    async def play(self) -> None:
        dice = self._dice
        ledger = await self._create(dice.choice(_QUORUMS))
        looking = asyncio.create_task(self._look(dice.choice((self._writer, self._other)), ledger))
        with suppress(CallFailed):
            for _ in range(dice.choice(self._style.bursts)):
                for _ in range(dice.choice(self._style.burst)):
                    await self._append(ledger)
                if dice.random() < 0.5:
                    await asyncio.gather(*self._adds, return_exceptions=True)
                else:
                    await asyncio.sleep(dice.random() * 0.3)
        await self._end(ledger)
        with suppress(CallFailed):
            await self._append(ledger)
        await asyncio.gather(*self._adds, return_exceptions=True)
        for kind in dice.sample(("ours", "java"), 2):
            await self._read_all(kind, ledger)
        async with asyncio.timeout(_RECOVERED_S):
            await looking
        if self._style.deletes:
            with suppress(Refusal, ClientKilled):
                await self._cluster.ours.delete(ledger)

    async def _create(self, quorums: tuple[int, int, int]) -> int:
        while True:
            try:
                return await self._writer.create(quorums)
            except CallFailed as failed:
                await self._recover(failed, self._writer)
                pair = (self._cluster.ours, self._cluster.java)
                self._writer, self._other = pair if self._dice.random() < 0.5 else pair[::-1]

    async def _append(self, ledger: int) -> None:
        text, size = f"{self._number}/{self._count}", self._dice.choice(self._style.sizes)
        self._count += 1
        self._adds.append(await self._writer.append(ledger, text, size))

    async def _end(self, ledger: int) -> None:
        """End the ledger, or leave that to the last reads."""
        take_over, close = self._other.take_over, self._writer.close
        ways: tuple[list[Callable[[int], Awaitable[End]]], ...] = (
            [close],
            [take_over],
            [take_over],
            [close, take_over],
            [take_over, self._writer.take_over],
            [],
        )
        await asyncio.gather(*(way(ledger) for way in self._dice.choice(ways)), return_exceptions=True)

    async def _look(self, reader: RecordedClient, ledger: int) -> None:
        """Look at the ledger until its end is shown, or until the reader fails."""
        with suppress(CallFailed, Refusal, ClientKilled):
            await reader.view(ledger)
            while (await reader.look(ledger)).end is None:
                await asyncio.sleep(self._dice.random() * 0.4)

    async def _read_all(self, kind: str, ledger: int) -> None:
        async with asyncio.timeout(_RECOVERED_S):
            while not await self._has_read_all(kind, ledger):
                pass

    async def _has_read_all(self, kind: str, ledger: int) -> bool:
        # A client may be killed at any time, and then there is another one.
        reader = self._cluster.ours if kind == "ours" else self._cluster.java
        try:
            await reader.read_closed(ledger, await reader.take_over(ledger))
        except CallFailed as failed:
            await self._recover(failed, reader)
            return False
        return True

    async def _recover(self, failed: CallFailed, client: RecordedClient) -> None:
        """Do what an application does before it tries again."""
        if isinstance(failed.__cause__, SessionLost):
            await self._cluster.renew(client)
        await asyncio.sleep(_RETRY_S)


class Playing:
    """Many histories at a time on one cluster."""

    def __init__(self, cluster: DisturbedCluster, seed: int, style: Style) -> None:
        self._cluster = cluster
        self._seed = seed
        self._style = style
        self.done = 0
        """The histories that have ended."""
        self.began = time.monotonic()

    async def play(self, count: int, seconds: float) -> None:
        """Play so many histories, or as many as begin within the time. Afterwards all is mended."""
        cluster = self._cluster
        await cluster.use_new_client_of_ours()
        await cluster.use_new_java_client()
        cluster.disturber.others |= {
            "our client closed": cluster.use_new_client_of_ours,
            "Java client killed": cluster.use_new_java_client,
            "Java client paused": cluster.pause_java_client,
        }
        give_up_at = time.monotonic() + seconds
        is_over = asyncio.Event()
        disturbing = asyncio.create_task(cluster.disturber.run(is_over))
        numbers = iter(range(count))
        try:
            await asyncio.gather(*(self._work(numbers, give_up_at) for _ in range(_AT_A_TIME)))
        finally:
            (DIRECTORY / "history.jsonl").write_text(cluster.history.lines())
            is_over.set()
            await disturbing

    async def _work(self, numbers: Iterator[int], give_up_at: float) -> None:
        for number in numbers:
            await _Play(self._cluster, self._style, self._seed, number).play()
            self.done += 1
            if self.done % 100 == 0:
                print(f"  {self.done} histories ({time.monotonic() - self.began:.0f} s)", flush=True)
            if time.monotonic() > give_up_at:
                return


def report(name: str, cluster: DisturbedCluster, playing: Playing) -> Verdict:
    """Print what was tried and what was wrong."""
    verdict, counted = check(cluster.history.events), cluster.disturber.counted
    print(
        f"{name}: {playing.done} histories, {verdict.calls:,} calls, "
        f"{verdict.acknowledged:,} entries acknowledged, {verdict.unknown:,} of unknown outcome",
        f"  disturbed {counted.total()} times: "
        + ", ".join(f"{what} {number}" for what, number in sorted(counted.items())),
        *(f"  PROBLEM: {problem}" for problem in verdict.problems[:20]),
        f"  {len(verdict.problems)} problems ({time.monotonic() - playing.began:.0f} s)",
        sep="\n",
        flush=True,
    )
    return verdict


async def play(kind: str, count: int, seconds: float, seed: int) -> int:
    """Play on a new cluster; return the number of problems."""
    bookies = [(run, DIRECTORY / f"bookie-{number}") for number, run in enumerate(KINDS[kind])]
    async with disturbed_cluster(bookies, History(), seed) as cluster:
        playing = Playing(cluster, seed, SHORT)
        await playing.play(count, seconds)
    return len(report(f"{kind} bookies, seed {seed}", cluster, playing).problems)


def play_briefly(kind: str, seconds: float = 45) -> int:
    """Play for less than a minute; return the number of problems."""
    empty_directory()
    return asyncio.run(play(kind, sys.maxsize, seconds, seed=1))


def main(words: Sequence[str]) -> int:
    count, kind, seed = [*words, *("2000", "mixed", "1")[len(words) :]]
    empty_directory()
    return 1 if asyncio.run(play(kind, int(count), float("inf"), int(seed))) else 0


if __name__ == "__main__":
    sys.exit(exit_code_of("histories", lambda: main(sys.argv[1:])))
