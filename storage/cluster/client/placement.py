"""The choice of bookies for a ledger, and of other bookies for those that have failed.

Bookies of consecutive indices share entries. So each bookie is taken from a zone that the Qw - 1 indices
before it use least, as far as there are zones. Among equals a hash of the seed and the bookie's id decides:
the same seed makes the same choice, and different seeds share the load. Quarantined bookies, which have
failed lately, are taken only if there are not enough others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.cluster.errors import NotEnoughBookies

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from storage.cluster.client.distribution import Quorums

DEFAULT_ZONE = "default"


@dataclass(frozen=True, slots=True)
class Candidates:
    """The bookies that take adds, as far as the client knows."""

    writable: frozenset[str]
    quarantined: frozenset[str] = frozenset()
    """Those of them that have failed lately."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """The zone of each bookie; `DEFAULT_ZONE` for the others."""

    def zone_of(self, bookie: str) -> str:
        return self.zones.get(bookie, DEFAULT_ZONE)

    @property
    def by_zone(self) -> dict[str, int]:
        """The number of bookies in each zone."""
        return dict(sorted(Counter(map(self.zone_of, self.writable)).items()))


def choose_ensemble(candidates: Candidates, quorums: Quorums, seed: int) -> tuple[str, ...]:
    """Return the bookies of a new ledger, or raise `NotEnoughBookies`."""
    chosen: list[str] = []
    while len(chosen) < quorums.ensemble:
        near = chosen[max(0, len(chosen) - quorums.write + 1) :]
        bookie = _best(candidates, near, chosen, seed)
        if bookie is None:
            raise NotEnoughBookies(quorums.ensemble, len(chosen), candidates.by_zone)
        chosen.append(bookie)
    return tuple(chosen)


def replace_bookies(
    candidates: Candidates, quorums: Quorums, ensemble: Sequence[str], failed: Collection[int], seed: int
) -> dict[int, str]:
    """Return other bookies for the failed indices of an ensemble, for as many of them as there are.

    No bookie of the ensemble is chosen, also none of the failed ones.
    """
    replaced = list(ensemble)
    chosen: dict[int, str] = {}
    for index in sorted(failed):
        distances = range(1 - quorums.write, quorums.write)
        near = {replaced[(index + distance) % len(replaced)] for distance in distances if distance}
        bookie = _best(candidates, near - {ensemble[index]}, {*ensemble, *chosen.values()}, seed)
        if bookie is None:
            break
        chosen[index] = replaced[index] = bookie
    return chosen


def _best(candidates: Candidates, near: Collection[str], excluded: Collection[str], seed: int) -> str | None:
    """Return the best bookie that is not excluded. `near` are those that will have the same entries."""
    usable = candidates.writable.difference(excluded)
    if not usable:
        return None
    used = Counter(map(candidates.zone_of, near))

    def rank(bookie: str) -> tuple[bool, int, bytes]:
        digest = hashlib.blake2b(f"{seed}/{bookie}".encode(), digest_size=8).digest()
        return bookie in candidates.quarantined, used[candidates.zone_of(bookie)], digest

    return min(usable, key=rank)
