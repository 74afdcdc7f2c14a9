"""The worker processes of a run: the pool that starts them and gives them tasks, and a worker's own loop."""

from __future__ import annotations

import ctypes
import importlib
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import cloudpickle

from recovery.crashlab.judge.outcome import refusal_of
from recovery.crashlab.record import preload
from recovery.crashlab.run import wire
from recovery.crashlab.run.image_checker import ImageChecker
from recovery.crashlab.run.runner import Runner
from recovery.crashlab.run.spec import Command
from recovery.crashlab.run.task import CountsReport, ImagesReport, Message, WorkerContext, WorkerTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType, TracebackType

    from recovery.crashlab.judge.outcome import RecoveryRefused
    from recovery.crashlab.run.spec import Spec
    from recovery.crashlab.run.task import WorkerTask


_Message = TypeVar("_Message")
_WORKER = "from recovery.crashlab.run.workers import main; main()"


class LabError(Exception):
    """The laboratory cannot work, because its input is broken, or because of a bug in itself."""


class WorkerPool:
    """Several worker processes with the same specification. Use it from one thread; close it."""

    def __init__(self, spec: Spec, jobs: int) -> None:
        self._stack = ExitStack()
        with self._stack, _by_value(spec):
            self._workers = [self._stack.enter_context(_WorkerProcess(spec)) for _ in range(jobs)]
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(
        self,
        tasks: Sequence[WorkerTask[_Message]],
        on_message: Callable[[_Message], None],
        on_tick: Callable[[], None],
    ) -> list[TaskDone]:
        """Give each worker one task, and pass on their messages until all have finished."""
        selector, done = selectors.DefaultSelector(), []
        with selector:
            for worker, task in zip(self._workers, tasks, strict=False):
                wire.send(worker.orders, task)
                selector.register(worker.answers, selectors.EVENT_READ, worker)
            while selector.get_map():
                for key, _ in selector.select(0.2):
                    message = self._next_message(key.data)
                    if isinstance(message, TaskDone):
                        done.append(message)
                        selector.unregister(key.fileobj)
                    else:
                        on_message(message)
                on_tick()
        return done

    def _next_message(self, worker: _WorkerProcess) -> Any:
        """Return the next message of a worker, or that its task is done."""
        try:
            message = wire.receive(worker.answers)
        except EOFError:
            raise LabError("a worker is gone; its last words are on standard error") from None
        if isinstance(message, TaskFailed):
            raise LabError(f"{message.error}\n{message.where}")
        return message


class _WorkerProcess:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            # Not with -m, because pickled values must have the classes that this process has.
            [sys.executable, "-P", "-W", "ignore", "-c", _WORKER],
            env=dict(os.environ)
            | {
                "LD_PRELOAD": str(preload.library()),
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "PYTHONHASHSEED": "0",  # two runs must make the same calls
                "OPENBLAS_NUM_THREADS": "1",  # numpy's threads would not survive the fork
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            # an interrupt at the terminal must reach this process only, which then ends the workers
            process_group=0,
        )
        assert self._process.stdin
        assert self._process.stdout
        self.orders: IO[bytes] = self._process.stdin
        self.answers: IO[bytes] = self._process.stdout
        wire.send(self.orders, self._spec)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # it kills its child, unmounts its volume and removes its temporary files
            self._process.terminate()
        self.orders.close()  # the worker ends at the end of its orders
        self.answers.close()
        self._process.wait()


@contextmanager
def _by_value(spec: Spec) -> Iterator[None]:
    """Send functions of modules that a worker cannot import as code: from tests, notebooks, scripts."""
    registered = list(_not_importable(_modules(spec)))
    for module in registered:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _modules(spec: Spec) -> set[str]:
    """Return the names of the modules that contain the programs."""
    programs = [*spec.workloads.values(), spec.recover, *spec.checks, spec.fields]
    functions = [
        getattr(one, "go_on", None) or getattr(one, "verify", None) or getattr(one, "check", one)
        for one in programs
    ]
    names = {
        getattr(one.func if isinstance(one, partial) else one, "__module__", None)
        for one in functions
        if not isinstance(one, Command)
    }
    return {name for name in names if name} - {"__main__"}


