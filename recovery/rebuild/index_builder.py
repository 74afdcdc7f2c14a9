"""Reads entry logs into an index under construction: a location for every entry that counts.

If an entry has two copies, the later one counts, in the order of the logs. If a bookie has written, an
earlier sound copy is used instead of one whose digest does not match, because the latter may be what an
interrupted write has left, or a record that was damaged before it was copied. If only we have written, the
later copy counts in any case: the entry was acknowledged and is unreadable, and nothing older replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from recovery.rebuild.entry_log_chain import in_creation_order, origin_of
from storage.disk import filenames
from storage.entry.digest import DigestCheck
from storage.entry.ledger_record_table import living_rows
from storage.entry.read_result import Damaged, EndOfData, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader, LogEntry
from storage.entrylog.scan import Hole
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.replay.progress import ReadMeter
    from storage.disk.files import Directory
    from storage.entry.digest_inference import EntryVerifier
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.read_result import Stop
    from storage.index.port import IndexDraft

_BATCH = 200_000
"""So many entries are held in memory at once."""

_REPORTED_MAX = 100
"""Findings of one kind that are reported one by one."""

_MANY = "… and {} more of the same kind"

IN_OUR_LOGS, IN_BOOKIE_LOGS = 1, 2
"""Which logs have records of a ledger, as bits, because there may be a million ledgers."""


@dataclass(frozen=True, slots=True)
class LogExtent:
    """A log that counts, and its part that counts."""

    log_id: int
    limit: int | None = None
    """Records that begin here or later are leftovers; `None`: everything counts that is sound."""
    proven: int | None = None
    """Every byte before this must decode; `None`: it is not known which bytes were durable."""
    gives_way: bool = False
    """Whether an earlier sound copy is used instead of a copy in it whose digest does not match."""


@dataclass(frozen=True, slots=True)
class RebuildFigures:
    """How much was read, and how much of it cannot be used."""

    logs: int
    bytes: int
    unreadable: int
    """Entries without a sound copy."""
    holes: int
    """Ranges of logs that cannot be decoded."""


class _BadCopy(NamedTuple):
    rank: int
    offset: int
    may_give_way: bool
    is_finding: bool


class _LogInProgress(NamedTuple):
    """A log that is being read, and its rank among the others."""

    rank: int
    extent: LogExtent
    reader: EntryLogReader

    @property
    def name(self) -> str:
        return filenames.entry_log(self.extent.log_id)


class IndexBuilder:
    """Reads logs in the order in which they were written, and indexes their entries in the draft."""

    def __init__(
        self,
        directory: Directory,
        extents: Sequence[LogExtent],
        rows: Mapping[int, LedgerRecord],
        verifier: EntryVerifier,
        draft: IndexDraft,
        meter: ReadMeter,
    ) -> None:
        self.findings: list[str] = []
        self.is_whole = True
        self.ledgers: dict[int, int] = {}
        """For each ledger with an entry that counts, which kinds of logs have one."""
        self.sizes: dict[int, int] = {}
        """The size of each log."""
        self.extents = extents
        self._directory = directory
        self._tombstones = tombstone_positions(rows, [extent.log_id for extent in extents])
        self._first_ids = {row.ledger_id: row.first_entry_id for row in living_rows(rows) if row.truncation}
        self._verifier = verifier
        self._draft = draft
        self._meter = meter
        self._holes = 0
        self._places: dict[int, dict[int, int]] = {}
        self._count = 0
        self._bad: dict[tuple[int, int], _BadCopy] = {}
        """Entries of which the newest copy has a digest that does not match."""
        self._unverifiable: set[int] = set()

    @property
    def figures(self) -> RebuildFigures:
        unreadable = sum(bad.is_finding for bad in self._bad.values())
        return RebuildFigures(len(self.sizes), sum(self.sizes.values()), unreadable, self._holes)

    def run(self) -> None:
        """Index all logs."""
        for rank, extent in enumerate(self.extents):
            with self._directory.open(filenames.entry_log(extent.log_id)) as file:
                reader = EntryLogReader(file, extent.log_id, self._verifier)
                self.sizes[extent.log_id] = reader.size
                self._index_log(_LogInProgress(rank, extent, reader))
                self._meter.pass_over(reader.size)
        self._flush()
        self._prefer_sound_copies()
        self._report_bad_copies()

    def _index_log(self, log: _LogInProgress) -> None:
        where = IN_BOOKIE_LOGS if origin_of(log.reader.header) is None else IN_OUR_LOGS
        for item in _items(log):
            match item:
                case LogEntry():
                    self._add(log, item, where)
                    self._meter.reach(item.end)
                case Hole(offset, end, flaw):
                    if log.extent.proven is None or offset < log.extent.proven:
                        self._add_hole(log, offset, f"{end - offset} bytes: {flaw.value}")
                case EndOfData() | Torn() | Damaged():
                    self._handle_stop(log, item)

    def _add(self, log: _LogInProgress, entry: LogEntry, where: int) -> None:
        ledger_id, entry_id = ids = entry.ids
        if self._is_deleted(log, entry):
            return
        if entry_id < self._first_ids.get(ledger_id, 0):
            return
        if entry.check is DigestCheck.MISMATCH:
            # Indexed all the same, because it was acknowledged and must be unreadable rather than missing.
            self._bad[ids] = _bad_copy(log, entry.position.offset)
        elif self._bad:
            self._bad.pop(ids, None)
        if entry.check is DigestCheck.UNVERIFIED:
            self._report_unverifiable(log, entry)
        self.ledgers[ledger_id] = self.ledgers.get(ledger_id, 0) | where
        self._places.setdefault(ledger_id, {})[entry_id] = entry.position.location.pack()
        self._count += 1
        self._meter.entries += 1
        if self._count >= _BATCH:
            self._flush()

    def _is_deleted(self, log: _LogInProgress, entry: LogEntry) -> bool:
        tombstone = self._tombstones.get(entry.ids[0])
        if tombstone is None:
            return False
        offset, proven = entry.position.offset, log.extent.proven
        # After the end of a log may be what a checkpoint wrote that was interrupted before the delete.
        return (log.rank, offset) < tombstone or (proven is not None and offset >= proven)

    def _report_unverifiable(self, log: _LogInProgress, entry: LogEntry) -> None:
        ledger_id, entry_id = entry.ids
        if ledger_id in self._unverifiable or not self._verifier.is_doubtful(ledger_id):
            return
        self._unverifiable.add(ledger_id)
        words = f"ledger {ledger_id}, entry {entry_id}: its digest type is unknown, and the id may be damaged"
        self._finding(log, "ELG-003", entry.position.offset, words)
        # If it is, an entry of another ledger is missing.
        self.is_whole = False

    def _handle_stop(self, log: _LogInProgress, stop: Stop) -> None:
        # After a known end there are leftovers. In a log of ours without a known end they may begin anywhere.
        proven = log.extent.proven
        if proven is not None and stop.offset < proven:
            self._add_hole(log, stop.offset, f"sound only up to here, written up to {proven}")
        elif proven is None and isinstance(stop, Damaged) and origin_of(log.reader.header) is None:
            # An interrupted write of a bookie leaves a record that is cut short, and not this.
            self._add_hole(log, stop.offset, f"sound only up to here: {stop}")

    def _add_hole(self, log: _LogInProgress, offset: int, words: str) -> None:
        self._holes += 1
        self.is_whole = False
        self._finding(log, "ELG-004", offset, words)

    def _finding(self, log: _LogInProgress, finding: str, offset: int, words: str) -> None:
        self.findings.append(f"{finding} {log.name}@{offset}: {words}")

    def _flush(self) -> None:
        with self._draft.change() as change:
            for ledger_id, places in sorted(self._places.items()):
                entry_ids = sorted(places)
                change.put(ledger_id, entry_ids, [places[entry_id] for entry_id in entry_ids])
            change.commit(IndexState())
        self._places, self._count = {}, 0

    # ── bad copies ───────────────────────────────────────────────────────────────────────────────────

    def _prefer_sound_copies(self) -> None:
        """Read the logs again for sound copies of entries whose newest copy is bad, if there are such."""
        wanted = {ids for ids, bad in self._bad.items() if bad.may_give_way}
        if not wanted:
            return
        for rank, extent in enumerate(self.extents):
            with self._directory.open(filenames.entry_log(extent.log_id)) as file:
                log = _LogInProgress(rank, extent, EntryLogReader(file, extent.log_id, self._verifier))
                for item in _items(log):
                    if isinstance(item, LogEntry) and item.ids in wanted:
                        self._add_if_sound(log, item)
        self._flush()

    def _add_if_sound(self, log: _LogInProgress, entry: LogEntry) -> None:
        ledger_id, entry_id = ids = entry.ids
        if entry.check is not DigestCheck.MISMATCH and not self._is_deleted(log, entry):
            self._bad.pop(ids, None)
            self._places.setdefault(ledger_id, {})[entry_id] = entry.position.location.pack()

    def _report_bad_copies(self) -> None:
        reported = [item for item in self._bad.items() if item[1].is_finding]
        by_position = sorted(reported, key=lambda item: item[1])
        for (ledger_id, entry_id), bad in by_position[:_REPORTED_MAX]:
            name = filenames.entry_log(self.extents[bad.rank].log_id)
            self.findings.append(f"ELG-003 {name}@{bad.offset}: ledger {ledger_id}, entry {entry_id}")
        if len(by_position) > _REPORTED_MAX:
            self.findings.append(f"ELG-003 {_MANY.format(len(by_position) - _REPORTED_MAX)}")


def _items(log: _LogInProgress) -> Iterator[entrylog_scan.LogItem]:
    """Yield the items before the log's limit, and the reason why it ended if the limit was not reached."""
    limit = log.extent.limit
    for item in entrylog_scan.items(log.reader):
        if limit is not None and not isinstance(item, EndOfData | Torn | Damaged) and item.offset >= limit:
            return
        yield item


