"""Occurrences of breaches as workers report them, grouped so that each bug is examined and reported once."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recovery.crashlab.model.real_tree import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.crashlab.judge.oracles import Breach
    from recovery.crashlab.judge.run_figures import ViolationNumbers
    from recovery.crashlab.model.real_tree import Tree
    from recovery.crashlab.record.crash import Crash
    from recovery.crashlab.record.history import History
    from recovery.crashlab.record.preload import Orders


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An observed breach, with the image that shows it."""

    layer: str
    workload: str
    at: int
    """The number of the call at which it crashed; 0 if there is none."""
    call: str
    """That call as text for people."""
    breach: Breach
    how: str
    """The event: the fate, the kill, the fault or the damage."""
    image: Tree
    history: History
    crashes: tuple[Crash, ...] = ()
    tapes: tuple[bytes, ...] = ()
    """One tape for each crash, except the first one if it is that of the recorded workload."""
    orders: Orders | None = None
    undamaged: Tree | None = None
    """For the rot layer: the image without the damage."""

    @property
    def signature(self) -> tuple[str, ...]:
        """A key that is equal for occurrences that are most likely of the same bug."""
        struck, _, place = self.call.partition(", ")  # "EIO at 7", "write a.log, 10 bytes at 3"
        words = [*struck.split(" at ")[:1], *place.split(" ")[:2]]
        return self.breach.kind, self.layer, re.sub(r"\d+", "#", " ".join(words))


LAYER_ORDER = {"model": 0, "kill": 1, "errors": 2, "nested": 3, "rot": 4, "cut": 5}
"""The order in which reports list the layers."""


def grouped_by_bug(occurrences: Sequence[Occurrence]) -> list[list[Occurrence]]:
    """Group occurrences that are most likely of the same bug."""
    groups: dict[tuple[str, ...], list[Occurrence]] = {}
    for occurrence in occurrences:
        groups.setdefault(occurrence.signature, []).append(occurrence)
    return list(groups.values())


def layers_in_turn(groups: Sequence[Sequence[Occurrence]]) -> list[Sequence[Occurrence]]:
    """Order groups so that layers take turns, because no layer may hide the groups of another."""
    drawn: list[tuple[int, int, Sequence[Occurrence]]] = []
    met: dict[str, int] = {}
    for group in sorted(groups, key=lambda group: group[0].signature):
        layer = group[0].layer
        met[layer] = met.get(layer, -1) + 1
        drawn.append((met[layer], LAYER_ORDER[layer], group))
    return [group for _, _, group in sorted(drawn, key=lambda one: one[:2])]


def simplest(group: Sequence[Occurrence]) -> Occurrence:
    """Return the simplest occurrence of a group. It does not depend on which worker was faster."""
    first = min(map(_sort_key, group))
    alike = [one for one in group if _sort_key(one) == first]
    return alike[0] if len(alike) == 1 else min(alike, key=lambda one: digest(one.image))


def _sort_key(occurrence: Occurrence) -> tuple[int, str, int, str, str]:
    crashes = len(occurrence.crashes)
    return crashes, occurrence.workload, occurrence.at, f"{occurrence.breach}", occurrence.how


def merged(found: Sequence[ViolationNumbers]) -> list[ViolationNumbers]:
    """Merge violations that lose the same, because they are most likely one bug. Keep the simplest."""
    bugs: dict[tuple[str, ...], ViolationNumbers] = {}
    for one in sorted(found, key=lambda one: (LAYER_ORDER[one.layer], len(one.lost), one.at or math.inf)):
        lost = " ".join(one.lost) or f"{one.layer} {one.cause}"
        alike = one.kind, re.sub(r"\d+", "#", lost)
        first = bugs.setdefault(alike, one)
        if first is not one:
            bugs[alike] = replace(first, count=first.count + one.count)
    return list(bugs.values())
