"""Run tasks on Spark: batches of tasks are the rows of a DataFrame, and executors run them in `mapInArrow`.

    driver                                             executors
    (batch, pickled tasks), a wave of rows ──job──▶ a Python process: task.run(throttle)
    (number, result, bytes read) ◀──────── rows ───

Only paths go out and only results come back: no byte of a file passes through Java. The rows of a job arrive
when its last task has ended. So the tasks are divided into waves, the largest first, each of which is a job;
two jobs are under way at once, so that no processor waits for the end of a wave. An exception of a task is a
row too, because Spark would try a failed task again, three times on a cluster, and hide its error under
Spark's own.

Runs are small compared with files, and may still be too many for the driver. Each batch returns as many as
its share of what a job may return. Tasks that have more are repeated by a job whose executors write all rows
to a table, which stays where it is; the driver reads only the results from it. If most tasks have more,
later waves are written at once.

A session is all that is needed, so that Spark Connect runs the audit too.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import uuid
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heapreplace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from recovery.audit.engines.local import processors
from recovery.audit.engines.sql import DuckSql
from recovery.audit.engines.task import ReadThrottle, TaskResult, needs_this_machine
from recovery.audit.model.scan_results import Scanned
from recovery.audit.model.store_tables import COLUMNS, columns_of
from recovery.audit.model.tables import Table, table
from recovery.audit.scan.scan_task import ScanTask
from recovery.audit.spark.session import frame_of, is_here, is_of_connect, master_of, ship
from recovery.audit.spark.sql import SparkSql

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Future

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from recovery.audit.engines.task import AuditTask
    from recovery.audit.model.runs import Runs

Answer = TypeVar("Answer")
_Numbered = tuple[int, "AuditTask[Any]"]
_Batch = list[_Numbered]

_BATCH_SIZE = 64 << 20
"""The number of bytes for which a batch of its own pays off: each batch costs some ten milliseconds."""
_BATCHES_FOR_EACH = 32
_WAVE_FOR_EACH = 4
"""The number of batches in a wave for each processor."""
_WAVES_AT_ONCE = 2
_ROWS_AT_ONCE = 1 << 16
_LOOK_S = 0.2
_ABORTED = "Job aborted"
_LOCAL = re.compile(r"local\[(\d+|\*)")

SQL_ROWS_MIN = 5_000_000
"""The number of rows from which on Spark executes the queries of the checks."""
RESULT_ROWS_MAX = 50_000
"""The number of runs that the tasks of a wave may return: a job returns at most five megabytes of them."""
_RETURNED_ROWS_MAX = 1_000_000
"""The number of runs in the memory of this process after which all others are written to tables."""

_BATCHES = table("batch", "tasks:binary")
_OUTCOMES = table("number", "read", "is_error:boolean", "content:binary")
"""Results. The content is null if the task has too many runs to return."""
_RUNS = table("part", *COLUMNS.values())
_WRITTEN = Table((*_OUTCOMES.columns, *_RUNS.columns))
"""Results and runs in one table: of each row, the columns of the other kind are null."""


class SparkFailed(Exception):
    """Spark gave up without an error of a task: a lost executor, a worker that ran out of memory."""


class SparkEngine:
    """Runs tasks in a Spark session. Other jobs of the session are not affected."""

    def __init__(self, session: SparkSession, rate_max: float | None = None) -> None:
        self._users = session
        # Only all jobs of a session can be cancelled from another thread, unless it is one of Spark Connect.
        self._session = session if is_of_connect(session) else session.newSession()
        self._rate_max = rate_max
        self._written = _WrittenRuns()
        self._opened: list[SparkSql] = []

    @property
    def name(self) -> str:
        way = "Spark Connect" if is_of_connect(self._session) else "Spark"
        return f"{way} {self._session.version} on {master_of(self._session)}"

    @cached_property
    def jobs(self) -> int:
        """The number of tasks that run at once."""
        from pyspark.sql import functions

        local = _LOCAL.match(master_of(self._session))
        if local:
            return processors() if local[1] == "*" else int(local[1])
        try:
            self._session.range(1).count()  # executors start for the first job, and are counted then
            found = self._session.range(1 << 20).select(functions.spark_partition_id()).distinct()
            return found.count()
        except Exception as error:
            raise SparkFailed(_in_one_line(error)) from None

    def run(
        self, tasks: Sequence[AuditTask[Answer]], watch: Callable[[int], None]
    ) -> Iterator[TaskResult[Answer]]:
        """Run tasks as `TaskEngine.run` describes. Bytes are reported when a wave ends. A caller that stops
        early ends the jobs.

        On a cluster, tasks that need this machine run in this process in the meantime.
        """
        sent, kept = self._parted(tasks)
        with _Jobs(self._session, self._users, self._rate_max, self._written) as jobs:
            if sent:
                ship(self._session)
                jobs.begin(task_batches(sent, self.jobs), _WAVE_FOR_EACH * self.jobs)
            throttle = ReadThrottle(watch, self._rate_max)
            for number, task in kept:
                yield TaskResult(number, task.run(throttle))
            left = yield from jobs.results(watch)
            if left:
                writes, self._written.writes = self._written.writes, True
                again = [(number, tasks[number]) for number in left]
                jobs.begin(task_batches(again, self.jobs), _WAVE_FOR_EACH * self.jobs)
                yield from jobs.results(watch)
                self._written.writes = writes

    def sql(self, rows: int) -> DuckSql | SparkSql:
        """Return Spark SQL for large tables, and if executors have written any. The same queries over small
        ones end before Spark has planned them.
        """
        if not self._written.tables and rows < SQL_ROWS_MIN:
            return DuckSql()
        written = self._written
        sql = SparkSql(self._users, rows + written.count, {"scanned": (tuple(written.tables), _RUNS)})
        self._opened.append(sql)
        return sql

    def close(self) -> None:
        """Remove the tables that executors have written."""
        for sql in self._opened:
            sql.close()
        for name in self._written.tables:
            self._session.sql(f"DROP TABLE IF EXISTS {name}")

    def _parted(self, tasks: Sequence[AuditTask[Answer]]) -> tuple[_Batch, _Batch]:
        """Return the tasks for the workers, and those for this process."""
        all_here = is_here(self._session)
        sent: _Batch = []
        kept: _Batch = []
        for number, task in enumerate(tasks):
            (kept if needs_this_machine(task) and not all_here else sent).append((number, task))
        return sent, kept


@dataclass(slots=True)
class _WrittenRuns:
    """The tables of runs that executors have written, and whether they write the runs of all tasks."""

    tables: list[str] = field(default_factory=list)
    count: int = 0
    writes: bool = False
    returned: int = 0
    """The number of runs that the driver has received."""


class _Jobs:
    """The jobs of one call of `SparkEngine.run`. At the end of the `with` those that still run are
    cancelled.
    """

    def __init__(
        self, session: SparkSession, users: SparkSession, rate_max: float | None, written: _WrittenRuns
    ) -> None:
        self._session = session
        self._users = users
        self._rate_max = rate_max
        self._written = written
        self._tag = f"ledgerstore-{uuid.uuid4()}"
        self._threads = ThreadPoolExecutor(_WAVES_AT_ONCE, "spark-job")
        self._jobs: set[Future[pa.Table]] = set()

    def __enter__(self) -> _Jobs:
        return self

    def __exit__(self, *_: object) -> None:
        while not all(job.cancel() or job.done() for job in self._jobs):
            # The cancelling is repeated, because a job may be about to begin.
            with contextlib.suppress(Exception):
                self._cancel()
            wait(self._jobs, _LOOK_S)
        self._threads.shutdown()

    def _cancel(self) -> None:
        if is_of_connect(self._session):
            self._session.interruptTag(self._tag)
        else:
            self._session.interruptAll()

    def begin(self, batches: Sequence[_Batch], wave_size: int) -> None:
        """Submit the jobs, `wave_size` batches in each."""
        at_once = min(len(batches), max(1, wave_size // _WAVE_FOR_EACH))
        rate = None if self._rate_max is None else self._rate_max / at_once
        for first in range(0, len(batches), wave_size):
            wave = batches[first : first + wave_size]
            self._jobs.add(self._threads.submit(self._run, wave, rate))

    def _run(self, wave: Sequence[_Batch], rate_max: float | None) -> pa.Table:
        if is_of_connect(self._session):
            self._session.addTag(self._tag)
        else:
            count, size = sum(map(len, wave)), sum(task.size for batch in wave for _, task in batch)
            words = f"ledgerstore audit: {count} tasks, {size:,} bytes of files"
            self._session.sparkContext.setJobDescription(words)
        rows = _BATCHES.whole((number, pickle.dumps(batch)) for number, batch in enumerate(wave))
        # From a single partition rows are dealt one by one: each batch has a partition of its own.
        frame = frame_of(rows, self._session, self._users).coalesce(1).repartition(len(wave))
        has_runs = any(isinstance(task, ScanTask) for batch in wave for _, task in batch)
        if not (self._written.writes and has_runs):
            runner = _BatchRunner(rate_max, RESULT_ROWS_MAX // len(wave))
            return frame.mapInArrow(runner, _OUTCOMES.ddl).toArrow()
        name = f"ledgerstore_{uuid.uuid4().hex}_scanned"
        frame.mapInArrow(_RunWriter(rate_max), _WRITTEN.ddl).write.saveAsTable(name)
        written = self._session.table(name)
        self._written.count += written.where("part IS NOT NULL").count()
        self._written.tables.append(name)
        return written.where("number IS NOT NULL").select(*(one for one, _ in _OUTCOMES.columns)).toArrow()

    def results(self, watch: Callable[[int], None]) -> Generator[TaskResult[Any], None, list[int]]:
        """Yield the results as jobs end. Return the numbers of tasks that have to be repeated, because they
        have too many runs to return them.
        """
        left: list[int] = []
        ended_tasks = 0
        while self._jobs:
            ended, _ = wait(self._jobs, return_when=FIRST_COMPLETED)
            for job in ended:
                self._jobs.discard(job)
                for row in _rows(job):
                    ended_tasks += 1
                    watch(row["read"])
                    if row["content"] is None:
                        left.append(row["number"])
                        continue
                    part = pickle.loads(row["content"])  # noqa: S301 - from our own workers
                    if row["is_error"]:
                        raise part
                    if isinstance(part, Scanned):
                        self._written.returned += sum(map(len, part.rows.values()))
                    yield TaskResult(row["number"], part)
                self._written.writes |= (
                    self._written.returned > _RETURNED_ROWS_MAX or 2 * len(left) > ended_tasks
                )
        return left


def _rows(job: Future[pa.Table]) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = job.result().to_pylist()
    except Exception as error:
        raise SparkFailed(_in_one_line(error)) from None
    return rows


def task_batches(tasks: Sequence[_Numbered], processors: int) -> list[_Batch]:
    """Return the tasks with their numbers in batches of about the same size, the largest first."""
    total = sum(task.size for _, task in tasks)
    wanted = max(processors, min(total // _BATCH_SIZE, processors * _BATCHES_FOR_EACH))
    made: list[_Batch] = [[] for _ in range(min(wanted, len(tasks)))]
    weights = [(0, lot) for lot in range(len(made))]
    for number, task in sorted(tasks, key=lambda pair: pair[1].size, reverse=True):
        weight, lot = weights[0]
        made[lot].append((number, task))
        heapreplace(weights, (weight + task.size + 1, lot))
    return sorted(made, key=lambda batch: -sum(task.size for _, task in batch))


def _in_one_line(error: BaseException) -> str:
    """Return Spark's message without the traces of its own calls: why a job was aborted, if one was."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = (_ABORTED + line.partition(_ABORTED)[2] for line in lines if _ABORTED in line)
    return next(why, lines[0] if lines else type(error).__name__)


