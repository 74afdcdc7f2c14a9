"""Profiles: which states a power cut may leave on one kind of system.

The strict model promises only what POSIX promises, which is little. Real file systems promise more, each in
its own way. A violation is reported with the most benign profile that still shows it, which answers the
question "would this happen on ext4?".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.crashlab.model.fates import NEWEST, REACHED
from recovery.crashlab.model.pending import SectorHead, SectorTail, Version

if TYPE_CHECKING:
    from recovery.crashlab.model.pending import PendingUnits, Survivors


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of system."""

    name: str
    about: str
    sector_size: int = 512
    """The size in bytes of a block that is never torn."""
    orders_names: bool = False
    """Changes of names survive in order, over all directories, and every sync makes earlier ones durable."""
    orders_data: bool = False
    """A file that has grown contains its bytes up to its end: no zeros and no stale bytes."""
    ignored_syncs: int = 0
    """The number of recent syncs that had no effect when the power fails."""

    @property
    def keeps_promises(self) -> bool:
        """Return whether syncs have an effect. If not, only made-up data can be a violation."""
        return self.ignored_syncs == 0

    def legal(self, pending: PendingUnits, survivors: Survivors) -> Survivors:
        """Return the nearest state that is possible on this system."""
        legal: Survivors = {
            unit: NEWEST if isinstance(how, SectorHead | SectorTail) else how
            for unit, how in survivors.items()
        }
        if self.orders_names:
            _keep_a_prefix_of_names(pending, legal)
        if self.orders_data:
            _keep_grown_files_whole(pending, legal)
        return legal


def _keep_a_prefix_of_names(pending: PendingUnits, survivors: Survivors) -> None:
    names = sorted(pending.names, key=lambda unit: unit.number)
    lost = next((index for index, unit in enumerate(names) if unit not in survivors), len(names))
    for unit in names[lost:]:
        survivors.pop(unit, None)


def _keep_grown_files_whole(pending: PendingUnits, survivors: Survivors) -> None:
    for file, growth in pending.size_of.items():
        sectors = pending.sectors_by_file.get(file, ())
        lost = next((index for index, unit in enumerate(sectors) if unit not in survivors), len(sectors))
        for unit in sectors[lost:]:
            survivors.pop(unit, None)
        if growth not in survivors:
            continue
        if lost < len(sectors):
            survivors[growth] = REACHED
        # A durable size implies the bytes that led to it, not an older and perhaps shorter version of them.
        survivors.update((unit, NEWEST) for unit in sectors[:lost] if isinstance(survivors[unit], Version))


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "ext4-ordered",
            "ext4 as it is mounted by default: names in order and with every sync, data before size",
            sector_size=4096,
            orders_names=True,
            orders_data=True,
        ),
        Profile(
            "sector-4k",
            "what POSIX promises, on disks that never tear a sector of 4096 bytes",
            sector_size=4096,
        ),
        Profile("posix-strict", "what POSIX promises, sectors of 512 bytes, in any order"),
        Profile("nvm-64", "as posix-strict, but writes tear at 64 bytes", sector_size=64),
        Profile(
            "lying-disk",
            "the last two syncs did nothing; even so, nothing may be made up",
            ignored_syncs=2,
        ),
    )
}
"""From the most benign to the worst."""


def kinder_than(profile: Profile) -> list[Profile]:
    """Return the profiles that are more benign than this one, most benign first, and this one at the end."""
    found = []
    for other in PROFILES.values():
        if other == profile:
            break
        found.append(other)
    return [*found, profile]


def profile_named(name: str) -> Profile:
    """Return the profile with that name; the `ValueError` lists all of them."""
    if name not in PROFILES:
        raise ValueError(f"no profile {name!r}: there are {', '.join(PROFILES)}")
    return PROFILES[name]
