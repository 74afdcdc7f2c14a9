"""Compares the warm audit on Spark with two processes without Spark, and with a loop over records on Spark.

All files are in the page cache. Logs are written once and linked under other names until there are enough
bytes, because reading a link costs as much as reading a file. The contenders take turns in each round, and
the medians of their ratios are printed. The first measurement is the time from the start of the command to
its verdict on a store.

    python bench/audit_spark.py                 8 GB, some minutes
    python bench/audit_spark.py --quick         2 GB
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit_kernel import loop_over
from studies import audit_sample_logs
from studies.audit_sample_logs import LogShape

from recovery import open_store
from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.task import ReadThrottle
from recovery.audit.scan.entry_log import ScanLog
from storage import StoreConfig
from storage.disk.posix import open_file
from storage.entry.model import DigestType
from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.audit.engines.task import TaskEngine

GIB = 1 << 30
PROCESSES = 2
_BLOCK = 2 << 20
_SHARE_OF_LOCAL = 0.65
_VERDICT_S = 8.0


@dataclass(frozen=True, slots=True)
class LogRow:
    """A kind of log, and how many times as fast as the loop the audit must be."""

    shape: LogShape
    of_loop: float


ROWS = (LogRow(LogShape("1 KB", 1024, 1025), 5), LogRow(LogShape("100 B", 100, 101), 8))


@dataclass(frozen=True, slots=True)
class LoopLog:
    """A task that verifies record after record in Python."""

    path: str
    end: int

    @property
    def name(self) -> str:
        return self.path

    @property
    def size(self) -> int:
        return self.end

    def run(self, throttle: ReadThrottle) -> int:
        seen: dict[int, int] = {}
        at = HEADER_SIZE
        with open_file(self.path) as file:
            while at < self.end:
                taken = loop_over(memoryview(file.read(at, _BLOCK)), seen)
                if not taken:
                    break
                throttle.read(taken)
                at += taken
        return sum(seen.values())


def seconds_of(engine: TaskEngine, tasks: Sequence[Any]) -> float:
    start = time.perf_counter()
    ended = sum(1 for _ in engine.run(tasks, lambda _: None))
    assert ended == len(tasks)
    return time.perf_counter() - start


def _run(task: Any) -> Any:
    return task.run(ReadThrottle())


class Processes:
    """Two processes that have already started, like those of Spark, so that only the work is compared."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"))

    def seconds_of(self, tasks: Sequence[Any]) -> float:
        start = time.perf_counter()
        ended = sum(1 for _ in self._pool.map(_run, tasks))
        assert ended == len(tasks)
        return time.perf_counter() - start

    def close(self) -> None:
        self._pool.shutdown()


@contextmanager
def linked(shape: LogShape, size: int, place: Path) -> Iterator[list[Path]]:
    """Yield logs of one gibibyte each, `size` bytes in total, of which only two take space."""
    place.mkdir()
    originals = [place / f"{number:x}.log" for number in range(2)]
    for path in originals:
        audit_sample_logs.write(path, shape, GIB - (1 << 20))
    paths = list(originals)
    while len(paths) * GIB < size:
        path = place / f"{len(paths):x}.log"
        path.hardlink_to(originals[len(paths) % 2])
        paths.append(path)
    yield paths
    for path in paths:
        path.unlink()


def compare(row: LogRow, paths: Sequence[Path], rounds: int, spark: TaskEngine, processes: Processes) -> None:
    policy = DigestPolicy(presumed=DigestType.CRC32C)
    sizes = [path.stat().st_size for path in paths]
    scans = [
        ScanLog(str(path), number, 0, size, policy)
        for number, (path, size) in enumerate(zip(paths, sizes, strict=True))
    ]
    # The loop is slow, so a sixteenth of each log is enough.
    loops = [LoopLog(str(path), size // 16) for path, size in zip(paths, sizes, strict=True)]
    total = sum(sizes)
    contenders: dict[str, Callable[[], float]] = {
        "local": lambda: processes.seconds_of(scans),
        "spark": lambda: seconds_of(spark, scans),
        "loop": lambda: 16 * seconds_of(spark, loops),
    }
    for contender in contenders.values():
        contender()
    laps = [{name: contender() for name, contender in contenders.items()} for _ in range(rounds)]
    share = statistics.median(one["local"] / one["spark"] for one in laps)
    times = statistics.median(one["loop"] / one["spark"] for one in laps)
    rates = " ".join(
        f"{name} {total / statistics.median(one[name] for one in laps) / 1e9:5.2f} GB/s"
        for name in contenders
    )
    print(f"{row.shape.name:6} {total / GIB:.0f} GiB  {rates}", flush=True)
    _print_bar("Spark of two processes without it", share, _SHARE_OF_LOCAL)
    _print_bar("Spark of a loop over records on Spark", times, row.of_loop)


def _print_bar(what: str, figure: float, floor: float) -> None:
    print(
        f"       {what}: {figure:.2f} (floor {floor:g}, {'met' if figure >= floor else 'MISSED'})", flush=True
    )


# ── time from start to verdict ───────────────────────────────────────────────────────────────────────────


def make_store(path: Path, size: int) -> None:
    """Make a store of `size` bytes on disk, with entries of 1 KB in a hundred ledgers."""
    batch, ledgers = 1000, 100
    with open_store(path, StoreConfig(memtable_size_max=256 << 20, checkpoint_interval_s=None)) as store:
        for number in range(size // (batch << 10)):
            store.ledger(number % ledgers).append_many([bytes([number % 256]) * 1024] * batch)


def start_to_verdict(path: Path, rounds: int) -> None:
    taken = []
    for number in range(rounds + 1):
        out = path.parent / f"report{number}"
        command = [
            *(str(Path(sys.executable).parent / "ledgerstore"), "audit", str(path)),
            *("--engine", "spark", "--out", str(out)),
        ]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
        taken.append(time.perf_counter() - start)
        assert done.returncode == 0, done.stderr
    seconds = statistics.median(taken[1:])
    verdict = "met" if seconds < _VERDICT_S else "MISSED"
    print(f"from start to verdict, 2 GB, Spark: {seconds:.1f} s (bar {_VERDICT_S:g}, {verdict}); ", end="")
    print(f"the first run, which may have to write the class archive: {taken[0]:.1f} s", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--quick", action="store_true", help="2 GB, three rounds")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument(
        "--directory", type=Path, help="directory for the files, which are removed at the end"
    )
    arguments.add_argument("--only", choices=("scan", "verdict"), help="run only one half")
    options = arguments.parse_args()
    size, rounds = (2 * GIB, 3) if options.quick else (8 * GIB, options.rounds)
    with tempfile.TemporaryDirectory(prefix="audit-spark-", dir=options.directory) as place:
        if options.only != "scan":
            make_store(Path(place) / "store", 2 * GIB)
            start_to_verdict(Path(place) / "store", rounds)
        if options.only != "verdict":
            from recovery.audit.spark.engine import SparkEngine
            from recovery.audit.spark.session import open_session

            session, processes = open_session(f"local[{PROCESSES}]"), Processes()
            for number, row in enumerate(ROWS):
                with linked(row.shape, size, Path(place) / str(number)) as paths:
                    compare(row, paths, rounds, SparkEngine(session), processes)
            session.stop()
            processes.close()


if __name__ == "__main__":
    main()
