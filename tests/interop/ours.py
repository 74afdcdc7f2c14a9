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
from recovery.founding import Layout
from recovery.lineage import origin_of, read_header
from recovery.replay import _ranges, scan_of
from storage import StoreConfig, entrylog_scan, filenames, lastmark
from storage.codec import entry as entry_codec
from storage.codec import journal as journal_codec
from storage.codec.mark import Mark
from storage.codec.survey import EntryVerifier
from storage.entry_logs import log_ids
from storage.entrylog_reader import EntryLogReader, LogEntry
from storage.journal_reader import JournalReader, StoredPadding, StoredRecord
from storage.journals import journal_ids
from storage.outcome import Damaged, EndOfData
from storage.position import LENGTH_WORD_SIZE, START
from storage.posix_files import PosixDirectory
from storage.warden import confirmed_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set

    from storage.files import Directory
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
    log_ends: Mapping[int, int]
    """Of each entry log that counts where its durable content ends."""

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
    return View(shown, data, rows, log_ends(store))


def log_ends(store: Store) -> dict[int, int]:
    """As the last checkpoint has left them; of a closed store too."""
    return dict(store._parts.checkpointer.state.log_ends)


def _ledger(entries: Mapping[int, str], row: LedgerRow) -> LedgerShown:
    return LedgerShown(
        entries,
        fenced=row.fenced,
        explicit_lac=confirmed_by(row),
        master_key=None if row.master_key is None else row.master_key.hex(),
    )


def opened(directory: Path, config: StoreConfig) -> tuple[View, View]:
    """What opening shows, and the same when the store is closed."""
    with closing(open_store(directory, config)) as store:
        view = of_store(store)
    return view, replace(view, log_ends=log_ends(store))


class NotRebuilt(AssertionError):
    """`ledgerstore rebuild-index` has found something, or could not do it."""


def take_over(directory: Path, deleted: Set[int]) -> None:
    """A bookie's directory becomes a store of ours, as its users do it.

    What has come back of these ledgers it must tell, and nothing else.
    """
    command = [f"{Path(sys.executable).with_name('ledgerstore')}", "rebuild-index", f"{directory}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    findings = [line for line in done.stderr.splitlines() if line.startswith("finding: ")]
    strange = [line for line in findings if not any(f"LGR-003 ledger {one}:" in line for one in deleted)]
    if strange or done.returncode != (1 if findings else 0):
        raise NotRebuilt(f"exit {done.returncode}: {done.stderr}")


@dataclass(frozen=True, slots=True)
class Sound:
    """The parts of a directory of ours that count. The rest nobody vouches for: torn tails, what was void
    before the next journal was begun, and what an interrupted checkpoint has left in the logs."""

    journals: Mapping[int, Sequence[tuple[int, int]]]
    logs: Mapping[int, int]
    mark: tuple[int, int]
    maps: Mapping[int, Mapping[int, int]]
    """Of each sealed log its ledgers map."""
    torn_journals: Set[int]
    torn_logs: Set[int]
    """Those with something behind what counts."""

    def has_journal(self, place: Place) -> bool:
        """Whether our replay would take the record there, if it began with the oldest journal."""
        return any(start <= place.offset < end for start, end in self.journals[place.file])

    def has_log(self, place: Place) -> bool:
        return place.offset < self.logs.get(place.file, 0)

    def without_excuses(self) -> Sound:
        """The same, if everything counts that a bookie can find."""
        return replace(
            self,
            journals={number: [(0, sys.maxsize)] for number in self.journals},
            logs=dict.fromkeys(self.logs, sys.maxsize),
            torn_journals=frozenset(),
            torn_logs=frozenset(),
        )


def sound(directory: Path, view: View) -> Sound:
    """What counts of the directory that has shown this."""
    layout = Layout(PosixDirectory(directory))
    numbers = journal_ids(layout.journal)
    scans = {number: scan_of(layout.journal, number, view.rows, 0) for number in numbers}
    ranges = {one.scan.journal_id: list(_ranges(one)) for one in judge(START, scans).standings}
    ends = _ends(layout.ledgers, view)
    return Sound(
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


def _ends(ledgers: Directory, view: View) -> dict[int, int]:
    ends = {}
    for number, size in _sizes(ledgers).items():
        is_ours = origin_of(read_header(ledgers, number)) is not None
        if is_ours and number in view.log_ends:
            ends[number] = view.log_ends[number]
        elif not is_ours:
            # Of a bookie's log nobody has noted where it ended: all of it counts that is sound.
            ends[number] = size
    return ends


# ── the files ─────────────────────────────────────────────────────────────────────────────────────────────


def our_scans(directory: Path) -> Scans:
    """What our readers list in files that a bookie has written."""
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


def _journal_records(journals: Directory, problems: dict[int, str]) -> Iterator[Found]:
    for number in journal_ids(journals):
        with journals.open(filenames.journal(number)) as file:
            for item in JournalReader(file, number).items():
                if isinstance(item, StoredRecord):
                    start = item.offset + LENGTH_WORD_SIZE
                    yield _found(Place(number, item.offset), file.read(start, item.end - start))
                elif not isinstance(item, StoredPadding | EndOfData):
                    problems[number] = f"{item}"


def _log_entries(ledgers: Directory, problems: dict[int, str]) -> Iterator[Found]:
    for number in log_ids(ledgers):
        with ledgers.open(filenames.entry_log(number)) as file:
            for item in entrylog_scan.items(EntryLogReader(file, number, EntryVerifier())):
                if isinstance(item, LogEntry):
                    yield _found(Place(number, item.position.offset), bytes(item.data))
                elif isinstance(item, entrylog_scan.Hole | Damaged):
                    problems[number] = f"{item}"


def _found(place: Place, data: bytes) -> Found:
    ledger_id, entry_id = entry_codec.IDS.unpack_from(data)
    return Found(place, ledger_id, entry_id, len(data), sha256(data), data)


def of_files(scans: Scans) -> Shown:
    """What a bookie's files say: its logs, the journals from its mark on, and the facts in all of them."""
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
