"""The engines of one machine: every part comes, bytes are told, errors are raised, nobody is left over."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from spark_tasks import Read, Tell

from recovery.audit.local import Pool, Serial, processors
from recovery.audit.task import Pace

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.task import Engine

ENGINES = [Serial(), Pool(2)]


def unwatched(_: int) -> None:
    """Nobody looks."""


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_each_part_comes_once_with_the_number_of_its_task(engine: Engine, tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(30)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * number)
    tasks: list[Any] = [Read(str(path), number) for number, path in enumerate(paths)]
    read: list[int] = []
    done = list(engine.run(tasks, read.append))
    assert sorted((one.number, one.part) for one in done) == [
        (number, bytes([number]) * number) for number in range(30)
    ]
    assert sum(read) == sum(range(30))


def test_a_pool_is_other_processes_and_they_end_with_it() -> None:
    tasks: list[Any] = [Tell(str(number)) for number in range(12)]
    processes = {done.part.process for done in Pool(2).run(tasks, unwatched)}
    assert os.getpid() not in processes
    assert 1 <= len(processes) <= 2
    assert multiprocessing.active_children() == []


def test_for_one_task_nobody_is_started() -> None:
    (done,) = Pool(8).run([Tell("alone")], unwatched)
    assert done.part.process == os.getpid()


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_what_a_task_raises_is_raised_and_the_rest_is_given_up(engine: Engine, tmp_path: Path) -> None:
    tasks: list[Any] = [Read(str(tmp_path / "missing")) for _ in range(50)]
    with pytest.raises(FileNotFoundError, match="missing"):
        list(engine.run(tasks, unwatched))
    assert multiprocessing.active_children() == []


def test_who_stops_in_the_middle_leaves_no_process(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    running = Pool(2).run([Read(str(path)) for _ in range(40)], unwatched)
    assert next(iter(running)).part == b"x"
    running.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


@dataclass
class Clock:
    """Time goes on only where somebody sleeps."""

    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        return self.now


def test_a_rate_holds_back_who_reads_faster() -> None:
    clock = Clock()
    told: list[int] = []
    pace = Pace(told.append, rate_max=100.0, clock=clock.time, sleep=clock.sleep)
    for _ in range(10):
        pace.read(50)
    assert clock.now == pytest.approx(5.0)
    clock.now += 60.0
    pace.read(50)  # what was not read meanwhile is no credit
    assert clock.now == pytest.approx(65.5)
    assert told == [50] * 11


def test_processors_are_those_that_this_process_may_use() -> None:
    assert processors() == len(os.sched_getaffinity(0))
