"""A whole store, warm: fifteen million entries of 100 B verified, and held against the index both ways.

The store is made by the store itself, a hundred ledgers in turn. Then it is looked at again and again, by
two processes and by one, each time from nothing: mark, rows, a copy of the index, every log, every row, the
rules. Beside it what each kind of file takes, and the most memory that a process holds.

    python bench/audit_whole.py [--entries N] [--rounds N]
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery import open_store
from recovery.audit.asked import Asked
from recovery.audit.inspect import inspect
from recovery.audit.local import Pool, Serial
from recovery.audit.task import Done, Pace
from recovery.verify import soundness
from recovery.verify.comparison import compared
from storage import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.audit.inspected import AuditReport
    from recovery.audit.task import Engine

LEDGERS, BATCH, SIZE = 100, 1000, 100
_BAR_S = 2.0


def make(path: Path, entries: int) -> None:
    payloads = [bytes([number % 256]) * SIZE for number in range(BATCH)]
    with open_store(path, StoreConfig(checkpoint_interval_s=None)) as store:
        for number in range(entries // BATCH):
            store.ledger(number % LEDGERS).append_many(payloads)


def look(path: Path, engine: Engine, jobs: int) -> tuple[AuditReport, float]:
    start = time.perf_counter()
    report = inspect(Asked((str(path),), engine=engine, jobs=jobs))
    seconds = time.perf_counter() - start
    assert not [one for one in report.findings if one.is_wrong], report.findings[:3]
    return report, seconds


class Apart:
    """One task after the other, and how long those of each kind take together."""

    name = "apart"

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, tasks: Sequence[Any], watch: Callable[[int], None]) -> Iterator[Done[Any]]:
        for number, task in enumerate(tasks):
            kind, start = type(task.task).__name__, time.perf_counter()
            part = task.run(Pace(watch))
            self.seconds[kind] = self.seconds.get(kind, 0.0) + time.perf_counter() - start
            yield Done(number, part)


def memory_of(path: Path) -> int:
    """Megabytes: the most that a process of its own holds that reads all of it."""
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, __file__, "--one", str(path)], check=True, capture_output=True, text=True
    )
    return int(done.stdout) >> 10


def most_held() -> int:
    """Of this process since its program began, in KiB: what it was before, it was by another's memory."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1])  # type: ignore[index]


def tell(path: Path, rounds: int) -> None:
    engines: dict[str, tuple[Engine, int]] = {"two processes": (Pool(2), 2), "one process": (Serial(), 1)}
    report, _ = look(path, Serial(), 1)
    played = [{name: look(path, *engine)[1] for name, engine in engines.items()} for _ in range(rounds)]
    coverage = report.stores[0].coverage
    print(f"{coverage.entries:,} entries, {coverage.index_rows:,} rows, {coverage.bytes / 1e9:.2f} GB")
    for name in engines:
        median = statistics.median(one[name] for one in played)
        print(f"all of it, {name}: {median:.2f} s, {coverage.bytes / median / 1e9:.2f} GB/s")
    apart = Apart()
    look(path, apart, 1)
    start = time.perf_counter()
    facts = report.stores[0].facts
    soundness.findings(facts, compared(facts))
    apart.seconds["rules"] = time.perf_counter() - start
    print("in one process, by what is read: " + ", ".join(f"{k} {s:.2f} s" for k, s in apart.seconds.items()))
    crossed = apart.seconds["ScanIndex"] + apart.seconds["rules"]
    print(f"rows read, and held against runs of the logs: {crossed:.2f} s")
    print(f"    bar {_BAR_S:g} s: {'met' if crossed < _BAR_S else 'MISSED'}")
    print(f"the most memory of a reading process: {memory_of(path)} MB")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--entries", type=int, default=15_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--directory", type=Path, help="where the store is made, and removed again")
    arguments.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    if asked.one is not None:
        look(asked.one, Serial(), 2)
        print(most_held())
        return
    with tempfile.TemporaryDirectory(prefix="audit-whole-", dir=asked.directory) as place:
        make(Path(place) / "store", asked.entries)
        tell(Path(place) / "store", asked.rounds)


if __name__ == "__main__":
    main()
