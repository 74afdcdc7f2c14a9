"""The end of the last journal, torn: what a power cut may leave of the last group, answered or not.

Nothing vouches for the last group, so that damage in it cannot be told from a write that was cut short:
whoever was answered for it, and lost it, lost it to the disk. See docs/durability.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from recovery import founding
from recovery.founding import Layout
from storage import filenames
from storage.codec import journal as codec
from storage.journal_groups import Group, groups
from storage.journal_reader import JournalReader, StoredRecord
from storage.journals import journal_ids
from storage.position import JournalPosition
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Set
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Torn:
    """What stood in the last group, and may be lost."""

    entries: Set[tuple[int, int]] = frozenset()
    ledgers: Set[int] = frozenset()
    """Those of which a fence or a confirmation stood there."""


def tear(directory: Path, seed: int) -> Torn:
    """Damages the last group of the newest journal, and says what was in it."""
    dice = Random(f"tear {seed}")
    layout = Layout(PosixDirectory(directory))
    newest = max(journal_ids(layout.journal))
    name = filenames.journal(newest)
    with layout.journal.open(name) as file:
        reader = JournalReader(file, newest)
        found = [group for group in groups(reader) if isinstance(group, Group)]
        # What lies before the mark is vouched for by it.
        if not found or JournalPosition(newest, found[-1].end) <= _mark(layout):
            return Torn()
        last = found[-1]
        torn = _content(reader, last)
    _damage(directory / "journal" / "current" / name, last, dice)
    return torn


def _mark(layout: Layout) -> JournalPosition:
    mark = founding.load_mark(layout)
    assert mark is not None, "a store that was killed has a sound mark"
    return mark.position


def _content(reader: JournalReader, group: Group) -> Torn:
    records = [item.record for item in reader.items(group.start) if isinstance(item, StoredRecord)]
    return Torn(
        {(one.ledger_id, one.entry_id) for one in records if isinstance(one, codec.EntryRecord)},
        {one.ledger_id for one in records if isinstance(one, codec.Fence | codec.ExplicitLac)},
    )


def _damage(path: Path, group: Group, dice: Random) -> None:
    at = dice.randrange(group.start, group.end)
    # Never shorter: a journal is filled, durably, before it has a name.
    match dice.choice(["behind", "sector"]):
        case "behind":
            _zero(path, at, group.end)
        case "sector":
            start = at - at % 512
            _zero(path, start, min(start + 512, group.end))


def _zero(path: Path, start: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
