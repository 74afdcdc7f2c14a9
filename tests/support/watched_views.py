"""Views of a store on a simulated disk, in which a test acts at each look into the directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from file_index import FileIndexPlace

from recovery.directory.layout import Layout
from recovery.view.open_view import ViewReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from recovery.crashlab import SimulatedDisk
    from recovery.view.view import View
    from storage.disk.files import Directory, DiskSpace, Lock, ReadFile, WriteFile

Held = dict[int, dict[int, bytes]]
"""The payload of each entry of each ledger."""


class WatchedReadFile:
    def __init__(self, file: ReadFile, looked: Callable[[], None]) -> None:
        self._file = file
        self._looked = looked

    @property
    def name(self) -> str:
        return self._file.name

    def size(self) -> int:
        self._looked()
        return self._file.size()

    def read(self, offset: int, size: int) -> bytes:
        self._looked()
        return self._file.read(offset, size)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class Watched:
    """A directory for reading. Each call that would change something fails the test."""

    def __init__(self, below: Directory, looked: Callable[[], None]) -> None:
        self._below = below
        self._looked = looked

    @property
    def path(self) -> str:
        return self._below.path

    def names(self) -> list[str]:
        self._looked()
        return self._below.names()

    def directory(self, name: str) -> Directory:
        return Watched(self._below.directory(name), self._looked)

    def open(self, name: str) -> ReadFile:
        self._looked()
        return WatchedReadFile(self._below.open(name), self._looked)

    def make(self) -> None:
        raise AssertionError("made a directory")

    def create(self, name: str) -> WriteFile:
        raise AssertionError(f"created {name}")

    def rename(self, old: str, new: str) -> None:
        raise AssertionError(f"renamed {old} to {new}")

    def remove(self, name: str) -> None:
        raise AssertionError(f"removed {name}")

    def sync(self) -> None:
        raise AssertionError("synced a directory")

    def space(self) -> DiskSpace:
        raise AssertionError("asked for space")

    def lock(self, name: str) -> Lock:
        raise AssertionError(f"locked {name}")


def looking(disk: SimulatedDisk, looked: Callable[[], None] = lambda: None) -> ViewReader:
    layout = Layout(Watched(disk.root(), looked))
    return ViewReader(layout, FileIndexPlace(layout.ledgers).open)


def held_by(view: View) -> Held:
    held = {ledger_id: payloads(view, ledger_id) for ledger_id in view.ledgers()}
    for ledger_id, entries in held.items():
        assert view.count(ledger_id) == len(entries)
        assert (view.first_id(ledger_id), view.last_id(ledger_id)) == (
            min(entries, default=None),
            max(entries, default=None),
        )
    return held


def payloads(view: View, ledger_id: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    digester = view.digester(ledger_id)
    start = 32 if digester is None else 32 + digester.digest_type.width
    for entry_id in view.ids(ledger_id):
        data = view.data(ledger_id, entry_id)
        assert data is not None
        found[entry_id] = data[start:]
    return found


class FollowingIndex:
    """An index that shows commits after it was opened, as LMDB does."""

    def __init__(self, place: FileIndexPlace) -> None:
        self._place = place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place.open(), name)


def following(disk: SimulatedDisk, looked: Callable[[], None] = lambda: None) -> ViewReader:
    place = FileIndexPlace(Layout(disk.root()).ledgers)
    return ViewReader(Layout(Watched(disk.root(), looked)), lambda: FollowingIndex(place))
