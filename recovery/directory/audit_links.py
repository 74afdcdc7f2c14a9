"""Hard links to the files of a store that is in use, so that they stay readable when the store removes them.

    <store>/audit.links/audit-<16 hexadecimal digits>/   LOCK  0.log …  1.txn …

Each audit holds the lock of its own directory; a directory whose lock is free was left by a process that was
killed, and the next audit or opening removes it. Otherwise its links would keep the space of files that the
store has removed.

An audit may run as root over a directory that another user can write to. So no symbolic link is followed
here. Directories are opened with O_NOFOLLOW, and everything else is done relative to their descriptors, so
that exchanging a name meanwhile has no effect. Only directories with our prefix that belong to the
user of this process are removed, and in them only regular files with names that an audit makes. Everything
else is left where it is and reported.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import lock_at
from storage.errors import StoreLocked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.disk.files import Lock

_ATTEMPTS = 10
_OURS = re.compile(r"audit-[0-9a-f]{16}")
_LINKED = frozenset({FileKind.JOURNAL, FileKind.ENTRY_LOG})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class UntouchedFile:
    """Something in `audit.links` that no audit of this user made. It was not touched."""

    name: str
    """Relative to the store's root."""
    why: str


class Links:
    """The links of one audit. The caller closes them."""

    def __init__(self, parent: Path, name: str, directory: int, lock: Lock) -> None:
        self._parent = parent
        self._name = name
        self._directory = directory
        self._lock = lock

    def paths(self) -> dict[str, Path]:
        """The path of each link, by the name of the file."""
        place = self._parent / self._name
        return {name: place / name for name in _names(self._directory) if name != filenames.LOCK}

    def hold(self, directory: str, names: Iterable[str]) -> None:
        """Link each of these files, unless it is gone. Raise `OSError` if the system refuses a link."""
        for name in names:
            path = Path(directory) / name
            with suppress(FileExistsError, FileNotFoundError):
                # A symbolic link is not linked, because at another place a relative one leads elsewhere.
                if stat.S_ISREG(path.lstat().st_mode):
                    os.link(path, name, dst_dir_fd=self._directory, follow_symlinks=False)

    def close(self) -> None:
        """Remove the links. Never fails: the next audit or opening removes what is left."""
        with suppress(OSError):
            _empty(self._directory)
        self._lock.close()
        os.close(self._directory)
        with suppress(OSError), _opened(self._parent) as parent:
            os.rmdir(self._name, dir_fd=parent)
        with suppress(OSError):
            self._parent.rmdir()


def make_links(root: str) -> Links:
    """Make a directory for links in a store. Raise `OSError` if that cannot be done."""
    place = Path(root) / filenames.AUDIT_LINKS
    for _ in range(_ATTEMPTS):
        place.mkdir(exist_ok=True)
        name = f"audit-{secrets.token_hex(8)}"
        # Until the directory is locked, another audit may take it for a stale one and remove it.
        with suppress(FileNotFoundError, StoreLocked), _opened(place) as parent:
            os.mkdir(name, 0o700, dir_fd=parent)
            with ExitStack() as unless_locked:
                directory = os.open(name, _DIRECTORY, dir_fd=parent)
                unless_locked.callback(os.close, directory)
                lock = lock_at(directory, filenames.LOCK)
                unless_locked.pop_all()
                return Links(place, name, directory, lock)
    raise OSError(errno.EBUSY, "other audits keep removing it", str(place))


def remove_stale(root: str) -> tuple[UntouchedFile, ...]:
    """Remove the links of audits that were killed. Return what else is there and was not touched."""
    place = Path(root) / filenames.AUDIT_LINKS
    left: list[UntouchedFile] = []
    try:
        with _opened(place) as parent:
            for name in _names(parent):
                left += _remove(parent, name)
    except FileNotFoundError:
        return ()
    except OSError as error:
        return (UntouchedFile(filenames.AUDIT_LINKS, f"not a directory of an audit ({error.strerror})"),)
    with suppress(OSError):
        place.rmdir()
    return tuple(left)


def _remove(parent: int, name: str) -> list[UntouchedFile]:
    """Remove one directory if it is stale. Return its content that is not ours."""
    path = f"{filenames.AUDIT_LINKS}/{name}"
    if not _OURS.fullmatch(name):
        return [UntouchedFile(path, "no audit makes such a name")]
    try:
        with _opened(name, parent) as directory:
            if os.fstat(directory).st_uid != os.geteuid():
                return [UntouchedFile(path, "made by another user")]
            with lock_at(directory, filenames.LOCK):
                foreign = _empty(directory)
        if not foreign:
            os.rmdir(name, dir_fd=parent)
    except (StoreLocked, FileNotFoundError):
        return []  # another audit is using it or removing it
    except OSError as error:
        return [UntouchedFile(path, f"cannot be removed ({error.strerror})")]
    return [UntouchedFile(f"{path}/{one}", "no audit makes such a file") for one in foreign]


def _empty(directory: int) -> list[str]:
    """Remove the files that an audit makes; return the names of the others."""
    foreign = []
    # The lock is removed last, because without it another audit would take the directory for a stale one.
    for name in sorted(_names(directory), key=lambda name: name == filenames.LOCK):
        if _is_ours(directory, name):
            os.unlink(name, dir_fd=directory)
        else:
            foreign.append(name)
    return foreign


def _is_ours(directory: int, name: str) -> bool:
    named = name == filenames.LOCK or filenames.parse(name).kind in _LINKED
    return named and stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


def _names(directory: int) -> list[str]:
    return sorted(os.listdir(directory))


@contextmanager
def _opened(path: Path | str, parent: int | None = None) -> Iterator[int]:
    """Open a directory that is not a symbolic link."""
    descriptor = os.open(path, _DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
