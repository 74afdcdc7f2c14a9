"""Damage in the bytes of one file: each row has a function from bytes to damaged bytes, and places for it.

    spots(content, dice)          the places where the row damages a store
    corrupt(data, spot, dice)     the file's bytes, damaged at one of them

Both are pure. Which findings are expected follows from the bytes that changed; a row names them only for
files whose records are not known here.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.checkpoint import mark_format
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.entry.model import DigestType
from storage.entry.position import JournalPosition
from storage.entry.read_result import Damaged
from storage.entrylog import format as log_format
from storage.index.lmdb import checksum_format, page_checksums
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.ledgers import metadata_log_format as rows_format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

    from recovery.audit.self_test.content import FileContent, Piece, StoreContent

BLOCK = 4096
_FIELDS = {
    "size": (0, 4),
    "ledger id": (4, 12),
    "entry id": (12, 20),
    "last add confirmed": (20, 28),
    "length": (28, 36),
}
_HEAD_END = 36
_ORIGIN_END = 72
_MAP_FIELDS = (log_format.MAP_FIELDS_OFFSET, 20)


class Spot(NamedTuple):
    """Where a file is damaged: at a place in [start, end)."""

    path: Path
    start: int
    end: int
    file: FileContent | None = None
    other: bytes = b""
    """The bytes that the damage writes there."""


class Trace(enum.Enum):
    """The trace that damage leaves at its place."""

    WRONG_BYTES = enum.auto()
    MISLEADING = enum.auto()
    """Bytes that may prove themselves: another id, or records of another place."""
    NOTHING = enum.auto()
    """The place is not there any more, or no reader looks at it."""


@dataclass(frozen=True, slots=True)
class Corruption:
    """One row."""

    name: str
    spots: Callable[[StoreContent, Random], Sequence[Spot]]
    corrupt: Callable[[bytes, Spot, Random], bytes]
    trace: Trace = Trace.WRONG_BYTES
    kinds: frozenset[str] = frozenset()
    """The findings of which one is expected. Without any they follow from the records that changed."""
    also: frozenset[str] = frozenset()
    """Findings that the damage may cause elsewhere."""

    def __str__(self) -> str:
        return self.name


# ── bytes to damaged bytes ────────────────────────────────────────────────────────────────────────────────


def flip(data: bytes, spot: Spot, dice: Random) -> bytes:
    """Flip one bit."""
    at = dice.randrange(spot.start, spot.end)
    return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]


def zero(data: bytes, spot: Spot, _: Random) -> bytes:
    """Replace the bytes by zeros, as a disk does that has lost a write."""
    return data[: spot.start] + bytes(spot.end - spot.start) + data[spot.end :]


def put(data: bytes, spot: Spot, _: Random) -> bytes:
    """Replace the bytes by others, as a disk does that has written to a wrong place."""
    size = spot.end - spot.start
    return data[: spot.start] + spot.other[:size].ljust(size, b"\0") + data[spot.end :]


def cut(data: bytes, spot: Spot, dice: Random) -> bytes:
    """End the file there."""
    return data[: dice.randrange(spot.start, spot.end)]


# ── places in entry logs and journals ─────────────────────────────────────────────────────────────────────


def _files(files: Sequence[FileContent], dice: Random) -> list[FileContent]:
    """Return one of the files that have records, so that small and large files are damaged equally often."""
    candidates = [one for one in files if one.pieces]
    return [dice.choice(candidates)] if candidates else []


def _logs(content: StoreContent, dice: Random) -> list[FileContent]:
    return _files(content.logs, dice)


def _journals(content: StoreContent, dice: Random) -> list[FileContent]:
    return _files(content.journals, dice)


def _in_entries(files: Sequence[FileContent], place: Callable[[Piece], tuple[int, int]]) -> list[Spot]:
    spots = []
    for file in files:
        for piece in file.entries:
            start, end = place(piece)
            if start < end:
                spots.append(Spot(file.path, start, end, file))
    return spots


def _field(name: str) -> Callable[[Piece], tuple[int, int]]:
    start, end = _FIELDS[name]
    return lambda piece: (piece.start + start, piece.start + end)


def _digest(piece: Piece) -> tuple[int, int]:
    start = piece.start + _HEAD_END
    return (start, start if piece.digest is None else start + piece.digest.width)


def _payload(piece: Piece) -> tuple[int, int]:
    width = (DigestType.MAC if piece.digest is None else piece.digest).width
    return (piece.start + _HEAD_END + width, piece.end)


def _pieces(files: Sequence[FileContent], choose: Callable[[Piece], bool]) -> list[Spot]:
    return [
        Spot(file.path, piece.start, piece.end, file)
        for file in files
        for piece in file.pieces
        if choose(piece)
    ]


def _fillers(content: StoreContent, _: Random) -> list[Spot]:
    """Return the fillers, but not their kinds: a reader takes every kind but a map's as a filler."""
    found = _pieces(content.logs, lambda piece: not piece.is_entry and not piece.is_map)
    heads = [spot._replace(end=spot.start + 12) for spot in found]
    return heads + [spot._replace(start=spot.start + 20) for spot in found if spot.end > spot.start + 20]


