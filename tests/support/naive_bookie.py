"""A stand-in for a real bookie: it reads a directory by BookKeeper's rules, without seals, notes and
tombstones.

Its tools scan every journal and every log. Then its index of ledgers is emptied and the bookie starts: it
replays from its mark on, and knows the ledgers whose keys it finds there."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from store_internals import StoreInternals

from storage.disk import filenames
from storage.entry import format as entry_format
from storage.entrylog.log_set import log_ids
from storage.journal.journal_set import journal_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.directory.layout import Layout
    from storage.disk.files import Directory
    from storage.store import Store

_LENGTH = struct.Struct(">i")
_MARK = struct.Struct(">qq")
_LOG_START, _JOURNAL_START = 1024, 512
_PADDING, _KEY, _FENCE, _EXPLICIT_LAC = -0x100, -0x1000, -0x2000, -0x8000
_META_LEDGER = -1
_IDS_SIZE = entry_format.IDS.size


@dataclass
class NaiveLedger:
    """One ledger."""

    entries: dict[int, bytes] = field(default_factory=dict)
    fenced: bool = False
    master_key: bytes | None = None
    explicit_lac: bytes | None = None


@dataclass
class NaiveBookie:
    """A bookie that has been started."""

    ledgers: dict[int, NaiveLedger] = field(default_factory=dict)
    scanned: set[int] = field(default_factory=set)
    """The ledgers that its tools have found in any file."""
    replayed_entries: int = 0
    """The entries that it has replayed. Without any it would not write its ledgers' keys and fences to its
    index."""


class StartRefused(AssertionError):
    """The bookie does not start."""


def start(layout: Layout) -> NaiveBookie:
    """Start a bookie on that directory. Its tools make the index."""
    for name in ("ledgers", "locations"):
        if name not in layout.ledgers.names():
            raise StartRefused(f"its tools find no directory {name}")
    located: dict[int, dict[int, bytes]] = {}
    for log_id in log_ids(layout.ledgers):
        for data in _scanned(_content(layout.ledgers, filenames.entry_log(log_id))):
            ledger_id, entry_id = entry_format.IDS.unpack_from(data)
            located.setdefault(ledger_id, {})[entry_id] = data
    bookie = NaiveBookie(scanned=set(located))
    for journal_id in journal_ids(layout.journal):
        for data in _records(_content(layout.journal, filenames.journal(journal_id)), 0):
            bookie.scanned.add(entry_format.IDS.unpack_from(data)[0])
    _replay(layout, bookie)
    for ledger_id, shown in bookie.ledgers.items():
        shown.entries = {**located.get(ledger_id, {}), **shown.entries}
    return bookie


def _replay(layout: Layout, bookie: NaiveBookie) -> None:
    marked_id, offset = _MARK.unpack_from(_content(layout.ledgers, filenames.LAST_MARK))
    replayed = [one for one in journal_ids(layout.journal) if one >= marked_id]
    if marked_id > 0 and replayed[:1] != [marked_id]:
        raise StartRefused(f"Recovery log {marked_id} is missing")
    for journal_id in replayed:
        data = _content(layout.journal, filenames.journal(journal_id))
        for record in _records(data, offset if journal_id == marked_id else 0):
            _take(bookie, record)


def _take(bookie: NaiveBookie, record: bytes) -> None:
    ledger_id, entry_id = entry_format.IDS.unpack_from(record)
    if entry_id == _KEY:
        bookie.ledgers.setdefault(ledger_id, NaiveLedger()).master_key = record[_IDS_SIZE + _LENGTH.size :]
    shown = bookie.ledgers.get(ledger_id)
    if shown is None:
        return  # "deleted": it has no key
    if entry_id == _FENCE:
        shown.fenced = True
    elif entry_id == _EXPLICIT_LAC:
        shown.explicit_lac = record[_IDS_SIZE + _LENGTH.size :]
    elif entry_id >= 0:
        shown.entries[entry_id] = record
        bookie.replayed_entries += 1


def _records(data: bytes, start: int) -> Iterator[bytes]:
    """Yield a journal's records up to the first length that is zero or exceeds the file."""
    at = start or _JOURNAL_START
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        if length == _PADDING:
            (length,) = _LENGTH.unpack_from(data, at + _LENGTH.size)
            at += 2 * _LENGTH.size + length
            continue
        if length < 0:
            raise StartRefused("Invalid record found with negative length")
        if length == 0 or at + _LENGTH.size + length > len(data):
            return
        if length < _IDS_SIZE:
            raise StartRefused("BufferUnderflowException")
        yield data[at + _LENGTH.size : at + _LENGTH.size + length]
        at += _LENGTH.size + length


def _scanned(data: bytes) -> Iterator[bytes]:
    """Yield a log's entries, and skip everything between them."""
    at = _LOG_START
    while at + _LENGTH.size + _IDS_SIZE <= len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        if size <= 0:
            at += 1
            continue
        record = data[at + _LENGTH.size : at + _LENGTH.size + size]
        if len(record) < size:
            return
        if entry_format.IDS.unpack_from(record)[0] != _META_LEDGER:
            yield record
        at += _LENGTH.size + size


def _content(directory: Directory, name: str) -> bytes:
    with directory.open(name) as file:
        return file.read(0, file.size())


def as_we_show(store: Store) -> dict[int, NaiveLedger]:
    """Return the content of a store of ours in the same form."""
    bookie, engine = store.bookie, StoreInternals(store)
    shown = {}
    for ledger_id in store.ledgers():
        row = engine.row(ledger_id)
        ids = [entry_id for some in bookie.entry_ids(ledger_id) for entry_id in some]
        entries = {entry_id: bookie.read(ledger_id, entry_id) for entry_id in ids}
        shown[ledger_id] = NaiveLedger(entries, row.fenced, row.master_key, row.explicit_lac)
    return shown
