"""Work that waits for a commit, and the group of it that one commit makes durable.

A piece of work joins the open group under the commit queue's lock. `join` computes everything first, and then
hands out ids by assignments without a call in between. An exception before them changes nothing: the work
never began. After them the work belongs to the group, and the group is committed whatever happens to its
caller.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from storage.entry import format as entry_format
from storage.entry import record_format
from storage.entry.model import NO_ENTRY, DigestType
from storage.entry.position import LENGTH_WORD_SIZE
from storage.errors import DiskFull, InvalidEntry
from storage.journal import format as journal_format
from storage.ledgers.metadata import as_claimed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from concurrent.futures import Future

    from storage.commit.pending_deletes import Erasure, PendingDelete
    from storage.commit.portions import Portion
    from storage.commit.queue import Gate
    from storage.entry.credentials import Access
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.model import Entry
    from storage.ledgers.state import LedgerState

# The steps of a commit, in their order; `Committer.proceed` takes them. After WRITE, SYNC and INSERT of one
# portion come those of the next one. A step is done when the group's number says so, and can be repeated.
BEGIN, WRITE, SYNC, INSERT, FINISH, OVER, ANSWER, DONE = range(8)

WRITE_TOMBSTONES, HAND_BACK, ERASE, ERASED = range(4)
"""The steps of deletes: see `storage.commit.deletes`."""

if TYPE_CHECKING:
    Watcher = Callable[[BaseException | None], None]

_CRC32C = DigestType.CRC32C  # looked up once, because an enum's member costs as much as a call
_LENGTH = struct.Struct(">i")


NO_ENTRIES: list[PendingEntries] = []
"""Stands for the list of a group without entries, so that a group costs nothing to make. Never changed."""


class PendingGroup:
    """The work that one commit makes durable. It has joined while the group was open.

    While it is open the queue's lock guards it. From then on it belongs to the thread that leads it. The
    fields are defaults of the class, because each append makes a group and needs few of them.
    """

    # field                                      written by               under     read by
    size = 0  #                                  work that joins          `lock`    adds, figures, leader
    entries: list[PendingEntries] = NO_ENTRIES  # work that joins          `lock`    leader, figures
    controls: Sequence[ControlRecord] = ()  #    work that joins          `lock`    leader
    deletes: Sequence[PendingDelete] = ()  #     work that joins          `lock`    leader
    erasures: Sequence[Erasure] = ()  #          work that joins          `lock`    leader
    claims: Sequence[LedgerState] = ()  #        work that joins          `lock`    leader
    watchers: Sequence[Watcher] = ()  #          work that joins          `lock`    leader
    has_futures = False  #                       work that joins          `lock`    leader
    wants_seal = False  #                        work that joins          `lock`    leader
    wants_freeze = False  #                      work that joins          `lock`    leader
    refused: DiskFull | None = None  #           leader of the one before `lock`    adds, leader
    step = BEGIN  #                              leader                   -         thread that resumes it
    portions: list[Portion] | None = None  #     leader                   -         leader
    at = 0  #                                    leader                   -         leader
    keys: Mapping[int, bytes] | None = None  #   leader                   -         leader
    full: DiskFull | None = None  #              leader                   -         leader
    error: BaseException | None = None  #        leader, before `is_over` -         callers
    is_repeated = False  #                       thread that resumes it   -         the same
    # of the queue, see `storage.commit.queue`
    leader: object = None  #                 leader                   `lock`    callers
    is_over = False  #                           leader                   `lock`    callers, without it
    may_lead = False  #                          last to go before it     `lock`    callers, without it
    is_left = False  #                           last to go               `lock`    the same
    waiting: AbstractSet[int] = frozenset()  #   callers                  `lock`    leader, callers
    gate: Gate | None = None  #                  first that waits         `lock`    leader, callers
    passed_at = 0.0  #                           callers, one by one      -         the same

    # claims    ledgers whose key or digest type was decided, to be written down before their first entry
    # watchers  called when the group is over; they neither wait nor raise
    # refused   why the group is not committed: space was missing, and its ids were handed back
    # at        the number of the portion under way, of `portions`; without those the group is one portion
    # keys      the ledger keys that the portion under way brings to the journal
    # full      why the group fails although the store goes on
    # may_lead  whether the lead was handed to the callers of this group

    @property
    def has_content(self) -> bool:
        """Whether anything is lost if the group is not committed."""
        return bool(self.entries or self.controls or self.deletes)


class Pending:
    """A piece of work of one caller."""

    state: LedgerState | None = None
    needs_room = False
    """Whether it waits while the tables are full."""
    waits = True
    """Whether its caller waits while another thread commits."""

    # field                        written by                     read by
    group: PendingGroup | None = None  #  `join`, under the queue's lock  caller, the thread that resumes
    is_durable = False  #          leader of its group             caller
    is_resumed = False  #          the thread that resumes         the same, under the queue's lock
    is_interrupted = False  #      the thread that resumes         caller, when `is_finished`
    failure: BaseException | None = None  # the thread that resumes  caller, when `is_finished`
    is_finished = False  #         the thread that resumes         caller
    wake: Callable[[], None] | None = None  # caller               the thread that resumes

    def join(self, group: PendingGroup) -> None:
        """Join the open group. Needs the queue's lock."""
        self.group = group


