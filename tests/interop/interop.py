"""The proof by the real Apache BookKeeper: it reads what we write, and we read what it writes.

    python tests/interop/interop.py                 all of it, as `make interop` does
    python tests/interop/interop.py workload 17     one case again, as a difference names it: also `killed`,
                                                    `cut` and `history` (crash images), and `made`

Ours to theirs: stores that were closed, killed and torn, and crash images of the simulated disk, are listed by
BookKeeper's own scans and served by a real bookie, its index rebuilt by its own tools. Theirs to ours: seeded
workloads on a real bookie leave directories, clean or halted, which our side reads. See `compare.py` for what
exactly is held against what.
"""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import compare
import images
import made
import ours
import tears
import workloads
from jvm import MADE, BuildFailed, Driver, NotReached, build
from shown import BookieRefused, their_bookie, their_scans

from recovery import open_store
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shown import Access, Shown

WORKLOADS = range(60)
IMAGES = range(50)
DIRECTORIES = range(36)

_WORK = MADE / "work"
_KEPT = MADE / "kept"
_WORKERS = 2
_EVERY_S = 15.0
_DIFFERENCES_MAX = 10


@dataclass
class Figures:
    """What was held against each other."""

    bookkeeper: str = "?"
    workloads: int = 0
    images: int = 0
    directories: int = 0
    entries: int = 0
    refused: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"BookKeeper {self.bookkeeper} · {self.workloads} workloads · {self.images} crash images · "
            f"{self.directories} real directories · {self.entries:,} entries · {len(self.differences)} differences"
        )


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to be tried; `run` yields what differs, and puts what it makes into its directory."""

    kind: str
    seed: int
    run: Callable[[Bench], Iterator[str]]

    def __str__(self) -> str:
        return f"{self.kind} {self.seed}"


class Bench:
    """Where one case is tried."""

    def __init__(self, driver: Driver, case: Case, figures: Figures) -> None:
        self.driver = driver
        self.figures = figures
        self.directory = _WORK / f"{case.kind}-{case.seed}"
        self._copies = 0

    def __enter__(self) -> Bench:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def original(self) -> Path:
        """What is looked at, and never changed once it is made."""
        return self.directory / "original"

    def copy(self, of: Path | None = None) -> Path:
        """A copy that may be changed."""
        self._copies += 1
        copied = self.directory / f"copy{self._copies}"
        shutil.copytree(of or self.original, copied)
        return copied


# ── ours to theirs ────────────────────────────────────────────────────────────────────────────────────────


def workload(seed: int) -> Case:
    """A store of ours, in one of three ends."""
    end = (_closed, _killed, _torn)[seed % 3]
    return Case("workload", seed, lambda bench: end(bench, seed))


def _closed(bench: Bench, seed: int) -> Iterator[str]:
    known = workloads.play(bench.original, seed)
    yield from _as_it_lies(bench, seed, known, lost=set())


def _killed(bench: Bench, seed: int) -> Iterator[str]:
    known = workloads.kill(bench.original, seed)
    yield from _as_it_lies(bench, seed, known, lost=set())


def _torn(bench: Bench, seed: int) -> Iterator[str]:
    known = workloads.kill(bench.original, seed)
    yield from _as_it_lies(bench, seed, known, lost=tears.tear(bench.original, seed))


def _as_it_lies(
    bench: Bench, seed: int, known: workloads.Known, lost: set[tuple[int, int]]
) -> Iterator[str]:
    """The directory as the workload has left it, and again when our recovery has been over it."""
    accesses, config = workloads.accesses_of(seed), workloads.config_of(seed)
    recovered = bench.copy()
    with open_store(recovered, config) as store:
        shown, payloads = ours.of_store(store, accesses)
    yield from known.violations(payloads, lost)
    yield from _handed_over(bench, bench.original, shown, accesses, known.rewritten)
    yield from _handed_over(bench, recovered, shown, accesses, known.rewritten, is_closed=True)
    if workloads.keeps_all_journals(seed):
        yield from _replayed(bench, shown, accesses)
    bench.figures.workloads += 1


def _handed_over(
    bench: Bench,
    directory: Path,
    shown: Shown,
    accesses: Mapping[int, Access],
    rewritten: set[int],
    *,
    is_closed: bool = False,
) -> Iterator[str]:
    """A directory of ours, listed and served by theirs."""
    handed = bench.copy(directory)
    is_taken = ours.taken(directory, accesses)
    scans = their_scans(bench.driver, handed)
    yield from compare.scans(shown, scans, is_taken, rewritten)
    cut: compare.Copies = {} if is_closed else compare.copies_cut(scans, is_taken)
    try:
        theirs = their_bookie(bench.driver, handed, accesses, rebuild=True)
    except BookieRefused:
        # Its rebuilt index has no keys. A journal begins with those of its ledgers, the mark may lie behind them.
        bench.figures.refused.append(bench.directory.name + (" closed" if is_closed else ""))
        handed = bench.copy(directory)
        _move_mark_to_start(handed)
        theirs = their_bookie(bench.driver, handed, accesses, rebuild=True)
    yield from compare.served(shown, theirs, cut)
    bench.figures.entries += sum(len(ledger.entries) for ledger in theirs.values())


def _move_mark_to_start(directory: Path) -> None:
    path = directory / "ledgers" / "current" / "lastMark"
    mark = path.read_bytes()
    path.write_bytes(mark[:8] + bytes(8) + mark[16:])


def _replayed(bench: Bench, shown: Shown, accesses: Mapping[int, Access]) -> Iterator[str]:
    """The journals alone, from the first on: then a bookie has everything from their records, keys too."""
    handed = bench.copy()
    current = handed / "ledgers" / "current"
    shutil.rmtree(current)
    current.mkdir()
    cut = compare.copies_cut(their_scans(bench.driver, handed), ours.taken(bench.original, accesses))
    theirs = their_bookie(bench.driver, handed, accesses, keys=True)
    yield from compare.served(shown, theirs, cut)
    yield from compare.facts(shown, theirs, accesses)


def image(kind: str, seed: int) -> Case:
    """A crash image."""
    return Case(kind, seed, lambda bench: _image(bench, images.KINDS[kind](seed)))


def _image(bench: Bench, found: images.Image) -> Iterator[str]:
    images.materialise(found.disk, bench.original)
    yield from (f"our own recovery: {violation}" for violation in found.violations)
    yield from _handed_over(
        bench, bench.original, found.shown, images.ACCESSES, images.REWRITTEN, is_closed=found.is_closed
    )
    bench.figures.images += 1


# ── theirs to ours ────────────────────────────────────────────────────────────────────────────────────────


def real(seed: int) -> Case:
    """A directory of a real bookie."""
    return Case("made", seed, lambda bench: _real(bench, seed))


def _real(bench: Bench, seed: int) -> Iterator[str]:
    kind = made.kind_of(seed)
    manifest = made.make(bench.driver, bench.directory, seed, kind)
    (bench.directory / "bookie").rename(bench.original)
    theirs = their_scans(bench.driver, bench.copy())
    yield from compare.listed(ours.our_scans(bench.original), theirs)
    shown = ours.of_files(bench.original)
    yield from made.differences(manifest, shown, kind)
    if kind.storage == "db":
        served = their_bookie(bench.driver, bench.copy(), made.accesses(manifest))
        yield from compare.served(shown, served, {})
    bench.figures.entries += sum(len(ledger.entries) for ledger in shown.values())
    bench.figures.directories += 1


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────


def cases() -> list[Case]:
    """All of them, the kinds mixed, so that both processes have something to do all the time."""
    found = [workload(seed) for seed in WORKLOADS]
    found += [image(kind, seed) for kind in images.KINDS for seed in IMAGES]
    found += [real(seed) for seed in DIRECTORIES]
    Random("cases").shuffle(found)
    return found


def try_case(driver: Driver, case: Case, figures: Figures) -> None:
    """Plays one case; where something differs its directory is kept."""
    with Bench(driver, case, figures) as bench:
        try:
            found = list(islice(case.run(bench), _DIFFERENCES_MAX))
        except (AssertionError, StoreError, BookieRefused) as error:
            found = [f"{type(error).__name__}: {error}"]
        if found:
            kept = _KEPT / bench.directory.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(bench.directory, kept)
            where = f"{case}, kept in {kept}"
            figures.differences += [f"{where}: {difference}" for difference in found]


def run(driver: Driver, wanted: list[Case]) -> Figures:
    """Tries them all, and says now and then how far it is."""
    figures = Figures(driver.ask("version")["version"])
    told = time.monotonic()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for number, _ in enumerate(pool.map(lambda case: try_case(driver, case, figures), wanted), 1):
            if time.monotonic() > told + _EVERY_S:
                told = time.monotonic()
                print(f"interop: {number} of {len(wanted)} · {figures}", flush=True)
    return figures


def _wanted(arguments: list[str]) -> list[Case]:
    match arguments:
        case []:
            return cases()
        case ["workload", seed]:
            return [workload(int(seed))]
        case ["made", seed]:
            return [real(int(seed))]
        case [kind, seed] if kind in images.KINDS:
            return [image(kind, int(seed))]
    raise SystemExit(__doc__)


def main(arguments: list[str]) -> int:
    started = time.monotonic()
    wanted = _wanted(arguments)
    shutil.rmtree(_WORK, ignore_errors=True)
    try:
        command = build()
    except NotReached as problem:
        print(f"interop: NOT RUN: {problem}")
        return 0
    except BuildFailed as problem:
        print(f"interop: the driver does not compile\n{problem}")
        return 1
    with Driver(command) as driver:
        figures = run(driver, wanted)
    for difference in figures.differences:
        print(f"DIFFERENCE {difference}")
    print(figures.refused)
    print(f"interop: {figures} · {time.monotonic() - started:.0f} s")
    return 1 if figures.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
