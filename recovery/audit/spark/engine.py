"""Run tasks on Spark: one job for all of them, and each result arrives as its task ends.

    driver                                     executors
    tasks, the largest first, in batches ──job──▶ a Python process: task.run(throttle)
    a queue ◀── an accumulator ◀── outcomes ◀── the result, pickled, and how many bytes were read

Only paths go out and only results come back: no byte of a file passes through Java. An accumulator is used
because the results of a job arrive when its last task has ended, and the results of early tasks would wait;
an accumulator is updated when a task ends. An exception of a task is an outcome too, because Spark would try
a failed task again, three times on a cluster, and hide its error under Spark's own.
"""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass
from heapq import heapreplace
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.accumulators import AccumulatorParam

from recovery.audit.engines.sql import DuckSql
from recovery.audit.engines.task import ReadThrottle, TaskResult, needs_this_machine
from recovery.audit.spark.shipping import is_here, ship
from recovery.audit.spark.sql import SparkSql
from storage.runtime.worker import begin_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark import Accumulator, SparkContext

    from recovery.audit.engines.task import AuditTask

Answer = TypeVar("Answer")
_Numbered = tuple[int, "AuditTask[Any]"]

_BATCH_SIZE = 64 << 20
"""The number of bytes for which a batch of its own pays off: each batch costs some ten milliseconds."""
_BATCHES_FOR_EACH = 32

SQL_ROWS_MIN = 5_000_000
"""The number of rows from which on Spark executes the queries of the checks."""


class SparkFailed(Exception):
    """Spark gave up without an error of a task: a lost executor, a worker that ran out of memory."""


@dataclass(frozen=True, slots=True)
class _TaskOutcome:
    """The outcome of one task. It is unpickled by the caller, because the thread that delivers it must not
    fail.
    """

    number: int
    size: int
    content: bytes
    is_error: bool


@dataclass(frozen=True, slots=True)
class _JobEnded:
    """The job has ended, with this error if there is one."""

    error: BaseException | None


_OutcomeQueue = SimpleQueue[_TaskOutcome | _JobEnded]


class SparkEngine:
    """Runs tasks in a Spark context. Other jobs of the context are not affected."""

    def __init__(self, context: SparkContext, rate_max: float | None = None) -> None:
        self._context = context
        self._rate_max = rate_max

    @property
    def name(self) -> str:
        return f"Spark {self._context.version} on {self._context.master}"

    @property
    def jobs(self) -> int:
        """The number of tasks that run at once."""
        return self._context.defaultParallelism

    def run(
        self, tasks: Sequence[AuditTask[Answer]], watch: Callable[[int], None]
    ) -> Iterator[TaskResult[Answer]]:
        """Run tasks as `Engine.run` describes. Bytes are reported when a task ends. A caller that stops early
        ends the job.

        On a cluster, tasks that need this machine run in this process in the meantime.
        """
        sent, kept = self._parted(tasks)
        outcomes_arrived: _OutcomeQueue = SimpleQueue()
        job = _Job(self._context, f"ledgerstore-{uuid.uuid4()}", self._rate_max, outcomes_arrived)
        if sent:
            ship(self._context)
            begin_thread("spark job", lambda: job.run(sent))
        try:
            throttle = ReadThrottle(watch, self._rate_max)
            for number, task in kept:
                yield TaskResult(number, task.run(throttle))
            yield from _results(outcomes_arrived, len(sent), watch)
        finally:
            job.end()

    def sql(self, rows: int) -> DuckSql | SparkSql:
        """Return Spark SQL for large tables. The same queries over small ones end before Spark has planned
        them.
        """
        if rows < SQL_ROWS_MIN:
            return DuckSql()
        from pyspark.sql import SparkSession

        return SparkSql(SparkSession(self._context))

    def _parted(self, tasks: Sequence[AuditTask[Answer]]) -> tuple[list[_Numbered], list[_Numbered]]:
        """Return the tasks for the workers, and those for this process."""
        sent: list[_Numbered] = []
        kept: list[_Numbered] = []
        for number, task in enumerate(tasks):
            (kept if needs_this_machine(task) and not is_here(self._context.master) else sent).append(
                (number, task)
            )
        return sent, kept


class _Job:
    """One Spark job. It waits in a thread of its own, so that the caller can be interrupted."""

    def __init__(
        self, context: SparkContext, group: str, rate_max: float | None, outcomes_arrived: _OutcomeQueue
    ) -> None:
        self._context = context
        self._group = group
        self._rate_max = rate_max
        self._outcomes_arrived = outcomes_arrived
        self._has_ended = False

    def run(self, tasks: Sequence[_Numbered]) -> None:
        """Run the whole job. Its end is reported in the queue."""
        try:
            self._submit(tasks)
        except BaseException as error:
            self._outcomes_arrived.put(_JobEnded(error))
        else:
            self._outcomes_arrived.put(_JobEnded(None))
        self._has_ended = True

    def _submit(self, tasks: Sequence[_Numbered]) -> None:
        context = self._context
        context.setJobGroup(self._group, "ledgerstore audit", interruptOnCancel=True)
        made = task_batches(tasks, context.defaultParallelism)
        at_once = min(context.defaultParallelism, len(made))
        rate = None if self._rate_max is None else self._rate_max / at_once
        outcomes: Accumulator[list[_TaskOutcome]] = context.accumulator(
            [], _OutcomeReceiver(self._outcomes_arrived)
        )
        context.parallelize(made, len(made)).foreachPartition(_BatchRunner(outcomes, rate))

    def end(self) -> None:
        """Cancel the job if it has not ended."""
        if not self._has_ended:
            self._context.cancelJobGroup(self._group)


