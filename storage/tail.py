"""The end of each ledger: what is durable, and what has been handed out beyond that."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.codec import record as record_codec
from storage.entry import NO_ENTRY
from storage.errors import InvalidEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """The last durable entry of a ledger: its id, and the payload bytes up to and with it."""

    entry_id: int
    length: int


EMPTY = LedgerEnd(NO_ENTRY, 0)


@dataclass(slots=True)
class Run:
    """Consecutive entries of one ledger on their way to the journal."""

    tail: Tail
    first_id: int
    records: Sequence[bytes]
    size: int
    is_durable: bool = False
    """Whether all of it is, and can be read: so it is answered, whatever becomes of others in its turn."""
    whole: Run | None = None
    """The run of which it is a part."""

    @property
    def last_id(self) -> int:
        return self.first_id + len(self.records) - 1


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
        ledger_id, first_id, length, size = self.ledger_id, self._next_id, self._next_length, 0
        # Of what is handed out, none is confirmed before its turn is over.
        confirmed = self.end.entry_id
        records = []
        for entry_id, payload in enumerate(payloads, first_id):
            length += len(payload)
            try:
                record = record_codec.encode_fields(ledger_id, entry_id, confirmed, length, payload)
            except struct.error as error:
                words = f"ledger {ledger_id} ends at entry {self._next_id - 1}, length {self._next_length}"
                raise InvalidEntry(f"{words}: nothing may be above 2^63 - 1") from error
            records.append(record)
            size += len(record)
        self._next_id, self._next_length = first_id + len(records), length
        return Run(self, first_id, records, size)

    def place(self, entry_id: int, length: int, record: bytes) -> Run:
        """A run of one entry whose id the caller has chosen; what is appended next goes behind it."""
        # Of the last one added again the newer copy counts: a reopening goes on from its length too.
        if entry_id >= self._next_id - 1:
            self._next_id, self._next_length = entry_id + 1, length
        return Run(self, entry_id, [record], len(record))

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
            self.end = LedgerEnd(run.last_id, record_codec.ledger_length(run.records[-1]))

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
