"""Every name on disk, made and parsed in one place.

A name that is not exactly what this store or a bookie would write is `UNKNOWN`: such a file is reported and
never touched. Ids are hexadecimal, lower case, without leading zeros.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from storage.entry.model import ID_MAX
from storage.entry.position import LOG_ID_MAX

CURRENT = "current"
JOURNAL_DIRECTORY = "journal"
LEDGER_DIRECTORY = "ledgers"
COOKIE = "VERSION"
LOCK = "LOCK"
LAST_ID = "lastId"
LAST_MARK = "lastMark"
LEDGER_ROWS = "ledgers.rows"
LINEAGE = "lineage"
INDEX = "index"
BOOKIE_LOCATIONS = "locations"
INDEX_LOCK = "lock.mdb"
RESERVE = "reserve"
OPENING_RESERVE = "reserve.opening"
QUARANTINE = "quarantine"
AUDIT_LINKS = "audit.links"
DIRTY = "DIRTY"
BOOKIE_STATUS = "BOOKIE_STATUS"

_DRAFT = ".draft"
_DAMAGED = ".damaged"
_HEX = r"(0|[1-9a-f][0-9a-f]*)"


class FileKind(enum.Enum):
    """The purpose of a file, as its name shows it."""

    JOURNAL = "journal"
    JOURNAL_DRAFT = "journal draft"
    ENTRY_LOG = "entry log"
    ENTRY_LOG_DRAFT = "entry log draft"
    COMPACTING_LOG = "entry log being compacted"
    COMPACTED_LOG = "entry log compacted"
    LAST_MARK = "last mark"
    LAST_MARK_DRAFT = "last mark draft"
    LAST_ID = "last log id"
    LEDGER_ROWS = "ledger rows"
    LEDGER_ROWS_DRAFT = "ledger rows draft"
    LINEAGE = "lineage"
    LINEAGE_DRAFT = "lineage draft"
    INDEX = "index"
    INDEX_DRAFT = "index draft"
    INDEX_DAMAGED = "damaged index"
    BOOKIE_INDEX = "bookie's index"
    COOKIE = "cookie"
    COOKIE_DRAFT = "cookie draft"
    LOCK = "lock"
    RESERVE = "reserve"
    RESERVE_DRAFT = "reserve draft"
    QUARANTINE = "quarantine"
    STATE = "bookie state"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FileName:
    """A parsed name. `number` is the id in it, or the index of a mark, if there is one."""

    kind: FileKind
    number: int | None = None
    victim: int | None = None
    """The log that a compacted log replaces, from its name."""


_FIXED = {
    COOKIE: FileKind.COOKIE,
    COOKIE + _DRAFT: FileKind.COOKIE_DRAFT,
    LOCK: FileKind.LOCK,
    LAST_ID: FileKind.LAST_ID,
    LEDGER_ROWS: FileKind.LEDGER_ROWS,
    LEDGER_ROWS + _DRAFT: FileKind.LEDGER_ROWS_DRAFT,
    LINEAGE: FileKind.LINEAGE,
    LINEAGE + _DRAFT: FileKind.LINEAGE_DRAFT,
    INDEX: FileKind.INDEX,
    INDEX + _DRAFT: FileKind.INDEX_DRAFT,
    INDEX + _DAMAGED: FileKind.INDEX_DAMAGED,
    RESERVE: FileKind.RESERVE,
    RESERVE + _DRAFT: FileKind.RESERVE_DRAFT,
    OPENING_RESERVE: FileKind.RESERVE,
    OPENING_RESERVE + _DRAFT: FileKind.RESERVE_DRAFT,
    QUARANTINE: FileKind.QUARANTINE,
    DIRTY: FileKind.STATE,
    BOOKIE_STATUS: FileKind.STATE,
    "ledgers": FileKind.BOOKIE_INDEX,
    BOOKIE_LOCATIONS: FileKind.BOOKIE_INDEX,
    "metadata-cache": FileKind.BOOKIE_INDEX,
    LAST_MARK: FileKind.LAST_MARK,
    LAST_MARK + _DRAFT: FileKind.LAST_MARK_DRAFT,
}

# pattern, kind, the largest id that such a name can carry
_NUMBERED = (
    (re.compile(rf"{_HEX}\.txn"), FileKind.JOURNAL, ID_MAX),
    (re.compile(rf"{_HEX}\.txn\.draft"), FileKind.JOURNAL_DRAFT, ID_MAX),
    (re.compile(rf"{_HEX}\.log"), FileKind.ENTRY_LOG, LOG_ID_MAX),
    (re.compile(rf"{_HEX}\.log\.draft"), FileKind.ENTRY_LOG_DRAFT, LOG_ID_MAX),
    (re.compile(rf"{_HEX}\.log\.compacting"), FileKind.COMPACTING_LOG, LOG_ID_MAX),
    (re.compile(rf"{_HEX}\.log\.{_HEX}\.compacted"), FileKind.COMPACTED_LOG, LOG_ID_MAX),
)
# The leaves of a bookie's older index: two levels of directories, named by bytes of the ledger id.
_INDEX_LEAF = re.compile(r"[0-9a-f]{1,2}")
_INDEXED_MARK = re.compile(rf"{LAST_MARK}\.(0|[1-9][0-9]*)")


def journal(journal_id: int) -> str:
    return f"{journal_id:x}.txn"


def entry_log(log_id: int) -> str:
    return f"{log_id:x}.log"


def draft(name: str) -> str:
    """Return the name under which a file is written before it is renamed to `name`.

    It differs at the end, because BookKeeper takes each file that ends in `.txn` for a journal.
    """
    return name + _DRAFT


def damaged(name: str) -> str:
    """Return the name under which a damaged file is kept as evidence when a new one takes its name."""
    return name + _DAMAGED


def parse(name: str) -> FileName:
    """Parse a name.

    The kind is `UNKNOWN` for a name that neither this store nor a bookie would have written.
    """
    if name in _FIXED:
        return FileName(_FIXED[name])
    for pattern, kind, number_max in _NUMBERED:
        match = pattern.fullmatch(name)
        numbers = [int(group, 16) for group in match.groups()] if match else []
        if numbers and max(numbers) <= number_max:
            return FileName(kind, *numbers)
    match = _INDEXED_MARK.fullmatch(name)
    if match:
        return FileName(FileKind.LAST_MARK, int(match.group(1)))
    return FileName(FileKind.BOOKIE_INDEX if _INDEX_LEAF.fullmatch(name) else FileKind.UNKNOWN)
