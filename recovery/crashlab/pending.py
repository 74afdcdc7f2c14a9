"""What a disk has accepted but not yet made durable, as units that live or die one by one.

Three kinds of unit: a change of names, a file's new size, and a written sector. A cut gives each unit
that survives a `Survival`; a unit without one is lost.
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
    """The growth of a file; `versions` sizes were reached since the last sync."""

    file: int
    versions: int = field(default=1, compare=False)
    what: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PendingSector:
    """A sector written since the file's last sync, `versions` times."""

    file: int
    sector: int
    versions: int = field(default=1, compare=False)
    what: str = field(default="", compare=False)


Unit = PendingName | PendingSize | PendingSector


@dataclass(frozen=True, slots=True)
class Newest:
    """The unit survives as it was last seen."""


@dataclass(frozen=True, slots=True)
class Version:
    """The index-th version since the last sync survives: the system wrote that one back by itself."""

    index: int


@dataclass(frozen=True, slots=True)
class Head:
    """The first bytes of a sector are new, the others as before."""

    size: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The last bytes of a sector are new, the others as before."""

    size: int


@dataclass(frozen=True, slots=True)
class Ruined:
    """The sector holds neither what was there nor what was written."""

    seed: int


@dataclass(frozen=True, slots=True)
class Reached:
    """The file is as long as its surviving sectors need, and no longer than it was."""


Survival = Newest | Version | Head | Tail | Ruined | Reached
Survivors = dict[Unit, Survival]


@dataclass(frozen=True)
class Pending:
    """Every unit that a power cut could take: names and sizes as made, sectors in file order."""

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
