"""Sightings put together, so that each bug is looked into and told of once, and no layer hides another's."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.crashlab.tree import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.crashlab.layers.task import Sighting
    from recovery.crashlab.numbers import ViolationNumbers

REPORTED = {"model": 0, "kill": 1, "errors": 2, "nested": 3, "rot": 4, "cut": 5}
"""The order in which layers are told of."""


def grouped(sightings: Sequence[Sighting]) -> list[list[Sighting]]:
    """Those that are most likely of one bug together."""
    groups: dict[tuple[str, ...], list[Sighting]] = {}
    for sighting in sightings:
        groups.setdefault(sighting.signature, []).append(sighting)
    return list(groups.values())


def in_turns(groups: Sequence[Sequence[Sighting]]) -> list[Sequence[Sighting]]:
    """One of each layer after the other: many of one must not hide those of another."""
    drawn: list[tuple[int, int, Sequence[Sighting]]] = []
    met: dict[str, int] = {}
    for group in sorted(groups, key=lambda group: group[0].signature):
        layer = group[0].layer
        met[layer] = met.get(layer, -1) + 1
        drawn.append((met[layer], REPORTED[layer], group))
    return [group for _, _, group in sorted(drawn, key=lambda one: one[:2])]


def simplest(group: Sequence[Sighting]) -> Sighting:
    """Always the same one, whichever worker was faster."""
    first = min(map(_told, group))
    alike = [one for one in group if _told(one) == first]
    return alike[0] if len(alike) == 1 else min(alike, key=lambda one: digest(one.image))


def _told(sighting: Sighting) -> tuple[int, str, int, str, str]:
    crashes = len(sighting.crashes)
    return crashes, sighting.workload, sighting.at, f"{sighting.breach}", sighting.how


def merged(found: Sequence[ViolationNumbers]) -> list[ViolationNumbers]:
    """Those that lose alike are one: they are most likely the same bug, and the first is the simplest."""
    bugs: dict[tuple[str, ...], ViolationNumbers] = {}
    for one in sorted(found, key=lambda one: (REPORTED[one.layer], len(one.lost), one.at or math.inf)):
        told = " ".join(one.lost) or f"{one.layer} {one.cause}"
        alike = one.kind, re.sub(r"\d+", "#", told)
        first = bugs.setdefault(alike, one)
        if first is not one:
            bugs[alike] = replace(first, count=first.count + one.count)
    return list(bugs.values())
