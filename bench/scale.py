"""Measures costs that must not grow with the number of waiting readers, ledgers and entries.

python bench/scale.py [--only ROW ...] [--rounds N] [--quick] [--json FILE] [--strict] [--list]

Each row asks processes of their own (`studies/scale_contenders.py`) in turns, round by round, and compares
what happened within one round; the table has medians of the rounds. With `--strict` it ends with 1 if a bar
is missed.
"""

from __future__ import annotations

import argparse
import json
import operator
import statistics
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from contest.contender_process import Contender, ContenderProcess
from contest.machine import busy, machine
from contest.provenance import provenance
from contest.scratch_directory import scratch
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from _typeshed import DataclassInstance
    from contest.result import Figures

Sizes = TypeVar("Sizes", bound="DataclassInstance")

_WIDTH = 130


@dataclass(frozen=True, slots=True)
class ScaleSizes:
    """The sizes of one run."""

    rounds: int = 5
    adds: int = 400
    threads: int = 128
    coroutines: int = 5_000
    entries: int = 400_000
    deletes: int = 400
    tombstones: tuple[int, ...] = (0, 20_000, 200_000)
    absent: int = 20_000
    grown: int = 1_000_000


QUICK = ScaleSizes(2, 50, 16, 200, 20_000, 20, (0, 2_000), 2_000, 20_000)
"""A quick run that only shows that the rows work, because the bars are for the full sizes."""


