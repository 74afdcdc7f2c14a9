"""Test with the real Apache BookKeeper that it reads what we write, and that we read what it writes.

    python tests/interop/interop.py                 all cases, as `make interop` does
    python tests/interop/interop.py workload 17     one case again, as a difference names it: also `killed`,
                                                    `cut` and `history` (crash images), and `made`

Our files, read by BookKeeper: BookKeeper's own scans list stores that were closed, killed or torn, and crash
images of the simulated disk. A real bookie, whose index its own tools have rebuilt, serves them. After
`ledgerstore handover` a bookie serves exactly what we show, also after its next start, and the directory can
be made a store of ours again.

BookKeeper's files, read by us: seeded workloads on a real bookie leave directories, closed cleanly or halted.
Our readers list them, `ledgerstore rebuild-index` makes them stores of ours, and a bookie serves them again.
`compare.py` states what is compared.
"""

from __future__ import annotations

import shutil
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

import bookie_workloads
import compare
import images
import our_store
import workloads
from compare import Allowance
from jvm import MADE, Driver, build, exit_code_of
from observed import BookieRefused, bookkeeper_scans, run_bookie
from store_promises import PASSWORDS
from torn_group import TornGroup, tear

from recovery import open_store
from recovery.handover.handover import hand_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from observed import LedgerAccess, ObservedLedgers
    from our_store import StoreContent

    from storage import StoreConfig

WORKLOADS = range(60)
IMAGES = range(50)
DIRECTORIES = range(36)

_WORK = MADE / "work"
_KEPT = MADE / "kept"
_WORKERS = 2
_EVERY_S = 15.0
_DIFFERENCES_MAX = 10


@dataclass
class InteropFigures:
    """The numbers of things that were compared."""

    bookkeeper: str = "?"
    workloads: int = 0
    images: int = 0
    directories: int = 0
    entries: int = 0
    handed_over: int = 0
    """Directories of ours from which a bookie has twice served exactly what we show."""
    refused: list[str] = field(default_factory=list)
    """Directories on which a bookie started only after a handover."""
    differences: list[str] = field(default_factory=list)

    def add(self, other: InteropFigures) -> None:
        """Add the other's numbers."""
        self.workloads += other.workloads
        self.images += other.images
        self.directories += other.directories
        self.entries += other.entries
        self.handed_over += other.handed_over
        self.refused += other.refused
        self.differences += other.differences

    def __str__(self) -> str:
        return (
            f"BookKeeper {self.bookkeeper} · {self.workloads} workloads · {self.images} crash images · "
            f"{self.directories} real directories · {self.entries:,} entries · "
            f"{self.handed_over} handed over · {len(self.refused)} refused without a handover · "
            f"{len(self.differences)} differences"
        )


@dataclass(frozen=True, slots=True)
class InteropCase:
    """One case. `run` yields the differences, and writes its files to the case's directory."""

    kind: str
    seed: int
    run: Callable[[CaseDirectory], Iterator[str]]

    def __str__(self) -> str:
        return f"{self.kind} {self.seed}"


class CaseDirectory:
    """The directory in which one case runs."""

    def __init__(self, driver: Driver, case: InteropCase) -> None:
        self.driver = driver
        self.figures = InteropFigures()
        self.directory = _WORK / f"{case.kind}-{case.seed}"
        self._copies = 0

    def __enter__(self) -> CaseDirectory:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def original(self) -> Path:
        """The directory that is compared. It is not changed after it was made."""
        return self.directory / "original"

    def copy(self, of: Path | None = None) -> Path:
        """Return a copy that may be changed."""
        self._copies += 1
        copied = self.directory / f"copy{self._copies}"
        shutil.copytree(of or self.original, copied)
        return copied


# ── ours to theirs ────────────────────────────────────────────────────────────────────────────────────────


def workload(seed: int) -> InteropCase:
    """A store of ours that was closed, killed, or killed and torn."""
    end = (_closed, _killed, _torn)[seed % 3]
    return InteropCase("workload", seed, lambda bench: end(bench, seed))


def _closed(bench: CaseDirectory, seed: int) -> Iterator[str]:
    known = workloads.play(bench.original, seed)
    yield from _check_left_and_recovered(bench, seed, known, TornGroup())


def _killed(bench: CaseDirectory, seed: int) -> Iterator[str]:
    known = workloads.kill(bench.original, seed)
    yield from _check_left_and_recovered(bench, seed, known, TornGroup())


def _torn(bench: CaseDirectory, seed: int) -> Iterator[str]:
    known = workloads.kill(bench.original, seed)
    yield from _check_left_and_recovered(bench, seed, known, tear(bench.original, seed))


