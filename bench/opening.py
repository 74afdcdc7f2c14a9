"""The row about opening what a crash has left, ours and the peers': the contenders are in `crashing.py`.

Each is killed behind durable adds, and every round opens the same files again, in a fresh process and with
all of them in the cache of the system. All have as much in their journals: ours is kept from checkpoints
until it is killed, and so are they. SQLite as it comes keeps 4 MB there: that is told, and has no bar.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import peers
from contest import Scenario
from player import Contender
from result import Bar, Figure, Sense
from scratch import copied
from work import Work

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from effort import Effort
    from player import Player
    from result import Figures

OPENED = Figure("ms", "ms", Sense.LESS)
FULL_WAL = "sqlite3 without checkpoints"
_AS_MUCH = ("plyvel", "rocksdict", FULL_WAL)
_LARGE = {"write_buffer": 1 << 30}
_MB = 1e6
_LEFT, _AGAIN = "left", "again"


@dataclass(frozen=True, slots=True)
class _Kind:
    adder: str
    journals: str
    """The names of its journal files. No opening writes to those that are there: links to them will do."""
    filled: Mapping[str, Any]
    opened: Mapping[str, Any]


_KINDS = {
    "ours": _Kind(
        "ours",
        "*.txn",
        {"kind": "no-checkpoints", "journal_size": 0},
        {"kind": "default", "journal_size": 0},
    ),
    "plyvel": _Kind("plyvel", "*.log", _LARGE, _LARGE),
    "rocksdict": _Kind("rocksdict", "*.log", _LARGE, _LARGE),
    FULL_WAL: _Kind("sqlite3", "*-wal", {"autocheckpoint": 0}, {"autocheckpoint": 0}),
    "sqlite3": _Kind("sqlite3", "*-wal", {}, {}),
}


def scenarios(effort: Effort) -> Sequence[Scenario]:
    """The row about opening after a crash, in the same words for everybody."""
    work = Work(size=1 << 10, batch=64, ledgers=100, seed=effort.seed)
    return [
        Scenario(
            name="open-crashed",
            title=f"open after SIGKILL, {effort.crashed / _MB:.0f} MB in the journal, 1 KB",
            contenders=[_contender(name, work) for name in _KINDS],
            begin=partial(_crash, calls=work.calls(effort.crashed)),
            turn=_open_again,
            bars=(
                Bar(label="÷ fastest peer", figure=OPENED, against=_AS_MUCH, floor=1.0, aim=1.5),
                Bar(label="÷ LevelDB, RocksDB", figure=OPENED, against=_AS_MUCH[:2]),
                Bar(label=f"÷ {FULL_WAL}", figure=OPENED, against=(FULL_WAL,)),
                Bar(label="÷ sqlite3, which keeps 4 MB there", figure=OPENED, against=("sqlite3",)),
            ),
            rounds=effort.openings,
            warm_up=0,  # what is cold in the first round is so for everybody, and one of many
            work={**work.settings(), "size in journals": effort.crashed},
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
    return Contender(name=name, make="crashing:Crashing", settings=settings, package=package)


def _crash(player: Player, calls: int) -> Figures:
    player.ask("leave", name=_LEFT, calls=calls)
    player.kill()
    return {}


def _open_again(player: Player) -> Figures:
    journals = _KINDS[player.name].journals
    again = copied(player.place / _LEFT, player.place / _AGAIN, journals)
    in_journals = sum(path.stat().st_size for path in again.rglob(journals))
    found: Figures = player.ask("open", name=_AGAIN)
    player.kill()  # whatever it has still to do is not asked for: the next round opens another copy
    shutil.rmtree(again)
    return {**found, "in_journals": in_journals}
