"""The fates worth trying at every crash point, listed: the classic corners, and every subset of a few units.

A list is told by its members, so each corner carries a label that a report can print.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from recovery.crashlab.fates import ATOM, REACHED, Exactly, keep
from recovery.crashlab.pending import Head, Tail, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.crashlab.pending import Pending, PendingSector, Survival, Unit

_Item = TypeVar("_Item")


def corner_fates(pending: Pending, *, per_file: int = 16) -> list[Exactly]:
    """The classic fates, each once: at most `per_file` sectors of a file are singled out."""
    return list(dict.fromkeys(_corners(pending, per_file)))


def exhaustive_fates(pending: Pending) -> Iterator[Exactly]:
    """Every subset of the pending units, the older versions apart: two to the power of their number."""
    for count in range(len(pending.units) + 1):
        for units in combinations(pending.units, count):
            yield keep(pending, f"keep {count} of {len(pending.units)}", units)


def _corners(pending: Pending, per_file: int) -> Iterator[Exactly]:
    names = pending.names
    data: tuple[Unit, ...] = (*pending.sizes, *pending.sectors)
    yield keep(pending, "lose everything", ())
    yield keep(pending, "keep everything", pending.units)
    yield keep(pending, "names only", names)
    yield keep(pending, "data only", data)
    yield keep(pending, "names and sizes, but zeros for data", (*names, *pending.sizes))
    yield from _names_alone(pending, data)
    for file in pending.files:
        yield from _file_alone(pending, file)
        yield from _sectors_alone(pending, pending.sectors_by_file.get(file, ()), per_file)
    for growth in pending.sizes:
        yield from _alone(pending, growth)


def _names_alone(pending: Pending, data: tuple[Unit, ...]) -> Iterator[Exactly]:
    for unit in pending.names:
        yield from _alone(pending, unit)
        yield keep(pending, f"all data, of the names only {unit.what}", (*data, unit))
    for names in pending.names_by_directory.values():
        for count in range(1, len(names)):
            yield keep(pending, f"all data, the first {count} names", (*data, *names[:count]))
            yield keep(pending, f"all data, but not the first {count} names", (*data, *names[count:]))
        others = tuple(unit for unit in pending.units if unit not in names)
        yield keep(pending, "one directory loses its changes", others)


def _file_alone(pending: Pending, file: int) -> Iterator[Exactly]:
    # The opposite, that this file alone loses everything, is the first of its prefixes.
    mine: set[Unit] = {*pending.sectors_by_file.get(file, ())}
    if growth := pending.size_of.get(file):
        mine.add(growth)
    yield keep(pending, f"names, and the data of file {file} only", (*pending.names, *mine))


def _sectors_alone(pending: Pending, sectors: Sequence[PendingSector], per_file: int) -> Iterator[Exactly]:
    for unit in _spread(sectors, per_file):
        index = sectors.index(unit)
        yield from _alone(pending, unit)
        others = _without(pending, {unit})
        up_to = _without(pending, _grown(pending, sectors[index:]))
        yield keep(pending, f"a prefix, up to {unit.what}", up_to)
        yield keep(pending, f"a suffix, behind {unit.what}", _without(pending, set(sectors[: index + 1])))
        for survival in _corner_tears(pending.sector_size):
            yield _with(keep(pending, f"all but a torn {unit.what}", others), unit, survival)
            cut_off = keep(pending, f"torn from {unit.what} on", up_to)
            yield _with(cut_off, unit, survival, *_reach(pending, unit))
        for version in range(unit.versions - 1):
            yield _with(keep(pending, f"an older {unit.what}", others), unit, Version(version))


def _alone(pending: Pending, unit: Unit) -> Iterator[Exactly]:
    yield keep(pending, f"only {unit.what}", (unit,))
    yield keep(pending, f"everything but {unit.what}", _without(pending, {unit}))


def _grown(pending: Pending, sectors: Sequence[PendingSector]) -> set[Unit]:
    """The sectors, and the size of their file: a prefix ends where its last sector ends."""
    return {*sectors, *(pending.size_of[unit.file] for unit in sectors[:1] if unit.file in pending.size_of)}


def _reach(pending: Pending, unit: PendingSector) -> tuple[Unit, ...]:
    return (pending.size_of[unit.file],) if unit.file in pending.size_of else ()


def _with(fate: Exactly, unit: Unit, survival: Survival, *reached: Unit) -> Exactly:
    kept = dict(fate.kept) | {unit: survival} | dict.fromkeys(reached, REACHED)
    return Exactly(fate.label, frozenset(kept.items()))


def _without(pending: Pending, units: set[Unit]) -> tuple[Unit, ...]:
    return tuple(unit for unit in pending.units if unit not in units)


def _corner_tears(sector_size: int) -> list[Survival]:
    """Torn near the start, in the middle and near the end; the random fates draw the other places."""
    sizes = _spread(range(ATOM, sector_size, ATOM), 3)
    return [half(size) for size in sizes for half in (Head, Tail)]


def _spread(items: Sequence[_Item], count: int) -> list[_Item]:
    """At most so many of the items, evenly spaced, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[index * (len(items) - 1) // (count - 1)] for index in range(count)]
