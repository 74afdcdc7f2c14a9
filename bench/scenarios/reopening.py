"""The rows about opening our store in a fresh process: after a crash, and after a clean close."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from contest.contender_process import Contender, ContenderFailed
from contest.contest import Scenario
from contest.result import Bar, Figure, Sense
from contest.scratch_directory import copy_crashed, listing

from storage import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contest.contender_process import ContenderProcess
    from contest.result import Figures
    from contest.run_size import RunSize

_MIB = 1 << 20
REPLAY = Figure("mb_per_s", "MB/s")
GROWN = Figure("grown", "MiB", Sense.LESS)
OPENED = Figure("ms", "ms", Sense.LESS)
MEMORY_MAX = 2 * StoreConfig().memtable_size_max / _MIB + 64
_OURS = Contender(name="ours", make="contenders.reopening_contender:ReopeningContender")


def scenarios(run_size: RunSize) -> Sequence[Scenario]:
    """Return the rows about opening."""
    return [_replay(run_size), _replay_memory(run_size), _reopen(run_size)]


def _replay(run_size: RunSize) -> Scenario:
    """Replay of journals with the entries of two full memtables.

    The checkpoint during replay is timed, too.
    """

    def begin(process: ContenderProcess) -> Figures:
        return _leave_crashed(process, run_size.replayed)

    return Scenario(
        name="replay",
        title="replay of journals, 1 KB",
        contenders=[_OURS],
        begin=begin,
        turn=_open_again,
        bars=[Bar(label="MB in a second", figure=REPLAY, floor=200)],
        rounds=run_size.openings,
        warm_up=run_size.warm_up,
        work={"size": run_size.replayed},
    )


def _replay_memory(run_size: RunSize) -> Scenario:
    """A replay takes as much memory as two memtables, regardless of the size of the journals."""
    size = run_size.replayed_for_memory

    def turn(process: ContenderProcess) -> Figures:
        _open_fresh(process, "empty")
        empty = _open_fresh(process, "empty")
        found = _open_fresh(process, "store")
        return {"grown": (found["peak_memory"] - empty["peak_memory"]) / _MIB, "replayed": found["replayed"]}

    return Scenario(
        name="memory",
        title=f"memory to replay {size / (1 << 30):.2f} GiB",
        contenders=[_OURS],
        begin=partial(_leave_crashed, size=size),
        turn=turn,
        bars=[Bar(label="MiB more than for nothing", figure=GROWN, floor=MEMORY_MAX)],
        rounds=1,
        warm_up=0,
        work={"size": size},
    )


def _reopen(run_size: RunSize) -> Scenario:
    """Opening a closed store without an add. It must leave no new files."""

    def begin(process: ContenderProcess) -> Figures:
        process.ask("make", name="store", batches=run_size.opened_batches)
        process.stop()
        return {}

    def turn(process: ContenderProcess) -> Figures:
        before = listing(process.place / "store")
        found = _open_fresh(process, "store")
        new = sorted(set(listing(process.place / "store")) - set(before))
        if new:
            raise ContenderFailed(f"the opening left new files: {', '.join(new)}")
        return found

    return Scenario(
        name="reopen",
        title="opening after a clean close",
        contenders=[_OURS],
        begin=begin,
        turn=turn,
        bars=[Bar(label="ms", figure=OPENED, floor=50)],
        rounds=run_size.openings,
        warm_up=run_size.warm_up,
        work={"batches": run_size.opened_batches},
    )


def _leave_crashed(process: ContenderProcess, size: int) -> Figures:
    process.ask("fill", name="store", size=size)
    process.kill()
    return {}


def _open_again(process: ContenderProcess) -> Figures:
    again = copy_crashed(process.place / "store", process.place / "again")
    found = _open_fresh(process, again.name)
    shutil.rmtree(again)
    return found


def _open_fresh(process: ContenderProcess, name: str) -> Figures:
    found: Figures = process.ask("open", name=name)
    process.stop()
    return found
