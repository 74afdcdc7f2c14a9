"""The fragments of a ledger: the entries that one bookie has of one segment. Pure.

A segment is a range of entries with one ensemble. Of E bookies, the one at index i has the entries e with
(i - e) mod E < Qw:

    E = 3, Qw = 2      index 0   0 · 2 3 · 5
                       index 1   0 1 · 3 4 ·
                       index 2   · 1 2 · 4 5

A fragment is named by the first entry of its segment, which is the key of the segment in the metadata, and
by the index. The list of bookies names no segment: two segments may have equal lists.

The last segment of a ledger that is not closed has no fixed end. A writer or a recovery may change it, so it
has no fragments here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from storage.cluster.client.distribution import quorums_of
from storage.entry.model import NO_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from storage.cluster.client.distribution import Quorums
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment


@dataclass(frozen=True, slots=True, order=True)
class FragmentKey:
    """The name of a fragment in its ledger."""

    segment: int
    """The first entry of the segment."""
    index: int
    """The index of the bookie in the ensemble."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The entries that one bookie should have of one segment."""

    key: FragmentKey
    bookies: tuple[str, ...]
    """The ensemble of the segment."""
    stop: int
    """The segment ends before this entry."""
    quorums: Quorums

    @property
    def bookie(self) -> str:
        return self.bookies[self.key.index]

    @property
    def count(self) -> int:
        """The number of entries."""
        full, rest = divmod(max(0, self.stop - self.key.segment), self.quorums.ensemble)
        offsets = self._offsets
        return full * len(offsets) + sum(offset < rest for offset in offsets)

    def entry_at(self, position: int) -> int:
        """Return the id of an entry by its position among those of the fragment."""
        assert 0 <= position < self.count, position
        offsets = self._offsets
        full, rest = divmod(position, len(offsets))
        return self.key.segment + full * self.quorums.ensemble + offsets[rest]

    def entries(self) -> Iterator[int]:
        """Yield the ids of the entries, ascending."""
        return map(self.entry_at, range(self.count))

    @property
    def _offsets(self) -> tuple[int, ...]:
        ensemble = self.quorums.ensemble
        return _offsets(ensemble, self.quorums.write, (self.key.index - self.key.segment) % ensemble)


@cache
def _offsets(ensemble: int, write: int, index: int) -> tuple[int, ...]:
    """Return which of E consecutive entries, the first of which is at index 0, are at the index."""
    return tuple(offset for offset in range(ensemble) if (index - offset) % ensemble < write)


def fixed_fragments(metadata: ClusterLedgerMetadata) -> Iterator[Fragment]:
    """Yield the fragments of all segments whose entries are decided, also the empty ones."""
    quorums = quorums_of(metadata)
    for segment, stop in fixed_segments(metadata):
        for index in range(len(segment.bookies)):
            yield Fragment(FragmentKey(segment.first_entry, index), segment.bookies, stop, quorums)


def fixed_segments(metadata: ClusterLedgerMetadata) -> Iterator[tuple[LedgerSegment, int]]:
    """Yield the segments whose entries are decided, each with the id after its last entry."""
    segments = metadata.segments
    stops = [segment.first_entry for segment in segments[1:]]
    if metadata.is_closed:
        end = (NO_ENTRY if metadata.last_entry is None else metadata.last_entry) + 1
        stops = [min(stop, end) for stop in stops] + [end]
    return zip(segments, stops, strict=False)


def growing_segment(metadata: ClusterLedgerMetadata) -> LedgerSegment | None:
    """Return the last segment of a ledger that is not closed."""
    return None if metadata.is_closed else metadata.segments[-1]


def lost_of(metadata: ClusterLedgerMetadata, registered: AbstractSet[str]) -> Sequence[str]:
    """Return the bookies that the metadata name and that are not registered, in ascending order."""
    return sorted({bookie for one in metadata.segments for bookie in one.bookies} - registered)
