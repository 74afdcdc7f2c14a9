"""Programs run in forked children of a process that has everything imported: dozens of runs a second.

A child is a process group of its own, so that a kill takes along what it has started; one that lasts too
long is ended by SIGALRM. What it leaves behind (marks, tape, answer) lies in memory, outside the root.
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

from recovery.crashlab import preload, tape, wire
from recovery.crashlab.history import Ctx, Register
from recovery.crashlab.outcome import Answered, Died, Hung, Outcome, Refused, refused
from recovery.crashlab.programs import Command, call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.crashlab.history import History
    from recovery.crashlab.preload import Orders
    from recovery.crashlab.programs import Program
    from recovery.crashlab.tape import Event


T = TypeVar("T")

_PREFIX = "crashlab-"


@dataclass(frozen=True, slots=True)
class Run:
    """How a program ended, and what it left beside its files."""

    outcome: Outcome
    history: History
    events: tuple[Event, ...]
    """Empty where nothing was recorded."""
    seconds: float

    @property
    def was_killed(self) -> bool:
        return self.outcome == Died(signal.SIGKILL)


def memory_place() -> str | None:
    """A directory in memory where there is one: a kill leaves the page cache alone, so no disk is needed."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def sweep() -> None:
    """Removes what runners have left whose process was killed before it could: it takes memory."""
    for path in Path(memory_place() or gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(path, ignore_errors=True)


class Role(Enum):
    """What a program is run as."""

    WORKLOAD = "it works, and makes marks"
    RECOVERY = "it opens what is there, and shows it"


class Runner:
    """Runs programs, one at a time. For one thread, in a process that has no other; close it."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        sweep()
        self._place = TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=memory_place())
        self._home = Path(self._place.name)
        self._roots = 0
        self.recoveries = 0
        """How many answers were asked for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._place.cleanup()

    def root(self) -> Path:
        """A new empty directory."""
        self._roots += 1
        root = self._home / f"root-{self._roots}"
        root.mkdir()
        return root

    # ── three ways to run ─────────────────────────────────────────────────────────────────────────────

    def recover(self, program: Program, root: Path) -> Outcome:
        """The answer of a function that is given the root only; nothing is recorded."""
        self.recoveries += 1
        return self._run(program, root, Role.RECOVERY, None).outcome

    def work(self, program: Program, root: Path) -> Run:
        """A workload, which makes marks; nothing is recorded."""
        return self._run(program, root, Role.WORKLOAD, None)

    def record_recovery(self, program: Program, root: Path, orders: Orders) -> Run:
        """A recovery that is recorded, and perhaps stopped."""
        return self._run(program, root, Role.RECOVERY, orders)

    def record(self, program: Program, root: Path, orders: Orders) -> Run:
        """A workload that is recorded, and perhaps stopped."""
        return self._run(program, root, Role.WORKLOAD, orders)

    def _run(self, program: Program, root: Path, role: Role, orders: Orders | None) -> Run:
        started = time.monotonic()
        for name in ("marks", "tape", "tape.shared", "end", "out", "err"):
            (self._home / name).unlink(missing_ok=True)
        gc.freeze()  # a collection in a child would copy every page
        child = os.fork()
        if not child:
            self._live(program, root, role, orders)
        status = os.waitstatus_to_exitcode(_ended(child))
        return Run(
            _placeless(self._outcome(program, status), root),
            self._history(),
            tuple(tape.decode(self._left("tape"))),
            time.monotonic() - started,
        )

    # ── many at once ──────────────────────────────────────────────────────────────────────────────────

    def batch(self, jobs: Sequence[Callable[[Inside], T]]) -> list[T | None]:
        """What these come to, one after the other in one child: a fork costs more than most recoveries.

        None for each one that ended its process, or did not end.
        """
        answers: list[T | None] = []
        while len(answers) < len(jobs):
            found = self._some(jobs[len(answers) :])
            answers += found
            if len(answers) < len(jobs):
                answers.append(None)
        return answers

    def _some(self, jobs: Sequence[Callable[[Inside], T]]) -> list[T]:
        """The answers up to the first job that ended its process."""
        file = self._home / "batch"
        file.unlink(missing_ok=True)
        gc.freeze()
        child = os.fork()
        if not child:
            self._live_through(jobs, file)
        _ended(child)
        with contextlib.suppress(FileNotFoundError), file.open("rb") as pipe:
            return list(wire.receive_all(pipe))
        return []

    def _live_through(self, jobs: Sequence[Callable[[Inside], T]], file: Path) -> NoReturn:
        try:
            os.setpgid(0, 0)
            _hear_signals()
            # Seldom: a collection copies every page that the child shares with its parent.
            gc.set_threshold(50_000)
            inside = Inside()
            with file.open("wb", buffering=0) as pipe:
                for job in jobs:
                    signal.setitimer(signal.ITIMER_REAL, self._patience_s)
                    wire.send(pipe, job(inside))
        finally:
            os._exit(0)

    # ── in the child ──────────────────────────────────────────────────────────────────────────────────

    def _live(self, program: Program, root: Path, role: Role, orders: Orders | None) -> NoReturn:
        status = 70
        try:
            os.setpgid(0, 0)
            _hear_signals()
            signal.setitimer(signal.ITIMER_REAL, self._patience_s)
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
            said = cloudpickle.dumps(end)
        except BaseException as error:  # whatever it is, it is the outcome
            said = cloudpickle.dumps(refused(error))
        (self._home / "end").write_bytes(said)
        return 0

    def _open(self, name: str, more: int = 0) -> int:
        return os.open(self._home / name, os.O_WRONLY | os.O_CREAT | more, 0o600)

    # ── what it left ──────────────────────────────────────────────────────────────────────────────────

    def _outcome(self, program: Program, status: int) -> Outcome:
        if status == -signal.SIGALRM:
            return Hung()
        if status < 0:
            return Died(-status)
        if isinstance(program, Command):
            return program.outcome(status, self._left("out"), self._left("err"))
        said = self._left("end")
        if status or not said:
            return Refused((), "it ended its process", status)
        outcome: Outcome = cloudpickle.loads(said)
        return outcome

    def _history(self) -> History:
        register = Register()
        register.take(self._left("marks"))
        return register.history()

    def _left(self, name: str) -> bytes:
        try:
            return (self._home / name).read_bytes()
        except FileNotFoundError:
            return b""


class Inside:
    """Runs functions right here, in a child that does so for many of them."""

    def recover(self, program: Program, root: Path) -> Outcome:
        return self._answer(program, root, None)

    def work(self, program: Program, root: Path) -> Run:
        started = time.monotonic()
        memory = os.memfd_create("marks")
        # Appending: in memory two threads that write at one place overwrite each other.
        marks = os.open(f"/proc/self/fd/{memory}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            outcome = self._answer(program, root, Ctx(marks))
            register = Register()
            register.take(os.pread(memory, os.fstat(memory).st_size, 0))
        finally:
            os.close(marks)
            os.close(memory)
        return Run(outcome, register.history(), (), time.monotonic() - started)

    def _answer(self, program: Program, root: Path, ctx: Ctx | None) -> Outcome:
        assert not isinstance(program, Command)
        try:
            return Answered(call(program, root, ctx))
        except Exception as error:  # a store that ends its process ends the child
            return _placeless(refused(error), root)


def _placeless(outcome: Outcome, root: Path) -> Outcome:
    """The same, whichever directory it was: a refusal says its name, and two runs must say the same."""
    if not isinstance(outcome, Refused):
        return outcome
    return replace(outcome, text=outcome.text.replace(str(root), "{root}"))


def _hear_signals() -> None:
    """As a process that nobody has prepared: what the worker does on a signal is its own."""
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _ended(child: int) -> int:
    """The status of a child that has ended; it, and all that it has started, ends with us too."""
    try:
        return os.waitpid(child, 0)[1]
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it may not be a group yet
            os.waitpid(child, 0)
        raise
    finally:
        _end_group(child)


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # mostly it is gone
        os.killpg(group, signal.SIGKILL)
