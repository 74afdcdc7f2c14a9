"""Everything this package raises, as one small tree.

    StoreError
    └── the caller's mistake
        ├── InvalidEntry          an entry that no file could hold
        ├── InvalidFormat         a request to write what the format forbids
        └── StoreLocked           another process owns the directory

The disk failing is an `OSError`, raised by the file layer as the system gave it. Damage that a reader
*meets* is not raised at all: it is a value (`storage.outcome`).
"""

from __future__ import annotations


class StoreError(Exception):
    """The root: `except StoreError` catches whatever this package raises on purpose."""


class InvalidEntry(StoreError, ValueError):
    """An entry with an id, length or payload that no file could hold."""


class InvalidFormat(StoreError, ValueError):
    """A request to write bytes that the file format forbids."""


class StoreLocked(StoreError):
    """Another process holds the directory's lock; nothing was changed."""

    def __init__(self, path: str, pid: int | None) -> None:
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{path} is in use by {holder}")
        self.path = path
        self.pid = pid

    def __reduce__(self) -> tuple[type[StoreLocked], tuple[str, int | None]]:
        return type(self), (self.path, self.pid)
