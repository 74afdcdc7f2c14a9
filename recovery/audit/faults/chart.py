"""The chart of an undamaged store: the position of every record, by which planted faults are judged.

Nothing here uses the audit's code for reading files. A few lines of `struct` are enough, because nothing is
damaged.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.faults.journal_chart import JournalChart, journal_chart
from recovery.directory.evidence import is_deleted_since, newest_rows
from storage.checkpoint import mark_format as mark_codec
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import PosixDirectory
from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck, digester
from storage.entry.model import DigestType
from storage.entry.position import START, JournalPosition
from storage.entry.read_result import Damaged
from storage.entrylog import format as entrylog_format
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.port import NoIndex
from storage.index.state import IndexState
from storage.ledgers import metadata_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from storage.entry.ledger_record import LedgerRecord

_PREFIX = struct.Struct(">iqq")
_VERIFYING = (DigestType.CRC32C, DigestType.CRC32, DigestType.MAC)


class ChartRecord(NamedTuple):
    """One record of an entry log. Ledger -1 means a ledgers map (entry -2) or a filler."""

    offset: int
    end: int
    ledger_id: int
    entry_id: int
    digest: DigestType | None = None
    """The digest type that proves it, or `None` if no known digest does."""

    @property
    def is_entry(self) -> bool:
        return self.ledger_id >= 0

    @property
    def is_map(self) -> bool:
        return self.ledger_id == entrylog_format.META_LEDGER and self.entry_id == entrylog_format.MAP_ENTRY


@dataclass(frozen=True, slots=True)
class LogChart:
    """One entry log."""

    log_id: int
    size: int
    records: tuple[ChartRecord, ...]
    limit: int
    """Where its durable content ends."""
    is_ours: bool
    is_sealed: bool
    is_leftover: bool = False
    """Written by ledgerstore, and nothing in it counts."""

    @property
    def name(self) -> str:
        return filenames.entry_log(self.log_id)

    @property
    def counted(self) -> list[ChartRecord]:
        """The records before the limit."""
        return [record for record in self.records if record.end <= self.limit]

    @property
    def entries(self) -> list[ChartRecord]:
        return [record for record in self.counted if record.is_entry]

    def at(self, offset: int) -> ChartRecord | None:
        """Return the record that contains a byte."""
        number = bisect_right(self.records, offset, key=lambda record: record.offset) - 1
        found = self.records[number] if number >= 0 else None
        return found if found is not None and offset < found.end else None

    def touching(self, start: int, end: int) -> list[ChartRecord]:
        """Return the counted records that have bytes in [start, end)."""
        return [record for record in self.counted if record.offset < end and start < record.end]

    def sound_after(self, record: ChartRecord) -> int:
        """Return where the next record begins that lets a reader find the framing again."""
        following = [one for one in self.records if one.offset >= record.end]
        proven = (one.offset for one in following if one.digest is not None or not one.is_entry)
        return next(proven, self.size)


@dataclass(frozen=True, eq=False, kw_only=True)
class Chart:
    """One store."""

    root: Path
    is_ours: bool
    passwords: Mapping[int, bytes]
    password: bytes | None
    mark: mark_codec.Mark | None
    state: IndexState
    logs: tuple[LogChart, ...]
    journals: tuple[JournalChart, ...]
    places: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """The content of a ledgerstore index that counts: for each ledger the packed places of its entries.

    Without those that the next opening removes, because a delete or a truncation is only in `ledgers.rows`.
    """
    deleted: frozenset[int] = frozenset()
    """Ledgers that were deleted, even if there is a new ledger with the same id."""
    first_ids: Mapping[int, int] = field(default_factory=dict)
    """For each truncated ledger the first entry that is left."""
    unindexed: frozenset[int] = frozenset()
    """Ledgers whose delete or truncation is in `ledgers.rows` and not yet in the index."""

    @property
    def ledgers(self) -> Path:
        """The directory of the logs."""
        return current(self.root, filenames.LEDGER_DIRECTORY)

    @property
    def journal(self) -> Path:
        return current(self.root, filenames.JOURNAL_DIRECTORY)

    @property
    def position(self) -> JournalPosition:
        return self.mark.position if self.mark is not None else START

    @cached_property
    def newest_copies(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        """For each entry the log and the offset of its last copy."""
        return {
            (record.ledger_id, record.entry_id): (log.log_id, record.offset)
            for log in self.logs
            if not log.is_leftover
            for record in log.entries
        }

    def counts(self, log: LogChart, record: ChartRecord) -> bool:
        """Return whether this copy is the one that is read for the entry."""
        if not self.is_ours:
            return self.newest_copies.get((record.ledger_id, record.entry_id)) == (log.log_id, record.offset)
        placed = self.places.get(record.ledger_id, {}).get(record.entry_id)
        return placed == packed(log, record)

    def log(self, log_id: int) -> LogChart | None:
        return next((log for log in self.logs if log.log_id == log_id), None)

    def record_of(self, ledger_id: int, entry_id: int) -> tuple[LogChart, ChartRecord] | None:
        """Return the record that the index points at."""
        place = self.places.get(ledger_id, {}).get(entry_id)
        log = None if place is None else self.log(place >> 32)
        record = None if log is None or place is None else log.at((place & 0xFFFF_FFFF) - 4)
        return None if log is None or record is None else (log, record)

    def is_truncated(self, record: ChartRecord) -> bool:
        """Return whether the record is before the truncation of its ledger."""
        return record.entry_id < self.first_ids.get(record.ledger_id, 0)

    def is_dead(self, log: LogChart, record: ChartRecord) -> bool:
        """Return whether the record is dead, because its ledger was deleted."""
        return record.ledger_id in self.deleted and not self.counts(log, record)

    def is_forgotten(self, log: LogChart, record: ChartRecord) -> bool:
        """Return whether the record is dead and no digest proves it, so that damage in it cannot
        be noticed.
        """
        return self.is_dead(log, record) and record.digest is None

    @cached_property
    def unproven(self) -> frozenset[int]:
        """The ledgers of which no entry can be verified."""
        entries = [record for log in self.logs for record in log.entries]
        proven = {record.ledger_id for record in entries if record.digest is not None}
        return frozenset({record.ledger_id for record in entries} - proven)


def packed(log: LogChart, record: ChartRecord) -> int:
    """Return the record's place as the index stores it."""
    return log.log_id << 32 | record.offset + 4


