from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import small_stores
import spark_session
from spark_tasks import DyingTask, FailingTask, HangingTask, Read, ReportTask, TaskReport

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.local import Serial
from recovery.audit.engines.sql import DuckSql
from recovery.audit.model.store_tables import put_runs
from recovery.audit.scan.entry_log import ScanLog
from recovery.audit.scan.index import ScanIndex
from recovery.audit.scan.scan_task import ScanTask
from storage.entry.model import ID_MAX, DigestType

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from recovery.audit.spark.engine import SparkEngine

pytestmark = spark_session.MARKS


@pytest.fixture
def engine(spark: SparkSession) -> SparkEngine:
    from recovery.audit.spark.engine import SparkEngine

    return SparkEngine(spark)


def unwatched(_: int) -> None:
    """Ignore the number."""


def scans(store: Path) -> list[ScanTask]:
    """The scans of the logs of a store, as an audit makes them."""
    policy = DigestPolicy(presumed=DigestType.CRC32C)
    logs = sorted((store / "ledgers/current").glob("*.log"))
    return [
        ScanTask(2 * number + 2, 0, ScanLog(str(path), number, 1024, path.stat().st_size, policy))
        for number, path in enumerate(logs)
    ]


def engine_tables(spark: SparkSession) -> list[str]:
    rows = spark.sql("SHOW TABLES LIKE 'ledgerstore_*'").collect()
    return [row.tableName for row in rows if not row.isTemporary]


def without_duration(part: Any) -> dict[str, Any]:
    """Return a result without its duration."""
    values = {name: getattr(part, name) for name in part.__dataclass_fields__ if name != "seconds"}
    values["runs"] = part.runs.tolist()
    return values


def test_results_are_those_of_the_same_tasks_in_this_process(engine: SparkEngine, tmp_path: Path) -> None:
    store = small_stores.make(tmp_path / "store")
    policy = DigestPolicy(presumed=DigestType.CRC32C)
    tasks: list[Any] = [
        ScanLog(str(path), number, 1024, path.stat().st_size, policy)
        for number, path in enumerate(sorted((store / "ledgers/current").glob("*.log")))
    ]
    tasks.append(ScanIndex(str(store / "ledgers/current/index"), 0, ID_MAX))
    read: list[int] = []
    found = {done.number: without_duration(done.part) for done in engine.run(tasks, read.append)}
    here: list[int] = []
    assert found == {done.number: without_duration(done.part) for done in Serial().run(tasks, here.append)}
    assert sum(read) == sum(here) > 0


def test_the_active_session_of_the_program_stays_the_active_one(
    spark: SparkSession, engine: SparkEngine, tmp_path: Path
) -> None:
    from recovery.audit.spark.sql import SparkSql

    done = list(engine.run(scans(small_stores.make(tmp_path / "store")), unwatched))
    assert done
    assert type(spark).getActiveSession() is spark
    with SparkSql(spark) as sql:
        sql.put_columns("some", {"number": np.arange(3)})
        assert sql.rows("SELECT count(*) FROM some") == [(3,)]
    assert type(spark).getActiveSession() is spark