def _filler_kinds(content: StoreContent, _: Random) -> list[Spot]:
    found = _pieces(content.logs, lambda piece: not piece.is_entry and not piece.is_map)
    return [spot._replace(start=spot.start + 12, end=spot.start + 20) for spot in found]


def _blocks(files: Sequence[FileContent]) -> list[Spot]:
    return [
        Spot(file.path, max(at, file.start), min(at + BLOCK, file.end), file)
        for file in files
        for at in range(BLOCK if file.is_log else 0, file.end, BLOCK)
        if at + BLOCK > file.start
    ]


def _misdirected(files: Sequence[FileContent], dice: Random) -> list[Spot]:
    """Return one block, with another block of the same files in its place."""
    blocks = _blocks(files)
    sources = [one for file in files for one in _blocks([file]) if one.end - one.start == BLOCK]
    if not blocks or not sources:
        return []
    source = dice.choice(sources)
    return [dice.choice(blocks)._replace(other=_read(source))]


def _stale(files: Sequence[FileContent], dice: Random) -> list[Spot]:
    """Return one block, with what another file has at the same offset."""
    return [
        spot._replace(other=_read(Spot(other.path, spot.start, spot.end)))
        for file in _files(files, dice)
        for spot in dice.sample(_blocks([file]), min(8, len(_blocks([file]))))
        for other in files
        if other is not file and other.end > spot.start
    ]


def _read(spot: Spot) -> bytes:
    with spot.path.open("rb") as file:
        file.seek(spot.start)
        return file.read(spot.end - spot.start)


def _inside_of(file: FileContent, pieces: Sequence[Piece]) -> list[Spot]:
    """Return the places at which a cut leaves a part of a record."""
    return [Spot(file.path, piece.start + 1, piece.end, file) for piece in pieces]


def _log_header(content: StoreContent, dice: Random) -> list[Spot]:
    """Return the magic, the version and, in a log of ours, the fields that only ours have."""
    spots = []
    for log in _logs(content, dice):
        spots.append(Spot(log.path, 0, _MAP_FIELDS[0] if log.is_ours else _MAP_FIELDS[0] - 1, log))
        if log.is_ours:
            spots.append(Spot(log.path, _MAP_FIELDS[1], _ORIGIN_END, log))
    return spots


def _log_header_free(content: StoreContent, dice: Random) -> list[Spot]:
    return [
        Spot(log.path, _ORIGIN_END if log.is_ours else _MAP_FIELDS[1], log_format.HEADER_SIZE, log)
        for log in _logs(content, dice)
    ]


def _journal_header(content: StoreContent, dice: Random) -> list[Spot]:
    spots = []
    for journal in _journals(content, dice):
        if journal.start and any(piece.must for piece in journal.pieces):
            # Most of a long header is zeros, therefore half of the flips hit its fields.
            spots += [Spot(journal.path, 0, end, journal) for end in (journal.start, min(journal.start, 32))]
    return spots


