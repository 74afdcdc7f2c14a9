"""What a power cut may do on one kind of system: which of the states of the strict model are legal there.

The strict model promises what POSIX does, which is little. Real file systems are kinder, each in its own
way; a violation is told by the kindest profile that still shows it, which answers "would this hit me on
ext4?".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.crashlab.fates import NEWEST, REACHED
from recovery.crashlab.pending import Head, Tail, Version

if TYPE_CHECKING:
    from recovery.crashlab.pending import Pending, Survivors


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of system."""

    name: str
    about: str
    sector_size: int = 512
    """What is never torn, in bytes."""
    orders_names: bool = False
    """Changes of names survive in their order, in all directories, and every sync takes them along."""
    orders_data: bool = False
    """A file that has grown has its bytes up to its end: no zeros, no stale bytes."""
    lies: int = 0
    """So many syncs have not happened yet when the power goes."""

    @property
    def keeps_promises(self) -> bool:
        """Whether a sync means anything: on a disk that lies, only that nothing is made up can be asked."""
        return self.lies == 0

    def legal(self, pending: Pending, survivors: Survivors) -> Survivors:
        """The nearest state that can be here."""
        legal: Survivors = {
            unit: NEWEST if isinstance(how, Head | Tail) else how for unit, how in survivors.items()
        }
        if self.orders_names:
            _keep_a_prefix_of_names(pending, legal)
        if self.orders_data:
            _keep_grown_files_whole(pending, legal)
        return legal


def _keep_a_prefix_of_names(pending: Pending, survivors: Survivors) -> None:
    names = sorted(pending.names, key=lambda unit: unit.number)
    lost = next((index for index, unit in enumerate(names) if unit not in survivors), len(names))
    for unit in names[lost:]:
        survivors.pop(unit, None)


def _keep_grown_files_whole(pending: Pending, survivors: Survivors) -> None:
    for file, growth in pending.size_of.items():
        sectors = pending.sectors_by_file.get(file, ())
        lost = next((index for index, unit in enumerate(sectors) if unit not in survivors), len(sectors))
        for unit in sectors[lost:]:
            survivors.pop(unit, None)
        if growth not in survivors:
            continue
        if lost < len(sectors):
            survivors[growth] = REACHED
        # A size is there with the bytes that led to it: no older version of them, which may be shorter.
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
        Profile("lying-disk", "the last two syncs did nothing; nothing may be made up all the same", lies=2),
    )
}
"""From the kindest to the worst."""


def kinder_than(profile: Profile) -> list[Profile]:
    """The profiles in front of this one, kindest first, and this one itself."""
    found = []
    for other in PROFILES.values():
        if other == profile:
            break
        found.append(other)
    return [*found, profile]


def profile_named(name: str) -> Profile:
    """The profile of that name; `ValueError` names all of them."""
    if name not in PROFILES:
        raise ValueError(f"no profile {name!r}: there are {', '.join(PROFILES)}")
    return PROFILES[name]
