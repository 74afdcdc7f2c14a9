"""The rows about what an entry takes beside its payload: in the index, and in memory until its checkpoint.

What it takes on its way to the disk is in the row of the sustained adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contest import Scenario
from player import Contender
from result import Bar, Figure, Sense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from effort import Effort
    from player import Player
    from result import Figures

INDEXED = Figure("index_by_entry", "B", Sense.LESS)
TRACED = Figure("memory_by_entry", "B", Sense.LESS)
RESIDENT = Figure("resident_by_entry", "B", Sense.LESS)
_SIZE = 100
_LEDGERS = 100
_BATCH = 500


def scenarios(effort: Effort) -> Sequence[Scenario]:
    """Nothing is timed, so that once is enough."""
    return [_index(effort), _memtable(effort)]


def _index(effort: Effort) -> Scenario:
    def turn(player: Player) -> Figures:
        figures: Figures = player.ask("index", entries=effort.indexed, run=effort.indexed_run)
        return figures

    return Scenario(
        name="index-size",
        title=f"index of {effort.indexed:,} entries in runs of {effort.indexed_run}",
        contenders=[_ours(effort)],
        turn=turn,
        bars=(Bar(label="bytes an entry", figure=INDEXED, floor=20),),
        rounds=1,
        warm_up=0,
        work={"entries": effort.indexed, "ledgers": _LEDGERS, "run": effort.indexed_run},
    )


def _memtable(effort: Effort) -> Scenario:
    """As much as goes into one table; each figure in a process of its own, as each changes the other."""

    def turn(player: Player) -> Figures:
        traced = player.ask("traced", entries=effort.kept, run=_BATCH)
        player.stop()
        resident = player.ask("resident", entries=effort.kept, run=_BATCH)
        player.stop()
        return {**traced, **resident}

    return Scenario(
        name="memtable-size",
        title=f"memory of {effort.kept:,} entries of {_SIZE} B, above their payloads",
        contenders=[_ours(effort)],
        turn=turn,
        bars=(
            Bar(label="bytes an entry", figure=TRACED, floor=90, aim=60),
            Bar(label="bytes an entry, as the system counts", figure=RESIDENT),
        ),
        rounds=1,
        warm_up=0,
        work={"entries": effort.kept, "ledgers": _LEDGERS, "batch": _BATCH, "size": _SIZE},
    )


def _ours(effort: Effort) -> Contender:
    settings = {"size": _SIZE, "ledgers": _LEDGERS, "seed": effort.seed}
    return Contender(name="ours", make="weigher:Weigher", settings=settings)