def _padding(content: StoreContent, dice: Random) -> list[Spot]:
    spots = []
    for journal in _journals(content, dice):
        for piece in journal.pieces:
            if not piece.is_entry and piece.ledger_id < 0:
                end = (
                    piece.end - journal_seal.SIZE if piece.seal else piece.start + journal_format.PREFIX_SIZE
                )
                spots.append(Spot(journal.path, piece.start, end, journal))
    return spots


def _padding_content(content: StoreContent, dice: Random) -> list[Spot]:
    """Return what a bookie skips but writes as zeros, so that other bytes look like swallowed records."""
    return [
        Spot(journal.path, piece.start + journal_format.PREFIX_SIZE, piece.end, journal)
        for journal in _journals(content, dice)
        if not journal.is_ours
        for piece in journal.pieces
        if piece.ledger_id < 0 and piece.end > piece.start + journal_format.PREFIX_SIZE
    ]


def _seals(content: StoreContent, dice: Random) -> list[Spot]:
    return [
        spot._replace(start=spot.end - journal_seal.SIZE)
        for spot in _pieces(_journals(content, dice), lambda piece: piece.seal is not None)
    ]


# ── the mark ──────────────────────────────────────────────────────────────────────────────────────────────


def _mark(content: StoreContent) -> list[Spot]:
    path = content.ledgers / filenames.LAST_MARK
    return [Spot(path, 0, path.stat().st_size)] if content.mark is not None else []


def _moved(content: StoreContent, positions: Sequence[JournalPosition]) -> list[Spot]:
    """Return marks with other positions and a valid checksum."""
    mark = content.mark
    if mark is None:
        return []
    spots = []
    for position in positions:
        trailer = mark.trailer
        if trailer is not None and position < mark.position:
            trailer = replace(trailer, generation=max(0, trailer.generation - 1))
        moved = mark_format.encode(replace(mark, position=position, trailer=trailer))
        spots.append(Spot(content.ledgers / filenames.LAST_MARK, 0, len(moved), None, moved))
    return spots


def _mark_back(content: StoreContent, _: Random) -> list[Spot]:
    """Return earlier checkpoints, as an older copy has them. A bookie would only replay more."""
    positions = [
        JournalPosition(journal.number, seal.group_start)
        for journal in content.journals
        for seal, _ in journal.seals
        if content.is_ours
    ]
    return _moved(content, [one for one in positions if one < content.position])


def _mark_forward(content: StoreContent, _: Random) -> list[Spot]:
    """Return positions after entries that no log has, which would not be replayed."""
    held = {(piece.ledger_id, piece.entry_id) for log in content.logs for piece in log.entries}
    items = [
        (JournalPosition(journal.number, piece.end), piece)
        for journal in content.journals
        for piece in journal.pieces
    ]
    lost = [
        (position, piece.ledger_id)
        for position, piece in items
        if piece.is_entry and position > content.position and (piece.ledger_id, piece.entry_id) not in held
    ]
    ends = [end for end, piece in items if (piece.seal if content.is_ours else piece.ledger_id < 0)]
    # In a bookie's directory only ledgers with entries after the mark are certainly not deleted.
    return _moved(
        content,
        [
            end
            for end in ends
            if any(
                position <= end
                and (
                    content.is_ours
                    or any(one.is_entry and one.ledger_id == ledger and at > end for at, one in items)
                )
                for position, ledger in lost
            )
        ],
    )


def _mark_inside(content: StoreContent, dice: Random) -> list[Spot]:
    pieces = [
        (journal, piece)
        for journal in _journals(content, dice)
        for piece in journal.pieces
        if piece.ledger_id >= 0
    ]
    return _moved(
        content,
        [JournalPosition(file.number, dice.randrange(one.start + 1, one.end)) for file, one in pieces[:20]],
    )


