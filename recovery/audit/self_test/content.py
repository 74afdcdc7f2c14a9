"""The content of an undamaged store: where every record is, and which damage in it must be found.

Nothing here uses the audit's code. A few lines of `struct` are enough, because nothing is damaged.
"""

from __future__ import annotations

import struct
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from recovery.directory.evidence import is_deleted_since, newest_rows
from storage.checkpoint import mark_format
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import PosixDirectory
from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck, digester
from storage.entry.model import DigestType
from storage.entry.position import START, JournalPosition
from storage.entry.read_result import Damaged
from storage.entrylog import format as log_format
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.port import NoIndex
from storage.index.state import IndexState
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.ledgers import metadata_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from storage.entry.ledger_record import LedgerRecord
    from storage.journal.seal import Seal

_PREFIX = struct.Struct(">iqq")
_PROVING = (DigestType.CRC32C, DigestType.CRC32, DigestType.MAC)
NO_LEDGER = -1


class Piece(NamedTuple):
    """One record of a file. Ledger -1 is a ledgers map, a filler or a padding."""

    start: int
    end: int
    ledger_id: int
    entry_id: int
    digest: DigestType | None = None
    """The digest type that proves it, or `None` if no known digest does."""
    reach: tuple[int, int] = (0, 0)
    """Where a finding about it may be: what a reader cannot tell apart from it."""
    must: bool = False
    """Whether damage in it has to be found."""
    is_indexed: bool = False
    """Whether the index of a store of ours leads to it, so that its entry has to be named."""
    seal: Seal | None = None

    @property
    def is_entry(self) -> bool:
        return self.ledger_id >= 0 and self.entry_id >= 0

    @property
    def is_map(self) -> bool:
        return self.ledger_id == NO_LEDGER and self.entry_id == log_format.MAP_ENTRY