def _check_left_and_recovered(
    bench: CaseDirectory, seed: int, known: workloads.ExpectedContent, torn: TornGroup
) -> Iterator[str]:
    """Check the directory as the workload has left it, and again after our recovery."""
    recovered, config = bench.copy(), workloads.config_of(seed)
    view, closed = our_store.opened(recovered, config)
    yield from known.violations(view, torn)
    accesses = view.accesses({one: access.password for one, access in workloads.accesses_of(seed).items()})
    allowed = Allowance(known.rewritten, known.deleted)
    as_left, as_closed = (Expected(one, accesses, allowed, config) for one in (view, closed))
    yield from _check_given(bench, bench.original, as_left)
    yield from _check_given(bench, recovered, as_closed)
    yield from _check_handed_over(bench, recovered, as_closed)
    if workloads.keeps_all_journals(seed):
        yield from _check_given(bench, bench.original, replace(as_left, proof=GivenFiles.JOURNALS))
    bench.figures.workloads += 1


class GivenFiles(Enum):
    """The files that a bookie gets."""

    FILES = "journals and logs: BookKeeper's tools rebuild the index, and fence every ledger"
    JOURNALS = "all journals and no logs: fences, keys and last adds confirmed come from their records"


@dataclass(frozen=True, slots=True)
class Expected:
    """The content that our recovery shows of a directory, and what a bookie may show in addition."""

    view: StoreContent
    accesses: Mapping[int, LedgerAccess]
    allowed: Allowance
    config: StoreConfig
    proof: GivenFiles = GivenFiles.FILES


def _check_given(bench: CaseDirectory, directory: Path, handed: Expected) -> Iterator[str]:
    """Check a directory without a handover; if the bookie refuses to start on it, after a handover."""
    try:
        yield from list(_check_files(bench, bench.copy(directory), handed))
    except BookieRefused as problem:
        bench.figures.refused.append(f"{bench.directory.name}: {problem}")
        yield from _check_handed_over(bench, directory, handed)


def _check_files(bench: CaseDirectory, directory: Path, handed: Expected) -> Iterator[str]:
    sound, shown = our_store.sound(directory, handed.view), handed.view.shown
    scans = bookkeeper_scans(bench.driver, directory)
    replayed_from = (0, 0) if handed.proof is GivenFiles.JOURNALS else sound.mark
    allowed = handed.allowed.with_cut(scans, sound, replayed_from)
    if handed.proof is GivenFiles.JOURNALS:
        current = directory / "ledgers" / "current"
        shutil.rmtree(current)
        current.mkdir()
        theirs = run_bookie(bench.driver, directory, handed.accesses, wrong_key=True, right_key=True)
        yield from compare.facts(shown, theirs, allowed)
    else:
        yield from compare.scans(shown, scans, sound, allowed)
        theirs = run_bookie(bench.driver, directory, handed.accesses, rebuild=True)
    yield from compare.served(shown, theirs, allowed)
    bench.figures.entries += sum(len(ledger.entries) for ledger in theirs.values())


def _check_handed_over(bench: CaseDirectory, directory: Path, handed: Expected) -> Iterator[str]:
    """Check a handover: the bookie serves exactly what we show, also after its next start."""
    given, driver = bench.copy(directory), bench.driver
    done = hand_over(given, config=handed.config)
    view, _ = our_store.opened(bench.copy(given), handed.config)
    yield from compare.same(handed.view.shown, view.shown, Allowance())
    yield from _check_no_other_records(bench, given, replace(handed, view=view))
    if not done.facts.is_sufficient:
        # The command has reported this, and promises only the entries.
        theirs = run_bookie(driver, given, handed.accesses, rebuild=True)
        yield from compare.served(view.shown, theirs)
        return
    first = run_bookie(driver, given, handed.accesses, rebuild=True, handed_over=True, wrong_key=True)
    yield from _exactly_equal(view.shown, first, ["wrong_key"])
    yield from _check_returned(bench, given, replace(handed, view=view))
    second = run_bookie(driver, given, handed.accesses, wrong_key=True, right_key=True)
    yield from _exactly_equal(view.shown, second, compare.KEYS)
    bench.figures.entries += sum(len(ledger.entries) for ledger in (*first.values(), *second.values()))
    bench.figures.handed_over += 1


def _check_no_other_records(bench: CaseDirectory, given: Path, handed: Expected) -> Iterator[str]:
    """Check that the files contain no records that a bookie could serve and that we do not show."""
    sound = our_store.sound(given, handed.view).without_excuses()
    # An older version of an entry may stay before the valid one.
    allowed = Allowance(rewritten=handed.allowed.rewritten)
    yield from compare.scans(handed.view.shown, bookkeeper_scans(bench.driver, given), sound, allowed)


def _exactly_equal(shown: ObservedLedgers, theirs: ObservedLedgers, tried: Sequence[str]) -> Iterator[str]:
    yield from (f"ledger {one}: the bookie knows it, and we do not" for one in sorted({*theirs} - {*shown}))
    yield from compare.served(shown, theirs)
    yield from compare.facts(shown, theirs, Allowance(), tried)


