"""One entry from its copies, and the last add confirmed.

The bookies of its write set are asked one after the other: the next one when a bookie has no good copy, or
has not answered for a while. An entry counts only if its digest, its ledger and its id are right.

An entry is *not there* only if every bookie of the write set has said so. If one of them did not answer, or
has a damaged copy, the entry is unreadable, which is not the same: it may come back.

The last add confirmed is the largest that the bookies of the last ensemble know, once so many of them have
answered that they cover it. A bookie with a damaged copy does not count, because its answer may be too low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.client.distribution import quorums_of
from storage.cluster.client.effects import NoAnswer, Send, Token
from storage.cluster.errors import CopiesUnreadable, LastAddConfirmedUnknown, UnauthorizedAccess
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    LAST_ENTRY,
    BatchRead,
    CodeAnswer,
    FoundEntries,
    FoundEntry,
    FoundLac,
    ReadEntry,
    ReadLac,
)
from storage.entry.model import NO_ENTRY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.client.distribution import Quorums
    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.errors import ClusterError
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
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
        self._to_ask = list(quorums.write_set(entry_id))
        if slow:
            self._to_ask.sort(key=lambda index: bookies[index] in slow)
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


class BatchOfEntries:
    """Reads consecutive entries with one request, from bookies that have all of them.

    It is over when `result` is there: the first entries, as many as a bookie could give. There may be none:
    then the first entry has to be read by itself, which also says what is wrong with it.
    """

    def __init__(
        self, entries: EntryCodec, bookies: Sequence[str], first_entry: int, count_max: int, size_max: int
    ) -> None:
        """Ask these bookies one after the other."""
        self._entries = entries
        self._bookies = bookies
        self._first = first_entry
        self._count_max = count_max
        self._size_max = size_max
        self.unable: set[str] = set()
        """The bookies that do not know such requests. They close the connection instead of an answer."""
        self.result: list[Entry] | None = None

    def begin(self) -> list[Send]:
        return self._ask(0)

    def _ask(self, index: int) -> list[Send]:
        if index == len(self._bookies):
            self.result = []
            return []
        request = BatchRead(self._entries.ledger_id, self._first, 0, self._count_max, self._size_max)
        return [Send(self._bookies[index], request, Token(self._first, index, READ))]

    def answered(self, token: Token, answer: BookieAnswer) -> list[Send]:
        match answer:
            case FoundEntries(found):
                good: list[Entry] = []
                for entry_id, data in enumerate(found[: self._count_max], self._first):
                    entry = self._entries.decode(entry_id, data)
                    if entry is None:
                        break  # another bookie may have a good copy
                    good.append(entry)
                if good:
                    self.result = good
                    return []
            case NoAnswer() | CodeAnswer(Code.BAD_REQUEST | Code.BAD_VERSION):
                self.unable.add(self._bookies[token.bookie_index])
            case _:
                pass
        return self._ask(token.bookie_index + 1)


class LacRead:
    """Asks all bookies of a ledger's last ensemble what is confirmed. It is over when `result` is there."""

    def __init__(self, entries: EntryCodec, metadata: ClusterLedgerMetadata) -> None:
        self._entries = entries
        self._quorums = quorums_of(metadata)
        self._bookies = metadata.segments[-1].bookies
        # A segment begins after an entry that its writer knew to be acknowledged.
        self._largest = metadata.segments[-1].first_entry - 1
        self._answered: set[int] = set()
        self._reasons: dict[str, str] = {}
        self.result: int | ClusterError | None = None

    def begin(self) -> list[Send]:
        request = ReadLac(self._entries.ledger_id)
        bookies = enumerate(self._bookies)
        return [Send(bookie, request, Token(LAST_ENTRY, index, READ)) for index, bookie in bookies]

    def answered(self, token: Token, answer: BookieAnswer) -> None:
        bookie = self._bookies[token.bookie_index]
        match answer:
            case FoundLac(packet, last_entry):
                entry = None if last_entry is None else self._entries.decode_any(last_entry)
                explicit = None if packet is None else self._entries.decode_lac(packet)
                if (last_entry is not None and entry is None) or (packet is not None and explicit is None):
                    self._reasons[bookie] = "a damaged entry"
                else:
                    self._answered.add(token.bookie_index)
                in_entry = NO_ENTRY if entry is None else entry.last_add_confirmed
                self._largest = max(self._largest, in_entry, NO_ENTRY if explicit is None else explicit)
            case CodeAnswer(Code.NO_ENTRY | Code.NO_LEDGER):
                self._answered.add(token.bookie_index)
            case _:
                self._reasons[bookie] = reason_of(answer)
        if self.result is not None:
            return
        if self._quorums.is_covered(self._answered):
            self.result = self._largest
        elif len(self._answered) + len(self._reasons) == len(self._bookies):
            self.result = LastAddConfirmedUnknown(self._entries.ledger_id, self._reasons)


def reason_of(answer: BookieAnswer) -> str:
    """Return why an answer brings no entry."""
    match answer:
        case NoAnswer(reason):
            return reason
        case CodeAnswer(code):
            return code.name.lower().replace("_", " ")
        case _:
            return "another answer than the one to this request"
