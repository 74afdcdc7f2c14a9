"""Real kills: which system calls of a program change a directory, and the program killed at any of them.

The counting and the killing are `killer/killer.c`, preloaded into the program; here it is built, and asked.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_SOURCE = Path(__file__).parent / "killer" / "killer.c"
_WRITES = {"write", "pwrite", "writev", "pwritev", "sendfile", "copy_file_range"}


class When(StrEnum):
    """The moment of a call at which the process dies."""

    BEFORE = "before"
    MIDDLE = "middle"  # half of the bytes are written; a kernel stops a write at a page, this one anywhere
    AFTER = "after"


@dataclass(frozen=True)
class Call:
    """A call that touches something below the root; a rename's path is `old -> new`."""

    number: int
    name: str
    path: str
    size: int

    def __str__(self) -> str:
        size = f", {self.size} bytes" if self.size else ""
        return f"{self.number}, {self.name} {self.path}{size}"


@dataclass(frozen=True)
class Kill:
    """SIGKILL at the call of that number, counted from 1."""

    number: int
    when: When


@cache
def why_not() -> str:
    """Why no process can be killed at its system calls here; nothing when it can."""
    if not sys.platform.startswith("linux"):
        return "killing at system calls needs Linux"
    return "" if shutil.which("cc") else "killing at system calls needs a C compiler, and there is no cc"


@cache
def library() -> Path:
    """The library to preload, built once in this process and gone with it."""
    place = Path(tempfile.mkdtemp(prefix="killer-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    built = place / "killer.so"
    # A program that is compiled with checks calls other names: the library has those, and must not call them.
    command = ["cc", "-shared", "-fPIC", "-O2", "-U_FORTIFY_SOURCE", "-o", str(built), str(_SOURCE)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"the killer does not compile:\n{result.stderr}")
    return built


def record(argv: Sequence[str], root: Path, env: Mapping[str, str] | None = None) -> list[Call]:
    """Every call of a program below the root, in order. The program must end well."""
    return _traced(argv, root, {}, env)[1]


def kill_at(
    argv: Sequence[str], root: Path, number: int, when: When, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The program, killed at that call; its status tells whether it came so far."""
    return _traced(argv, root, {"KILLER_AT": str(number), "KILLER_WHEN": when}, env)[0]


def _traced(
    argv: Sequence[str], root: Path, orders: Mapping[str, str], env: Mapping[str, str] | None
) -> tuple[subprocess.CompletedProcess[bytes], list[Call]]:
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / "trace"
        env = dict(os.environ if env is None else env) | {
            "LD_PRELOAD": str(library()),
            "KILLER_ROOT": os.path.realpath(root),
            "KILLER_TRACE": str(trace),
            **orders,
        }
        ended = subprocess.run(argv, env=env, check=False, capture_output=True)
        if ended.returncode not in {0, -signal.SIGKILL if orders else 0}:
            raise RuntimeError(f"{argv[0]} ended with {ended.returncode}:\n{ended.stderr.decode()}")
        return ended, calls_in(trace)  # without a trace the library was not loaded


def calls_in(trace: Path) -> list[Call]:
    """The calls of a trace by number: two threads may write their lines in another order."""
    lines = (line.split("\t") for line in trace.read_text().splitlines())
    calls = [Call(int(number), name, path, int(size)) for number, name, path, size in lines]
    return sorted(calls, key=lambda call: call.number)


def every_kill(calls: Iterable[Call]) -> Iterator[Kill]:
    """Each moment of each call: the middle only where a write has one."""
    for call in calls:
        yield Kill(call.number, When.BEFORE)
        if call.name in _WRITES and call.size > 1:
            yield Kill(call.number, When.MIDDLE)
        yield Kill(call.number, When.AFTER)