def task_batches(tasks: Sequence[_Numbered], processors: int) -> list[list[_Numbered]]:
    """Return the tasks with their numbers in batches of about the same size, the largest tasks first."""
    total = sum(task.size for _, task in tasks)
    wanted = max(processors, min(total // _BATCH_SIZE, processors * _BATCHES_FOR_EACH))
    made: list[list[_Numbered]] = [[] for _ in range(min(wanted, len(tasks)))]
    weights = [(0, lot) for lot in range(len(made))]
    for number, task in sorted(tasks, key=lambda pair: pair[1].size, reverse=True):
        weight, lot = weights[0]
        made[lot].append((number, task))
        heapreplace(weights, (weight + task.size + 1, lot))
    return made


def _results(
    outcomes_arrived: _OutcomeQueue, count: int, watch: Callable[[int], None]
) -> Iterator[TaskResult[Any]]:
    """Yield the results once each: a task that Spark has run twice has sent its result twice."""
    seen: set[int] = set()
    while count:
        match outcomes_arrived.get():
            case _TaskOutcome(number=number) if number in seen:
                continue
            case _TaskOutcome(number=number, size=size, content=content, is_error=is_error):
                seen.add(number)
                watch(size)
                part = pickle.loads(content)  # noqa: S301 - from our own workers
                if is_error:
                    raise part
                yield TaskResult(number, part)
            case _JobEnded(error=None):
                if len(seen) < count:
                    raise SparkFailed(f"Spark reports success, but {count - len(seen)} results are missing")
                return
            case _JobEnded(error=error):
                raise SparkFailed(_in_one_line(error)) from None


def _in_one_line(error: BaseException | None) -> str:
    """Return Spark's message without the trace of its own calls."""
    java = getattr(error, "java_exception", None)
    said = str(java.getMessage() if java is not None else error).strip()
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


# ── on the executors ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _BatchRunner:
    """The code that an executor runs for a batch."""

    outcomes: Accumulator[list[_TaskOutcome]]
    rate_max: float | None

    def __call__(self, task_batches: Iterable[list[_Numbered]]) -> None:
        meter = _TaskMeter()
        throttle = ReadThrottle(meter.tell, self.rate_max)
        for number, task in chain.from_iterable(task_batches):
            self.outcomes.add([_outcome(number, task, throttle, meter)])


class _TaskMeter:
    def __init__(self) -> None:
        self._read = 0

    def tell(self, size: int) -> None:
        self._read += size

    def taken(self) -> int:
        """Return the number of bytes read since the last call."""
        read, self._read = self._read, 0
        return read


def _outcome(number: int, task: AuditTask[Any], throttle: ReadThrottle, meter: _TaskMeter) -> _TaskOutcome:
    try:
        part = task.run(throttle)
    except Exception as error:
        error.add_note(f"in {task.name}, on Spark")
        return _TaskOutcome(number, meter.taken(), _pickled_error(error), is_error=True)
    return _TaskOutcome(number, meter.taken(), pickle.dumps(part, pickle.HIGHEST_PROTOCOL), is_error=False)


def _pickled_error(error: Exception) -> bytes:
    """Pickle the error, or its name and message if it cannot be unpickled."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - our own bytes
    except Exception:
        return pickle.dumps(SparkFailed(f"{type(error).__name__}: {error}"))
    return pickled


class _OutcomeSender(AccumulatorParam[list[_TaskOutcome]]):
    """In a worker: outcomes are collected until the batch is done."""

    def zero(self, value: list[_TaskOutcome]) -> list[_TaskOutcome]:  # noqa: ARG002 - as Spark calls it
        return []

    def addInPlace(  # noqa: N802 - as Spark calls it
        self, value1: list[_TaskOutcome], value2: list[_TaskOutcome]
    ) -> list[_TaskOutcome]:
        value1 += value2
        return value1


class _OutcomeReceiver(_OutcomeSender):
    """In the driver: outcomes go into the queue at once. When sent to a worker it becomes an
    `_OutcomeSender`.
    """

    def __init__(self, outcomes_arrived: _OutcomeQueue) -> None:
        self._outcomes_arrived = outcomes_arrived

    def addInPlace(  # noqa: N802 - as Spark calls it
        self, value1: list[_TaskOutcome], value2: list[_TaskOutcome]
    ) -> list[_TaskOutcome]:
        for outcome in value2:
            self._outcomes_arrived.put(outcome)
        return value1

    def __reduce__(self) -> tuple[type[_OutcomeSender], tuple[()]]:
        return _OutcomeSender, ()
