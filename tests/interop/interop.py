"""The proof by the real Apache BookKeeper: it reads what we write, and we read what it writes.

    python tests/interop/interop.py                 all of it, as `make interop` does
    python tests/interop/interop.py workload 17     one case again, as a difference names it: also `killed`,
                                                    `cut` and `history` (crash images), and `made`

Ours to theirs: stores that were closed, killed and torn, and crash images of the simulated disk, are listed
by BookKeeper's own scans and served by a real bookie, its index made again by its own tools. Behind
`ledgerstore handover` a bookie serves exactly what we show, from start to start; and it is ours again behind
that. Theirs to ours: seeded workloads on a real bookie leave directories, clean or halted, which
our readers list and `ledgerstore rebuild-index` takes over; and a bookie serves them again. See `compare.py`
for what exactly is held against what.
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

import compare
import images
import made
import ours
import workloads
from compare import Allowance
from jvm import MADE, BuildFailed, Driver, NotReached, build
from promises import PASSWORDS
from shown import BookieRefused, their_bookie, their_scans
from tears import Torn, tear

from recovery import open_store
from recovery.handover import hand_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ours import View
    from shown import Access, Shown

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
class Figures:
    """What was held against each other."""

    bookkeeper: str = "?"
    workloads: int = 0
    images: int = 0
    directories: int = 0
    entries: int = 0
    handed_over: int = 0
    """Directories of ours of which a bookie has served exactly what we show, twice."""
    refused: list[str] = field(default_factory=list)
    """Those on which a bookie started only when they were handed over."""
    differences: list[str] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        """Counts the other's in."""
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
            f"{self.handed_over} handed over · {len(self.refused)} refused as they lay · "
            f"{len(self.differences)} differences"
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

    def __init__(self, driver: Driver, case: Case) -> None:
        self.driver = driver
        self.figures = Figures()
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
    yield from _as_it_lies(bench, seed, known, Torn())


def _killed(bench: Bench, seed: int) -> Iterator[str]:
    known = workloads.kill(bench.original, seed)
    yield from _as_it_lies(bench, seed, known, Torn())


def _torn(bench: Bench, seed: int) -> Iterator[str]:
    known = workloads.kill(bench.original, seed)
    yield from _as_it_lies(bench, seed, known, tear(bench.original, seed))


def _as_it_lies(bench: Bench, seed: int, known: workloads.Known, torn: Torn) -> Iterator[str]:
    """The directory as the workload has left it, and again when our recovery has been over it."""
    recovered, config = bench.copy(), workloads.config_of(seed)
    view, closed = ours.opened(recovered, config)
    yield from known.violations(view, torn)
    accesses = view.accesses({one: access.password for one, access in workloads.accesses_of(seed).items()})
    allowed = Allowance(known.rewritten, known.deleted)
    as_left, as_closed = (Handed(one, accesses, allowed, config) for one in (view, closed))
    yield from _given(bench, bench.original, as_left)
    yield from _given(bench, recovered, as_closed)
    yield from _handed_over(bench, recovered, as_closed)
    if workloads.keeps_all_journals(seed):
        yield from _given(bench, bench.original, replace(as_left, proof=Proof.JOURNALS))
    bench.figures.workloads += 1


class Proof(Enum):
    """What a bookie is given."""

    FILES = "journals and logs: the index is made again by its own tools, which fence everything"
    JOURNALS = "the journals alone, from the first on: fences, keys and confirmations come from their records"


@dataclass(frozen=True, slots=True)
class Handed:
    """What we show of a directory, and what a bookie may show beside it."""

    view: View
    accesses: Mapping[int, Access]
    allowed: Allowance
    config: StoreConfig
    proof: Proof = Proof.FILES


def _given(bench: Bench, directory: Path, handed: Handed) -> Iterator[str]:
    """A directory of ours, as it lies; if the bookie refuses to start, when it was handed over."""
    try:
        yield from list(_looked_at(bench, bench.copy(directory), handed))
    except BookieRefused as problem:
        bench.figures.refused.append(f"{bench.directory.name}: {problem}")
        yield from _handed_over(bench, directory, handed)


def _looked_at(bench: Bench, directory: Path, handed: Handed) -> Iterator[str]:
    sound, shown = ours.sound(directory, handed.view), handed.view.shown
    scans = their_scans(bench.driver, directory)
    replayed_from = (0, 0) if handed.proof is Proof.JOURNALS else sound.mark
    allowed = handed.allowed.with_cut(scans, sound, replayed_from)
    if handed.proof is Proof.JOURNALS:
        current = directory / "ledgers" / "current"
        shutil.rmtree(current)
        current.mkdir()
        theirs = their_bookie(bench.driver, directory, handed.accesses, wrong_key=True, right_key=True)
        yield from compare.facts(shown, theirs, allowed)
    else:
        yield from compare.scans(shown, scans, sound, allowed)
        theirs = their_bookie(bench.driver, directory, handed.accesses, rebuild=True)
    yield from compare.served(shown, theirs, allowed)
    bench.figures.entries += sum(len(ledger.entries) for ledger in theirs.values())


