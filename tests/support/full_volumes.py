"""Real file systems that are filled to the last byte, and the program that writes to a store there."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_STEP = 64 << 20
_UNIT = 4096
SUPPORT = Path(__file__).parent


def fill(directory: Path) -> None:
    """Take all free space of the file system, durably, so that no other file gets a block."""
    _fill_one(directory)
    with suppress(OSError):  # XFS keeps some blocks from a large file
        for number in count(len([*directory.glob("filler-*")])):
            with (directory / f"filler-{number}").open("xb") as file:
                file.write(bytes(_UNIT))
    _sync(directory)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _fill_one(directory: Path) -> None:
    fd = os.open(directory / "filler", os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        size, step = os.fstat(fd).st_size, _STEP
        while step >= _UNIT:
            try:
                os.posix_fallocate(fd, size, step)
                size = os.fstat(fd).st_size
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                step //= 2
        os.fsync(fd)
    finally:
        os.close(fd)


def is_full(directory: Path) -> bool:
    """Return whether the file system refuses another block to a file."""
    path = directory / "probe"
    try:
        path.write_bytes(bytes(_UNIT))
    except OSError as error:
        return error.errno == errno.ENOSPC
    finally:
        path.unlink(missing_ok=True)
    return False


def empty(directory: Path) -> None:
    for path in directory.glob("filler*"):
        path.unlink()


class FullDiskWriter:
    """The program `full_disk_writer`, and what it has answered so far."""

    def __init__(self, path: Path) -> None:
        self.last_ids: dict[int, int] = {}
        """By ledger: the last entry that was acknowledged."""
        self.answers: dict[str, list[int]] = defaultdict(list)
        """By word: the ledgers, or the counts of `read`."""
        modules = os.pathsep.join([str(SUPPORT), str(SUPPORT.parent.parent)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "full_disk_writer", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": modules},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def begin(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def wait_for(self, word: str, count: int = 1) -> None:
        """Return when the program has said the word so often."""
        while len(self.answers[word]) < count:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            assert line, f"the program has ended before it said {word}"
            self._take(line)

    is_cut = False
    """Whether the power of its disk was cut, so that its calls may fail until it is killed."""

    def kill(self) -> None:
        """Kill the program, and take what it has said until then."""
        self._process.kill()
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                self._take(line)
        self._process.wait()

    def _take(self, line: str) -> None:
        word, *numbers = line.split()
        if word == "failed":
            assert self.is_cut, line
            return
        self.answers[word].append(int(numbers[-1]) if numbers else 0)
        if word == "added":
            self.last_ids[int(numbers[0])] = int(numbers[1])
