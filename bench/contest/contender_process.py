"""The process of a contender. It does what it is asked to do, and is idle while other contenders work.

Each contender has a process of its own, so that its threads do not share the interpreter lock of another one,
and its figures of memory and of bytes written are its own. The process runs `child.py` with the name of a
class, `module:Class`, which is created with a directory and the settings of the contender. `ask("add",
seconds=1)` calls the method `add(seconds=1)` there and returns its result. Requests and answers are lines of
JSON in pipes.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_CHILD = "child.py"
_ANSWER_TIMEOUT_S = 300.0
_EXIT_TIMEOUT_S = 30.0
_CHUNK = 1 << 16


class ContenderFailed(Exception):
    """A contender failed. The message is the traceback of its process, or how the process ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A participant of a scenario, and its settings."""

    name: str
    """Unique in its scenario: `ours`, `raw`, `plyvel`."""
    make: str
    """`module:Class`, a path below `home`."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Arguments of the class, besides its directory."""
    package: str = ""
    """The distribution that it needs."""
    cannot: str = ""
    """The reason why it cannot take part on this machine, or an empty string."""
    one_cpu: str = ""
    """The reason why its process may use only one CPU. If empty, it may use all."""
    environment: Mapping[str, str] = field(default_factory=dict)
    home: str = str(Path(__file__).parents[1])
    """The directory of `child.py` and of the class: `bench/`, or the `bench/` of another revision."""


class ContenderProcess:
    """The process of a contender in one scenario.

    It starts with the first request and ends with the `with` block.
    """

    def __init__(self, contender: Contender, place: Path) -> None:
        self.contender = contender
        self.name = contender.name
        self.place = place
        """The directory of the contender, which is empty at first."""
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def ask(self, do: str, **what: object) -> Any:
        """Return what the method of this name returns.

        Raise `ContenderFailed` if it raises, dies or hangs.
        """
        process = self._process or self.start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"do": do, "what": what}).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        reply = json.loads(self._line(process, _ANSWER_TIMEOUT_S))
        if "failed" in reply:
            raise ContenderFailed(f"{self.name}: {reply['failed']}")
        return reply["answer"]

    def stop(self) -> None:
        """End the process after it has closed what it has open. The next request starts a new one."""
        if self._process is not None:
            with suppress(ContenderFailed):
                self.ask("close")
            self._end(self._process)

    def kill(self) -> None:
        """Kill the process, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._end(self._process)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process.

        The first request would also start it, but several can start at the same time.
        """
        one = self.contender
        given = {"place": str(self.place), "settings": dict(one.settings), "one_cpu": bool(one.one_cpu)}
        self._received = b""
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command
            [sys.executable, str(Path(one.home) / _CHILD), one.make, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **one.environment},
            start_new_session=True,  # so that Ctrl-C reaches only this process, which then kills its children
        )
        return self._process

    def _line(self, process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
        assert process.stdout is not None
        until = time.monotonic() + timeout_s
        while b"\n" not in self._received:
            left = until - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                self.kill()
                raise ContenderFailed(f"{self.name}: no answer within {timeout_s:g} s")
            data = os.read(process.stdout.fileno(), _CHUNK)
            if not data:
                raise self._died()
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _died(self) -> ContenderFailed:
        process = self._process
        assert process is not None
        self._end(process)
        return ContenderFailed(f"{self.name}: its process ended with exit code {process.returncode}")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        try:
            process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
