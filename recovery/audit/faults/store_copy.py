"""A copy of a store that duplicates only the files that are damaged. All others are hard links."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from storage.disk import filenames

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOCKS = frozenset({filenames.LOCK, "lock.mdb"})


class StoreCopy:
    """A copy of the store at `source`. A file is duplicated before it is changed."""

    def __init__(self, source: Path, root: Path) -> None:
        self.root = root
        self._source = source
        for path in _files(source):
            target = root / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(path, target)
        for directory in (path for path in source.rglob("*") if path.is_dir()):
            (root / directory.relative_to(source)).mkdir(parents=True, exist_ok=True)

    def inside(self, path: Path) -> Path:
        """Return the path in the copy for a path of the source."""
        return self.root / path.relative_to(self._source)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace the content of the file."""
        target = self.inside(path)
        target.unlink(missing_ok=True)
        target.write_bytes(data)

    def patch(self, path: Path, offset: int, data: bytes) -> None:
        """Overwrite bytes of the file."""
        target = self.own(path)
        with target.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def cut(self, path: Path, size: int) -> None:
        """Truncate the file."""
        os.truncate(self.own(path), size)

    def remove(self, path: Path) -> None:
        target = self.inside(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()

    def own(self, path: Path) -> Path:
        """Duplicate the file, or all files of the directory, so that the source does not share them."""
        target = self.inside(path)
        for one in [target] if target.is_file() else list(_files(target)):
            data = one.read_bytes()
            one.unlink()
            one.write_bytes(data)
        return target


def _files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_file())


def _link(path: Path, target: Path) -> None:
    if path.name in _LOCKS:
        target.write_bytes(
            path.read_bytes()
        )  # locks belong to files: the lock of a linked file would be the source's
        return
    try:
        os.link(path, target)
    except OSError:  # another file system
        shutil.copyfile(path, target)


def size_of(root: Path) -> int:
    """Return the size of all files of a store."""
    return sum(path.stat().st_size for path in _files(root))
