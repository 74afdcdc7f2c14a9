"""What the settings of a store buy: ours against itself, for `docs/performance.md`. Nothing here has a floor.

python bench/store.py --only tuning-batch tuning-alignment tuning-memtable tuning-interval
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from adder import Adder
from contest import Scenario
from our_store import make_room
from player import Contender
from result import Bar, Figure, Sense
from work import Work

from recovery.opening import open_store
from storage import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from effort import Effort
    from player import Player
    from result import Figures
    from timing import Limit, Timed

_KIB, _MIB = 1 << 10, 1 << 20
_NO_CHECKPOINTS = {"memtable_size_max": 1 << 40, "checkpoint_interval_s": None, "idle_seal_s": None}
P50 = Figure("p50", "µs", Sense.LESS)
P999 = Figure("p999", "µs", Sense.LESS)
WRITTEN = Figure("written_by_added", "B/B", Sense.LESS)
DEFAULT = "ours"


class Tuned(Adder):
    """Our store with some settings of its own; perhaps beside a thread that computes without end."""

    def __init__(
        self, place: Path, config: Mapping[str, Any], room: int, busy: float | None, **work: int
    ) -> None:
        super().__init__(**work)
        self._store = open_store(place / "store", StoreConfig(**config))
        self._room = room
        self._is_beside = busy is not None
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
        if not self._is_beside:
            return super().run(limit)
        with computing():
            return super().run(limit)

    def shut(self) -> None:
        self._store.close()


@contextmanager
def computing() -> Iterator[None]:
    """Beside a thread that computes all the while."""
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


def scenarios(effort: Effort) -> list[Scenario]:
    """One for each setting; the contender called `ours` has the default."""
    return [_of_batches(effort), _of_alignment(effort), _of_memtable(effort), _of_interval(effort)]


def _of_batches(effort: Effort) -> Scenario:
    made = {DEFAULT: Work(size=_KIB)}
    made |= {f"batches of {count:,}": Work(size=_KIB, batch=count) for count in (8, 64, 512, 4096)}
    contenders = [_filled(name, work, effort) for name, work in made.items()]
    return _scenario("tuning-batch", "entries of 1 KB that share a sync", contenders, effort, {})


def _of_alignment(effort: Effort) -> Scenario:
    work = Work(size=100)
    contenders = [
        _filled(DEFAULT, work, effort),
        _filled("aligned to 512", work, effort, journal_alignment=512),
    ]
    return _scenario("tuning-alignment", "add, 1 writer, 100 B", contenders, effort, {"aligned to 512": P50})


def _of_interval(effort: Effort) -> Scenario:
    work = Work(size=_KIB)
    alone = _filled("alone", work, effort)
    beside = {
        DEFAULT: 0.005,
        "switch interval 0.5 ms": 0.0005,
        "switch interval 0.1 ms": 0.0001,
    }
    contenders = [alone, *(_filled(name, work, effort, busy=pause) for name, pause in beside.items())]
    return _scenario(
        "tuning-interval",
        "add, 1 writer, 1 KB, beside a thread that computes",
        contenders,
        effort,
        {"alone": P50, "switch interval 0.5 ms": P50, "switch interval 0.1 ms": P50},
    )


def _of_memtable(effort: Effort) -> Scenario:
    work = Work(size=_KIB, batch=64, ledgers=100)
    sizes = {"tables of 16 MiB": 16, DEFAULT: 64, "tables of 256 MiB": 256}
    contenders = [
        _contender(name, work, effort, {"memtable_size_max": size * _MIB}) for name, size in sizes.items()
    ]
    asked = {name: P999 for name in sizes if name != DEFAULT}
    made = _scenario("tuning-memtable", "sustained, batch 64 × 1 KB, 100 ledgers", contenders, effort, asked)
    return Scenario(
        name=made.name,
        title=made.title,
        contenders=made.contenders,
        turn=partial(_turn, seconds=effort.sustained_s, size=effort.sustained_size),
        end=lambda player: dict(player.ask("finish")),
        rounds=effort.told_rounds,
        warm_up=effort.warm_up,
        bars=made.bars,
        work=work.settings(),
    )


def _filled(name: str, work: Work, effort: Effort, busy: float | None = None, **config: object) -> Contender:
    """One of whose journal no filling and no checkpoint takes a part."""
    settings = {**_NO_CHECKPOINTS, "journal_size": effort.raw_size, "journal_max_backups": 0, **config}
    return _contender(name, work, effort, settings, busy)


def _contender(
    name: str, work: Work, effort: Effort, config: Mapping[str, object], busy: float | None = None
) -> Contender:
    room = effort.turn_size if "checkpoint_interval_s" in config else 0
    made = {"config": dict(config), "room": room, "busy": busy, **work.settings(), "seed": effort.seed}
    return Contender(name=name, make="tuning:Tuned", settings=made)


def _scenario(
    name: str, title: str, contenders: list[Contender], effort: Effort, asked: Mapping[str, Figure]
) -> Scenario:
    """`asked`: whose figure the default is held against beside its rate."""
    others = [one.name for one in contenders if one.name != DEFAULT]
    bars = [Bar(label=f"÷ {other}", against=(other,)) for other in others]
    bars += [
        Bar(label=f"{figure.name} ÷ {other}", figure=figure, against=(other,))
        for other, figure in asked.items()
    ]
    return Scenario(
        name=name,
        title=title,
        contenders=contenders,
        turn=partial(_turn, seconds=effort.turn_s, size=effort.turn_size),
        rounds=effort.told_rounds,
        warm_up=effort.warm_up,
        bars=tuple(bars),
    )


def _turn(player: Player, seconds: float, size: int) -> Figures:
    settings = player.contender.settings
    work = Work(**{name: settings[name] for name in Work(size=1).settings()})  # type: ignore[arg-type]
    player.ask("prepare", size=size)
    figures: Figures = player.ask("add", seconds=seconds, calls=work.calls(size))
    player.ask("settle")
    return figures
