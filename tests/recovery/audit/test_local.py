"""The engines of one machine: every result arrives, bytes are reported, errors are raised, no process is
left.
"""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from spark_tasks import Read, ReportTask

from recovery.audit.engines.local import Pool, Serial, processors
from recovery.audit.engines.task import ReadThrottle

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.engines.task import TaskEngine

ENGINES = [Serial(), Pool(2)]


def unwatched(_: int) -> None:
    """Ignore the number."""


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_each_part_comes_once_with_the_number_of_its_task(engine: TaskEngine, tmp_path: Path) -> None:
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
    tasks: list[Any] = [ReportTask(str(number)) for number in range(12)]
    processes = {done.part.process for done in Pool(2).run(tasks, unwatched)}
    assert os.getpid() not in processes
    assert 1 <= len(processes) <= 2
    assert multiprocessing.active_children() == []


def test_for_one_task_no_process_is_started() -> None:
    (done,) = Pool(8).run([ReportTask("alone")], unwatched)
    assert done.part.process == os.getpid()


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_an_error_of_a_task_is_raised_and_the_other_tasks_are_cancelled(
    engine: TaskEngine, tmp_path: Path
) -> None:
    tasks: list[Any] = [Read(str(tmp_path / "missing")) for _ in range(50)]
    with pytest.raises(FileNotFoundError, match="missing"):
        list(engine.run(tasks, unwatched))
    assert multiprocessing.active_children() == []


def test_stopping_early_leaves_no_process(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    running = Pool(2).run([Read(str(path)) for _ in range(40)], unwatched)
    assert next(iter(running)).part == b"x"
    running.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


@dataclass
class Clock:
    """A clock that only advances in `sleep`."""

    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        return self.now


def test_a_rate_slows_down_a_faster_reader() -> None:
    clock = Clock()
    bytes_reported: list[int] = []
    throttle = ReadThrottle(bytes_reported.append, rate_max=100.0, clock=clock.time, sleep=clock.sleep)
    for _ in range(10):
        throttle.read(50)
    assert clock.now == pytest.approx(5.0)
    clock.now += 60.0
    throttle.read(50)  # time without reading is no credit
    assert clock.now == pytest.approx(65.5)
    assert bytes_reported == [50] * 11


def test_only_processors_that_this_process_may_use_are_counted() -> None:
    assert processors() == len(os.sched_getaffinity(0))
