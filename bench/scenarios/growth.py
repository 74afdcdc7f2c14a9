"""The rows about size: the cost of an add, of a read and of an opening while one store grows from row to row.

Each row lets the store grow to its size and closes it. Every round opens a copy in a fresh process, reads at
random, and adds; entry logs and journals of the copy are hard links. The cost of a window of adds includes
all of its checkpoints: the window begins when no background work is left, and ends when all entries are in
entry logs and index. At the largest size every round also measures a store of the smallest size that has
grown in the same way, and the raw file adds the same bytes, so that slow phases of machine and disk affect
all of them.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from contest.contender_process import Contender
from contest.contest import CurvePoint, Scenario
from contest.result import Bar, Figure, Sense
from contest.scratch_directory import copy_synced
from contest.workload import Work

from scenarios import adding

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from contest.contender_process import ContenderProcess
    from contest.result import Figures
    from contest.run_size import RunSize

ADD = Figure("us_per_add", "µs", Sense.LESS)
READ = Figure("us_per_read", "µs", Sense.LESS)
OPENED = Figure("ms", "ms", Sense.LESS)
AXIS = "entries"
SMALL = "ours, small"
FLAT = round(1 / 1.15, 2)
"""The floor of the ratio small ÷ large: at the largest size an add costs at most 15 % more."""
OPENED_MAX_MS = 500
_ADD_TOLD = Bar(label="µs an add", figure=ADD)
_READ_TOLD = Bar(label="µs a read", figure=READ)
_OPENED_TOLD = Bar(label="ms to open", figure=OPENED)
_UNCHANGED = ("*.txn", "ledgers/*/*.log")
"""Files that an opening does not change, because it begins new journals and logs."""
_AMPLE_S = 600.0
_US = 1e6


def scenarios(run_size: RunSize) -> Sequence[Scenario]:
    """Return one row for each size. The largest has floors."""
    *smaller, largest = run_size.grown
    return [*(_row(run_size, size) for size in smaller), _largest(run_size, largest)]


def _row(run_size: RunSize, size: int) -> Scenario:
    work = _work(run_size)
    return Scenario(
        name=f"growth-{size}",
        title=f"a store of {size:,} entries, 100 B",
        contenders=[_ours("ours", size, work), adding.raw_file(work, run_size)],
        begin=_grow,
        turn=partial(_measure, run_size=run_size),
        bars=(_ADD_TOLD, _READ_TOLD, _OPENED_TOLD),
        rounds=run_size.rounds_without_floor,
        warm_up=0,
        work={**work.settings(), "entries": size, "added": run_size.grown_window},
        points=(CurvePoint(AXIS, size),),
    )


def _largest(run_size: RunSize, size: int) -> Scenario:
    made, smallest = _row(run_size, size), run_size.grown[0]
    flat = Bar(label="an add ÷ in a small store", figure=ADD, against=(SMALL,), floor=FLAT)
    return replace(
        made,
        name="growth",
        contenders=[*made.contenders, _ours(SMALL, smallest, _work(run_size))],
        bars=(
            *(_ADD_TOLD, _READ_TOLD, replace(_OPENED_TOLD, floor=OPENED_MAX_MS)),
            *(flat, replace(flat, label="a read ÷ in a small store", figure=READ, floor=None)),
        ),
        rounds=run_size.rounds,
        end=_clear,
    )


def _work(run_size: RunSize) -> Work:
    return Work(size=100, batch=1000, ledgers=100, seed=run_size.seed)


def _ours(name: str, entries: int, work: Work) -> Contender:
    return Contender(
        name=name,
        make="contenders.growth_contender:GrowthContender",
        settings={"entries": entries, **work.settings()},
    )


# ── turns ────────────────────────────────────────────────────────────────────────────────────────────────


def _store(process: ContenderProcess) -> Path:
    """Return the directory of a store. Ours is the same in all rows."""
    return (process.place if process.name == SMALL else process.place.parent.parent) / "grown"


def _grow(process: ContenderProcess) -> Figures:
    if process.name != "raw":
        process.ask("grow", path=str(_store(process)))
        process.stop()
    return {}


def _measure(process: ContenderProcess, run_size: RunSize) -> Figures:
    if process.name == "raw":
        return _measure_raw(process, run_size)
    again = copy_synced(_store(process), process.place / "again", *_UNCHANGED)
    opened = process.ask("open", name=again.name)
    read = process.ask("read", count=run_size.grown_reads)
    added = process.ask("add", entries=run_size.grown_window)
    process.stop()
    shutil.rmtree(again)
    return {**opened, **read, **added}


def _measure_raw(process: ContenderProcess, run_size: RunSize) -> Figures:
    calls = run_size.grown_window // _work(run_size).batch
    figures: Figures = process.ask("add", seconds=_AMPLE_S, calls=calls)
    return {**figures, ADD.name: figures["seconds"] / figures["count"] * _US}


def _clear(process: ContenderProcess) -> Figures:
    if _store(process).exists():
        shutil.rmtree(_store(process))
    return {}
