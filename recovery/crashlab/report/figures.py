"""The contents of a report, for its page and its text: verdict, layers, and everything not covered."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from recovery.crashlab.judge.run_figures import LayerNumbers, Status
from recovery.report.formatting import counted, duration, grouped, line, rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.crashlab.judge.run_figures import LabNumbers, MutantNumbers, ViolationNumbers

    Table = Mapping[str, Mapping[str, int]]

TITLES = {
    "model": "Power cuts, modelled",
    "kill": "Killed processes",
    "errors": "Calls that fail",
    "nested": "Crashed recoveries",
    "rot": "Rot",
    "cut": "Power cuts, real",
}
"""All layers, in the order in which they are shown."""

_HEADLINES = {
    "model": "distinct images",
    "kill": "kills",
    "errors": "error points",
    "nested": "states of depth 2",
    "rot": "rot mutants",
    "cut": "real cuts",
}
_IN_FULL = {
    "distinct images": "distinct crash images",
    "states of depth 2": "crashed recoveries",
    "rot mutants": "damaged stores",
    "real cuts": "real power cuts",
}
"""Labels of numbers where their layer is not named beside them."""

LEADS = {
    "rot": "How the store handled damage to one of its files. No outcome may be silent.",
    "cut": "Real power cuts: file systems were shut down under the store, mounted again, and recovered.",
}
"""Descriptions of the tables of layers."""

VIOLATIONS = ("unnamed", "hang", "signal", "silent")
"""The outcomes of a damaged file that are violations."""

OUTCOMES = ("harmless", "repaired", "detected", "reported", "undecidable", *VIOLATIONS)
"""The outcomes of a damaged file, from good to bad."""

OUTCOMES_ALWAYS_SHOWN = ("harmless", "detected", "silent")
"""Outcomes that always have a column, so that a reader sees that none of them occurred."""


class VerdictTone(StrEnum):
    """How good a verdict is."""

    FINE = "fine"
    EMPTY = "empty"
    BROKEN = "broken"


MEANING = {
    VerdictTone.FINE: "Each of these states was recovered, and the store kept all its promises.",
    VerdictTone.BROKEN: "In at least one of these states the store breaks a promise.",
    VerdictTone.EMPTY: "Nothing was tried, so nothing is known.",
}


@dataclass(frozen=True, slots=True)
class CoverageGap:
    """Something about which this run says nothing."""

    label: str
    """One or two words in capitals: NOT RUN, CUT SHORT …"""
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The run in one line: `number` of `noun`, and what was tried."""

    tone: VerdictTone
    number: int
    noun: str
    tried: tuple[str, ...]


def verdict(numbers: LabNumbers) -> RunVerdict:
    """Return the verdict of the run. If nothing was tried, it does not say that nothing was found."""
    found = len(numbers.violations)
    tried = tuple(f"{grouped(count)} {label}" for count, label in headlines(numbers))
    if not found and not tried:
        return RunVerdict(VerdictTone.EMPTY, 0, "states tried", ())
    noun = "violation" if found == 1 else "violations"
    return RunVerdict(VerdictTone.BROKEN if found else VerdictTone.FINE, found, noun, tried)


def headlines(numbers: LabNumbers) -> Iterator[tuple[int, str]]:
    """Yield the first number of each layer that tried anything."""
    for layer in layers(numbers):
        count, label = headline(layer)
        if count and layer.status is not Status.NOT_RUN:
            yield count, _IN_FULL.get(label, label) + _losses(layer)


def _losses(layer: LayerNumbers) -> str:
    """Mention losses that are no violation because the store reported them."""
    reported = sum(row.get("reported", 0) for row in layer.table.values())
    return f" ({grouped(reported)} of them with a reported loss)" if reported else ""


def layers(numbers: LabNumbers) -> list[LayerNumbers]:
    """Return all layers. One without numbers has not run, and is shown as such."""
    given = {layer.name: layer for layer in numbers.layers}
    known = [given.pop(name) if name in given else _absent(name) for name in TITLES]
    return [*known, *given.values()]


def _absent(name: str) -> LayerNumbers:
    return LayerNumbers(name, Status.NOT_RUN, "the run has no numbers for it")


