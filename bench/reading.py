"""The rows about reading: one by one, all in order, and the newest. The contenders are in `readers.py`.

A hundred ledgers are filled and closed, and opened again in a fresh process: nothing is read from the tables
of an add. The round for warming up brings everything into the cache of the system.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import peers
import raw_scan
from contest import Scenario
from player import Contender
from readers import NEWEST
from result import Bar, Figure, Sense
from work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contest import Turn
    from effort import Effort
    from player import Player
    from result import Figures

PEERS = {
    "plyvel": "readers:LevelDbReader",
    "rocksdict": "readers:RocksDbReader",
    "sqlite3": "readers:SqliteReader",
    "lmdb": "readers:LmdbReader",
}
UNVERIFIED = "lmdb"
VERIFIED = ("plyvel", "rocksdict", "sqlite3")
"""Not that SQLite verifies anything: it is no reason for a lower bar."""
LANES = "raw, three sums at once"
US = Figure("us", "µs", Sense.LESS)
_KIB = 1 << 10
_LEDGERS = 100
_BATCHES = (500, 100, 10)


def scenarios(effort: Effort) -> Sequence[Scenario]:
    """All rows about reading."""
    return [
        _random(effort),
        _random_small(effort),
        _in_order(effort),
        _in_order_small(effort),
        _newest(effort),
    ]


def _random(effort: Effort) -> Scenario:
    return replace(
        _row(effort, _KIB, partial(_one_by_one, effort=effort)),
        name="read-random-1k",
        title="read, 1 KB, random, verified, warm",
        bars=(
            Bar(label="÷ best peer that verifies", against=VERIFIED, floor=0.9, aim=1.2),
            Bar(label="÷ LMDB, which verifies nothing", against=(UNVERIFIED,), floor=0.5, aim=0.8),
        ),
    )


def _random_small(effort: Effort) -> Scenario:
    return replace(
        _row(effort, 100, partial(_one_by_one, effort=effort)),
        name="read-random-100b",
        title="read, 100 B, random, verified, warm",
        bars=(
            Bar(label="÷ best peer that verifies", against=VERIFIED),
            Bar(label="÷ LMDB", against=(UNVERIFIED,)),
        ),
        rounds=effort.told_rounds,
    )


def _in_order(effort: Effort) -> Scenario:
    return _with_raw(
        replace(
            _row(effort, _KIB, partial(_scan, effort=effort)),
            name="payloads-1k",
            title="payloads, 1 KB, sequential, verified",
            bars=(
                Bar(label="÷ raw", against=("raw",), floor=0.5),
                Bar(label=f"÷ {LANES}", against=(LANES,)),
                Bar(label="÷ best peer", against=tuple(PEERS), floor=1.0, aim=1.3),
            ),
        )
    )


def _in_order_small(effort: Effort) -> Scenario:
    return _with_raw(
        replace(
            _row(effort, 100, partial(_scan, effort=effort)),
            name="payloads-100b",
            title="payloads, 100 B, sequential, verified",
            bars=(
                Bar(label="÷ raw", against=("raw",)),
                Bar(label="÷ best peer", against=tuple(PEERS), floor=0.8, aim=1.1),
            ),
        )
    )


def _newest(effort: Effort) -> Scenario:
    """Each has been added just now. The same few are read in turn, again and again."""
    return replace(
        _row(effort, _KIB, partial(_read_newest, effort=effort)),
        name="read-newest",
        title=f"read of the newest entry, {NEWEST} ledgers in turn",
        bars=(
            Bar(label="µs a call", figure=US, floor=1, aim=0.5),
            Bar(label="÷ best peer", against=tuple(PEERS), floor=1.5, aim=3),
        ),
    )


def _row(effort: Effort, size: int, turn: Turn) -> Scenario:
    """What all have in common: a hundred ledgers, given a batch each in turn."""
    batch = next(count for count in _BATCHES if effort.filled % count == 0)
    work = Work(size=size, batch=batch, ledgers=_LEDGERS, seed=effort.seed)
    return Scenario(
        name="",
        title="",
        contenders=[_ours(work), *(_peer(name, work) for name in PEERS)],
        begin=partial(_fill, entries=effort.filled),
        turn=turn,
        rounds=effort.rounds,
        warm_up=effort.warm_up,
        work={**work.settings(), "entries": effort.filled},
    )


def _with_raw(row: Scenario) -> Scenario:
    work = Work(**{name: value for name, value in row.work.items() if name != "entries"})  # type: ignore[arg-type]
    raws = [_raw("raw", 1, work), _raw(LANES, 3, work)]
    return replace(row, contenders=[*row.contenders, *raws])


def _ours(work: Work) -> Contender:
    settings = {"kind": "default", "journal_size": 0, **work.settings()}
    return Contender(name="ours", make="readers:OurReader", settings=settings)


def _peer(name: str, work: Work) -> Contender:
    return Contender(name=name, make=PEERS[name], settings=work.settings(), package=peers.PACKAGES[name])


def _raw(name: str, lanes: int, work: Work) -> Contender:
    settings = {"lanes": lanes, **work.settings()}
    return Contender(name=name, make="raw_scan:RawScan", settings=settings, cannot=raw_scan.why_not())


# ── what a contender does ────────────────────────────────────────────────────────────────────────────────


def _fill(player: Player, entries: int) -> Figures:
    player.ask("fill", entries=entries)
    player.ask("settle")
    player.stop()
    return {}


def _one_by_one(player: Player, effort: Effort) -> Figures:
    return _at_rest(player, player.ask("one_by_one", entries=effort.filled, count=effort.read))


def _scan(player: Player, effort: Effort) -> Figures:
    return _at_rest(player, player.ask("scan", entries=effort.filled))


def _read_newest(player: Player, effort: Effort) -> Figures:
    return _at_rest(player, player.ask("newest", entries=effort.filled, count=effort.newest))


def _at_rest(player: Player, figures: Figures) -> Figures:
    player.ask("settle")
    return figures
