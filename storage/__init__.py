"""ledgerstore's storage: the files of a bookie, and the parts that read and write them.

Its rooms, each seeing only those before it; `tests/test_architecture.py` keeps it so:

    words      entry, row, position, outcome, errors, filenames, report;
               config, with bookkeeper_conf and properties: a bookie's settings
    codec/     bytes to words and back, pure; one module for each format
    ports      files: what we ask of a disk, with the durability of each verb
    adapters   posix_files: the disk of a POSIX system
    tools      window, resync: walking along a file, and finding the next record when lost
    parts      journal_reader, journal_groups, journal_scan; entrylog_reader, entrylog_scan; lastmark; cookie

It never looks at `recovery`.
"""

from storage._version import __version__
from storage.config import StoreConfig
from storage.entry import DigestType, Entry
from storage.errors import (
    CorruptionError,
    DiskFull,
    EntryTooLarge,
    EntryUnreadable,
    ForeignStore,
    ForkedStore,
    InvalidConfig,
    InvalidEntry,
    InvalidFormat,
    NewerFormat,
    NoSuchEntry,
    NoSuchLedger,
    NotAStore,
    Overloaded,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreLocked,
)
from storage.outcome import Damaged, EndOfData, Flaw, Torn
from storage.position import EntryLocation, JournalPosition, LogPosition
from storage.report import IndexFound, OpenReport, ReplayProgress, TornTail

__all__ = [
    "CorruptionError",
    "Damaged",
    "DigestType",
    "DiskFull",
    "EndOfData",
    "Entry",
    "EntryLocation",
    "EntryTooLarge",
    "EntryUnreadable",
    "Flaw",
    "ForeignStore",
    "ForkedStore",
    "IndexFound",
    "InvalidConfig",
    "InvalidEntry",
    "InvalidFormat",
    "JournalPosition",
    "LogPosition",
    "NewerFormat",
    "NoSuchEntry",
    "NoSuchLedger",
    "NotAStore",
    "OpenReport",
    "Overloaded",
    "ReplayProgress",
    "StoreClosed",
    "StoreConfig",
    "StoreError",
    "StoreFailed",
    "StoreLocked",
    "Torn",
    "TornTail",
    "__version__",
]