def _mark_without_journal(content: StoreContent, _: Random) -> list[Spot]:
    taken = {journal.number for journal in content.journals}
    newest = max(taken, default=0)
    first = max(content.position.journal_id + 1, newest - 5)
    free = [one for one in range(first, newest + 4) if one not in taken]
    return _moved(content, [JournalPosition(one, BLOCK) for one in free])


def _mark_bits(content: StoreContent, _: Random) -> list[Spot]:
    """Return what shows damage: a bookie's mark has no checksum, but the id of its journal is of no other."""
    return [spot if content.is_ours else spot._replace(end=6) for spot in _mark(content)]


def _mark_ends(content: StoreContent, _: Random) -> list[Spot]:
    """Return the sizes that no killed process leaves, which are all but 0 and a bookie's."""
    size = mark_format.BOOKIE_SIZE
    return [
        spot._replace(start=start, end=end)
        for spot in _mark(content)
        for start, end in ((1, size), (size + 1, spot.end))
        if start < end
    ]


def _mark_as_a_bookie_writes_it(content: StoreContent, _: Random) -> list[Spot]:
    size = mark_format.BOOKIE_SIZE
    return [spot._replace(start=size, end=size + 1) for spot in _mark(content) if content.is_ours]


# ── other files ───────────────────────────────────────────────────────────────────────────────────────────


def _live_pages(content: StoreContent, _: Random) -> list[Spot]:
    """Return the pages that the newest transaction of the index uses."""
    index = content.ledgers / filenames.INDEX
    if not content.is_ours or not index.is_dir():
        return []
    with PosixDirectory(index).open("data.mdb") as data:
        snapshot = page_checksums.snapshot_all_pages(data)
    assert not isinstance(snapshot, Damaged), "the index is sound"
    size = snapshot.page_size
    return [
        Spot(index / "data.mdb", number * size, (number + 1) * size)
        for number, is_live in enumerate(snapshot.is_live)
        if is_live
    ]


def _page_sums(content: StoreContent, _: Random) -> list[Spot]:
    """Return the first record of checksums, which covers every page. The last one may be torn."""
    path = content.ledgers / filenames.INDEX / page_checksums.SUMS
    if not content.is_ours or not path.exists():
        return []
    data = path.read_bytes()
    head = checksum_format.decode_head(data, 0, len(data))
    assert isinstance(head, checksum_format.RecordHead), "the index is sound"
    return [Spot(path, 0, checksum_format.HEAD_SIZE + head.body_size)]


def _row_groups(content: StoreContent) -> list[tuple[Spot, bool]]:
    """Return the groups of ledgers.rows, each with whether the mark or the index knows it to be durable."""
    path = content.ledgers / filenames.LEDGER_ROWS
    if not path.exists():
        return []
    trailer = content.mark.trailer if content.mark is not None else None
    known = max(content.state.rows_sequence, 0 if trailer is None else trailer.rows_sequence)
    data, at, groups = path.read_bytes(), 0, []
    while isinstance(
        head := rows_format.decode_group_head(data[at:], at, len(data) - at), rows_format.GroupHead
    ):
        spot = Spot(path, head.start, head.start + rows_format.HEAD_SIZE + head.body_size)
        groups.append((spot, head.sequence <= known))
        at = head.end
    return groups


def _row_bits(content: StoreContent, _: Random) -> list[Spot]:
    """Return the groups that cannot be torn: known ones, and those that others follow."""
    groups = _row_groups(content)
    return [spot for number, (spot, is_known) in enumerate(groups, 1) if is_known or number < len(groups)]


def _row_ends(content: StoreContent, _: Random) -> list[Spot]:
    return [spot._replace(end=spot.start + 1) for spot, is_known in _row_groups(content)[1:] if is_known]


def _cookies(content: StoreContent) -> list[tuple[Path, bytes, int]]:
    """Return the cookies, with where the instance id begins."""
    mark = b'instanceId: "'
    paths = [one / filenames.COOKIE for one in (content.ledgers, content.journal)]
    found = [(path, path.read_bytes()) for path in paths if path.exists()]
    return [(path, data, data.find(mark) + len(mark)) for path, data in found if mark in data]


