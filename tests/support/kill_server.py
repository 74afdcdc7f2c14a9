"""A process with everything imported, which forks a child for each kill: a hundred kills take a second.

A program here is a function `(root, ack, *arguments)` at the top of a module. It changes what is below the
root, calls `ack` with a line at the moment something is acknowledged, and returns what JSON can hold. Lines
are in the kernel when `ack` returns, so a kill takes none of them back.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Concatenate, NoReturn, Self

from syscalls import Call, Kill, When, calls_in, library

Json = Any
Ack = Callable[[str], None]
Program = Callable[Concatenate[Path, Ack, ...], Json]


@dataclass(frozen=True)
class Outcome:
    """How a program ended, and what it had said by then.

    `status` is 0, 1 for an exception (its traceback is `error`), or minus the signal that ended it; `calls`
    are all that it made below the root, or the one at which it was killed.
    """

    status: int
    acks: tuple[str, ...]
    calls: tuple[Call, ...]
    shown: Json
    error: str

    @property
    def was_killed(self) -> bool:
        return self.status == -signal.SIGKILL

    def checked(self) -> Self:
        """Itself, when the program came to its end."""
        if self.status:
            raise RuntimeError(f"ended with {self.status}:\n{self.error}")
        return self


class KillServer:
    """Runs programs in forked children, and kills them where it is told to. For one thread; close it.

    A child that lasts longer than `patience_s` is ended by SIGALRM.
    """

    def __init__(self, patience_s: float = 60) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="killer-", dir=memory_place())
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "error", __file__, self._scratch.name, str(patience_s)],
            env=dict(os.environ)
            | {
                "LD_PRELOAD": str(library()),
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "PYTHONHASHSEED": "0",  # two runs make the same calls
                "OPENBLAS_NUM_THREADS": "1",  # numpy's threads would not survive the fork
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for pipe in self._pipes():
            pipe.close()  # the server ends where its orders end
        self._process.wait()
        self._scratch.cleanup()

    def run(self, program: Program, root: Path, *arguments: Json, kill: Kill | None = None) -> Outcome:
        """The program over that root, to its end or to the kill."""
        orders, answers = self._pipes()
        order = {
            "module": program.__module__,
            "function": program.__qualname__,
            "root": os.path.realpath(root),
            "arguments": arguments,
            "at": kill.number if kill else 0,
            "when": kill.when if kill else When.BEFORE,
        }
        orders.write(json.dumps(order).encode() + b"\n")
        orders.flush()
        answer = answers.readline()
        if not answer:
            raise RuntimeError("the server is gone; its last words are on stderr")
        return self._outcome(int(answer))

    def _outcome(self, status: int) -> Outcome:
        scratch = Path(self._scratch.name)
        end = (scratch / "end").read_text()
        shown, error = json.loads(end) if end else (None, "")
        acks = (scratch / "acks").read_text().split("\n")[:-1]
        return Outcome(status, tuple(acks), tuple(calls_in(scratch / "trace")), shown, error)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin
        assert self._process.stdout
        return self._process.stdin, self._process.stdout


def memory_place() -> str | None:
    """A directory in memory where there is one: a kill leaves the page cache alone, so no disk is needed."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# --- the server's own process -------------------------------------------------------------------------------


def _serve(scratch: Path, patience_s: float) -> None:
    arm = _arming(scratch / "trace")
    answers = os.dup(1)
    os.dup2(2, 1)  # what a program prints is no answer
    for line in sys.stdin.buffer:
        order = json.loads(line)
        program = _imported(order["module"], order["function"])  # before the fork, for all children to come
        for name in ("acks", "trace", "end"):
            (scratch / name).write_bytes(b"")
        gc.freeze()  # a collection in a child would copy every page
        child = os.fork()
        if not child:
            signal.setitimer(signal.ITIMER_REAL, patience_s)  # who hangs is ended by SIGALRM
            _run_and_exit(program, order, arm, scratch)
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _arming(trace: Path) -> Callable[[Path, int, str], None]:
    arm = ctypes.CDLL(None).killer_arm
    arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p]
    arm.restype = None
    return lambda root, at, when: arm(os.fsencode(root), at, when.encode(), os.fsencode(trace))


def _imported(module: str, function: str) -> Program:
    __import__(module)
    program: Program = getattr(sys.modules[module], function)
    return program


def _run_and_exit(
    program: Program, order: dict[str, Json], arm: Callable[[Path, int, str], None], scratch: Path
) -> NoReturn:
    status, shown, error = 1, None, ""
    acks = os.open(scratch / "acks", os.O_WRONLY | os.O_APPEND)
    root = Path(order["root"])
    try:
        arm(root, order["at"], order["when"])
        shown = program(root, lambda line: _write_line(acks, line), *order["arguments"])
        status = 0
    except BaseException:
        error = traceback.format_exc()
    try:
        (scratch / "end").write_text(json.dumps([shown, error]))
    finally:
        os._exit(status)


def _write_line(acks: int, line: str) -> None:
    assert "\n" not in line
    os.write(acks, line.encode() + b"\n")


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), float(sys.argv[2]))
