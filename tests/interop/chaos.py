"""Five minutes of faults on a cluster of our bookies, and then every copy of every entry.

    python tests/interop/chaos.py               five minutes, as `make cluster-chaos` does
    python tests/interop/chaos.py 60 7          a minute, from another seed

Our client and the Java client write, look at, close and take over ledgers while bookies and the metadata
server are killed and paused, connections are cut, reset, held, delayed and throttled, clients are killed, and
the disks of bookies fill up. Then everything is mended. Checked are the history of all calls; that each entry
has as many copies as its acknowledgement needs; and, when BookKeeper's own auto-recovery has repaired the
ledgers that lack copies, that every copy is there.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from bookies import DIRECTORY, configuration_file, java, our_bookie
from disturbed_cluster import disturbed_cluster, empty_directory
from full_volumes import empty, fill
from histories import Playing, Style, report
from history import History
from jvm import exit_code_of
from ledger_copies import read_copies
from zookeeper_processes import free_port

from recovery.crashlab.run.volume import Volume, why_not
from storage.cluster import connect_async
from storage.cluster.metadata import underreplication
from storage.cluster.zookeeper.client import ClientConfig, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from pathlib import Path
    from random import Random

    from disturbed_cluster import DisturbedCluster

_BOOKIES = 5
_REPAIRED_S = 300
_ROOT = "/ledgers"
STYLE = Style(bursts=range(10, 60), burst=(1, 10, 50, 100), sizes=(200, 1000, 1000, 9000), deletes=False)


def directories(held: ExitStack) -> tuple[list[Path], list[Path]]:
    """Return a directory for each bookie, and those of them that are small file systems of their own."""
    paths = [DIRECTORY / f"bookie-{number}" for number in range(_BOOKIES)]
    if reason := why_not("ext4"):
        print(f"disks are NOT FILLED: {reason}")
        return paths, []
    volumes = []
    for path in paths:
        volumes.append(held.enter_context(Volume("ext4")).fresh())
        # The log is not on the volume, so that it has room.
        path.mkdir()
        (path / "store").symlink_to(volumes[-1])
    return paths, volumes


async def fill_a_disk(dice: Random, volumes: Sequence[Path]) -> None:
    """Let the disk of one bookie be full for some seconds."""
    volume = dice.choice(volumes)
    await asyncio.to_thread(fill, volume)
    await asyncio.sleep(1 + 4 * dice.random())
    await asyncio.to_thread(empty, volume)


@asynccontextmanager
async def auto_recovery(uri: str) -> AsyncIterator[None]:
    """Run BookKeeper's auto-recovery, which reads every entry of the ledgers that it repairs."""
    settings = {
        "metadataServiceUri": uri,
        "bookiePort": free_port(),
        "listeningInterface": "lo",
        "allowLoopback": "true",
        "advertisedAddress": "127.0.0.1",
        "auditorLedgerVerificationPercentage": 100,
        "rwRereplicateBackoffMs": 1000,
    }
    conf = configuration_file(DIRECTORY / "auto-recovery", settings)
    command = java("org.apache.bookkeeper.replication.AutoRecoveryMain", "--conf", conf)
    with (DIRECTORY / "auto-recovery" / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            await process.wait()


async def check_copies(cluster: DisturbedCluster, ledgers: Iterable[int]) -> int:
    """Return how many entries have too few copies, before the repair or after it."""
    began, wrong, repaired = time.monotonic(), 0, 0
    lacking: dict[int, list[str]] = {}
    config = ClientConfig((cluster.direct_uri.split("/")[2],))
    async with connect_async(cluster.direct_uri) as client, connect(config) as znodes:
        entries = copies = 0
        for ledger in ledgers:
            found = await read_copies(client, ledger)
            entries, copies, wrong = (
                entries + found.entries,
                copies + found.copies,
                wrong + len(found.too_few),
            )
            if found.missing:
                lacking[ledger] = sorted(found.missing)
                repaired += sum(found.missing.values())
        print(
            f"  {entries:,} entries: {copies:,} copies are there, {repaired:,} in {len(lacking)} ledgers "
            f"are not; {wrong} entries have fewer than were acknowledged ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
        await underreplication.prepare(znodes, _ROOT)
        for ledger, bookies in lacking.items():
            now_ms = int(time.time() * 1000)
            await underreplication.mark_ledger(znodes, _ROOT, ledger, bookies, now_ms)
        async with auto_recovery(cluster.direct_uri), asyncio.timeout(_REPAIRED_S):
            while marked := [one async for one in underreplication.list_marked(znodes, _ROOT)]:
                print(f"  {len(marked)} ledgers are marked for repair", flush=True)
                await asyncio.sleep(2)
        after = [await read_copies(client, ledger) for ledger in lacking]
    still = sum(sum(found.missing.values()) for found in after)
    print(f"  after the repair {still} copies are missing ({time.monotonic() - began:.0f} s)", flush=True)
    return wrong + still


async def chaos(seconds: float, seed: int) -> int:
    """Return the number of problems."""
    history = History()
    with ExitStack() as held:
        paths, volumes = directories(held)
        bookies = [(our_bookie, path) for path in paths]
        async with disturbed_cluster(bookies, history, seed) as cluster:
            playing = Playing(cluster, seed, STYLE)
            if volumes:
                dice = cluster.disturber.dice
                cluster.disturber.others["disk filled"] = partial(fill_a_disk, dice, volumes)
            await playing.play(sys.maxsize, seconds)
            verdict = report(f"our bookies, seed {seed}", cluster, playing)
            ledgers = {event.fields["ledger"] for event in history.events if "ledger" in event.fields}
            return len(verdict.problems) + await check_copies(cluster, sorted(ledgers))


def main(words: Sequence[str]) -> int:
    seconds, seed = [*words, *("300", "1")[len(words) :]]
    empty_directory()
    problems = asyncio.run(chaos(float(seconds), int(seed)))
    print(f"cluster-chaos: {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(exit_code_of("cluster-chaos", lambda: main(sys.argv[1:])))