def _cookie_ids(content: StoreContent, _: Random) -> list[Spot]:
    """Return the version and the instance id. Other fields name places, and may change."""
    return [
        spot
        for path, data, start in _cookies(content)
        for spot in (Spot(path, 0, 1), Spot(path, start, data.index(b'"', start)))
    ]


def _other_cookie(content: StoreContent, _: Random) -> list[Spot]:
    return [Spot(path, start, start, None, b"another-") for path, _, start in _cookies(content)]


def _insert(data: bytes, spot: Spot, _: Random) -> bytes:
    return data[: spot.start] + spot.other + data[spot.start :]


# ── the rows ──────────────────────────────────────────────────────────────────────────────────────────────


def _kinds(*kinds: str) -> frozenset[str]:
    return frozenset(kinds)


_LOG = _kinds("ELG-002", "LGR-004", "JRN-006")
"""The map counts bytes, ids are compared with earlier ones, and a journal may have had what is lost."""
_OTHER_SIZE = _LOG | _kinds("ELG-003", "ELG-007")
_OTHER_ENTRY = _LOG | _kinds("IDX-003", "IDX-006")
_JOURNAL = _kinds("JRN-005", "JRN-006")
"""Entries that cannot be read may seem to be missing."""
_MARK = _kinds("MRK-001", "MRK-002", "MRK-004", "JRN-003", "JRN-006", "IDX-004")


def _of_records(kind: str) -> list[Corruption]:
    """Return the rows that entry logs and journals have in common."""
    is_log = kind == "entry log"
    base, size, other = (_LOG, _OTHER_SIZE, _OTHER_ENTRY) if is_log else (_JOURNAL,) * 3

    def files(content: StoreContent) -> Sequence[FileContent]:
        return content.logs if is_log else content.journals

    def entries(place: Callable[[Piece], tuple[int, int]]) -> Callable[[StoreContent, Random], list[Spot]]:
        return lambda content, dice: _in_entries(_files(files(content), dice), place)

    def row(name: str, spots: Any, corrupt: Any, trace: Trace, also: frozenset[str]) -> Corruption:
        return Corruption(f"{kind}: {name}", spots, corrupt, trace, also=also)

    wrong, misleading = Trace.WRONG_BYTES, Trace.MISLEADING
    return [
        row("bit in a size", entries(_field("size")), flip, wrong, size),
        row("bit in a ledger id", entries(_field("ledger id")), flip, misleading, other),
        row("bit in an entry id", entries(_field("entry id")), flip, misleading, other),
        row("bit in a last add confirmed", entries(_field("last add confirmed")), flip, wrong, base),
        row("bit in a length", entries(_field("length")), flip, wrong, base),
        row("bit in a digest", entries(_digest), flip, wrong, base),
        row("bit in a payload", entries(_payload), flip, wrong, base),
        row(
            "block of zeros",
            lambda content, dice: _blocks(_files(files(content), dice)),
            zero,
            wrong,
            base,
        ),
        row(
            "a block replaced by another",
            lambda content, dice: _misdirected(_files(files(content), dice), dice),
            put,
            misleading,
            other,
        ),
        row(
            "block of another file",
            lambda content, dice: _stale([one for one in files(content) if one.pieces], dice),
            put,
            misleading,
            other,
        ),
        row(
            "cut",
            lambda content, dice: [
                spot for one in _files(files(content), dice) for spot in _inside_of(one, one.pieces)
            ],
            cut,
            wrong,
            base if is_log else base | _kinds("MRK-004", "JRN-003"),
        ),
    ]


