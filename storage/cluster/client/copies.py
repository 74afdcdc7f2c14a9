"""The entries under way: where each copy was sent, and which copies count.

A copy counts if the bookie that has stored it is the one that the present ensemble has at its index, and if
it answers the *last* sending to that index. So an answer counts by the number of its sending. The bookie's
name alone is not enough: after changes from A to D and back to A, an answer of A may belong to the copy
before the changes.

A bookie that has failed gets no more copies until it is replaced. An index with such a bookie is `failed`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.cluster.client.effects import Sending
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import CodeAnswer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from storage.cluster.client.distribution import Quorums
    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.wire.messages import AddEntry


class CopyResult(enum.Enum):
    """The meaning of a bookie's answer to a copy."""

    STORED = "it counts"
    STALE = "the copy has been sent again since, or its entry is done: the answer changes nothing"
    FAILED = "the bookie has failed"
    FENCED = "the bookie takes no more entries of this ledger from a writer"
    UNAUTHORIZED = "the bookie knows another password of this ledger"


@dataclass(slots=True)
class EntryUnderWay:
    """An entry that is not acknowledged yet."""

    request: AddEntry
    length: int
    """The length of all payloads up to and with this entry."""
    sent: tuple[Sending, ...]
    """The last sending to each index."""
    stored: set[Sending] = field(default_factory=set)
    """Those of them that were answered with success."""

    def stored_at(self) -> set[int]:
        """Return the indices whose last sending was answered with success."""
        return {sending.bookie_index for sending in self.stored}


