"""Small programs that change files, for tests of the recorder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import lmdb

if TYPE_CHECKING:
    from recovery.crashlab.record.history import Ctx

PIECES_MAX = 1024
"""The system's limit for the buffers of a vectored write."""


# ── every call ──────────────────────────────────────────────────────────────────────────────────────────────


def every_call(root: Path, ctx: Ctx | None = None) -> None:
    """Make each call with which Python or LMDB can change a file or a name."""
    _every_write(root)
    _every_name(root)
    with lmdb.open(str(root / "index")) as index, index.begin(write=True) as transaction:
        transaction.put(b"key", b"value" * 2000)
    with lmdb.open(str(root / "mapped"), writemap=True) as index, index.begin(write=True) as transaction:
        transaction.put(b"key", b"value")
    shutil.rmtree(root / "index")


def _every_write(root: Path) -> None:
    file = os.open(root / "file", os.O_RDWR | os.O_CREAT)
    os.write(file, b"0123456789")
    os.pwrite(file, b"01234567", 0)
    os.writev(file, [b"01", b"2345", b"6789"])
    os.pwritev(file, [b"01", b"234567"], 3)
    os.ftruncate(file, 30)
    os.posix_fallocate(file, 0, 40)
    os.fsync(file)
    os.fdatasync(file)
    other = os.open(root / "other", os.O_RDWR | os.O_CREAT)
    os.sendfile(other, file, 0, 10)
    os.copy_file_range(file, other, 10, 0, 10)
    os.truncate(root / "other", 5)
    os.open(root / "file", os.O_RDONLY)  # changes nothing


def _every_name(root: Path) -> None:
    (root / "directory").mkdir()
    directory = os.open(root / "directory", os.O_RDONLY)
    os.chdir(root)
    os.rename("file", "named", dst_dir_fd=directory)
    os.link("directory/named", "link")
    Path("directory/../symbolic").symlink_to("link")
    os.unlink("named", dir_fd=directory)
    os.fsync(directory)
    os.rmdir("directory/")  # noqa: PTH106 - a Path would drop the slash


def write_ten_bytes(root: Path, ctx: Ctx, verb: str) -> None:
    """Write ten bytes with this call, and continue if the call wrote fewer."""
    ten, source = b"0123456789", os.open(root / "source", os.O_RDWR | os.O_CREAT)
    os.write(source, ten)
    os.lseek(source, 0, os.SEEK_SET)
    file = os.open(root / "file", os.O_RDWR | os.O_CREAT)
    pieces = [ten[:3], ten[3:7], ten[7:]]
    calls = {
        "write": lambda: os.write(file, ten),
        "pwrite": lambda: os.pwrite(file, ten, 0),
        "writev": lambda: os.writev(file, pieces),
        "pwritev": lambda: os.pwritev(file, pieces, 0),
        "sendfile": lambda: os.sendfile(file, source, 0, 10),
        "copy_file_range": lambda: os.copy_file_range(source, file, 10, 0),
    }
    ctx.ack(ctx.invoke("wrote", calls[verb]()))


def write_everywhere(root: Path, ctx: Ctx) -> None:
    """Make writes whose offset differs from the caller's, or is implicit."""
    with contextlib.ExitStack() as opened:

        def file(name: str, flags: int) -> int:
            fd = os.open(root / name, flags | os.O_RDWR | os.O_CREAT)
            opened.callback(os.close, fd)
            return fd

        log = file("log", os.O_APPEND)
        os.write(log, b"aaa")
        os.pwrite(log, b"bb", 0)  # the system appends although an offset is given
        again = file("log", os.O_APPEND)
        os.write(again, b"c")
        os.writev(log, [b"d", b"dd"])
        plain = file("plain", 0)
        os.lseek(plain, 5, os.SEEK_SET)
        os.write(plain, b"12")
        os.writev(plain, [b"3"] * PIECES_MAX)
        os.pwritev(plain, [b"x", b"yz"], 1)
        os.pwritev(plain, [b"end"], 0, os.RWF_APPEND if hasattr(os, "RWF_APPEND") else 0)
        os.lseek(plain, 0, os.SEEK_SET)
        target = file("target", 0)
        os.lseek(target, 4, os.SEEK_SET)
        os.sendfile(target, plain, 5, 3)
        os.copy_file_range(plain, target, 2, 5, 20)
        os.copy_file_range(plain, target, 2, 1)


def write_durably(root: Path, ctx: Ctx) -> None:
    """Make writes that are durable when they return, and one that is not."""
    for name, flags in (("d", os.O_DSYNC), ("s", os.O_SYNC), ("plain", 0)):
        fd = os.open(root / name, flags | os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"1")
        os.close(fd)
    fd = os.open(root / "once", os.O_WRONLY | os.O_CREAT)
    os.pwritev(fd, [b"1"], 0, os.RWF_DSYNC)


