"""Tasks on Spark: one job for all of them, and each part comes home as its task ends.

    driver                                     executors
    tasks, the largest first, in lots ──job──▶ a Python process: task.run(pace)
    a queue ◀── an accumulator ◀── letters ◀── the part, pickled, and how many bytes were read

Only paths go out and only parts come back: no byte of a file passes through Java. An accumulator, because
what a job collects is there when the last task has ended, and what one has found would wait for it; it is
told of every task that ended well before the job ends. What a task raises is a letter too: a failed task
would be tried again, three times on a cluster, and its error buried under Spark's own.
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

from recovery.audit.spark.shipping import is_here, ship
from recovery.audit.task import Done, Pace, stays
from storage.worker import begin_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark import Accumulator, SparkContext

    from recovery.audit.task import Task

Answer = TypeVar("Answer")
_Numbered = tuple[int, "Task[Any]"]

_LOT_SIZE = 64 << 20
"""Bytes for which it pays to give a lot of tasks to Spark by itself: each lot costs some ten milliseconds."""
_LOTS_FOR_EACH = 32


class SparkFailed(Exception):
    """Spark gave up, and no task has said why: a lost executor, a worker that ran out of memory."""


@dataclass(frozen=True, slots=True)
class _Letter:
    """What has become of one task. Opened by who asked: the thread that brings it must not fail."""

    number: int
    size: int
    content: bytes
    is_error: bool


@dataclass(frozen=True, slots=True)
class _Ended:
    """The job has ended, and with this error if with any."""

    error: BaseException | None


_Mail = SimpleQueue[_Letter | _Ended]


class SparkEngine:
    """Runs tasks wherever the context does. It may have other work; nothing of it is touched."""

    def __init__(self, context: SparkContext, rate_max: float | None = None) -> None:
        self._context = context
        self._rate_max = rate_max

    @property
    def name(self) -> str:
        return f"Spark {self._context.version} on {self._context.master}"

    @property
    def jobs(self) -> int:
        """How many tasks it runs at once."""
        return self._context.defaultParallelism

    def run(self, tasks: Sequence[Task[Answer]], watch: Callable[[int], None]) -> Iterator[Done[Answer]]:
        """As `Engine.run`. A task's bytes are told when it ends. Given up in the middle, it ends the job.

        On a cluster what only this machine has is read here meanwhile.
        """
        sent, kept = self._parted(tasks)
        mail: _Mail = SimpleQueue()
        job = _Job(self._context, f"ledgerstore-{uuid.uuid4()}", self._rate_max, mail)
        if sent:
            ship(self._context)
            begin_thread("spark job", lambda: job.run(sent))
        try:
            pace = Pace(watch, self._rate_max)
            for number, task in kept:
                yield Done(number, task.run(pace))
            yield from _opened(mail, len(sent), watch)
        finally:
            job.end()

    def _parted(self, tasks: Sequence[Task[Answer]]) -> tuple[list[_Numbered], list[_Numbered]]:
        """What goes to the workers, and what stays in this process."""
        sent: list[_Numbered] = []
        kept: list[_Numbered] = []
        for number, task in enumerate(tasks):
            (kept if stays(task) and not is_here(self._context.master) else sent).append((number, task))
        return sent, kept


class _Job:
    """One job of Spark's. It waits in a thread of its own, so that whoever asked can be interrupted."""

    def __init__(self, context: SparkContext, group: str, rate_max: float | None, mail: _Mail) -> None:
        self._context = context
        self._group = group
        self._rate_max = rate_max
        self._mail = mail
        self._has_ended = False

    def run(self, tasks: Sequence[_Numbered]) -> None:
        """The whole job; what becomes of it is in the mail."""
        try:
            self._submit(tasks)
        except BaseException as error:
            self._mail.put(_Ended(error))
        else:
            self._mail.put(_Ended(None))
        self._has_ended = True

    def _submit(self, tasks: Sequence[_Numbered]) -> None:
        context = self._context
        context.setJobGroup(self._group, "ledgerstore audit", interruptOnCancel=True)
        made = lots(tasks, context.defaultParallelism)
        at_once = min(context.defaultParallelism, len(made))
        rate = None if self._rate_max is None else self._rate_max / at_once
        post: Accumulator[list[_Letter]] = context.accumulator([], _Receiving(self._mail))
        context.parallelize(made, len(made)).foreachPartition(_Work(post, rate))

    def end(self) -> None:
        """Ends what of it is still under way."""
        if not self._has_ended:
            self._context.cancelJobGroup(self._group)


