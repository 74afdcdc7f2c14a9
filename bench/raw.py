"""The raw limit as a contender: `raw.c`, built with the system's compiler when it is first used."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from timing import Limit, Timed
from work import Work

from storage.codec import journal, record, seal
from storage.codec.seal import GroupFlag, Seal
from storage.position import JournalPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from result import Figures

ALIGNMENT = 4096
_SOURCE = Path(__file__).parent / "raw.c"
_COMPILER = "cc"
_SEAL = journal.PREFIX_SIZE + seal.SIZE
_FLAGS = (
    *("-shared", "-fPIC", "-O2", "-pthread", "-Wall", "-Wextra"),
    *(f"-DALIGNMENT={ALIGNMENT}", f"-DSEAL={_SEAL}"),
)
_CPU = Path("/proc/cpuinfo")
NO_COMPILER = "nothing is held against the raw limit: there is no C compiler, cc (on Debian: apt install gcc)"


class _File(ctypes.Structure):
    _fields_ = (("descriptor", ctypes.c_int), ("size", ctypes.c_uint64), ("end", ctypes.c_uint64))


class _Work(ctypes.Structure):
    _fields_ = (
        ("threads", ctypes.c_uint64),
        ("futex", ctypes.c_uint64),
        ("limit_ns", ctypes.c_uint64),
        ("calls", ctypes.c_uint64),
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
        ("latencies", ctypes.c_void_p),
        ("made", ctypes.c_uint64),
        ("elapsed_ns", ctypes.c_uint64),
    )


def why_not() -> str:
    """Why it cannot be built; nothing when it can."""
    return "" if shutil.which(_COMPILER) else NO_COMPILER


def crc_flags() -> tuple[str, ...]:
    """What makes the compiler use the processor's instruction for CRC-32C; empty where it has none."""
    machine = platform.machine()
    if machine in {"aarch64", "arm64"}:
        return ("-march=armv8-a+crc",)
    has_one = machine == "x86_64" and (not _CPU.exists() or "sse4_2" in _CPU.read_text(encoding="utf-8"))
    return ("-msse4.2",) if has_one else ()


def library(directory: Path) -> Path:
    """The library in that directory, built if it is not there yet."""
    built = directory / "raw.so"
    if not built.exists():
        draft = directory / f"raw-{os.getpid()}.so"
        command = [_COMPILER, *_FLAGS, *crc_flags(), "-o", str(draft), str(_SOURCE)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own
        if done.returncode:
            raise RuntimeError(f"raw.c does not compile:\n{done.stderr}")
        draft.replace(built)
    return built


class RawFile:
    """A file that was filled with zeros and synced, as a journal is; written over from its start again."""

    def __init__(self, place: Path, file_size: int, futex: int = 0, **work: int) -> None:
        self._futex = futex
        self._work = Work(**work)
        self._library = ctypes.CDLL(str(library(place.parent.parent)))
        self._file = _File()
        self._check(
            self._library.raw_open(ctypes.byref(self._file), os.fsencode(place / "raw"), _u64(file_size))
        )

    def prepare(self, size: int) -> None:
        """There is nothing to do: the file is filled."""

    def add(self, seconds: float, calls: int) -> Figures:
        """Adds for so long, and so often at most."""
        return self.timed(seconds, calls).figures(self._work.batch)

    def timed(self, seconds: float, calls: int) -> Timed:
        """The same, with each call's time."""
        work = self._work
        each = -(-calls // work.writers)
        latencies = array("Q", bytes(8 * work.writers * each))
        data = group(work.payloads()) if work.writers == 1 else group_record(work.payloads()[0])
        place, _ = latencies.buffer_info()
        limit_ns = Limit(seconds, each).nanoseconds
        asked = _Work(work.writers, self._futex, limit_ns, each, data, len(data), place, 0, 0)
        run = self._library.raw_alone if work.writers == 1 else self._library.raw_together
        self._check(run(ctypes.byref(self._file), ctypes.byref(asked)))
        return Timed(latencies[: asked.made], asked.elapsed_ns)

    def close(self) -> None:
        self._check(self._library.raw_close(ctypes.byref(self._file)))

    def _check(self, error: int) -> None:
        if error:
            raise OSError(-error, os.strerror(-error))


def _u64(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)


def group_record(payload: bytes) -> bytes:
    """What one entry takes in a journal."""
    return record.encode_front(1, 0, -1, len(payload), payload) + payload


def group(payloads: Sequence[bytes]) -> bytes:
    """What the journal of a store is given for entries that are added at once."""
    records = map(group_record, payloads)
    flags = GroupFlag.ATOMIC if len(payloads) > 1 else GroupFlag.NONE
    one = Seal(1, 0, 1, ALIGNMENT, JournalPosition(1, ALIGNMENT), len(payloads), flags)
    return b"".join(seal.encode_group(records, one, ALIGNMENT))
