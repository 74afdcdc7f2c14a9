"""The end of each ledger, durable and assigned, and the key and the fence that decide which adds it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from storage.entry.credentials import Purpose
from storage.entry.digest import Digester
from storage.entry.ledger_record import KnownBy
from storage.entry.model import NO_ENTRY, DigestType
from storage.errors import (
    DigestDiffers,
    DigestUnknown,
    LedgerFenced,
    LedgerUnproven,
    Unauthorized,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from storage.entry.credentials import Access
    from storage.entry.ledger_record import LedgerRecord, Truncation


class LedgerEnd(NamedTuple):
    """The last durable entry of a ledger: its id, and the payload bytes up to and with it."""

    entry_id: int
    length: int


EMPTY = LedgerEnd(NO_ENTRY, 0)


def truncated_end(row: LedgerRecord, found: LedgerEnd) -> LedgerEnd:
    """Return the end of a ledger of which `found` is the end of the entries that are left."""
    if row.truncation is None or found.entry_id >= row.truncation.first:
        return found
    return LedgerEnd(row.truncation.first - 1, row.truncation.length)


@dataclass(slots=True)
class ContiguousPrefix:
    """The entries of one ledger from the first on. A ledger that is made again after a delete has a new one,
    so that a reader that the delete has overtaken writes its result where no other reader looks."""

    first_missing: int = 0
    """No id below it is missing; how much further that holds is looked up when it is asked."""


class LedgerState:
    """The end of one ledger, and the writers that may add to it.

    The commit queue's lock guards the fields marked *queue*. The fields marked *commit* are written by the
    thread that leads a commit, one at a time. All of them are read without a lock, also by other threads.
    """

    __slots__ = (
        "__weakref__",
        "admitted",
        "end",
        "facts",
        "is_claimed",
        "is_held",
        "lac_seen",
        "ledger_id",
        "lost",
        "next_id",
        "next_length",
        "prefix",
    )

    def __init__(self, ledger_id: int, end: LedgerEnd, facts: LedgerRecord) -> None:
        self.ledger_id = ledger_id
        # field                              written by            under    read by
        self.end = end  #                    leader of a commit    commit   readers, adds, followers
        self.lac_seen = NO_ENTRY  #          leader of a commit    commit   readers
        self.prefix = ContiguousPrefix()  #  a delete's commit     commit   readers, which also write into it
        self.facts = facts  #                adds, control calls   queue    adds, control calls
        self.is_claimed = False  #           adds, control calls   queue    adds, control calls
        self.admitted: Access | None = None  # adds                queue    adds
        self.next_id = NO_ENTRY  #           adds                  queue    adds
        self.next_length = 0  #              adds                  queue    adds
        self.is_held = False  #              deletes               queue    adds, control calls
        self.lost: BaseException | None = None  # leader           commit   `Bookie.force`
        self._begin(end, facts)

    # facts       what is known of the ledger, and what is on its way to be durable
    # is_claimed  whether key and digest type are decided
    # admitted    the credentials that were checked last, valid until something is decided anew
    # next_id     the id that the next append gets, and the payload bytes before it
    # is_held     whether the ledger is being deleted: adds wait, and then make another ledger
    # lac_seen    the largest last add confirmed that an entry has brought since the store was opened
    # lost        why an add that no caller waited for was not made durable; `force` raises it

    def _begin(self, end: LedgerEnd, facts: LedgerRecord) -> None:
        self.end = end
        self.prefix = ContiguousPrefix()
        self.lac_seen = NO_ENTRY
        self.hand_back(facts)

    def restart(self, facts: LedgerRecord) -> None:
        """Begin again after a delete: the next add makes another ledger of this id."""
        self.lost = None
        self._begin(EMPTY, facts)

    def hand_back(self, facts: LedgerRecord) -> None:
        """Take back the ids and facts that were handed out and did not become durable."""
        self.next_id, self.next_length = self.end.entry_id + 1, self.end.length
        self.facts = facts
        self.is_claimed = self.end != EMPTY or facts.makes_a_ledger
        self.admitted = None

    def truncate(self, truncation: Truncation) -> None:
        """Note a durable truncation. If no entry is left, the ledger goes on as the truncation says."""
        self.facts = replace(self.facts, truncation=truncation)
        # The last entry may have been added again, with another length, since the truncation was made.
        if self.next_id == truncation.first:
            self.next_length = truncation.length
        if self.end.entry_id == truncation.first - 1:
            self.end = LedgerEnd(self.end.entry_id, truncation.length)

    def is_left(self, entry_id: int) -> bool:
        """Return whether no truncation includes the entry: no opening finds one that it includes."""
        return self.facts.truncation is None or entry_id >= self.facts.truncation.first

    # ── who may add ──────────────────────────────────────────────────────────────────────────────────
    #
    # These methods change nothing. They return the facts as they are with what the caller claims, and a piece
    # of work stores them when it joins a group.

    def facts_for_add(self, access: Access) -> LedgerRecord:
        """Return the facts if these credentials may add; the first caller decides key and digest type."""
        facts = self.facts if self.is_claimed else _claimed(self.facts, access)
        if facts.master_key is not None or access.purpose is Purpose.WRITING:
            self._check_key(facts, access)
        if access.is_told:
            # A fence of a ledger without entries tells nothing of its digest type: the first entry does.
            if not self._tells_digest(facts):
                facts = replace(facts, digest_type=access.digest_type, known_by=KnownBy.INFERRED)
        elif access.digest_type not in (None, facts.digest_type):
            raise (
                DigestUnknown(self.ledger_id)
                if facts.digest_type is None
                else DigestDiffers(self.ledger_id, facts.digest_type.name)
            )
        if facts.fenced and access.purpose is Purpose.WRITING:
            raise LedgerFenced(self.ledger_id)
        return facts

    def facts_for_fence(self, access: Access) -> LedgerRecord:
        """Return the facts if these credentials may fence. Any may if no key is known: a fence protects."""
        facts = self.facts if self.is_claimed else _claimed(self.facts, access)
        if facts.master_key is not None:
            self._check_key(facts, access)
        return facts

    def facts_for_lac(self, access: Access) -> LedgerRecord:
        """Return the facts if these credentials may set an explicit last add confirmed, fenced or not."""
        facts = self.facts if self.is_claimed else _claimed(self.facts, access)
        self._check_key(facts, access)
        return facts

    def check_key(self, access: Access) -> None:
        """Raise unless these credentials may delete or truncate. If no key is known, any may."""
        if self.facts.master_key is not None:
            self._check_key(self.facts, access)

    def _check_key(self, facts: LedgerRecord, access: Access) -> None:
        if facts.master_key is None:
            raise LedgerUnproven(self.ledger_id)
        if not compare_digest(access.master_key, facts.master_key):
            raise Unauthorized(self.ledger_id)

    @property
    def tells_digest(self) -> bool:
        """Whether the digest type is decided. For a ledger without entries, CRC-32C is only presumed."""
        return self.is_claimed and self._tells_digest(self.facts)

    def _tells_digest(self, facts: LedgerRecord) -> bool:
        return self.next_id != 0 or facts.digest_type not in (None, DigestType.CRC32C)

    def digester(self, facts: LedgerRecord, access: Access) -> Digester:
        """Return what protects the entries of an append with these credentials."""
        if facts.digest_type is None:
            raise DigestUnknown(self.ledger_id)
        return Digester(facts.digest_type, access.mac_key)


def _claimed(facts: LedgerRecord, access: Access) -> LedgerRecord:
    """Return the facts with the key and the digest type of the ledger's first caller."""
    digest_type = access.digest_type or (None if access.is_told else DigestType.CRC32C)
    return replace(
        facts,
        digest_type=digest_type,
        known_by=KnownBy.INFERRED if access.is_told else KnownBy.DECLARED,
        master_key=access.master_key,
    )


