"""Run programs in a worker of the laboratory as its layers do: record them, kill them, make calls fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from recovery.crashlab.judge.oracles import NoHang
from recovery.crashlab.model.profile import PROFILES
from recovery.crashlab.record.preload import Orders
from recovery.crashlab.run.spec import make_spec
from recovery.crashlab.run.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from recovery.crashlab.run.runner import ProgramRun
    from recovery.crashlab.run.spec import Program
    from recovery.crashlab.run.task import WorkerContext


UNDISTURBED = Orders()


def nothing(*_: object) -> dict[str, str]:
    """Do nothing: an empty workload, or a recovery without content."""
    return {}


@dataclass(frozen=True)
class _RunTask:
    program: Program
    root: Path
    orders: Orders

    def work(self, context: WorkerContext) -> Iterator[Any]:
        yield context.runner.record(self.program, self.root, self.orders)


class Recorder:
    """One worker that records programs. The programs must be in modules that a new process can import."""

    def __init__(self, timeout_s: float = 60.0) -> None:
        spec = make_spec(nothing, nothing, NoHang(timeout_s), PROFILES["posix-strict"], 1, "programs")
        self._pool = WorkerPool(spec, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.__exit__(None, None, None)

    def run(self, program: Program, root: Path, orders: Orders = UNDISTURBED) -> ProgramRun:
        """Run the program on this root, to its end or to the ordered kill."""
        heard: list[Any] = []
        self._pool.run([_RunTask(program, root, orders)], heard.append, lambda: None)
        (run,) = heard
        return run  # type: ignore[no-any-return]
