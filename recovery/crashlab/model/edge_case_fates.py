"""The fates to try at every crash point: the well-known edge cases, and every subset of a few units.

A fate is a set of units, which says little to a reader, so each has a label that a report can print.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from recovery.crashlab.model.fates import ATOM, REACHED, Exactly, keep
from recovery.crashlab.model.pending import SectorHead, SectorTail, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.crashlab.model.pending import PendingSector, PendingUnits, Survival, Unit

_Item = TypeVar("_Item")


def edge_case_fates(pending: PendingUnits, *, per_file: int = 16) -> list[Exactly]:
    """Return the edge cases, each once. At most `per_file` sectors of a file are treated singly."""
    return list(dict.fromkeys(_edge_cases(pending, per_file)))


def exhaustive_fates(pending: PendingUnits) -> Iterator[Exactly]:
    """Yield every subset of the pending units in their newest versions: 2 to the power of their number."""
    for count in range(len(pending.units) + 1):
        for units in combinations(pending.units, count):
            yield keep(pending, f"keep {count} of {len(pending.units)}", units)


def _edge_cases(pending: PendingUnits, per_file: int) -> Iterator[Exactly]:
    names = pending.names
    data: tuple[Unit, ...] = (*pending.sizes, *pending.sectors)
    yield keep(pending, "lose everything", ())
    yield keep(pending, "keep everything", pending.units)
    yield keep(pending, "names only", names)
    yield keep(pending, "data only", data)
    yield keep(pending, "names and sizes, but zeros for data", (*names, *pending.sizes))
    yield from _fates_of_names(pending, data)
    for file in pending.files:
        yield from _fates_of_file(pending, file)
        yield from _fates_of_sectors(pending, pending.sectors_by_file.get(file, ()), per_file)
    for growth in pending.sizes:
        yield from _only_and_all_but(pending, growth)


def _fates_of_names(pending: PendingUnits, data: tuple[Unit, ...]) -> Iterator[Exactly]:
    for unit in pending.names:
        yield from _only_and_all_but(pending, unit)
        yield keep(pending, f"all data, of the names only {unit.what}", (*data, unit))
    for names in pending.names_by_directory.values():
        for count in range(1, len(names)):
            yield keep(pending, f"all data, the first {count} names", (*data, *names[:count]))
            yield keep(pending, f"all data, but not the first {count} names", (*data, *names[count:]))
        others = tuple(unit for unit in pending.units if unit not in names)
        yield keep(pending, "one directory loses its changes", others)


def _fates_of_file(pending: PendingUnits, file: int) -> Iterator[Exactly]:
    # The opposite, that only this file loses everything, is the first of its prefixes.
    mine: set[Unit] = {*pending.sectors_by_file.get(file, ())}
    if growth := pending.size_of.get(file):
        mine.add(growth)
    yield keep(pending, f"names, and the data of file {file} only", (*pending.names, *mine))


def _fates_of_sectors(
    pending: PendingUnits, sectors: Sequence[PendingSector], per_file: int
) -> Iterator[Exactly]:
    for unit in _spread(sectors, per_file):
        index = sectors.index(unit)
        yield from _only_and_all_but(pending, unit)
        others = _without(pending, {unit})
        up_to = _without(pending, _grown(pending, sectors[index:]))
        yield keep(pending, f"a prefix, up to {unit.what}", up_to)
        yield keep(pending, f"a suffix, after {unit.what}", _without(pending, set(sectors[: index + 1])))
        for survival in _edge_case_tears(pending.sector_size):
            yield _with(keep(pending, f"all but a torn {unit.what}", others), unit, survival)
            cut_off = keep(pending, f"torn from {unit.what} on", up_to)
            yield _with(cut_off, unit, survival, *_reach(pending, unit))
        for version in range(unit.versions - 1):
            yield _with(keep(pending, f"an older {unit.what}", others), unit, Version(version))


def _only_and_all_but(pending: PendingUnits, unit: Unit) -> Iterator[Exactly]:
    yield keep(pending, f"only {unit.what}", (unit,))
    yield keep(pending, f"everything but {unit.what}", _without(pending, {unit}))


def _grown(pending: PendingUnits, sectors: Sequence[PendingSector]) -> set[Unit]:
    """Return the sectors and the size of their file, because a prefix ends where its last sector ends."""
    return {*sectors, *(pending.size_of[unit.file] for unit in sectors[:1] if unit.file in pending.size_of)}


def _reach(pending: PendingUnits, unit: PendingSector) -> tuple[Unit, ...]:
    return (pending.size_of[unit.file],) if unit.file in pending.size_of else ()


def _with(fate: Exactly, unit: Unit, survival: Survival, *reached: Unit) -> Exactly:
    kept = dict(fate.kept) | {unit: survival} | dict.fromkeys(reached, REACHED)
    return Exactly(fate.label, frozenset(kept.items()))


def _without(pending: PendingUnits, units: set[Unit]) -> tuple[Unit, ...]:
    return tuple(unit for unit in pending.units if unit not in units)


def _edge_case_tears(sector_size: int) -> list[Survival]:
    """Return tears near the start, in the middle and near the end. Random fates choose other places."""
    sizes = _spread(range(ATOM, sector_size, ATOM), 3)
    return [half(size) for size in sizes for half in (SectorHead, SectorTail)]


def _spread(items: Sequence[_Item], count: int) -> list[_Item]:
    """Return at most `count` items, evenly spaced, including the first and the last."""
    if len(items) <= count:
        return list(items)
    return [items[index * (len(items) - 1) // (count - 1)] for index in range(count)]
