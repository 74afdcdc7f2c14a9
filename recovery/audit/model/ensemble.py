"""Where the copies of a ledger's entries have to be: BookKeeper's ensembles and quorums.

A ledger has one ensemble size E, one write quorum Qw and one ack quorum Qa. Each of its segments names E
stores, and their order matters: entry e of the segment is on the stores at positions (e + i) mod E, i < Qw.
When a store fails, a new segment begins right after the last confirmed entry, with another store in its
place.

Which copies are required, and how severe a missing copy is:

* In a **closed** ledger every entry up to the last is on all Qw stores. A missing copy is an error, because
no client writes it any more and the next failure may lose the entry.
* In an **open** ledger only *confirmed* entries were promised: those that a last add confirmed covers, and
those before the last segment. If fewer than Qa copies of such an entry exist it is an error, because Qa
copies were acknowledged. With Qa or more, but fewer than Qw, it is a warning: no promise is broken, but a
copy is owed. This holds up to the last entry of a store that is being written to; after it, the copy may be
in flight.
* An **unconfirmed** entry may be anywhere or nowhere: its writer got no answer, and a recovery decides what
becomes of it. A missing copy is information.
* Entries **after the last** of a closed ledger were not taken over by the recovery. They are information, and
so is every copy on a store that the ensemble does not require: an earlier ensemble or a repair left it.

BookKeeper's auditor skips open ledgers. Its checker of a single ledger reads up to the last confirmed entry,
as this one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Segment:
    """The entries from `first_entry` up to the next segment are on these stores."""

    first_entry: int
    stores: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerEnsembles:
    """The ensembles of one ledger. `last_entry` is `None` while it is open, and -1 if it was closed without
    entries.
    """

    ledger_id: int
    write_quorum: int
    ack_quorum: int
    segments: tuple[Segment, ...]
    last_entry: int | None = None

    @property
    def size(self) -> int:
        return len(self.segments[0].stores)

    @property
    def stores(self) -> frozenset[str]:
        """Return all stores that were ever in an ensemble of the ledger."""
        return frozenset(store for segment in self.segments for store in segment.stores)

    @property
    def step(self) -> int:
        """The distance of entry ids that are on the same stores. Runs with this step are long."""
        return 1 if self.write_quorum == self.size else self.size

    def places(self, segment: Segment, entry_id: int) -> Iterator[str]:
        """Yield the stores that have to hold an entry of the segment. It is the same for all entries a step
        apart.
        """
        for number in range(self.write_quorum):
            yield segment.stores[(entry_id % self.step + number) % self.size]


@dataclass(frozen=True, slots=True)
class LedgerProgress:
    """How far an open ledger has come, as far as its stores show."""

    confirmed: int
    """Every entry up to this one was acknowledged."""
    settled: int
    """No copy of an entry up to this one is still in flight."""

    @classmethod
    def least(cls, ledger: LedgerEnsembles) -> LedgerProgress:
        """Return what the ensembles alone show: the last segment begins after a confirmed entry."""
        confirmed = ledger.segments[-1].first_entry - 1
        return cls(confirmed, confirmed)
