"""The system calls of a volume that Python does not offer: mounts, loop devices, shutdown of a file system.

Linux with glibc or musl. Every function raises `OSError` if its call fails.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SHUTDOWN = 0x8004587D
_WITHOUT_LOG = 2
_GET_FREE_LOOP = 0x4C82
_CONFIGURE_LOOP = 0x4C0A
_CLEAR_LOOP = 0x4C01
_LOOP_CONFIG = struct.Struct("=II 40x 12x I 240x")  # descriptor, block size; of loop_info64 only the flags
_AUTO_CLEAR = 4
_NO_ATIME = 1024
_TRIES = 20


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(name: str, answer: int, about: object) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}", str(about))
    return answer


def _ioctl(fd: int, request: int, argument: object = None) -> int:
    call = _libc().ioctl
    call.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
    return int(call(fd, request, argument))


@contextmanager
def opened(path: Path | str, flags: int) -> Iterator[int]:
    """Open a descriptor that children do not inherit."""
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def mount(device: str, path: Path, kind: str, options: str) -> None:
    """Mount the file system of the device. Its log is replayed if it was not unmounted properly."""
    words = (device.encode(), os.fsencode(path), kind.encode())
    _checked("mount", _libc().mount(*words, ctypes.c_ulong(_NO_ATIME), options.encode()), device)


def unmount(path: Path) -> None:
    """Unmount the file system, which also drops it from memory."""
    _checked("umount", _libc().umount2(os.fsencode(path), 0), path)


def sync_volume(path: Path) -> None:
    """Make everything on the file system of this path durable."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        _checked("syncfs", _libc().syncfs(fd), path)


def shut_down(path: Path) -> None:
    """Shut the file system down: it writes nothing more, not even its log, as if the power had failed."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        _checked("FS_IOC_SHUTDOWN", _ioctl(fd, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG)), path)


def attach(image: int) -> tuple[str, int]:
    """Attach the image to a loop device. Return its name and a descriptor; closing it detaches the image."""
    with opened("/dev/loop-control", os.O_RDWR) as control:
        for _ in range(_TRIES):
            number = _checked("LOOP_CTL_GET_FREE", _ioctl(control, _GET_FREE_LOOP), "/dev/loop-control")
            if (device := _attached(f"/dev/loop{number}", image)) is not None:
                return f"/dev/loop{number}", device
    raise OSError(errno.EBUSY, "others took every free loop device", "/dev/loop-control")


def _attached(name: str, image: int) -> int | None:
    device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    if _ioctl(device, _CONFIGURE_LOOP, _LOOP_CONFIG.pack(image, 0, _AUTO_CLEAR)) == 0:
        return device
    number = ctypes.get_errno()
    os.close(device)
    if number == errno.EBUSY:  # another process took this device
        return None
    raise OSError(number, f"LOOP_CONFIGURE: {os.strerror(number)}", name)


def detach(device: int) -> None:
    """Detach the image, at the latest when no process holds the device any more."""
    try:
        _checked("LOOP_CLR_FD", _ioctl(device, _CLEAR_LOOP), device)
    finally:
        os.close(device)
