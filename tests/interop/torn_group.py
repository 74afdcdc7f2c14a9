"""Tear the last group of the newest journal, as a power cut during its write may leave it.

No later seal proves that the last group was durable, so damage in it cannot be told from a write that was cut
short. If the group was acknowledged and is lost, the disk has lost it. See docs/durability.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from recovery.directory.layout import Layout
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.entry.position import JournalPosition
from storage.journal import format as journal_format
from storage.journal.group_reader import SealedGroup, groups
from storage.journal.journal_set import journal_ids
from storage.journal.reader import JournalReader, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Set
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class TornGroup:
    """The content of the torn group, which may be lost."""

    entries: Set[tuple[int, int]] = frozenset()
    ledgers: Set[int] = frozenset()
    """Ledgers with a fence or a last add confirmed in the group."""


def tear(directory: Path, seed: int) -> TornGroup:
    """Damage the last group of the newest journal, and return its content."""
    dice = Random(f"tear {seed}")
    layout = Layout(PosixDirectory(directory))
    newest = max(journal_ids(layout.journal))
    name = filenames.journal(newest)
    with layout.journal.open(name) as file:
        reader = JournalReader(file, newest)
        found = [group for group in groups(reader) if isinstance(group, SealedGroup)]
        # The mark proves that everything before it was durable.
        if not found or JournalPosition(newest, found[-1].end) <= _mark(layout):
            return TornGroup()
        last = found[-1]
        torn = _content(reader, last)
    _damage(directory / "journal" / "current" / name, last, dice)
    return torn


def _mark(layout: Layout) -> JournalPosition:
    mark = lastmark.load(layout.ledgers)
    assert isinstance(mark, Mark), "a store that was killed has a sound mark"
    return mark.position


def _content(reader: JournalReader, group: SealedGroup) -> TornGroup:
    records = [item.record for item in reader.items(group.start) if isinstance(item, StoredRecord)]
    return TornGroup(
        {(one.ledger_id, one.entry_id) for one in records if isinstance(one, journal_format.EntryRecord)},
        {
            one.ledger_id
            for one in records
            if isinstance(one, journal_format.Fence | journal_format.ExplicitLac)
        },
    )


def _damage(path: Path, group: SealedGroup, dice: Random) -> None:
    at = dice.randrange(group.start, group.end)
    # The file never gets shorter, because a journal is filled durably before it has a name.
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