@dataclass(frozen=True, slots=True, eq=False)
class FileContent:
    """One entry log or journal."""

    path: Path
    number: int
    size: int
    pieces: tuple[Piece, ...]
    is_ours: bool
    is_sealed: bool = False
    """Whether something says how long the file is: the header of a sealed log, or a journal's full size."""
    start: int = 0
    """Where the first record may begin."""
    maps: tuple[Piece, ...] = ()
    """The ledgers maps of a log, also those after its durable end."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def is_log(self) -> bool:
        return filenames.parse(self.name).kind is FileKind.ENTRY_LOG

    @property
    def end(self) -> int:
        return self.pieces[-1].end if self.pieces else self.start

    @property
    def entries(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.is_entry]

    @property
    def seals(self) -> list[tuple[Seal, int]]:
        """Each group's seal, and where the group ends."""
        return [(piece.seal, piece.end) for piece in self.pieces if piece.seal is not None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoreContent:
    """One store."""

    root: Path
    is_ours: bool
    mark: mark_format.Mark | None
    state: IndexState
    logs: tuple[FileContent, ...]
    """The entry logs that count, up to their durable ends."""
    journals: tuple[FileContent, ...]
    places: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """The rows of an index of ours that count: for each ledger the packed places of its entries."""
    deleted: frozenset[int] = frozenset()
    first_ids: Mapping[int, int] = field(default_factory=dict)
    """For each truncated ledger the first entry that is left."""
    unindexed: frozenset[int] = frozenset()
    """Ledgers whose delete or truncation is in `ledgers.rows` and not yet in the index."""

    @property
    def ledgers(self) -> Path:
        return self.root / filenames.LEDGER_DIRECTORY / filenames.CURRENT

    @property
    def journal(self) -> Path:
        return self.root / filenames.JOURNAL_DIRECTORY / filenames.CURRENT

    @property
    def position(self) -> JournalPosition:
        return self.mark.position if self.mark is not None else START

    @property
    def has_unproven(self) -> bool:
        return any(piece.digest is None for log in self.logs for piece in log.entries)

    def is_dead(self, piece: Piece) -> bool:
        """Return whether the record's ledger was deleted, so that nothing leads to it."""
        return piece.ledger_id in self.deleted and not piece.is_indexed

    def is_truncated(self, piece: Piece) -> bool:
        return piece.entry_id < self.first_ids.get(piece.ledger_id, 0)

    def record_of(self, ledger_id: int, entry_id: int) -> tuple[FileContent, Piece]:
        """Return the record that the index points at."""
        place = self.places[ledger_id][entry_id]
        log = next(one for one in self.logs if one.number == place >> 32)
        return log, next(one for one in log.pieces if one.start == (place & 0xFFFF_FFFF) - 4)


def packed(log: FileContent, piece: Piece) -> int:
    """Return the record's place as the index stores it."""
    return log.number << 32 | piece.start + 4


def content_of(
    root: Path, passwords: Mapping[int, bytes] | None = None, password: bytes | None = None
) -> StoreContent:
    """Read the content of a store that is not open, and not damaged."""
    ledgers = root / filenames.LEDGER_DIRECTORY / filenames.CURRENT
    journals = root / filenames.JOURNAL_DIRECTORY / filenames.CURRENT
    path = ledgers / filenames.LAST_MARK
    found = mark_format.decode(path.read_bytes()) if path.exists() else None
    mark = found if isinstance(found, mark_format.Mark) else None
    state, places, indexed = _index(ledgers)
    filed = metadata_log.scan_directory(PosixDirectory(ledgers))
    rows = indexed if filed is None else newest_rows(filed.rows, indexed)
    known = dict(passwords or {})
    deleted = frozenset(one for one, row in rows.items() if row.tombstone is not None)
    first_ids = {one: row.first_entry_id for one, row in rows.items() if row.first_entry_id}
    gone = {one for one, row in rows.items() if is_deleted_since(row, indexed)}
    cut = {
        one for one, first in first_ids.items() if one not in indexed or indexed[one].first_entry_id < first
    }
    living = {
        ledger_id: {one: place for one, place in found.items() if one >= first_ids.get(ledger_id, 0)}
        for ledger_id, found in places.items()
        if ledger_id not in gone
    }
    # The digest type of a deleted ledger is forgotten when a new ledger gets its id: a reader then cannot
    # verify its entries if the new ledger has no digest, or a MAC whose password is not given.
    blind = {
        one
        for one in deleted
        if rows[one].digest_type is DigestType.DUMMY
        or (rows[one].digest_type is DigestType.MAC and known.get(one, password) is None)
    }

    def proves(data: bytes) -> DigestType | None:
        ledger_id, _ = entry_format.IDS.unpack_from(data)
        secret = known.get(ledger_id, password)
        for kind in _PROVING:
            if kind is DigestType.MAC and secret is None:
                continue
            if entry_format.check_digest(data, digester(kind, secret or b"")) is DigestCheck.OK:
                return kind
        return None

    content = StoreContent(
        root=root,
        is_ours=state is not None and mark is not None and mark.trailer is not None,
        mark=mark,
        state=state or IndexState(),
        logs=tuple(
            log
            for number in _numbers(ledgers, FileKind.ENTRY_LOG)
            if (log := _log(ledgers, number, state or IndexState(), proves, blind, living)) is not None
        ),
        journals=tuple(_journal(journals, number, proves) for number in _numbers(journals, FileKind.JOURNAL)),
        places=living,
        deleted=deleted,
        first_ids=first_ids,
        unindexed=frozenset(gone | cut),
    )
    return replace(content, journals=_judged(content))


def _numbers(directory: Path, kind: FileKind) -> list[int]:
    names = (filenames.parse(path.name) for path in directory.iterdir())
    return sorted(name.number for name in names if name.kind is kind and name.number is not None)


def _index(ledgers: Path) -> tuple[IndexState | None, dict[int, dict[int, int]], dict[int, LedgerRecord]]:
    index = LmdbIndexDirectory(PosixDirectory(ledgers), ledgers).view()
    if isinstance(index, NoIndex | Damaged):
        return None, {}, {}
    with closing(index):
        places = {one: dict(index.locations(one, 0, index.count(one))) for one in index.ledgers()}
        return index.state(), places, {row.ledger_id: row for row in index.rows()}


# ── entry logs ────────────────────────────────────────────────────────────────────────────────────────────


def _log(
    ledgers: Path,
    number: int,
    state: IndexState,
    proves: Callable[[bytes], DigestType | None],
    blind: set[int],
    living: Mapping[int, Mapping[int, int]],
) -> FileContent | None:
    """Read one log. Return `None` for a leftover of ours, in which nothing counts."""
    path = ledgers / filenames.entry_log(number)
    data = path.read_bytes()
    header = log_format.decode_header(data[: log_format.HEADER_SIZE])
    is_ours = isinstance(header, log_format.LogHeader) and header.origin is not None
    if is_ours and number not in state.log_ends:
        return None
    limit = state.log_ends.get(number, len(data))
    pieces = []
    at = log_format.HEADER_SIZE
    while at + _PREFIX.size <= len(data):
        size, ledger_id, entry_id = _PREFIX.unpack_from(data, at)
        end = at + 4 + size
        if size <= 0 or end > len(data):
            break
        provable = ledger_id >= 0 and ledger_id not in blind and size >= entry_format.HEAD.size
        digest = proves(data[at + 4 : end]) if provable else None
        is_indexed = living.get(ledger_id, {}).get(entry_id) == (number << 32 | at + 4)
        pieces.append(Piece(at, end, ledger_id, entry_id, digest, is_indexed=is_indexed))
        at = end
    counted = []
    # The records are walked from the end, because a reader finds the framing again at the next record that
    # proves itself. After the durable end nothing counts.
    sound = len(data)
    for piece in reversed(pieces):
        if piece.end <= limit:
            reach = (piece.start, len(data) if piece.end >= limit else max(piece.end, sound))
            must = piece.digest is not None or not piece.is_entry
            counted.append(piece._replace(reach=reach, must=must))
        if piece.digest is not None or not piece.is_entry:
            sound = piece.start
    is_sealed = is_ours or (isinstance(header, log_format.LogHeader) and header.map_offset > 0)
    maps = tuple(piece for piece in pieces if piece.is_map)
    counted.reverse()
    return FileContent(
        path, number, len(data), tuple(counted), is_ours, is_sealed, log_format.HEADER_SIZE, maps
    )


# ── journals ──────────────────────────────────────────────────────────────────────────────────────────────


def _journal(directory: Path, number: int, proves: Callable[[bytes], DigestType | None]) -> FileContent:
    path = directory / filenames.journal(number)
    data = path.read_bytes()
    header = journal_format.decode_header(data[: journal_format.HEADER_SIZE_MAX])
    if not isinstance(header, journal_format.JournalHeader):
        return FileContent(path, number, len(data), (), is_ours=False)
    is_ours = header.salt is not None
    pieces = tuple(_journal_pieces(data, header.size, proves))
    return FileContent(path, number, len(data), pieces, is_ours, is_ours, header.size)


def _journal_pieces(data: bytes, at: int, proves: Callable[[bytes], DigestType | None]) -> Iterator[Piece]:
    while at + journal_format.PREFIX_SIZE <= len(data):
        length, following = struct.unpack_from(">ii", data, at)
        if length == journal_format.PADDING:
            end = at + journal_format.PREFIX_SIZE + following
            found = None
            if end - at >= journal_format.PREFIX_SIZE + journal_seal.SIZE:
                found = journal_seal.decode(data[end - journal_seal.SIZE : end])
            seal = found.seal if isinstance(found, journal_seal.StoredSeal) else None
            yield Piece(at, end, NO_LEDGER, 0, seal=seal)
        else:
            end = at + 4 + length
            if length < entry_format.IDS.size or end > len(data):
                return
            ledger_id, entry_id = entry_format.IDS.unpack_from(data, at + 4)
            provable = entry_id >= 0 and length >= entry_format.HEAD.size
            yield Piece(at, end, ledger_id, entry_id, proves(data[at + 4 : end]) if provable else None)
        at = end


def _judged(content: StoreContent) -> tuple[FileContent, ...]:
    """Return the journals with what a finding about each record may cover, and whether there must be one."""
    ends = _chain_ends(content)
    durable = max(
        [content.position, *(seal.durable_up_to for one in content.journals for seal, _ in one.seals)]
    )
    judged = []
    for journal in content.journals:
        if journal.is_ours:
            pieces = [_judged_in_group(content, journal, piece, ends, durable) for piece in journal.pieces]
        else:
            pieces = [_judged_alone(journal, piece) for piece in journal.pieces]
        judged.append(replace(journal, pieces=tuple(pieces)))
    return tuple(judged)


def _judged_in_group(
    content: StoreContent,
    journal: FileContent,
    piece: Piece,
    ends: Mapping[int, int | None],
    durable: JournalPosition,
) -> Piece:
    groups = [(seal.group_start, end) for seal, end in journal.seals]
    start, end = next(((a, b) for a, b in groups if a <= piece.start < b), (journal.start, journal.size))
    position = JournalPosition(journal.number, start)
    if position < content.position:
        # A later journal's first seal may say that this group was durable.
        named = [
            one.seals[0][0].durable_up_to for one in content.journals if one.seals and one is not journal
        ]
        known = max((one.offset for one in named if one.journal_id == journal.number), default=0)
        is_vouched = journal.number == content.position.journal_id or start < max(
            groups[-1][0] if groups else 0, known
        )
        is_void = False
    else:
        is_vouched = position < durable
        is_off_chain = bool(ends) and journal.number not in ends and journal.number < max(ends)
        limit = ends.get(journal.number)
        is_void = not groups or is_off_chain or (limit is not None and start >= limit)
    if not is_vouched:
        # The group that was written last is cut with everything after it.
        start, end = (journal.start if groups and start == groups[0][0] else start), journal.size
    return piece._replace(reach=(start, end), must=not is_void)


def _judged_alone(journal: FileContent, piece: Piece) -> Piece:
    """Return a record of a bookie's journal with what a finding about it may cover, and whether there must be
    one. Only a record that proves itself shows where its neighbours end.
    """
    proven = [one for one in journal.pieces if one.digest is not None or one.ledger_id == NO_LEDGER]
    start = max((one.end for one in proven if one.start < piece.start), default=journal.start)
    # After the last padding only zeros follow, whatever its length is.
    must = piece.digest is not None or (piece in proven and piece is not journal.pieces[-1])
    return piece._replace(reach=(start, journal.size), must=must)


def _chain_ends(content: StoreContent) -> dict[int, int | None]:
    """Return the journals on the chain of seals, each with the end that the next one's first seal names."""
    mark = content.position
    sealed = {one.number: one for one in content.journals if one.seals and one.number >= mark.journal_id}
    if not sealed:
        return {}
    at = max(sealed)
    ends: dict[int, int | None] = {at: None}
    while at in sealed:
        start = mark.offset if at == mark.journal_id else 0
        first = next((seal for seal, _ in sealed[at].seals if seal.group_start >= start), None)
        if first is None or first.durable_up_to.journal_id >= at or first.durable_up_to <= mark:
            break
        at = first.durable_up_to.journal_id
        ends[at] = first.durable_up_to.offset
    return ends