def test_too_many_runs_stay_where_they_are_and_are_in_the_queries(
    spark: SparkSession, engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recovery.audit.spark import engine as module
    from recovery.audit.spark.sql import SparkSql

    monkeypatch.setattr(module, "RESULT_ROWS_MAX", 2)
    tasks = scans(small_stores.make(tmp_path / "store"))
    read: list[int] = []
    found: list[Any] = [done.part for done in engine.run(tasks, read.append)]
    assert sorted(one.part.number for one in found) == [task.number for task in tasks]
    assert {len(one.part.runs) for one in found} == {0}
    assert all(one.rows == {} for one in found)
    here: list[int] = []
    expected: list[Any] = [done.part for done in Serial().run(tasks, here.append)]
    assert sum(read) == sum(here) > 0
    sql = engine.sql(0)
    assert isinstance(sql, SparkSql)
    # Runs that are in this process, such as those of an older audit, are in the same table.
    older = {99: expected[0].rows[tasks[0].number]}
    put_runs(sql, older)
    with DuckSql(threads=1) as other:
        put_runs(other, {**older, **{part: runs for one in expected for part, runs in one.rows.items()}})
        query = "SELECT part, ledger, sum(entries) AS n, bit_xor(places) FROM scanned GROUP BY part, ledger"
        assert sorted(sql.rows(query)) == sorted(other.rows(query))
    assert len(engine_tables(spark)) == 1
    engine.close()
    assert engine_tables(spark) == []


def test_few_runs_are_returned_to_the_driver(engine: SparkEngine, tmp_path: Path) -> None:
    tasks: list[Any] = scans(small_stores.make(tmp_path / "store"))
    found = {done.number: done.part.rows for done in engine.run(tasks, unwatched)}
    for done in Serial().run(tasks, unwatched):
        rows = done.part.rows
        assert {part: runs.tolist() for part, runs in found[done.number].items()} == {
            part: runs.tolist() for part, runs in rows.items()
        }
    assert isinstance(engine.sql(100), DuckSql)


def test_results_arrive_before_the_last_job_ends_and_stopping_early_ends_it(
    engine: SparkEngine, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    # The smallest task is in the second job, and does not end by itself.
    tasks: list[Any] = [ReportTask(str(number), 1 << 30) for number in range(8)]
    running = cast("Generator[Any]", engine.run([*tasks, HangingTask(str(tmp_path / "pipe"))], unwatched))
    assert {next(running).part.name for _ in tasks} == set("01234567")
    with (tmp_path / "pipe").open("rb") as pipe:
        assert pipe.read(1) == b"!"
        running.close()
        assert pipe.read() == b""  # its process is gone


def test_an_error_of_a_task_is_raised_as_it_was(engine: SparkEngine) -> None:
    tasks: list[Any] = [ReportTask("one"), Read("/nowhere/1.log"), ReportTask("two")]
    with pytest.raises(FileNotFoundError) as caught:
        list(engine.run(tasks, unwatched))
    assert str(caught.value) == "[Errno 2] No such file or directory: '/nowhere/1.log'"
    assert caught.value.filename == "/nowhere/1.log"
    assert caught.value.__notes__ == ["in /nowhere/1.log, on Spark"]


def test_an_error_that_cannot_be_pickled_arrives_as_its_name_and_message(engine: SparkEngine) -> None:
    from recovery.audit.spark.engine import SparkFailed

    with pytest.raises(SparkFailed, match=r"^UnpicklableError: one, two$"):
        list(engine.run([FailingTask("shy")], unwatched))


def test_a_worker_that_dies_ends_the_job_with_one_line(engine: SparkEngine) -> None:
    from recovery.audit.spark.engine import SparkFailed

    with pytest.raises(SparkFailed, match="Python worker exited unexpectedly") as caught:
        list(engine.run([DyingTask("dead")], unwatched))
    assert "\n" not in str(caught.value)
    assert [done.part.name for done in engine.run([ReportTask("afterwards")], unwatched)] == ["afterwards"]


def test_large_results_arrive_whole(engine: SparkEngine) -> None:
    tasks = [ReportTask(str(number), marks_size=5 << 20) for number in range(6)]
    parts: list[TaskReport] = [done.part for done in engine.run(tasks, unwatched)]
    assert sorted(part.name for part in parts) == list("012345")
    assert {len(part.marks) for part in parts} == {5 << 20}


def test_no_tasks_need_no_job(engine: SparkEngine) -> None:
    assert list(engine.run([], unwatched)) == []


def test_a_rate_is_shared_by_all_workers(spark: SparkSession) -> None:
    from recovery.audit.spark.engine import SparkEngine

    held_back = SparkEngine(spark, rate_max=10 << 20)
    seconds = [
        done.part.seconds
        for done in held_back.run([ReportTask(str(n), 1 << 20) for n in range(2)], unwatched)
    ]
    # A mebibyte each, by two at five mebibytes a second.
    assert min(seconds) >= 0.19


def sizes(task_batches: list[list[tuple[int, Any]]]) -> list[int]:
    return sorted(sum(task.size for _, task in lot) for lot in task_batches)


def of_sizes(*sizes: int) -> list[tuple[int, ReportTask]]:
    return [(number, ReportTask(str(number), size)) for number, size in enumerate(sizes)]


def test_batches_have_about_the_same_size_and_contain_each_task_once() -> None:
    pytest.importorskip("pyspark")
    from recovery.audit.spark.engine import task_batches

    made = task_batches(of_sizes(*(size << 20 for size in (500, 10, 20, 30, 400, 40, 100, 1))), 2)
    assert sorted(number for lot in made for number, _ in lot) == list(range(8))
    assert sizes(made) == [size << 20 for size in (1, 10, 20, 30, 40, 100, 400, 500)]
    assert sizes(task_batches(of_sizes(*[1 << 10] * 100), 4)) == [25 << 10] * 4
    assert sizes(task_batches(of_sizes(5), 8)) == [5]
