"""Profiles adds and reads: the time of their parts, and what the slowest adds wait for.

    python bench/time_breakdown.py [--rounds N] [--quick]

First one writer: the time of the raw limit, and of our add with its sync, its write and its computation, in
rounds that take turns. Then coroutines and reads. Then batches during checkpoints: for the slowest
thousandth, the writes and syncs of other threads during the batch; and the speed of the raw limit while as
much is written beside it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from contest.scratch_directory import scratch
from rich.console import Console
from rich.table import Table
from studies.add_breakdown import coroutines, one_writer, share_of_raw
from studies.background_writes import raw_with_background_writes
from studies.read_breakdown import read_breakdown
from studies.slowest_batches import slowest_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from studies.add_breakdown import CallParts
    from studies.background_writes import WriteTimes
    from studies.slowest_batches import SlowBatch

_KIB = 1 << 10
_MIB = 1 << 20
_BATCHES = {"add, 1 KB": 1, "batch 64 × 1 KB": 64, "batch 1,000 × 1 KB": 1000}
_COROUTINES = 64
_WIDTH = 120
_HEAD = 4


def _show_parts(console: Console, rows: dict[str, list[CallParts]]) -> None:
    table = Table(title="microseconds per call, medians", title_justify="left")
    table.add_column("")
    for name in ("raw limit", "ours", "sync", "write", "computation", "write and sync ÷ raw"):
        table.add_column(name, justify="right")
    for name, found in rows.items():
        columns = (
            [one.raw for one in found],
            [one.ours for one in found],
            [one.sync for one in found],
            [one.write for one in found],
            [one.computed for one in found],
        )
        texts = [f"{statistics.median(column):.1f}" for column in columns]
        disk = statistics.median([(one.write + one.sync) / one.raw for one in found])
        table.add_row(name, *texts, f"{disk:.2f}")
    console.print(table)


def _show_reads(console: Console, found: dict[str, float]) -> None:
    table = Table(title="microseconds per read, 1 KB, warm, the best round", title_justify="left")
    table.add_column("")
    table.add_column("µs", justify="right")
    for name, microseconds in found.items():
        table.add_row(name, f"{microseconds:.2f}")
    console.print(table)


def _show_slowest(console: Console, percentiles: dict[str, float], found: Sequence[SlowBatch]) -> None:
    words = ", ".join(f"{name} {value:,.0f} µs" for name, value in percentiles.items())
    console.print(
        f"batches of 64 during checkpoints: {words}, {percentiles['p99.9'] / percentiles['p50']:.1f} × p50"
    )
    table = Table(title="the slowest thousandth, in microseconds", title_justify="left")
    for name in ("batch", "its own sync", "roll", "meanwhile in other threads"):
        table.add_column(name, justify="left" if name.startswith("mean") else "right")
    for one in found:
        most = sorted(one.beside.items(), key=lambda item: -item[1])[:_HEAD]
        beside = ", ".join(f"{what} {value:,.0f}" for what, value in most)
        own = (one.whole, one.own_sync, one.rolling)
        table.add_row(*(f"{value:,.0f}" for value in own), beside or "no file operation")
    console.print(table)


def _show_beside(console: Console, alone: WriteTimes, both: WriteTimes) -> None:
    share, tails = alone.mean / both.mean, [one.p999 / one.p50 for one in (alone, both)]
    console.print(
        f"the raw limit in batches of 64: {alone.mean:,.0f} µs, p99.9 {tails[0]:.1f} × p50; "
        f"while two files grow by as much: {both.mean:,.0f} µs, {share:.2f} of it, p99.9 {tails[1]:.1f} × p50"
    )


def main() -> None:
    words = "Profile adds and reads, and what the slowest adds wait for."
    parser = argparse.ArgumentParser(description=words)
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds for the medians")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work; only shows that it works")
    options = parser.parse_args()
    part = 10 if options.quick else 1
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    with scratch(Path.cwd()) as place:
        rows = {
            name: list(one_writer(place / name, batch, _KIB, options.rounds, 24 * _MIB // part))
            for name, batch in _BATCHES.items()
        }
        name = f"1 of {_COROUTINES} coroutines"
        rows[name] = list(coroutines(place / name, _COROUTINES, options.rounds, 24 * _MIB // part))
        _show_parts(console, rows)
        share = share_of_raw(place / "share", 200 // part, 100)
        console.print(
            f"an add of 1 KB without tracing, in turns of a hundred with the raw limit: {share:.2f} of it"
        )
        _show_reads(console, read_breakdown(place / "reads", options.rounds, 50_000 // part))
        _show_slowest(console, *slowest_batches(place / "slowest", 6000 // part))
        alone = raw_with_background_writes(place / "alone", 6000 // part, names=())
        _show_beside(console, alone, raw_with_background_writes(place / "beside", 6000 // part))


if __name__ == "__main__":
    main()
