"""Measures the audit of a store from the page cache: 15 million entries of 100 B, compared with the index.

The store is filled through its public interface, a hundred ledgers in turn. Then it is audited repeatedly, by
two processes and by one, each time from the beginning: mark, ledger metadata, a copy of the index, every log,
every row of the index, the rules. It also prints the time for each kind of file, and the peak memory of a
process.

    python bench/audit_whole.py [--entries N] [--rounds N] [--striped]
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery import open_store
from recovery.audit.checks import all_rules
from recovery.audit.checks.entry_compare import CompareResult
from recovery.audit.checks.store_checks import StoreChecks
from recovery.audit.engines.local import Pool, Serial
from recovery.audit.engines.sql import DuckSql
from recovery.audit.engines.task import ReadThrottle, TaskResult
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.opening.open_async_store import open_async_store
from storage import Entry, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.audit.engines.task import TaskEngine
    from recovery.audit.model.audit_report import AuditReport

LEDGERS, BATCH, SIZE = 100, 1000, 100
_BAR_S = 2.0


def make(path: Path, entries: int) -> None:
    payloads = [bytes([number % 256]) * SIZE for number in range(BATCH)]
    with open_store(path, StoreConfig(checkpoint_interval_s=None)) as store:
        for number in range(entries // BATCH):
            store.ledger(number % LEDGERS).append_many(payloads)


async def make_striped(path: Path, entries: int) -> None:
    """Fill a store with two of every three entries of each ledger, as a bookie of an ensemble of three."""
    payload = bytes(SIZE)
    async with open_async_store(path, StoreConfig(checkpoint_interval_s=None)) as store:
        last = 3 * entries // (2 * LEDGERS)
        for begin in range(0, last, BATCH // LEDGERS):
            ids = [one for one in range(begin, min(last, begin + BATCH // LEDGERS)) if one % 3]
            made = (Entry(ledger, one, one - 1, one, payload) for ledger in range(LEDGERS) for one in ids)
            await asyncio.gather(*map(store.add, made))


def audit(path: Path, engine: TaskEngine, jobs: int) -> tuple[AuditReport, float]:
    start = time.perf_counter()
    report = run_audit(AuditRequest((str(path),), engine=engine, jobs=jobs))
    seconds = time.perf_counter() - start
    assert not [one for one in report.findings if one.is_wrong], report.findings[:3]
    return report, seconds


class TimedSerial:
    """An engine that runs one task after the other and adds up the time of each kind of task."""

    name = "apart"

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, tasks: Sequence[Any], watch: Callable[[int], None]) -> Iterator[TaskResult[Any]]:
        for number, task in enumerate(tasks):
            kind, start = type(task.task).__name__, time.perf_counter()
            part = task.run(ReadThrottle(watch))
            self.seconds[kind] = self.seconds.get(kind, 0.0) + time.perf_counter() - start
            yield TaskResult(number, part)

    def sql(self, rows: int) -> DuckSql:  # noqa: ARG002 - not used
        return DuckSql()


def memory_of(path: Path) -> int:
    """Return the peak memory in megabytes of a separate process that audits the store."""
    done = subprocess.run(  # noqa: S603 - a fixed command
        [sys.executable, __file__, "--one", str(path)], check=True, capture_output=True, text=True
    )
    return int(done.stdout) >> 10


def peak_memory() -> int:
    """Return the peak memory of this process in KiB, without that of the parent before the exec."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1])  # type: ignore[index]


def measure(path: Path, rounds: int) -> None:
    engines: dict[str, tuple[TaskEngine, int]] = {"two processes": (Pool(2), 2), "one process": (Serial(), 1)}
    report, _ = audit(path, Serial(), 1)
    laps = [{name: audit(path, *engine)[1] for name, engine in engines.items()} for _ in range(rounds)]
    coverage = report.stores[0].coverage
    print(f"{coverage.entries:,} entries, {coverage.index_rows:,} rows, {coverage.bytes / 1e9:.2f} GB")
    for name in engines:
        median = statistics.median(one[name] for one in laps)
        print(f"the whole store, {name}: {median:.2f} s, {coverage.bytes / median / 1e9:.2f} GB/s")
    apart = TimedSerial()
    audit(path, apart, 1)
    start = time.perf_counter()
    facts, tables = report.stores[0].facts, report.stores[0].tables
    assert tables is not None
    (answers,) = StoreChecks(tables.sql, [facts]).answers()
    all_rules.findings(facts, answers, CompareResult(live=report.stores[0].live_sizes))
    apart.seconds["rules"] = time.perf_counter() - start
    print("in one process, by what is read: " + ", ".join(f"{k} {s:.2f} s" for k, s in apart.seconds.items()))
    crossed = apart.seconds["ScanIndex"] + apart.seconds["rules"]
    print(f"rows read and compared with runs of the logs: {crossed:.2f} s")
    print(f"    bar {_BAR_S:g} s: {'met' if crossed < _BAR_S else 'MISSED'}")
    print(f"peak memory of an auditing process: {memory_of(path)} MB")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--entries", type=int, default=15_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument(
        "--directory", type=Path, help="directory for the store, which is removed at the end"
    )
    arguments.add_argument("--striped", action="store_true", help="two of every three entries of each ledger")
    arguments.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.one is not None:
        audit(options.one, Serial(), 2)
        print(peak_memory())
        return
    with tempfile.TemporaryDirectory(prefix="audit-whole-", dir=options.directory) as place:
        if options.striped:
            asyncio.run(make_striped(Path(place) / "store", options.entries))
        else:
            make(Path(place) / "store", options.entries)
        measure(Path(place) / "store", options.rounds)


if __name__ == "__main__":
    main()
