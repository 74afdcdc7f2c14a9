"""The smallest crash loses no more than the breach needs, and still shows it."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab.judge.minimise import minimise
from recovery.crashlab.model.fates import NEWEST, REACHED
from recovery.crashlab.model.pending import (
    Newest,
    PendingName,
    PendingSector,
    PendingSize,
    PendingUnits,
    Version,
)

if TYPE_CHECKING:
    from recovery.crashlab.model.pending import Survivors, Unit

PENDING = PendingUnits(
    512,
    tuple(PendingName(0, index, f"/: create {index}") for index in range(6)),
    tuple(PendingSize(file, 3, f"size of /{file}") for file in (1, 2, 3)),
    tuple(PendingSector(file, at, 2, f"sector {at} of /{file}") for file in (1, 2, 3) for at in range(8)),
)


class Shows:
    """A store that breaks unless all of some units survive whole; counts how often it is asked."""

    def __init__(self, *needed: Unit) -> None:
        self.needed = needed
        self.asked = 0

    def __call__(self, survivors: Survivors) -> bool:
        self.asked += 1
        return not any(isinstance(survivors.get(unit), Newest) for unit in self.needed)


NEEDED: list[tuple[Unit, ...]] = [
    *((unit,) for unit in PENDING.units[::4]),
    *[*combinations(PENDING.units, 2)][::17],
]


@pytest.mark.parametrize("needed", NEEDED)
def test_a_minimised_crash_loses_one_or_two_units(needed: tuple[Unit, ...]) -> None:
    shows = Shows(*needed)

    found = minimise(PENDING, {}, shows)

    assert {unit for unit in PENDING.units if not isinstance(found.survivors.get(unit), Newest)} == set(
        needed
    )
    assert shows(found.survivors)
    assert 1 <= len(found.lost) <= 2
    assert shows.asked < 3 * len(PENDING.units)


def test_a_minimised_crash_still_shows_the_breach() -> None:
    draw = Random(1)
    for _ in range(100):
        needed = draw.sample(PENDING.units, 3)
        begin: Survivors = {
            unit: draw.choice((NEWEST, Version(0)))
            for unit in PENDING.units
            if unit not in needed and draw.random() < 0.5
        }
        found = minimise(PENDING, begin, Shows(*needed))

        harmed = {unit for unit in PENDING.units if found.survivors.get(unit) != NEWEST}
        assert harmed == set(needed)


def test_one_of_two_sufficient_losses_is_kept() -> None:
    first, second = PENDING.names[0], PENDING.sectors[5]

    found = minimise(PENDING, {}, lambda survivors: {first, second} - survivors.keys() != set())

    assert len(found.lost) == 1


def test_a_breach_that_needs_no_loss_is_minimised_to_no_loss() -> None:
    found = minimise(PENDING, {}, lambda _: True)

    assert found.lost == ()
    assert set(found.survivors) == set(PENDING.units)


def test_consecutive_sectors_are_described_as_one_range() -> None:
    grown, *sectors = PENDING.sizes[0], *PENDING.sectors[:4]

    assert minimise(PENDING, {}, Shows(grown, *sectors)).lost == (
        "bytes 0 to 2048 of /1 and its size (the file was not synced)",
    )
    assert minimise(PENDING, {grown: REACHED}, Shows(*sectors)).lost == (
        "bytes 0 to 2048 of /1 (the file was not synced)",
    )
    assert minimise(PENDING, {sectors[0]: Version(0)}, Shows(sectors[0])).lost == (
        "bytes 0 to 512 of /1, in part or in an older version (the file was not synced)",
    )
    assert minimise(PENDING, {}, Shows(PENDING.names[2], grown)).lost == (
        "/: create 2 (its directory was not synced)",
        "size of /1 (the file was not synced)",
    )
