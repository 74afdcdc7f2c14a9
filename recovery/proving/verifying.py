"""What the store's own readers find wrong in its files: the judge that never opens anything for writing.

A tail that a write left unfinished is no finding, nor is a draft, nor an entry log that nothing points into:
a crash leaves those, and the next opening cleans them away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from recovery import founding
from recovery.indexing import may_be_of
from recovery.leftovers import check_log
from recovery.proving.opened import layout_of, place_of
from recovery.proving.sitting import PASSWORDS
from recovery.replay import Replay, scan_of
from storage import entrylog_scan, filenames, journals, lastmark, ledger_rows
from storage.codec import entrylog as log_codec
from storage.codec.digest import DigestCheck, digester
from storage.codec.entry import check_digest
from storage.codec.mark import Mark
from storage.codec.survey import EntryVerifier
from storage.entry import DigestType
from storage.entrylog_reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog_scan import Hole
from storage.errors import StoreError
from storage.index import NoIndex
from storage.lastmark import newest_named
from storage.outcome import Damaged, Torn
from storage.position import EntryLocation, LogPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from recovery.founding import Layout
    from storage.entrylog_scan import LogItem
    from storage.index import Index
    from storage.row import LedgerRow

T = TypeVar("T")

_EVERYTHING = 1 << 30


def verify(root: Path) -> list[str]:
    """A line for each thing that is wrong with the files below a root, behind an opening. Writes nothing."""
    layout = layout_of(root)
    found: list[str] = []
    _said(lambda: founding.store_id(layout), found)
    mark = lastmark.load(layout.ledgers)
    if not isinstance(mark, Mark) or mark.trailer is None:
        return [*found, f"{filenames.LAST_MARK}: {mark}"]
    sequence = mark.trailer.rows_sequence
    loaded = _said(lambda: ledger_rows.load(layout.ledgers, sequence), found)
    if loaded is None:
        return found
    return [*found, *_in_journals(layout, mark, loaded.rows), *_in_index(layout, mark, loaded.rows)]


def _said(ask: Callable[[], T], found: list[str]) -> T | None:
    """The answer; `None` where what keeps a store from opening is in the way, which is then found."""
    try:
        return ask()
    except (StoreError, OSError) as error:
        found.append(f"{error}")
        return None


# ── journals ──────────────────────────────────────────────────────────────────────────────────────────────


def _in_journals(layout: Layout, mark: Mark, rows: Mapping[int, LedgerRow]) -> Iterator[str]:
    found: list[str] = []
    _said(lambda: Replay(layout.journal, mark.position, newest_named(mark), rows), found)
    yield from found
    for journal_id in journals.journal_ids(layout.journal):
        scan = scan_of(layout.journal, journal_id, rows)
        if isinstance(scan.header, Damaged):
            yield f"{filenames.journal(journal_id)}: {scan.header}"
        # Those that are to be replayed were judged with each other; of an old one only its own seals tell.
        elif journal_id < mark.position.journal_id and scan.proof_offset is not None:
            yield f"{filenames.journal(journal_id)}: damaged at {scan.end}, with something sound behind"


# ── index and entry logs ──────────────────────────────────────────────────────────────────────────────────


def _in_index(layout: Layout, mark: Mark, rows: Mapping[int, LedgerRow]) -> Iterator[str]:
    index = place_of(layout).view()
    if isinstance(index, NoIndex | Damaged):
        yield f"{filenames.INDEX}: {'missing' if isinstance(index, NoIndex) else index}"
        return
    try:
        state = index.state()
        if not may_be_of(mark, state):
            yield f"{filenames.INDEX}: {state}, and the mark says {mark}"
        placed = dict(_placed(index))
        yield from _in_rows(index, rows)
        for log_id, end in state.log_ends.items():
            yield from _in_log(layout, LogPosition(log_id, end), rows, placed)
        yield from (f"{EntryLocation.unpack(one)}: nothing of {ids} there" for one, ids in placed.items())
    except OSError as error:
        yield f"{filenames.INDEX}: {error}"
    finally:
        index.close()


def _placed(index: Index) -> Iterator[tuple[int, tuple[int, int]]]:
    """By its place, each entry of which the index says that it is there."""
    for ledger_id in index.ledgers():
        for entry_id, place in index.places(ledger_id, 0, _EVERYTHING):
            yield place, (ledger_id, entry_id)


def _in_rows(index: Index, rows: Mapping[int, LedgerRow]) -> Iterator[str]:
    for row in index.rows():
        if rows.get(row.ledger_id) is None or rows[row.ledger_id].change < row.change:
            yield f"{filenames.INDEX}: of ledger {row.ledger_id} it says more than {filenames.LEDGER_ROWS}"


def _in_log(
    layout: Layout, end: LogPosition, rows: Mapping[int, LedgerRow], placed: dict[int, tuple[int, int]]
) -> Iterator[str]:
    """What is wrong up to the end of what counts; takes away from `placed` what it finds there."""
    name, found = filenames.entry_log(end.log_id), list[str]()
    _said(lambda: check_log(layout.ledgers, end), found)
    if found:
        yield from found
        return
    with layout.ledgers.open(name) as file:
        reader = EntryLogReader(file, end.log_id, EntryVerifier())
        if isinstance(reader.header, Damaged | log_codec.EmptyLog):
            yield f"{name}: no sound header"
        if isinstance(sizes := reader.ledgers_map(), Damaged):
            yield f"{name}: {sizes}"
        for item in entrylog_scan.items(reader):
            if isinstance(item, LogEntry):
                yield from _in_entry(item, end, rows, placed)
            else:
                yield from (f"{name}: {words}" for words in _in_item(item, end))


def _in_entry(
    entry: LogEntry, end: LogPosition, rows: Mapping[int, LedgerRow], placed: dict[int, tuple[int, int]]
) -> Iterator[str]:
    position, ids = entry.position, entry.ids
    if placed.pop(position.location.pack(), ids) != ids:
        yield f"{position}: the index has another entry here than {ids}"
    if position.offset < end.offset and not _is_sound(entry, rows.get(ids[0])):
        yield f"{position}: entry {ids} is damaged"


def _in_item(item: LogItem, end: LogPosition) -> Iterator[str]:
    """What is wrong with something that is no entry; behind the end of what counts nothing is."""
    match item:
        case LogMap(pairs=Damaged() as damaged):
            yield str(damaged)
        case Hole(offset=offset) if offset < end.offset:
            yield f"{item.flaw.value} at {offset}"
        case Torn(offset=offset) | Damaged(offset=offset) if offset < end.offset:
            yield f"{item} at {offset}"


def _is_sound(entry: LogEntry, row: LedgerRow | None) -> bool:
    """Whether the entry's digest is right, or nobody will ever read it: its ledger was deleted behind it."""
    if entry.check is DigestCheck.OK:
        return True
    tombstone = None if row is None else row.tombstone
    if tombstone is not None and (tombstone.log is None or entry.position < tombstone.log):
        return True
    digest_type = None if row is None else row.digest_type
    tries = (digester(digest_type or DigestType.CRC32C, password) for password in PASSWORDS)
    return any(check_digest(entry.data, one) is not DigestCheck.MISMATCH for one in tries)
