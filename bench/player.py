"""A contender at work: a process of its own, which does what it is asked, and is idle while others work.

In its own process nobody's threads share our interpreter lock, and figures of memory and of bytes written are
its alone. It is `child.py` with the name of a class, `module:Class`, made with a directory of its own and the
contender's settings. `ask("add", seconds=1)` calls the method `add(seconds=1)` there, and returns what that
returns; both go through pipes as lines of JSON.
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

_CHILD = Path(__file__).parent / "child.py"
_PATIENCE_S = 300.0
_FAREWELL_S = 30.0
_CHUNK = 1 << 16


class Failed(Exception):
    """A contender could not do what it was asked; its own words are the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Who takes part in a scenario, and how it is set up."""

    name: str
    """Unique in its scenario: `ours`, `raw`, `plyvel`."""
    make: str
    """`module:Class`, to be found in `bench/`."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """What the class is made with beside its directory."""
    package: str = ""
    """The distribution without which it cannot take part."""
    cannot: str = ""
    """Why it cannot take part here; empty, and it can."""
    one_cpu: str = ""
    """Why its process may use one CPU only; empty, and it may use all."""
    environment: Mapping[str, str] = field(default_factory=dict)


class Player:
    """A contender in one scenario. Its process begins with the first question, and ends with the `with`."""

    def __init__(self, contender: Contender, place: Path) -> None:
        self.contender = contender
        self.name = contender.name
        self.place = place
        """A directory of its own, which is empty at first."""
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def ask(self, do: str, **what: object) -> Any:
        """What the method of that name answers. `Failed` if it raises, dies or does not come to an end."""
        process = self._process or self.start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"do": do, "what": what}).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        said = json.loads(self._line(process, _PATIENCE_S))
        if "failed" in said:
            raise Failed(f"{self.name}: {said['failed']}")
        return said["answer"]

    def stop(self) -> None:
        """Ends the process in order: what it has open is closed. The next question begins a new one."""
        if self._process is not None:
            with suppress(Failed):
                self.ask("close")
            self._end(self._process)

    def kill(self) -> None:
        """Ends the process as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._end(self._process)

    def start(self) -> subprocess.Popen[bytes]:
        """Begins the process, which a first question would do as well: several may come up side by side."""
        one = self.contender
        given = {"place": str(self.place), "settings": dict(one.settings), "one_cpu": bool(one.one_cpu)}
        self._heard = b""
        self._process = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, str(_CHILD), one.make, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **one.environment},
            start_new_session=True,  # a Ctrl-C is for us, and we end it
        )
        return self._process

    def _line(self, process: subprocess.Popen[bytes], patience_s: float) -> bytes:
        assert process.stdout is not None
        until = time.monotonic() + patience_s
        while b"\n" not in self._heard:
            left = until - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                self.kill()
                raise Failed(f"{self.name}: no answer within {patience_s:g} s")
            said = os.read(process.stdout.fileno(), _CHUNK)
            if not said:
                raise self._died()
            self._heard += said
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _died(self) -> Failed:
        process = self._process
        assert process is not None
        self._end(process)
        return Failed(f"{self.name}: its process has ended with {process.returncode}")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        try:
            process.wait(_FAREWELL_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