CORRUPTIONS: tuple[Corruption, ...] = (
    *_of_records("entry log"),
    Corruption("entry log: bit in a filler", _fillers, flip, also=_OTHER_SIZE),
    Corruption("entry log: bit in the kind of a filler", _filler_kinds, flip, Trace.NOTHING),
    Corruption(
        "entry log: first block of zeros",
        lambda content, dice: [Spot(log.path, 0, min(BLOCK, log.end), log) for log in _logs(content, dice)],
        zero,
        also=_LOG | _kinds("ELG-001"),
    ),
    Corruption(
        "entry log: cut in its last record",
        lambda content, dice: [s for log in _logs(content, dice) for s in _inside_of(log, log.pieces[-1:])],
        cut,
        also=_LOG,
    ),
    Corruption(
        "entry log: cut between records",
        lambda content, dice: [
            Spot(log.path, piece.start, piece.start + 1, log)
            for log in _logs(content, dice)
            for piece in log.pieces
        ],
        cut,
        also=_LOG,
    ),
    Corruption("entry log: bit in the header", _log_header, flip, kinds=_kinds("ELG-001", "DIR-003")),
    Corruption("entry log: bit in an unused part of the header", _log_header_free, flip, Trace.NOTHING),
    Corruption(
        "entry log: bit in the map fields of the header",
        lambda content, dice: [Spot(log.path, *_MAP_FIELDS, log) for log in _logs(content, dice)],
        flip,
        kinds=_kinds("ELG-001", "ELG-002", "ELG-005"),
    ),
    Corruption(
        "entry log: bit in the ledgers map",
        lambda content, _: [Spot(log.path, *one[:2], log) for log in content.logs for one in log.maps],
        flip,
        kinds=_kinds("ELG-002", "ELG-004"),
        also=_kinds("ELG-005"),
    ),
    *_of_records("journal"),
    Corruption("journal: bit in a padding record", _padding, flip, also=_JOURNAL),
    Corruption("journal: bit in the content of a bookie's padding", _padding_content, flip, also=_JOURNAL),
    Corruption("journal: bit in a seal", _seals, flip, also=_JOURNAL),
    Corruption(
        "journal: bit in the header",
        _journal_header,
        flip,
        kinds=_kinds("JRN-001", "JRN-002", "JRN-003", "JRN-004", "JRN-005", "DIR-003"),
        also=_JOURNAL,
    ),
    Corruption("mark: moved back", _mark_back, put, kinds=_kinds("MRK-003"), also=_MARK),
    Corruption(
        "mark: moved forward",
        _mark_forward,
        put,
        kinds=_kinds("MRK-001", "MRK-004", "JRN-006", "IDX-004"),
        also=_MARK,
    ),
    Corruption("mark: inside a record", _mark_inside, put, kinds=_kinds("MRK-003", "MRK-004"), also=_MARK),
    Corruption(
        "mark: in a journal that does not exist",
        _mark_without_journal,
        put,
        kinds=_kinds("MRK-002", "MRK-004"),
        also=_MARK,
    ),
    Corruption(
        "mark: bit flipped",
        _mark_bits,
        flip,
        kinds=_kinds("MRK-001", "MRK-002", "MRK-004", "DIR-003"),
        also=_MARK,
    ),
    Corruption("mark: cut", _mark_ends, cut, kinds=_kinds("MRK-001"), also=_JOURNAL | _kinds("JRN-003")),
    Corruption(
        # A bookie's mark does not say where a journal ends, nor its index which digests a ledger has.
        "mark: cut to a bookie's format",
        _mark_as_a_bookie_writes_it,
        cut,
        kinds=_kinds("MRK-001"),
        also=_kinds("ELG-003"),
    ),
    Corruption("index: bit in a page", _live_pages, flip, kinds=_kinds("IDX-004")),
    Corruption("index: bit in the checksums of pages", _page_sums, flip, kinds=_kinds("IDX-004")),
    Corruption(
        "ledger rows: a bit of a group",
        _row_bits,
        flip,
        kinds=_kinds("LGR-002", "DIR-003"),
    ),
    Corruption("ledger rows: an older copy", _row_ends, cut, kinds=_kinds("LGR-002")),
    Corruption("cookie: bit in the version or the id", _cookie_ids, flip, kinds=_kinds("CKE-001", "DIR-003")),
    Corruption("cookie: another store's", _other_cookie, _insert, kinds=_kinds("CKE-001", "DIR-003")),
)
"""The rows. The same seed damages the same byte of the same store."""
