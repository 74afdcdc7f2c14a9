"""Tasks that workers of Spark can import: they say who ran them, fail, die, or take for ever."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from recovery.audit.task import Pace


@dataclass(frozen=True, slots=True)
class Told:
    """What one has found: `marks` is as large as it is told to be."""

    name: str
    process: int
    code: str
    marks: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Tells who ran it, and from where its code came."""

    name: str
    size: int = 1 << 20
    marks_size: int = 0

    def run(self, pace: Pace) -> Told:
        import recovery

        begun = monotonic()
        pace.read(self.size)
        seconds = monotonic() - begun
        return Told(self.name, os.getpid(), str(recovery.__file__), bytes(self.marks_size), seconds)


@dataclass(frozen=True, slots=True)
class Read:
    """Reads a file."""

    name: str
    size: int = 1

    def run(self, pace: Pace) -> bytes:
        data = Path(self.name).read_bytes()
        pace.read(len(data))
        return data


class Shy(Exception):
    """An error that does not come out of a pickle."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}, {second}")


@dataclass(frozen=True, slots=True)
class Complain:
    """Raises what cannot be sent."""

    name: str
    size: int = 1

    def run(self, pace: Pace) -> None:
        raise Shy("one", "two")


@dataclass(frozen=True, slots=True)
class Die:
    """Kills its process, as a system without memory does."""

    name: str
    size: int = 1

    def run(self, pace: Pace) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Linger:
    """Says through a pipe that it runs, and holds it open until it is killed."""

    name: str
    size: int = 1

    def run(self, pace: Pace) -> None:
        with Path(self.name).open("wb", buffering=0) as pipe:
            pipe.write(b"!")
            signal.pause()


@dataclass(frozen=True, slots=True)
class Stay(Tell):
    """The same, where it was asked for."""

    stays: ClassVar[bool] = True
