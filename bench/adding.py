"""The rows about adds: our store, the raw limit and the peers with the same work, each add synced.

The contenders are in `our_store.py`, `raw.py` and `peers.py`: every setting of a peer is there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import peers
import raw
from contest import Point, Scenario
from player import Contender
from result import Bar, Figure, Sense
from spending import disk_written
from work import Work

if TYPE_CHECKING:
    from effort import Effort
    from player import Player
    from result import Figures

PEERS = {
    "plyvel": "peers:LevelDb",
    "rocksdict": "peers:RocksDb",
    "sqlite3": "peers:Sqlite",
    "lmdb": "peers:Lmdb",
}
EVERY_PEER = tuple(PEERS)
ASYNC = "ours, asynchronous"
FUTEX = "raw, futex"
PLYVEL_BATCHES = "plyvel, batches"
NO_CHECKPOINTS = "ours without checkpoints"
SLOWEST_TO_USUAL = Figure("p999_by_p50", "× p50", Sense.LESS)
WRITTEN = Figure("written_by_added", "B/B", Sense.LESS)
ON_DISK = Figure("on_disk_by_added", "B/B", Sense.LESS)
_KIB = 1 << 10
_ONE_CPU = "the row is about one CPU"


def scenarios(effort: Effort) -> list[Scenario]:
    """All rows about adds, in the order of the table."""
    return [
        *_one_writer(effort),
        *_writers(effort),
        _on_one_cpu(effort),
        *_batches(effort),
        _sustained(effort),
    ]


# ── who takes part ───────────────────────────────────────────────────────────────────────────────────────


def ours(work: Work, effort: Effort, kind: str = "journals-only", name: str = "ours") -> Contender:
    settings = {"kind": kind, "journal_size": effort.raw_size, **work.settings()}
    return Contender(name=name, make="our_store:Ours", settings=settings)


def ours_async(work: Work, effort: Effort) -> Contender:
    settings = {"kind": "journals-only", "journal_size": effort.raw_size, **work.settings()}
    return Contender(name=ASYNC, make="our_store:OursAsync", settings=settings)


def raw_file(work: Work, effort: Effort) -> Contender:
    settings = {"file_size": effort.raw_size, **work.settings()}
    return Contender(name="raw", make="raw:RawFile", settings=settings, cannot=raw.why_not())


def raw_futex(work: Work, effort: Effort) -> Contender:
    """The same, with threads that are woken as cheaply as can be: only to be told."""
    made = raw_file(work, effort)
    return replace(made, name=FUTEX, settings={**made.settings, "futex": 1})


def peer(name: str, work: Work) -> Contender:
    package = peers.PACKAGES[name]
    return Contender(name=name, make=PEERS[name], settings=work.settings(), package=package)


def _everybody(work: Work, effort: Effort) -> list[Contender]:
    raws = [raw_file(work, effort), *([raw_futex(work, effort)] if work.writers > 1 else [])]
    return [ours(work, effort), *raws, *(peer(name, work) for name in PEERS)]


# ── the rows ─────────────────────────────────────────────────────────────────────────────────────────────


def _against_raw(floor: float | None, aim: float | None) -> Bar:
    return Bar(label="÷ raw", against=("raw",), floor=floor, aim=aim)


def _against_peers(floor: float | None, aim: float | None) -> Bar:
    return Bar(label="÷ best peer", against=EVERY_PEER, floor=floor, aim=aim)


def _against_futex() -> Bar:
    return Bar(label="÷ raw, futex", against=(FUTEX,))


def _one_writer(effort: Effort) -> list[Scenario]:
    kilobyte = _row(effort, "add-1k", "add, 1 writer, 1 KB", Work(size=_KIB), (0.85, 0.92), (1.2, 1.35))
    everybody = [*kilobyte.contenders, ours_async(Work(size=_KIB, seed=effort.seed), effort)]
    return [
        replace(kilobyte, contenders=everybody, points=(_point(1),)),
        _row(effort, "add-64k", "add, 1 writer, 64 KB", Work(size=64 * _KIB), (0.75, 0.85), (1.4, 1.8)),
        _row(effort, "add-100b", "add, 1 writer, 100 B", Work(size=100), None, None),
    ]


def _writers(effort: Effort) -> list[Scenario]:
    """Several at once: of eight and of sixty-four something is asked, the others are points of a curve."""
    counts = [count for count in effort.concurrency if count > 1]
    made = {8: _eight, 64: _sixty_four}
    return [made[count](effort) if count in made else _curve_point(effort, count) for count in counts]


def _curve_point(effort: Effort, writers: int) -> Scenario:
    work = Work(size=_KIB, writers=writers, seed=effort.seed)
    return Scenario(
        name=f"add-{writers}-writers",
        title=f"add, {writers} writers, 1 KB",
        contenders=[*_everybody(work, effort), ours_async(work, effort)],
        turn=partial(_add, effort=effort, work=work),
        rounds=effort.told_rounds,
        warm_up=effort.warm_up,
        work=work.settings(),
        points=(_point(writers),),
    )


def _eight(effort: Effort) -> Scenario:
    return replace(
        _curve_point(effort, 8),
        title="add, 8 blocking threads, 1 KB",
        rounds=effort.rounds,
        bars=(_against_raw(0.70, 0.85), _against_futex(), _against_peers(1.2, 1.5)),
    )


def _sixty_four(effort: Effort) -> Scenario:
    """The asynchronous ones against raw threads, the peers' threads, and one peer that is handed batches."""
    made = _curve_point(effort, 64)
    batches = Work(size=_KIB, batch=64, seed=effort.seed)
    in_batches = replace(peer("plyvel", batches), name=PLYVEL_BATCHES)
    awaited = replace(_against_raw(2, 3.5), subject=ASYNC, title="add, 64 asynchronous writers, 1 KB")
    return replace(
        made,
        title="add, 64 blocking threads, 1 KB",
        contenders=[*made.contenders, in_batches],
        rounds=effort.rounds,
        bars=(
            awaited,
            replace(awaited, label="÷ raw, futex", against=(FUTEX,), floor=None, aim=None),
            replace(awaited, label="÷ best peer", against=EVERY_PEER, floor=2.5, aim=4),
            replace(awaited, label="÷ plyvel batches of 64", against=(PLYVEL_BATCHES,), floor=0.9, aim=None),
            _against_raw(None, None),
            _against_futex(),
            _against_peers(None, None),
        ),
    )


