"""The figures of a run, as `report.json` contains them.

A layer that did not run is included, with the reason, because it must not look like a layer that found
nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1


class Status(StrEnum):
    """How much of its work a layer did."""

    COMPLETE = "complete"
    CUT_SHORT = "cut short"  # its share of the budget was over before its work was done
    NOT_RUN = "not run"


@dataclass(slots=True)
class LayerNumbers:
    """The figures of one layer: counts, and for some layers a table."""

    name: str
    status: Status = Status.COMPLETE
    why: str = ""
    """Why it did not run, or what was not covered."""
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    """Counts by name: "distinct images", "raw states", "crash points", "kills", "error points" …"""
    states_per_second: float = 0.0
    """Recoveries per second and process, for layers that recover one state after the other."""
    table: dict[str, dict[str, int]] = field(default_factory=dict)
    """Rows by name; each maps a column to a number."""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One call of a workload, or one mark, as the report draws it."""

    number: int
    call: str
    path: str
    size: int = 0
    is_sync: bool = False
    text: str = ""
    """The whole call as text; for a mark, the operation and whether it was invoked or acknowledged."""


@dataclass(slots=True)
class WorkloadNumbers:
    """One recorded workload."""

    name: str
    calls: int = 0
    operations: int = 0
    syncs: int = 0
    seconds: float = 0.0
    uncovered: list[str] = field(default_factory=list)
    """Files of which the recorder has not seen every change, and why."""
    timeline: list[TimelineEvent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ViolationNumbers:
    """One violation, as the report shows it. Its directory contains the rest."""

    id: str
    kind: str
    """The class in capitals: LOST, FABRICATED, RESURRECTED, REFUSED, SIGNAL …"""
    cause: str
    """One line with class and key, the crash point and the lost units."""
    layer: str
    workload: str
    at: int
    """The number of the call at which it crashed; 0 if there is none."""
    profile: str
    """The most benign profile that still shows it; empty if no profile is involved."""
    lost: tuple[str, ...] = ()
    """The units that the minimised crash loses."""
    directory: str = ""
    """Relative to the report."""
    count: int = 1
    """How many states showed the same class, crash point and lost units."""


@dataclass(frozen=True, slots=True)
class MutantNumbers:
    """One bug that was planted on purpose."""

    name: str
    rule: str
    found_by: str = ""
    """The layer that found it; empty if none did."""
    proof: str = ""
    """The proof that it is no bug, for one that cannot be found."""
    seconds: float = 0.0


@dataclass(slots=True)
class LabNumbers:
    """The figures of a whole run."""

    name: str
    seed: int
    profile: str
    seconds: float = 0.0
    budget_s: float | None = None
    jobs: int = 1
    host: dict[str, str] = field(default_factory=dict)
    layers: list[LayerNumbers] = field(default_factory=list)
    workloads: list[WorkloadNumbers] = field(default_factory=list)
    violations: list[ViolationNumbers] = field(default_factory=list)
    mutants: list[MutantNumbers] = field(default_factory=list)
    """Those of a mutation run, if there was one."""

    @property
    def uncovered(self) -> list[str]:
        """Files of workloads whose changes were not all recorded, so that results about them mean nothing."""
        return [f"{one.name}: {what}" for one in self.workloads for what in one.uncovered]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n")

    def layer(self, name: str) -> LayerNumbers:
        """Return the layer of that name, which must be there."""
        return next(layer for layer in self.layers if layer.name == name)


def load(path: Path) -> LabNumbers:
    """Read the figures of an earlier run."""
    read = json.loads(path.read_text())
    if read.pop("format", None) != FORMAT:
        raise ValueError(f"{path}: not numbers of this version")
    layers = [LayerNumbers(**{**one, "status": Status(one["status"])}) for one in read.pop("layers")]
    workloads = [
        WorkloadNumbers(**{**one, "timeline": [TimelineEvent(**event) for event in one["timeline"]]})
        for one in read.pop("workloads")
    ]
    violations = [ViolationNumbers(**{**one, "lost": tuple(one["lost"])}) for one in read.pop("violations")]
    mutants = [MutantNumbers(**one) for one in read.pop("mutants")]
    return LabNumbers(**read, layers=layers, workloads=workloads, violations=violations, mutants=mutants)
