"""The kinds of faults: the grammar. The values say it in words, and are what a table of trials shows."""

from __future__ import annotations

import enum


class Fault(enum.Enum):
    """One kind of fault."""

    # ── entry logs: a bit of one record ──────────────────────────────────────────────────────────────
    LOG_SIZE = "entry log: bit in a size"
    LOG_LEDGER = "entry log: bit in a ledger id"
    LOG_ENTRY = "entry log: bit in an entry id"
    LOG_CONFIRMED = "entry log: bit in a last add confirmed"
    LOG_LENGTH = "entry log: bit in a length"
    LOG_DIGEST = "entry log: bit in a digest"
    LOG_PAYLOAD = "entry log: bit in a payload"
    LOG_FILLER = "entry log: bit in a filler"
    LOG_FILLER_KIND = "entry log: bit in the kind of a filler"
    # ── entry logs: blocks ───────────────────────────────────────────────────────────────────────────
    LOG_ZEROED = "entry log: block of zeros"
    LOG_FIRST_ZEROED = "entry log: first block of zeros"
    LOG_MISDIRECTED = "entry log: another block in place of one"
    LOG_STALE = "entry log: block of another file"
    # ── entry logs: whole ────────────────────────────────────────────────────────────────────────────
    LOG_TORN = "entry log: cut in its last record"
    LOG_CUT = "entry log: cut"
    LOG_SHORTER = "entry log: cut between records"
    LOG_MISSING = "entry log: missing"
    LOG_COPIED = "entry log: a copy under another id"
    LOG_HEADER = "entry log: bit in the header"
    LOG_HEADER_FREE = "entry log: bit in what is free in the header"
    LOG_MAP_FIELDS = "entry log: bit in the header's place of the map"
    LOG_MAP = "entry log: bit in the ledgers map"
    # ── journals: a bit of one record ────────────────────────────────────────────────────────────────
    JOURNAL_SIZE = "journal: bit in the length of a record"
    JOURNAL_IDS = "journal: bit in the ids of a record"
    JOURNAL_CONFIRMED = "journal: bit in a last add confirmed"
    JOURNAL_LENGTH = "journal: bit in a length"
    JOURNAL_DIGEST = "journal: bit in a digest"
    JOURNAL_PAYLOAD = "journal: bit in a payload"
    JOURNAL_PADDING = "journal: bit in a padding record"
    JOURNAL_PADDING_FREE = "journal: bit in what a bookie's padding holds"
    JOURNAL_SEAL = "journal: bit in a seal"
    JOURNAL_HEADER = "journal: bit in the header"
    # ── journals: blocks, and whole ──────────────────────────────────────────────────────────────────
    JOURNAL_ZEROED = "journal: block of zeros"
    JOURNAL_MISDIRECTED = "journal: another block in place of one"
    JOURNAL_STALE = "journal: block of another journal"
    JOURNAL_CUT = "journal: cut"
    JOURNAL_MISSING = "journal: missing"
    # ── the mark ─────────────────────────────────────────────────────────────────────────────────────
    MARK_BACK = "mark: moved back"
    MARK_FORWARD = "mark: moved forward"
    MARK_INSIDE = "mark: inside a record"
    MARK_NO_JOURNAL = "mark: in a journal that is not there"
    MARK_FLIPPED = "mark: a bit of it"
    MARK_CUT = "mark: cut"
    MARK_BARE = "mark: cut to what a bookie writes"
    MARK_MISSING = "mark: missing"
    # ── the index ────────────────────────────────────────────────────────────────────────────────────
    INDEX_OTHER_PLACE = "index: the place of another entry"
    INDEX_INSIDE = "index: a place inside a record"
    INDEX_PAST_END = "index: a place behind a log's end"
    INDEX_NO_LOG = "index: a place in a log that is not there"
    INDEX_ROW_MISSING = "index: no place for an entry"
    INDEX_LEDGER_MISSING = "index: no places for a ledger"
    INDEX_DANGLING = "index: a place for an entry never written"
    INDEX_DELETED = "index: a place for an entry of a deleted ledger"
    INDEX_TWICE = "index: two places for an entry"
    INDEX_OLDER_COPY = "index: the place of an older copy"
    INDEX_OLDER = "index: of an earlier checkpoint"
    INDEX_PAGE = "index: bit in a page"
    INDEX_SUMS = "index: bit in the checksums of pages"
    INDEX_FILE_MISSING = "index: a file missing"
    INDEX_MISSING = "index: missing"
    # ── the rest of a directory ──────────────────────────────────────────────────────────────────────
    ROWS_FLIPPED = "ledger rows: a bit of a group"
    ROWS_OLDER = "ledger rows: an older copy"
    ROWS_MISSING = "ledger rows: missing"
    COOKIE_FLIPPED = "cookie: a bit of what identifies"
    COOKIE_OTHER = "cookie: another store's"
    COOKIE_MISSING = "cookie: missing"
    UNKNOWN_FILE = "an unknown file"
    # ── replicas ─────────────────────────────────────────────────────────────────────────────────────
    REPLICA_DROPPED = "replicas: an entry missing from one"
    REPLICA_DIFFERS = "replicas: other bytes in one"
    REPLICA_STALE = "replicas: the last entries missing from one"
