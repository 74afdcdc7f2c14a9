"""Watching the files of our store: every write, sync and rename, of whichever thread."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.posix_files import PosixDirectory, PosixWriteFile

if TYPE_CHECKING:
    from collections.abc import Callable

_US = 1000.0
_WATCHED = {
    PosixWriteFile: {"write": "write", "zero_fill": "fill", "sync": "sync"},
    PosixDirectory: {"sync": "sync", "rename": "rename"},
}
_clock = time.perf_counter_ns


class Span(NamedTuple):
    """A call of some thread."""

    what: str
    thread: int
    start: int
    end: int


class Watch:
    """Notes such calls while it is in use."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._before: list[Callable[[], None]] = []

    def __enter__(self) -> Watch:
        for kind, verbs in _WATCHED.items():
            for name, verb in verbs.items():
                self._watch(kind, name, verb)
        return self

    def _watch(self, kind: type, name: str, verb: str) -> None:
        act, say = getattr(kind, name), self.spans.append

        def noted(one: Any, *arguments: object) -> None:
            start = _clock()
            act(one, *arguments)
            say(Span(f"{verb} {_kind(one)}", threading.get_ident(), start, _clock()))

        self._before.append(partial(setattr, kind, name, act))
        setattr(kind, name, noted)

    def __exit__(self, *_: object) -> None:
        for put_back in self._before:
            put_back()

    def microseconds(self, what: str) -> float:
        """What the calls of that kind took together, in whichever thread."""
        return sum(one.end - one.start for one in self.spans if one.what == what) / _US


def _kind(one: PosixWriteFile | PosixDirectory) -> str:
    """Of a file by its name, which a journal keeps from before it had its own."""
    if isinstance(one, PosixDirectory):
        return "directory"
    name = Path(one.name).name
    return "journal" if ".txn" in name else "entry log" if ".log" in name else "other"
