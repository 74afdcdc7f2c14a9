"""Resources that this process has used, and waiting until its background work has ended."""

from __future__ import annotations

import os
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_KIB = 1 << 10
_SAMPLE_S = 0.03
_BUSY_SHARE = 0.1
_SETTLE_TIMEOUT_S = 60.0
_SECTORS_WRITTEN = 9
_SECTOR = 512


def spent() -> dict[str, float]:
    """Return peak memory, bytes written if the system reports them, and CPU seconds."""
    return {"peak_memory": peak_memory(), "written": written(), "cpu": time.process_time()}


def written() -> int:
    """Return the bytes that this process has passed to write calls, or 0 if the system does not report them.

    `write_bytes` is not used. It counts pages that become dirty, and a kernel with large folios counts up to
    two megabytes for each page that is overwritten, although only one page goes to the disk.
    """
    with suppress(OSError):
        for line in Path("/proc/self/io").read_text().splitlines():
            if line.startswith("wchar:"):
                return int(line.split()[1])
    return 0


def disk_written(path: Path) -> int:
    """Return the bytes that all processes have written to the disk of the path, or 0 if not reported."""
    device = path.stat().st_dev
    number = [str(os.major(device)), str(os.minor(device))]
    with suppress(OSError):
        for line in Path("/proc/diskstats").read_text().splitlines():
            if (fields := line.split())[:2] == number:
                return int(fields[_SECTORS_WRITTEN]) * _SECTOR
    return 0


def settle() -> float:
    """Wait until background work has ended. Return the seconds that it took.

    Background work after the turn of a contender must not fall into the turn of another one.
    """
    start = time.monotonic()
    while time.monotonic() - start < _SETTLE_TIMEOUT_S:
        before = _Activity.now()
        time.sleep(_SAMPLE_S)
        if _Activity.now().is_at_rest_since(before):
            break
    return time.monotonic() - start


@dataclass(frozen=True, slots=True)
class _Activity:
    written: int
    cpu: float

    @classmethod
    def now(cls) -> _Activity:
        return cls(written(), time.process_time())

    def is_at_rest_since(self, before: _Activity) -> bool:
        return self.written == before.written and self.cpu - before.cpu < _BUSY_SHARE * _SAMPLE_S


def peak_memory() -> int:
    """Return the peak memory of this process in bytes."""
    # Prefer VmHWM, because `getrusage` includes the memory of the parent, of which the process began as a
    # copy.
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * _KIB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB
