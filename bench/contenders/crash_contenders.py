"""Contenders that are killed after durable adds, and then open what is left."""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from contest.workload import WrongAnswer

from contenders import peers
from contenders.our_store import Ours

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from contest.result import Figures
    from contest.workload import Work

_AMPLE_S = 600.0
_MS = 1000
_FIRST = peers.KEY.pack(1, 0)
_clock = time.perf_counter


class ReopenedStore(Protocol):
    """An adding contender that can return its first entry."""

    work: Work

    def add(self, seconds: float, calls: int) -> Figures: ...

    def first(self) -> bytes | None: ...

    def close(self) -> None: ...


class CrashContender:
    """Fills a store until its process is killed, and opens a copy of it.

    The directories are below its place.
    """

    def __init__(
        self, place: Path, adder: str, filled: Mapping[str, Any], opened: Mapping[str, Any], **work: int
    ) -> None:
        self._place = place
        self._make = _ADDERS[adder]
        self._filled, self._opened = {**filled, **work}, {**opened, **work}
        self._open: ReopenedStore | None = None
        if package := peers.PACKAGES.get(adder):
            import_module(package)  # the import takes time that must not count as opening

    def leave(self, name: str, calls: int) -> None:
        """Add `calls` durable batches. The process is killed afterwards."""
        directory = self._place / name
        directory.mkdir()
        self._open = self._make(directory, **self._filled)
        self._open.add(_AMPLE_S, calls)

    def open(self, name: str) -> Figures:
        """Return the time from the opening until the first entry is read."""
        start = _clock()
        self._open = opened = self._make(self._place / name, **self._opened)
        first = opened.first()
        seconds = _clock() - start
        if first is None or len(first) != opened.work.size:
            raise WrongAnswer("the first entry is missing, or damaged")
        return {"ms": seconds * _MS}

    def close(self) -> None:
        if self._open is not None:
            self._open.close()


class _ReopenedOurs(Ours):
    def first(self) -> bytes | None:
        return self._store.ledger(1).read(0).payload


class _ReopenedLevelDb(peers.LevelDb):
    def first(self) -> bytes | None:
        found: bytes | None = self._database.get(_FIRST)
        return found


class _ReopenedRocksDb(peers.RocksDb):
    def first(self) -> bytes | None:
        return self._database.get(_FIRST)


class _ReopenedSqlite(peers.Sqlite):
    """`autocheckpoint` is the number of pages at which the WAL is written into the database, 0 for never."""

    def __init__(self, place: Path, autocheckpoint: int | None = None, **work: int) -> None:
        super().__init__(place, **work)
        if autocheckpoint is not None:
            self._connection.execute(f"PRAGMA wal_autocheckpoint={autocheckpoint}")

    def first(self) -> bytes | None:
        row = self._connection.execute("SELECT v FROM entries WHERE k = ?", (_FIRST,)).fetchone()
        return cast("bytes", row[0]) if row else None


_ADDERS: dict[str, Any] = {
    "ours": _ReopenedOurs,
    "plyvel": _ReopenedLevelDb,
    "rocksdict": _ReopenedRocksDb,
    "sqlite3": _ReopenedSqlite,
}
