"""The effect of settings on our store, for `docs/performance.md`. No row here has a floor.

python bench/store.py --only tuning-batch tuning-alignment tuning-memtable tuning-interval
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from contenders.adding_contender import AddingContender
from contenders.our_store import make_room
from contest.contender_process import Contender
from contest.contest import Scenario
from contest.result import Bar, Figure, Sense
from contest.workload import Work

from recovery.opening.open_store import open_store
from storage import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from contest.contender_process import ContenderProcess
    from contest.result import Figures
    from contest.run_size import RunSize
    from contest.timing import Limit, Timed

_KIB, _MIB = 1 << 10, 1 << 20
_NO_CHECKPOINTS = {"memtable_size_max": 1 << 40, "checkpoint_interval_s": None, "idle_seal_s": None}
P50 = Figure("p50", "µs", Sense.LESS)
P999 = Figure("p999", "µs", Sense.LESS)
WRITTEN = Figure("written_by_added", "B/B", Sense.LESS)
DEFAULT = "ours"


class TunedStore(AddingContender):
    """Our store with given settings, optionally while another thread computes all the time."""

    def __init__(
        self, place: Path, config: Mapping[str, Any], room: int, busy: float | None, **work: int
    ) -> None:
        super().__init__(**work)
        self._store = open_store(place / "store", StoreConfig(**config))
        self._room = room
        self._has_computing_thread = busy is not None
        if busy is not None:
            sys.setswitchinterval(busy)

    def prepare(self, size: int) -> None:
        if self._room:
            make_room(self._store, size)

    def writer(self, number: int) -> Callable[[], object]:
        batches, ledgers = self.work.batches(), map(self._store.ledger, self.work.ledger_ids(number))
        if self.work.batch > 1:
            return lambda: next(ledgers).append_many(next(batches))
        append, payloads = self._store.ledger(number + 1).append, self.work.each()
        return lambda: append(next(payloads))

    def run(self, limit: Limit) -> Timed:
        if not self._has_computing_thread:
            return super().run(limit)
        with computing():
            return super().run(limit)

    def shut(self) -> None:
        self._store.close()


@contextmanager
def computing() -> Iterator[None]:
    """Run the block while another thread computes."""
    over = threading.Event()
    thread = threading.Thread(target=_compute, args=(over.is_set,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _compute(is_over: Callable[[], bool]) -> None:
    number = 1
    while not is_over():
        number = number * 3 % 1_000_003


def scenarios(run_size: RunSize) -> list[Scenario]:
    """Return one row for each setting. The contender `ours` has the default."""
    return [_batch_row(run_size), _alignment_row(run_size), _memtable_row(run_size), _interval_row(run_size)]


def _batch_row(run_size: RunSize) -> Scenario:
    made = {DEFAULT: Work(size=_KIB)}
    made |= {f"batches of {count:,}": Work(size=_KIB, batch=count) for count in (8, 64, 512, 4096)}
    contenders = [_filled(name, work, run_size) for name, work in made.items()]
    return _scenario("tuning-batch", "entries of 1 KB that share a sync", contenders, run_size, {})


def _alignment_row(run_size: RunSize) -> Scenario:
    work = Work(size=100)
    contenders = [
        _filled(DEFAULT, work, run_size),
        _filled("aligned to 512", work, run_size, journal_alignment=512),
    ]
    return _scenario(
        "tuning-alignment", "add, 1 writer, 100 B", contenders, run_size, {"aligned to 512": P50}
    )


def _interval_row(run_size: RunSize) -> Scenario:
    work = Work(size=_KIB)
    alone = _filled("alone", work, run_size)
    beside = {
        DEFAULT: 0.005,
        "switch interval 0.5 ms": 0.0005,
        "switch interval 0.1 ms": 0.0001,
    }
    contenders = [alone, *(_filled(name, work, run_size, busy=pause) for name, pause in beside.items())]
    return _scenario(
        "tuning-interval",
        "add, 1 writer, 1 KB, beside a thread that computes",
        contenders,
        run_size,
        {"alone": P50, "switch interval 0.5 ms": P50, "switch interval 0.1 ms": P50},
    )


def _memtable_row(run_size: RunSize) -> Scenario:
    work = Work(size=_KIB, batch=64, ledgers=100)
    sizes = {"tables of 16 MiB": 16, DEFAULT: 64, "tables of 256 MiB": 256}
    contenders = [
        _contender(name, work, run_size, {"memtable_size_max": size * _MIB}) for name, size in sizes.items()
    ]
    compared = {name: P999 for name in sizes if name != DEFAULT}
    made = _scenario(
        "tuning-memtable", "sustained, batch 64 × 1 KB, 100 ledgers", contenders, run_size, compared
    )
    return Scenario(
        name=made.name,
        title=made.title,
        contenders=made.contenders,
        turn=partial(_turn, seconds=run_size.sustained_s, size=run_size.sustained_size),
        end=lambda process: dict(process.ask("finish")),
        rounds=run_size.rounds_without_floor,
        warm_up=run_size.warm_up,
        bars=made.bars,
        work=work.settings(),
    )


def _filled(
    name: str, work: Work, run_size: RunSize, busy: float | None = None, **config: object
) -> Contender:
    """Return a contender whose turns contain neither a checkpoint nor the filling of a journal."""
    settings = {**_NO_CHECKPOINTS, "journal_size": run_size.raw_size, "journal_max_backups": 0, **config}
    return _contender(name, work, run_size, settings, busy)


def _contender(
    name: str, work: Work, run_size: RunSize, config: Mapping[str, object], busy: float | None = None
) -> Contender:
    room = run_size.turn_size if "checkpoint_interval_s" in config else 0
    made = {"config": dict(config), "room": room, "busy": busy, **work.settings(), "seed": run_size.seed}
    return Contender(name=name, make="scenarios.tuning:TunedStore", settings=made)


def _scenario(
    name: str, title: str, contenders: list[Contender], run_size: RunSize, compared: Mapping[str, Figure]
) -> Scenario:
    """Return a row. `compared` names other figures, besides the rate, to compare with a contender."""
    others = [one.name for one in contenders if one.name != DEFAULT]
    bars = [Bar(label=f"÷ {other}", against=(other,)) for other in others]
    bars += [
        Bar(label=f"{figure.name} ÷ {other}", figure=figure, against=(other,))
        for other, figure in compared.items()
    ]
    return Scenario(
        name=name,
        title=title,
        contenders=contenders,
        turn=partial(_turn, seconds=run_size.turn_s, size=run_size.turn_size),
        rounds=run_size.rounds_without_floor,
        warm_up=run_size.warm_up,
        bars=tuple(bars),
    )


def _turn(process: ContenderProcess, seconds: float, size: int) -> Figures:
    settings = process.contender.settings
    work = Work(**{name: settings[name] for name in Work(size=1).settings()})  # type: ignore[arg-type]
    process.ask("prepare", size=size)
    figures: Figures = process.ask("add", seconds=seconds, calls=work.calls(size))
    process.ask("settle")
    return figures
