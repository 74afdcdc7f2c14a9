"""Compares the audit's kernel with C: one process reads entry logs, verifies them and returns runs.

The C function `raw_records` in raw.c goes from record to record and compares the CRC-32C of each, computed
with the instruction of the processor. A loop in Python does the same with the crc32c package. Both only
verify; the kernel also makes runs and fingerprints. All files are in the page cache, and the contenders take
turns in each round. Rates are by processor time, so that other programs do not affect them. A share is the
median of the shares of the rounds.

    make bench-audit                       python bench/audit_kernel.py --quick
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING

from contenders import raw
from contenders.raw_scan import why_unavailable
from crc32c import crc32c
from studies import audit_sample_logs
from studies.audit_sample_logs import LogShape

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.task import ReadThrottle
from recovery.audit.scan.entry_log import ScanLog
from storage.disk.posix import open_file
from storage.entry.format import HEAD
from storage.entry.model import DigestType
from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHAPES = (
    LogShape("1 KB", 1024, 1025, 0.85),
    LogShape("100 B", 100, 101, 0.3),
    LogShape("50-2000 B", 50, 2001),
    LogShape("1 KB, sorted", 1024, 1025, is_sorted=True),
    LogShape("100 B, sorted", 100, 101, is_sorted=True),
)
_BLOCK = 2 << 20
_LOOP_SIZE = 64 << 20
"""The loop is slow, so a part of the log is enough."""

_MEMORY_MAX = 300 << 20
_STATUS = Path("/proc/self/status")


def kernel(path: Path) -> float:
    """Return the bytes per second of the kernel."""
    size = path.stat().st_size
    task = ScanLog(str(path), 1, 0, size, DigestPolicy(presumed=DigestType.CRC32C))
    start = time.process_time()
    part = task.run(ReadThrottle())
    seconds = time.process_time() - start
    assert part.exit == size, part.stop
    assert not part.flaws, part.flaws[:3]
    return size / seconds


def in_c(path: Path, library: ctypes.CDLL) -> float:
    """Return the bytes per second of the C function."""
    elapsed, count, wrong = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    results = (ctypes.byref(elapsed), ctypes.byref(count), ctypes.byref(wrong))
    start = time.process_time()
    error = library.raw_records(os.fsencode(path), ctypes.c_uint64(_BLOCK), *results)
    seconds = time.process_time() - start
    assert not error, os.strerror(-error)
    assert count.value, "no records"
    assert not wrong.value, "wrong digests"
    return path.stat().st_size / seconds


def in_a_loop(path: Path) -> float:
    """Return the bytes per second of the Python loop."""
    seen: dict[int, int] = {}
    end = min(path.stat().st_size, _LOOP_SIZE)
    at, start = HEADER_SIZE, time.process_time()
    with open_file(path) as file:
        while at < end:
            block = file.read(at, _BLOCK)
            taken = loop_over(memoryview(block), seen)
            if not taken:
                break
            at += taken
    return at / (time.process_time() - start)


def loop_over(block: memoryview, seen: dict[int, int]) -> int:
    """Verify each complete record in the block. Return the offset of the first incomplete one."""
    at, size = 0, len(block)
    while size - at >= 4:
        end = at + 4 + int.from_bytes(block[at : at + 4], "big")
        if end > size:
            break
        ledger_id, _, _, _ = HEAD.unpack_from(block, at + 4)
        checksum = crc32c(block[at + 40 : end], crc32c(block[at + 4 : at + 36]))
        assert checksum == int.from_bytes(block[at + 36 : at + 40], "big")
        seen[ledger_id] = seen.get(ledger_id, 0) + 1
        at = end
    return at


def memory_of(path: Path) -> int:
    """Return the peak memory of a separate process that scans the log."""
    done = subprocess.run([sys.executable, __file__, "--one", str(path)], check=True, capture_output=True)  # noqa: S603 - a fixed command
    return int(done.stdout)


def _most_memory() -> int:
    # Prefer VmHWM, because the other figure includes the memory of the parent process.
    if _STATUS.exists():
        peak = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) << 10
    return getrusage(RUSAGE_SELF).ru_maxrss << 10


def row(shape: LogShape, path: Path, rounds: int, library: ctypes.CDLL) -> str:
    """Measure one kind of log, and return its line of the table."""
    contenders: Sequence[Callable[[], float]] = (
        lambda: kernel(path),
        lambda: in_c(path, library),
        lambda: in_a_loop(path),
    )
    for contender in contenders:
        contender()
    laps = [[contender() for contender in contenders] for _ in range(rounds)]
    ours, c, loop = map(statistics.median, zip(*laps, strict=True))
    share = statistics.median(one[0] / one[1] for one in laps)
    bar = "" if shape.floor is None else f"{shape.floor} {'met' if share >= shape.floor else 'MISSED'}"
    memory = memory_of(path)
    too_much = " MISSED" if memory > _MEMORY_MAX else ""
    rates = f"{ours / 1e9:7.2f} {c / 1e9:7.2f} {loop / 1e9:7.2f}"
    return (
        f"{shape.name:15} {rates}   {share:5.2f} {bar:12} {ours / loop:6.1f}   {memory >> 20:6} MB{too_much}"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--quick", action="store_true", help="small logs, three rounds")
    arguments.add_argument("--size", type=int, default=2 << 30, help="bytes of all logs together")
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument(
        "--directory", type=Path, help="directory for the logs, which are removed at the end"
    )
    arguments.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.one is not None:
        kernel(options.one)
        print(_most_memory())
        return
    if why_unavailable():
        sys.exit(why_unavailable())
    size, rounds = (200 << 20, 3) if options.quick else (options.size, options.rounds)
    print("log                kernel       C    loop    of C bar        of loop     memory      (GB/s)")
    with tempfile.TemporaryDirectory(prefix="kernel-bench-", dir=options.directory) as place:
        library = ctypes.CDLL(str(raw.library(Path(place))))
        for shape in SHAPES:
            path = Path(place) / "1.log"
            audit_sample_logs.write(path, shape, size // len(SHAPES))
            print(row(shape, path, rounds, library), flush=True)


if __name__ == "__main__":
    main()
