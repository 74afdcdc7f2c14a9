"""The content that ledgerstore reads from a directory: an open store's, or the records in a bookie's
files."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from observed import FoundRecord, LedgerAccess, ObservedLedger, ObservedLedgers, RecordPlace, Scans, sha256
from store_internals import StoreInternals

from recovery import open_store
from recovery.directory.layout import Layout
from recovery.rebuild.entry_log_chain import origin_of, read_header
from recovery.replay.chain import judge
from recovery.replay.journals import _ranges, scan_of
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark_format import Mark
from storage.commit.pending import confirmed_by
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.entry import format as entry_format
from storage.entry.digest_inference import EntryVerifier
from storage.entry.position import LENGTH_WORD_SIZE, START
from storage.entry.read_result import Damaged, EndOfData
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.log_set import log_ids
from storage.entrylog.reader import EntryLogReader, LogEntry
from storage.journal import format as journal_format
from storage.journal.journal_set import journal_ids
from storage.journal.reader import JournalReader, StoredPadding, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set

    from storage import StoreConfig
    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.store import Store

# ── a store ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StoreContent:
    """Everything that an open store returns."""

    shown: ObservedLedgers
    data: Mapping[tuple[int, int], bytes]
    """By ledger and entry id, the entry's bytes."""
    rows: Mapping[int, LedgerRecord]
    log_ends: Mapping[int, int]
    """The durable end of each committed entry log."""

    def payloads(self) -> dict[tuple[int, int], bytes]:
        return {ids: data[self._payload_start(ids[0]) :] for ids, data in self.data.items()}

    def _payload_start(self, ledger_id: int) -> int:
        digest_type = self.rows[ledger_id].digest_type
        assert digest_type is not None
        return entry_format.HEAD.size + digest_type.width

    def accesses(self, passwords: Mapping[int, bytes]) -> dict[int, LedgerAccess]:
        """Return digest types, which the store knows, together with passwords, which it does not."""
        return {
            ledger_id: LedgerAccess(row.digest_type, passwords.get(ledger_id, b""))
            for ledger_id, row in self.rows.items()
            if row.digest_type is not None
        }


def of_store(store: Store) -> StoreContent:
    """Return the content of an open store. Each entry is read by a call of its own."""
    bookie, engine = store.bookie, StoreInternals(store)
    rows = {ledger_id: engine.row(ledger_id) for ledger_id in store.ledgers()}
    data = {
        (ledger_id, entry_id): bookie.read(ledger_id, entry_id)
        for ledger_id in rows
        for entry_id in chain.from_iterable(bookie.entry_ids(ledger_id))
    }
    entries: dict[int, dict[int, str]] = {ledger_id: {} for ledger_id in rows}
    for (ledger_id, entry_id), one in data.items():
        entries[ledger_id][entry_id] = sha256(one)
    shown = {ledger_id: _ledger(entries[ledger_id], row) for ledger_id, row in rows.items()}
    return StoreContent(shown, data, rows, log_ends(store))


def log_ends(store: Store) -> dict[int, int]:
    """Return the durable ends as of the last checkpoint. Works for a closed store too."""
    return dict(StoreInternals(store).index_state.log_ends)


def _ledger(entries: Mapping[int, str], row: LedgerRecord) -> ObservedLedger:
    return ObservedLedger(
        entries,
        fenced=row.fenced,
        explicit_lac=confirmed_by(row),
        master_key=None if row.master_key is None else row.master_key.hex(),
    )


def opened(directory: Path, config: StoreConfig) -> tuple[StoreContent, StoreContent]:
    """Return the content after opening, and the same with the log ends after closing."""
    with closing(open_store(directory, config)) as store:
        view = of_store(store)
    return view, replace(view, log_ends=log_ends(store))


class NotRebuilt(AssertionError):
    """`ledgerstore rebuild-index` has failed, or has reported something unexpected."""


