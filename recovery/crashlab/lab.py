"""The crash laboratory: point it at a store, and learn whether an acknowledged write can be lost."""

from __future__ import annotations

import os
import platform
import re
import time
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING

from recovery.crashlab import preload, sightings
from recovery.crashlab.crew import Crew, LabError
from recovery.crashlab.layers.catalogue import LAYERS, Layer
from recovery.crashlab.layers.examine import Examined, ExamineTask
from recovery.crashlab.layers.record import Recorded, RecordTask
from recovery.crashlab.layers.task import Counted, Covered, NotCovered, Recording, Share, Sighting, Tabled
from recovery.crashlab.numbers import LabNumbers, LayerNumbers, Status, ViolationNumbers
from recovery.crashlab.outcome import Answered
from recovery.crashlab.profile import profile_named
from recovery.crashlab.programs import name_of
from recovery.crashlab.report import page
from recovery.crashlab.spec import specify
from recovery.crashlab.timeline import numbers_of
from recovery.crashlab.violation import VIOLATIONS, forget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from recovery.crashlab.layers.task import Message
    from recovery.crashlab.programs import Program
    from recovery.crashlab.spec import Fields, Spec
    from recovery.crashlab.worker import Over

NOT_WANTED = "it was not asked for"
VIOLATIONS_MAX = 20
"""So many are minimised and written down; behind them are mostly the same bugs."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    layer: str
    counts: Mapping[str, int]
    violations: int
    layer_seconds: float
    seconds: float
    budget_s: float | None
    first: str = ""
    """The first violation that was seen, as it was seen: not minimised."""


@dataclass(frozen=True)
class LabReport:
    """What a run came to."""

    numbers: LabNumbers
    out: Path | None
    """Where the violations and the report are, if anything was written."""

    @property
    def violations(self) -> list[ViolationNumbers]:
        return self.numbers.violations

    def assert_ok(self) -> None:
        """Raises `AssertionError` with the cause of each violation, and with all that was not covered."""
        __tracebackhide__ = True  # pytest shows the test, not us
        wrong = [violation.cause for violation in self.violations]
        wrong += [f"not covered: {what}" for what in self.numbers.uncovered]
        if wrong:
            causes = "\n".join(f"  {cause}" for cause in wrong)
            where = f"\nwritten to {self.out}" if self.out else ""
            raise AssertionError(f"{len(self.violations)} violations:\n{causes}{where}")


class CrashLab:
    """A store under test: what it is made to do, how it is opened again, and what must hold then.

    `workload(root, ctx)` works in an empty directory and marks what it asks and what was answered;
    `recover(root)` opens what is there and returns what a reader would be shown. Both run in processes of
    their own, again and again, so they must do the same each time. `check` is an oracle, a function of
    history and answer, or several of them; the default asks that nothing acknowledged is lost, nothing is
    made up, nothing deleted comes back, and what belongs together stays together.
    """

    def __init__(
        self,
        workload: Program | Mapping[str, Program],
        recover: Program,
        check: object = None,
        *,
        profile: str = "posix-strict",
        seed: int = 1,
        ignore: Sequence[str] = (),
        kinds: Mapping[str, str] | None = None,
        fields: Fields | None = None,
        name: str = "",
    ) -> None:
        self.spec: Spec = specify(
            workload,
            recover,
            check,
            profile_named(profile),
            seed,
            name or name_of(recover),
            ignore=tuple(ignore),
            kinds=dict(kinds or {}),
            fields=fields,
        )

    def run(
        self,
        layers: Sequence[str] | None = None,
        budget: str | float | None = None,
        *,
        jobs: int | None = None,
        out: str | os.PathLike[str] | None = None,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> LabReport:
        """Crashes the store in every way of these layers, all of them unless some are named.

        With a budget ("90s", "10m", or seconds) the layers share that time; without one, each goes through
        its list once. Whatever could not run, or not to its end, says so in the numbers. `LabError` when
        nothing can be told at all: no compiler, a workload that fails without a crash.
        """
        check_able()
        chosen = _chosen(layers)
        session = _Session(self.spec, seconds_of(budget), jobs or os.cpu_count() or 1, progress)
        with TemporaryDirectory(prefix="crashlab-tapes-") as tapes:
            session.run(chosen, Path(tapes), None if out is None else Path(out))
        return LabReport(session.numbers, session.out)

    def under(self, *, seed: int | None = None, profile: str | None = None) -> CrashLab:
        """The same with another seed, or on another kind of system."""
        lab = copy(self)
        if seed is not None:
            lab.spec = replace(lab.spec, seed=seed)
        if profile is not None:
            lab.spec = replace(lab.spec, profile=profile_named(profile))
        return lab


def check_able() -> None:
    """Raises `LabError` where no store can be crashed, because nothing can be recorded here."""
    if why := preload.why_not():
        raise LabError(why)
    try:
        preload.library()
    except RuntimeError as error:
        raise LabError(str(error)) from error


def seconds_of(budget: str | float | None) -> float | None:
    """A budget in seconds."""
    if budget is None or not isinstance(budget, str):
        return budget
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", budget)
    if match is None:
        raise ValueError(f"a budget is a number of seconds, or one with s, m or h behind it, not {budget!r}")
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2] or "s"]


def _chosen(layers: Sequence[str] | None) -> list[Layer]:
    unknown = set(layers or ()) - LAYERS.keys()
    if unknown:
        raise ValueError(f"no layer {', '.join(sorted(unknown))}: there are {', '.join(LAYERS)}")
    return [layer for name, layer in LAYERS.items() if layers is None or name in layers]


@dataclass
class _Session:
    """One run, from the recording to the report."""

    spec: Spec
    budget_s: float | None
    jobs: int
    progress: Callable[[Progress], None]
    started: float = field(default_factory=time.monotonic)
    sightings: list[Sighting] = field(default_factory=list)
    seen: int = 0
    out: Path | None = None

    def __post_init__(self) -> None:
        self.numbers = LabNumbers(
            self.spec.name,
            self.spec.seed,
            self.spec.profile.name,
            budget_s=self.budget_s,
            jobs=self.jobs,
            host=_host(),
        )

    def run(self, layers: Sequence[Layer], tapes: Path, out: Path | None) -> None:
        with Crew(self.spec, self.jobs) as crew:
            recordings = self._record(crew, tapes)
            for place, layer in enumerate(layers):
                self._layer(crew, layer, layers[place:], recordings)
            self._tell_of_the_others(layers)
            self.numbers.layers.sort(key=lambda one: [*sightings.REPORTED].index(one.name))
            groups = sightings.grouped(self.sightings)
            if groups and out is None:
                out = Path(mkdtemp(prefix="crash-report-"))
            self.out = out
            if out is not None:
                forget(out / VIOLATIONS)  # those of an earlier run would pass for this one's
            if groups and out is not None:
                self._examine(crew, groups, recordings, out)
        self.numbers.seconds = round(time.monotonic() - self.started, 1)
        if out is not None:
            write_report(self.numbers, out)

    # ── recording ─────────────────────────────────────────────────────────────────────────────────────

    def _record(self, crew: Crew, tapes: Path) -> tuple[Recording, ...]:
        found: list[Recorded] = []
        started = time.monotonic()
        crew.run(
            [RecordTask(tapes)],
            found.append,
            lambda: self._say("record", {"workloads": len(found)}, started),
        )
        for one in found:
            if not isinstance(one.run.outcome, Answered):
                raise LabError(f"the workload {one.name} fails without any crash: it {one.run.outcome}")
            if one.breaches:
                told = "; ".join(map(str, one.breaches[:3]))
                raise LabError(
                    f"behind the workload {one.name} a promise is broken without any crash: {told}"
                )
            self.numbers.workloads.append(numbers_of(one))
        return tuple(Recording(one.name, tapes / f"{one.name}.tape") for one in found)

    # ── layers ────────────────────────────────────────────────────────────────────────────────────────

    def _layer(
        self, crew: Crew, layer: Layer, rest: Sequence[Layer], recordings: tuple[Recording, ...]
    ) -> None:
        numbers = LayerNumbers(layer.name)
        self.numbers.layers.append(numbers)
        if why := layer.why_not():
            numbers.status, numbers.why = Status.NOT_RUN, why
            return
        started = time.monotonic()
        until = self._until(layer, rest, started)
        tasks = [layer.make(recordings, Share(index, self.jobs, until)) for index in range(self.jobs)]
        ear = _Ear(numbers, self.sightings)
        over = crew.run(tasks, ear.hear, lambda: self._say(layer.name, numbers.counts, started))
        numbers.seconds = round(time.monotonic() - started, 1)
        if ear.images:
            numbers.counts["distinct images"] = len(ear.images)
        numbers.states_per_second = round(_rate(over), 1)
        if not numbers.counts.get(layer.counts):
            ear.uncovered.append("nothing was tried" + (", there was no time" if until is not None else ""))
        if self.numbers.uncovered:
            ear.uncovered.append("files or marks were written unseen")
        if ear.uncovered:
            numbers.status, numbers.why = Status.CUT_SHORT, "; ".join(dict.fromkeys(ear.uncovered))

    def _tell_of_the_others(self, layers: Sequence[Layer]) -> None:
        """What was not wanted has not run either, and must not look as if it had found nothing."""
        others = (name for name, layer in LAYERS.items() if layer not in layers)
        self.numbers.layers += [LayerNumbers(name, Status.NOT_RUN, NOT_WANTED) for name in others]

    def _until(self, layer: Layer, rest: Sequence[Layer], now: float) -> float | None:
        if self.budget_s is None:
            return None
        left = max(0.0, self.started + self.budget_s - now)
        return now + left * layer.weight / sum(other.weight for other in rest if not other.why_not())

    def _say(self, layer: str, counts: Mapping[str, int], started: float) -> None:
        now = time.monotonic()
        violations = len(sightings.grouped(self.sightings))
        first = self.sightings[0] if self.sightings else None
        told = f"{first.breach} · {first.call} · {first.how}" if first else ""
        self.progress(
            Progress(layer, dict(counts), violations, now - started, now - self.started, self.budget_s, told)
        )

    # ── violations ────────────────────────────────────────────────────────────────────────────────────

    def _examine(
        self, crew: Crew, groups: Sequence[Sequence[Sighting]], recordings: tuple[Recording, ...], out: Path
    ) -> None:
        found: list[Examined] = []
        chosen = [
            (sightings.simplest(group), len(group)) for group in sightings.in_turns(groups)[:VIOLATIONS_MAX]
        ]
        task = ExamineTask(tuple(chosen), recordings, out)
        started = time.monotonic()
        crew.run(
            [task],
            found.append,
            lambda: self._say("examine", {"written down": len(found)}, started),
        )
        self.numbers.violations = sightings.merged([one.numbers for one in found])


@dataclass
class _Ear:
    """Puts what the workers say into the numbers of a layer."""

    numbers: LayerNumbers
    sightings: list[Sighting]
    images: set[str] = field(default_factory=set)
    uncovered: list[str] = field(default_factory=list)

    def hear(self, message: Message) -> None:
        counts = self.numbers.counts
        match message:
            case Counted(more):
                for name, count in more.items():
                    counts[name] = counts.get(name, 0) + count
            case Covered(images):
                self.images |= images
                counts["distinct images"] = len(self.images)
            case Tabled(row, column):
                columns = self.numbers.table.setdefault(row, {})
                columns[column] = columns.get(column, 0) + 1
            case NotCovered(what):
                self.uncovered.append(what)
            case Sighting():
                self.sightings.append(message)


def write_report(numbers: LabNumbers, out: Path) -> None:
    """`report.json` and `report.html` into a directory, beside the violations that are there."""
    out.mkdir(parents=True, exist_ok=True)
    traces = {
        one.id: trace.read_text(encoding="utf-8")
        for one in numbers.violations
        if (trace := out / one.directory / "trace.txt").exists()
    }
    numbers.write(out / "report.json")
    (out / "report.html").write_text(page.render(numbers, traces), encoding="utf-8")


def _rate(over: Sequence[Over]) -> float:
    seconds = sum(one.seconds for one in over)
    return sum(one.recoveries for one in over) / seconds if seconds else 0.0


def _host() -> dict[str, str]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpus": str(os.cpu_count()),
        "python": platform.python_version(),
    }
