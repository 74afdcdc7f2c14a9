"""One entry from its copies.

The bookies of its write set are asked one after the other: the next one when a bookie has no good copy, or
has not answered for a while. An entry counts only if its digest, its ledger and its id are right.

An entry is *not there* only if every bookie of the write set has said so. If one of them did not answer, or
has a damaged copy, the entry is unreadable, which is not the same: it may come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.client.effects import NoAnswer, Send, Token
from storage.cluster.errors import CopiesUnreadable, UnauthorizedAccess
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import CodeAnswer, FoundEntry, ReadEntry
from storage.entry.model import NO_ENTRY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.client.distribution import Quorums
    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.errors import ClusterError
    from storage.entry.model import Entry

READ = 0
"""The number of every sending that is not a copy: a bookie is asked for an entry only once."""


class NotThere(NamedTuple):
    """No bookie of the write set has the entry."""


class EntryRead:
    """Reads one entry. It is over when `result` is there."""

    def __init__(
        self,
        entries: EntryCodec,
        quorums: Quorums,
        bookies: Sequence[str],
        entry_id: int,
        slow: frozenset[str] = frozenset(),
    ) -> None:
        """Read an entry from an ensemble. The bookies that are `slow` are asked last."""
        self._entries = entries
        self._bookies = bookies
        self.entry_id = entry_id
        self._to_ask = sorted(quorums.write_set(entry_id), key=lambda index: bookies[index] in slow)
        self._unanswered = 0
        self._reasons: dict[str, str] = {}
        """By bookie: why it has no good copy."""
        self._is_somewhere = False
        """Whether a bookie may have it."""
        self.last_add_confirmed = NO_ENTRY
        """The largest that came with an answer."""
        self.result: Entry | NotThere | ClusterError | None = None

    def begin(self) -> list[Send]:
        return self._ask_next()

    def waited(self) -> list[Send]:
        """Ask one more bookie, because the answers take long."""
        return self._ask_next() if self.result is None and self._to_ask else []

    def answered(self, token: Token, answer: BookieAnswer) -> list[Send]:
        # A recovery still gets answers to its reads of entries after this one.
        if self.result is not None or token.entry_id != self.entry_id:
            return []
        self._unanswered -= 1
        bookie = self._bookies[token.bookie_index]
        match answer:
            case FoundEntry(bytes() as data, _, lac):
                self.last_add_confirmed = max(self.last_add_confirmed, NO_ENTRY if lac is None else lac)
                self.result = self._entries.decode(self.entry_id, data)
                self._reasons[bookie] = "a damaged entry"
                self._is_somewhere = True
            case CodeAnswer(Code.NO_ENTRY | Code.NO_LEDGER):
                self._reasons[bookie] = "no such entry"
            case CodeAnswer(Code.UNAUTHORIZED):
                self.result = UnauthorizedAccess(self._entries.ledger_id)
            case _:
                self._reasons[bookie] = reason_of(answer)
                self._is_somewhere = True
        if self.result is not None:
            return []
        if self._to_ask:
            return self._ask_next()
        if not self._unanswered:
            unreadable = CopiesUnreadable(self._entries.ledger_id, self.entry_id, self._reasons)
            self.result = unreadable if self._is_somewhere else NotThere()
        return []

    def _ask_next(self) -> list[Send]:
        index = self._to_ask.pop(0)
        self._unanswered += 1
        request = ReadEntry(self._entries.ledger_id, self.entry_id)
        return [Send(self._bookies[index], request, Token(self.entry_id, index, READ))]


def reason_of(answer: BookieAnswer) -> str:
    """Return why an answer brings no entry."""
    match answer:
        case NoAnswer(reason):
            return reason
        case CodeAnswer(code):
            return code.name.lower().replace("_", " ")
        case _:
            return "another answer than the one to this request"
