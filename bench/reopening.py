"""Opening, each time in a fresh process: after a crash, and when there is nothing to do."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import child
from result import Bar, Result, Sense
from scratch import crashed_again, listing

from recovery.opening import open_store
from storage import StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

    from sizes import Sizes

_MIB = 1 << 20
REPLAY_BAR = Bar(Sense.AT_LEAST, 200)
MEMORY_BAR = Bar(Sense.BELOW, 2 * StoreConfig().memtable_size_max / _MIB + 64)
REOPEN_BAR = Bar(Sense.BELOW, 50)


def replay(place: Path, sizes: Sizes) -> Result:
    """A store whose journals hold what two full tables held; the checkpoint on the way is timed with it."""
    child.leave_crashed(place / "store", sizes.replayed)
    rates = []
    for _ in range(sizes.rounds):
        again = crashed_again(place / "store", place / "again")
        found = child.opened(again)
        rates.append(found.bytes_replayed / 1e6 / found.seconds)
        shutil.rmtree(again)
    return Result(scenario="replay", unit="MB/s", ours=rates, bar=REPLAY_BAR)


def replay_memory(place: Path, sizes: Sizes) -> Result:
    """A long replay takes as much memory as two tables, however long it is."""
    open_store(place / "empty").close()
    child.leave_crashed(place / "store", sizes.replayed_for_memory)
    empty = child.opened(place / "empty")
    found = child.opened(place / "store")
    grown = (found.peak_memory - empty.peak_memory) / _MIB
    gib = found.bytes_replayed / (1 << 30)
    return Result(scenario=f"memory to replay {gib:.2f} GiB", unit="MiB", ours=[grown], bar=MEMORY_BAR)


def reopen(place: Path, sizes: Sizes) -> Result:
    """A store that was closed and is opened again without an add: quickly, and without a trace."""
    path = place / "store"
    with open_store(path) as store:
        store.ledger(1).append_many([child.PAYLOAD] * sizes.batches)
    before = listing(path)
    milliseconds = [child.opened(path).seconds * 1000 for _ in range(sizes.rounds)]
    new = sorted(set(listing(path)) - set(before))
    flaws = [f"new file: {name}" for name in new]
    return Result(scenario="clean reopen", unit="ms", ours=milliseconds, bar=REOPEN_BAR, flaws=flaws)