def _not_importable(names: set[str]) -> Iterator[ModuleType]:
    """Yield modules that a worker cannot import, and modules beside them that they may use."""
    tops = {name.partition(".")[0] for name in names if name in sys.modules and not _is_importable(name)}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in tops and not _is_importable(name):
            yield module


def _is_importable(name: str) -> bool:
    """Return whether a new process with the same path would find the same module by this name."""
    file = getattr(sys.modules[name], "__file__", None)
    return file is not None and any(Path(file).is_relative_to(place) for place in _places(name))


def _places(name: str) -> Iterator[Path]:
    """Yield where finders say that the package or module of this name is, however it was loaded here."""
    top = name.partition(".")[0]
    for finder in sys.meta_path:  # also those of packages in editable installations
        path = [place for place in sys.path if place] if finder is PathFinder else None
        with suppress(ImportError, ValueError, AttributeError):
            found = finder.find_spec(top, path)
            if found is not None:
                yield from map(Path, found.submodule_search_locations or [found.origin or ""])
                return


_SIGNAL_AT_PARENT_S_DEATH = 1
_EVERY_S = 0.2
"""Counts are sent at this interval, occurrences at once."""


@dataclass(frozen=True, slots=True)
class TaskDone:
    """A task has ended; with the number of its recoveries and its duration."""

    recoveries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task failed, because of a mistake in the input of the laboratory or in the laboratory."""

    error: RecoveryRefused
    where: str


@dataclass(slots=True)
class Reporter:
    """Sends messages to the laboratory, and counts as sums."""

    pipe: IO[bytes]
    _counts: dict[str, int] = field(default_factory=dict)
    _images: set[str] = field(default_factory=set)
    _said: float = 0.0

    def send(self, message: Message) -> None:
        if isinstance(message, CountsReport):
            for name, more in message.counts.items():
                self._counts[name] = self._counts.get(name, 0) + more
        elif isinstance(message, ImagesReport):
            self._images |= message.images
        else:
            wire.send(self.pipe, message)
        if time.monotonic() - self._said > _EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Send the sums so far."""
        self._said = time.monotonic()
        if self._counts:
            wire.send(self.pipe, CountsReport(self._counts))
        if self._images:
            wire.send(self.pipe, ImagesReport(frozenset(self._images)))
        self._counts, self._images = {}, set()


def serve(orders: IO[bytes], answers: IO[bytes]) -> None:
    """Work on tasks until there are no more orders."""
    spec: Spec = wire.receive(orders)
    with Runner(spec.timeout_s) as runner:
        context = WorkerContext(spec, runner, ImageChecker(spec, runner))
        while True:
            try:
                task: WorkerTask[Message] = wire.receive(orders)
            except EOFError:
                return
            wire.send(answers, _work_on(task, context, Reporter(answers)))


def _work_on(task: WorkerTask[Message], context: WorkerContext, reporter: Reporter) -> TaskDone | TaskFailed:
    started, recoveries = time.monotonic(), context.runner.recoveries
    try:
        with ExitStack() as stack:
            messages = task.work(context)
            # Close at once instead of at the next garbage collection, because there may be a volume to
            # unmount.
            stack.callback(getattr(messages, "close", lambda: None))
            for message in messages:
                reporter.send(message)
    except Exception as error:
        import traceback

        return TaskFailed(refusal_of(error), traceback.format_exc())
    finally:
        reporter.flush()
    return TaskDone(context.runner.recoveries - recoveries, time.monotonic() - started)


def _end_on_sigterm() -> None:
    """Make SIGTERM unwind the stack, and ask for SIGTERM when the laboratory itself is killed."""
    signal.signal(signal.SIGTERM, _exit)
    ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENT_S_DEATH, signal.SIGTERM)


def _exit(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # only the first signal counts
    sys.exit(128 + number)


def main() -> None:
    """Run a worker process. Its pipes are moved away, so that output of programs goes to standard error."""
    _end_on_sigterm()
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    serve(orders, answers)
