"""Test that our server of ZooKeeper's protocol answers as the real one does.

    python tests/interop/zookeeper.py                  300 histories, as `make interop-zookeeper` does
    python tests/interop/zookeeper.py 10000            as many as are asked for
    python tests/interop/zookeeper.py 7000..10000      those of these seeds, without the last
    python tests/interop/zookeeper.py record           notes what the real one answers, for tests without Java
    python tests/interop/zookeeper.py history 17       one history again, as a difference names it
    python tests/interop/zookeeper.py history 17 40    only its first 40 requests

`zookeeper_histories.py` states what a history is and what is compared.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
import time
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from jvm import MADE, exit_code_of
from zookeeper_histories import CLIENTS, OPERATIONS, History
from zookeeper_processes import our_server, real_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterable

HISTORIES = 300
RECORDED = Path(__file__).parent.parent / "fixtures" / "zookeeper-histories.json"
RECORDED_COUNT = 40
_EVERY_S = 15.0
_CONTEXT = 6
_HISTORY_S = 60.0
_DIFFERENCES_MAX = 5


async def compare(real: int, ours: int, seed: int, operations: int) -> list[str]:
    """Play a history on both servers; return the first difference with the lines before it, or nothing."""
    async with asyncio.timeout(_HISTORY_S):
        theirs, mine = await asyncio.gather(
            History(real, seed, operations).play(), History(ours, seed, operations).play()
        )
    if theirs == mine:
        return []
    # A difference changes the places of zxids on lines before it, so other differences are looked for first.
    plain = [_without_zxids(one) == _without_zxids(other) for one, other in zip(theirs, mine, strict=False)]
    for at, (expected, found) in enumerate(zip_longest(theirs, mine)):
        if expected != found and (at >= len(plain) or not plain[at] or all(plain)):
            before = [f"    {line}" for line in theirs[max(0, at - _CONTEXT) : at]]
            return [f"history {seed} differs", *before, f"  real {expected}", f"  ours {found}"]
    return []


def _without_zxids(line: str) -> str:
    return re.sub(r"zxid \d+|\('stat', \d+, \d+, \d+", "", line)


async def digests(port: int, seeds: Iterable[int]) -> list[str]:
    """Return a digest of what each history has seen on a new server, in this order."""
    found = []
    for seed in seeds:
        lines = await History(port, seed).play()
        found.append(hashlib.sha256("\n".join(lines).encode()).hexdigest())
    return found


def record() -> int:
    """Write the digests of the real server's answers to `RECORDED`."""
    with real_zookeeper(MADE / "zookeeper", "-Dzookeeper.forceSync=no") as real:
        RECORDED.write_text(json.dumps(asyncio.run(digests(real, range(RECORDED_COUNT))), indent=0) + "\n")
    return 0


async def compare_all(real: int, ours: int, seeds: Iterable[int], operations: int) -> list[str]:
    """Compare all histories; return the differences."""
    differences: list[list[str]] = []
    done, said = 0, time.monotonic()
    for seed in seeds:
        difference = await compare(real, ours, seed, operations)
        done += 1
        if difference:
            differences.append(difference)
            print(*difference, sep="\n", flush=True)
        if len(differences) >= _DIFFERENCES_MAX:
            break
        if time.monotonic() - said > _EVERY_S:
            said = time.monotonic()
            print(f"{done:,} histories, {len(differences)} differences", flush=True)
    print(
        f"{done:,} histories of {operations} requests from {CLIENTS} clients, {len(differences)} differences"
    )
    return [line for difference in differences for line in difference]


def main(arguments: list[str]) -> int:
    seeds: Iterable[int] = range(HISTORIES)
    operations = OPERATIONS
    if arguments[:1] == ["history"]:
        seeds = [int(arguments[1])]
        operations = int(arguments[2]) if len(arguments) > 2 else OPERATIONS
    elif arguments[:1] not in ([], ["record"]):
        first, _, last = arguments[0].rpartition("..")
        seeds = range(int(first or 0), int(last))
    if arguments[:1] == ["record"]:
        return record()
    with (
        real_zookeeper(MADE / "zookeeper", "-Dzookeeper.forceSync=no") as real,
        our_server(MADE / "zookeeper-ours") as ours,
    ):
        return 1 if asyncio.run(compare_all(real, ours.port, seeds, operations)) else 0


if __name__ == "__main__":
    sys.exit(exit_code_of("interop-zookeeper", lambda: main(sys.argv[1:])))