def title(layer: str) -> str:
    return TITLES.get(layer, layer)


def headline(layer: LayerNumbers) -> tuple[int, str]:
    """Return the number that represents the layer, and what it counts."""
    wanted = _HEADLINES.get(layer.name, "")
    if wanted in layer.counts:
        return layer.counts[wanted], wanted
    if layer.counts:
        label, count = next(iter(layer.counts.items()))
        return count, label
    return sum(sum(row.values()) for row in layer.table.values()), wanted or "states"


def gaps(numbers: LabNumbers) -> list[CoverageGap]:
    """Return everything that a reader could wrongly believe to be covered."""
    return [*_layers_not_complete(numbers), *_files_not_seen(numbers), *_bugs_not_found(numbers)]


def _layers_not_complete(numbers: LabNumbers) -> Iterator[CoverageGap]:
    for layer in layers(numbers):
        if layer.status is not Status.COMPLETE:
            yield CoverageGap(
                layer.status.value.upper(), title(layer.name), layer.why or "no reason was given"
            )
        elif layer.why:
            yield CoverageGap("NOT COVERED", title(layer.name), layer.why)


def _files_not_seen(numbers: LabNumbers) -> Iterator[CoverageGap]:
    for workload in numbers.workloads:
        for what in workload.uncovered:
            yield CoverageGap("NOT COVERED", f"Workload {workload.name}", what)


def _bugs_not_found(numbers: LabNumbers) -> Iterator[CoverageGap]:
    for mutant in numbers.mutants:
        if is_missed(mutant):
            yield CoverageGap("NOT FOUND", f"Planted bug {mutant.name}", mutant.rule)


def is_equivalent(mutant: MutantNumbers) -> bool:
    """Return whether it is proven to be no bug."""
    return bool(mutant.proof) and not mutant.found_by


def is_missed(mutant: MutantNumbers) -> bool:
    return not mutant.found_by and not mutant.proof


@dataclass(frozen=True, slots=True)
class MutationScore:
    """How many of the planted bugs were found."""

    planted: int
    found: int
    equivalent: int

    @property
    def missed(self) -> int:
        return self.planted - self.found - self.equivalent


def score(numbers: LabNumbers) -> MutationScore:
    """Return the mutation score, which shows whether finding nothing means anything."""
    found = sum(bool(mutant.found_by) for mutant in numbers.mutants)
    return MutationScore(len(numbers.mutants), found, sum(map(is_equivalent, numbers.mutants)))


def facts(numbers: LabNumbers) -> list[tuple[str, str]]:
    """Return what is needed to repeat the run."""
    budget = "none" if numbers.budget_s is None else duration(numbers.budget_s)
    return [
        ("seed", str(numbers.seed)),
        ("profile", numbers.profile),
        ("budget", budget),
        ("took", duration(numbers.seconds)),
        ("processes", str(numbers.jobs)),
        *numbers.host.items(),
    ]


def speed(layer: LayerNumbers) -> str:
    """Return how long it took, and the number of states per second and process."""
    took = duration(layer.seconds)
    if not layer.states_per_second:
        return took
    return f"{took} · {rate(layer.states_per_second)} states a second and process"


_AFFECTED = {
    "ext4-ordered": "all, also ext4, because it happens even if names and data are kept in order.",
    "sector-4k": "not ext4 as it is modelled, but others, even if sectors of 4,096 bytes are never torn.",
    "posix-strict": "not ext4 as it is modelled, but those that keep no more than POSIX promises.",
    "nvm-64": "only those that write as little as 64 bytes at a time, such as persistent memory.",
    "lying-disk": "only those with a lying disk, whose last syncs did nothing.",
}
_WITHOUT_PROFILE = {
    "kill": "all, because a killed process is enough, without a power cut.",
    "errors": "all, because one failing call is enough, without a power cut.",
    "rot": "all, because damaged bytes are enough, without a crash.",
    "cut": "it happened on a real file system.",
}


def affected_systems(layer: str, profile: str) -> str:
    """Return on which systems the violation can happen."""
    if profile:
        return _AFFECTED.get(profile, f"{profile} is the most benign profile that shows it.")
    return _WITHOUT_PROFILE.get(layer, "no profile is involved.")