def current(root: Path, kind: str) -> Path:
    """Return the directory that holds the files."""
    return root / kind / filenames.CURRENT


def chart_of(
    root: Path, passwords: Mapping[int, bytes] | None = None, password: bytes | None = None
) -> Chart:
    """Make the chart of a store that is not open, and not damaged."""
    ledgers, journals = (
        current(root, kind) for kind in (filenames.LEDGER_DIRECTORY, filenames.JOURNAL_DIRECTORY)
    )
    known = dict(passwords or {})
    mark = _mark(ledgers)
    state, places, indexed = _index(ledgers)
    rows = _newest_rows(ledgers, indexed)
    is_ours = state is not None and mark is not None and mark.trailer is not None
    state = state or IndexState()
    prover = _Prover(known, password)
    deleted = frozenset(one for one, row in rows.items() if row.tombstone is not None)
    hidden = deleted & {one for one, row in rows.items() if prover.is_blind_to(row)}
    first_ids = {one: row.first_entry_id for one, row in rows.items() if row.first_entry_id}
    deleted_since = {one for one, row in rows.items() if is_deleted_since(row, indexed)}
    truncated_since = {
        one
        for one, first_id in first_ids.items()
        if one not in indexed or indexed[one].first_entry_id < first_id
    }
    return Chart(
        root=root,
        is_ours=is_ours,
        passwords=known,
        password=password,
        mark=mark,
        state=state,
        logs=tuple(
            _log(ledgers, log_id, state, prover, hidden) for log_id in _ids(ledgers, FileKind.ENTRY_LOG)
        ),
        journals=tuple(
            journal_chart(journals, journal_id, prover.proves)
            for journal_id in _ids(journals, FileKind.JOURNAL)
        ),
        places={
            ledger_id: {one: place for one, place in found.items() if one >= first_ids.get(ledger_id, 0)}
            for ledger_id, found in places.items()
            if ledger_id not in deleted_since
        },
        deleted=deleted,
        first_ids=first_ids,
        unindexed=frozenset(deleted_since | truncated_since),
    )


