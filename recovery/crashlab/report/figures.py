"""What the numbers come to: the verdict, what was tried, and everything that was not covered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from recovery.crashlab.numbers import LayerNumbers, Status
from recovery.page.wording import counted, duration, grouped, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.numbers import LabNumbers, MutantNumbers, ViolationNumbers

TITLES = {
    "model": "Power cuts, modelled",
    "kill": "Killed processes",
    "errors": "Calls that fail",
    "nested": "Crashed recoveries",
    "rot": "Rot",
    "cut": "Power cuts, real",
}
"""The layers that there are, in the order in which they are shown."""

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
"""What the label of a number becomes where its layer is not named beside it."""

OUTCOMES = ("harmless", "repaired", "detected", "silent")
"""What became of a damaged file, from good to bad."""


class Tone(StrEnum):
    """How a verdict is to be taken."""

    FINE = "fine"
    EMPTY = "empty"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that this run says nothing about."""

    label: str
    """One or two words in capitals: NOT RUN, CUT SHORT …"""
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The run in one line: `number` of `noun`, and among what."""

    tone: Tone
    number: int
    noun: str
    tried: tuple[str, ...]


def verdict(numbers: LabNumbers) -> Verdict:
    """What the run says. Where nothing was tried it does not say that nothing was found."""
    found = len(numbers.violations)
    tried = tuple(f"{grouped(count)} {label}" for count, label in headlines(numbers))
    if not found and not tried:
        return Verdict(Tone.EMPTY, 0, "states tried", ())
    noun = "violation" if found == 1 else "violations"
    return Verdict(Tone.BROKEN if found else Tone.FINE, found, noun, tried)


def headlines(numbers: LabNumbers) -> Iterator[tuple[int, str]]:
    """The first number of each layer that tried anything."""
    for layer in layers(numbers):
        count, label = headline(layer)
        if count and layer.status is not Status.NOT_RUN:
            yield count, _IN_FULL.get(label, label)


def layers(numbers: LabNumbers) -> list[LayerNumbers]:
    """All layers there are. One without numbers has not run, and that is no reason to be silent about it."""
    given = {layer.name: layer for layer in numbers.layers}
    known = [given.pop(name) if name in given else _absent(name) for name in TITLES]
    return [*known, *given.values()]


def _absent(name: str) -> LayerNumbers:
    return LayerNumbers(name, Status.NOT_RUN, "the run has no numbers of it")


def title(layer: str) -> str:
    return TITLES.get(layer, layer)


def headline(layer: LayerNumbers) -> tuple[int, str]:
    """The number that stands for the layer, and what it counts."""
    wanted = _HEADLINES.get(layer.name, "")
    if wanted in layer.counts:
        return layer.counts[wanted], wanted
    if layer.counts:
        label, count = next(iter(layer.counts.items()))
        return count, label
    return sum(sum(row.values()) for row in layer.table.values()), wanted or "states"


def gaps(numbers: LabNumbers) -> list[Gap]:
    """Everything that a reader could wrongly take as tried."""
    return [*_layers_not_complete(numbers), *_files_not_seen(numbers), *_bugs_not_found(numbers)]


def _layers_not_complete(numbers: LabNumbers) -> Iterator[Gap]:
    for layer in layers(numbers):
        if layer.status is not Status.COMPLETE:
            yield Gap(layer.status.value.upper(), title(layer.name), layer.why or "no reason was given")
        elif layer.why:
            yield Gap("NOT COVERED", title(layer.name), layer.why)


def _files_not_seen(numbers: LabNumbers) -> Iterator[Gap]:
    for workload in numbers.workloads:
        for what in workload.uncovered:
            yield Gap("NOT COVERED", f"Workload {workload.name}", what)


def _bugs_not_found(numbers: LabNumbers) -> Iterator[Gap]:
    for mutant in numbers.mutants:
        if is_missed(mutant):
            yield Gap("NOT FOUND", f"Planted bug {mutant.name}", mutant.rule)


def is_equivalent(mutant: MutantNumbers) -> bool:
    """Whether it is no bug after all, as is proven."""
    return bool(mutant.proof) and not mutant.found_by


def is_missed(mutant: MutantNumbers) -> bool:
    return not mutant.found_by and not mutant.proof


@dataclass(frozen=True, slots=True)
class Score:
    """Of the bugs planted on purpose, how many were found."""

    planted: int
    found: int
    equivalent: int

    @property
    def missed(self) -> int:
        return self.planted - self.found - self.equivalent


def score(numbers: LabNumbers) -> Score:
    """The mutation score: the number that shows that none found means something."""
    found = sum(bool(mutant.found_by) for mutant in numbers.mutants)
    return Score(len(numbers.mutants), found, sum(map(is_equivalent, numbers.mutants)))


def facts(numbers: LabNumbers) -> list[tuple[str, str]]:
    """What another would need in order to do the same again."""
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
    """How long it took, and how fast a process went through its states."""
    took = duration(layer.seconds)
    if not layer.states_per_second:
        return took
    return f"{took} · {rate(layer.states_per_second)} states a second and process"


_WOULD_IT_HIT_ME = {
    "ext4-ordered": "Yes, on ext4 too: it shows even where the file system keeps names and data in order.",
    "sector-4k": "Not as ext4 is modelled. Elsewhere yes, even where a sector of 4,096 bytes never tears.",
    "posix-strict": "Not as ext4 is modelled. Yes where a file system keeps no more than POSIX promises.",
    "nvm-64": "Only where as little as 64 bytes are written at a time, as in persistent memory.",
    "lying-disk": "Only on a disk that lies: its last syncs did nothing.",
}
_WITHOUT_PROFILE = {
    "kill": "Yes, anywhere: a killed process is enough, the power need not fail.",
    "errors": "Yes, anywhere: one failing call is enough, the power need not fail.",
    "rot": "Yes, anywhere: damaged bytes are enough, nothing need crash.",
    "cut": "Yes: it was seen on a real file system.",
}


def would_it_hit_me(layer: str, profile: str) -> str:
    """The answer to the first question of whoever reads of a violation."""
    if profile:
        return _WOULD_IT_HIT_ME.get(profile, f"{profile} is the kindest profile that shows it.")
    return _WITHOUT_PROFILE.get(layer, "No profile is involved.")


def cause(violation: ViolationNumbers) -> str:
    """The cause without its class, which stands in front of it in colour."""
    return violation.cause.removeprefix(violation.kind).lstrip(" :,") or violation.kind


def times(count: int) -> str:
    """In how many states it was seen."""
    return f"seen in {counted(count, 'state')}"
