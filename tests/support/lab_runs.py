"""Programs run in a worker of the laboratory as its layers run them: recorded, killed, failed, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from recovery.crashlab.crew import Crew
from recovery.crashlab.oracles import NoHang
from recovery.crashlab.preload import Orders
from recovery.crashlab.profile import PROFILES
from recovery.crashlab.spec import specify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from recovery.crashlab.layers.task import Bench
    from recovery.crashlab.programs import Program
    from recovery.crashlab.running import Run


UNDISTURBED = Orders()


def nothing(*_: object) -> dict[str, str]:
    """A workload that does nothing, and a recovery that shows nothing."""
    return {}


@dataclass(frozen=True)
class _RunTask:
    program: Program
    root: Path
    orders: Orders

    def work(self, bench: Bench) -> Iterator[Any]:
        yield bench.runner.record(self.program, self.root, self.orders)


class Recorder:
    """One worker, to record programs in. What it is given lies in modules that a new process can import."""

    def __init__(self, patience_s: float = 60.0) -> None:
        spec = specify(nothing, nothing, NoHang(patience_s), PROFILES["posix-strict"], 1, "programs")
        self._crew = Crew(spec, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.__exit__(None, None, None)

    def run(self, program: Program, root: Path, orders: Orders = UNDISTURBED) -> Run:
        """The program over that root, to its end or to what was ordered."""
        heard: list[Any] = []
        self._crew.run([_RunTask(program, root, orders)], heard.append, lambda: None)
        (run,) = heard
        return run  # type: ignore[no-any-return]
