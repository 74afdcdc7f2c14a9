"""The crash laboratory: point it at a store to learn whether it can lose an acknowledged write."""

from __future__ import annotations

import os
import platform
import re
import time
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

from recovery.crashlab.judge.occurrence import (
    LAYER_ORDER,
    Occurrence,
    grouped_by_bug,
    layers_in_turn,
    merged,
    simplest,
)
from recovery.crashlab.judge.outcome import Answered
from recovery.crashlab.judge.run_figures import LabNumbers, LayerNumbers, Status, ViolationNumbers
from recovery.crashlab.layers.catalogue import LAYERS, Layer
from recovery.crashlab.layers.examine import ExaminedViolation, ExamineTask
from recovery.crashlab.layers.record import RecordedWorkload, RecordTask, workload_numbers
from recovery.crashlab.layers.violation import VIOLATIONS, forget
from recovery.crashlab.model.profile import profile_named
from recovery.crashlab.record import preload
from recovery.crashlab.record.recording import Recording
from recovery.crashlab.report import page
from recovery.crashlab.run.spec import make_spec, name_of
from recovery.crashlab.run.task import CountsReport, ImagesReport, NotCovered, TableReport, WorkShare
from recovery.crashlab.run.workers import LabError, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from recovery.crashlab.run.spec import Fields, Program, Spec
    from recovery.crashlab.run.task import Message
    from recovery.crashlab.run.workers import TaskDone


NOT_WANTED = "it was not asked for"
VIOLATIONS_MAX = 20
"""The number of violations that are minimised and written. More would mostly be the same bugs."""


@dataclass(frozen=True, slots=True)
class LabProgress:
    """The progress of a run."""

    layer: str
    counts: Mapping[str, int]
    violations: int
    layer_seconds: float
    seconds: float
    budget_s: float | None
    first: str = ""
    """The first violation as it was observed, not minimised."""


@dataclass(frozen=True)
class LabReport:
    """The result of a run."""

    numbers: LabNumbers
    out: Path | None
    """The directory with the violations and the report, if anything was written."""

    @property
    def violations(self) -> list[ViolationNumbers]:
        return self.numbers.violations

    def assert_ok(self) -> None:
        """Raise `AssertionError` with the cause of each violation and everything that was not covered."""
        __tracebackhide__ = True  # pytest hides this frame
        wrong = [violation.cause for violation in self.violations]
        wrong += [f"not covered: {what}" for what in self.numbers.uncovered]
        if wrong:
            causes = "\n".join(f"  {cause}" for cause in wrong)
            where = f"\nwritten to {self.out}" if self.out else ""
            raise AssertionError(f"{len(self.violations)} violations:\n{causes}{where}")


