"""Fates: what a power cut leaves of the pending units. A fate is a value and always decides in the same way.

A sector that is being written when the power fails holds the old bytes, an older version that the system
wrote back on its own, the new bytes, or new bytes before or after old ones (512 bytes are never split).
`Tearing.RUINED` adds sectors that hold neither: a drive without power-safe overwrite may destroy the sector
that it writes, including *durable* bytes beside the new ones. Only a format that begins each group in a new
sector survives that, so it must be asked for explicitly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeVar

from recovery.crashlab.model.pending import (
    Newest,
    PendingSector,
    Reached,
    SectorHead,
    SectorRuined,
    SectorTail,
    Survival,
    Survivors,
    Unit,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.crashlab.model.pending import PendingUnits

_Item = TypeVar("_Item")

ATOM = 512
NEWEST = Newest()
REACHED = Reached()


class Fate(Protocol):
    """Decides what a power cut leaves."""

    def survivors(self, pending: PendingUnits) -> Survivors:
        """Return the units that survive, and how. The others are lost."""


class Tearing(Enum):
    """In which states the sectors that are being written may be left."""

    WHOLE = "each sector is old or new"
    HALVES = "a sector may be new in its head or tail only"
    RUINED = "a sector may also hold neither"


@dataclass(frozen=True)
class Exactly:
    """Exactly these units survive. The `label` is for reports and not compared."""

    label: str = field(compare=False)
    kept: frozenset[tuple[Unit, Survival]]

    def survivors(self, pending: PendingUnits) -> Survivors:  # noqa: ARG002 - a fate that is already decided
        return dict(self.kept)


@dataclass(frozen=True)
class LoseAll:
    """Only what was synced survives."""

    def __str__(self) -> str:
        return "only what was synced is left"

    def survivors(self, pending: PendingUnits) -> Survivors:  # noqa: ARG002 - whatever waits is lost
        return {}


@dataclass(frozen=True)
class KeepAll:
    """Everything survives, as after a kill, but on the platter."""

    def __str__(self) -> str:
        return "everything is left"

    def survivors(self, pending: PendingUnits) -> Survivors:
        return dict.fromkeys(pending.units, NEWEST)


@dataclass(frozen=True)
class RandomFate:
    """Chooses from the seed how much of each file and directory survives, and how each unit does."""

    seed: int
    tearing: Tearing = Tearing.HALVES

    def __str__(self) -> str:
        return f"chance {self.seed} decides what is left"

    def survivors(self, pending: PendingUnits) -> Survivors:
        draw = Random(self.seed)
        survivors: Survivors = {}
        for names in pending.names_by_directory.values():
            survivors |= dict.fromkeys(_draw_some(draw, names), NEWEST)
        for file in pending.files:
            sectors = pending.sectors_by_file.get(file, ())
            survivors |= {unit: self._sector(draw, pending, unit) for unit in _draw_some(draw, sectors)}
            if growth := pending.size_of.get(file):
                survivors[growth] = draw.choice((NEWEST, REACHED, _draw_version(draw, growth.versions)))
        return survivors

    def _sector(self, draw: Random, pending: PendingUnits, unit: PendingSector) -> Survival:
        if draw.random() < 0.7:
            return NEWEST
        choices: list[Survival] = [_draw_version(draw, unit.versions)]
        if self.tearing is not Tearing.WHOLE:
            choices += torn(pending.sector_size)
        if self.tearing is Tearing.RUINED:
            choices += [SectorRuined(draw.getrandbits(32))] * 4
        return draw.choice(choices)


def torn(sector_size: int) -> list[Survival]:
    """Return every way to tear one sector in two."""
    return [half(size) for size in range(ATOM, sector_size, ATOM) for half in (SectorHead, SectorTail)]


def keep(pending: PendingUnits, label: str, units: Iterable[Unit]) -> Exactly:
    """Return the fate in which these units survive whole, and files are as long as these units need."""
    kept: Survivors = dict.fromkeys(units, NEWEST)
    for file, growth in pending.size_of.items():
        if growth not in kept and any(unit in kept for unit in pending.sectors_by_file.get(file, ())):
            kept[growth] = REACHED
    return Exactly(label, frozenset(kept.items()))


def _draw_some(draw: Random, units: Sequence[_Item]) -> Sequence[_Item]:
    cut = draw.randint(0, len(units))
    odds = draw.random()
    ways = (units, (), units[:cut], units[cut:], [unit for unit in units if draw.random() < odds])
    return draw.choice(ways)


def _draw_version(draw: Random, versions: int) -> Version:
    return Version(draw.randrange(versions))