class EntriesUnderWay:
    """The entries of one ledger that are not acknowledged yet. Their ids are consecutive."""

    def __init__(self, quorums: Quorums, bookies: Sequence[str], first_entry: int) -> None:
        self._quorums = quorums
        self._first = first_entry
        """The id of the first entry that is not acknowledged."""
        self.bookies = tuple(bookies)
        """The ensemble. All copies that count are there."""
        self._sendings = [Sending(bookie, index, index) for index, bookie in enumerate(bookies)]
        """By index: the sending to the bookie of the ensemble."""
        self._next_number = len(self._sendings)
        self._targets: dict[int, tuple[Sending, ...]] = {}
        """By the first index of a write set: where its entries are sent now. It is made when it is needed."""
        self.pending: dict[int, EntryUnderWay] = {}
        self.failed: set[int] = set()
        """Indices of the ensemble whose bookie has failed."""
        self.unanswered: set[tuple[int, Sending]] = set()
        """Copies of acknowledged entries that are not answered yet."""
        self.lacking: set[str] = set()
        """Bookies that lack copies of acknowledged entries. Those entries have fewer than Qw copies."""

    def add(self, request: AddEntry, length: int) -> tuple[AddEntry, Sequence[Sending]]:
        """Take the next entry, and return where its copies have to be sent."""
        assert request.entry_id == self._first + len(self.pending)
        sent = self._targets_of(request.entry_id)
        self.pending[request.entry_id] = EntryUnderWay(request, length, sent)
        return request, sent

    def answered(self, sending: Sending, entry_ids: Sequence[int], answer: BookieAnswer) -> CopyResult:
        """Note the answer to the copies of these entries."""
        if isinstance(answer, CodeAnswer) and answer.code is Code.OK:
            return self._stored(sending, entry_ids)
        is_news = False
        for entry_id in entry_ids:
            entry = self.pending.get(entry_id)
            if entry is not None:
                is_news = is_news or sending in entry.sent
            elif (entry_id, sending) in self.unanswered:
                self.unanswered.remove((entry_id, sending))
                self.lacking.add(sending.bookie)
                is_news = is_news or self._sendings[sending.bookie_index] == sending
        if not is_news:
            return CopyResult.STALE
        if sending.bookie_index in self.failed:
            # A bookie that the metadata do not name any more refuses its first add as if it were fenced. That
            # is no fence: this writer has replaced the bookie itself, and waits for the answer to its write.
            return CopyResult.STALE
        self._fail(sending.bookie_index)
        return _FAILURES.get(answer.code if isinstance(answer, CodeAnswer) else None, CopyResult.FAILED)

    def _stored(self, sending: Sending, entry_ids: Sequence[int]) -> CopyResult:
        """Count these copies, as far as they are those of the last sending."""
        result = CopyResult.STALE
        for entry_id in entry_ids:
            entry = self.pending.get(entry_id)
            if entry is None:
                self.unanswered.discard((entry_id, sending))
            elif sending in entry.sent:
                entry.stored.add(sending)
                result = CopyResult.STORED
        return result

    def fail(self, bookie: str) -> None:
        """Count no copy at this bookie any more, because it may have lost them."""
        for sending in [one for one in self._sendings if one.bookie == bookie]:
            self._fail(sending.bookie_index)
            for entry in self.pending.values():
                entry.stored.discard(sending)

    def take_complete(self) -> list[EntryUnderWay]:
        """Remove and return the entries at the head that have Qa copies, up to the first that has not."""
        complete = []
        while (entry := self.pending.get(self._first)) and len(entry.stored) >= self._quorums.ack:
            del self.pending[self._first]
            complete.append(entry)
            if self.failed:
                self._note_lacking(entry)
            for sending in entry.sent:
                if sending not in entry.stored and sending.bookie_index not in self.failed:
                    self.unanswered.add((self._first, sending))
            self._first += 1
        return complete

    def _note_lacking(self, entry: EntryUnderWay) -> None:
        """Note the failed bookies that should have a copy of this entry."""
        without = self.failed.difference(entry.stored_at())
        for index in without.intersection(self._quorums.write_set(entry.request.entry_id)):
            self.lacking.add(self.bookies[index])

    def can_complete(self, absent: Collection[int]) -> bool:
        """Return whether each entry can still get Qa copies if the bookies of these indices store no more."""
        return all(
            len(entry.stored_at().union(set(self._quorums.write_set(entry_id)).difference(absent)))
            >= self._quorums.ack
            for entry_id, entry in self.pending.items()
        )

    def use_ensemble(self, bookies: Sequence[str]) -> list[tuple[AddEntry, Sequence[Sending]]]:
        """Return the copies to send: those of all entries that are not at the bookies of this ensemble.

        What has to be sent follows from where each copy was sent, and not from the difference of two
        ensembles: after a change whose answer was lost there may be no difference.
        """
        self.failed = {index for index in self.failed if self.bookies[index] == bookies[index]}
        for index, bookie in enumerate(bookies):
            if bookie != self.bookies[index]:
                self._sendings[index] = Sending(bookie, index, self._next_number)
                self._next_number += 1
        self.bookies = tuple(bookies)
        self._targets.clear()
        again = [(entry.request, self._send_again(entry)) for entry in self.pending.values()]
        return [(request, sendings) for request, sendings in again if sendings]

    def _send_again(self, entry: EntryUnderWay) -> tuple[Sending, ...]:
        """Return where the copies of an entry have to go that it does not have in this ensemble yet."""
        again = tuple(one for one in self._targets_of(entry.request.entry_id) if one not in entry.sent)
        indices = {one.bookie_index for one in again}
        displaced = [one for one in entry.sent if one.bookie_index in indices]
        entry.stored.difference_update(displaced)
        entry.sent = (*(one for one in entry.sent if one not in displaced), *again)
        return again

    def drain(self) -> range:
        """Give up all entries, and return their ids."""
        ids = range(self._first, self._first + len(self.pending))
        self.pending.clear()
        return ids

    def _fail(self, index: int) -> None:
        """Send no more copies to the bookie of an index."""
        self.failed.add(index)
        self._targets.clear()

    def _targets_of(self, entry_id: int) -> tuple[Sending, ...]:
        """Return where an entry is sent now: to the bookies of its write set that have not failed."""
        first = entry_id % self._quorums.ensemble
        targets = self._targets.get(first)
        if targets is None:
            write_set = self._quorums.write_set(entry_id)
            targets = tuple(self._sendings[index] for index in write_set if index not in self.failed)
            self._targets[first] = targets
        return targets


_FAILURES: Mapping[Code | None, CopyResult] = {
    Code.FENCED: CopyResult.FENCED,
    Code.UNAUTHORIZED: CopyResult.UNAUTHORIZED,
}
