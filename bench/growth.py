"""The rows about size: what an add, a read and an opening cost as one store grows, from row to row.

Each row lets the store grow to its size and closes it. Every round takes a copy (entry logs and journals are
links), opens that in a fresh process, reads at random, and adds. What a window of adds costs has all of its
checkpoints in it: it begins with nothing to do, and ends when all is in entry logs and index. At the largest
size every round measures a store of the smallest one as well, grown in the same way, and the raw file is
given the same bytes: the slow phases of machine and disk are those of all.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import adding
from contest import Point, Scenario
from player import Contender
from result import Bar, Figure, Sense
from scratch import copied
from work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from effort import Effort
    from player import Player
    from result import Figures

ADD = Figure("us_per_add", "µs", Sense.LESS)
READ = Figure("us_per_read", "µs", Sense.LESS)
OPENED = Figure("ms", "ms", Sense.LESS)
AXIS = "entries"
SMALL = "ours, small"
FLAT = round(1 / 1.15, 2)
"""At the largest size an add costs 15 % more at most: so the smallest is this many times as dear at least."""
OPENED_MAX_MS = 500
_ADD_TOLD = Bar(label="µs an add", figure=ADD)
_READ_TOLD = Bar(label="µs a read", figure=READ)
_OPENED_TOLD = Bar(label="ms to open", figure=OPENED)
_LEFT_ALONE = ("*.txn", "ledgers/*/*.log")
"""A store that was closed begins new journals and logs when it is opened."""
_AMPLE_S = 600.0
_US = 1e6


def scenarios(effort: Effort) -> Sequence[Scenario]:
    """One for each size. Of the largest something is asked."""
    *smaller, largest = effort.grown
    return [*(_row(effort, size) for size in smaller), _largest(effort, largest)]


def _row(effort: Effort, size: int) -> Scenario:
    work = _work(effort)
    return Scenario(
        name=f"growth-{size}",
        title=f"a store of {size:,} entries, 100 B",
        contenders=[_ours("ours", size, work), adding.raw_file(work, effort)],
        begin=_grow,
        turn=partial(_measure, effort=effort),
        bars=(_ADD_TOLD, _READ_TOLD, _OPENED_TOLD),
        rounds=effort.told_rounds,
        warm_up=0,
        work={**work.settings(), "entries": size, "added": effort.grown_window},
        points=(Point(AXIS, size),),
    )


def _largest(effort: Effort, size: int) -> Scenario:
    made, smallest = _row(effort, size), effort.grown[0]
    flat = Bar(label="an add ÷ in a small store", figure=ADD, against=(SMALL,), floor=FLAT)
    return replace(
        made,
        name="growth",
        contenders=[*made.contenders, _ours(SMALL, smallest, _work(effort))],
        bars=(
            *(_ADD_TOLD, _READ_TOLD, replace(_OPENED_TOLD, floor=OPENED_MAX_MS)),
            *(flat, replace(flat, label="a read ÷ in a small store", figure=READ, floor=None)),
        ),
        rounds=effort.rounds,
        end=_clear,
    )


def _work(effort: Effort) -> Work:
    return Work(size=100, batch=1000, ledgers=100, seed=effort.seed)


def _ours(name: str, entries: int, work: Work) -> Contender:
    return Contender(name=name, make="grower:Grower", settings={"entries": entries, **work.settings()})


# ── what a contender does ────────────────────────────────────────────────────────────────────────────────


def _store(player: Player) -> Path:
    """Ours stays where it is from row to row."""
    return (player.place if player.name == SMALL else player.place.parent.parent) / "grown"


def _grow(player: Player) -> Figures:
    if player.name != "raw":
        player.ask("grow", path=str(_store(player)))
        player.stop()
    return {}


def _measure(player: Player, effort: Effort) -> Figures:
    if player.name == "raw":
        return _measure_raw(player, effort)
    again = copied(_store(player), player.place / "again", *_LEFT_ALONE)
    opened = player.ask("open", name=again.name)
    read = player.ask("read", count=effort.grown_reads)
    added = player.ask("add", entries=effort.grown_window)
    player.stop()
    shutil.rmtree(again)
    return {**opened, **read, **added}


def _measure_raw(player: Player, effort: Effort) -> Figures:
    calls = effort.grown_window // _work(effort).batch
    figures: Figures = player.ask("add", seconds=_AMPLE_S, calls=calls)
    return {**figures, ADD.name: figures["seconds"] / figures["count"] * _US}


def _clear(player: Player) -> Figures:
    if _store(player).exists():
        shutil.rmtree(_store(player))
    return {}