class LedgerStates:
    """The states of the ledgers in use, each looked up when it is first needed.

    The state of a ledger with entries is kept. The state of any other ledger is shared by its holders (an add
    or a delete on its way, a reader, a waiter) and freed with the last of them. So absent ledgers cost no
    memory, however many are asked for, and all users of one ledger at one time have the same state.
    """

    def __init__(
        self,
        find_end: Callable[[int], LedgerEnd],
        find_facts: Callable[[int], LedgerRecord],
        lock: AbstractContextManager[object],
    ) -> None:
        """`lock` guards `_kept`, `_shared` and `_let_go`, which are also read without it. It is never held
        during a read of the disk."""
        self._find_end = find_end
        self._find_facts = find_facts
        self._lock = lock
        self._kept: dict[int, LedgerState] = {}
        self._shared: WeakValueDictionary[int, LedgerState] = WeakValueDictionary()
        """All states, also those that are kept."""
        self._let_go = 0
        """How many states were released: it tells a look-up that a delete may have overtaken it."""

    def of(self, ledger_id: int) -> LedgerState:
        """The state of the ledger, the same object for every caller."""
        state = self._kept.get(ledger_id) or self._shared.get(ledger_id)
        while state is None:
            state = self._found(ledger_id)
        return state

    def _found(self, ledger_id: int) -> LedgerState | None:
        """Return the state after a look-up on the disk; `None` if the look-up must be repeated."""
        # Without the lock, so that a slow disk holds up only callers that need this ledger.
        let_go, end = self._let_go, self._find_end(ledger_id)
        with self._lock:
            state = self._shared.get(ledger_id)
            if state is not None:
                return state  # another thread was faster, and its state may be newer
            if self._let_go != let_go:
                return None  # it may be this ledger that was deleted meanwhile
            # The metadata is read under the lock. Nothing keeps the state of a ledger without entries, so
            # another thread may have fenced or deleted it since the look-up, and released its state.
            found = LedgerState(ledger_id, end, self._find_facts(ledger_id))
            self._shared[ledger_id] = found
            if found.end != EMPTY:
                self._kept[ledger_id] = found
            return found

    def known(self, ledger_id: int) -> LedgerState | None:
        """Return the state of the ledger, if there is one now."""
        return self._kept.get(ledger_id) or self._shared.get(ledger_id)

    def keep(self, state: LedgerState) -> None:
        """Keep a state, because its ledger has entries now, or it is the only record of a loss."""
        with self._lock:
            self._kept[state.ledger_id] = state

    def release(self, state: LedgerState) -> None:
        """Stop keeping a state, because a look-up would find all that it holds."""
        with self._lock:
            if self._kept.pop(state.ledger_id, None) is not None:
                self._let_go += 1

    def hand_back(self) -> None:
        """Take back what is not durable, in every ledger. Needs the commit queue's lock."""
        for reference in self._shared.valuerefs():
            state = reference()
            if state is not None:
                state.hand_back(self._find_facts(state.ledger_id))
