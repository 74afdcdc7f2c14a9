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
from jvm import MADE, BuildFailed, CommandFailed, Driver, NotReached, build
from promises import PASSWORDS
from shown import BookieRefused, their_bookie, their_scans
from tears import Torn, tear

from recovery import open_store
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from ours import View
    from shown import Access

    Accesses = Mapping[int, Access]

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
    prepared: list[str] = field(default_factory=list)
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
    yield from _as_it_lies(bench, seed, known, Torn())


def _killed(bench: Bench, seed: int) -> Iterator[str]:
    known = workloads.kill(bench.original, seed)
    yield from _as_it_lies(bench, seed, known, Torn())


def _torn(bench: Bench, seed: int) -> Iterator[str]:
    known = workloads.kill(bench.original, seed)
    yield from _as_it_lies(bench, seed, known, tear(bench.original, seed))


def _as_it_lies(bench: Bench, seed: int, known: workloads.Known, torn: Torn) -> Iterator[str]:
    """The directory as the workload has left it, and again when our recovery has been over it."""
    recovered = bench.copy()
    view = ours.opened(recovered, workloads.config_of(seed))
    yield from known.violations(view, torn)
    accesses = view.accesses({one: access.password for one, access in workloads.accesses_of(seed).items()})
    allowed = Allowance(known.rewritten, known.deleted)
    yield from _handed_over(bench, bench.original, view, accesses, allowed, End.AS_IT_LIES)
    yield from _handed_over(bench, recovered, view, accesses, allowed, End.CLOSED)
    yield from _back_again(bench, recovered, view, accesses, allowed)
    if workloads.keeps_all_journals(seed):
        yield from _replayed(bench, view, accesses, allowed)
    bench.figures.workloads += 1


class End(Enum):
    """How a directory of ours was left."""

    CLOSED = "nothing is open: what the bookie finds is what we show"
    AS_IT_LIES = "killed, torn, or closed: the bookie may find what our recovery cuts"


def _handed_over(
    bench: Bench, directory: Path, view: View, accesses: Accesses, allowed: Allowance, end: End
) -> Iterator[str]:
    """A directory of ours, listed and served by theirs."""
    try:
        yield from list(_looked_at(bench, bench.copy(directory), view, accesses, allowed, end))
    except (BookieRefused, CommandFailed) as problem:
        bench.figures.prepared.append(f"{bench.directory.name} {end.name}: {str(problem)[:150]}")
        prepared = bench.copy(directory)
        _prepare(prepared)
        yield from _looked_at(bench, prepared, view, accesses, allowed, End.AS_IT_LIES)


def _looked_at(
    bench: Bench, handed: Path, view: View, accesses: Accesses, allowed: Allowance, end: End
) -> Iterator[str]:
    is_taken = ours.taken(handed, view.rows)
    scans = their_scans(bench.driver, handed)
    yield from compare.scans(view.shown, scans, is_taken, allowed)
    if end is End.AS_IT_LIES:
        allowed = allowed.with_cut(scans, is_taken)
    theirs = their_bookie(bench.driver, handed, accesses, rebuild=True)
    yield from compare.served(view.shown, theirs, allowed)
    bench.figures.entries += sum(len(ledger.entries) for ledger in theirs.values())


def _back_again(
    bench: Bench, directory: Path, view: View, accesses: Accesses, allowed: Allowance
) -> Iterator[str]:
    """What a bookie has run on is ours again, with all that was in it."""
    handed = bench.copy(directory)
    try:
        their_bookie(bench.driver, handed, accesses, rebuild=True)
    except (BookieRefused, CommandFailed):
        return  # what it had to be prepared for is a matter of the way there
    ours.take_over(handed)
    back = ours.opened(handed, made.CONFIG)
    yield from compare.same(view.shown, back.shown, allowed)


def _prepare(directory: Path) -> None:
    """What may have to be done to a directory of ours before a bookie starts on it."""
    current = directory / "ledgers" / "current"
    # Its rebuilt index has no keys. A journal begins with those of its ledgers; the mark may lie behind them.
    mark = (current / "lastMark").read_bytes()
    (current / "lastMark").write_bytes(mark[:8] + bytes(8) + mark[16:])
    # Behind the durable end of a log lies what a crash has left of a checkpoint: it takes that for entries.
    for path, end in ours.sound_ends(directory).items():
        with path.open("r+b") as file:
            file.truncate(end)


def _replayed(bench: Bench, view: View, accesses: Accesses, allowed: Allowance) -> Iterator[str]:
    """The journals alone, from the first on: then a bookie has everything from their records, keys too."""
    handed = bench.copy()
    current = handed / "ledgers" / "current"
    shutil.rmtree(current)
    current.mkdir()
    scans = their_scans(bench.driver, handed)
    allowed = allowed.with_cut(scans, ours.taken(handed, view.rows))
    theirs = their_bookie(bench.driver, handed, accesses, keys=True)
    yield from compare.served(view.shown, theirs, allowed)
    yield from compare.facts(view.shown, theirs, allowed)


def image(kind: str, seed: int) -> Case:
    """A crash image."""
    return Case(kind, seed, lambda bench: _image(bench, images.KINDS[kind](seed)))


def _image(bench: Bench, found: images.Image) -> Iterator[str]:
    images.materialise(found.disk, bench.original)
    yield from (f"our own recovery: {violation}" for violation in found.violations)
    accesses = found.view.accesses(PASSWORDS)
    end = End.CLOSED if found.is_closed else End.AS_IT_LIES
    yield from _handed_over(bench, bench.original, found.view, accesses, images.ALLOWED, end)
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
    ours.take_over(adopted)
    with open_store(adopted, made.CONFIG) as store:
        view = ours.of_store(store)
        yield from made.differences(manifest, view.shown, kind)
        made.add(store, accesses)
        grown = ours.of_store(store)
    if kind.storage == "db":
        served = their_bookie(bench.driver, bench.copy(), accesses)
        yield from compare.served(view.shown, served)
    yield from _handed_over(bench, adopted, grown, accesses, Allowance(), End.CLOSED)
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
    print(*figures.prepared, sep="\n")
    print(f"interop: {figures} · {time.monotonic() - started:.0f} s")
    return 1 if figures.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