def _handed_over(bench: Bench, directory: Path, handed: Handed) -> Iterator[str]:
    """By our own command. A bookie then serves what we show, and nothing else; at its next start too."""
    given, driver = bench.copy(directory), bench.driver
    done = hand_over(given, config=handed.config)
    view, _ = ours.opened(bench.copy(given), handed.config)
    yield from compare.same(handed.view.shown, view.shown, Allowance())
    yield from _nothing_else(bench, given, replace(handed, view=view))
    if not done.facts.suffice:
        # Then it is told, and only the entries are promised.
        theirs = their_bookie(driver, given, handed.accesses, rebuild=True)
        yield from compare.served(view.shown, theirs)
        return
    first = their_bookie(driver, given, handed.accesses, rebuild=True, handed_over=True, wrong_key=True)
    yield from _exactly(view.shown, first, ["wrong_key"])
    yield from _back_again(bench, given, replace(handed, view=view))
    second = their_bookie(driver, given, handed.accesses, wrong_key=True, right_key=True)
    yield from _exactly(view.shown, second, compare.KEYS)
    bench.figures.entries += sum(len(ledger.entries) for ledger in (*first.values(), *second.values()))
    bench.figures.handed_over += 1


def _nothing_else(bench: Bench, given: Path, handed: Handed) -> Iterator[str]:
    """Nothing is left in the files that a bookie could take for what it is not."""
    sound = ours.sound(given, handed.view).without_excuses()
    # An older version of an entry may stay in front of the one that counts.
    allowed = Allowance(rewritten=handed.allowed.rewritten)
    yield from compare.scans(handed.view.shown, their_scans(bench.driver, given), sound, allowed)


def _exactly(shown: Shown, theirs: Shown, tried: Sequence[str]) -> Iterator[str]:
    yield from (f"ledger {one}: the bookie knows it, and we do not" for one in sorted({*theirs} - {*shown}))
    yield from compare.served(shown, theirs)
    yield from compare.facts(shown, theirs, Allowance(), tried)


def _back_again(bench: Bench, directory: Path, handed: Handed) -> Iterator[str]:
    """What a bookie has run on is ours again, with all that was in it."""
    returned = bench.copy(directory)
    ours.take_over(returned, handed.allowed.deleted)
    back, _ = ours.opened(returned, made.CONFIG)
    yield from compare.same(handed.view.shown, back.shown, Allowance())


def image(kind: str, seed: int) -> Case:
    """A crash image."""
    return Case(kind, seed, lambda bench: _image(bench, images.KINDS[kind](seed)))


def _image(bench: Bench, found: images.Image) -> Iterator[str]:
    images.materialise(found.disk, bench.original)
    yield from (f"our own recovery: {violation}" for violation in found.violations)
    accesses = found.view.accesses(PASSWORDS)
    handed = Handed(found.view, accesses, images.ALLOWED, found.config)
    yield from _given(bench, bench.original, handed)
    bench.figures.images += 1


# ── theirs to ours ────────────────────────────────────────────────────────────────────────────────────────


def real(seed: int) -> Case:
    """A directory of a real bookie."""
    return Case("made", seed, lambda bench: _real(bench, seed))


def _real(bench: Bench, seed: int) -> Iterator[str]:
    kind = made.kind_of(seed)
    manifest = made.make(bench.driver, bench.directory, seed, kind)
    (bench.directory / "bookie").rename(bench.original)
    scans = ours.our_scans(bench.original)
    yield from compare.listed(scans, their_scans(bench.driver, bench.copy()))
    yield from made.differences(manifest, ours.of_files(scans), kind)
    accesses, adopted = made.accesses(manifest), bench.copy()
    ours.take_over(adopted, set())
    with open_store(adopted, made.CONFIG) as store:
        view = ours.of_store(store)
        yield from made.differences(manifest, view.shown, kind)
        made.add(store, accesses)
        grown = ours.of_store(store)
    if kind.storage == "db":
        served = their_bookie(bench.driver, bench.copy(), accesses)
        yield from compare.served(view.shown, served)
    grown = replace(grown, log_ends=ours.log_ends(store))
    yield from _given(bench, adopted, Handed(grown, accesses, Allowance(), made.CONFIG))
    bench.figures.entries += len(view.data)
    bench.figures.directories += 1


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────


def cases() -> list[Case]:
    """All of them, the kinds mixed, so that both processes have something to do all the time."""
    found = [workload(seed) for seed in WORKLOADS]
    found += [image(kind, seed) for kind in images.KINDS for seed in IMAGES]
    found += [real(seed) for seed in DIRECTORIES]
    Random("cases").shuffle(found)
    return found


def try_case(driver: Driver, case: Case) -> Figures:
    """Plays one case; where something differs its directory is kept."""
    with Bench(driver, case) as bench:
        try:
            found = list(islice(case.run(bench), _DIFFERENCES_MAX))
        except Exception as error:
            # Of one case; the others may have more to tell.
            found = [f"{type(error).__name__}: {error}\n{traceback.format_exc()}"]
        if found:
            kept = _KEPT / bench.directory.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(bench.directory, kept)
            where = f"{case}, kept in {kept}"
            bench.figures.differences = [f"{where}: {difference}" for difference in found]
    return bench.figures


def run(driver: Driver, wanted: list[Case]) -> Figures:
    """Tries them all, and says now and then how far it is."""
    figures = Figures(driver.ask("version")["version"])
    told = time.monotonic()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for number, found in enumerate(pool.map(lambda case: try_case(driver, case), wanted), 1):
            figures.add(found)
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
    for refused in figures.refused if len(wanted) == 1 else ():
        print(f"refused as it lay: {refused}")
    print(f"interop: {figures} · {time.monotonic() - started:.0f} s")
    return 1 if figures.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
