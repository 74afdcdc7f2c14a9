"""Where everything stands in an undamaged store: the truth by which planted faults are judged.

Nothing here uses what the audit uses to walk through files; a few lines of `struct` are enough where nothing
is damaged.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.faults.journal_chart import JournalChart, journal_chart
from storage import filenames
from storage.codec import entry as entry_codec
from storage.codec import entrylog as log_codec
from storage.codec import mark as mark_codec
from storage.codec.digest import DigestCheck, digester
from storage.entry import DigestType
from storage.filenames import FileKind
from storage.index import NoIndex
from storage.index_state import IndexState
from storage.lmdb_place import LmdbPlace
from storage.outcome import Damaged
from storage.position import START, JournalPosition
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from storage.row import LedgerRow

_PREFIX = struct.Struct(">iqq")
_VERIFYING = (DigestType.CRC32C, DigestType.CRC32, DigestType.MAC)


class Record(NamedTuple):
    """One record of an entry log; ledger -1: a ledgers map (entry -2) or a filler."""

    offset: int
    end: int
    ledger_id: int
    entry_id: int
    digest: DigestType | None = None
    """What proves it; `None`: nothing that is known."""

    @property
    def is_entry(self) -> bool:
        return self.ledger_id >= 0

    @property
    def is_map(self) -> bool:
        return self.ledger_id == log_codec.META_LEDGER and self.entry_id == log_codec.MAP_ENTRY


@dataclass(frozen=True, slots=True)
class LogChart:
    """One entry log."""

    log_id: int
    size: int
    records: tuple[Record, ...]
    limit: int
    """Where what counts ends."""
    is_ours: bool
    is_sealed: bool
    is_leftover: bool = False
    """Ours, and nothing in it counts."""

    @property
    def name(self) -> str:
        return filenames.entry_log(self.log_id)

    @property
    def counted(self) -> list[Record]:
        """The records in front of the limit."""
        return [record for record in self.records if record.end <= self.limit]

    @property
    def entries(self) -> list[Record]:
        return [record for record in self.counted if record.is_entry]

    def at(self, offset: int) -> Record | None:
        """The record that a byte belongs to."""
        number = bisect_right(self.records, offset, key=lambda record: record.offset) - 1
        found = self.records[number] if number >= 0 else None
        return found if found is not None and offset < found.end else None

    def touching(self, start: int, end: int) -> list[Record]:
        """The counted records that have bytes in [start, end)."""
        return [record for record in self.counted if record.offset < end and start < record.end]

    def sound_behind(self, record: Record) -> int:
        """Where the next record begins by which a reader that got lost can know where it is."""
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
    """What the index of ours holds: for each ledger its entries' packed places."""
    deleted: frozenset[int] = frozenset()
    """Ledgers that were deleted, be it that there is another one of that id now."""

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
        """Of each entry the log and the offset of the copy that stands last."""
        return {
            (record.ledger_id, record.entry_id): (log.log_id, record.offset)
            for log in self.logs
            if not log.is_leftover
            for record in log.entries
        }

    def counts(self, log: LogChart, record: Record) -> bool:
        """Whether it is this copy that is read when the entry is asked for."""
        if not self.is_ours:
            return self.newest_copies.get((record.ledger_id, record.entry_id)) == (log.log_id, record.offset)
        placed = self.places.get(record.ledger_id, {}).get(record.entry_id)
        return placed == packed(log, record)

    def log(self, log_id: int) -> LogChart | None:
        return next((log for log in self.logs if log.log_id == log_id), None)

    def record_of(self, ledger_id: int, entry_id: int) -> tuple[LogChart, Record] | None:
        """What the index leads to."""
        place = self.places.get(ledger_id, {}).get(entry_id)
        log = None if place is None else self.log(place >> 32)
        record = None if log is None or place is None else log.at((place & 0xFFFF_FFFF) - 4)
        return None if log is None or record is None else (log, record)

    def is_dead(self, log: LogChart, record: Record) -> bool:
        """Whether its ledger was deleted: nobody misses it."""
        return record.ledger_id in self.deleted and not self.counts(log, record)

    def is_forgotten(self, log: LogChart, record: Record) -> bool:
        """Whether it is dead, and nobody could tell whether it is what was written: nothing proves it."""
        return self.is_dead(log, record) and record.digest is None

    @cached_property
    def unproven(self) -> frozenset[int]:
        """The ledgers of which no entry can be verified."""
        entries = [record for log in self.logs for record in log.entries]
        proven = {record.ledger_id for record in entries if record.digest is not None}
        return frozenset({record.ledger_id for record in entries} - proven)


