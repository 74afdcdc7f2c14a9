"""A copy of a running store's directory, as a killed process leaves it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def copy_running(source: Path, target: Path) -> None:
    """Copy the directory of a store to which no thread adds now.

    A worker may prepare the next journal meanwhile: it renames a draft and announces it in the mark. So the
    copy is repeated until nothing has changed from its beginning to its end.
    """
    while True:
        before = _picture(source)
        try:
            shutil.copytree(source, target)
        except (shutil.Error, FileNotFoundError):
            pass  # a draft has got its name
        else:
            if _picture(source) == before:
                return
        shutil.rmtree(target)


def _picture(source: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the time of the last change of every file."""
    found = {}
    for path in source.rglob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found