class CrashLab:
    """A store under test: its workloads, how it is opened, and what must hold then.

    `workload(root, ctx)` works in an empty directory and marks what it asks and what was acknowledged.
    `recover(root)` opens the store and returns what a reader would see. Both run many times in processes of
    their own, so they must do the same each time. `check` is an oracle, a function of history and answer, or
    several of them. The default checks that nothing acknowledged is lost, nothing is made up, nothing deleted
    comes back, and what was added together stays together.
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
        self.spec: Spec = make_spec(
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
        progress: Callable[[LabProgress], None] = lambda _: None,
    ) -> LabReport:
        """Crash the store in every way of these layers, or of all layers.

        With a budget ("90s", "10m", or seconds) the layers share that time; without one, each does a fixed
        amount of work once. The numbers say what could not run, or not to its end. `LabError` means that
        nothing can be tested: there is no compiler, or a workload fails without a crash.
        """
        check_able()
        chosen = _chosen(layers)
        session = _LabRun(self.spec, seconds_of(budget), jobs or os.cpu_count() or 1, progress)
        with TemporaryDirectory(prefix="crashlab-tapes-") as tapes:
            # Absolute, because a workload may change the current directory.
            session.run(chosen, Path(tapes), None if out is None else Path(out).absolute())
        return LabReport(session.numbers, session.out)

    def under(self, *, seed: int | None = None, profile: str | None = None) -> CrashLab:
        """Return the same laboratory with another seed or another profile."""
        lab = copy(self)
        if seed is not None:
            lab.spec = replace(lab.spec, seed=seed)
        if profile is not None:
            lab.spec = replace(lab.spec, profile=profile_named(profile))
        return lab


def check_able() -> None:
    """Raise `LabError` if nothing can be recorded here, so that no store can be crashed."""
    if why := preload.why_not():
        raise LabError(why)
    try:
        preload.library()
    except RuntimeError as error:
        raise LabError(str(error)) from error


def seconds_of(budget: str | float | None) -> float | None:
    """Return a budget in seconds."""
    if budget is None or not isinstance(budget, str):
        return budget
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", budget)
    if match is None:
        raise ValueError(
            f"a budget is a number of seconds, or a number followed by s, m or h, not {budget!r}"
        )
    return float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2] or "s"]


def _chosen(layers: Sequence[str] | None) -> list[Layer]:
    unknown = set(layers or ()) - LAYERS.keys()
    if unknown:
        raise ValueError(f"no layer {', '.join(sorted(unknown))}: there are {', '.join(LAYERS)}")
    return [layer for name, layer in LAYERS.items() if layers is None or name in layers]


@dataclass
class _LabRun:
    """One run, from the recording to the report."""

    spec: Spec
    budget_s: float | None
    jobs: int
    progress: Callable[[LabProgress], None]
    started: float = field(default_factory=time.monotonic)
    occurrences: list[Occurrence] = field(default_factory=list)
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
        with WorkerPool(self.spec, self.jobs) as pool:
            recordings = self._record(pool, tapes)
            for place, layer in enumerate(layers):
                self._run_layer(pool, layer, layers[place:], recordings)
            self._add_layers_not_run(layers)
            self.numbers.layers.sort(key=lambda one: [*LAYER_ORDER].index(one.name))
            groups = grouped_by_bug(self.occurrences)
            if groups and out is None:
                out = Path(mkdtemp(prefix="crash-report-"))
            self.out = out
            if out is not None:
                forget(out / VIOLATIONS)  # otherwise those of an earlier run would seem to be of this one
            if groups and out is not None:
                self._examine(pool, groups, recordings, out)
        self.numbers.seconds = round(time.monotonic() - self.started, 1)
        if out is not None:
            write_report(self.numbers, out)

    # ── recording ─────────────────────────────────────────────────────────────────────────────────────

    def _record(self, pool: WorkerPool, tapes: Path) -> tuple[Recording, ...]:
        found: list[RecordedWorkload] = []
        started = time.monotonic()
        pool.run(
            [RecordTask(tapes)],
            found.append,
            lambda: self._report_progress("record", {"workloads": len(found)}, started),
        )
        for one in found:
            if not isinstance(one.run.outcome, Answered):
                raise LabError(f"the workload {one.name} fails without any crash: it {one.run.outcome}")
            if one.breaches:
                broken = "; ".join(map(str, one.breaches[:3]))
                raise LabError(
                    f"after the workload {one.name} a promise is broken without any crash: {broken}"
                )
            self.numbers.workloads.append(workload_numbers(one))
        return tuple(Recording(one.name, tapes / f"{one.name}.tape") for one in found)

    # ── layers ────────────────────────────────────────────────────────────────────────────────────────

    def _run_layer(
        self, pool: WorkerPool, layer: Layer, rest: Sequence[Layer], recordings: tuple[Recording, ...]
    ) -> None:
        numbers = LayerNumbers(layer.name)
        self.numbers.layers.append(numbers)
        if why := layer.why_not():
            numbers.status, numbers.why = Status.NOT_RUN, why
            return
        started = time.monotonic()
        until = self._deadline(layer, rest, started)
        tasks = [layer.make(recordings, WorkShare(index, self.jobs, until)) for index in range(self.jobs)]
        collector = _ResultCollector(numbers, self.occurrences)
        done = pool.run(
            tasks, collector.collect, lambda: self._report_progress(layer.name, numbers.counts, started)
        )
        numbers.seconds = round(time.monotonic() - started, 1)
        if collector.images:
            numbers.counts["distinct images"] = len(collector.images)
        numbers.states_per_second = round(_rate(done), 1)
        if not numbers.counts.get(layer.counts):
            collector.uncovered.append(
                "nothing was tried" + (", there was no time" if until is not None else "")
            )
        if self.numbers.uncovered:
            collector.uncovered.append("changes of files or marks were not recorded")
        if collector.uncovered:
            numbers.status, numbers.why = Status.CUT_SHORT, "; ".join(dict.fromkeys(collector.uncovered))

    def _add_layers_not_run(self, layers: Sequence[Layer]) -> None:
        """Add layers that were not asked for, because they must not look as if they had found nothing."""
        others = (name for name, layer in LAYERS.items() if layer not in layers)
        self.numbers.layers += [LayerNumbers(name, Status.NOT_RUN, NOT_WANTED) for name in others]

    def _deadline(self, layer: Layer, rest: Sequence[Layer], now: float) -> float | None:
        if self.budget_s is None:
            return None
        left = max(0.0, self.started + self.budget_s - now)
        return now + left * layer.weight / sum(other.weight for other in rest if not other.why_not())

    def _report_progress(self, layer: str, counts: Mapping[str, int], started: float) -> None:
        now = time.monotonic()
        violations = len(grouped_by_bug(self.occurrences))
        first = self.occurrences[0] if self.occurrences else None
        text = f"{first.breach} · {first.call} · {first.how}" if first else ""
        self.progress(
            LabProgress(
                layer, dict(counts), violations, now - started, now - self.started, self.budget_s, text
            )
        )

    # ── violations ────────────────────────────────────────────────────────────────────────────────────

    def _examine(
        self,
        pool: WorkerPool,
        groups: Sequence[Sequence[Occurrence]],
        recordings: tuple[Recording, ...],
        out: Path,
    ) -> None:
        found: list[ExaminedViolation] = []
        chosen = [(simplest(group), len(group)) for group in layers_in_turn(groups)[:VIOLATIONS_MAX]]
        task = ExamineTask(tuple(chosen), recordings, out)
        started = time.monotonic()
        pool.run(
            [task],
            found.append,
            lambda: self._report_progress("examine", {"written down": len(found)}, started),
        )
        self.numbers.violations = merged([one.numbers for one in found])


@dataclass
class _ResultCollector:
    """Collects the messages of workers in the numbers of a layer."""

    numbers: LayerNumbers
    occurrences: list[Occurrence]
    images: set[str] = field(default_factory=set)
    uncovered: list[str] = field(default_factory=list)

    def collect(self, message: Message) -> None:
        counts = self.numbers.counts
        match message:
            case CountsReport(more):
                for name, count in more.items():
                    counts[name] = counts.get(name, 0) + count
            case ImagesReport(images):
                self.images |= images
                counts["distinct images"] = len(self.images)
            case TableReport(row, column):
                columns = self.numbers.table.setdefault(row, {})
                columns[column] = columns.get(column, 0) + 1
            case NotCovered(what):
                self.uncovered.append(what)
            case Occurrence():
                self.occurrences.append(message)


def write_report(numbers: LabNumbers, out: Path) -> None:
    """Write `report.json` and `report.html` into a directory, beside its violations."""
    out.mkdir(parents=True, exist_ok=True)
    traces = {
        one.id: trace.read_text(encoding="utf-8")
        for one in numbers.violations
        if (trace := out / one.directory / "trace.txt").exists()
    }
    numbers.write(out / "report.json")
    (out / "report.html").write_text(page.render(numbers, traces), encoding="utf-8")


def _rate(done: Sequence[TaskDone]) -> float:
    seconds = sum(one.seconds for one in done)
    return sum(one.recoveries for one in done) / seconds if seconds else 0.0


def _host() -> dict[str, str]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpus": str(os.cpu_count()),
        "python": platform.python_version(),
    }


_REPORT = "crash-report"


@dataclass(frozen=True, slots=True)
class LabDefaults:
    """The settings for all laboratories of one test."""

    budget: str | None
    """From the command line. It takes precedence over what the test says."""
    layers: Sequence[str] | None
    """From the command line too."""
    jobs: int
    place: Path

    def out(self) -> Path:
        """Return a directory of its own for each report."""
        taken = sum(1 for _ in self.place.glob(f"{_REPORT}*"))
        return self.place / (f"{_REPORT}-{taken + 1}" if taken else _REPORT)


class TestedLab(CrashLab):
    """A `CrashLab` with the defaults of a test."""

    __test__ = False  # pytest must not collect it as a test

    def __init__(self, defaults: LabDefaults, *programs: Any, **options: Any) -> None:
        super().__init__(*programs, **options)
        self._defaults = defaults

    def run(
        self,
        layers: Sequence[str] | None = None,
        budget: str | float | None = None,
        *,
        jobs: int | None = None,
        out: str | os.PathLike[str] | None = None,
        progress: Callable[[LabProgress], None] = lambda _: None,
    ) -> LabReport:
        """Like `CrashLab.run`, but by default the report is below the test's directory."""
        defaults = self._defaults
        return super().run(
            defaults.layers or layers,
            defaults.budget or budget,
            jobs=jobs or defaults.jobs,
            out=defaults.out() if out is None else out,
            progress=progress,
        )
