"""Damage that is not in the bytes of one file: lost files, kinds of files, and rows of the index.

Each function damages a copy of a store and returns the damage, or `None` if the store has no place for it.
"""

from __future__ import annotations

import os
import shutil
from array import array
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recovery.audit.self_test.content import packed
from recovery.audit.self_test.expectations import Expected, PlantedDamage
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.index import state_format
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.lmdb.environment import IndexBatch, LocationRun
from storage.index.lmdb.index import LmdbIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from random import Random

    from recovery.audit.self_test.content import FileContent, Piece, StoreContent

_LOCKS = frozenset({filenames.LOCK, "lock.mdb"})
_INDEX = frozenset({"JRN-006", "IDX-003", "IDX-006"})
_NAMING = frozenset({"IDX-001", "ELG-007"})
_NEVER_WRITTEN = 1 << 40
_STRANGE_NAMES = ("notes.txt", "0A.log", "1.TXN", "00.log", "1.log.bak", "lastmark", "core.1234")


class StoreCopy:
    """A copy of the store at `source`. Its files are hard links until they are changed."""

    def __init__(self, source: Path, root: Path) -> None:
        self.root = root
        self._source = source
        for path in sorted(source.rglob("*")):
            target = root / path.relative_to(source)
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                # A lock belongs to a file: the lock of a linked file would be the source's.
                if path.name in _LOCKS:
                    shutil.copyfile(path, target)
                else:
                    os.link(path, target)
            except OSError:  # another file system
                shutil.copyfile(path, target)

    def inside(self, path: Path) -> Path:
        """Return the path in the copy for a path of the source."""
        return self.root / path.relative_to(self._source)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace the content of the file."""
        target = self.inside(path)
        target.unlink(missing_ok=True)
        target.write_bytes(data)

    def remove(self, path: Path) -> None:
        target = self.inside(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()

    def own(self, directory: Path) -> Path:
        """Duplicate all files of the directory, so that the source does not share them."""
        target = self.inside(directory)
        for one in (path for path in target.rglob("*") if path.is_file()):
            data = one.read_bytes()
            one.unlink()
            one.write_bytes(data)
        return target


@dataclass(frozen=True, slots=True)
class DirectoryDamage:
    """One kind of damage."""

    name: str
    damage: Callable[[StoreContent, StoreCopy, Random], PlantedDamage | None]

    def __str__(self) -> str:
        return self.name


def _whole(file: str, *kinds: str, also: frozenset[str] = frozenset(), place: str = "") -> PlantedDamage:
    """Return damage of a whole file, which one finding of these kinds has to name."""
    expected = Expected(kinds=frozenset(kinds))
    return PlantedDamage(name="", file=file, place=place, wanted=((expected,),), also=also)


# ── lost files, and files of another kind ─────────────────────────────────────────────────────────────────


def _lost_log(content: StoreContent, copy: StoreCopy, dice: Random) -> PlantedDamage | None:
    if not (logs := [log for log in content.logs if log.entries]):
        return None
    log = dice.choice(logs)
    others = [one for one in content.logs if one is not log]
    if content.is_ours:
        expected = [Expected(kinds=frozenset({"ELG-005"}), file=log.name)]
    else:
        # A bookie may have collected the log, so that only gaps inside of ledgers show its loss.
        gaps = frozenset({"LGR-001", "JRN-006", "ELG-005"})
        expected = [Expected(kinds=gaps, ledger_id=one) for one in _torn_ledgers(log, others)]
    if not expected:
        return None
    copy.remove(log.path)
    named = [
        (Expected(kinds=_NAMING | {"IDX-002"}, ledger_id=piece.ledger_id, entry_id=piece.entry_id),)
        for piece in log.entries
        if piece.is_indexed
    ]
    also = frozenset({"JRN-006", "ELG-005"})
    return PlantedDamage(name="", file=log.name, wanted=(tuple(expected), *named), also=also)


def _torn_ledgers(log: FileContent, others: Sequence[FileContent]) -> list[int]:
    """Return the ledgers that have entries in other logs both before and after those of this log only."""
    held: dict[int, set[int]] = {}
    for piece in (piece for one in others for piece in one.entries):
        held.setdefault(piece.ledger_id, set()).add(piece.entry_id)
    return sorted(
        {
            piece.ledger_id
            for piece in log.entries
            if (left := held.get(piece.ledger_id))
            and piece.entry_id not in left
            and min(left) < piece.entry_id < max(left)
        }
    )


def _lost_journal(content: StoreContent, copy: StoreCopy, dice: Random) -> PlantedDamage | None:
    """Remove a journal that the mark, its trailer or the chain of seals names."""
    position = content.position
    named = {position.journal_id}
    if content.mark is not None and content.mark.trailer is not None:
        named.add(content.mark.trailer.newest_journal)
    journals = [
        one for one in content.journals if one.number in named and one.number >= position.journal_id > 0
    ]
    if not journals:
        return None
    journal = dice.choice(journals)
    copy.remove(journal.path)
    expected = Expected(kinds=frozenset({"MRK-002"}), file=journal.name)
    also = frozenset({"JRN-003", "JRN-006", "MRK-004"})
    return PlantedDamage(name="", file=journal.name, wanted=((expected,),), also=also)


def _lost(name: str, *kinds: str, also: frozenset[str] = frozenset()) -> DirectoryDamage:
    def damage(content: StoreContent, copy: StoreCopy, _: Random) -> PlantedDamage | None:
        path = content.ledgers / name
        trailer = content.mark.trailer if content.mark is not None else None
        is_needed = {
            filenames.LAST_MARK: content.mark is not None and (content.is_ours and any(content.logs)),
            filenames.LEDGER_ROWS: bool(content.state.rows_sequence or (trailer and trailer.rows_sequence)),
            filenames.COOKIE: True,
        }.get(name, content.is_ours)
        if not is_needed or not path.exists():
            return None
        copy.remove(path)
        return _whole(path.name, *kinds, also=also)

    return DirectoryDamage(f"lost: {name}", damage)


def _copied_log(content: StoreContent, copy: StoreCopy, dice: Random) -> PlantedDamage | None:
    """Copy a log to a second file, after all others or between them."""
    if not (logs := [log for log in content.logs if log.entries]):
        return None
    log = dice.choice(logs)
    taken = {filenames.parse(path.name).number for path in content.ledgers.glob("*.log")}
    numbers = [one for one in range(max(one.number for one in logs) + 3) if one not in taken]
    name = filenames.entry_log(dice.choice(numbers))
    shutil.copyfile(log.path, copy.inside(content.ledgers / name))
    # A bookie's compaction may leave the same: one of the two counts, and the other is dead.
    dead = frozenset({"LGR-007", "LGR-008", "IDX-006"})
    expected = (
        Expected(kinds=dead | {"DIR-001", "DIR-002", "ELG-001", "ELG-005"}, file=name),
        Expected(kinds=dead, file=log.name),
    )
    also = frozenset({"ELG-001", "ELG-005", "IDX-006"})
    return PlantedDamage(name="", file=name, place=f"of {log.name}", wanted=(expected,), also=also)


def _unknown_file(content: StoreContent, copy: StoreCopy, dice: Random) -> PlantedDamage | None:
    directory = dice.choice([content.ledgers, content.journal])
    name = dice.choice(_STRANGE_NAMES)
    copy.replace(directory / name, dice.randbytes(dice.choice([0, 100, 5000])))
    return _whole(name, "DIR-001")


_KINDS_OF_FILES: tuple[tuple[str, Callable[[Path], None]], ...] = (
    ("a named pipe", os.mkfifo),
    ("a directory", os.mkdir),
    ("a link to nothing", lambda path: path.symlink_to("nothing")),
    ("a link to itself", lambda path: path.symlink_to(path.name)),
)


def _no_file(content: StoreContent, copy: StoreCopy, dice: Random) -> PlantedDamage | None:
    """Put something that is not a file in the place of a file, or under the name of a new one."""
    log, journal = content.ledgers / "77.log", content.journal / "77.txn"
    old = [file.path for file in (*content.logs, *content.journals) if file.pieces]
    mark = [content.ledgers / filenames.LAST_MARK] if content.mark is not None else []
    path = dice.choice([log, journal, *old, *mark])
    what, make = dice.choice(_KINDS_OF_FILES)
    copy.inside(path).unlink(missing_ok=True)
    make(copy.inside(path))
    # The content of the file is missing, too, and the other files have to be verified nevertheless.
    also = frozenset(
        {
            "ELG-005",
            "ELG-007",
            "IDX-001",
            "IDX-002",
            "JRN-003",
            "JRN-006",
            "MRK-001",
            "MRK-002",
            "MRK-004",
            "ELG-003",
        }
    )
    expected = Expected(kinds=frozenset({"DIR-004"}), file=path.name)
    return PlantedDamage(name="", file=path.name, place=f"is {what}", wanted=((expected,),), also=also)


# ── rows of the index, in valid pages ─────────────────────────────────────────────────────────────────────


def _set(
    content: StoreContent,
    copy: StoreCopy,
    rows: Mapping[int, Sequence[tuple[int, int]]],
    state: bytes | None = None,
) -> None:
    """Replace the rows of these ledgers, and the state if given, in one commit with valid page checksums."""
    copy.own(content.ledgers / filenames.INDEX)
    ledgers = copy.inside(content.ledgers)
    index = LmdbIndexDirectory(PosixDirectory(ledgers), ledgers).open()
    assert isinstance(index, LmdbIndex), f"the copy's index is damaged before it was touched: {index}"
    with closing(index):
        batch = IndexBatch({ledger_id.to_bytes(8, "big") for ledger_id in rows})
        for ledger_id, pairs in sorted(rows.items()):
            ids, places = (array("q", (pair[one] for pair in sorted(pairs))) for one in (0, 1))
            batch.runs.append(LocationRun(ledger_id, ids, places))
        # The rows are written without an index change, because that would refuse two places for one entry.
        index._commit(batch, state)  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class _IndexEdit:
    """One entry, and the places that the index has for it after the edit."""

    ledger_id: int
    entry_id: int
    places: tuple[int, ...]
    kinds: frozenset[str]
    also: frozenset[str] = _INDEX


@dataclass(frozen=True, slots=True)
class _IndexSpot:
    """An entry of the index, chosen at random."""

    content: StoreContent
    dice: Random
    ledger_id: int
    entry_id: int

    @property
    def record(self) -> tuple[FileContent, Piece]:
        return self.content.record_of(self.ledger_id, self.entry_id)

    @property
    def records(self) -> list[tuple[FileContent, Piece]]:
        return [(log, piece) for log in self.content.logs for piece in log.entries]

    @property
    def free_number(self) -> int:
        """The id of a log that does not exist."""
        taken = {filenames.parse(path.name).number for path in self.content.ledgers.glob("*.log")}
        return self.dice.choice(
            [one for one in range(max(self.content.state.log_ends, default=0) + 4) if one not in taken]
        )

    def at(self, places: Sequence[int], *kinds: str) -> _IndexEdit | None:
        """Return the edit that lets the index lead from the entry to one of these places."""
        if not places:
            return None
        return _IndexEdit(self.ledger_id, self.entry_id, (self.dice.choice(places),), frozenset(kinds))

    def again(self, choose: Callable[[Piece, int], bool], *kinds: str) -> _IndexEdit | None:
        """Return the edit that sets the place of another record, for which `choose` is true given its packed
        place.
        """
        found = [
            (packed(log, piece), piece)
            for log, piece in self.records
            # The next opening removes the places of the others.
            if piece.ledger_id not in self.content.unindexed and choose(piece, packed(log, piece))
        ]
        if not found:
            return None
        # The log may have the entry from an earlier ledger of this id.
        earlier = {"IDX-002"} if {piece.ledger_id for _, piece in found} & self.content.deleted else set()
        place, piece = self.dice.choice(found)
        return _IndexEdit(piece.ledger_id, piece.entry_id, (place,), frozenset({*kinds, *earlier}))


def _edited(name: str, edit: Callable[[_IndexSpot], _IndexEdit | None]) -> DirectoryDamage:
    """Return the row that changes what the index has of one entry."""

    def damage(content: StoreContent, copy: StoreCopy, dice: Random) -> PlantedDamage | None:
        if not any(content.places.values()):
            return None
        ledger_id = dice.choice(sorted(one for one, rows in content.places.items() if rows))
        entry_id = dice.choice(sorted(content.places[ledger_id]))
        edited = edit(_IndexSpot(content, dice, ledger_id, entry_id))
        if edited is None:
            return None
        ledger_id, entry_id = edited.ledger_id, edited.entry_id
        pairs = [pair for pair in content.places.get(ledger_id, {}).items() if pair[0] != entry_id]
        _set(content, copy, {ledger_id: [*pairs, *((entry_id, one) for one in edited.places)]})
        expected = Expected(kinds=edited.kinds, ledger_id=ledger_id, entry_id=entry_id)
        place = f"ledger {ledger_id} entry {entry_id} at {[hex(one) for one in edited.places]}"
        return PlantedDamage(
            name="", file=filenames.INDEX, place=place, wanted=((expected,),), also=edited.also
        )

    return DirectoryDamage(f"index: {name}", damage)


def _other_place(spot: _IndexSpot) -> _IndexEdit | None:
    ids = (spot.ledger_id, spot.entry_id)
    others = [packed(log, one) for log, one in spot.records if (one.ledger_id, one.entry_id) != ids]
    return spot.at(others, "IDX-002")


def _inside(spot: _IndexSpot) -> _IndexEdit | None:
    log, piece = spot.record
    return spot.at(
        range((log.number << 32) + piece.start + 5, (log.number << 32) + piece.end), "IDX-001", "IDX-002"
    )


def _past_end(spot: _IndexSpot) -> _IndexEdit | None:
    log, _ = spot.record
    ends = (spot.content.state.log_ends.get(log.number, log.size), log.size, log.size + 4096)
    return spot.at([(log.number << 32) + end + 4 for end in ends], "IDX-001")


def _dangling(spot: _IndexSpot) -> _IndexEdit:
    """Add a row for an entry that was never written, in an existing ledger or a new one."""
    log, piece = spot.record
    place = spot.dice.choice([packed(log, piece), (log.number << 32) + log.size + 40])
    entry_id = spot.dice.choice([max(spot.content.places[spot.ledger_id]) + 1, _NEVER_WRITTEN])
    new = max({*spot.content.places, *spot.content.deleted}) + 1
    ledger_id = new if spot.dice.random() < 0.3 else spot.ledger_id
    return _IndexEdit(ledger_id, entry_id, (place,), frozenset({"IDX-001", "IDX-002"}))


def _deleted(spot: _IndexSpot) -> _IndexEdit | None:
    """Add a row for a record of a deleted ledger that is still in a log."""
    places, content = spot.content.places, spot.content
    return spot.again(
        lambda one, _: one.entry_id not in places.get(one.ledger_id, {}) and not content.is_truncated(one),
        "IDX-001",
        "IDX-002",
        "LGR-003",
    )


def _older_copy(spot: _IndexSpot) -> _IndexEdit | None:
    """Point the row of an entry that was written twice at the first copy."""
    places = spot.content.places
    return spot.again(
        lambda one, place: places.get(one.ledger_id, {}).get(one.entry_id, -1) > place, "IDX-006"
    )


def _twice(spot: _IndexSpot) -> _IndexEdit:
    place = spot.content.places[spot.ledger_id][spot.entry_id]
    other = spot.dice.choice([place + 1, place + (1 << 32), 1028])
    # More findings depend on where the other row points.
    also = _INDEX | {"IDX-001", "IDX-002", "ELG-007"}
    return _IndexEdit(spot.ledger_id, spot.entry_id, (place, other), frozenset({"IDX-005"}), also)


def _ledger_without_rows(content: StoreContent, copy: StoreCopy, dice: Random) -> PlantedDamage | None:
    if not any(content.places.values()):
        return None
    ledger_id = dice.choice(sorted(one for one, rows in content.places.items() if rows))
    _set(content, copy, {ledger_id: []})
    wanted = [
        (Expected(kinds=frozenset({"IDX-003"}), ledger_id=ledger_id, entry_id=one),)
        for one in content.places[ledger_id]
    ]
    return PlantedDamage(
        name="", file=filenames.INDEX, place=f"ledger {ledger_id}", wanted=tuple(wanted), also=_INDEX
    )


def _older_index(content: StoreContent, copy: StoreCopy, dice: Random) -> PlantedDamage | None:
    """Replace the index by its state after an earlier checkpoint, with valid page checksums."""
    trailer = content.mark.trailer if content.mark is not None else None
    generation = content.state.generation
    if not content.places or trailer is None or trailer.generation != generation or not generation:
        return None
    ledger_id = dice.choice(sorted(content.places))
    state = replace(content.state, generation=dice.randrange(generation))
    pairs = sorted(content.places[ledger_id].items())[:-1]
    _set(content, copy, {ledger_id: pairs}, state_format.encode(state))
    return _whole(filenames.INDEX, "IDX-004", also=_INDEX, place=f"of checkpoint {state.generation}")


ROWS: tuple[DirectoryDamage, ...] = (
    DirectoryDamage("lost: an entry log", _lost_log),
    DirectoryDamage("lost: a journal", _lost_journal),
    _lost(filenames.LAST_MARK, "MRK-001", also=frozenset({"JRN-003", "JRN-006"})),
    _lost(filenames.LEDGER_ROWS, "LGR-002"),
    _lost(filenames.COOKIE, "CKE-001", "DIR-003"),
    _lost(filenames.INDEX, "IDX-004"),
    _lost(f"{filenames.INDEX}/data.mdb", "IDX-004"),
    _lost(f"{filenames.INDEX}/sums", "IDX-004"),
    DirectoryDamage("an entry log under another id", _copied_log),
    DirectoryDamage("an unknown file", _unknown_file),
    DirectoryDamage("not a file: a pipe, a directory or a link", _no_file),
    _edited("the place of another entry", _other_place),
    _edited("a place inside a record", _inside),
    _edited("a place after a log's end", _past_end),
    _edited(
        "a place in a log that does not exist",
        lambda spot: spot.at([spot.free_number << 32 | 1028], "IDX-001"),
    ),
    _edited(
        "no place for an entry",
        lambda spot: _IndexEdit(spot.ledger_id, spot.entry_id, (), frozenset({"IDX-003"})),
    ),
    _edited("a place for an entry never written", _dangling),
    _edited("a place for an entry of a deleted ledger", _deleted),
    _edited(
        "a place for a truncated entry",
        lambda spot: spot.again(lambda piece, _: spot.content.is_truncated(piece), "IDX-007"),
    ),
    _edited("two places for an entry", _twice),
    _edited("the place of an older copy", _older_copy),
    DirectoryDamage("index: no places for a ledger", _ledger_without_rows),
    DirectoryDamage("index: of an earlier checkpoint", _older_index),
)
