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

from storage.cluster.client.effects import Send, Token
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import CodeAnswer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from storage.cluster.client.distribution import Quorums
    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.wire.messages import AddEntry


class CopyResult(enum.Enum):
    """What the answer to a copy means."""

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
    sent: dict[int, Send] = field(default_factory=dict)
    """By index: the last sending."""
    stored: set[int] = field(default_factory=set)
    """The indices whose last sending was answered with success."""


class EntriesUnderWay:
    """The entries of one ledger that are not acknowledged yet. Their ids are consecutive."""

    def __init__(self, quorums: Quorums, bookies: Sequence[str], first_entry: int) -> None:
        self._quorums = quorums
        self._first = first_entry
        """The id of the first entry that is not acknowledged."""
        self._sendings = 0
        self.bookies = tuple(bookies)
        """The ensemble. All copies that count are there."""
        self.pending: dict[int, EntryUnderWay] = {}
        self.failed: set[int] = set()
        """Indices of the ensemble whose bookie has failed."""
        self.unanswered: dict[Token, str] = {}
        """Copies of acknowledged entries that are not answered yet, and their bookies."""
        self.lacking: set[str] = set()
        """Bookies that lack copies of acknowledged entries. Those entries have fewer than Qw copies."""

    def add(self, request: AddEntry, length: int) -> list[Send]:
        """Take the next entry and send its copies."""
        assert request.entry_id == self._first + len(self.pending)
        entry = self.pending[request.entry_id] = EntryUnderWay(request, length)
        return self._send(entry)

    def answered(self, token: Token, answer: BookieAnswer) -> CopyResult:
        """Note the answer to a copy."""
        code = answer.code if isinstance(answer, CodeAnswer) else None
        entry = self.pending.get(token.entry_id)
        if entry is None:
            return self._answered_late(token, code)
        if entry.sent[token.bookie_index].token != token:
            return CopyResult.STALE
        if code is Code.OK:
            entry.stored.add(token.bookie_index)
            return CopyResult.STORED
        self.failed.add(token.bookie_index)
        return _FAILURES.get(code, CopyResult.FAILED)

    def _answered_late(self, token: Token, code: Code | None) -> CopyResult:
        """Note an answer to a copy of an entry that is acknowledged, or was given up."""
        bookie = self.unanswered.pop(token, None)
        if bookie is None or code is Code.OK:
            return CopyResult.STALE
        self.lacking.add(bookie)
        if self.bookies[token.bookie_index] != bookie:
            return CopyResult.STALE
        self.failed.add(token.bookie_index)
        return _FAILURES.get(code, CopyResult.FAILED)

    def fail(self, bookie: str) -> None:
        """Count no copy at this bookie any more, because it may have lost them."""
        indices = {index for index, name in enumerate(self.bookies) if name == bookie}
        self.failed |= indices
        for entry in self.pending.values():
            entry.stored -= indices

    def take_complete(self) -> list[EntryUnderWay]:
        """Remove and return the entries at the head that have Qa copies, up to the first that has not."""
        complete = []
        while (entry := self.pending.get(self._first)) and len(entry.stored) >= self._quorums.ack:
            complete.append(self.pending.pop(self._first))
            self._first += 1
            for index in self._quorums.write_set(entry.request.entry_id):
                if index in entry.stored:
                    continue
                if index in self.failed:
                    self.lacking.add(self.bookies[index])
                else:
                    self.unanswered[entry.sent[index].token] = self.bookies[index]
        return complete

    def can_complete(self, absent: Collection[int]) -> bool:
        """Return whether each entry can still get Qa copies if the bookies of these indices store no more."""
        return all(
            sum(
                index in entry.stored or index not in absent
                for index in self._quorums.write_set(entry.request.entry_id)
            )
            >= self._quorums.ack
            for entry in self.pending.values()
        )

    def use_ensemble(self, bookies: Sequence[str]) -> list[Send]:
        """Send the copies of all entries that are not at the bookies of this ensemble.

        What has to be sent follows from where each copy was sent, and not from the difference of two
        ensembles: after a change whose answer was lost there may be no difference.
        """
        self.failed = {index for index in self.failed if self.bookies[index] == bookies[index]}
        self.bookies = tuple(bookies)
        return [send for entry in self.pending.values() for send in self._send(entry)]

    def drain(self) -> range:
        """Give up all entries, and return their ids."""
        ids = range(self._first, self._first + len(self.pending))
        self.pending.clear()
        return ids

    def _send(self, entry: EntryUnderWay) -> list[Send]:
        """Send the copies whose last sending went to another bookie than the ensemble has at their index."""
        sends = []
        for index in self._quorums.write_set(entry.request.entry_id):
            bookie, last = self.bookies[index], entry.sent.get(index)
            if index in self.failed or (last is not None and last.bookie == bookie):
                continue
            self._sendings += 1
            token = Token(entry.request.entry_id, index, self._sendings)
            entry.sent[index] = Send(bookie, entry.request, token)
            entry.stored.discard(index)
            sends.append(entry.sent[index])
        return sends


_FAILURES: Mapping[Code | None, CopyResult] = {
    Code.FENCED: CopyResult.FENCED,
    Code.UNAUTHORIZED: CopyResult.UNAUTHORIZED,
}
