"""Run tasks on Spark: batches of tasks are the rows of a DataFrame, and executors run them in `mapInArrow`.

    driver                                             executors
    (batch, pickled tasks), a wave of rows ──job──▶ a Python process: task.run(throttle)
    (number, result, bytes read) ◀──────── rows ───

Only paths go out and only results come back: no byte of a file passes through Java. The rows of a job arrive
when its last task has ended. So the tasks are divided into waves, the largest first, each of which is a job;
two jobs are under way at once, so that no processor waits for the end of a wave. An exception of a task is a
row too, because Spark would try a failed task again, three times on a cluster, and hide its error under
Spark's own.

A session is all that is needed, so that Spark Connect runs the audit too.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import uuid
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from heapq import heapreplace
from typing import TYPE_CHECKING, Any, TypeVar

from recovery.audit.engines.local import processors
from recovery.audit.engines.sql import DuckSql
from recovery.audit.engines.task import ReadThrottle, TaskResult, needs_this_machine
from recovery.audit.model.tables import table
from recovery.audit.spark.session import is_here, is_of_connect, master_of, ship
from recovery.audit.spark.sql import SparkSql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from recovery.audit.engines.task import AuditTask

Answer = TypeVar("Answer")
_Numbered = tuple[int, "AuditTask[Any]"]
_Batch = list[_Numbered]

_BATCH_SIZE = 64 << 20
"""The number of bytes for which a batch of its own pays off: each batch costs some ten milliseconds."""
_BATCHES_FOR_EACH = 32
_WAVE_FOR_EACH = 4
"""The number of batches in a wave for each processor."""
_WAVES_AT_ONCE = 2
_LOOK_S = 0.2
_ABORTED = "Job aborted"
_LOCAL = re.compile(r"local\[(\d+|\*)")

SQL_ROWS_MIN = 5_000_000
"""The number of rows from which on Spark executes the queries of the checks."""

_BATCHES = table("batch", "tasks:binary")
_OUTCOMES = table("number", "read", "is_error:boolean", "content:binary")


class SparkFailed(Exception):
    """Spark gave up without an error of a task: a lost executor, a worker that ran out of memory."""


class SparkEngine:
    """Runs tasks in a Spark session. Other jobs of the session are not affected."""

    def __init__(self, session: SparkSession, rate_max: float | None = None) -> None:
        # Only all jobs of a session can be cancelled from another thread, unless it is one of Spark Connect.
        self._session = session if is_of_connect(session) else session.newSession()
        self._rate_max = rate_max

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
        with _Jobs(self._session, self._rate_max) as jobs:
            if sent:
                ship(self._session)
                jobs.begin(task_batches(sent, self.jobs), _WAVE_FOR_EACH * self.jobs)
            throttle = ReadThrottle(watch, self._rate_max)
            for number, task in kept:
                yield TaskResult(number, task.run(throttle))
            yield from jobs.results(watch)

    def sql(self, rows: int) -> DuckSql | SparkSql:
        """Return Spark SQL for large tables. The same queries over small ones end before Spark has planned
        them.
        """
        return DuckSql() if rows < SQL_ROWS_MIN else SparkSql(self._session, rows)

    def _parted(self, tasks: Sequence[AuditTask[Answer]]) -> tuple[_Batch, _Batch]:
        """Return the tasks for the workers, and those for this process."""
        all_here = is_here(self._session)
        sent: _Batch = []
        kept: _Batch = []
        for number, task in enumerate(tasks):
            (kept if needs_this_machine(task) and not all_here else sent).append((number, task))
        return sent, kept


class _Jobs:
    """The jobs of one call of `SparkEngine.run`. At the end of the `with` those that still run are
    cancelled.
    """

    def __init__(self, session: SparkSession, rate_max: float | None) -> None:
        self._session = session
        self._rate_max = rate_max
        self._tag = f"ledgerstore-{uuid.uuid4()}"
        self._threads = ThreadPoolExecutor(_WAVES_AT_ONCE, "spark-job")
        self._jobs: set[Future[pa.Table]] = set()

    def __enter__(self) -> _Jobs:
        return self

    def __exit__(self, *_: object) -> None:
        while not all(job.cancel() or job.done() for job in self._jobs):
            # Again and again, because a job may be about to begin.
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
        runner = _BatchRunner(None if self._rate_max is None else self._rate_max / at_once)
        for first in range(0, len(batches), wave_size):
            wave = batches[first : first + wave_size]
            self._jobs.add(self._threads.submit(self._run, wave, first, runner))

    def _run(self, wave: Sequence[_Batch], first: int, runner: _BatchRunner) -> pa.Table:
        if is_of_connect(self._session):
            self._session.addTag(self._tag)
        else:
            count, size = sum(map(len, wave)), sum(task.size for batch in wave for _, task in batch)
            words = f"ledgerstore audit: {count} tasks, {size:,} bytes of files"
            self._session.sparkContext.setJobDescription(words)
        rows = _BATCHES.whole((first + at, pickle.dumps(batch)) for at, batch in enumerate(wave))
        # From a single partition rows are dealt one by one: each batch has a partition of its own.
        frame = self._session.createDataFrame(rows).coalesce(1).repartition(len(wave))
        return frame.mapInArrow(runner, _OUTCOMES.ddl).toArrow()

    def results(self, watch: Callable[[int], None]) -> Iterator[TaskResult[Any]]:
        """Yield the results as jobs end."""
        waiting = set(self._jobs)
        while waiting:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for job in ended:
                yield from _results(job, watch)


def _results(job: Future[pa.Table], watch: Callable[[int], None]) -> Iterator[TaskResult[Any]]:
    try:
        rows = job.result().to_pylist()
    except Exception as error:
        raise SparkFailed(_in_one_line(error)) from None
    for row in rows:
        watch(row["read"])
        part = pickle.loads(row["content"])  # noqa: S301 - from our own workers
        if row["is_error"]:
            raise part
        yield TaskResult(row["number"], part)


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

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        meter = _TaskMeter()
        throttle = ReadThrottle(meter.tell, self.rate_max)
        for batch in batches:
            for pickled in batch.column("tasks").to_pylist():
                for number, task in pickle.loads(pickled):  # noqa: S301 - from our own driver
                    content, is_error = _outcome(task, throttle)
                    yield from _OUTCOMES.rows([(number, meter.taken(), is_error, content)])


class _TaskMeter:
    def __init__(self) -> None:
        self._read = 0

    def tell(self, size: int) -> None:
        self._read += size

    def taken(self) -> int:
        """Return the number of bytes read since the last call."""
        read, self._read = self._read, 0
        return read


def _outcome(task: AuditTask[Any], throttle: ReadThrottle) -> tuple[bytes, bool]:
    """Return the pickled result of a task, or its error, and whether it is an error."""
    try:
        return pickle.dumps(task.run(throttle), pickle.HIGHEST_PROTOCOL), False
    except Exception as error:
        error.add_note(f"in {task.name}, on Spark")
        return _pickled_error(error), True


def _pickled_error(error: Exception) -> bytes:
    """Pickle the error, or its name and message if it cannot be unpickled."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - our own bytes
    except Exception:
        return pickle.dumps(SparkFailed(f"{type(error).__name__}: {error}"))
    return pickled
