"""The VERSION file of a directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.disk import cookie_format, filenames
from storage.disk.replace import publish_draft, write_draft
from storage.entry.read_result import Damaged, Flaw, Torn

if TYPE_CHECKING:
    from storage.disk.files import Directory


@dataclass(frozen=True, slots=True)
class NoCookie:
    """There is no VERSION file."""


def load(directory: Directory) -> cookie_format.Cookie | NoCookie | Torn | Damaged:
    """Read the cookie of a directory."""
    try:
        file = directory.open(filenames.COOKIE)
    except FileNotFoundError:
        return NoCookie()
    with file:
        data = file.read(0, cookie_format.SIZE_MAX + 1)
    if len(data) > cookie_format.SIZE_MAX:
        return Damaged(cookie_format.SIZE_MAX, Flaw.FILE_LONG)
    return cookie_format.decode(data)


def store(directory: Directory, cookie: cookie_format.Cookie) -> None:
    """Stamp the directory, in one step and durably. After an error either cookie may be there.

    Nothing may be acknowledged before, because a directory without its cookie is refused.
    """
    write_draft(directory, filenames.COOKIE, [cookie_format.encode(cookie)])
    publish_draft(directory, filenames.COOKIE)
