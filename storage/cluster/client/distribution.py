"""Which bookies have an entry, and what the answers of some of them prove.

Entries are striped over an ensemble of E bookies. Entry e has copies at the Qw consecutive *indices* that
begin at e mod E, and is acknowledged when Qa of them have it:

    E = 4, Qw = 3      entry 0   ● ● ● ·
                       entry 1   · ● ● ●
                       entry 2   ● · ● ●
                       entry 3   ● ● · ●
                       entry 4   ● ● ● ·

Two numbers follow. An entry is *certainly missing* when Qw - Qa + 1 bookies of its write set do not have it,
because too few are left for an acknowledgement. A set of bookies *covers* an ensemble when no write set has
Qa bookies outside of it, so that whatever was acknowledged has a copy inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from storage.cluster.errors import InvalidQuorums

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from storage.cluster.metadata.ledger import ClusterLedgerMetadata


@dataclass(frozen=True, slots=True)
class Quorums:
    """The sizes of an ensemble, of the set of bookies that get an entry, and of the set that must have it."""

    ensemble: int
    write: int
    ack: int

    def __post_init__(self) -> None:
        if not self.ensemble >= self.write >= self.ack >= 1:
            raise InvalidQuorums(self.ensemble, self.write, self.ack)

    @property
    def missing(self) -> int:
        """If so many bookies lack an entry, it was not acknowledged and cannot be any more."""
        return self.write - self.ack + 1

    def write_set(self, entry_id: int) -> tuple[int, ...]:
        """Return the indices of the bookies that have the entry."""
        return _write_sets(self.ensemble, self.write)[entry_id % self.ensemble]

    def is_covered(self, answered: AbstractSet[int]) -> bool:
        """Return whether every acknowledged entry has a copy at one of these indices."""
        return all(
            sum(index not in answered for index in window) < self.ack
            for window in _write_sets(self.ensemble, self.write)
        )


def quorums_of(metadata: ClusterLedgerMetadata) -> Quorums:
    """Return the quorums of a ledger."""
    return Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)


@cache
def _write_sets(ensemble: int, write: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple((first + step) % ensemble for step in range(write)) for first in range(ensemble))