def packed(log: LogChart, record: Record) -> int:
    """The record's place as the index has it."""
    return log.log_id << 32 | record.offset + 4


def current(root: Path, kind: str) -> Path:
    """Where a directory keeps its files; a bookie's fixture has its directories one below."""
    return root / kind / filenames.CURRENT


def chart_of(
    root: Path, passwords: Mapping[int, bytes] | None = None, password: bytes | None = None
) -> Chart:
    """The chart of a store that is not open, and not damaged."""
    ledgers, journals = (
        current(root, kind) for kind in (filenames.LEDGER_DIRECTORY, filenames.JOURNAL_DIRECTORY)
    )
    known = dict(passwords or {})
    mark = _mark(ledgers)
    state, places, rows = _index(ledgers)
    is_ours = state is not None and mark is not None and mark.trailer is not None
    state = state or IndexState()
    prover = _Prover(known, password)
    deleted = frozenset(row.ledger_id for row in rows if row.tombstone is not None)
    hidden = deleted & {row.ledger_id for row in rows if prover.is_blind_to(row)}
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
        places=places,
        deleted=deleted,
    )


def _ids(directory: Path, kind: FileKind) -> list[int]:
    names = (filenames.parse(path.name) for path in directory.iterdir())
    return sorted(name.number for name in names if name.kind is kind and name.number is not None)


def _mark(ledgers: Path) -> mark_codec.Mark | None:
    path = ledgers / filenames.LAST_MARK
    found = mark_codec.decode(path.read_bytes()) if path.exists() else None
    return found if isinstance(found, mark_codec.Mark) else None


def _index(ledgers: Path) -> tuple[IndexState | None, dict[int, dict[int, int]], list[LedgerRow]]:
    index = LmdbPlace(PosixDirectory(ledgers), ledgers).view()
    if isinstance(index, NoIndex | Damaged):
        return None, {}, []
    with closing(index):
        places = {one: dict(index.places(one, 0, index.count(one))) for one in index.ledgers()}
        return index.state(), places, list(index.rows())


class _Prover:
    """Which digest proves an entry's bytes."""

    def __init__(self, passwords: Mapping[int, bytes], password: bytes | None) -> None:
        self._passwords = passwords
        self._password = password

    def is_blind_to(self, row: LedgerRow) -> bool:
        """Whether the ledger has no digest now, or a MAC without its password.

        How a deleted one of its id was protected nothing says any more. To a reader no digest proves what
        that has left, nor that records go on there behind other damage.
        """
        has_password = row.ledger_id in self._passwords or self._password is not None
        return row.digest_type is DigestType.DUMMY or (row.digest_type is DigestType.MAC and not has_password)

    def proves(self, data: bytes) -> DigestType | None:
        if len(data) < entry_codec.HEAD.size:
            return None
        ledger_id, _ = entry_codec.IDS.unpack_from(data)
        password = self._passwords.get(ledger_id, self._password)
        for kind in _VERIFYING:
            if kind is DigestType.MAC and password is None:
                continue
            if entry_codec.check_digest(data, digester(kind, password or b"")) is DigestCheck.OK:
                return kind
        return None


def _log(ledgers: Path, log_id: int, state: IndexState, prover: _Prover, hidden: frozenset[int]) -> LogChart:
    data = (ledgers / filenames.entry_log(log_id)).read_bytes()
    header = log_codec.decode_header(data[: log_codec.HEADER_SIZE])
    is_ours = isinstance(header, log_codec.Header) and header.origin is not None
    is_leftover = is_ours and log_id not in state.log_ends
    return LogChart(
        log_id,
        len(data),
        tuple(_records(data, prover, hidden)),
        state.log_ends.get(log_id, len(data)),
        is_ours,
        isinstance(header, log_codec.Header) and header.map_offset > 0,
        is_leftover,
    )


def _records(data: bytes, prover: _Prover, hidden: frozenset[int]) -> Iterator[Record]:
    at = log_codec.HEADER_SIZE
    while at + _PREFIX.size <= len(data):
        size, ledger_id, entry_id = _PREFIX.unpack_from(data, at)
        end = at + 4 + size
        if size <= 0 or end > len(data):
            return
        is_provable = ledger_id >= 0 and ledger_id not in hidden
        digest = prover.proves(data[at + 4 : end]) if is_provable else None
        yield Record(at, end, ledger_id, entry_id, digest)
        at = end
