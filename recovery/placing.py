"""From entry logs into an index under construction: a place for every entry that counts.

Of two copies of an entry the one that stands later counts, in the order of the logs. Where a bookie has
written, a copy whose digest does not match gives way to one in front of it that is sound: it may be what an
interrupted write has left, or a record that was damaged before it was copied. Where only we have, it counts:
the entry was acknowledged and is unreadable, and nothing older is served in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from recovery.lineage import origin_of
from storage import entrylog_scan, filenames
from storage.codec import entrylog as codec
from storage.codec.digest import DigestCheck
from storage.entrylog_reader import EntryLogReader, LogEntry
from storage.entrylog_scan import Hole
from storage.index_state import IndexState
from storage.outcome import Damaged, EndOfData, Torn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.meter import Meter
    from storage.codec.survey import EntryVerifier
    from storage.files import Directory
    from storage.index import IndexDraft
    from storage.outcome import Stop
    from storage.row import LedgerRow

_BATCH = 200_000
"""Entries that are held in memory at once."""

_TOLD_MAX = 100
"""Findings of one kind that are told one by one."""

_MANY = "… and {} more of the same kind"

IN_OURS, IN_A_BOOKIE_S = 1, 2
"""Where a ledger's records stand, as a set of bits: there may be a million ledgers."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A log that counts, and how much of it."""

    log_id: int
    limit: int | None = None
    """What begins there or behind is a leftover; `None`: everything counts that is sound."""
    proven: int | None = None
    """Before it every byte must make sense; `None`: nobody knows."""
    gives_way: bool = False
    """Whether a copy in it whose digest does not match gives way to a sound one in front of it."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What was read, and what of it cannot be used."""

    logs: int
    bytes: int
    unreadable: int
    """Entries of which there is no sound copy."""
    holes: int
    """Places in logs where bytes make no sense."""


class _BadCopy(NamedTuple):
    rank: int
    offset: int
    may_give_way: bool
    is_told: bool


class _Opened(NamedTuple):
    """A log that is being read, and where it stands among the others."""

    rank: int
    extent: Extent
    reader: EntryLogReader

    @property
    def name(self) -> str:
        return filenames.entry_log(self.extent.log_id)


