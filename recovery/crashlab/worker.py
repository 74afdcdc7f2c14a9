"""A worker: a process of its own that was started with the recorder in front, and forks a child for each run.

It reads a specification, then tasks, and answers each with what it says and the word that it is over. It
imports whatever its children have imported, so that no child does it again.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, NoReturn

from recovery.crashlab import wire
from recovery.crashlab.judge import Judge
from recovery.crashlab.layers.task import Bench, Counted, Covered, Message, Task
from recovery.crashlab.outcome import refused
from recovery.crashlab.running import Runner

if TYPE_CHECKING:
    from recovery.crashlab.outcome import Refused
    from recovery.crashlab.spec import Spec

_SIGNAL_AT_PARENT_S_DEATH = 1
_EVERY_S = 0.2
"""Counts are sent that often; sightings at once."""


@dataclass(frozen=True, slots=True)
class Over:
    """A task is done; how many recoveries that took, and how long."""

    recoveries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A task broke: a mistake in what the laboratory was given, or in the laboratory."""

    error: Refused
    where: str


@dataclass(slots=True)
class Voice:
    """Says things to the laboratory, counts in bundles."""

    pipe: IO[bytes]
    _counts: dict[str, int] = field(default_factory=dict)
    _images: set[str] = field(default_factory=set)
    _said: float = 0.0

    def say(self, message: Message) -> None:
        if isinstance(message, Counted):
            for name, more in message.counts.items():
                self._counts[name] = self._counts.get(name, 0) + more
        elif isinstance(message, Covered):
            self._images |= message.images
        else:
            wire.send(self.pipe, message)
        if time.monotonic() - self._said > _EVERY_S:
            self.pause()

    def pause(self) -> None:
        """Sends what was counted so far."""
        self._said = time.monotonic()
        if self._counts:
            wire.send(self.pipe, Counted(self._counts))
        if self._images:
            wire.send(self.pipe, Covered(frozenset(self._images)))
        self._counts, self._images = {}, set()


def serve(orders: IO[bytes], answers: IO[bytes]) -> None:
    """Until there are no more orders."""
    spec: Spec = wire.receive(orders)
    with Runner(spec.patience_s) as runner:
        bench = Bench(spec, runner, Judge(spec, runner))
        while True:
            try:
                task: Task[Message] = wire.receive(orders)
            except EOFError:
                return
            wire.send(answers, _done(task, bench, Voice(answers)))


def _done(task: Task[Message], bench: Bench, voice: Voice) -> Over | Failed:
    started, recoveries = time.monotonic(), bench.runner.recoveries
    try:
        with ExitStack() as stack:
            messages = task.work(bench)
            # At once, and not when the collector comes by: there may be a volume to unmount.
            stack.callback(getattr(messages, "close", lambda: None))
            for message in messages:
                voice.say(message)
    except Exception as error:
        import traceback

        return Failed(refused(error), traceback.format_exc())
    finally:
        voice.pause()
    return Over(bench.runner.recoveries - recoveries, time.monotonic() - started)


def _end_when_told() -> None:
    """SIGTERM unwinds the stack; it also comes when the laboratory itself is killed."""
    signal.signal(signal.SIGTERM, _end)
    ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENT_S_DEATH, signal.SIGTERM)


def _end(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough
    sys.exit(128 + number)


def main() -> None:
    """The process's own beginning: the pipes are set aside, what programs print goes to standard error."""
    _end_when_told()
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    serve(orders, answers)
