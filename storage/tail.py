"""The end of each ledger: what is durable, and what has been handed out beyond that."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from storage.codec import record as record_codec
from storage.entry import NO_ENTRY
from storage.errors import InvalidEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.entry import Entry


class LedgerEnd(NamedTuple):
    """The last durable entry of a ledger: its id, and the payload bytes up to and with it."""

    entry_id: int
    length: int


EMPTY = LedgerEnd(NO_ENTRY, 0)


@dataclass(slots=True)
class Run:
    """Consecutive entries of one ledger on their way to the journal, each record in two parts."""

    tail: Tail
    first_id: int
    fronts: Sequence[bytes]
    payloads: Sequence[bytes]
    size: int
    length: int
    """What the ledger counts up to and with the last of them."""
    is_durable: bool = False
    """Whether all of it is, and can be read: so it is answered, whatever becomes of others in its turn."""
    whole: Run | None = None
    """The run of which it is a part."""

    @property
    def last_id(self) -> int:
        return self.first_id + len(self.payloads) - 1

    @property
    def records(self) -> list[bytes]:
        """The records, each in one piece: a copy."""
        return [b"".join(parts) for parts in zip(self.fronts, self.payloads, strict=True)]


class Tail:
    """The end of one ledger. Runs are made under the turnstile's lock, and settled in the order of turns."""

    __slots__ = ("_next_id", "_next_length", "end", "first_missing", "ledger_id")

    def __init__(self, ledger_id: int, end: LedgerEnd) -> None:
        self.ledger_id = ledger_id
        self.end = end
        self.first_missing = 0
        """No id below it is missing; how much further that holds is looked up when it is asked."""
        self._next_id, self._next_length = end.entry_id + 1, end.length

    def append(self, payloads: Sequence[bytes]) -> Run:
        """A run behind everything that was handed out before."""
        first_id, before = self._next_id, self._next_length
        # Of what is handed out, none is confirmed before its turn is over.
        confirmed = self.end.entry_id
        try:
            fronts = record_codec.encode_fronts(self.ledger_id, first_id, confirmed, before, payloads)
        except struct.error as error:
            words = f"ledger {self.ledger_id} ends at entry {first_id - 1}, length {before}"
            raise InvalidEntry(f"{words}: nothing may be above 2^63 - 1") from error
        length = before + sum(map(len, payloads))
        self._next_id, self._next_length = first_id + len(payloads), length
        size = record_codec.FRONT_SIZE * len(payloads) + length - before
        return Run(self, first_id, fronts, payloads, size, length)

    def place(self, entry: Entry) -> Run:
        """A run of one entry whose id the caller has chosen; what is appended next goes behind it."""
        # Of the last one added again the newer copy counts: a reopening goes on from its length too.
        if entry.entry_id >= self._next_id - 1:
            self._next_id, self._next_length = entry.entry_id + 1, entry.length
        front = record_codec.encode_front(
            self.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length, entry.payload
        )
        size = len(front) + len(entry.payload)
        return Run(self, entry.entry_id, (front,), (entry.payload,), size, entry.length)

    @property
    def handed_out(self) -> tuple[int, int]:
        """The id and the length that come next: what `take_back` goes back to."""
        return self._next_id, self._next_length

    def take_back(self, handed_out: tuple[int, int]) -> None:
        """What was handed out since then never happened."""
        self._next_id, self._next_length = handed_out

    def settle(self, run: Run) -> None:
        """The run is durable and can be read."""
        if run.last_id >= self.end.entry_id:
            self.end = LedgerEnd(run.last_id, run.length)

    def hand_back(self) -> None:
        """What was handed out and is not settled never happened."""
        self._next_id, self._next_length = self.end.entry_id + 1, self.end.length


class Tails:
    """The ends of the ledgers in use, each found when it is first asked for."""

    def __init__(self, find_end: Callable[[int], LedgerEnd]) -> None:
        self._find_end = find_end
        self._tails: dict[int, Tail] = {}

    def of(self, ledger_id: int) -> Tail:
        """The tail of the ledger, the same object for every caller."""
        tail = self._tails.get(ledger_id)
        if tail is None:
            # Found without a lock: nothing is added to a ledger before it has a tail, and the first stays.
            tail = self._tails.setdefault(ledger_id, Tail(ledger_id, self._find_end(ledger_id)))
        return tail

    def known(self, ledger_id: int) -> Tail | None:
        """The tail of the ledger, if anybody has asked for it yet."""
        return self._tails.get(ledger_id)

    def hand_back(self) -> None:
        """Takes back all that is not settled, of every ledger. Needs the turnstile's lock."""
        for tail in list(self._tails.values()):
            tail.hand_back()
