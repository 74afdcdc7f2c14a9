"""Little programs that change files, for trying the killer itself."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import lmdb

if TYPE_CHECKING:
    from kill_server import Ack


def every_call(root: Path, ack: Ack) -> None:
    """Each call that Python, or LMDB below it, can make to change a file or a name."""
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


def speak_and_write(root: Path, ack: Ack) -> None:
    """A line, a file, a line, a file, a line."""
    ack("none")
    (root / "1").touch()
    ack("one")
    (root / "2").touch()
    ack("two")


def write_in_threads(root: Path, ack: Ack) -> None:
    """Two hundred writes of four threads."""

    def write(number: int) -> None:
        with (root / str(number)).open("wb", buffering=0) as file:
            for _ in range(50):
                file.write(b"x")

    threads = [Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def fail(root: Path, ack: Ack) -> None:
    """An exception after a line."""
    ack("said")
    raise ValueError("on purpose")


def hang(root: Path, ack: Ack) -> None:
    """Never ends."""
    signal.pause()


def write_ten_bytes(root: Path, ack: Ack, verb: str) -> None:
    """One write of ten bytes by that call."""
    ten, source = b"0123456789", os.open(root / "source", os.O_RDWR | os.O_CREAT)
    os.write(source, ten)
    os.lseek(source, 0, os.SEEK_SET)
    file = os.open(root / "file", os.O_RDWR | os.O_CREAT)
    if verb == "write":
        os.write(file, ten)
    elif verb == "pwrite":
        os.pwrite(file, ten, 0)
    elif verb == "writev":
        os.writev(file, [ten[:3], ten[3:7], ten[7:]])
    elif verb == "pwritev":
        os.pwritev(file, [ten[:3], ten[3:7], ten[7:]], 0)
    elif verb == "sendfile":
        os.sendfile(file, source, 0, 10)
    elif verb == "copy_file_range":
        os.copy_file_range(source, file, 10, 0)


def write_elsewhere(root: Path, ack: Ack, elsewhere: str) -> None:
    """A file, not below the root, though its name begins like the root's."""
    (Path(elsewhere) / "file").write_bytes(b"x")


def remember_interruptions(root: Path, ack: Ack) -> bool:
    """A recovery that shows for ever whether one before it was interrupted."""
    if (root / "began").exists():
        (root / "interrupted").touch()
    (root / "began").touch()
    (root / "began").unlink()
    return (root / "interrupted").exists()


def nothing(root: Path, ack: Ack) -> None:
    """Nothing at all."""
