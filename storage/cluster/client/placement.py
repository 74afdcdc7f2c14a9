"""The choice of bookies for a ledger, and of other bookies for those that have failed.

Bookies of consecutive indices share entries. So each bookie is taken from a zone that the Qw - 1 indices
before it use least, as far as there are zones. With a minimum of zones the Qw bookies of every entry are in
so many zones; bookies that would not do are refused then. Among equals a hash of the seed and the bookie's id
decides: the same seed makes the same choice, and different seeds share the load. Quarantined bookies, which
have failed lately, are taken only if there are not enough others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.cluster.errors import NotEnoughBookies, NotEnoughZones

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from storage.cluster.client.distribution import Quorums

DEFAULT_ZONE = "default"

_STEPS_MAX = 10_000
"""The search ends after so many choices, and the zones count as too few."""


@dataclass(frozen=True, slots=True)
class ZoneRules:
    """Where bookies are, and over how many zones the copies of an entry have to be spread."""

    zones: Mapping[str, str] = field(default_factory=dict)
    """The zone of each bookie; `DEFAULT_ZONE` for the others."""
    zones_min: int = 1
    """Each entry has copies in so many zones, or in Qw if that is less."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The bookies that take adds, as far as the client knows."""

    writable: frozenset[str]
    quarantined: frozenset[str] = frozenset()
    """Those of them that have failed lately."""
    rules: ZoneRules = ZoneRules()

    def zone_of(self, bookie: str) -> str:
        return self.rules.zones.get(bookie, DEFAULT_ZONE)

    @property
    def by_zone(self) -> dict[str, int]:
        """The number of bookies in each zone."""
        return dict(sorted(Counter(map(self.zone_of, self.writable)).items()))


def choose_ensemble(candidates: Candidates, quorums: Quorums, seed: int) -> tuple[str, ...]:
    """Return the bookies of a new ledger, or raise `NotEnoughBookies`."""
    search = _EnsembleSearch(candidates, quorums, seed)
    if not search.complete([]):
        raise not_enough(candidates, quorums.ensemble, search.longest)
    return tuple(search.found)


def not_enough(candidates: Candidates, wanted: int, found: int) -> NotEnoughBookies:
    """Return the error that says which bookies there are."""
    zones_min = candidates.rules.zones_min
    if zones_min > 1:
        return NotEnoughZones(wanted, found, candidates.by_zone, zones_min)
    return NotEnoughBookies(wanted, found, candidates.by_zone)


class _EnsembleSearch:
    """Chooses bookies one after the other, and goes back where the zones do not suffice."""

    def __init__(self, candidates: Candidates, quorums: Quorums, seed: int) -> None:
        self._candidates = candidates
        self._quorums = quorums
        self._seed = seed
        self._steps = 0
        self.longest = 0
        """The largest number of bookies that were chosen together."""
        self.found: list[str] = []

    def complete(self, chosen: list[str]) -> bool:
        """Return whether bookies can be added to these, and leave them in `found`."""
        self.longest = max(self.longest, len(chosen))
        self._steps += 1
        if len(chosen) == self._quorums.ensemble:
            self.found = chosen
            return True
        near = chosen[max(0, len(chosen) - self._quorums.write + 1) :]
        tried: set[str] = set()
        for bookie in _by_rank(self._candidates, near, chosen, self._seed):
            zone = self._candidates.zone_of(bookie)
            # All bookies of one zone lead to the same zones.
            if zone in tried or self._steps > _STEPS_MAX:
                continue
            tried.add(zone)
            more = [*chosen, bookie]
            places = [*more, *[None] * (self._quorums.ensemble - len(more))]
            if _has_zones(self._candidates, self._quorums, places, len(chosen)) and self.complete(more):
                return True
        return False


def _has_zones(candidates: Candidates, quorums: Quorums, ensemble: Sequence[str | None], index: int) -> bool:
    """Return whether each write set with this index is in enough zones, or may be yet.

    `None` stands for a bookie that is not chosen.
    """
    wanted = min(candidates.rules.zones_min, quorums.write)
    for first in range(index - quorums.write + 1, index + 1):
        places = [ensemble[(first + step) % len(ensemble)] for step in range(quorums.write)]
        zones = {candidates.zone_of(bookie) for bookie in places if bookie is not None}
        if len(zones) + places.count(None) < wanted:
            return False
    return True


def replace_bookies(
    candidates: Candidates, quorums: Quorums, ensemble: Sequence[str], failed: Collection[int], seed: int
) -> dict[int, str]:
    """Return other bookies for the failed indices of an ensemble, for as many of them as there are.

    No bookie of the ensemble is chosen, also none of the failed ones.
    """
    places: list[str | None] = [None if index in failed else name for index, name in enumerate(ensemble)]
    replaced = list(ensemble)
    chosen: dict[int, str] = {}
    for index in sorted(failed):
        distances = range(1 - quorums.write, quorums.write)
        near = {replaced[(index + distance) % len(replaced)] for distance in distances if distance}
        for bookie in _by_rank(candidates, near - {ensemble[index]}, {*ensemble, *chosen.values()}, seed):
            places[index] = bookie
            if _has_zones(candidates, quorums, places, index):
                chosen[index] = replaced[index] = bookie
                break
            places[index] = None
    return chosen


def _by_rank(
    candidates: Candidates, near: Collection[str], excluded: Collection[str], seed: int
) -> list[str]:
    """Return the bookies that are not excluded, the best first. `near` will have the same entries."""
    usable = candidates.writable.difference(excluded)
    used = Counter(map(candidates.zone_of, near))

    def rank(bookie: str) -> tuple[bool, int, bytes]:
        digest = hashlib.blake2b(f"{seed}/{bookie}".encode(), digest_size=8).digest()
        return bookie in candidates.quarantined, used[candidates.zone_of(bookie)], digest

    return sorted(usable, key=rank)
