"""The rows about reading: one by one, all in order, and the newest entry. The contenders are in `readers.py`.

A hundred ledgers are filled, closed, and opened again in a fresh process, so that nothing is read from the
memtables of the adds. The warm-up round brings all files into the cache of the system.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from contenders import peers, raw_scan
from contenders.readers import NEWEST
from contest.contender_process import Contender
from contest.contest import Scenario
from contest.result import Bar, Figure, Sense
from contest.workload import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contest.contender_process import ContenderProcess
    from contest.contest import Turn
    from contest.result import Figures
    from contest.run_size import RunSize

PEERS = {
    "plyvel": "contenders.readers:LevelDbReader",
    "rocksdict": "contenders.readers:RocksDbReader",
    "sqlite3": "contenders.readers:SqliteReader",
    "lmdb": "contenders.readers:LmdbReader",
}
UNVERIFIED = "lmdb"
VERIFIED = ("plyvel", "rocksdict", "sqlite3")
"""SQLite verifies nothing, but that is no reason to leave it out: it can only raise the bar."""
LANES = "raw, three sums at once"
US = Figure("us", "µs", Sense.LESS)
_KIB = 1 << 10
_LEDGERS = 100
_BATCHES = (500, 100, 10)


def scenarios(run_size: RunSize) -> Sequence[Scenario]:
    """Return all rows about reading."""
    return [
        _random(run_size),
        _random_small(run_size),
        _in_order(run_size),
        _in_order_small(run_size),
        _newest(run_size),
    ]


def _random(run_size: RunSize) -> Scenario:
    return replace(
        _row(run_size, _KIB, partial(_one_by_one, run_size=run_size)),
        name="read-random-1k",
        title="read, 1 KB, random, verified, warm",
        bars=(
            Bar(label="÷ best peer that verifies", against=VERIFIED, floor=0.9, aim=1.2),
            Bar(label="÷ LMDB, which verifies nothing", against=(UNVERIFIED,), floor=0.5, aim=0.8),
        ),
    )


def _random_small(run_size: RunSize) -> Scenario:
    return replace(
        _row(run_size, 100, partial(_one_by_one, run_size=run_size)),
        name="read-random-100b",
        title="read, 100 B, random, verified, warm",
        bars=(
            Bar(label="÷ best peer that verifies", against=VERIFIED),
            Bar(label="÷ LMDB", against=(UNVERIFIED,)),
        ),
        rounds=run_size.rounds_without_floor,
    )


def _in_order(run_size: RunSize) -> Scenario:
    return _with_raw(
        replace(
            _row(run_size, _KIB, partial(_scan, run_size=run_size)),
            name="payloads-1k",
            title="payloads, 1 KB, sequential, verified",
            bars=(
                Bar(label="÷ raw", against=("raw",), floor=0.5),
                Bar(label=f"÷ {LANES}", against=(LANES,)),
                Bar(label="÷ best peer", against=tuple(PEERS), floor=1.0, aim=1.3),
            ),
        )
    )


def _in_order_small(run_size: RunSize) -> Scenario:
    return _with_raw(
        replace(
            _row(run_size, 100, partial(_scan, run_size=run_size)),
            name="payloads-100b",
            title="payloads, 100 B, sequential, verified",
            bars=(
                Bar(label="÷ raw", against=("raw",)),
                Bar(label="÷ best peer", against=tuple(PEERS), floor=0.8, aim=1.1),
            ),
        )
    )


def _newest(run_size: RunSize) -> Scenario:
    """Reads of entries that were just added. The same few are read in turn, repeatedly."""
    return replace(
        _row(run_size, _KIB, partial(_read_newest, run_size=run_size)),
        name="read-newest",
        title=f"read of the newest entry, {NEWEST} ledgers in turn",
        bars=(
            Bar(label="µs a call", figure=US, floor=1, aim=0.5),
            Bar(label="÷ best peer", against=tuple(PEERS), floor=1.5, aim=3),
        ),
    )


def _row(run_size: RunSize, size: int, turn: Turn) -> Scenario:
    """Return what all rows share: a hundred ledgers that are filled with batches in turn."""
    batch = next(count for count in _BATCHES if run_size.filled % count == 0)
    work = Work(size=size, batch=batch, ledgers=_LEDGERS, seed=run_size.seed)
    return Scenario(
        name="",
        title="",
        contenders=[_ours(work), *(_peer(name, work) for name in PEERS)],
        begin=partial(_fill, entries=run_size.filled),
        turn=turn,
        rounds=run_size.rounds,
        warm_up=run_size.warm_up,
        work={**work.settings(), "entries": run_size.filled},
    )


def _with_raw(row: Scenario) -> Scenario:
    work = Work(**{name: value for name, value in row.work.items() if name != "entries"})  # type: ignore[arg-type]
    raws = [_raw("raw", 1, work), _raw(LANES, 3, work)]
    return replace(row, contenders=[*row.contenders, *raws])


def _ours(work: Work) -> Contender:
    settings = {"kind": "default", "journal_size": 0, **work.settings()}
    return Contender(name="ours", make="contenders.readers:OurReader", settings=settings)


def _peer(name: str, work: Work) -> Contender:
    return Contender(name=name, make=PEERS[name], settings=work.settings(), package=peers.PACKAGES[name])


def _raw(name: str, lanes: int, work: Work) -> Contender:
    settings = {"lanes": lanes, **work.settings()}
    return Contender(
        name=name, make="contenders.raw_scan:RawScan", settings=settings, cannot=raw_scan.why_unavailable()
    )


# ── turns ────────────────────────────────────────────────────────────────────────────────────────────────


def _fill(process: ContenderProcess, entries: int) -> Figures:
    process.ask("fill", entries=entries)
    process.ask("settle")
    process.stop()
    return {}


def _one_by_one(process: ContenderProcess, run_size: RunSize) -> Figures:
    return _at_rest(process, process.ask("one_by_one", entries=run_size.filled, count=run_size.read))


def _scan(process: ContenderProcess, run_size: RunSize) -> Figures:
    return _at_rest(process, process.ask("scan", entries=run_size.filled))


def _read_newest(process: ContenderProcess, run_size: RunSize) -> Figures:
    return _at_rest(process, process.ask("newest", entries=run_size.filled, count=run_size.newest))


def _at_rest(process: ContenderProcess, figures: Figures) -> Figures:
    process.ask("settle")
    return figures