class Flush(Pending):
    """Nothing of its own: its caller waits for what has joined before, or leads it."""

    is_durable = True


class FlushIfFree(Flush):
    """The same, but for a caller that must not wait for another thread."""

    waits = False


class PendingSeal(Flush):
    """Asks for an empty group that proves the one before it to be durable."""

    def join(self, group: PendingGroup) -> None:
        group.wants_seal = True
        self.group = group


class Freeze(Flush):
    """Asks that the active table be frozen."""

    def join(self, group: PendingGroup) -> None:
        group.wants_freeze = True
        self.group = group


# ── entries ───────────────────────────────────────────────────────────────────────────────────────────────


class PendingEntries(Pending):
    """Consecutive entries of one ledger. As such: payloads that get their ids when they join a group.

    Each record is in two parts: its header, with the digest, and its payload.
    """

    state: LedgerState
    needs_room = True
    first_id = last_id = confirmed = NO_ENTRY
    size = length = 0
    headers = b""
    whole: PendingEntries | None = None
    """The work of which this is a part."""
    future: Future[int] | None = None
    """Set to the id when the entry is durable, if its caller does not wait."""
    refusal: Exception | None = None
    """Why it has not joined a group, if a loop has tried it for several callers at once."""
    is_deferred = False
    """Whether its caller neither waits nor has a future: a loss is told to the next `force`."""

    def __init__(self, state: LedgerState, access: Access, payloads: Sequence[bytes]) -> None:
        self.state = state
        self.access = access
        self.payloads = payloads

    def join(self, group: PendingGroup) -> None:
        state, access, payloads = self.state, self.access, self.payloads
        facts = state.facts if access is state.admitted else state.facts_for_add(access)
        first_id, before, count = state.next_id, state.next_length, len(payloads)
        # No entry in a group confirms another one of that group, because none is durable yet.
        confirmed = state.end.entry_id
        try:
            if facts.digest_type is not _CRC32C:
                headers = record_format.encode_fronts_with(
                    state.digester(facts, access), state.ledger_id, first_id, confirmed, before, payloads
                )
                length = before + sum(map(len, payloads))
            elif count == 1:
                payload = payloads[0]
                length = before + len(payload)
                headers = record_format.encode_front(state.ledger_id, first_id, confirmed, length, payload)
            else:
                headers = record_format.encode_fronts(state.ledger_id, first_id, confirmed, before, payloads)
                length = record_format.ledger_length(headers)
        except struct.error as error:
            words = f"ledger {state.ledger_id} ends at entry {first_id - 1}, length {before}"
            raise InvalidEntry(f"{words}: nothing may be above 2^63 - 1") from error
        size = len(headers) + length - before
        # From here on no call, so that no signal handler runs until all of it is done.
        self.first_id, self.last_id, self.headers = first_id, first_id + count - 1, headers
        self.size, self.length, self.confirmed = size, length, confirmed
        if group.entries is NO_ENTRIES:
            group.entries = [self]
        else:
            group.entries += [self]
        group.size += size
        if self.future is not None:
            group.has_futures = True
        state.next_id, state.next_length = first_id + count, length
        if access is not state.admitted:
            if facts is not state.facts:
                group.claims = (*group.claims, state)
                state.facts, state.is_claimed = facts, True
            if not facts.fenced:
                state.admitted = access
        self.group = group

    def _join_as(
        self,
        group: PendingGroup,
        facts: LedgerRecord,
        head: tuple[int, int, int, int],
        headers: bytes,
        payloads: Sequence[bytes],
    ) -> None:
        """Join as entries whose ids their caller has chosen; the next append goes after them.

        `head` has the first id, and the last add confirmed and the length with the last entry.
        """
        state, size = self.state, len(headers) + sum(map(len, payloads))
        _, first_id, confirmed, length = head
        last_id = first_id + len(payloads) - 1
        # If the last entry is added again, the newer copy counts: a reopening goes on from its length too.
        is_last = last_id >= state.next_id or (last_id == state.next_id - 1 and state.is_left(last_id))
        # From here on no call, as in `join`.
        self.first_id, self.last_id = first_id, last_id
        self.headers, self.payloads = headers, payloads
        self.size, self.length, self.confirmed = size, length, confirmed
        if group.entries is NO_ENTRIES:
            group.entries = [self]
        else:
            group.entries += [self]
        group.size += size
        if self.future is not None:
            group.has_futures = True
        if is_last:
            state.next_id, state.next_length = last_id + 1, length
        if self.access is not state.admitted:
            if facts is not state.facts:
                group.claims = (*group.claims, state)
                state.facts, state.is_claimed = facts, True
            if not facts.fenced:
                state.admitted = self.access
        self.group = group

    @property
    def front_size(self) -> int:
        return len(self.headers) // len(self.payloads)

    @property
    def records(self) -> list[bytes]:
        """The records, each in one piece: a copy."""
        size = self.front_size
        headers = [self.headers[start : start + size] for start in range(0, len(self.headers), size)]
        return [b"".join(parts) for parts in zip(headers, self.payloads, strict=True)]


