"""A whole store, warm: fifteen million entries of 100 B verified, and held against the index both ways.

The store is made by the store itself, a hundred ledgers in turn. Then it is looked at again and again, by
two processes and by one, each time from nothing: mark, rows, a copy of the index, every log, every row, the
rules. Beside it how long the rules alone take, and the most memory that a process of its own holds.

    python bench/audit_whole.py [--entries N] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import TYPE_CHECKING

from recovery import open_store
from recovery.audit.asked import Asked
from recovery.audit.inspect import inspect
from recovery.audit.local import Pool, Serial
from recovery.verify import soundness
from recovery.verify.index_rules import Drilled
from storage import StoreConfig

if TYPE_CHECKING:
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


def tell(path: Path, rounds: int) -> None:
    engines: dict[str, tuple[Engine, int]] = {"two processes": (Pool(2), 2), "one process": (Serial(), 1)}
    report, _ = look(path, Serial(), 1)
    played = [{name: look(path, *engine)[1] for name, engine in engines.items()} for _ in range(rounds)]
    coverage = report.stores[0].coverage
    print(f"{coverage.entries:,} entries, {coverage.index_rows:,} rows, {coverage.bytes / 1e9:.2f} GB")
    for name in engines:
        median = statistics.median(one[name] for one in played)
        print(f"{name}: {median:.2f} s, {coverage.bytes / median / 1e9:.2f} GB/s")
        if name == "two processes":
            print(f"    bar {_BAR_S:g} s: {'met' if median < _BAR_S else 'MISSED'}")
    start = time.perf_counter()
    soundness.findings(report.stores[0].facts, Drilled())
    print(f"the rules alone: {(time.perf_counter() - start) * 1000:.0f} ms")
    print(f"the most memory of a reading process: {getrusage(RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MB")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--entries", type=int, default=15_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--directory", type=Path, help="where the store is made, and removed again")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="audit-whole-", dir=asked.directory) as place:
        make(Path(place) / "store", asked.entries)
        tell(Path(place) / "store", asked.rounds)


if __name__ == "__main__":
    main()
