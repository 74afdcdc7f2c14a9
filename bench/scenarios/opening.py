"""The row about opening after a crash: our store and the peers. The contenders are in `crash_contenders.py`.

Each is killed after durable adds. Every round opens the same files again, in a fresh process, with all files
in the cache of the system. All have the same amount in their journals, because none makes a checkpoint before
it is killed. SQLite with default settings keeps only 4 MB there; it is reported without a floor.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from contenders import peers
from contest.contender_process import Contender
from contest.contest import Scenario
from contest.result import Bar, Figure, Sense
from contest.scratch_directory import copy_synced
from contest.workload import Work

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contest.contender_process import ContenderProcess
    from contest.result import Figures
    from contest.run_size import RunSize

OPENED = Figure("ms", "ms", Sense.LESS)
FULL_WAL = "sqlite3 without checkpoints"
_AS_MUCH = ("plyvel", "rocksdict", FULL_WAL)
_LARGE = {"write_buffer": 1 << 30}
_MB = 1e6
_LEFT, _AGAIN = "left", "again"


@dataclass(frozen=True, slots=True)
class _OpeningKind:
    adder: str
    journals: str
    """Pattern of its journal files. An opening never writes to old ones, so copies are hard links."""
    filled: Mapping[str, Any]
    opened: Mapping[str, Any]


_KINDS = {
    "ours": _OpeningKind(
        "ours",
        "*.txn",
        {"kind": "no-checkpoints", "journal_size": 0},
        {"kind": "default", "journal_size": 0},
    ),
    "plyvel": _OpeningKind("plyvel", "*.log", _LARGE, _LARGE),
    "rocksdict": _OpeningKind("rocksdict", "*.log", _LARGE, _LARGE),
    FULL_WAL: _OpeningKind("sqlite3", "*-wal", {"autocheckpoint": 0}, {"autocheckpoint": 0}),
    "sqlite3": _OpeningKind("sqlite3", "*-wal", {}, {}),
}


def scenarios(run_size: RunSize) -> Sequence[Scenario]:
    """Return the row about opening after a crash."""
    work = Work(size=1 << 10, batch=64, ledgers=100, seed=run_size.seed)
    return [
        Scenario(
            name="open-crashed",
            title=f"open after SIGKILL, {run_size.crashed / _MB:.0f} MB in the journal, 1 KB",
            contenders=[_contender(name, work) for name in _KINDS],
            begin=partial(_crash, calls=work.calls(run_size.crashed)),
            turn=_open_again,
            bars=(
                Bar(label="÷ fastest peer", figure=OPENED, against=_AS_MUCH, floor=1.0, aim=1.5),
                Bar(label="÷ LevelDB, RocksDB", figure=OPENED, against=_AS_MUCH[:2]),
                Bar(label=f"÷ {FULL_WAL}", figure=OPENED, against=(FULL_WAL,)),
                Bar(label="÷ sqlite3, which keeps 4 MB there", figure=OPENED, against=("sqlite3",)),
            ),
            rounds=run_size.openings,
            warm_up=0,  # a cold first round affects all contenders, and is one of many
            work={**work.settings(), "size in journals": run_size.crashed},
        )
    ]


def _contender(name: str, work: Work) -> Contender:
    kind = _KINDS[name]
    settings = {
        "adder": kind.adder,
        "filled": kind.filled,
        "opened": kind.opened,
        **work.settings(),
    }
    package = peers.PACKAGES.get(kind.adder, "")
    return Contender(
        name=name, make="contenders.crash_contenders:CrashContender", settings=settings, package=package
    )


def _crash(process: ContenderProcess, calls: int) -> Figures:
    process.ask("leave", name=_LEFT, calls=calls)
    process.kill()
    return {}


def _open_again(process: ContenderProcess) -> Figures:
    journals = _KINDS[process.name].journals
    again = copy_synced(process.place / _LEFT, process.place / _AGAIN, journals)
    in_journals = sum(path.stat().st_size for path in again.rglob(journals))
    found: Figures = process.ask("open", name=_AGAIN)
    process.kill()  # its background work is not needed, because the next round opens another copy
    shutil.rmtree(again)
    return {**found, "in_journals": in_journals}
