from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import pytest
import small_stores
import sparks
from spark_tasks import Complain, Die, Linger, Read, Tell, Told

from recovery.audit.index_scan import ScanIndex
from recovery.audit.local import Serial
from recovery.audit.log_scan import ScanLog
from recovery.audit.ways import Ways
from storage.entry import ID_MAX, DigestType

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from recovery.audit.spark.engine import SparkEngine

pytestmark = sparks.MARKS


@pytest.fixture
def engine(spark: SparkSession) -> SparkEngine:
    from recovery.audit.spark.engine import SparkEngine

    return SparkEngine(spark.sparkContext)


def unwatched(_: int) -> None:
    """Nobody looks."""


def told(part: Any) -> dict[str, Any]:
    """What a part says, but for the time that it took."""
    values = {name: getattr(part, name) for name in part.__dataclass_fields__ if name != "seconds"}
    values["runs"] = part.runs.tolist()
    return values


def test_parts_are_those_of_the_same_tasks_in_this_process(engine: SparkEngine, tmp_path: Path) -> None:
    store = small_stores.make(tmp_path / "store")
    ways = Ways(presumed=DigestType.CRC32C)
    tasks: list[Any] = [
        ScanLog(str(path), number, 1024, path.stat().st_size, ways)
        for number, path in enumerate(sorted((store / "ledgers/current").glob("*.log")))
    ]
    tasks.append(ScanIndex(str(store / "ledgers/current/index"), 0, ID_MAX))
    read: list[int] = []
    found = {done.number: told(done.part) for done in engine.run(tasks, read.append)}
    here: list[int] = []
    assert found == {done.number: told(done.part) for done in Serial().run(tasks, here.append)}
    assert sum(read) == sum(here) > 0


def test_what_has_ended_comes_home_before_the_rest_and_giving_up_ends_that(
    engine: SparkEngine, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    # The second one never ends by itself.
    tasks: list[Any] = [Tell("small"), Linger(str(tmp_path / "pipe"), 1 << 30)]
    running = cast("Generator[Any]", engine.run(tasks, unwatched))
    done = next(running)
    assert (done.number, done.part.name) == (0, "small")
    with (tmp_path / "pipe").open("rb") as pipe:
        assert pipe.read(1) == b"!"
        running.close()
        assert pipe.read() == b""  # its process is gone


def test_an_error_of_a_task_is_raised_as_it_was(engine: SparkEngine) -> None:
    tasks: list[Any] = [Tell("one"), Read("/nowhere/1.log"), Tell("two")]
    with pytest.raises(FileNotFoundError) as caught:
        list(engine.run(tasks, unwatched))
    assert str(caught.value) == "[Errno 2] No such file or directory: '/nowhere/1.log'"
    assert caught.value.filename == "/nowhere/1.log"
    assert caught.value.__notes__ == ["in /nowhere/1.log, on Spark"]


def test_an_error_that_cannot_be_sent_comes_by_its_name_and_words(engine: SparkEngine) -> None:
    from recovery.audit.spark.engine import SparkFailed

    with pytest.raises(SparkFailed, match=r"^Shy: one, two$"):
        list(engine.run([Complain("shy")], unwatched))


def test_a_worker_that_dies_ends_it_with_one_line(engine: SparkEngine) -> None:
    from recovery.audit.spark.engine import SparkFailed

    with pytest.raises(SparkFailed, match="Python worker exited unexpectedly") as caught:
        list(engine.run([Die("dead")], unwatched))
    assert "\n" not in str(caught.value)
    assert [done.part.name for done in engine.run([Tell("afterwards")], unwatched)] == ["afterwards"]


def test_large_parts_come_whole(engine: SparkEngine) -> None:
    tasks = [Tell(str(number), marks_size=5 << 20) for number in range(6)]
    parts: list[Told] = [done.part for done in engine.run(tasks, unwatched)]
    assert sorted(part.name for part in parts) == list("012345")
    assert {len(part.marks) for part in parts} == {5 << 20}


def test_no_tasks_need_no_job(engine: SparkEngine) -> None:
    assert list(engine.run([], unwatched)) == []


def test_a_rate_is_shared_by_those_who_read(spark: SparkSession) -> None:
    from recovery.audit.spark.engine import SparkEngine

    held_back = SparkEngine(spark.sparkContext, rate_max=10 << 20)
    seconds = [
        done.part.seconds for done in held_back.run([Tell(str(n), 1 << 20) for n in range(2)], unwatched)
    ]
    # A mebibyte each, by two at five mebibytes a second.
    assert min(seconds) >= 0.19


def sizes(lots: list[list[tuple[int, Any]]]) -> list[int]:
    return sorted(sum(task.size for _, task in lot) for lot in lots)


def of_sizes(*sizes: int) -> list[tuple[int, Tell]]:
    return [(number, Tell(str(number), size)) for number, size in enumerate(sizes)]


def test_lots_are_of_about_the_same_size_and_hold_each_task_once() -> None:
    pytest.importorskip("pyspark")
    from recovery.audit.spark.engine import lots

    made = lots(of_sizes(*(size << 20 for size in (500, 10, 20, 30, 400, 40, 100, 1))), 2)
    assert sorted(number for lot in made for number, _ in lot) == list(range(8))
    assert sizes(made) == [size << 20 for size in (1, 10, 20, 30, 40, 100, 400, 500)]
    assert sizes(lots(of_sizes(*[1 << 10] * 100), 4)) == [25 << 10] * 4
    assert sizes(lots(of_sizes(5), 8)) == [5]
