"""Work that waits for a commit, and the group of it that one commit makes durable.

A piece of work joins the open group under the commit queue's lock. `join` computes everything first, and then
hands out ids by assignments without a call in between. An exception before them changes nothing: the work
never began. After them the work belongs to the group, and the group is committed whatever happens to its
caller.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from storage.entry import format as entry_format
from storage.entry import record_format
from storage.entry.model import NO_ENTRY, DigestType
from storage.entry.position import LENGTH_WORD_SIZE, START
from storage.errors import DiskFull, InvalidEntry
from storage.journal import format as journal_format
from storage.journal.seal import GroupFlag
from storage.journal.writer import Group as JournalGroup
from storage.ledgers.metadata import as_claimed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from concurrent.futures import Future

    from storage.commit.queue import Gate
    from storage.entry.credentials import Access
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.model import Entry
    from storage.entry.position import JournalPosition
    from storage.ledgers.state import LedgerState

# The steps of a commit, in their order; `Committer.proceed` takes them. After WRITE, SYNC and INSERT of one
# portion come those of the next one. A step is done when the group's number says so, and can be repeated.
BEGIN, WRITE, SYNC, INSERT, FINISH, OVER, ANSWER, DONE = range(8)

WRITE_TOMBSTONES, HAND_BACK, ERASE, ERASED = range(4)
"""The steps of deletes: see `storage.commit.deletes`."""

JOINED_MIN = 4
"""With fewer pieces of work it does not pay to join them for the table."""

if TYPE_CHECKING:
    Watcher = Callable[[BaseException | None], None]

_CRC32C = DigestType.CRC32C  # looked up once, because an enum's member costs as much as a call
_LENGTH = struct.Struct(">i")
_KEY_FRAME_SIZE = len(journal_format.encode_ledger_key(0, b""))
_new_tuple = tuple.__new__


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


# ── deletes: see `storage.commit.deletes` for their order ─────────────────────────────────────────────────


class PendingDelete(Pending):
    """Holds a ledger and decides up to which position in the journals it is dead.

    It is over when the ledger was erased, or when that has failed.
    """

    state: LedgerState
    upto: JournalPosition = START
    row: LedgerRecord | None = None
    """The tombstone, once it is durable."""
    exists = False
    """Whether there is such a ledger."""
    whole: PendingDeletes | None = None
    """The deletes of many ledgers at once of which it is one."""
    delete_group: DeleteGroup | None = None
    """The group of deletes in which its tombstone becomes durable, once `upto` is decided."""
    is_done = False
    """Whether no reader finds the ledger any more."""
    is_released = False

    def __init__(self, state: LedgerState, access: Access | None) -> None:
        """Without credentials any caller may delete: it speaks for all clients of the ledger."""
        self.state = state
        self.access = access

    def join(self, group: PendingGroup) -> None:
        state = self.state
        if not state.is_claimed:
            self.is_durable, self.group = True, group
            return
        if self.access is not None:
            state.check_key(self.access)
        # From here on no call, as in `PendingEntries.join`. The ledger is held, so that later adds do not go
        # with this group.
        self.exists = state.is_held = True
        group.deletes = (*group.deletes, self)
        self.group = group

    def release(self) -> None:
        """Let other work join groups of the ledger again."""
        # Once, because after that another delete may hold the ledger.
        if not self.is_released:
            self.is_released, self.state.is_held = True, False


class PendingDeletes(Pending):
    """Deletes of several ledgers at once: all of them join one group, or none does."""

    missing: LedgerState | None = None
    """The first of the ledgers that does not exist; then none is deleted."""

    def __init__(self, deletes: Sequence[PendingDelete]) -> None:
        self.deletes = deletes
        self.last = deletes[-1]
        for one in deletes:
            one.whole = self

    @property
    def state(self) -> LedgerState:  # type: ignore[override]
        """A ledger that another delete holds, for which all of them wait; else the first one."""
        return next((one.state for one in self.deletes if one.state.is_held), self.deletes[0].state)

    def join(self, group: PendingGroup) -> None:
        self.missing = next((one.state for one in self.deletes if not one.state.is_claimed), None)
        if self.missing is not None:
            self.is_durable, self.group = True, group
            return
        for one in self.deletes:
            if one.access is not None:
                one.state.check_key(one.access)
        # No signal handler runs in the thread that makes deletes, so that nothing comes in between.
        for one in self.deletes:
            one.exists = one.state.is_held = True
            one.group = group
        group.deletes = (*group.deletes, *self.deletes)
        self.group = group


class DeleteGroup:
    """Deletes whose tombstones become durable together."""

    # field                                    written by               under
    step = WRITE_TOMBSTONES  #                             its leader               -
    deletes: Sequence[PendingDelete] = ()  #          leader of a commit       lock of the queue of deletes
    rows: Sequence[LedgerRecord] = ()  #       its leader               -
    erasure: Erasure | None = None  #          its leader               -
    error: BaseException | None = None  #      its leader               -
    # The rest as in `PendingGroup`.
    is_over = False
    leader: object = None
    may_lead = False
    is_left = False
    passed_at = 0.0
    waiting: AbstractSet[int] = frozenset()
    gate: Gate | None = None


class Erasure(Pending):
    """Hides from readers what is durably gone: deleted ledgers, which it releases, and truncated entries."""

    def __init__(
        self,
        deletes: Sequence[PendingDelete] = (),
        rows: Sequence[LedgerRecord] = (),
        truncated: Sequence[int] = (),
    ) -> None:
        self.deletes = deletes
        self.rows = rows
        """The tombstones of the deletes."""
        self.truncated = truncated
        """The ledgers whose truncations are durable."""
        self.is_durable = not truncated
        """Whether the commit has nothing to tell its caller. The caller of a truncation gets the error of the
        group if the entries were not hidden; a delete looks for that by itself."""

    def join(self, group: PendingGroup) -> None:
        group.erasures = (*group.erasures, self)
        self.group = group


# ── the portions of a group, one sync each ────────────────────────────────────────────────────────────────


class Portion(NamedTuple):
    """A part of a group that is written to the journal and synced at once."""

    journal_group: JournalGroup
    entries: Sequence[PendingEntries] = ()
    controls: Sequence[ControlRecord] = ()
    is_seal: bool = False

    def keys(self, keyed: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the keys of its ledgers that are known and not among these.

        A ledger that was made again after a delete may have another key than these say.
        """
        missing = {}
        work: Iterable[PendingEntries | ControlRecord] = chain(self.entries, self.controls)
        for one in work:
            state = one.state
            key = state.facts.master_key
            if key is not None and keyed.get(state.ledger_id) != key:
                missing[state.ledger_id] = key
        return missing


