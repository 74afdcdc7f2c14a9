"""Verifies the store's files with the store's own readers. Opens nothing for writing.

An unfinished write at the end of a file, a draft, and an entry log to which nothing refers are no findings,
because a crash leaves them and the next opening removes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from recovery.directory.authority import IndexFile
from recovery.directory.evidence import compare
from recovery.directory.layout import load_store_id
from recovery.directory.orphans import check_log
from recovery.proving.session import PASSWORDS
from recovery.proving.store_under_test import layout_of, place_of
from recovery.replay.journals import Replay, scan_of
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark import newest_named
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.entry.digest import DigestCheck, digester
from storage.entry.digest_inference import EntryVerifier
from storage.entry.format import check_digest
from storage.entry.model import DigestType
from storage.entry.position import EntryLocation, LogPosition
from storage.entry.read_result import Damaged, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog.scan import Hole
from storage.errors import StoreError
from storage.index.port import NoIndex
from storage.journal import journal_set
from storage.ledgers import metadata_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from recovery.directory.layout import Layout
    from storage.entry.ledger_record import LedgerRecord
    from storage.entrylog.scan import LogItem
    from storage.index.port import Index

T = TypeVar("T")

_EVERYTHING = 1 << 30


def verify(root: Path) -> list[str]:
    """Return a line for each thing that is wrong with the files below a root after an opening.

    Writes nothing.
    """
    layout = layout_of(root)
    found: list[str] = []
    _answer(lambda: load_store_id(layout), found)
    mark = lastmark.load(layout.ledgers)
    if not isinstance(mark, Mark) or mark.trailer is None:
        return [*found, f"{filenames.LAST_MARK}: {mark}"]
    sequence = mark.trailer.rows_sequence
    loaded = _answer(lambda: metadata_log.load(layout.ledgers, sequence), found)
    if loaded is None:
        return found
    return [
        *found,
        *_journal_findings(layout, mark, loaded.rows),
        *_index_findings(layout, mark, loaded.rows),
    ]


def _answer(ask: Callable[[], T], found: list[str]) -> T | None:
    """Return the answer; add the error to `found` and return None if it raises."""
    try:
        return ask()
    except (StoreError, OSError) as error:
        found.append(f"{error}")
        return None


# ── journals ──────────────────────────────────────────────────────────────────────────────────────────────


def _journal_findings(layout: Layout, mark: Mark, rows: Mapping[int, LedgerRecord]) -> Iterator[str]:
    found: list[str] = []
    _answer(lambda: Replay(layout.journal, mark.position, newest_named(mark), rows), found)
    yield from found
    for journal_id in journal_set.journal_ids(layout.journal):
        scan = scan_of(layout.journal, journal_id, rows)
        if isinstance(scan.header, Damaged):
            yield f"{filenames.journal(journal_id)}: {scan.header}"
        # Journals that are replayed were verified together; of an older one, only its own seals can tell.
        elif journal_id < mark.position.journal_id and scan.proof_offset is not None:
            yield f"{filenames.journal(journal_id)}: damaged at {scan.end}, with valid data after it"


# ── index and entry logs ──────────────────────────────────────────────────────────────────────────────────


def _index_findings(layout: Layout, mark: Mark, rows: Mapping[int, LedgerRecord]) -> Iterator[str]:
    index = place_of(layout).view()
    if isinstance(index, NoIndex | Damaged):
        yield f"{filenames.INDEX}: {'missing' if isinstance(index, NoIndex) else index}"
        return
    try:
        state = index.state()
        if compare(mark, state) is IndexFile.OTHER_HISTORY:
            yield f"{filenames.INDEX}: {state}, and the mark says {mark}"
        placed = dict(_placed(index))
        yield from _metadata_findings(index, rows)
        for log_id, end in state.log_ends.items():
            yield from _log_findings(layout, LogPosition(log_id, end), rows, placed)
        yield from (f"{EntryLocation.unpack(one)}: nothing of {ids} there" for one, ids in placed.items())
    except OSError as error:
        yield f"{filenames.INDEX}: {error}"
    finally:
        index.close()


def _placed(index: Index) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield each entry of the index, by its location."""
    for ledger_id in index.ledgers():
        for entry_id, place in index.locations(ledger_id, 0, _EVERYTHING):
            yield place, (ledger_id, entry_id)


def _metadata_findings(index: Index, rows: Mapping[int, LedgerRecord]) -> Iterator[str]:
    for row in index.rows():
        if rows.get(row.ledger_id) is None or rows[row.ledger_id].change < row.change:
            yield f"{filenames.INDEX}: of ledger {row.ledger_id} it says more than {filenames.LEDGER_ROWS}"


def _log_findings(
    layout: Layout, end: LogPosition, rows: Mapping[int, LedgerRecord], placed: dict[int, tuple[int, int]]
) -> Iterator[str]:
    """Yield what is wrong before the log's end, and remove from `placed` the entries that are there."""
    name, found = filenames.entry_log(end.log_id), list[str]()
    _answer(lambda: check_log(layout.ledgers, end), found)
    if found:
        yield from found
        return
    with layout.ledgers.open(name) as file:
        reader = EntryLogReader(file, end.log_id, EntryVerifier())
        if isinstance(reader.header, Damaged | entrylog_format.EmptyLog):
            yield f"{name}: no sound header"
        if isinstance(sizes := reader.ledgers_map(), Damaged):
            yield f"{name}: {sizes}"
        for item in entrylog_scan.items(reader):
            if isinstance(item, LogEntry):
                yield from _entry_findings(item, end, rows, placed)
            else:
                yield from (f"{name}: {words}" for words in _item_findings(item, end))


def _entry_findings(
    entry: LogEntry, end: LogPosition, rows: Mapping[int, LedgerRecord], placed: dict[int, tuple[int, int]]
) -> Iterator[str]:
    position, ids = entry.position, entry.ids
    if placed.pop(position.location.pack(), ids) != ids:
        yield f"{position}: the index has another entry here than {ids}"
    if position.offset < end.offset and not _is_sound(entry, rows.get(ids[0])):
        yield f"{position}: entry {ids} is damaged"


def _item_findings(item: LogItem, end: LogPosition) -> Iterator[str]:
    """Yield what is wrong with an item that is no entry. After the end of valid data, nothing is wrong."""
    match item:
        case LogMap(pairs=Damaged() as damaged):
            yield str(damaged)
        case Hole(offset=offset) if offset < end.offset:
            yield f"{item.flaw.value} at {offset}"
        case Torn(offset=offset) | Damaged(offset=offset) if offset < end.offset:
            yield f"{item} at {offset}"


def _is_sound(entry: LogEntry, row: LedgerRecord | None) -> bool:
    """Return whether the entry's digest is right, or does not matter because its ledger was deleted."""
    if entry.check is DigestCheck.OK:
        return True
    tombstone = None if row is None else row.tombstone
    if tombstone is not None and (tombstone.log is None or entry.position < tombstone.log):
        return True
    digest_type = None if row is None else row.digest_type
    tries = (digester(digest_type or DigestType.CRC32C, password) for password in PASSWORDS)
    return any(check_digest(entry.data, one) is not DigestCheck.MISMATCH for one in tries)
