"""Runs programs in forked children of a process that has already imported everything: dozens per second.

A child is a process group of its own, so that a kill also ends the processes that it started. SIGALRM ends a
child that takes too long. Its marks, tape and answer are in memory, outside of the root.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

import cloudpickle

from recovery.crashlab.judge.outcome import Answered, Died, Hung, Outcome, RecoveryRefused, refusal_of
from recovery.crashlab.record import preload, tape
from recovery.crashlab.record.history import Ctx, HistoryBuilder
from recovery.crashlab.run import wire
from recovery.crashlab.run.spec import Command, call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.crashlab.record.history import History
    from recovery.crashlab.record.preload import Orders
    from recovery.crashlab.record.tape import Event
    from recovery.crashlab.run.spec import Program


T = TypeVar("T")

_PREFIX = "crashlab-"


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """How a program ended, and its marks and tape."""

    outcome: Outcome
    history: History
    events: tuple[Event, ...]
    """Empty if nothing was recorded."""
    seconds: float

    @property
    def was_killed(self) -> bool:
        return self.outcome == Died(signal.SIGKILL)


def memory_directory() -> str | None:
    """Return a directory in memory if there is one. A kill keeps the page cache, so no disk is needed."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def sweep() -> None:
    """Remove directories of runners whose process was killed, because they occupy memory."""
    for path in Path(memory_directory() or gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(path, ignore_errors=True)


class Role(Enum):
    """The role in which a program runs."""

    WORKLOAD = "it works, and makes marks"
    RECOVERY = "it opens what is there, and shows it"


class Runner:
    """Runs programs one at a time. Use it from one thread, in a process without other threads; close it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        sweep()
        self._place = TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=memory_directory())
        self._home = Path(self._place.name)
        self._roots = 0
        self.recoveries = 0
        """The number of recoveries so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._place.cleanup()

    def root(self) -> Path:
        """Return a new empty directory."""
        self._roots += 1
        root = self._home / f"root-{self._roots}"
        root.mkdir()
        return root

    # ── one program in one child ──────────────────────────────────────────────────────────────────────

    def recover(self, program: Program, root: Path) -> Outcome:
        """Run a recover function and return its outcome, without recording."""
        self.recoveries += 1
        return self._run(program, root, Role.RECOVERY, None).outcome

    def work(self, program: Program, root: Path) -> ProgramRun:
        """Run a workload, which writes marks, without recording."""
        return self._run(program, root, Role.WORKLOAD, None)

    def record_recovery(self, program: Program, root: Path, orders: Orders) -> ProgramRun:
        """Run and record a recovery, and do to it what the orders say."""
        return self._run(program, root, Role.RECOVERY, orders)

    def record(self, program: Program, root: Path, orders: Orders) -> ProgramRun:
        """Run and record a workload, and do to it what the orders say."""
        return self._run(program, root, Role.WORKLOAD, orders)

    def _run(self, program: Program, root: Path, role: Role, orders: Orders | None) -> ProgramRun:
        started = time.monotonic()
        for name in ("marks", "tape", "tape.shared", "end", "out", "err"):
            (self._home / name).unlink(missing_ok=True)
        gc.freeze()  # otherwise a garbage collection in a child would copy every page
        child = os.fork()
        if not child:
            self._run_in_child(program, root, role, orders)
        status = os.waitstatus_to_exitcode(_wait_for(child))
        return ProgramRun(
            _without_root_path(self._outcome(program, status), root),
            self._history(),
            tuple(tape.decode(self._read_file("tape"))),
            time.monotonic() - started,
        )

    # ── many programs in one child ────────────────────────────────────────────────────────────────────

    def batch(self, jobs: Sequence[Callable[[InProcessRunner], T]]) -> list[T | None]:
        """Run these jobs one after the other in one child, because a fork costs more than most recoveries.

        The result is None for each job that ended its process or took too long.
        """
        answers: list[T | None] = []
        while len(answers) < len(jobs):
            found = self._until_failure(jobs[len(answers) :])
            answers += found
            if len(answers) < len(jobs):
                answers.append(None)
        return answers

    def _until_failure(self, jobs: Sequence[Callable[[InProcessRunner], T]]) -> list[T]:
        """Return the results up to the first job that ended its process."""
        file = self._home / "batch"
        file.unlink(missing_ok=True)
        gc.freeze()
        child = os.fork()
        if not child:
            self._run_jobs_in_child(jobs, file)
        _wait_for(child)
        with contextlib.suppress(FileNotFoundError), file.open("rb") as pipe:
            return list(wire.receive_all(pipe))
        return []

    def _run_jobs_in_child(self, jobs: Sequence[Callable[[InProcessRunner], T]], file: Path) -> NoReturn:
        try:
            os.setpgid(0, 0)
            _restore_signal_handlers()
            # Collect garbage rarely, because a collection copies every page that the child shares with its
            # parent.
            gc.set_threshold(50_000)
            inside = InProcessRunner()
            with file.open("wb", buffering=0) as pipe:
                for job in jobs:
                    signal.setitimer(signal.ITIMER_REAL, self._timeout_s)
                    wire.send(pipe, job(inside))
        finally:
            os._exit(0)

    # ── in the child ──────────────────────────────────────────────────────────────────────────────────

    def _run_in_child(self, program: Program, root: Path, role: Role, orders: Orders | None) -> NoReturn:
        status = 70
        try:
            os.setpgid(0, 0)
            _restore_signal_handlers()
            signal.setitimer(signal.ITIMER_REAL, self._timeout_s)
            marks = self._open("marks", os.O_APPEND) if role is Role.WORKLOAD else -1
            if isinstance(program, Command):
                if orders is not None:
                    os.environ.update(preload.environment(root, self._home / "tape", marks, orders))
                program.become(root, marks, self._open("out"), self._open("err"))
            if orders is not None:
                preload.arm(root, self._home / "tape", marks, orders)
            status = self._call(program, root, Ctx(marks) if role is Role.WORKLOAD else None)
        finally:
            sys.stdout.flush()
            os._exit(status)

    def _call(self, program: Program, root: Path, ctx: Ctx | None) -> int:
        end: Outcome
        try:
            end = Answered(call(program, root, ctx))  # type: ignore[arg-type]
            pickled = cloudpickle.dumps(end)
        except BaseException as error:  # every exception is an outcome
            pickled = cloudpickle.dumps(refusal_of(error))
        (self._home / "end").write_bytes(pickled)
        return 0

    def _open(self, name: str, more: int = 0) -> int:
        return os.open(self._home / name, os.O_WRONLY | os.O_CREAT | more, 0o600)

    # ── what the child left ───────────────────────────────────────────────────────────────────────────

    def _outcome(self, program: Program, status: int) -> Outcome:
        if status == -signal.SIGALRM:
            return Hung()
        if status < 0:
            return Died(-status)
        if isinstance(program, Command):
            return program.outcome(status, self._read_file("out"), self._read_file("err"))
        pickled = self._read_file("end")
        if status or not pickled:
            return RecoveryRefused((), "it ended its process", status)
        outcome: Outcome = cloudpickle.loads(pickled)
        return outcome

    def _history(self) -> History:
        register = HistoryBuilder()
        register.take(self._read_file("marks"))
        return register.history()

    def _read_file(self, name: str) -> bytes:
        try:
            return (self._home / name).read_bytes()
        except FileNotFoundError:
            return b""


class InProcessRunner:
    """Runs functions in this process, which is a child that runs many of them."""

    def recover(self, program: Program, root: Path) -> Outcome:
        return self._answer(program, root, None)

    def work(self, program: Program, root: Path) -> ProgramRun:
        started = time.monotonic()
        memory = os.memfd_create("marks")
        # Open with O_APPEND, because writes of two threads at one position would overwrite each other.
        marks = os.open(f"/proc/self/fd/{memory}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            outcome = self._answer(program, root, Ctx(marks))
            register = HistoryBuilder()
            register.take(os.pread(memory, os.fstat(memory).st_size, 0))
        finally:
            os.close(marks)
            os.close(memory)
        return ProgramRun(outcome, register.history(), (), time.monotonic() - started)

    def _answer(self, program: Program, root: Path, ctx: Ctx | None) -> Outcome:
        assert not isinstance(program, Command)
        try:
            return Answered(call(program, root, ctx))
        except Exception as error:  # a store that ends its process ends the child
            return _without_root_path(refusal_of(error), root)


def _without_root_path(outcome: Outcome, root: Path) -> Outcome:
    """Replace the path of the root in the text of a refusal, so that two runs give the same text."""
    if not isinstance(outcome, RecoveryRefused):
        return outcome
    return replace(outcome, text=outcome.text.replace(str(root), "{root}"))


def _restore_signal_handlers() -> None:
    """Restore the default signal handlers, because those of the worker are not for the program."""
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _wait_for(child: int) -> int:
    """Wait for a child and return its status. Also end every process that it has started."""
    try:
        return os.waitpid(child, 0)[1]
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it may not have its own group yet
            os.waitpid(child, 0)
        raise
    finally:
        _end_group(child)


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # usually there is none left
        os.killpg(group, signal.SIGKILL)