@dataclass(frozen=True, slots=True)
class ScaleResult:
    """One line of the table: a figure of each round, compared with a bar."""

    name: str
    title: str
    unit: str
    values: Sequence[float]
    least: float | None = None
    most: float | None = None
    others: Mapping[str, float] = field(default_factory=dict)
    """Medians of other figures of the same rounds."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def bar(self) -> str:
        return f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}" if self.most else ""

    @property
    def is_met(self) -> bool:
        above = self.least is None or self.median >= self.least
        return above and (self.most is None or self.median <= self.most)


def waiting_threads(sizes: ScaleSizes, place: Path) -> Iterator[ScaleResult]:
    """Compare an add while 128 threads wait for another ledger with an add without them."""
    half = sizes.threads // 2
    crowd = {"entries": 1_000, "confirmed": half, "following": half}
    rounds = _beside(
        sizes,
        place,
        "studies.scale_contenders:AddingBesideThreads",
        {**crowd, "confirmed": 0, "following": 0},
        crowd,
    )
    title = f"an add ÷ without, {sizes.threads} threads wait for another ledger"
    yield _over("threads", title, "us", rounds, 1.3)
    yield _over("threads", f"{title}, processor time", "cpu_us", rounds)


def waiting_coroutines(sizes: ScaleSizes, place: Path) -> Iterator[ScaleResult]:
    """Compare an add while 5,000 coroutines follow another ledger, by the clock and by processor time."""
    crowd = {"entries": 100, "following": sizes.coroutines}
    rounds = _beside(
        sizes, place, "studies.scale_contenders:AddingBesideCoroutines", {**crowd, "following": 0}, crowd
    )
    title = f"an awaited add ÷ without, {sizes.coroutines:,} coroutines follow another ledger"
    yield _over("coroutines", title, "us", rounds, 1.3)
    yield _over("coroutines", f"{title}, processor time", "cpu_us", rounds, 1.3)


def waiting_on_a_large_ledger(sizes: ScaleSizes, place: Path) -> Iterator[ScaleResult]:
    """Time adds while a thread begins to wait for the last add confirmed of a large ledger."""
    with ContenderProcess(
        Contender(name="ours", make="studies.scale_contenders:AddingWhileWaitBegins"), _made(place, "large")
    ) as process:
        laps = [process.ask("add", entries=sizes.entries, count=20) for _ in range(sizes.rounds)]
    title = f"longest of 20 adds when a thread begins to wait for a ledger of {sizes.entries:,} entries"
    yield ScaleResult("large", title, "ms", [lap["beside"] for lap in laps], others=_medians(laps))
    yield ScaleResult("large", f"{title}, ÷ alone", "×", [lap["beside"] / lap["alone"] for lap in laps])


def deletes(sizes: ScaleSizes, place: Path) -> Iterator[ScaleResult]:
    """Compare adds while another thread deletes 400 small ledgers with adds alone."""
    with ContenderProcess(
        Contender(name="ours", make="studies.scale_contenders:AddingBesideDeletes"), _made(place, "deletes")
    ) as process:
        laps = [process.ask("add", deletes=sizes.deletes, seconds=1.0) for _ in range(sizes.rounds)]
    title = f"adds/s beside {sizes.deletes} deletes ÷ alone"
    ratios = [lap["beside"] / lap["alone"] for lap in laps]
    yield ScaleResult("deletes", title, "×", ratios, least=0.6, others=_medians(laps))


def tombstones(sizes: ScaleSizes, place: Path) -> Iterator[ScaleResult]:
    """Time the opening of stores with many deleted ledgers."""
    with ExitStack() as end:
        processes = {}
        for count in sizes.tombstones:
            one = Contender(
                name=f"{count}",
                make="studies.scale_contenders:OpeningWithTombstones",
                settings={"deleted": count},
            )
            processes[count] = end.enter_context(ContenderProcess(one, _made(place, f"deleted-{count}")))
            processes[count].ask("make")
            processes[count].stop()
        laps: list[dict[int, float]] = []
        for _ in range(sizes.rounds):
            laps.append({})
            for count, process in processes.items():
                laps[-1][count] = process.ask("open")["seconds"]
                process.stop()
    for count in sizes.tombstones:
        most = 0.5 if count == sizes.tombstones[-1] else None
        title = f"opening a store of {count:,} deleted ledgers"
        yield ScaleResult("tombstones", title, "s", [lap[count] for lap in laps], most=most)


def absent(sizes: ScaleSizes, place: Path) -> Iterator[ScaleResult]:
    """Measure the memory that stays occupied after reads of ledgers that do not exist."""
    for how, title in (("traced", "objects"), ("resident", "resident memory")):
        values = []
        for number in range(sizes.rounds):
            one = Contender(name=how, make="studies.scale_contenders:ReadingAbsentLedgers")
            with ContenderProcess(one, _made(place, f"absent-{how}-{number}")) as process:
                values.append(process.ask(how, count=sizes.absent)["bytes"] / 1024)
        title = f"growth after reading {sizes.absent:,} absent ledgers, {title}"
        yield ScaleResult("absent", title, "KiB", values, most=256)


def confirmed(sizes: ScaleSizes, place: Path) -> Iterator[ScaleResult]:
    """Time the last add confirmed of a ledger that has grown since the previous call."""
    with ContenderProcess(
        Contender(name="ours", make="studies.scale_contenders:ConfirmingAfterGrowth"), _made(place, "growing")
    ) as process:
        laps = [process.ask("confirm", more=sizes.grown) for _ in range(sizes.rounds)]
    title = f"last_add_confirmed after {sizes.grown:,} more entries"
    yield ScaleResult("confirmed", title, "ms", [lap["ms"] for lap in laps], most=1.0, others=_medians(laps))


ROWS: Mapping[str, Callable[[ScaleSizes, Path], Iterator[ScaleResult]]] = {
    "threads": waiting_threads,
    "coroutines": waiting_coroutines,
    "large": waiting_on_a_large_ledger,
    "deletes": deletes,
    "tombstones": tombstones,
    "absent": absent,
    "confirmed": confirmed,
}


def _beside(
    sizes: ScaleSizes, place: Path, make: str, without: Mapping[str, int], crowd: Mapping[str, int]
) -> list[dict[str, Figures]]:
    """Time adds with and without waiting readers, in two processes that take turns."""
    both = {"without": without, "with": crowd}
    with ExitStack() as end:
        processes = [
            end.enter_context(
                ContenderProcess(Contender(name=name, make=make, settings=settings), _made(place, name))
            )
            for name, settings in both.items()
        ]
        for process in processes:
            process.ask("add", count=sizes.adds)
        laps = []
        for _ in range(sizes.rounds):
            laps.append({process.name: process.ask("add", count=sizes.adds) for process in processes})
            processes.reverse()
    return laps


def _over(
    name: str, title: str, figure: str, rounds: Sequence[Mapping[str, Figures]], most: float | None = None
) -> ScaleResult:
    ratios = [lap["with"][figure] / lap["without"][figure] for lap in rounds]
    others = {
        f"{which} {key}": statistics.median(lap[which][key] for lap in rounds)
        for which in ("without", "with")
        for key in rounds[0][which]
    }
    return ScaleResult(name, title, "×", ratios, most=most, others=others)


def _medians(laps: Sequence[Figures]) -> dict[str, float]:
    return {key: statistics.median(map(operator.itemgetter(key), laps)) for key in laps[0]}


def _made(place: Path, name: str) -> Path:
    made = place / name
    made.mkdir()
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the selected rows. Return 1 if a bar is missed in a strict run, otherwise 0."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(ROWS))
        return 0
    sizes = QUICK if options.quick else ScaleSizes()
    sizes = ScaleSizes(**{**asdict(sizes), "rounds": options.rounds or sizes.rounds})
    return run_rows(ROWS, sizes, options)


def run_rows(
    rows: Mapping[str, Callable[[Sizes, Path], Iterator[ScaleResult]]],
    sizes: Sizes,
    options: argparse.Namespace,
) -> int:
    """Measure the selected rows, show them, and write them as JSON. Return the exit code."""
    report = {**provenance(), "machine": machine(), "effort": asdict(sizes)}
    found: list[ScaleResult] = []
    for name in options.only or rows:
        print(f"{name} …", file=sys.stderr)
        with scratch(Path.cwd()) as place:
            found += rows[name](sizes, place)
    show(found)
    if options.json:
        figures = [{**asdict(one), "median": one.median, "met": one.is_met} for one in found]
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**report, "rows": figures}, indent=2) + "\n", encoding="utf-8")
    return 1 if options.strict and not all(one.is_met for one in found) else 0


def show(found: Sequence[ScaleResult]) -> None:
    table = Table("row", "median", "rounds", "bar", "", title=busy() or None)
    for one in found:
        spread = f"{min(one.values):.3g} … {max(one.values):.3g}"
        verdict = "" if not one.bar else "met" if one.is_met else "MISSED"
        table.add_row(one.title, f"{one.median:.3g} {one.unit}", spread, one.bar, verdict)
    Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False).print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure costs that must not grow.")
    parser.add_argument(
        "--only", nargs="+", choices=ROWS, metavar="ROW", help="run only these rows; see --list"
    )
    parser.add_argument("--rounds", type=int, help="number of rounds; fewer than five mean little")
    parser.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every round, the machine and all sizes as JSON"
    )
    parser.add_argument("--strict", action="store_true", help="exit code 1 unless every bar is met")
    parser.add_argument("--list", action="store_true", help="list the names of all rows and exit")
    return parser


if __name__ == "__main__":
    sys.exit(main())
