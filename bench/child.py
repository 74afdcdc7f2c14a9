"""What needs a process of its own: leaving a store as a crash does, and opening one in fresh memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from recovery.opening import open_store
from storage import StoreConfig

PAYLOAD = bytes(range(256)) * 4
_BATCH = 1000
_KIB = 1 << 10


@dataclass(frozen=True, slots=True)
class Opened:
    """What opening a store has cost a fresh process."""

    seconds: float
    bytes_replayed: int
    peak_memory: int


def leave_crashed(path: Path, size: int) -> None:
    """A store whose journals hold so many bytes of payload, and whose entry logs hold nothing."""
    _run("leave_crashed", str(path), str(size))


def opened(path: Path) -> Opened:
    """Opens the store with default settings, and closes it."""
    return Opened(**json.loads(_run("opened", str(path))))


def _run(*arguments: str) -> str:
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - our own


def _leave_crashed(path: str, size: int) -> None:
    config = StoreConfig(memtable_size_max=1 << 40, checkpoint_interval_s=None, idle_seal_s=None)
    ledger = open_store(path, config).ledger(1)
    batch = [PAYLOAD] * _BATCH
    for _ in range(-(-size // (_BATCH * len(PAYLOAD)))):
        ledger.append_many(batch)
    os._exit(0)  # without closing: nothing of it moves into an entry log


def _opened(path: str) -> None:
    start = time.perf_counter()
    with open_store(path) as store:
        seconds = time.perf_counter() - start
        peak = peak_memory()
    print(json.dumps(asdict(Opened(seconds, store.opened.bytes_replayed, peak))))


def peak_memory() -> int:
    """The most memory this program has held at once, in bytes."""
    # Asked first: what `getrusage` says includes the parent, of whose memory the process began as a copy.
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * _KIB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB


if __name__ == "__main__":
    match sys.argv[1:]:
        case "leave_crashed", path, size:
            _leave_crashed(path, int(size))
        case "opened", path:
            _opened(path)
