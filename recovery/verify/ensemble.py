"""Where the copies of a ledger's entries have to be: BookKeeper's ensembles and quorums.

A ledger has one ensemble size E, one write quorum Qw and one ack quorum Qa. Each of its segments names E
stores in an order that matters: entry e of the segment is on those at positions (e + i) mod E, i < Qw. When a
store fails, a new segment begins right behind the last entry that was confirmed, with another in its place.

What has to be where, and how sure that is:

* Of a **closed** ledger every entry up to its last is on all Qw stores. A copy that is missing is an error:
  nobody writes it any more, and the next failure may cost the entry.
* Of an **open** ledger only what is *confirmed* was promised to anybody: what an add confirmed says, and all
  that stands before its last segment. Of those fewer than Qa copies are an error: so many were acknowledged.
  With Qa and more, but fewer than Qw, it is a warning: no promise is broken, and the copy is owed. That is so
  in front of what a store that is being written to has last; behind it the copy may be on its way.
* What is **not confirmed** may be anywhere, or nowhere: its writer was not answered, and a recovery decides
  what becomes of it. A missing copy there is information.
* Entries **behind the last** of a closed ledger are what a recovery did not take over. They are information,
  as is every copy on a store that its place does not give it: an ensemble before, or a repair, has left it.

BookKeeper's auditor passes over ledgers that are open; its checker of a single ledger reads up to what is
confirmed, as we do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Segment:
    """From `first_entry` on, up to the next segment, the entries are on these stores."""

    first_entry: int
    stores: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ensembles:
    """One ledger's. `last_entry` is `None` while it is open, and -1 where it was closed without entries."""

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
        """All that have ever been in an ensemble of it."""
        return frozenset(store for segment in self.segments for store in segment.stores)

    @property
    def step(self) -> int:
        """Entries whose ids are so far apart are on the same stores: runs of them are long ones."""
        return 1 if self.write_quorum == self.size else self.size

    def segment_of(self, entry_id: int) -> Segment | None:
        """`None`: in front of the first one."""
        found = [segment for segment in self.segments if segment.first_entry <= entry_id]
        return found[-1] if found else None

    def places(self, segment: Segment, entry_id: int) -> Iterator[str]:
        """The stores that have to hold an entry of that segment, the same for all that are a step apart."""
        for number in range(self.write_quorum):
            yield segment.stores[(entry_id % self.step + number) % self.size]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an open ledger has come, as far as its stores tell."""

    confirmed: int
    """Up to here every entry was acknowledged."""
    settled: int
    """Up to here no copy is on its way any more."""

    @classmethod
    def least(cls, ledger: Ensembles) -> Progress:
        """What the ensembles alone tell: the last segment begins behind what was confirmed."""
        confirmed = ledger.segments[-1].first_entry - 1
        return cls(confirmed, confirmed)
