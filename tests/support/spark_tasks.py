"""Tasks that Spark's workers can import: they report their process, fail, die, or never end."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from recovery.audit.engines.task import ReadThrottle


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The report of a task. `marks` has the requested size."""

    name: str
    process: int
    code: str
    marks: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class ReportTask:
    """Reports its process and the path of its code."""

    name: str
    size: int = 1 << 20
    marks_size: int = 0

    def run(self, throttle: ReadThrottle) -> TaskReport:
        import recovery

        begun = monotonic()
        throttle.read(self.size)
        seconds = monotonic() - begun
        return TaskReport(self.name, os.getpid(), str(recovery.__file__), bytes(self.marks_size), seconds)


@dataclass(frozen=True, slots=True)
class Read:
    """Reads a file."""

    name: str
    size: int = 1

    def run(self, throttle: ReadThrottle) -> bytes:
        data = Path(self.name).read_bytes()
        throttle.read(len(data))
        return data


class UnpicklableError(Exception):
    """An error that cannot be unpickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}, {second}")


@dataclass(frozen=True, slots=True)
class FailingTask:
    """Raises an error that cannot be sent between processes."""

    name: str
    size: int = 1

    def run(self, throttle: ReadThrottle) -> None:
        raise UnpicklableError("one", "two")


@dataclass(frozen=True, slots=True)
class DyingTask:
    """Kills its process, as a system does that runs out of memory."""

    name: str
    size: int = 1

    def run(self, throttle: ReadThrottle) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class HangingTask:
    """Reports through a pipe that it runs, and keeps the pipe open until it is killed."""

    name: str
    size: int = 1

    def run(self, throttle: ReadThrottle) -> None:
        with Path(self.name).open("wb", buffering=0) as pipe:
            pipe.write(b"!")
            signal.pause()


@dataclass(frozen=True, slots=True)
class Stay(ReportTask):
    """Hangs like `HangingTask` if it is asked to."""

    needs_this_machine: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class PauseTask:
    """Writes the id of its process to a file, and waits to be killed. When run again it ends at once."""

    name: str
    """The directory of the file, and of the pipe that is never written to."""
    size: int = 1 << 40

    def run(self, throttle: ReadThrottle) -> None:
        seen = Path(self.name) / "process"
        if not seen.exists():
            seen.write_text(str(os.getpid()))
            (Path(self.name) / "pipe").read_bytes()
