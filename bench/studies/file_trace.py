"""Traces file operations of our store: every write, fill, sync and rename of any thread."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.disk.posix import PosixDirectory, PosixWriteFile

if TYPE_CHECKING:
    from collections.abc import Callable

_US = 1000.0
_TRACED = {
    PosixWriteFile: {"write": "write", "zero_fill": "fill", "sync": "sync"},
    PosixDirectory: {"sync": "sync", "rename": "rename"},
}
_clock = time.perf_counter_ns


class TracedCall(NamedTuple):
    """A traced call: its operation, its thread, its start and its end."""

    what: str
    thread: int
    start: int
    end: int


class FileTrace:
    """Records the calls inside the `with` block."""

    def __init__(self) -> None:
        self.spans: list[TracedCall] = []
        self._originals: list[Callable[[], None]] = []

    def __enter__(self) -> FileTrace:
        for kind, verbs in _TRACED.items():
            for name, verb in verbs.items():
                self._trace(kind, name, verb)
        return self

    def _trace(self, kind: type, name: str, verb: str) -> None:
        act, note = getattr(kind, name), self.spans.append

        def traced(one: Any, *arguments: object) -> None:
            start = _clock()
            act(one, *arguments)
            note(TracedCall(f"{verb} {_kind(one)}", threading.get_ident(), start, _clock()))

        self._originals.append(partial(setattr, kind, name, act))
        setattr(kind, name, traced)

    def __exit__(self, *_: object) -> None:
        for put_back in self._originals:
            put_back()

    def microseconds(self, what: str) -> float:
        """Return the total time of the calls of one kind, in all threads."""
        return sum(one.end - one.start for one in self.spans if one.what == what) / _US


def _kind(one: PosixWriteFile | PosixDirectory) -> str:
    """Return the kind of a file by its name. A journal under its draft name is a journal, too."""
    if isinstance(one, PosixDirectory):
        return "directory"
    name = Path(one.name).name
    return "journal" if ".txn" in name else "entry log" if ".log" in name else "other"