def cause(violation: ViolationNumbers) -> str:
    """Return the cause without its class, which is shown separately."""
    return violation.cause.removeprefix(violation.kind).lstrip(" :,") or violation.kind


def times(count: int) -> str:
    """Return the number of states that showed it, as text."""
    return f"seen in {counted(count, 'state')}"


def commands(violation: ViolationNumbers) -> tuple[str, str]:
    """Return what to type in the directory of the report; the second needs no laboratory."""
    directory = line(violation.directory)
    return (
        f"ledgerstore crash replay {shlex.quote(directory)}",
        f"python {shlex.quote(directory.rstrip('/') + '/repro.py')}",
    )


def hue(layer: str) -> str:
    """Return the class that gives an element its layer's colour."""
    return f"hue-{layer if layer in TITLES else 'other'}"


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────────────────


def missed_first(mutants: Sequence[MutantNumbers]) -> list[MutantNumbers]:
    """Return the planted bugs in the order of their urgency: missed, no bug at all, found."""
    return sorted(mutants, key=lambda one: 0 if is_missed(one) else 1 if is_equivalent(one) else 2)


# ── tables of layers ────────────────────────────────────────────────────────────────────────────────────────


def columns(table: Table) -> list[str]:
    """Return the columns of all rows: outcomes in their order, the most important ones even if unused."""
    found = list(dict.fromkeys(column for row in table.values() for column in row))
    if not are_outcomes(found):
        return found
    shown = {*found, *OUTCOMES_ALWAYS_SHOWN}
    return [*(one for one in OUTCOMES if one in shown), *(one for one in found if one not in OUTCOMES)]


def are_outcomes(columns: Sequence[str]) -> bool:
    """Return whether the columns of a row are parts of a whole, and not numbers of different things."""
    return not set(columns).isdisjoint(OUTCOMES)


def outcome_class(column: str) -> str:
    """Return the class that gives a column its colour."""
    return f"o-{column}" if column in OUTCOMES else "o-other"


def rows(table: Table) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield each row with all columns."""
    every = columns(table)
    return ((name, {column: row.get(column, 0) for column in every}) for name, row in table.items())


def column_sums(table: Table) -> dict[str, int]:
    """Return the sum of each column."""
    return {column: sum(row.get(column, 0) for row in table.values()) for column in columns(table)}


def first_column(table: Table) -> dict[str, int]:
    """Return the number in the first column of each row."""
    first, *_ = columns(table)
    return {name: row.get(first, 0) for name, row in table.items()}


# ── the calls around a crash ────────────────────────────────────────────────────────────────────────────────

_BEFORE, _AFTER = 13, 4
_CRASH = re.compile(r"\W*crash\W*")
_FIRST_NUMBER = re.compile(r"\W*(\d+)\b")


def trace_window(violation: ViolationNumbers, trace: str, numbers: LabNumbers) -> list[tuple[str, str]]:
    """Return the lines around the crash, each with "", "crash" or "after"; the last lines if it is not there.

    Without a trace, the lines are those of the recorded workload.
    """
    lines = trace.splitlines() or [
        event.text or f"{event.number}, {event.call} {event.path}"
        for workload in numbers.workloads
        if workload.name == violation.workload
        for event in workload.timeline
    ]
    crash = _crash_line(lines, violation.at)
    if crash is None:
        return [("", text) for text in lines[-_BEFORE:]]
    first = max(0, crash - _BEFORE)
    return [
        ("" if number < crash else "crash" if number == crash else "after", text)
        for number, text in enumerate(lines[first : crash + _AFTER + 1], first)
    ]


def _crash_line(lines: Sequence[str], at: int) -> int | None:
    """Return the index of the line that says "crash", else of the first with the number of the call."""
    crash_lines = (index for index, text in enumerate(lines) if _CRASH.fullmatch(text))
    numbered = (
        index
        for index, text in enumerate(lines)
        if at and (number := _FIRST_NUMBER.match(text)) and int(number[1]) == at
    )
    return next(chain(crash_lines, numbered), None)
