"""What our side shows of a directory: a store of ours, or the files of a bookie."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from promises import glance
from shown import Found, LedgerShown, Place, Scans, Shown, sha256

from recovery.chain import judge
from recovery.founding import Layout
from recovery.replay import _ranges
from storage import entrylog_scan, filenames, lastmark
from storage.codec import entry as entry_codec
from storage.codec import journal as journal_codec
from storage.codec.digest import digester, master_key
from storage.codec.mark import Mark
from storage.codec.survey import EntryVerifier
from storage.entrylog_reader import EntryLogReader, LogEntry
from storage.filenames import FileKind
from storage.journal_reader import JournalReader, StoredPadding, StoredRecord
from storage.journal_scan import scan
from storage.outcome import Damaged, EndOfData
from storage.position import START
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from shown import Access

    from storage.entry import Entry
    from storage.store import Store

Payloads = dict[tuple[int, int], bytes]


# ── a store ───────────────────────────────────────────────────────────────────────────────────────────────


def of_store(store: Store, accesses: Mapping[int, Access]) -> tuple[Shown, Payloads]:
    """What an open store shows, and the payload of each entry."""
    entries = glance(store).entries
    shown: dict[int, dict[int, str]] = {ledger_id: {} for ledger_id in store.ledgers()}
    for (ledger_id, entry_id), entry in entries.items():
        shown[ledger_id][entry_id] = sha256(encoded(entry, accesses))
    payloads = {ids: entry.payload for ids, entry in entries.items()}
    return {ledger_id: _ledger(found, accesses[ledger_id]) for ledger_id, found in shown.items()}, payloads


def _ledger(entries: Mapping[int, str], access: Access) -> LedgerShown:
    return LedgerShown(entries, master_key=master_key(access.password).hex())


def encoded(entry: Entry, accesses: Mapping[int, Access]) -> bytes:
    """The bytes of an entry as journal and log have them."""
    access = accesses[entry.ledger_id]
    return entry_codec.encode(entry, digester(access.digest_type, access.password))


def taken(directory: Path, accesses: Mapping[int, Access]) -> Callable[[Place], bool]:
    """Whether our replay would take the journal record that stands there, if it began with the oldest file.

    What it would not take is a torn tail, or was void before the next journal was begun.
    """
    journals = Layout(PosixDirectory(directory)).journal
    declared = {ledger: digester(access.digest_type, access.password) for ledger, access in accesses.items()}
    scans = {}
    for number in _numbers(journals.names(), FileKind.JOURNAL):
        with journals.open(filenames.journal(number)) as file:
            scans[number] = scan(JournalReader(file, number), EntryVerifier(declared))
    ranges = {one.scan.journal_id: list(_ranges(one)) for one in judge(START, scans).standings}
    return lambda place: any(start <= place.offset < end for start, end in ranges[place.file])


def _numbers(names: list[str], kind: FileKind) -> list[int]:
    parsed = map(filenames.parse, names)
    return sorted(name.number for name in parsed if name.kind is kind and name.number is not None)


# ── the files ─────────────────────────────────────────────────────────────────────────────────────────────


def our_scans(directory: Path) -> Scans:
    """What our readers list in files that a bookie has written."""
    layout = Layout(PosixDirectory(directory))
    problems: list[str] = []
    mark = lastmark.load(layout.ledgers)
    maps: dict[int, Mapping[int, int]] = {}
    return Scans(
        (mark.position.journal_id, mark.position.offset) if isinstance(mark, Mark) else (0, 0),
        tuple(_journal_records(layout, problems)),
        tuple(_log_entries(layout, maps, problems)),
        maps,
        tuple(problems),
    )


def _journal_records(layout: Layout, problems: list[str]) -> Iterator[Found]:
    for number in _numbers(layout.journal.names(), FileKind.JOURNAL):
        with layout.journal.open(filenames.journal(number)) as file:
            for item in JournalReader(file, number).items():
                if isinstance(item, StoredRecord):
                    data = file.read(item.offset + 4, item.end - item.offset - 4)
                    yield _found(Place(number, item.offset), data)
                elif not isinstance(item, StoredPadding | EndOfData):
                    problems.append(f"journal {number:x}: {item}")


def _log_entries(layout: Layout, maps: dict[int, Mapping[int, int]], problems: list[str]) -> Iterator[Found]:
    for number in _numbers(layout.ledgers.names(), FileKind.ENTRY_LOG):
        with layout.ledgers.open(filenames.entry_log(number)) as file:
            reader = EntryLogReader(file, number, EntryVerifier())
            sizes = reader.ledgers_map()
            if isinstance(sizes, dict):
                maps[number] = sizes
            for item in entrylog_scan.items(reader):
                if isinstance(item, LogEntry):
                    yield _found(Place(number, item.position.offset), bytes(item.data))
                elif isinstance(item, entrylog_scan.Hole | Damaged):
                    problems.append(f"log {number:x}: {item}")


def _found(place: Place, data: bytes) -> Found:
    ledger_id, entry_id = entry_codec.IDS.unpack_from(data)
    return Found(place, ledger_id, entry_id, len(data), sha256(data), data)


def of_files(directory: Path) -> Shown:
    """What the files of a bookie say: its logs, the journals from its mark on, and the facts in all of them."""
    scans = our_scans(directory)
    entries: dict[int, dict[int, str]] = defaultdict(dict)
    for found in scans.logs:
        entries[found.ledger_id][found.entry_id] = found.sha256
    for found in scans.journals:
        # Below the mark all is in the logs.
        if found.entry_id >= 0 and (found.place.file, found.place.offset) >= scans.mark:
            entries[found.ledger_id][found.entry_id] = found.sha256
    shown = {ledger_id: LedgerShown(found) for ledger_id, found in entries.items()}
    for found in scans.journals:
        if found.entry_id < 0:
            before = shown.get(found.ledger_id, LedgerShown())
            shown[found.ledger_id] = _with_fact(before, found.data)
    return shown


def _with_fact(ledger: LedgerShown, data: bytes) -> LedgerShown:
    match journal_codec.decode_record(data, journal_codec.VERSION_MAX):
        case journal_codec.Fence():
            return replace(ledger, fenced=True)
        case journal_codec.LedgerKey(master_key=key):
            return replace(ledger, master_key=key.hex())
        case journal_codec.ExplicitLac(packet=packet):
            _, confirmed = entry_codec.LAC_PACKET.unpack_from(packet)
            return replace(ledger, explicit_lac=max(ledger.explicit_lac, confirmed))
    raise AssertionError(f"no record that a bookie writes: {data[:24].hex()}")
