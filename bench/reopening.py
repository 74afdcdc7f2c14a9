"""Opening, each time in a fresh process: after a crash, and when there is nothing to do."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from contest import Scenario
from player import Contender, Failed
from result import Bar, Figure, Sense
from scratch import crashed_again, listing

from storage import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from effort import Effort
    from player import Player
    from result import Figures

_MIB = 1 << 20
REPLAY = Figure("mb_per_s", "MB/s")
GROWN = Figure("grown", "MiB", Sense.LESS)
OPENED = Figure("ms", "ms", Sense.LESS)
MEMORY_MAX = 2 * StoreConfig().memtable_size_max / _MIB + 64
_OURS = Contender(name="ours", make="opener:Opener")


def scenarios(effort: Effort) -> Sequence[Scenario]:
    """The rows about opening."""
    return [_replay(effort), _replay_memory(effort), _reopen(effort)]


def _replay(effort: Effort) -> Scenario:
    """Journals that hold what two full tables held; the checkpoint on the way is timed with it."""

    def begin(player: Player) -> Figures:
        return _leave_crashed(player, effort.replayed)

    return Scenario(
        name="replay",
        title="replay of journals, 1 KB",
        contenders=[_OURS],
        begin=begin,
        turn=_open_again,
        bars=[Bar(label="MB in a second", figure=REPLAY, floor=200)],
        rounds=effort.openings,
        warm_up=effort.warm_up,
        work={"size": effort.replayed},
    )


def _replay_memory(effort: Effort) -> Scenario:
    """A long replay takes as much memory as two tables, however long it is."""
    size = effort.replayed_for_memory

    def turn(player: Player) -> Figures:
        _open_fresh(player, "empty")
        empty = _open_fresh(player, "empty")
        found = _open_fresh(player, "store")
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


def _reopen(effort: Effort) -> Scenario:
    """A store that was closed and is opened again without an add: quickly, and without a trace."""

    def begin(player: Player) -> Figures:
        player.ask("make", name="store", batches=effort.opened_batches)
        player.stop()
        return {}

    def turn(player: Player) -> Figures:
        before = listing(player.place / "store")
        found = _open_fresh(player, "store")
        new = sorted(set(listing(player.place / "store")) - set(before))
        if new:
            raise Failed(f"opening has left new files: {', '.join(new)}")
        return found

    return Scenario(
        name="reopen",
        title="opening after a clean close",
        contenders=[_OURS],
        begin=begin,
        turn=turn,
        bars=[Bar(label="ms", figure=OPENED, floor=50)],
        rounds=effort.openings,
        warm_up=effort.warm_up,
        work={"batches": effort.opened_batches},
    )


def _leave_crashed(player: Player, size: int) -> Figures:
    player.ask("fill", name="store", size=size)
    player.kill()
    return {}


def _open_again(player: Player) -> Figures:
    again = crashed_again(player.place / "store", player.place / "again")
    found = _open_fresh(player, again.name)
    shutil.rmtree(again)
    return found


def _open_fresh(player: Player, name: str) -> Figures:
    found: Figures = player.ask("open", name=name)
    player.stop()
    return found
