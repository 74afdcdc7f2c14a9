"""Count the calls of our functions in one operation, because each call costs a reader and a cold cache.

    python bench/studies/calls.py

Counts the calls of functions that are defined in `storage` or `recovery`, and each time that a generator of
theirs goes on. Calls of functions in C are not counted. The figure of an operation is the smallest of several
times that it was done, because background work that falls into one of them is not its own.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from recovery import open_store
from storage import DigestType, NoSuchEntry, StoreConfig
from storage.entry import format as entry_format
from storage.entry.digest import Digester, master_key
from storage.entry.model import Entry
from storage.index.location_cache import LOOK_UPS
from storage.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from storage.store import Store

BOUNDS = {
    "append alone": 15,
    "append through a group": 25,
    "bookie's add": 20,
    "bookie's read from a table": 12,
    "bookie's read from a log": 12,
    "missing entry": 20,
    "delete": 120,
}
"""The most calls that an operation may make."""

TIMES = 7
_OURS = frozenset({"storage", "recovery"})
_QUIET = StoreConfig(checkpoint_interval_s=None, idle_seal_s=None, group_wait_s=60.0)
_KEY = master_key(b"")


def calls_of(act: Callable[[], object]) -> list[str]:
    """Return the functions of ours that it calls, in order, as `module.function`.

    It is called in a thread of its own, because in the main thread, where signal handlers run, some
    operations hand their work to another thread.
    """
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            module = str(frame.f_globals.get("__name__", ""))
            if module.partition(".")[0] in _OURS:
                found.append(f"{module}.{frame.f_code.co_qualname}")

    def watched() -> None:
        sys.setprofile(note)
        act()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(watched).result()
    return found


class Operations:
    """The operations that are counted, on one store. `prepared` returns one that can be done once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ledger = store.ledger(1)
        self._entry_id = 0
        for number in range(3):
            self._ledger.append(b"entry %d" % number)
            self._bookie_add(2)()
        store.checkpoint()
        for _ in range(LOOK_UPS):  # so that the locations are cached, and the log is open
            store.bookie.read(2, 1)
        self._ledger.append(b"in the table")
        self._bookie_add(2)()

    def prepared(self, name: str) -> Callable[[], object]:
        """Do all that comes before the operation, and return the operation alone."""
        bookie = self._store.bookie
        match name:
            case "append alone":
                return lambda: self._ledger.append(b"x")
            case "append through a group":
                self._store.ledger(3).submit(b"waits for the next group")
                return lambda: self._ledger.append(b"x")
            case "bookie's add":
                return self._bookie_add(2)
            case "bookie's read from a table":
                return lambda: bookie.read(2, 3)
            case "bookie's read from a log":
                return lambda: bookie.read(2, 1)
            case "missing entry":
                return self._read_missing
            case "delete":
                self._store.ledger(4).append(b"to be deleted")
                return partial(Ledger.delete, self._store.ledger(4))
        raise AssertionError(name)

    def _bookie_add(self, ledger_id: int) -> Callable[[], object]:
        entry = Entry(ledger_id, self._entry_id, self._entry_id - 1, self._entry_id + 1, b"x")
        data = entry_format.encode(entry, Digester(DigestType.CRC32C))
        self._entry_id += 1
        return lambda: self._store.bookie.add(data, _KEY)

    def _read_missing(self) -> None:
        with suppress(NoSuchEntry):
            self._ledger.read(1 << 40)


def figures(path: Path) -> dict[str, list[str]]:
    """Return the calls of each operation, in a new store at that path."""
    with open_store(path, _QUIET) as store:
        operations = Operations(store)
        return {
            name: min((calls_of(operations.prepared(name)) for _ in range(TIMES)), key=len) for name in BOUNDS
        }


def main() -> None:
    with TemporaryDirectory() as place:
        for name, calls in figures(Path(place) / "store").items():
            print(f"{name:28} {len(calls):4}   at most {BOUNDS[name]}")
            if name in sys.argv[1:]:
                print("\n".join(f"    {one}" for one in calls))


if __name__ == "__main__":
    main()
