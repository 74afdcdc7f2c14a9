"""ledgerstore's storage: the files of a bookie, and the parts that read and write them.

Its rooms, each seeing only those before it; `tests/test_architecture.py` keeps it so:

    words      entry, row, access, position, outcome, errors, filenames, index_state, latch, patience, report;
               config, with bookkeeper_conf and properties: a bookie's settings
    codec/     bytes to words and back, pure; one module for each format
    ports      files, index: what we ask of the outside, with the durability of each verb;
               worker, turnstile: the only threads
    adapters   posix_files, mapped_file: the disk of a POSIX system; lmdb_place, lmdb_index, lmdb_environment,
               gate; page_sums, page_snapshot, lmdb_walk: what LMDB's file is held against; lmdb_leaves: what
               it holds, read by hand; forks
    tools      window, resync: walking along a file, and finding the next record when lost;
               log_ids, location_cache, log_shelf
    parts      one thing on disk or in memory each: journals, journal_writer, journal_reader and its scans;
               entry_logs, entrylog_writer, entrylog_reader; memtable (of entries), tail, lastmark,
               ledger_rows, cookie
    movers     commit (with grouping, entrance, alone and adding), warden, registry, checkpoint, reading,
               scanning, chores: where the order stands
    door       store, ledger, bookie, with request and presence, parts; aio: the same, awaited

It never looks at `recovery`.
"""

from storage._version import __version__
from storage.config import ReadMode, StoreConfig
from storage.entry import DigestType, Entry
from storage.errors import (
    AnswerUnknown,
    CorruptionError,
    DigestDiffers,
    DigestMismatch,
    DigestUnknown,
    DiskFull,
    EntryTooLarge,
    EntryUnreadable,
    ForeignStore,
    ForkedStore,
    InvalidConfig,
    InvalidEntry,
    InvalidFormat,
    LedgerFenced,
    LedgerUnproven,
    NewerFormat,
    NoSuchEntry,
    NoSuchLedger,
    NotAStore,
    OtherLoop,
    Overloaded,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreLocked,
    Unauthorized,
)
from storage.outcome import Damaged, EndOfData, Flaw, Torn
from storage.position import EntryLocation, JournalPosition, LogPosition
from storage.report import IndexFound, OpenReport, ReplayProgress, TornTail

__all__ = [
    "AnswerUnknown",
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
    "EntryUnreadable",
    "Flaw",
    "ForeignStore",
    "ForkedStore",
    "IndexFound",
    "InvalidConfig",
    "InvalidEntry",
    "InvalidFormat",
    "JournalPosition",
    "LedgerFenced",
    "LedgerUnproven",
    "LogPosition",
    "NewerFormat",
    "NoSuchEntry",
    "NoSuchLedger",
    "NotAStore",
    "OpenReport",
    "OtherLoop",
    "Overloaded",
    "ReadMode",
    "ReplayProgress",
    "StoreClosed",
    "StoreConfig",
    "StoreError",
    "StoreFailed",
    "StoreLocked",
    "Torn",
    "TornTail",
    "Unauthorized",
    "__version__",
]
