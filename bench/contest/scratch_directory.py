"""Directories for the files of a run, on the disk that is measured, and copies of stores in them."""

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
    """Yield a temporary directory below `parent`, because /tmp is often in memory and not on a disk."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=parent) as name:
        yield Path(name)


def copy_crashed(store: Path, target: Path) -> Path:
    """Copy a store as its crash has left it, because every opening changes it.

    The journals are hard links, because an opening never writes to old journals, and a copy would still be
    written to the disk while the opening is timed.
    """
    journals = "journal"
    shutil.copytree(store, target, ignore=shutil.ignore_patterns(journals))
    shutil.copytree(store / journals, target / journals, copy_function=_link)
    return target


def copy_synced(source: Path, target: Path, *linked: str) -> Path:
    """Copy a directory and sync the copies.

    Files whose names match a pattern in `linked` become hard links. No process may write to them any more.
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
    """Return the relative paths of all files and directories below a directory."""
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))
