"""Where a run keeps its files: on the disk that is measured, and gone when the run ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A directory of its own below `parent`: the usual place for such things is often memory, not a disk."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=parent) as name:
        yield Path(name)


def crashed_again(store: Path, target: Path) -> Path:
    """The store as its crash has left it, once more: every opening may leave it further on.

    The journals are links, as nothing old is ever written to; a copy would be on its way to the disk while
    the opening is timed.
    """
    journals = "journal"
    shutil.copytree(store, target, ignore=shutil.ignore_patterns(journals))
    shutil.copytree(store / journals, target / journals, copy_function=_link)
    return target


def copied(source: Path, target: Path, *linked: str) -> Path:
    """The same files once more, all of them on the disk.

    Those with such names are links to the old ones: it must be sure that nobody writes to them any more.
    """

    def copy(old: str, new: str) -> None:
        if any(Path(old).match(pattern) for pattern in linked):
            _link(old, new)
        else:
            shutil.copy2(old, new)
            _sync(Path(new))

    shutil.copytree(source, target, copy_function=copy)
    for directory in (target.parent, target, *(path for path in target.rglob("*") if path.is_dir())):
        _sync(directory)
    return target


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def listing(directory: Path) -> list[str]:
    """The names of everything in it."""
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))