# ── on the executors ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _BatchRunner:
    """The code that an executor runs for a partition, which is one batch of tasks."""

    rate_max: float | None
    rows_max: int
    """The number of runs that the results of the batch may have."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = self.rows_max
        for number, read, result, is_error in _executed(batches, self.rate_max):
            size = sum(map(len, result.rows.values())) if isinstance(result, Scanned) else 0
            if size > left:
                # Nothing counts as read, because the task is going to be repeated.
                yield from _OUTCOMES.rows([(number, 0, False, None)])
                continue
            left -= size
            yield from _OUTCOMES.rows([(number, read, is_error, pickle.dumps(result))])


@dataclass(frozen=True, slots=True)
class _RunWriter:
    """The same, if the runs of the results become rows of their own."""

    rate_max: float | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, read, result, is_error in _executed(batches, self.rate_max):
            light = result
            if isinstance(result, Scanned):
                for part, runs in result.rows.items():
                    yield from _run_rows(part, runs)
                light = replace(result, rows={})
            outcome = dict(zip(_names(_OUTCOMES), (number, read, is_error, pickle.dumps(light)), strict=True))
            yield _WRITTEN.batch({name: [outcome.get(name)] for name in _names(_WRITTEN)})


def _names(table: Table) -> list[str]:
    return [name for name, _ in table.columns]


def _run_rows(part: int, runs: Runs) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(runs), _ROWS_AT_ONCE):
        some = runs[first : first + _ROWS_AT_ONCE]
        nulls = {name: [None] * len(some) for name in _names(_OUTCOMES)}
        yield _WRITTEN.batch({**nulls, "part": np.full(len(some), part), **columns_of(some)})


def _executed(
    batches: Iterator[pa.RecordBatch], rate_max: float | None
) -> Iterator[tuple[int, int, Any, bool]]:
    """Run the tasks, and yield the number of each, how many bytes it read, its result or error, and whether
    that is an error.
    """
    meter = _TaskMeter()
    throttle = ReadThrottle(meter.tell, rate_max)
    for batch in batches:
        for pickled in batch.column("tasks").to_pylist():
            for number, task in pickle.loads(pickled):  # noqa: S301 - from our own driver
                try:
                    result, is_error = task.run(throttle), False
                except Exception as error:
                    error.add_note(f"in {task.name}, on Spark")
                    result, is_error = _sendable(error), True
                yield number, meter.taken(), result, is_error


class _TaskMeter:
    def __init__(self) -> None:
        self._read = 0

    def tell(self, size: int) -> None:
        self._read += size

    def taken(self) -> int:
        """Return the number of bytes read since the last call."""
        read, self._read = self._read, 0
        return read


def _sendable(error: Exception) -> Exception:
    """Return the error, or its name and message if it cannot be unpickled."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:
        return SparkFailed(f"{type(error).__name__}: {error}")
    return error
