"""The end of the last journal, torn: what a power cut may leave of the last group, answered or not.

Nothing vouches for the last group, so that damage in it cannot be told from a write that was cut short:
whoever was answered for it, and lost it, lost it to the disk. See docs/durability.md.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from recovery.founding import Layout
from storage import filenames
from storage.codec import journal as codec
from storage.journal_groups import Group, groups
from storage.journal_reader import JournalReader, StoredRecord
from storage.journals import journal_ids
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from pathlib import Path


def tear(directory: Path, seed: int) -> set[tuple[int, int]]:
    """Damages the last group of the newest journal, and says whose entries were in it."""
    dice = Random(f"tear {seed}")
    journals = Layout(PosixDirectory(directory)).journal
    name = filenames.journal(max(journal_ids(journals)))
    with journals.open(name) as file:
        reader = JournalReader(file, filenames.parse(name).number or 0)
        found = [group for group in groups(reader) if isinstance(group, Group)]
        if not found:
            return set()
        last = found[-1]
        torn = _entries(reader, last)
    _damage(directory / "journal" / "current" / name, last, dice)
    return torn


def _entries(reader: JournalReader, group: Group) -> set[tuple[int, int]]:
    records = (item.record for item in reader.items(group.start) if isinstance(item, StoredRecord))
    return {(one.ledger_id, one.entry_id) for one in records if isinstance(one, codec.EntryRecord)}


def _damage(path: Path, group: Group, dice: Random) -> None:
    at = dice.randrange(group.start, group.end)
    match dice.choice(["truncated", "behind", "sector"]):
        case "truncated":
            with path.open("r+b") as file:
                file.truncate(at)
        case "behind":
            _zero(path, at, group.end)
        case "sector":
            start = at - at % 512
            _zero(path, start, min(start + 512, group.end))


def _zero(path: Path, start: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