def _on_one_cpu(effort: Effort) -> Scenario:
    work = Work(size=_KIB, writers=64, seed=effort.seed)
    title = "add, 64 blocking threads, 1 KB, on one CPU"
    made = _row(effort, "add-64-writers-one-cpu", title, work, (0.75, 0.9), (1.0, 1.15))
    contenders = [replace(one, one_cpu=_ONE_CPU) for one in made.contenders]
    of_raw, of_peer = made.bars
    return replace(made, contenders=contenders, bars=(of_raw, _against_futex(), of_peer))


def _batches(effort: Effort) -> list[Scenario]:
    def batch(count: int, size: int) -> Work:
        return Work(size=size, batch=count)

    return [
        _row(effort, "batch-64-1k", "batch 64 × 1 KB", batch(64, _KIB), (0.65, 0.8), (1.8, 2.3)),
        _row(effort, "batch-1000-1k", "batch 1,000 × 1 KB", batch(1000, _KIB), (0.45, 0.6), (1.5, 2)),
        _row(effort, "batch-1000-100b", "batch 1,000 × 100 B", batch(1000, 100), (0.27, 0.38), (0.9, 1.2)),
        _row(effort, "batch-64-64k", "batch 64 × 64 KB", batch(64, 64 * _KIB), None, None),
    ]


def _row(
    effort: Effort,
    name: str,
    title: str,
    work: Work,
    of_raw: tuple[float, float] | None,
    of_peer: tuple[float, float] | None,
) -> Scenario:
    """A row with floor and aim of both ratios, or with both only told."""
    work = replace(work, seed=effort.seed)
    return Scenario(
        name=name,
        title=title,
        contenders=_everybody(work, effort),
        turn=partial(_add, effort=effort, work=work),
        rounds=effort.rounds if of_raw or of_peer else effort.told_rounds,
        warm_up=effort.warm_up,
        bars=(_against_raw(*of_raw or (None, None)), _against_peers(*of_peer or (None, None))),
        work=work.settings(),
    )


def _sustained(effort: Effort) -> Scenario:
    """With default settings: journals are filled and rolled, and tables written down, meanwhile."""
    work = Work(size=_KIB, batch=64, ledgers=100, seed=effort.seed)
    without = ours(work, effort, "no-checkpoints", NO_CHECKPOINTS)
    title = "sustained, batch 64 × 1 KB, 100 ledgers"
    own = Bar(label="÷ the same without", against=(NO_CHECKPOINTS,), floor=0.8)
    return Scenario(
        name="sustained",
        title=title,
        contenders=[ours(work, effort, "default"), without, *(peer(name, work) for name in PEERS)],
        turn=partial(_add_all, effort=effort, work=work),
        end=lambda player: dict(player.ask("finish")),
        rounds=effort.sustained_rounds,
        warm_up=effort.warm_up,
        bars=(
            own,
            _against_peers(1.3, 1.6),
            Bar(label="p99.9 ÷ p50", figure=SLOWEST_TO_USUAL, floor=8, aim=5),
            Bar(label="written ÷ added", figure=WRITTEN, floor=3.3),
            Bar(label="to the disk ÷ added", figure=ON_DISK),
        ),
        work=work.settings(),
    )


def _point(writers: int) -> Point:
    return Point("concurrency", writers)


# ── what a contender does in its turn ────────────────────────────────────────────────────────────────────


def _add(player: Player, effort: Effort, work: Work) -> Figures:
    return _turn(player, effort.turn_s, work, effort.turn_size)


def _add_all(player: Player, effort: Effort, work: Work) -> Figures:
    """However long it takes, within reason; with what the disk has been given meanwhile, by whomever."""
    before = disk_written(player.place)
    figures = _turn(player, effort.sustained_s, work, effort.sustained_size)
    to_disk = disk_written(player.place) - before
    return {**figures, **({ON_DISK.name: to_disk / (figures["count"] * work.size)} if to_disk else {})}


def _turn(player: Player, seconds: float, work: Work, size: int) -> Figures:
    player.ask("prepare", size=size)
    figures: Figures = player.ask("add", seconds=seconds, calls=work.calls(size))
    player.ask("settle")
    return figures
