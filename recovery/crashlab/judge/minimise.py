"""Finds the smallest crash that still shows a breach: restores lost units as long as the breach shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.crashlab.model.fates import NEWEST
from recovery.crashlab.model.pending import Newest, PendingName, PendingSector, PendingSize, Reached

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.crashlab.model.pending import PendingUnits, Survival, Survivors, Unit


@dataclass(frozen=True, slots=True)
class Minimal:
    """The smallest crash: the units that survive it, and descriptions of the lost ones."""

    survivors: Survivors
    lost: tuple[str, ...]


def minimise(pending: PendingUnits, survivors: Survivors, shows: Callable[[Survivors], bool]) -> Minimal:
    """Restore lost units, first halves of them, then one by one; a file's size goes with its sectors.

    `shows` returns whether a crash with these survivors still shows the breach.
    """
    current = dict(survivors)
    harmed = [unit for unit in pending.units if not _is_whole(current.get(unit))]
    chunk = max(1, len(harmed) // 2)
    while True:
        for start in range(0, len(harmed), chunk):
            back = harmed[start : start + chunk]
            tried = {**current, **dict.fromkeys(back, NEWEST)}
            if any(not _is_whole(current.get(unit)) for unit in back) and shows(tried):
                current = tried
        harmed = [unit for unit in harmed if not _is_whole(current.get(unit))]
        if chunk == 1:
            break
        chunk = max(1, min(chunk // 2, len(harmed) // 2 or 1))
    return Minimal(current, describe(pending, harmed, current))


def _is_whole(survival: Survival | None) -> bool:
    return isinstance(survival, Newest)


def describe(pending: PendingUnits, harmed: Sequence[Unit], survivors: Survivors) -> tuple[str, ...]:
    """Describe the lost units for people; consecutive sectors of a file are one range."""
    names = [
        f"{unit.what} (its directory was not synced)" for unit in harmed if isinstance(unit, PendingName)
    ]
    sizes = {unit.file: unit for unit in harmed if isinstance(unit, PendingSize)}
    sectors: dict[int, list[PendingSector]] = {}
    for unit in harmed:
        if isinstance(unit, PendingSector):
            sectors.setdefault(unit.file, []).append(unit)
    files = dict.fromkeys((*sectors, *sizes))
    data = (_describe_data(pending, sectors.get(file, []), sizes.get(file), survivors) for file in files)
    return (*names, *data)


def _describe_data(
    pending: PendingUnits, sectors: Sequence[PendingSector], growth: PendingSize | None, survivors: Survivors
) -> str:
    if not sectors:
        assert growth is not None
        return f"{growth.what} (the file was not synced)"
    path = sectors[0].what.partition(" of ")[2]
    first, last = sectors[0].sector * pending.sector_size, (sectors[-1].sector + 1) * pending.sector_size
    size = " and its size" if growth is not None and not isinstance(survivors.get(growth), Reached) else ""
    damage = "" if all(unit not in survivors for unit in sectors) else ", in part or in an older version"
    return f"bytes {first} to {last} of {path}{size}{damage} (the file was not synced)"
