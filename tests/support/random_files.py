"""Random programs that change files: real ones for the recorder, and similar ones on a simulated disk."""

from __future__ import annotations

import contextlib
import os
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recovery.crashlab.record.history import Ctx
    from storage.disk.files import Directory, WriteFile

STEPS = 400
_NO_FILE = 9999


def churn(root: Path, ctx: Ctx, seed: int) -> None:
    """Make four hundred calls: move, link, replace and remove names, change sizes, and keep files open."""
    program = _Churn(root, Random(seed))
    for _ in range(STEPS):
        program.step()


class _Churn:
    """One random program. Calls that are impossible at the moment fail, as they should."""

    def __init__(self, root: Path, draw: Random) -> None:
        self._root, self._draw = root, draw
        self._open: list[int] = []
        self._ways: dict[Callable[[], object], int] = {
            self._create: 8,
            self._write: 12,
            self._resize: 5,
            self._punch: 2,
            self._rename: 8,
            self._link: 3,
            self._unlink: 4,
            self._make: 3,
            self._remove: 2,
            self._sync: 5,
            self._sync_directory: 3,
            self._replace: 3,
        }

    def step(self) -> None:
        (way,) = self._draw.choices([*self._ways], [*self._ways.values()])
        with contextlib.suppress(OSError):
            way()

    def _directory(self) -> Path:
        found = [self._root, *(path for path in sorted(self._root.rglob("*")) if path.is_dir())]
        return self._draw.choice(found)

    def _name(self) -> Path:
        """Return a random name, which may exist or not."""
        return self._directory() / self._draw.choice("abcdef")

    def _there(self) -> Path:
        return self._draw.choice([*sorted(self._root.rglob("*")), self._root / "absent"])

    def _fd(self) -> int:
        return self._draw.choice(self._open or [_NO_FILE])

    def _create(self) -> None:
        modes = self._draw.choice((0, os.O_TRUNC, os.O_APPEND, os.O_DSYNC, os.O_EXCL))
        self._open.append(os.open(self._name(), os.O_RDWR | os.O_CREAT | modes))
        if len(self._open) > 6:
            os.close(self._open.pop(self._draw.randrange(6)))

    def _write(self) -> None:
        data = self._draw.randbytes(self._draw.choice((1, 40, 511, 512, 1500, 5000)))
        if self._draw.random() < 0.5:
            os.write(self._fd(), data)
        else:
            os.pwrite(self._fd(), data, self._draw.randrange(6000))

    def _resize(self) -> None:
        size = self._draw.choice((0, 1, 300, 512, 1024, 3000, 9000))
        way = self._draw.randrange(3)
        if way == 0:
            os.ftruncate(self._fd(), size)
        elif way == 1:
            os.truncate(self._there(), size)
        else:
            os.posix_fallocate(self._fd(), self._draw.randrange(2000), 1 + size)

    def _punch(self) -> None:
        os.pwrite(self._fd(), bytes(700), self._draw.randrange(2000))

    def _rename(self) -> None:
        self._there().rename(self._name())

    def _link(self) -> None:
        self._name().hardlink_to(self._there())

    def _unlink(self) -> None:
        self._there().unlink()

    def _make(self) -> None:
        self._name().mkdir()

    def _remove(self) -> None:
        self._there().rmdir()

    def _sync(self) -> None:
        self._draw.choice((os.fsync, os.fdatasync))(self._fd())

    def _sync_directory(self) -> None:
        fd = os.open(self._directory(), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _replace(self) -> None:
        """Replace a file safely: write a draft, sync it, rename it."""
        draft, name = self._root / "draft", self._name()
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(fd, self._draw.randbytes(800))
            os.fsync(fd)
        finally:
            os.close(fd)
        draft.rename(name)


def churn_simulated(root: Directory, seed: int) -> None:
    """Make similar calls with the verbs of `storage.disk.files`."""
    draw = Random(seed)
    files: list[WriteFile] = []
    directories = [root]
    for _ in range(STEPS // 2):
        with contextlib.suppress(OSError):
            _step(draw, directories, files)


def _step(draw: Random, directories: list[Directory], files: list[WriteFile]) -> None:
    directory, name = draw.choice(directories), draw.choice("abcdef")
    match draw.randrange(12):
        case 0 | 1:
            files.append(directory.create(name))
        case 2 | 3 | 4 if files:
            size = draw.choice((1, 40, 511, 512, 1500, 5000))
            draw.choice(files).write(draw.randrange(3000), [draw.randbytes(size)])
        case 5 if files:
            draw.choice(files).zero_fill(draw.randrange(3000), draw.choice((100, 512, 2000)))
        case 6 if files:
            draw.choice(files).sync()
        case 7:
            directory.sync()
        case 8:
            directory.rename(name, draw.choice("abcdef"))
        case 9:
            directory.remove(name)
        case 10:
            made = directory.directory(draw.choice(("d", "e")))
            made.make()
            directories.append(made)
        case 11:
            directory.lock("lock").close()
        case _:
            pass