def _check_returned(bench: CaseDirectory, directory: Path, handed: Expected) -> Iterator[str]:
    """Check that a directory on which a bookie has run becomes a store of ours again, with all its
    content."""
    returned = bench.copy(directory)
    our_store.rebuild_index_of(returned, handed.allowed.deleted)
    back, _ = our_store.opened(returned, bookie_workloads.CONFIG)
    yield from compare.same(handed.view.shown, back.shown, Allowance())


def image(kind: str, seed: int) -> InteropCase:
    """A case for one crash image."""
    return InteropCase(kind, seed, lambda bench: _image(bench, images.KINDS[kind](seed)))


def _image(bench: CaseDirectory, found: images.InteropImage) -> Iterator[str]:
    images.materialise(found.disk, bench.original)
    yield from (f"our own recovery: {violation}" for violation in found.violations)
    accesses = found.view.accesses(PASSWORDS)
    handed = Expected(found.view, accesses, images.ALLOWED, found.config)
    yield from _check_given(bench, bench.original, handed)
    bench.figures.images += 1


# ── theirs to ours ────────────────────────────────────────────────────────────────────────────────────────


def real(seed: int) -> InteropCase:
    """A case for one directory that a real bookie has written."""
    return InteropCase("made", seed, lambda bench: _real(bench, seed))


def _real(bench: CaseDirectory, seed: int) -> Iterator[str]:
    kind = bookie_workloads.bookie_kind(seed)
    manifest = bookie_workloads.make(bench.driver, bench.directory, seed, kind)
    (bench.directory / "bookie").rename(bench.original)
    scans = our_store.our_scans(bench.original)
    yield from compare.listed(scans, bookkeeper_scans(bench.driver, bench.copy()))
    yield from bookie_workloads.differences(manifest, our_store.of_files(scans), kind)
    accesses, adopted = bookie_workloads.accesses(manifest), bench.copy()
    our_store.rebuild_index_of(adopted, set())
    with open_store(adopted, bookie_workloads.CONFIG) as store:
        view = our_store.of_store(store)
        yield from bookie_workloads.differences(manifest, view.shown, kind)
        bookie_workloads.add(store, accesses)
        grown = our_store.of_store(store)
    if kind.storage == "db":
        served = run_bookie(bench.driver, bench.copy(), accesses)
        yield from compare.served(view.shown, served)
    grown = replace(grown, log_ends=our_store.log_ends(store))
    yield from _check_given(bench, adopted, Expected(grown, accesses, Allowance(), bookie_workloads.CONFIG))
    bench.figures.entries += len(view.data)
    bench.figures.directories += 1


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────


def cases() -> list[InteropCase]:
    """Return all cases in random order, so that Python and Java both have work all the time."""
    found = [workload(seed) for seed in WORKLOADS]
    found += [image(kind, seed) for kind in images.KINDS for seed in IMAGES]
    found += [real(seed) for seed in DIRECTORIES]
    Random("cases").shuffle(found)
    return found


def try_case(driver: Driver, case: InteropCase) -> InteropFigures:
    """Run one case. Keep its directory if anything differs."""
    with CaseDirectory(driver, case) as bench:
        try:
            found = list(islice(case.run(bench), _DIFFERENCES_MAX))
        except Exception as error:
            # An exception ends this case only, because the other cases may find differences too.
            found = [f"{type(error).__name__}: {error}\n{traceback.format_exc()}"]
        if found:
            kept = _KEPT / bench.directory.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(bench.directory, kept)
            where = f"{case}, kept in {kept}"
            bench.figures.differences = [f"{where}: {difference}" for difference in found]
    return bench.figures


def run(driver: Driver, wanted: list[InteropCase]) -> InteropFigures:
    """Run the cases, and print the progress from time to time."""
    figures = InteropFigures(driver.ask("version")["version"])
    told = time.monotonic()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for number, found in enumerate(pool.map(lambda case: try_case(driver, case), wanted), 1):
            figures.add(found)
            if time.monotonic() > told + _EVERY_S:
                told = time.monotonic()
                print(f"interop: {number} of {len(wanted)} · {figures}", flush=True)
    return figures


def _wanted(arguments: list[str]) -> list[InteropCase]:
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
    command = build()
    with Driver(command) as driver:
        figures = run(driver, wanted)
    for difference in figures.differences:
        print(f"DIFFERENCE {difference}")
    for refused in figures.refused if len(wanted) == 1 else ():
        print(f"refused without a handover: {refused}")
    print(f"interop: {figures} · {time.monotonic() - started:.0f} s")
    return 1 if figures.differences else 0


if __name__ == "__main__":
    sys.exit(exit_code_of("interop", lambda: main(sys.argv[1:])))
