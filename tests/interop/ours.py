"""What our side shows of a directory: a store, or the files of a bookie read by our readers alone."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from shown import Access, Found, LedgerShown, Place, Scans, Shown, sha256

from recovery import open_store
from recovery.chain import judge
from recovery.declared import DeclaredByRows
from recovery.founding import Layout
from recovery.replay import _ranges
from storage import StoreConfig, entrylog_scan, filenames, lastmark
from storage.codec import entry as entry_codec
from storage.codec import journal as journal_codec
from storage.codec.mark import Mark
from storage.codec.survey import EntryVerifier
from storage.entry_logs import log_ids
from storage.entrylog_reader import EntryLogReader, LogEntry
from storage.journal_reader import JournalReader, StoredPadding, StoredRecord
from storage.journal_scan import scan
from storage.journals import journal_ids
from storage.outcome import Damaged, EndOfData, Stop
from storage.position import LENGTH_WORD_SIZE, START
from storage.posix_files import PosixDirectory
from storage.warden import confirmed_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from storage.row import LedgerRow
    from storage.store import Store

# ── a store ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class View:
    """Everything that an open store shows."""

    shown: Shown
    data: Mapping[tuple[int, int], bytes]
    """By ledger and entry id, the entry's bytes."""
    rows: Mapping[int, LedgerRow]

    def payloads(self) -> dict[tuple[int, int], bytes]:
        return {ids: data[self._payload_start(ids[0]) :] for ids, data in self.data.items()}

    def _payload_start(self, ledger_id: int) -> int:
        digest_type = self.rows[ledger_id].digest_type
        assert digest_type is not None
        return entry_codec.HEAD.size + digest_type.width

    def accesses(self, passwords: Mapping[int, bytes]) -> dict[int, Access]:
        """How the entries are protected, as far as the store knows, with the passwords that it does not."""
        return {
            ledger_id: Access(row.digest_type, passwords.get(ledger_id, b""))
            for ledger_id, row in self.rows.items()
            if row.digest_type is not None
        }


def of_store(store: Store) -> View:
    """What an open store shows, each entry read by itself."""
    bookie, registry = store.bookie, store._parts.registry
    rows = {ledger_id: registry.of(ledger_id) for ledger_id in store.ledgers()}
    data = {
        (ledger_id, entry_id): bookie.read(ledger_id, entry_id)
        for ledger_id in rows
        for entry_id in chain.from_iterable(bookie.entry_ids(ledger_id))
    }
    entries: dict[int, dict[int, str]] = {ledger_id: {} for ledger_id in rows}
    for (ledger_id, entry_id), one in data.items():
        entries[ledger_id][entry_id] = sha256(one)
    shown = {ledger_id: _ledger(entries[ledger_id], row) for ledger_id, row in rows.items()}
    return View(shown, data, rows)


def _ledger(entries: Mapping[int, str], row: LedgerRow) -> LedgerShown:
    return LedgerShown(
        entries,
        fenced=row.fenced,
        explicit_lac=confirmed_by(row),
        master_key=None if row.master_key is None else row.master_key.hex(),
    )


def opened(directory: Path, config: StoreConfig) -> View:
    """What opening shows; closed behind it."""
    with closing(open_store(directory, config)) as store:
        return of_store(store)


class NotRebuilt(AssertionError):
    """`ledgerstore rebuild-index` has found something, or could not do it."""


def take_over(directory: Path) -> None:
    """A bookie's directory becomes a store of ours, as its users do it."""
    command = [Path(sys.executable).with_name("ledgerstore"), "rebuild-index", directory]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotRebuilt(f"exit {done.returncode}: {done.stderr}")


def taken(directory: Path, rows: Mapping[int, LedgerRow]) -> Callable[[Place], bool]:
    """Whether our replay would take the journal record that stands there, if it began with the oldest file.

    What it would not take is a torn tail, or was void before the next journal was begun.
    """
    journals = Layout(PosixDirectory(directory)).journal
    scans = {}
    for number in journal_ids(journals):
        with journals.open(filenames.journal(number)) as file:
            scans[number] = scan(JournalReader(file, number), EntryVerifier(DeclaredByRows(rows)))
    ranges = {one.scan.journal_id: list(_ranges(one)) for one in judge(START, scans).standings}
    return lambda place: any(start <= place.offset < end for start, end in ranges[place.file])


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
    for number in journal_ids(layout.journal):
        with layout.journal.open(filenames.journal(number)) as file:
            for item in JournalReader(file, number).items():
                if isinstance(item, StoredRecord):
                    start = item.offset + LENGTH_WORD_SIZE
                    yield _found(Place(number, item.offset), file.read(start, item.end - start))
                elif not isinstance(item, StoredPadding | EndOfData):
                    problems.append(f"journal {number:x}: {item}")


def _log_entries(layout: Layout, maps: dict[int, Mapping[int, int]], problems: list[str]) -> Iterator[Found]:
    for number in log_ids(layout.ledgers):
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


def sound_ends(directory: Path) -> dict[Path, int]:
    """Of each log that does not end with something sound: where what is sound ends."""
    ledgers = Layout(PosixDirectory(directory)).ledgers
    ends = {}
    for number in log_ids(ledgers):
        with ledgers.open(filenames.entry_log(number)) as file:
            items = entrylog_scan.items(EntryLogReader(file, number, EntryVerifier()))
            end = next(item.offset for item in items if isinstance(item, entrylog_scan.Hole | Stop))
            if end < file.size():
                ends[directory / "ledgers" / "current" / file.name] = end
    return ends


def of_files(scans: Scans) -> Shown:
    """What the files of a bookie say: its logs, the journals from its mark on, and the facts in all of them."""
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
