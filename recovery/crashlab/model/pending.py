"""Units that a disk has accepted but not made durable. A power cut decides about each of them separately.

There are three kinds: a change of a name, a new size of a file, and a written sector. A power cut assigns a
`Survival` to each unit that survives; a unit without one is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class PendingName:
    """The index-th unsynced change of names in a directory."""

    directory: int
    index: int
    what: str = field(default="", compare=False)
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class PendingSize:
    """A changed size of a file, which had `versions` sizes since its last sync."""

    file: int
    versions: int = field(default=1, compare=False)
    what: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PendingSector:
    """A sector that was written `versions` times since the last sync of its file."""

    file: int
    sector: int
    versions: int = field(default=1, compare=False)
    what: str = field(default="", compare=False)


Unit = PendingName | PendingSize | PendingSector


@dataclass(frozen=True, slots=True)
class Newest:
    """The unit survives in its newest version."""


@dataclass(frozen=True, slots=True)
class Version:
    """The index-th version since the last sync survives, because the system wrote it back on its own."""

    index: int


@dataclass(frozen=True, slots=True)
class SectorHead:
    """The first bytes of a sector are new, the others are old."""

    size: int


@dataclass(frozen=True, slots=True)
class SectorTail:
    """The last bytes of a sector are new, the others are old."""

    size: int


@dataclass(frozen=True, slots=True)
class SectorRuined:
    """The sector contains neither the old nor the new bytes."""

    seed: int


@dataclass(frozen=True, slots=True)
class Reached:
    """The file is as long as its surviving sectors need, and not longer than it was."""


Survival = Newest | Version | SectorHead | SectorTail | SectorRuined | Reached
Survivors = dict[Unit, Survival]


@dataclass(frozen=True)
class PendingUnits:
    """Every unit that a power cut could lose: names and sizes as made, sectors in file order."""

    sector_size: int
    names: tuple[PendingName, ...]
    sizes: tuple[PendingSize, ...]
    sectors: tuple[PendingSector, ...]

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        return (*self.names, *self.sizes, *self.sectors)

    @cached_property
    def names_by_directory(self) -> Mapping[int, tuple[PendingName, ...]]:
        directories = dict.fromkeys(unit.directory for unit in self.names)
        return {number: tuple(u for u in self.names if u.directory == number) for number in directories}

    @cached_property
    def sectors_by_file(self) -> Mapping[int, tuple[PendingSector, ...]]:
        grouped: dict[int, list[PendingSector]] = {}
        for unit in self.sectors:
            grouped.setdefault(unit.file, []).append(unit)
        return {file: tuple(units) for file, units in grouped.items()}

    @cached_property
    def size_of(self) -> Mapping[int, PendingSize]:
        return {unit.file: unit for unit in self.sizes}

    @cached_property
    def files(self) -> tuple[int, ...]:
        return tuple(sorted({*self.sectors_by_file, *self.size_of}))
