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
