"""The end of each ledger, and who may add there: what is durable, and what is on its way beyond that."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from storage.access import Purpose
from storage.codec import journal as journal_codec
from storage.codec import record as record_codec
from storage.codec.digest import Digester
from storage.entry import NO_ENTRY, DigestType
from storage.errors import (
    DigestDiffers,
    DigestUnknown,
    InvalidEntry,
    LedgerFenced,
    LedgerUnproven,
    Unauthorized,
)
from storage.row import KnownBy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.access import Access
    from storage.codec.entry import Head
    from storage.entry import Entry
    from storage.row import LedgerRow


class LedgerEnd(NamedTuple):
    """The last durable entry of a ledger: its id, and the payload bytes up to and with it."""

    entry_id: int
    length: int


EMPTY = LedgerEnd(NO_ENTRY, 0)
_new_tuple = tuple.__new__
_CRC32C = DigestType.CRC32C  # looked up once: for an enum's member that counts in each add


@dataclass(slots=True)
class Run:
    """Consecutive entries of one ledger on their way to the journal, each record in two parts."""

    tail: Tail
    first_id: int
    last_id: int
    fronts: bytes
    """The fronts, one behind the other, all of one size."""
    payloads: Sequence[bytes]
    size: int
    length: int
    """What the ledger counts up to and with the last of them."""
    confirmed: int
    """The last add confirmed that they bring."""
    is_durable: bool = False
    """Whether all of it is, and can be read: so it is answered, whatever becomes of others in its turn."""
    whole: Run | None = None
    """The run of which it is a part."""

    @property
    def records(self) -> list[bytes]:
        """The records, each in one piece: a copy."""
        size = self.front_size
        fronts = [self.fronts[start : start + size] for start in range(0, len(self.fronts), size)]
        return [b"".join(parts) for parts in zip(fronts, self.payloads, strict=True)]

    @property
    def front_size(self) -> int:
        return len(self.fronts) // len(self.payloads)


@dataclass(slots=True)
class Prefix:
    """The entries of one ledger from the first on. Another ledger of the same id has another one: what a
    reader who was overtaken by a delete finds out, it notes where nobody looks any more."""

    first_missing: int = 0
    """No id below it is missing; how much further that holds is looked up when it is asked."""


class Tail:
    """The end of one ledger. Runs are made under the turnstile's lock, and settled in the order of turns."""

    __slots__ = (
        "admitted",
        "end",
        "facts",
        "has_news",
        "is_claimed",
        "is_held",
        "lac_seen",
        "ledger_id",
        "lost",
        "next_id",
        "next_length",
        "prefix",
    )

    def __init__(self, ledger_id: int, end: LedgerEnd, facts: LedgerRow) -> None:
        self.ledger_id = ledger_id
        self.end = end
        self.facts = facts
        """What is known of the ledger, and what is on its way to be."""
        self.is_claimed = False
        """Whether key and digest type are decided."""
        self.has_news = False
        """Whether they were decided since a turn has last compared them with what is written down."""
        self.admitted: Access | None = None
        """Who may add, as long as nothing is decided anew."""
        self.next_id, self.next_length = NO_ENTRY, 0
        """What is handed out next, and the payload bytes before it."""
        self.is_held = False
        """Whether the ledger is being deleted: who comes now waits, and then finds none."""
        self.lost: BaseException | None = None
        """Why an add that nobody waited for was not done; to be told to who forces."""
        self._begin(end, facts)

    def _begin(self, end: LedgerEnd, facts: LedgerRow) -> None:
        self.end = end
        self.prefix = Prefix()
        self.lac_seen = NO_ENTRY
        """The largest that an entry has brought since the store was opened."""
        self.hand_back(facts)

    def restart(self, facts: LedgerRow) -> None:
        """The ledger was deleted: who adds next makes another one."""
        self.lost = None
        self._begin(EMPTY, facts)

    # ── who may add ──────────────────────────────────────────────────────────────────────────────────

    def admit(self, access: Access) -> None:
        """Raises unless such a caller may add; the first one of all decides about key and digest type."""
        if access is self.admitted:
            return
        if not self.is_claimed:
            self._claim(access)
        if self.facts.master_key is not None or access.purpose is Purpose.WRITING:
            self._check_key(access)
        if access.is_told:
            self._learn(access)
        elif access.digest_type not in (None, self.facts.digest_type):
            raise self._other_digest()
        if self.facts.fenced:
            if access.purpose is Purpose.WRITING:
                raise LedgerFenced(self.ledger_id)
            return  # not remembered: each is asked for its purpose
        self.admitted = access

    def admit_fence(self, access: Access) -> None:
        """Raises unless such a caller may fence. Where nothing proves a key anybody may: it only protects."""
        if not self.is_claimed:
            self._claim(access)
        if self.facts.master_key is not None:
            self._check_key(access)

    def admit_word(self, access: Access) -> None:
        """Raises unless such a caller may speak for the ledger, fenced or not."""
        if not self.is_claimed:
            self._claim(access)
        self._check_key(access)

    def admit_delete(self, access: Access) -> None:
        """Raises unless such a caller may delete. Where nothing proves a key, who has the files may."""
        if self.facts.master_key is not None:
            self._check_key(access)

    def _check_key(self, access: Access) -> None:
        if self.facts.master_key is None:
            raise LedgerUnproven(self.ledger_id)
        if not compare_digest(access.master_key, self.facts.master_key):
            raise Unauthorized(self.ledger_id)

    def _claim(self, access: Access) -> None:
        digest_type = access.digest_type or (None if access.is_told else DigestType.CRC32C)
        self.facts = replace(
            self.facts,
            digest_type=digest_type,
            known_by=KnownBy.INFERRED if access.is_told else KnownBy.DECLARED,
            master_key=access.master_key,
        )
        self.is_claimed = self.has_news = True

    @property
    def tells_digest(self) -> bool:
        """Whether its digest type is decided: of a ledger without entries CRC-32C is only what is usual."""
        is_presumed = self.next_id == 0 and self.facts.digest_type in (None, DigestType.CRC32C)
        return self.is_claimed and not is_presumed

    def _learn(self, access: Access) -> None:
        # Who fences a ledger that has no entry here says nothing of its digest: the first entry does.
        if not self.tells_digest:
            self.facts = replace(self.facts, digest_type=access.digest_type, known_by=KnownBy.INFERRED)
            self.has_news = True

    def _other_digest(self) -> DigestDiffers | DigestUnknown:
        recorded = self.facts.digest_type
        return (
            DigestUnknown(self.ledger_id)
            if recorded is None
            else DigestDiffers(self.ledger_id, recorded.name)
        )

    def fence(self) -> None:
        """From here on only a recovery adds."""
        self.facts = replace(self.facts, fenced=True)
        self.admitted = None

    def confirm(self, packet: bytes) -> None:
        """An explicit last add confirmed is on its way."""
        self.facts = replace(self.facts, explicit_lac=packet)

    # ── what is added ────────────────────────────────────────────────────────────────────────────────

    def append(self, payloads: Sequence[bytes], access: Access) -> Run:
        """A run behind everything that was handed out before."""
        first_id, before, count = self.next_id, self.next_length, len(payloads)
        # Of what is handed out, none is confirmed before its turn is over.
        confirmed, digest_type = self.end.entry_id, self.facts.digest_type
        try:
            if digest_type is not _CRC32C:
                digester = self._digester(access)
                fronts = record_codec.encode_fronts_with(
                    digester, self.ledger_id, first_id, confirmed, before, payloads
                )
                length = before + sum(map(len, payloads))
            elif count == 1:
                (payload,) = payloads
                length = before + len(payload)
                fronts = record_codec.encode_front(self.ledger_id, first_id, confirmed, length, payload)
            else:
                fronts = record_codec.encode_fronts(self.ledger_id, first_id, confirmed, before, payloads)
                length = record_codec.ledger_length(fronts)
        except struct.error as error:
            words = f"ledger {self.ledger_id} ends at entry {first_id - 1}, length {before}"
            raise InvalidEntry(f"{words}: nothing may be above 2^63 - 1") from error
        self.next_id, self.next_length = first_id + count, length
        size = len(fronts) + length - before
        return Run(self, first_id, first_id + count - 1, fronts, payloads, size, length, confirmed)

    def _digester(self, access: Access) -> Digester:
        if self.facts.digest_type is None:
            raise DigestUnknown(self.ledger_id)
        return Digester(self.facts.digest_type, access.mac_key)

    def place(self, entry: Entry, access: Access) -> Run:
        """A run of one entry whose id the caller has chosen; what is appended next goes behind it."""
        head = entry.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length
        if self.facts.digest_type is DigestType.CRC32C:
            front = record_codec.encode_front(*head, entry.payload)
        else:
            front = record_codec.encode_front_with(self._digester(access), *head, entry.payload)
        return self._placed(entry.entry_id, entry.last_add_confirmed, entry.length, front, entry.payload)

    def place_bytes(self, head: Head, data: bytes) -> Run:
        """The same for an entry as its writer has made it, digest and all."""
        # As a table has the ledger's others: what is of another form there costs it more.
        digest_type, record = self.facts.digest_type, journal_codec.encode_record(data)
        size = record_codec.HEAD_FRONT_SIZE if digest_type is None else record_codec.front_size(digest_type)
        front, rest = record_codec.split(record, min(size, len(record)))
        return self._placed(head.entry_id, head.last_add_confirmed, head.length, front, rest)

    def _placed(self, entry_id: int, confirmed: int, length: int, front: bytes, rest: bytes) -> Run:
        # Of the last one added again the newer copy counts: a reopening goes on from its length too.
        if entry_id >= self.next_id - 1:
            self.next_id, self.next_length = entry_id + 1, length
        return Run(self, entry_id, entry_id, front, (rest,), len(front) + len(rest), length, confirmed)

    def settle(self, last_id: int, length: int, confirmed: int) -> None:
        """A run is durable and can be read: its last id, the ledger's length there, and what it confirms."""
        if last_id >= self.end.entry_id:
            self.end = _new_tuple(LedgerEnd, (last_id, length))  # a call fewer
        if confirmed > self.lac_seen:
            self.lac_seen = confirmed

    def hand_back(self, facts: LedgerRow) -> None:
        """What was handed out and is not settled never happened; of the facts these are settled."""
        self.next_id, self.next_length = self.end.entry_id + 1, self.end.length
        self.facts = facts
        self.is_claimed = self.end != EMPTY or facts.makes_a_ledger
        self.admitted = None


class Tails:
    """The ends of the ledgers in use, each found when it is first asked for."""

    def __init__(self, find_end: Callable[[int], LedgerEnd], find_facts: Callable[[int], LedgerRow]) -> None:
        self._find_end = find_end
        self._find_facts = find_facts
        self._tails: dict[int, Tail] = {}

    def of(self, ledger_id: int) -> Tail:
        """The tail of the ledger, the same object for every caller."""
        tail = self._tails.get(ledger_id)
        if tail is None:
            # Found without a lock: nothing is added to a ledger before it has a tail, and the first stays.
            found = Tail(ledger_id, self._find_end(ledger_id), self._find_facts(ledger_id))
            tail = self._tails.setdefault(ledger_id, found)
        return tail

    def known(self, ledger_id: int) -> Tail | None:
        """The tail of the ledger, if anybody has asked for it yet."""
        return self._tails.get(ledger_id)

    def hand_back(self) -> None:
        """Takes back all that is not settled, of every ledger. Needs the turnstile's lock."""
        for tail in list(self._tails.values()):
            tail.hand_back(self._find_facts(tail.ledger_id))
