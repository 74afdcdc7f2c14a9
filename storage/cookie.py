"""The VERSION file of a directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage import filenames
from storage.codec import cookie as codec
from storage.outcome import Damaged, Flaw, Torn

if TYPE_CHECKING:
    from storage.files import Directory


@dataclass(frozen=True, slots=True)
class NoCookie:
    """There is no such file: nobody has stamped this directory."""


def load(directory: Directory) -> codec.Cookie | NoCookie | Torn | Damaged:
    """Whose directory this is."""
    try:
        file = directory.open(filenames.COOKIE)
    except FileNotFoundError:
        return NoCookie()
    with file:
        data = file.read(0, codec.SIZE_MAX + 1)
    if len(data) > codec.SIZE_MAX:
        return Damaged(codec.SIZE_MAX, Flaw.FILE_LONG)
    return codec.decode(data)
