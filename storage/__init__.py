"""The storage engine of ledgerstore: it reads and writes the files of a bookie.

The folders in the order in which they are best read. A folder imports itself and folders of smaller steps,
and none of its own step; `tests/test_architecture.py` states the same as data.

    1   errors         all errors that are raised
    2   entry/         an entry: its model, digest and bytes; batches of entries; what a read can find
    3   config         the settings of a store; with bookkeeper_conf, which reads a bookie's configuration
    4   disk/          the verbs that a file system must have, the POSIX implementation, file names, cookies
        runtime/       the state of a store, its log messages, background workers, forks
    5   journal/       the write-ahead log: groups of records and their seals, and what a crash leaves of them
        entrylog/      the logs that hold the entries after a checkpoint
        memtable/      the entries that are in the journals and not yet in entry logs
        index/         the locations of entries in the entry logs; `lmdb/` is the implementation
    6   ledgers/       the metadata of ledgers, and the state of each ledger that is written
    7   commit/        how a group of adds becomes durable and visible; fences and deletes
        read/          one entry, and ranges of entries, wherever they are
    8   checkpoint/    moves a full table to entry logs and index; the lastMark file
    9   gc/            which logs are mostly dead, the moves of what lives in them, and their removal
    10  store, ledger, bookie, follower, stats and the other modules beside this one: the public classes
    11  aio/           the same store for coroutines
    12  cluster/       the network and the metadata of a cluster; `import storage` loads none of it

`format.py` and `*_format.py` are the only modules that know bytes, and they are pure. Nothing in `storage`
imports `recovery`.
"""

from storage._version import __version__
from storage.config import ReadMode, StoreConfig
from storage.entry.model import DigestType, Entry
from storage.entry.position import EntryLocation, JournalPosition, LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.errors import (
    AlreadyOpen,
    AnswerUnknown,
    CorruptionError,
    DigestDiffers,
    DigestMismatch,
    DigestUnknown,
    DiskFull,
    EntryTooLarge,
    EntryTruncated,
    EntryUnreadable,
    ForeignStore,
    ForkedStore,
    InvalidConfig,
    InvalidEntry,
    InvalidFormat,
    LacBeyondEnd,
    LedgerFenced,
    LedgerUnproven,
    NewerFormat,
    NoSuchEntry,
    NoSuchLedger,
    NotAStore,
    OtherLoop,
    Overloaded,
    ReentrantCall,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreLocked,
    Unauthorized,
)
from storage.open_report import IndexFound, OpenReport, ReplayProgress, TornTail
from storage.stats import CheckpointStats, FileStats, MemtableStats, StoreStats

__all__ = [
    "AlreadyOpen",
    "AnswerUnknown",
    "CheckpointStats",
    "CorruptionError",
    "Damaged",
    "DigestDiffers",
    "DigestMismatch",
    "DigestType",
    "DigestUnknown",
    "DiskFull",
    "EndOfData",
    "Entry",
    "EntryLocation",
    "EntryTooLarge",
    "EntryTruncated",
    "EntryUnreadable",
    "FileStats",
    "Flaw",
    "ForeignStore",
    "ForkedStore",
    "IndexFound",
    "InvalidConfig",
    "InvalidEntry",
    "InvalidFormat",
    "JournalPosition",
    "LacBeyondEnd",
    "LedgerFenced",
    "LedgerUnproven",
    "LogPosition",
    "MemtableStats",
    "NewerFormat",
    "NoSuchEntry",
    "NoSuchLedger",
    "NotAStore",
    "OpenReport",
    "OtherLoop",
    "Overloaded",
    "ReadMode",
    "ReentrantCall",
    "ReplayProgress",
    "StoreClosed",
    "StoreConfig",
    "StoreError",
    "StoreFailed",
    "StoreLocked",
    "StoreStats",
    "Torn",
    "TornTail",
    "Unauthorized",
    "__version__",
]
