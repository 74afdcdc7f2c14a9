"""The recorder: a library that is preloaded before libc. It is compiled from `recorder.c` on first use."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.crashlab.record.tape import Call

_SOURCE = Path(__file__).parent / "recorder.c"
# With fortification a program calls other functions. The library defines them, and must not call them itself.
_FLAGS = ("-shared", "-fPIC", "-O2", "-U_FORTIFY_SOURCE")


class Action(IntEnum):
    """An action of the recorder at the chosen call. The numbers are those of the recorder."""

    NOTHING = 0
    KILL_BEFORE = 1
    KILL_MIDDLE = 2  # half of a write's bytes are written; a kernel stops only at a page, this stops anywhere
    KILL_AFTER = 3
    CUT = 4  # the file system is shut down, and the process killed
    FAIL = 5
    SHORT = 6  # half of the bytes are written, and the write returns their number


KILLS = (Action.KILL_BEFORE, Action.KILL_MIDDLE, Action.KILL_AFTER)


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders to the recorder: an action at the call with that number, counted from 1.

    `fails` are the kinds of calls that go on failing after a FAIL. After a SHORT write with an error, the
    next write fails with that error.
    """

    at: int = 0
    action: Action = Action.NOTHING
    error: int = 0
    fails: frozenset[Call] = frozenset()

    @property
    def mask(self) -> int:
        return sum(1 << call for call in self.fails)

    @property
    def last(self) -> int:
        return 2**31 - 1 if self.fails else self.at


class _SharedOrders(ctypes.Structure):
    _fields_ = (
        ("at", ctypes.c_long),
        ("action", ctypes.c_int),
        ("error", ctypes.c_int),
        ("last", ctypes.c_int),
        ("fails", ctypes.c_uint),
    )


@cache
def why_not() -> str:
    """Return why nothing can be recorded here; "" if it can."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_long) != 8:
        return "recording a program needs 64-bit Linux with glibc"
    if not _built().exists() and not shutil.which("cc"):
        return "recording a program needs a C compiler once, and there is no cc (on Debian: apt install gcc)"
    return ""


@cache
def library() -> Path:
    """Return the path of the library; compile it if it is not there yet."""
    if why := why_not():
        raise RuntimeError(why)
    built = _built()
    if built.exists():
        return built
    draft = Path(tempfile.mkdtemp(dir=built.parent)) / built.name
    result = subprocess.run(
        ["cc", *_FLAGS, "-o", str(draft), str(_SOURCE)], check=False, capture_output=True, text=True
    )
    if result.returncode:
        raise RuntimeError(f"the recorder does not compile:\n{result.stderr}")
    draft.replace(built)  # in one step, because another process may build it at the same time
    draft.parent.rmdir()
    return built


def _built() -> Path:
    source = _SOURCE.read_bytes() + "\0".join((*_FLAGS, platform.machine())).encode()
    name = f"recorder-{blake2b(source, digest_size=8).hexdigest()}.so"
    return _home() / name


@cache
def _home() -> Path:
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ledgerstore"
    try:
        cache_home.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="recorder-"))
    return cache_home if os.access(cache_home, os.W_OK) else Path(tempfile.mkdtemp(prefix="recorder-"))


def arm(root: Path, tape: Path, marks: int, orders: Orders) -> None:
    """Begin to record in this process, which was started with the library preloaded."""
    function = ctypes.CDLL(None).crashlab_arm
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(_SharedOrders)]
    function.restype = None
    given = _SharedOrders(orders.at, orders.action, orders.error, orders.last, orders.mask)
    function(os.path.realpath(os.fsencode(root)), os.fsencode(tape), marks, ctypes.byref(given))


def environment(root: Path, tape: Path, marks: int, orders: Orders) -> dict[str, str]:
    """Return the environment with which a program must be started to be recorded."""
    return {
        "LD_PRELOAD": str(library()),
        "CRASHLAB_ROOT": os.path.realpath(root),  # the recorder compares resolved paths
        "CRASHLAB_TAPE": str(tape),
        "CRASHLAB_MARKS": str(marks),
        "CRASHLAB_AT": str(orders.at),
        "CRASHLAB_ACTION": str(int(orders.action)),
        "CRASHLAB_ERROR": str(orders.error),
        "CRASHLAB_LAST": str(orders.last),
        "CRASHLAB_FAILS": str(orders.mask),
    }
