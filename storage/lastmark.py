"""The lastMark file of a ledger directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage import filenames
from storage.codec import mark as codec
from storage.outcome import Damaged, Torn

if TYPE_CHECKING:
    from storage.files import Directory


@dataclass(frozen=True, slots=True)
class NoMark:
    """There is no such file: a fresh directory, or one whose mark was lost."""


def write_draft(directory: Directory, mark: codec.Mark) -> None:
    """The mark under a draft's name, its content durable. Changes nothing that anybody reads."""
    draft = filenames.draft(filenames.LAST_MARK)
    if draft in directory.names():
        directory.remove(draft)  # what an attempt that failed has left in it is unknown
    with directory.create(draft) as file:
        file.write(0, [codec.encode(mark)])
        # Before the rename: a durable name must never precede durable content.
        file.sync()


def publish(directory: Directory) -> None:
    """The draft takes the mark's place, in one step and durably. After an error either may be there."""
    directory.rename(filenames.draft(filenames.LAST_MARK), filenames.LAST_MARK)
    # Before anything is trimmed: a power cut that brings the old mark back must find its journals.
    directory.sync()


LoadedMark = codec.Mark | codec.EmptyMark | NoMark | Torn | Damaged


def load(directory: Directory, name: str = filenames.LAST_MARK) -> LoadedMark:
    """What the directory's mark says; the caller decides what a missing or damaged one means."""
    try:
        file = directory.open(name)
    except FileNotFoundError:
        return NoMark()
    with file:
        # One byte more than the longest: anything that is too long must not look right.
        return codec.decode(file.read(0, codec.SIZE + 1))
