"""What this process has spent, and when it has come to rest."""

from __future__ import annotations

import os
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_KIB = 1 << 10
_LOOK_S = 0.03
_BUSY_SHARE = 0.1
_PATIENCE_S = 60.0
_SECTORS_WRITTEN = 9
_SECTOR = 512


def spent() -> dict[str, float]:
    """Memory at its highest, bytes written (where the system tells), and CPU seconds."""
    return {"peak_memory": peak_memory(), "written": written(), "cpu": time.process_time()}


def written() -> int:
    """Bytes that this process has handed to the system to be written; 0 if the system does not tell.

    Not its `write_bytes`, which says what has become dirty: there a kernel with large folios counts up to
    two megabytes for every page that is written over, though one page goes to the disk.
    """
    with suppress(OSError):
        for line in Path("/proc/self/io").read_text().splitlines():
            if line.startswith("wchar:"):
                return int(line.split()[1])
    return 0


def disk_written(path: Path) -> int:
    """Bytes that anybody has written to the disk that has the path; 0 if the system does not tell."""
    device = path.stat().st_dev
    number = [str(os.major(device)), str(os.minor(device))]
    with suppress(OSError):
        for line in Path("/proc/diskstats").read_text().splitlines():
            if (fields := line.split())[:2] == number:
                return int(fields[_SECTORS_WRITTEN]) * _SECTOR
    return 0


def settle() -> float:
    """Waits until background work has come to rest; how long that took, in seconds.

    What a contender still has to do after its turn must not fall into the turn of another.
    """
    start = time.monotonic()
    while time.monotonic() - start < _PATIENCE_S:
        before = _Look.now()
        time.sleep(_LOOK_S)
        if _Look.now().is_at_rest_since(before):
            break
    return time.monotonic() - start


@dataclass(frozen=True, slots=True)
class _Look:
    written: int
    cpu: float

    @classmethod
    def now(cls) -> _Look:
        return cls(written(), time.process_time())

    def is_at_rest_since(self, before: _Look) -> bool:
        return self.written == before.written and self.cpu - before.cpu < _BUSY_SHARE * _LOOK_S


def peak_memory() -> int:
    """The most memory this program has held at once, in bytes."""
    # Asked first: what `getrusage` says includes the parent, of whose memory the process began as a copy.
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * _KIB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB
