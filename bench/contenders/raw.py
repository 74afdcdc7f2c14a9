"""The raw limit as a contender: `raw.c`, compiled with the compiler of the system when it is first used."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

from contest.timing import Limit, Timed
from contest.workload import Work

from storage.entry import record_format
from storage.entry.position import JournalPosition
from storage.journal import format as journal_format
from storage.journal import seal
from storage.journal.seal import GroupFlag, Seal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contest.result import Figures

ALIGNMENT = 4096
_SOURCE = Path(__file__).parent / "raw.c"
_COMPILER = "cc"
_SEAL = journal_format.PREFIX_SIZE + seal.SIZE
_FLAGS = (
    *("-shared", "-fPIC", "-O2", "-pthread", "-Wall", "-Wextra"),
    *(f"-DALIGNMENT={ALIGNMENT}", f"-DSEAL={_SEAL}"),
)
_CPU = Path("/proc/cpuinfo")
NO_COMPILER = (
    "nothing is compared with the raw limit: there is no C compiler, cc (on Debian: apt install gcc)"
)


class _RawFileFields(ctypes.Structure):
    _fields_ = (("descriptor", ctypes.c_int), ("size", ctypes.c_uint64), ("end", ctypes.c_uint64))


class _RawWork(ctypes.Structure):
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


def why_unavailable() -> str:
    """Return why it cannot be built, or an empty string."""
    return "" if shutil.which(_COMPILER) else NO_COMPILER


def crc_flags() -> tuple[str, ...]:
    """Return the flags for the CRC-32C instruction of the processor, or none if it has no such one."""
    machine = platform.machine()
    if machine in {"aarch64", "arm64"}:
        return ("-march=armv8-a+crc",)
    has_one = machine == "x86_64" and (not _CPU.exists() or "sse4_2" in _CPU.read_text(encoding="utf-8"))
    return ("-msse4.2",) if has_one else ()


def library(directory: Path) -> Path:
    """Return the library in that directory. Build it if it is not there yet."""
    built = directory / "raw.so"
    if not built.exists():
        draft = directory / f"raw-{os.getpid()}.so"
        command = [_COMPILER, *_FLAGS, *crc_flags(), "-o", str(draft), str(_SOURCE)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - a fixed command
        if done.returncode:
            raise RuntimeError(f"raw.c does not compile:\n{done.stderr}")
        draft.replace(built)
    return built


class RawFile:
    """A file that was filled with zeros and synced, as a journal is, and is overwritten from its start."""

    def __init__(self, place: Path, file_size: int, futex: int = 0, **work: int) -> None:
        self._futex = futex
        self._work = Work(**work)
        self._library = ctypes.CDLL(str(library(place.parent.parent)))
        self._file = _RawFileFields()
        self._check(
            self._library.raw_open(ctypes.byref(self._file), os.fsencode(place / "raw"), _u64(file_size))
        )

    def prepare(self, size: int) -> None:
        """Do nothing, because the file is filled already."""

    def add(self, seconds: float, calls: int) -> Figures:
        """Add for `seconds`, with at most `calls` calls."""
        return self.timed(seconds, calls).figures(self._work.batch)

    def timed(self, seconds: float, calls: int) -> Timed:
        """Add in the same way, and return the duration of each call."""
        work = self._work
        each = -(-calls // work.writers)
        latencies = array("Q", bytes(8 * work.writers * each))
        data = group(work.payloads()) if work.writers == 1 else group_record(work.payloads()[0])
        place, _ = latencies.buffer_info()
        limit_ns = Limit(seconds, each).nanoseconds
        arguments = _RawWork(work.writers, self._futex, limit_ns, each, data, len(data), place, 0, 0)
        run = self._library.raw_alone if work.writers == 1 else self._library.raw_together
        self._check(run(ctypes.byref(self._file), ctypes.byref(arguments)))
        return Timed(latencies[: arguments.made], arguments.elapsed_ns)

    def close(self) -> None:
        self._check(self._library.raw_close(ctypes.byref(self._file)))

    def _check(self, error: int) -> None:
        if error:
            raise OSError(-error, os.strerror(-error))


def _u64(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)


def group_record(payload: bytes) -> bytes:
    """Return the record of an entry in a journal."""
    return record_format.encode_front(1, 0, -1, len(payload), payload) + payload


def group(payloads: Sequence[bytes]) -> bytes:
    """Return the bytes that a store writes to its journal for entries that are added together."""
    records = [*map(group_record, payloads)]
    flags = GroupFlag.ATOMIC if len(payloads) > 1 else GroupFlag.NONE
    one = Seal(1, 0, 1, ALIGNMENT, JournalPosition(1, ALIGNMENT), len(payloads), flags)
    return seal.encode_group(records, sum(map(len, records)), one, ALIGNMENT)