class Placing:
    """Reads logs in the order in which they were written, and puts their entries into the draft."""

    def __init__(
        self,
        directory: Directory,
        extents: Sequence[Extent],
        rows: Mapping[int, LedgerRow],
        verifier: EntryVerifier,
        draft: IndexDraft,
        meter: Meter,
    ) -> None:
        self.findings: list[str] = []
        self.is_whole = True
        self.ledgers: dict[int, int] = {}
        """For each ledger with an entry that counts the kinds of logs it stands in."""
        self.sizes: dict[int, int] = {}
        """The size of each log."""
        self.extents = extents
        self._directory = directory
        self._graves = graves(rows, [extent.log_id for extent in extents])
        self._verifier = verifier
        self._draft = draft
        self._meter = meter
        self._holes = 0
        self._places: dict[int, dict[int, int]] = {}
        self._count = 0
        self._bad: dict[tuple[int, int], _BadCopy] = {}
        """Entries whose newest copy has a digest that does not match."""
        self._doubted: set[int] = set()

    @property
    def figures(self) -> Figures:
        unreadable = sum(bad.is_told for bad in self._bad.values())
        return Figures(len(self.sizes), sum(self.sizes.values()), unreadable, self._holes)

    def run(self) -> None:
        """Everything that the logs hold."""
        for rank, extent in enumerate(self.extents):
            with self._directory.open(filenames.entry_log(extent.log_id)) as file:
                reader = EntryLogReader(file, extent.log_id, self._verifier)
                self.sizes[extent.log_id] = reader.size
                self._place(_Opened(rank, extent, reader))
                self._meter.pass_over(reader.size)
        self._flush()
        self._prefer_sound_copies()
        self._tell_bad_copies()

    def _place(self, log: _Opened) -> None:
        where = IN_A_BOOKIE_S if origin_of(log.reader.header) is None else IN_OURS
        for item in _items(log):
            match item:
                case LogEntry():
                    self._take(log, item, where)
                    self._meter.reach(item.end)
                case Hole(offset, end, flaw):
                    if log.extent.proven is None or offset < log.extent.proven:
                        self._miss(log, offset, f"{end - offset} bytes: {flaw.value}")
                case EndOfData() | Torn() | Damaged():
                    self._stopped(log, item)

    def _take(self, log: _Opened, entry: LogEntry, where: int) -> None:
        ledger_id, entry_id = ids = entry.ids
        if self._is_dead(log, entry):
            return
        if entry.check is DigestCheck.MISMATCH:
            # Placed all the same: it was acknowledged, and must be unreadable rather than missing.
            self._bad[ids] = _bad_copy(log, entry.position.offset)
        elif self._bad:
            self._bad.pop(ids, None)
        if entry.check is DigestCheck.UNVERIFIED:
            self._doubt(log, entry)
        self.ledgers[ledger_id] = self.ledgers.get(ledger_id, 0) | where
        self._places.setdefault(ledger_id, {})[entry_id] = entry.position.location.pack()
        self._count += 1
        self._meter.entries += 1
        if self._count >= _BATCH:
            self._flush()

    def _is_dead(self, log: _Opened, entry: LogEntry) -> bool:
        grave = self._graves.get(entry.ids[0])
        if grave is None:
            return False
        offset, proven = entry.position.offset, log.extent.proven
        # Behind the end of a log may stand what a checkpoint wrote that was interrupted before the delete.
        return (log.rank, offset) < grave or (proven is not None and offset >= proven)

    def _doubt(self, log: _Opened, entry: LogEntry) -> None:
        ledger_id, entry_id = entry.ids
        if ledger_id in self._doubted or not self._verifier.doubts(ledger_id):
            return
        self._doubted.add(ledger_id)
        words = f"ledger {ledger_id}, entry {entry_id}: nothing tells its digest type, the id may be damaged"
        self._finding(log, "ELG-003", entry.position.offset, words)
        # If it is, an entry of another ledger is missing there.
        self.is_whole = False

    def _stopped(self, log: _Opened, stop: Stop) -> None:
        # Behind a known end lie leftovers; in a log of ours whose end is not known they may begin anywhere.
        proven = log.extent.proven
        if proven is not None and stop.offset < proven:
            self._miss(log, stop.offset, f"sound only up to here, written up to {proven}")
        elif proven is None and isinstance(stop, Damaged) and origin_of(log.reader.header) is None:
            # What an interrupted write of a bookie leaves is cut short, and not this.
            self._miss(log, stop.offset, f"sound only up to here: {stop}")

    def _miss(self, log: _Opened, offset: int, words: str) -> None:
        self._holes += 1
        self.is_whole = False
        self._finding(log, "ELG-004", offset, words)

    def _finding(self, log: _Opened, finding: str, offset: int, words: str) -> None:
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
        """Reads the logs again for what stands in front of a bad copy: hardly ever is there one."""
        wanted = {ids for ids, bad in self._bad.items() if bad.may_give_way}
        if not wanted:
            return
        for rank, extent in enumerate(self.extents):
            with self._directory.open(filenames.entry_log(extent.log_id)) as file:
                log = _Opened(rank, extent, EntryLogReader(file, extent.log_id, self._verifier))
                for item in _items(log):
                    if isinstance(item, LogEntry) and item.ids in wanted:
                        self._take_if_sound(log, item)
        self._flush()

    def _take_if_sound(self, log: _Opened, entry: LogEntry) -> None:
        ledger_id, entry_id = ids = entry.ids
        if entry.check is not DigestCheck.MISMATCH and not self._is_dead(log, entry):
            self._bad.pop(ids, None)
            self._places.setdefault(ledger_id, {})[entry_id] = entry.position.location.pack()

    def _tell_bad_copies(self) -> None:
        told = [item for item in self._bad.items() if item[1].is_told]
        in_order = sorted(told, key=lambda item: item[1])
        for (ledger_id, entry_id), bad in in_order[:_TOLD_MAX]:
            name = filenames.entry_log(self.extents[bad.rank].log_id)
            self.findings.append(f"ELG-003 {name}@{bad.offset}: ledger {ledger_id}, entry {entry_id}")
        if len(in_order) > _TOLD_MAX:
            self.findings.append(f"ELG-003 {_MANY.format(len(in_order) - _TOLD_MAX)}")


def _items(log: _Opened) -> Iterator[entrylog_scan.LogItem]:
    """Everything before the log's limit, and how it ended if that was not reached."""
    limit = log.extent.limit
    for item in entrylog_scan.items(log.reader):
        if limit is not None and not isinstance(item, EndOfData | Torn | Damaged) and _start(item) >= limit:
            return
        yield item


def _start(item: entrylog_scan.Found) -> int:
    return item.position.offset if isinstance(item, LogEntry) else item.offset


def _bad_copy(log: _Opened, offset: int) -> _BadCopy:
    extent = log.extent
    # Behind all that was ever known to be durable it is what an interrupted checkpoint has left.
    is_told = extent.proven is None or offset < extent.proven
    return _BadCopy(log.rank, offset, extent.gives_way, is_told)


def graves(rows: Mapping[int, LedgerRow], order: Sequence[int]) -> dict[int, tuple[int, int]]:
    """For each deleted ledger the place, as a rank in the order and an offset, before which it is dead."""
    rank_of = {log_id: rank for rank, log_id in enumerate(order)}
    found = {}
    for ledger_id, row in rows.items():
        if row.tombstone is None:
            continue
        log = row.tombstone.log
        if log is None:
            found[ledger_id] = (len(order), 0)
        elif log.log_id not in rank_of or log.offset == 0:
            found[ledger_id] = (0, 0)
        elif log.offset > codec.HEADER_SIZE:
            found[ledger_id] = (rank_of[log.log_id], log.offset)
        else:
            # The end of a log that was only read: we have never written to it, so all of it stood before.
            found[ledger_id] = (rank_of[log.log_id] + 1, 0)
    return found
