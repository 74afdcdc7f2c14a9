"""Watching the files of our store: every write and every sync, of whichever thread."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.posix_files import PosixWriteFile

if TYPE_CHECKING:
    from collections.abc import Sequence

_US = 1000.0
_clock = time.perf_counter_ns


class Span(NamedTuple):
    """A call of some thread."""

    what: str
    thread: int
    start: int
    end: int


class Watch:
    """Notes every write and sync of a file while it is in use."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def __enter__(self) -> Watch:
        self._write, self._sync = PosixWriteFile.write, PosixWriteFile.sync
        write, sync, say = self._write, self._sync, self.spans.append

        def noted_write(file: PosixWriteFile, offset: int, buffers: Sequence[bytes]) -> None:
            start = _clock()
            write(file, offset, buffers)
            say(Span(f"write {_kind(file)}", threading.get_ident(), start, _clock()))

        def noted_sync(file: PosixWriteFile) -> None:
            start = _clock()
            sync(file)
            say(Span(f"sync {_kind(file)}", threading.get_ident(), start, _clock()))

        PosixWriteFile.write, PosixWriteFile.sync = noted_write, noted_sync  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        PosixWriteFile.write, PosixWriteFile.sync = self._write, self._sync  # type: ignore[method-assign]

    def microseconds(self, what: str) -> float:
        """What the calls of that kind took together, in whichever thread."""
        return sum(one.end - one.start for one in self.spans if one.what == what) / _US


def _kind(file: PosixWriteFile) -> str:
    """Of a file by its name, which a journal keeps from before it had its own."""
    name = Path(file.name).name
    return "journal" if ".txn" in name else "entry log" if ".log" in name else "other"
