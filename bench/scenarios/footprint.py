"""The rows about the space of an entry besides its payload: in the index, and in memory until its checkpoint.

The bytes that are written to the disk for an entry are in the row of sustained adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contest.contender_process import Contender
from contest.contest import Scenario
from contest.result import Bar, Figure, Sense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contest.contender_process import ContenderProcess
    from contest.result import Figures
    from contest.run_size import RunSize

INDEXED = Figure("index_by_entry", "B", Sense.LESS)
TRACED = Figure("memory_by_entry", "B", Sense.LESS)
RESIDENT = Figure("resident_by_entry", "B", Sense.LESS)
_SIZE = 100
_LEDGERS = 100
_BATCH = 500


def scenarios(run_size: RunSize) -> Sequence[Scenario]:
    """Return both rows. One round is enough, because no time is measured."""
    return [_index(run_size), _memtable(run_size)]


def _index(run_size: RunSize) -> Scenario:
    def turn(process: ContenderProcess) -> Figures:
        figures: Figures = process.ask("index", entries=run_size.indexed, run=run_size.indexed_run)
        return figures

    return Scenario(
        name="index-size",
        title=f"index of {run_size.indexed:,} entries in runs of {run_size.indexed_run}",
        contenders=[_ours(run_size)],
        turn=turn,
        bars=(Bar(label="bytes an entry", figure=INDEXED, floor=20),),
        rounds=1,
        warm_up=0,
        work={"entries": run_size.indexed, "ledgers": _LEDGERS, "run": run_size.indexed_run},
    )


def _memtable(run_size: RunSize) -> Scenario:
    """As many entries as one memtable holds.

    Each figure needs a process of its own, because it affects the other.
    """

    def turn(process: ContenderProcess) -> Figures:
        traced = process.ask("traced", entries=run_size.kept, run=_BATCH)
        process.stop()
        resident = process.ask("resident", entries=run_size.kept, run=_BATCH)
        process.stop()
        return {**traced, **resident}

    return Scenario(
        name="memtable-size",
        title=f"memory of {run_size.kept:,} entries of {_SIZE} B, above their payloads",
        contenders=[_ours(run_size)],
        turn=turn,
        bars=(
            Bar(label="bytes an entry", figure=TRACED, floor=90, aim=60),
            Bar(label="bytes an entry, as the system counts", figure=RESIDENT),
        ),
        rounds=1,
        warm_up=0,
        work={"entries": run_size.kept, "ledgers": _LEDGERS, "batch": _BATCH, "size": _SIZE},
    )


def _ours(run_size: RunSize) -> Contender:
    settings = {"size": _SIZE, "ledgers": _LEDGERS, "seed": run_size.seed}
    return Contender(name="ours", make="contenders.footprint_contender:FootprintContender", settings=settings)
