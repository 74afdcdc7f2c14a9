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


def store(directory: Directory, cookie: codec.Cookie) -> None:
    """Stamps the directory, in one step and durably. After an error either cookie may be there."""
    draft = filenames.draft(filenames.COOKIE)
    if draft in directory.names():
        directory.remove(draft)
    with directory.create(draft) as file:
        file.write(0, [codec.encode(cookie)])
        # Before the rename: a durable name must never precede durable content.
        file.sync()
    directory.rename(draft, filenames.COOKIE)
    # Before anything is acknowledged: a directory without its cookie is refused.
    directory.sync()