class ReplicaEntry(PendingEntries):
    """One entry whose id, last add confirmed and length its caller has chosen; it gets its digest here."""

    def __init__(self, state: LedgerState, access: Access, entry: Entry) -> None:
        super().__init__(state, access, (entry.payload,))
        self._entry = entry

    def join(self, group: PendingGroup) -> None:
        state, access, entry = self.state, self.access, self._entry
        facts = state.facts if access is state.admitted else state.facts_for_add(access)
        fields = entry.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length
        header = record_format.encode_front_with(state.digester(facts, access), *fields, entry.payload)
        self._join_as(group, facts, fields, header, (entry.payload,))


class ClientEntry(PendingEntries):
    """One entry as its client has made it, digest and all."""

    def __init__(
        self, state: LedgerState, access: Access, head: tuple[int, int, int, int], data: bytes
    ) -> None:
        """`head` are the four numbers at the start of the data."""
        self.state = state
        self.access = access
        self._head = head
        self._data = data

    def join(self, group: PendingGroup) -> None:
        state, access, data = self.state, self.access, self._data
        facts = state.facts if access is state.admitted else state.facts_for_add(access)
        # Split as the table has the ledger's other records, because another form costs it more.
        if facts.digest_type is _CRC32C:
            at = record_format.CRC32C_OVERHEAD
        elif facts.digest_type is None:
            at = entry_format.HEAD.size
        else:
            at = record_format.front_size(facts.digest_type) - LENGTH_WORD_SIZE
        self._join_as(group, facts, self._head, _LENGTH.pack(len(data)) + data[:at], (data[at:],))


class ClientRun(PendingEntries):
    """Entries with consecutive ids as their client has made them, split into fronts and payloads."""

    def __init__(
        self,
        state: LedgerState,
        access: Access,
        head: tuple[int, int, int, int],
        fronts: bytes,
        payloads: Sequence[bytes],
    ) -> None:
        """`head` are the ledger's id, the first entry's, the largest last add confirmed, the last length."""
        super().__init__(state, access, payloads)
        self._head = head
        self._fronts = fronts

    def join(self, group: PendingGroup) -> None:
        state, access = self.state, self.access
        facts = state.facts if access is state.admitted else state.facts_for_add(access)
        self._join_as(group, facts, self._head, self._fronts, self.payloads)