def _bad_copy(log: _LogInProgress, offset: int) -> _BadCopy:
    extent = log.extent
    # After the durable end it is what an interrupted checkpoint has left.
    is_finding = extent.proven is None or offset < extent.proven
    return _BadCopy(log.rank, offset, extent.gives_way, is_finding)


def tombstone_positions(rows: Mapping[int, LedgerRecord], order: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return for each deleted ledger the log's rank, and the offset before which entries are deleted.

    The log that bounds a tombstone may have been removed since. Then the bound is where the log was in the
    order of logs, because every earlier log may still hold records of the deleted ledger.
    """
    bounds = (row.tombstone.log for row in rows.values() if row.tombstone is not None)
    rank_of = _ranks(order, {log.log_id for log in bounds if log is not None and log.offset})
    is_there = frozenset(order)
    found = {}
    for ledger_id, row in rows.items():
        if row.tombstone is None:
            continue
        log = row.tombstone.log
        if log is None:
            found[ledger_id] = (len(order), 0)
        elif log.offset == 0:
            found[ledger_id] = (0, 0)
        elif log.log_id not in is_there:
            found[ledger_id] = (rank_of[log.log_id], 0)
        elif log.offset > entrylog_format.HEADER_SIZE:
            found[ledger_id] = (rank_of[log.log_id], log.offset)
        else:
            # We have never written to this log, so that all of it was there before the delete.
            found[ledger_id] = (rank_of[log.log_id] + 1, 0)
    return found


def _ranks(order: Sequence[int], others: Iterable[int]) -> dict[int, int]:
    """Return the rank of each log; a log that is not in the order has that of the next one that is."""
    rank_of = {log_id: rank for rank, log_id in enumerate(order)}
    rank = 0
    for log_id in in_creation_order({*order, *others}):
        if log_id in rank_of:
            rank = rank_of[log_id] + 1
        else:
            rank_of[log_id] = rank
    return rank_of
