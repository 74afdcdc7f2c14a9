"""The recorder, as a library that is loaded in front of libc; built from `recorder.c` on first use."""

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
    from recovery.crashlab.tape import Call

_SOURCE = Path(__file__).parent / "recorder.c"
# A program that is compiled with checks calls other names: the library has those, and must not call them.
_FLAGS = ("-shared", "-fPIC", "-O2", "-U_FORTIFY_SOURCE")


class Action(IntEnum):
    """What happens at the chosen call; the numbers are the recorder's."""

    NOTHING = 0
    KILL_BEFORE = 1
    KILL_MIDDLE = 2  # half of a write's bytes are written; a kernel stops at a page, this one anywhere
    KILL_AFTER = 3
    CUT = 4  # the file system is shut down, and the process killed
    FAIL = 5
    SHORT = 6  # half of the bytes are written, and the write says so


KILLS = (Action.KILL_BEFORE, Action.KILL_MIDDLE, Action.KILL_AFTER)


@dataclass(frozen=True, slots=True)
class Orders:
    """What the recorder does to the call of that number, counted from 1.

    `fails` are the calls that go on failing behind a FAIL, all of them for ever. A SHORT write with an error
    lets the next write fail with it.
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


class _Orders(ctypes.Structure):
    _fields_ = (
        ("at", ctypes.c_long),
        ("action", ctypes.c_int),
        ("error", ctypes.c_int),
        ("last", ctypes.c_int),
        ("fails", ctypes.c_uint),
    )


@cache
def why_not() -> str:
    """Why nothing can be recorded here; nothing when it can."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_long) != 8:
        return "recording a program needs 64-bit Linux with glibc"
    if not _built().exists() and not shutil.which("cc"):
        return "recording a program needs a C compiler once, and there is no cc (on Debian: apt install gcc)"
    return ""


@cache
def library() -> Path:
    """The library, built if it is not there yet."""
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
    draft.replace(built)  # in one step: another process may want it too
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
    """Begins to record in this process, which was started with the library in front."""
    function = ctypes.CDLL(None).crashlab_arm
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(_Orders)]
    function.restype = None
    given = _Orders(orders.at, orders.action, orders.error, orders.last, orders.mask)
    function(os.path.realpath(os.fsencode(root)), os.fsencode(tape), marks, ctypes.byref(given))


def environment(root: Path, tape: Path, marks: int, orders: Orders) -> dict[str, str]:
    """The same for a program of its own: variables that it must be started with."""
    return {
        "LD_PRELOAD": str(library()),
        "CRASHLAB_ROOT": os.path.realpath(root),  # calls are told by where they come out
        "CRASHLAB_TAPE": str(tape),
        "CRASHLAB_MARKS": str(marks),
        "CRASHLAB_AT": str(orders.at),
        "CRASHLAB_ACTION": str(int(orders.action)),
        "CRASHLAB_ERROR": str(orders.error),
        "CRASHLAB_LAST": str(orders.last),
        "CRASHLAB_FAILS": str(orders.mask),
    }
