"""An embedded, crash-safe ledger store.

A *ledger* is an append-only sequence of *entries*, numbered from 0. `open` opens a directory of ledgers,
recovering it first if the last process crashed; an append returns when a crash can no longer lose its entry.

    import ledgerstore

    with ledgerstore.open("data") as store:
        ledger = store.ledger(42)
        entry_id = ledger.append(b"payload")
        print(ledger.read(entry_id).payload)

`open_async` opens the same store for coroutines, `open_view` reads it without opening it, also while another
process has it open. Every error that this package raises is a `StoreError`; errors of the system, such as a
missing permission, are `OSError`s.

This package is the public face. It re-exports names from `storage` (the engine) and `recovery` (opening,
verifying, repairing), whose other modules may change in any release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from storage import (
    AlreadyOpen,
    AnswerUnknown,
    CheckpointStats,
    CorruptionError,
    DigestDiffers,
    DigestMismatch,
    DigestType,
    DigestUnknown,
    DiskFull,
    Entry,
    EntryLocation,
    EntryTooLarge,
    EntryTruncated,
    EntryUnreadable,
    FileStats,
    ForeignStore,
    ForkedStore,
    IndexFound,
    InvalidConfig,
    InvalidEntry,
    InvalidFormat,
    JournalPosition,
    LacBeyondEnd,
    LedgerFenced,
    LedgerUnproven,
    LogPosition,
    MemtableStats,
    NewerFormat,
    NoSuchEntry,
    NoSuchLedger,
    NotAStore,
    OpenReport,
    OtherLoop,
    Overloaded,
    ReadMode,
    ReentrantCall,
    ReplayProgress,
    StoreClosed,
    StoreConfig,
    StoreError,
    StoreFailed,
    StoreLocked,
    StoreStats,
    TornTail,
    Unauthorized,
    __version__,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from recovery.view.ledger import ViewLedger
    from recovery.view.view import View
    from storage.aio.follower import AsyncFollower
    from storage.aio.ledger import AsyncLedger
    from storage.aio.opening import AsyncOpening
    from storage.aio.store import AsyncStore
    from storage.bookie import Bookie
    from storage.follower import Follower
    from storage.gc.policy import LogVerdict
    from storage.gc.report import CollectionEnd, CollectionProgress, CollectionReport, CollectionStats
    from storage.ledger import Ledger
    from storage.space import IndexSpace, LogSpace, StoreSpace
    from storage.store import Store

__all__ = [  # noqa: RUF022 - in the order in which a reader of the reference meets them
    "open",
    "open_async",
    "open_view",
    "ReentrantCall",
    "Store",
    "Ledger",
    "Follower",
    "AsyncStore",
    "AsyncLedger",
    "AsyncFollower",
    "View",
    "ViewLedger",
    "Bookie",
    "StoreConfig",
    "ReadMode",
    "DigestType",
    "Entry",
    "OpenReport",
    "IndexFound",
    "ReplayProgress",
    "TornTail",
    "StoreStats",
    "MemtableStats",
    "CheckpointStats",
    "FileStats",
    "CollectionReport",
    "CollectionEnd",
    "CollectionProgress",
    "CollectionStats",
    "LogVerdict",
    "StoreSpace",
    "LogSpace",
    "IndexSpace",
    "JournalPosition",
    "LacBeyondEnd",
    "LogPosition",
    "EntryLocation",
    "StoreError",
    "AlreadyOpen",
    "AnswerUnknown",
    "CorruptionError",
    "DigestDiffers",
    "DigestMismatch",
    "DigestUnknown",
    "DiskFull",
    "EntryTooLarge",
    "EntryTruncated",
    "EntryUnreadable",
    "ForeignStore",
    "ForkedStore",
    "InvalidConfig",
    "InvalidEntry",
    "InvalidFormat",
    "LedgerFenced",
    "LedgerUnproven",
    "NewerFormat",
    "NoSuchEntry",
    "NoSuchLedger",
    "NotAStore",
    "OtherLoop",
    "Overloaded",
    "StoreClosed",
    "StoreFailed",
    "StoreLocked",
    "Unauthorized",
    "__version__",
]

# Types that a program meets only after it has opened a store. Loading them takes longer than all else here
# (lmdb, threading, asyncio), so each is loaded when its name is first used.
_LOADED_ON_USE = {
    "Store": "storage.store",
    "Ledger": "storage.ledger",
    "Follower": "storage.follower",
    "AsyncStore": "storage.aio.store",
    "AsyncLedger": "storage.aio.ledger",
    "AsyncFollower": "storage.aio.follower",
    "View": "recovery.view.view",
    "ViewLedger": "recovery.view.ledger",
    "Bookie": "storage.bookie",
    "CollectionReport": "storage.gc.report",
    "CollectionEnd": "storage.gc.report",
    "CollectionProgress": "storage.gc.report",
    "CollectionStats": "storage.gc.report",
    "LogVerdict": "storage.gc.policy",
    "StoreSpace": "storage.space",
    "LogSpace": "storage.space",
    "IndexSpace": "storage.space",
}


# Hidden from type checkers: to them a module with `__getattr__` has every attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _LOADED_ON_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_LOADED_ON_USE[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return list(__all__)


def open(  # noqa: A001 - `ledgerstore.open`, as in `gzip.open`
    path: str | os.PathLike[str],
    config: StoreConfig | None = None,
    *,
    progress: Callable[[ReplayProgress], None] | None = None,
) -> Store:
    """Open the store at `path`, creating it if there is none and recovering it if the last process crashed.

    When this returns, every entry that was ever acknowledged can be read. Close the store, or use `with`.
    `progress` is called while a long journal is replayed. Raises `StoreLocked` if the store is open already,
    and `CorruptionError` if acknowledged data is damaged; then nothing has been changed.

    A relative path means the directory that it names now: a later `os.chdir` does not move the store. `~` is
    an ordinary name, as it is for the built-in `open`: use `pathlib.Path.expanduser`.
    """
    from recovery.opening.open_store import open_store

    return open_store(path, config or StoreConfig(), progress or _ignore)


def open_async(
    path: str | os.PathLike[str],
    config: StoreConfig | None = None,
    *,
    progress: Callable[[ReplayProgress], None] | None = None,
) -> AsyncOpening:
    """Open the store at `path` for the running event loop.

    Use it as `async with ledgerstore.open_async(path) as store`, or await it and close the store later.
    Recovery and closing run in a thread, so that the loop goes on; `progress` is called in that thread.
    Otherwise it is like `open`.
    """
    from recovery.opening.open_async_store import open_async_store

    return open_async_store(path, config or StoreConfig(), progress or _ignore)


def open_view(path: str | os.PathLike[str]) -> View:
    """Read the store at `path` without opening it: takes no lock, writes nothing.

    Works beside the process that has the store open, and on a BookKeeper bookie's directory. The view shows
    what was acknowledged before the call, `View.refresh` moves it on. Raises `NotAStore` if there is none.
    """
    from recovery.view.open_view import open_view as view

    return view(path)


def _ignore(_: object) -> None:
    """Default callback: does nothing."""