SEAL = Portion(JournalGroup((), 0, 0), is_seal=True)
"""An empty group that proves the one before it to be durable."""


def portions_of(group: PendingGroup, size_max: int) -> list[Portion]:
    """Divide the group into portions of at most this size; only a single larger entry makes a larger one."""
    entries, controls = group.entries, group.controls
    portions = [Portion(journal_group_of(members), members) for members in _members(group, size_max)]
    if controls:
        last = portions.pop() if portions else Portion(JournalGroup((), 0, 0))
        records = [one.record for one in controls]
        before = last.journal_group
        count, size = before.record_count + len(records), before.size + size_of(records)
        with_records = JournalGroup([*before.buffers, *records], count, size, before.flags)
        portions.append(Portion(with_records, last.entries, controls))
    assert portions or not entries, "each entry is in a portion"
    return portions


def _members(group: PendingGroup, size_max: int) -> Iterator[Sequence[PendingEntries]]:
    if group.size <= size_max:
        if group.entries:
            yield group.entries
        return
    members: list[PendingEntries] = []
    size = 0
    for one in group.entries:
        for part in _parts(one, size_max):
            if members and size + part.size > size_max:
                yield members
                members, size = [], 0
            members.append(part)
            size += part.size
    if members:
        yield members


def _parts(work: PendingEntries, size_max: int) -> Iterator[PendingEntries]:
    """Yield the work itself if it fits into one portion, which a crash then keeps whole or not at all."""
    if work.size <= size_max:
        yield work
        return
    first, size, length = 0, 0, work.length - sum(map(len, work.payloads))
    front_size = work.front_size
    for at, payload in enumerate(work.payloads):
        added = front_size + len(payload)
        if size and size + added > size_max:
            yield _part(work, slice(first, at), size, length)
            first, size = at, 0
        size += added
        length += len(payload)
    yield _part(work, slice(first, None), size, length)