def rebuild_index_of(directory: Path, deleted: Set[int]) -> None:
    """Make a bookie's directory a store of ours by the command that users run.

    It must report the deleted ledgers that have come back, and nothing else.
    """
    command = [f"{Path(sys.executable).with_name('ledgerstore')}", "rebuild-index", f"{directory}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    findings = [line for line in done.stderr.splitlines() if line.startswith("finding: ")]
    strange = [line for line in findings if not any(f"LGR-003 ledger {one}:" in line for one in deleted)]
    if strange or done.returncode != (1 if findings else 0):
        raise NotRebuilt(f"exit {done.returncode}: {done.stderr}")


@dataclass(frozen=True, slots=True)
class TrustedRanges:
    """The byte ranges in a directory of ours that recovery uses. Not in them: torn tails, void ends of
    journals,
    and what an interrupted checkpoint has left in the logs."""

    journals: Mapping[int, Sequence[tuple[int, int]]]
    logs: Mapping[int, int]
    mark: tuple[int, int]
    maps: Mapping[int, Mapping[int, int]]
    """The ledgers map of each sealed log."""
    torn_journals: Set[int]
    torn_logs: Set[int]
    """Logs with bytes after their durable end."""

    def has_journal(self, place: RecordPlace) -> bool:
        """Return whether our replay would use this record, if it began with the oldest journal."""
        return any(start <= place.offset < end for start, end in self.journals[place.file])

    def has_log(self, place: RecordPlace) -> bool:
        return place.offset < self.logs.get(place.file, 0)

    def without_excuses(self) -> TrustedRanges:
        """Return ranges that contain everything that a bookie can find."""
        return replace(
            self,
            journals={number: [(0, sys.maxsize)] for number in self.journals},
            logs=dict.fromkeys(self.logs, sys.maxsize),
            torn_journals=frozenset(),
            torn_logs=frozenset(),
        )


def sound(directory: Path, view: StoreContent) -> TrustedRanges:
    """Return the trusted ranges of a directory; `view` is what recovery has shown of it."""
    layout = Layout(PosixDirectory(directory))
    numbers = journal_ids(layout.journal)
    scans = {number: scan_of(layout.journal, number, view.rows, 0) for number in numbers}
    ranges = {one.scan.journal_id: list(_ranges(one)) for one in judge(START, scans).standings}
    ends = _ends(layout.ledgers, view)
    return TrustedRanges(
        ranges,
        ends,
        _mark(layout),
        _maps(layout.ledgers),
        {number for number, found in scans.items() if not found.is_sound},
        {number for number, size in _sizes(layout.ledgers).items() if size > ends.get(number, 0)},
    )


def _sizes(ledgers: Directory) -> dict[int, int]:
    return {
        number: (Path(ledgers.path) / filenames.entry_log(number)).stat().st_size
        for number in log_ids(ledgers)
    }


def _ends(ledgers: Directory, view: StoreContent) -> dict[int, int]:
    ends = {}
    for number, size in _sizes(ledgers).items():
        is_ours = origin_of(read_header(ledgers, number)) is not None
        if is_ours and number in view.log_ends:
            ends[number] = view.log_ends[number]
        elif not is_ours:
            # A bookie's log has no noted end, so all its sound records count.
            ends[number] = size
    return ends


# ── the files ─────────────────────────────────────────────────────────────────────────────────────────────


def our_scans(directory: Path) -> Scans:
    """Return the records that our readers list in a bookie's files."""
    layout = Layout(PosixDirectory(directory))
    journal_problems: dict[int, str] = {}
    log_problems: dict[int, str] = {}
    journals = tuple(_journal_records(layout.journal, journal_problems))
    logs = tuple(_log_entries(layout.ledgers, log_problems))
    return Scans(_mark(layout), journals, logs, _maps(layout.ledgers), journal_problems, log_problems)


def _mark(layout: Layout) -> tuple[int, int]:
    mark = lastmark.load(layout.ledgers)
    return (mark.position.journal_id, mark.position.offset) if isinstance(mark, Mark) else (0, 0)


def _maps(ledgers: Directory) -> dict[int, Mapping[int, int]]:
    maps: dict[int, Mapping[int, int]] = {}
    for number in log_ids(ledgers):
        with ledgers.open(filenames.entry_log(number)) as file:
            sizes = EntryLogReader(file, number, EntryVerifier()).ledgers_map()
        if isinstance(sizes, dict):
            maps[number] = sizes
    return maps


def _journal_records(journals: Directory, problems: dict[int, str]) -> Iterator[FoundRecord]:
    for number in journal_ids(journals):
        with journals.open(filenames.journal(number)) as file:
            for item in JournalReader(file, number).items():
                if isinstance(item, StoredRecord):
                    start = item.offset + LENGTH_WORD_SIZE
                    yield _found(RecordPlace(number, item.offset), file.read(start, item.end - start))
                elif not isinstance(item, StoredPadding | EndOfData):
                    problems[number] = f"{item}"


def _log_entries(ledgers: Directory, problems: dict[int, str]) -> Iterator[FoundRecord]:
    for number in log_ids(ledgers):
        with ledgers.open(filenames.entry_log(number)) as file:
            for item in entrylog_scan.items(EntryLogReader(file, number, EntryVerifier())):
                if isinstance(item, LogEntry):
                    yield _found(RecordPlace(number, item.position.offset), bytes(item.data))
                elif isinstance(item, entrylog_scan.Hole | Damaged):
                    problems[number] = f"{item}"


def _found(place: RecordPlace, data: bytes) -> FoundRecord:
    ledger_id, entry_id = entry_format.IDS.unpack_from(data)
    return FoundRecord(place, ledger_id, entry_id, len(data), sha256(data), data)


def of_files(scans: Scans) -> ObservedLedgers:
    """Return what a bookie's files contain: entries in logs and in journals from the mark on, and facts in
    all journals."""
    entries: dict[int, dict[int, str]] = defaultdict(dict)
    for found in scans.logs:
        entries[found.ledger_id][found.entry_id] = found.sha256
    for found in scans.journals:
        # Entries before the mark are in the logs.
        if found.entry_id >= 0 and (found.place.file, found.place.offset) >= scans.mark:
            entries[found.ledger_id][found.entry_id] = found.sha256
    shown = {ledger_id: ObservedLedger(found) for ledger_id, found in entries.items()}
    for found in scans.journals:
        if found.entry_id < 0:
            before = shown.get(found.ledger_id, ObservedLedger())
            shown[found.ledger_id] = _with_fact(before, found.data)
    return shown


def _with_fact(ledger: ObservedLedger, data: bytes) -> ObservedLedger:
    match journal_format.decode_record(data, journal_format.VERSION_MAX):
        case journal_format.Fence():
            return replace(ledger, fenced=True)
        case journal_format.LedgerKey(master_key=key):
            return replace(ledger, master_key=key.hex())
        case journal_format.ExplicitLac(packet=packet):
            _, confirmed = entry_format.LAC_PACKET.unpack_from(packet)
            return replace(ledger, explicit_lac=max(ledger.explicit_lac, confirmed))
    raise AssertionError(f"a bookie writes no such record: {data[:24].hex()}")
