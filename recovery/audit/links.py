"""Second names for files of a store that is in use: what they name stays readable when the store removes it.

    <store>/audit.links/<one for each audit>/   LOCK  0.log …  1.txn …

No opening looks there. Whoever holds the lock is at work; a directory whose lock nobody holds was left by a
process that was killed, and the next audit removes it.
"""

from __future__ import annotations

import errno
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from storage import filenames
from storage.errors import StoreLocked
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.files import Lock

_ATTEMPTS = 10


class Links:
    """The links of one audit. To be closed by whoever made them."""

    def __init__(self, directory: Path, lock: Lock) -> None:
        self._directory = directory
        self._lock = lock

    def paths(self) -> dict[str, Path]:
        """By its name, where each of the files is."""
        return {path.name: path for path in self._directory.iterdir() if path.name != filenames.LOCK}

    def hold(self, directory: str, names: Iterable[str]) -> None:
        """A link to each of these files, unless it is gone. Raises `OSError` where there can be none."""
        for name in names:
            with suppress(FileExistsError, FileNotFoundError):
                (self._directory / name).hardlink_to(Path(directory) / name)

    def close(self) -> None:
        """Removes them. Never fails: what is left is for the next audit."""
        _remove(self._directory)
        self._lock.close()
        with suppress(OSError):
            self._directory.parent.rmdir()


def make_links(root: str) -> Links:
    """A place for links in a store. Raises `OSError` where nothing can be written."""
    parent = Path(root) / filenames.AUDIT_LINKS
    for _ in range(_ATTEMPTS):
        parent.mkdir(exist_ok=True)
        mine = parent / secrets.token_hex(8)
        # Whoever cleans up may take it for a dead one before it is locked.
        with suppress(FileNotFoundError, StoreLocked):
            mine.mkdir()
            return Links(mine, PosixDirectory(mine).lock(filenames.LOCK))
    raise OSError(errno.EBUSY, "others keep removing it", str(parent))


def remove_stale(root: str) -> None:
    """Removes what audits that were killed have left."""
    parent = Path(root) / filenames.AUDIT_LINKS
    with suppress(OSError):
        for one in parent.iterdir():
            with suppress(OSError, StoreLocked), PosixDirectory(one).lock(filenames.LOCK):
                _remove(one)
        parent.rmdir()


def _remove(directory: Path) -> None:
    with suppress(OSError):
        # The lock last: until it goes, nobody else takes the directory for a dead one.
        for path in sorted(directory.iterdir(), key=lambda path: path.name == filenames.LOCK):
            path.unlink()
        directory.rmdir()