def allocate(root: Path, ctx: Ctx) -> None:
    """Change file sizes in every possible way."""
    fd = os.open(root / "file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 10, 90)
    os.write(fd, b"x" * 50)
    os.ftruncate(fd, 20)
    os.truncate(root / "file", 30)
    os.close(os.open(root / "file", os.O_WRONLY | os.O_TRUNC))
    os.close(os.open(root / "file", os.O_WRONLY | os.O_CREAT))  # it is there: nothing changes


def name_nothing(root: Path, ctx: Ctx) -> None:
    """Make calls with invalid names. They must fail as they do without the recorder."""
    for attempt in (
        lambda: os.open("", os.O_CREAT | os.O_WRONLY),
        lambda: os.rename("", root / "file"),  # noqa: PTH104
        lambda: os.mkdir(""),  # noqa: PTH102 - a Path is never empty
        lambda: os.open(root / "absent" / "file", os.O_CREAT | os.O_WRONLY),
    ):
        with contextlib.suppress(FileNotFoundError):
            attempt()


# ── marks, threads, processes ───────────────────────────────────────────────────────────────────────────────


def speak_and_write(root: Path, ctx: Ctx) -> None:
    """Print and write files in turn."""
    ctx.invoke("none")
    (root / "1").touch()
    ctx.invoke("one")
    (root / "2").touch()
    ctx.invoke("two")


def write_in_threads(root: Path, ctx: Ctx) -> None:
    """Make two hundred writes in four threads."""

    def write(number: int) -> None:
        with (root / str(number)).open("wb", buffering=0) as file:
            for _ in range(50):
                file.write(b"x")

    _in_threads(write)


def create_in_threads(root: Path, ctx: Ctx) -> None:
    """Let four threads create the same files; one of them succeeds for each file."""

    def create(number: int) -> None:
        for name in range(200):
            fd = os.open(root / str(name), os.O_WRONLY | os.O_CREAT)
            os.pwrite(fd, b"x", number)
            os.close(fd)

    _in_threads(create)


def _in_threads(work: object) -> None:
    threads = [Thread(target=work, args=(number,)) for number in range(4)]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def write_in_forks(root: Path, ctx: Ctx) -> None:
    """Fork a child between two calls of its parent. The child runs no new program."""
    (root / "parent").touch()
    child = os.fork()
    if not child:
        (root / "child").write_bytes(b"of the child")
        ctx.invoke("of the child")
        os._exit(0)
    os.waitpid(child, 0)
    (root / "behind").touch()


SHELL = "printf 12345 > one; (printf 67 > two); printf 8 >> one; mv two three"
"""Run a program of several processes."""


def write_in_programs(root: Path) -> None:
    """Start programs from programs with `python -c`. Each has the recorder in its environment."""
    (root / "before").touch()
    # The descriptor for marks is not inherited; in the child its number belongs to another file.
    inner = "import os, sys; [os.write(os.open(str(n), os.O_CREAT | os.O_WRONLY), b'data') for n in range(9)]"
    subprocess.run([sys.executable, "-c", inner], check=True, cwd=root)
    subprocess.run(["/bin/sh", "-c", SHELL], check=True, cwd=root)
    (root / "behind").touch()


# ── programs that end badly ─────────────────────────────────────────────────────────────────────────────────


def fail(root: Path, ctx: Ctx) -> None:
    """Print a word, then raise an exception."""
    ctx.invoke("said")
    raise ValueError("on purpose")


def hang(root: Path, ctx: Ctx) -> None:
    """Run for ever."""
    signal.pause()


# ── programs that meet errors ───────────────────────────────────────────────────────────────────────────────


def note_errors(root: Path, ctx: Ctx) -> None:
    """Make three writes of ten bytes with a sync each, and print the result of each."""
    file = os.open(root / "file", os.O_RDWR | os.O_CREAT)
    for number in range(3):
        _note(ctx, "write", lambda at=10 * number: os.pwrite(file, b"0123456789", at))
        _note(ctx, "sync", lambda: os.fdatasync(file))
    os.close(file)


def _note(ctx: Ctx, word: str, call: object) -> None:
    try:
        ctx.invoke(word, call())  # type: ignore[operator]
    except OSError as error:
        ctx.invoke(word, error.errno)


def each_kind(root: Path, ctx: Ctx) -> None:
    """Make one call of each kind that the laboratory can make fail."""
    os.chdir(root)
    file = os.open("file", os.O_RDWR | os.O_CREAT)
    os.write(file, b"data")
    os.ftruncate(file, 2)
    os.posix_fallocate(file, 0, 4)
    os.fsync(file)
    os.fdatasync(file)
    os.link("file", "link")
    os.rename("link", "other")  # noqa: PTH104
    os.unlink("other")  # noqa: PTH108
    os.mkdir("directory")  # noqa: PTH102
    os.rmdir("directory")  # noqa: PTH106
    os.symlink("file", "symbolic")  # noqa: PTH211


# ── beside the root ─────────────────────────────────────────────────────────────────────────────────────────


def write_elsewhere(root: Path, ctx: Ctx) -> None:
    """Write a file that is not below the root although its path begins with the root's."""
    Path(f"{root}-beside", "file").write_bytes(b"x")


def cross_the_border(root: Path, ctx: Ctx) -> None:
    """Move one file into the root and one out of it."""
    beside = Path(f"{root}-beside")
    (beside / "came").write_bytes(b"x")
    (beside / "came").rename(root / "came")
    (root / "went").write_bytes(b"y")
    (root / "went").rename(beside / "went")