def _ids(directory: Path, kind: FileKind) -> list[int]:
    names = (filenames.parse(path.name) for path in directory.iterdir())
    return sorted(name.number for name in names if name.kind is kind and name.number is not None)


def _mark(ledgers: Path) -> mark_codec.Mark | None:
    path = ledgers / filenames.LAST_MARK
    found = mark_codec.decode(path.read_bytes()) if path.exists() else None
    return found if isinstance(found, mark_codec.Mark) else None


def _index(ledgers: Path) -> tuple[IndexState | None, dict[int, dict[int, int]], dict[int, LedgerRecord]]:
    index = LmdbIndexDirectory(PosixDirectory(ledgers), ledgers).view()
    if isinstance(index, NoIndex | Damaged):
        return None, {}, {}
    with closing(index):
        places = {one: dict(index.locations(one, 0, index.count(one))) for one in index.ledgers()}
        return index.state(), places, {row.ledger_id: row for row in index.rows()}


def _newest_rows(ledgers: Path, indexed: Mapping[int, LedgerRecord]) -> Mapping[int, LedgerRecord]:
    """Return the newest record of each ledger. Only the file has what came after the last checkpoint."""
    filed = metadata_log.scan_directory(PosixDirectory(ledgers))
    return indexed if filed is None else newest_rows(filed.rows, indexed)


class _Prover:
    """Finds the digest type that proves an entry's bytes."""

    def __init__(self, passwords: Mapping[int, bytes], password: bytes | None) -> None:
        self._passwords = passwords
        self._password = password

    def is_blind_to(self, row: LedgerRecord) -> bool:
        """Return whether the ledger has no digest now, or a MAC without its password.

        The digest type of a deleted ledger with the same id is not recorded any more. So for a reader no
        digest proves its entries, nor that records follow other damage there.
        """
        has_password = row.ledger_id in self._passwords or self._password is not None
        return row.digest_type is DigestType.DUMMY or (row.digest_type is DigestType.MAC and not has_password)

    def proves(self, data: bytes) -> DigestType | None:
        if len(data) < entry_format.HEAD.size:
            return None
        ledger_id, _ = entry_format.IDS.unpack_from(data)
        password = self._passwords.get(ledger_id, self._password)
        for kind in _VERIFYING:
            if kind is DigestType.MAC and password is None:
                continue
            if entry_format.check_digest(data, digester(kind, password or b"")) is DigestCheck.OK:
                return kind
        return None


def _log(ledgers: Path, log_id: int, state: IndexState, prover: _Prover, hidden: frozenset[int]) -> LogChart:
    data = (ledgers / filenames.entry_log(log_id)).read_bytes()
    header = entrylog_format.decode_header(data[: entrylog_format.HEADER_SIZE])
    is_ours = isinstance(header, entrylog_format.LogHeader) and header.origin is not None
    is_leftover = is_ours and log_id not in state.log_ends
    return LogChart(
        log_id,
        len(data),
        tuple(_records(data, prover, hidden)),
        state.log_ends.get(log_id, len(data)),
        is_ours,
        isinstance(header, entrylog_format.LogHeader) and header.map_offset > 0,
        is_leftover,
    )


def _records(data: bytes, prover: _Prover, hidden: frozenset[int]) -> Iterator[ChartRecord]:
    at = entrylog_format.HEADER_SIZE
    while at + _PREFIX.size <= len(data):
        size, ledger_id, entry_id = _PREFIX.unpack_from(data, at)
        end = at + 4 + size
        if size <= 0 or end > len(data):
            return
        is_provable = ledger_id >= 0 and ledger_id not in hidden
        digest = prover.proves(data[at + 4 : end]) if is_provable else None
        yield ChartRecord(at, end, ledger_id, entry_id, digest)
        at = end