def lots(tasks: Sequence[_Numbered], processors: int) -> list[list[_Numbered]]:
    """The tasks with their numbers in lots of about the same size, the largest tasks first."""
    total = sum(task.size for _, task in tasks)
    wanted = max(processors, min(total // _LOT_SIZE, processors * _LOTS_FOR_EACH))
    made: list[list[_Numbered]] = [[] for _ in range(min(wanted, len(tasks)))]
    weights = [(0, lot) for lot in range(len(made))]
    for number, task in sorted(tasks, key=lambda pair: pair[1].size, reverse=True):
        weight, lot = weights[0]
        made[lot].append((number, task))
        heapreplace(weights, (weight + task.size + 1, lot))
    return made


def _opened(mail: _Mail, count: int, watch: Callable[[int], None]) -> Iterator[Done[Any]]:
    """The parts in the letters, once each: a task that Spark has run twice has written twice."""
    seen: set[int] = set()
    while count:
        match mail.get():
            case _Letter(number=number) if number in seen:
                continue
            case _Letter(number=number, size=size, content=content, is_error=is_error):
                seen.add(number)
                watch(size)
                part = pickle.loads(content)  # noqa: S301 - from our own workers
                if is_error:
                    raise part
                yield Done(number, part)
            case _Ended(error=None):
                if len(seen) < count:
                    raise SparkFailed(
                        f"Spark says that all is done, and {count - len(seen)} parts are missing"
                    )
                return
            case _Ended(error=error):
                raise SparkFailed(_in_one_line(error)) from None


def _in_one_line(error: BaseException | None) -> str:
    """What Spark says, without the trace of its own calls."""
    java = getattr(error, "java_exception", None)
    said = str(java.getMessage() if java is not None else error).strip()
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


# ── at the other end ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Work:
    """What an executor does with a lot."""

    post: Accumulator[list[_Letter]]
    rate_max: float | None

    def __call__(self, lots: Iterable[list[_Numbered]]) -> None:
        meter = _Meter()
        pace = Pace(meter.tell, self.rate_max)
        for number, task in chain.from_iterable(lots):
            self.post.add([_letter(number, task, pace, meter)])


class _Meter:
    def __init__(self) -> None:
        self._read = 0

    def tell(self, size: int) -> None:
        self._read += size

    def taken(self) -> int:
        """What was read since the last time."""
        read, self._read = self._read, 0
        return read


def _letter(number: int, task: Task[Any], pace: Pace, meter: _Meter) -> _Letter:
    try:
        part = task.run(pace)
    except Exception as error:
        error.add_note(f"in {task.name}, on Spark")
        return _Letter(number, meter.taken(), _pickled_error(error), is_error=True)
    return _Letter(number, meter.taken(), pickle.dumps(part, pickle.HIGHEST_PROTOCOL), is_error=False)


def _pickled_error(error: Exception) -> bytes:
    """The error itself; one that does not come through as it is, by its name and words."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - our own bytes
    except Exception:
        return pickle.dumps(SparkFailed(f"{type(error).__name__}: {error}"))
    return pickled


class _Sending(AccumulatorParam[list[_Letter]]):
    """In a worker: letters are gathered until its lot is done."""

    def zero(self, value: list[_Letter]) -> list[_Letter]:  # noqa: ARG002 - as Spark calls it
        return []

    def addInPlace(  # noqa: N802 - as Spark calls it
        self, value1: list[_Letter], value2: list[_Letter]
    ) -> list[_Letter]:
        value1 += value2
        return value1


class _Receiving(_Sending):
    """In the driver: what arrives goes into the queue at once. Sent to a worker it is `_Sending`."""

    def __init__(self, mail: _Mail) -> None:
        self._mail = mail

    def addInPlace(  # noqa: N802 - as Spark calls it
        self, value1: list[_Letter], value2: list[_Letter]
    ) -> list[_Letter]:
        for letter in value2:
            self._mail.put(letter)
        return value1

    def __reduce__(self) -> tuple[type[_Sending], tuple[()]]:
        return _Sending, ()
