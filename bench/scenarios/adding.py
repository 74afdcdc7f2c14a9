"""The rows about adds: our store, the raw limit and the peers with the same work, each add synced.

The contenders are in `contenders/`: `our_store.py`, `raw.py`, and `peers.py` with the settings of the peers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from contenders import peers, raw
from contest.contender_process import Contender
from contest.contest import CurvePoint, Scenario
from contest.resource_usage import disk_written
from contest.result import Bar, Figure, Sense
from contest.workload import Work

if TYPE_CHECKING:
    from contest.contender_process import ContenderProcess
    from contest.result import Figures
    from contest.run_size import RunSize

PEERS = {
    "plyvel": "contenders.peers:LevelDb",
    "rocksdict": "contenders.peers:RocksDb",
    "sqlite3": "contenders.peers:Sqlite",
    "lmdb": "contenders.peers:Lmdb",
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


def scenarios(run_size: RunSize) -> list[Scenario]:
    """All rows about adds, in the order of the table."""
    return [
        *_one_writer(run_size),
        *_writers(run_size),
        _on_one_cpu(run_size),
        *_batches(run_size),
        _sustained(run_size),
    ]


# ── contenders ───────────────────────────────────────────────────────────────────────────────────────────


def ours(work: Work, run_size: RunSize, kind: str = "journals-only", name: str = "ours") -> Contender:
    settings = {"kind": kind, "journal_size": run_size.raw_size, **work.settings()}
    return Contender(name=name, make="contenders.our_store:Ours", settings=settings)


def ours_async(work: Work, run_size: RunSize) -> Contender:
    settings = {"kind": "journals-only", "journal_size": run_size.raw_size, **work.settings()}
    return Contender(name=ASYNC, make="contenders.our_store:OursAsync", settings=settings)


def raw_file(work: Work, run_size: RunSize) -> Contender:
    settings = {"file_size": run_size.raw_size, **work.settings()}
    return Contender(
        name="raw", make="contenders.raw:RawFile", settings=settings, cannot=raw.why_unavailable()
    )


def raw_futex(work: Work, run_size: RunSize) -> Contender:
    """The raw file with threads that are woken by a futex, the cheapest way. It has no floor."""
    made = raw_file(work, run_size)
    return replace(made, name=FUTEX, settings={**made.settings, "futex": 1})


def peer(name: str, work: Work) -> Contender:
    package = peers.PACKAGES[name]
    return Contender(name=name, make=PEERS[name], settings=work.settings(), package=package)


def _all_contenders(work: Work, run_size: RunSize) -> list[Contender]:
    raws = [raw_file(work, run_size), *([raw_futex(work, run_size)] if work.writers > 1 else [])]
    return [ours(work, run_size), *raws, *(peer(name, work) for name in PEERS)]


# ── the rows ─────────────────────────────────────────────────────────────────────────────────────────────


def _against_raw(floor: float | None, aim: float | None) -> Bar:
    return Bar(label="÷ raw", against=("raw",), floor=floor, aim=aim)


def _against_peers(floor: float | None, aim: float | None) -> Bar:
    return Bar(label="÷ best peer", against=EVERY_PEER, floor=floor, aim=aim)


def _against_futex() -> Bar:
    return Bar(label="÷ raw, futex", against=(FUTEX,))


def _one_writer(run_size: RunSize) -> list[Scenario]:
    kilobyte = _row(run_size, "add-1k", "add, 1 writer, 1 KB", Work(size=_KIB), (0.85, 0.92), (1.2, 1.35))
    contenders = [*kilobyte.contenders, ours_async(Work(size=_KIB, seed=run_size.seed), run_size)]
    return [
        replace(kilobyte, contenders=contenders, points=(_point(1),)),
        _row(run_size, "add-64k", "add, 1 writer, 64 KB", Work(size=64 * _KIB), (0.75, 0.85), (1.4, 1.8)),
        _row(run_size, "add-100b", "add, 1 writer, 100 B", Work(size=100), None, None),
    ]


def _writers(run_size: RunSize) -> list[Scenario]:
    """Several writers at once. Eight and 64 writers have floors, the others are only points on a curve."""
    counts = [count for count in run_size.concurrency if count > 1]
    made = {8: _eight, 64: _sixty_four}
    return [made[count](run_size) if count in made else _curve_point(run_size, count) for count in counts]


def _curve_point(run_size: RunSize, writers: int) -> Scenario:
    work = Work(size=_KIB, writers=writers, seed=run_size.seed)
    return Scenario(
        name=f"add-{writers}-writers",
        title=f"add, {writers} writers, 1 KB",
        contenders=[*_all_contenders(work, run_size), ours_async(work, run_size)],
        turn=partial(_add, run_size=run_size, work=work),
        rounds=run_size.rounds_without_floor,
        warm_up=run_size.warm_up,
        work=work.settings(),
        points=(_point(writers),),
    )


def _eight(run_size: RunSize) -> Scenario:
    return replace(
        _curve_point(run_size, 8),
        title="add, 8 blocking threads, 1 KB",
        rounds=run_size.rounds,
        bars=(_against_raw(0.70, 0.85), _against_futex(), _against_peers(1.2, 1.5)),
    )


def _sixty_four(run_size: RunSize) -> Scenario:
    """Compare asynchronous adds with threads of the raw file and of the peers, and with batches of a peer."""
    made = _curve_point(run_size, 64)
    batches = Work(size=_KIB, batch=64, seed=run_size.seed)
    in_batches = replace(peer("plyvel", batches), name=PLYVEL_BATCHES)
    awaited = replace(_against_raw(2, 3.5), subject=ASYNC, title="add, 64 asynchronous writers, 1 KB")
    return replace(
        made,
        title="add, 64 blocking threads, 1 KB",
        contenders=[*made.contenders, in_batches],
        rounds=run_size.rounds,
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


def _on_one_cpu(run_size: RunSize) -> Scenario:
    work = Work(size=_KIB, writers=64, seed=run_size.seed)
    title = "add, 64 blocking threads, 1 KB, on one CPU"
    made = _row(run_size, "add-64-writers-one-cpu", title, work, (0.75, 0.9), (1.0, 1.15))
    contenders = [replace(one, one_cpu=_ONE_CPU) for one in made.contenders]
    of_raw, of_peer = made.bars
    return replace(made, contenders=contenders, bars=(of_raw, _against_futex(), of_peer))


def _batches(run_size: RunSize) -> list[Scenario]:
    def batch(count: int, size: int) -> Work:
        return Work(size=size, batch=count)

    return [
        _row(run_size, "batch-64-1k", "batch 64 × 1 KB", batch(64, _KIB), (0.65, 0.8), (1.8, 2.3)),
        _row(run_size, "batch-1000-1k", "batch 1,000 × 1 KB", batch(1000, _KIB), (0.45, 0.6), (1.5, 2)),
        _row(run_size, "batch-1000-100b", "batch 1,000 × 100 B", batch(1000, 100), (0.27, 0.38), (0.9, 1.2)),
        _row(run_size, "batch-64-64k", "batch 64 × 64 KB", batch(64, 64 * _KIB), None, None),
    ]


def _row(
    run_size: RunSize,
    name: str,
    title: str,
    work: Work,
    of_raw: tuple[float, float] | None,
    of_peer: tuple[float, float] | None,
) -> Scenario:
    """Return a row with floor and aim for both ratios, or without them."""
    work = replace(work, seed=run_size.seed)
    return Scenario(
        name=name,
        title=title,
        contenders=_all_contenders(work, run_size),
        turn=partial(_add, run_size=run_size, work=work),
        rounds=run_size.rounds if of_raw or of_peer else run_size.rounds_without_floor,
        warm_up=run_size.warm_up,
        bars=(_against_raw(*of_raw or (None, None)), _against_peers(*of_peer or (None, None))),
        work=work.settings(),
    )


def _sustained(run_size: RunSize) -> Scenario:
    """Adds with default settings, while journals are filled and rolled, and memtables are checkpointed."""
    work = Work(size=_KIB, batch=64, ledgers=100, seed=run_size.seed)
    without = ours(work, run_size, "no-checkpoints", NO_CHECKPOINTS)
    title = "sustained, batch 64 × 1 KB, 100 ledgers"
    own = Bar(label="÷ the same without", against=(NO_CHECKPOINTS,), floor=0.8)
    return Scenario(
        name="sustained",
        title=title,
        contenders=[ours(work, run_size, "default"), without, *(peer(name, work) for name in PEERS)],
        turn=partial(_add_all, run_size=run_size, work=work),
        end=lambda process: dict(process.ask("finish")),
        rounds=run_size.sustained_rounds,
        warm_up=run_size.warm_up,
        bars=(
            own,
            _against_peers(1.3, 1.6),
            Bar(label="p99.9 ÷ p50", figure=SLOWEST_TO_USUAL, floor=8, aim=5),
            Bar(label="written ÷ added", figure=WRITTEN, floor=3.3),
            Bar(label="to the disk ÷ added", figure=ON_DISK),
        ),
        work=work.settings(),
    )


def _point(writers: int) -> CurvePoint:
    return CurvePoint("concurrency", writers)


# ── turns ────────────────────────────────────────────────────────────────────────────────────────────────


def _add(process: ContenderProcess, run_size: RunSize, work: Work) -> Figures:
    return _turn(process, run_size.turn_s, work, run_size.turn_size)


def _add_all(process: ContenderProcess, run_size: RunSize, work: Work) -> Figures:
    """Add all entries, with a limit on the time. Count all bytes written to the disk, by any process."""
    before = disk_written(process.place)
    figures = _turn(process, run_size.sustained_s, work, run_size.sustained_size)
    to_disk = disk_written(process.place) - before
    return {**figures, **({ON_DISK.name: to_disk / (figures["count"] * work.size)} if to_disk else {})}


def _turn(process: ContenderProcess, seconds: float, work: Work, size: int) -> Figures:
    process.ask("prepare", size=size)
    figures: Figures = process.ask("add", seconds=seconds, calls=work.calls(size))
    process.ask("settle")
    return figures