# ── control records ───────────────────────────────────────────────────────────────────────────────────────


class ControlRecord(Pending):
    """A record that states something about a ledger: a fence, or an explicit last add confirmed.

    It stands after the entries of its group, because a fence must not be durable before what it follows.
    """

    state: LedgerState
    record = b""
    is_redundant = False
    """Whether the ledger is in that state already, or on its way to it: then nothing is written."""

    def __init__(self, state: LedgerState, access: Access) -> None:
        self.state = state
        self.access = access
        self.claim = state.facts
        """The facts when it was made, with what its caller claims."""

    def revised(self, row: LedgerRecord) -> LedgerRecord:
        """Return the ledger's metadata as the record changes it."""
        raise NotImplementedError

    def _join_with(
        self, group: PendingGroup, facts: LedgerRecord, changed: LedgerRecord, record: bytes
    ) -> None:
        """Join with the record. `facts` are those of the ledger with what the caller claims."""
        state = self.state
        is_claim = facts is not state.facts
        # From here on no call, as in `PendingEntries.join`.
        self.claim, self.record = changed, record
        group.controls = (*group.controls, self)
        if is_claim:
            group.claims = (*group.claims, state)
        state.facts, state.admitted = changed, None
        if is_claim:
            state.is_claimed = True
        self.group = group

    def _begun(self, row: LedgerRecord) -> LedgerRecord:
        """Return the row with the key and the digest type that the caller brought.

        If the ledger has durable entries, the digest type stays as the first entry showed it, because the
        caller may only have presumed another one.
        """
        return as_claimed(row, self.claim) if self.state.end.entry_id == NO_ENTRY else row


class PendingFence(ControlRecord):
    """Closes the ledger to its writer."""

    def join(self, group: PendingGroup) -> None:
        facts = self.state.facts_for_fence(self.access)
        if facts.fenced:
            self.is_redundant, self.is_durable, self.group = True, True, group
            return
        changed = replace(facts, fenced=True)
        self._join_with(group, facts, changed, journal_format.encode_fence(self.state.ledger_id))

    def revised(self, row: LedgerRecord) -> LedgerRecord:
        return replace(self._begun(row), fenced=True)


class PendingLac(ControlRecord):
    """States the ledger's last add confirmed; one that is not larger than the one before changes nothing."""

    def __init__(self, state: LedgerState, access: Access, packet: bytes) -> None:
        super().__init__(state, access)
        self.packet = packet

    def join(self, group: PendingGroup) -> None:
        state = self.state
        if state.is_claimed:
            state.facts_for_lac(self.access)
        if last_add_confirmed(self.packet) <= confirmed_by(state.facts):
            self.is_redundant, self.is_durable, self.group = True, True, group
            return
        facts = state.facts_for_lac(self.access)
        record = journal_format.encode_explicit_lac(state.ledger_id, self.packet)
        self._join_with(group, facts, replace(facts, explicit_lac=self.packet), record)

    def revised(self, row: LedgerRecord) -> LedgerRecord:
        return replace(self._begun(row), explicit_lac=self.packet)


def last_add_confirmed(packet: bytes) -> int:
    """Return what an explicit last add confirmed states; nothing of it is verified."""
    _, confirmed = entry_format.LAC_PACKET.unpack_from(packet)
    return int(confirmed)


def confirmed_without_entries(row: LedgerRecord) -> int:
    """Return the largest last add confirmed of the ledger that no entry has to say; -1 if there is none."""
    return max(confirmed_by(row), NO_ENTRY if row.truncation is None else row.truncation.confirmed)


def confirmed_by(row: LedgerRecord) -> int:
    """Return the ledger's explicit last add confirmed; -1 if there is none."""
    return NO_ENTRY if row.explicit_lac is None else last_add_confirmed(row.explicit_lac)