def _part(work: PendingEntries, part: slice, size: int, length: int) -> PendingEntries:
    payloads, width = work.payloads[part], work.front_size
    headers = work.headers[width * part.start :][: width * len(payloads)]
    found = _entries(work, work.first_id + part.start, headers, payloads, size, length, work.confirmed)
    found.whole = work
    return found


def _entries(
    like: PendingEntries,
    first_id: int,
    headers: bytes,
    payloads: Sequence[bytes],
    size: int,
    length: int,
    confirmed: int,
) -> PendingEntries:
    """Return entries of the same ledger that have their ids already."""
    found = PendingEntries(like.state, like.access, payloads)
    found.first_id, found.last_id = first_id, first_id + len(payloads) - 1
    found.headers, found.size, found.length, found.confirmed = headers, size, length, confirmed
    return found


def journal_group_of(members: Sequence[PendingEntries]) -> JournalGroup:
    """Return the records of this work as a group of the journal."""
    if len(members) == 1:
        (work,) = members
        if len(work.payloads) == 1:
            return _new_tuple(JournalGroup, ((work.headers, work.payloads[0]), 1, work.size, GroupFlag.NONE))
        buffers = record_format.buffers(work.headers, work.payloads)
        return JournalGroup(buffers, len(work.payloads), work.size, GroupFlag.ATOMIC)
    pieces: list[bytes] = []
    # Counted here, because the size of a group may be too large after an interruption.
    count = size = 0
    for work in members:
        size += work.size
        if work.first_id == work.last_id:  # so common that a call counts
            pieces += (work.headers, work.payloads[0])
            count += 1
        else:
            pieces += record_format.buffers(work.headers, work.payloads)
            count += len(work.payloads)
    # Only a part of work that is too large for one portion may survive a crash; `append_many` says so.
    return JournalGroup(pieces, count, size, GroupFlag.ATOMIC if count > len(members) else GroupFlag.NONE)


def joined(entries: Sequence[PendingEntries]) -> Sequence[PendingEntries]:
    """Return the same entries as fewer pieces: one for all single adds of many callers to a ledger."""
    if len(entries) < JOINED_MIN or len({one.state for one in entries}) == len(entries):
        return entries
    found: list[PendingEntries] = []
    first = 0
    for at, one in enumerate(entries[1:], 1):
        before = entries[at - 1]
        if one.state is not before.state or not _continues(one, before):
            found.append(_joined(entries, first, at))
            first = at
    found.append(_joined(entries, first, len(entries)))
    return found


def _continues(one: PendingEntries, before: PendingEntries) -> bool:
    """Return whether both are single entries with headers of one size, and the one follows the other."""
    is_next = one.first_id == one.last_id == before.first_id + 1 and before.first_id == before.last_id
    return is_next and len(one.headers) == len(before.headers)


def _joined(entries: Sequence[PendingEntries], start: int, stop: int) -> PendingEntries:
    if stop == start + 1:
        return entries[start]
    members = entries[start:stop]
    return _entries(
        members[0],
        members[0].first_id,
        b"".join([one.headers for one in members]),
        [one.payloads[0] for one in members],
        sum([one.size for one in members]),
        members[-1].length,
        max([one.confirmed for one in members]),
    )


def key_records_size(keys: Mapping[int, bytes]) -> int:
    """Return the size of the key records of these ledgers."""
    return sum(_KEY_FRAME_SIZE + len(key) for key in keys.values()) if keys else 0


def with_keys(group: JournalGroup, keys: Mapping[int, bytes]) -> JournalGroup:
    """Return the group with key records first: a bookie skips the records of a ledger without a key."""
    if not keys:
        return group
    records = [journal_format.encode_ledger_key(ledger_id, key) for ledger_id, key in sorted(keys.items())]
    size = group.size + size_of(records)
    return JournalGroup([*records, *group.buffers], len(records) + group.record_count, size, group.flags)


def size_of(records: Iterable[bytes]) -> int:
    return sum(map(len, records))
