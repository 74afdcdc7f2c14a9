"""The ends of ledgers: what is handed out, settled, and taken back; and who may add there."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped_store import Site
from store_internals import HeldLock, LockIsHeld, StoreInternals

from storage.commit.pending import (
    ClientEntry,
    PendingEntries,
    PendingFence,
    PendingGroup,
    ReplicaEntry,
)
from storage.commit.queue import new_lock
from storage.entry import format as entry_format
from storage.entry import record_format
from storage.entry.credentials import Access, Purpose
from storage.entry.digest import Digester, digester, mac_key, master_key
from storage.entry.ledger_record import KnownBy, LedgerRecord
from storage.entry.model import NO_ENTRY, DigestType, Entry
from storage.errors import (
    DigestDiffers,
    DigestUnknown,
    InvalidEntry,
    LedgerFenced,
    LedgerUnproven,
    Unauthorized,
)
from storage.journal import format as journal_format
from storage.ledgers.metadata import plain
from storage.ledgers.state import EMPTY, LedgerEnd, LedgerState, LedgerStates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CRC32C = digester(DigestType.CRC32C)
PASSWORD = b"password"
WRITER = Access(master_key(PASSWORD), mac_key=mac_key(PASSWORD))
STRANGER = Access(master_key(b"another"))
NEW = plain(7)
KNOWN = LedgerRecord(7, 1, DigestType.CRC32C, master_key=WRITER.master_key)
FENCED = replace(KNOWN, fenced=True)
UNPROVEN = replace(KNOWN, master_key=None)
SOME = LedgerEnd(4, 100)


def of(access: Access, **changes: object) -> Access:
    return replace(access, **changes)  # type: ignore[arg-type]


RECOVERY = of(WRITER, purpose=Purpose.RECOVERING)


def entries(records: object, verifier: Digester = CRC32C) -> list[Entry]:
    assert isinstance(records, list)
    found = [entry_format.decode(record_format.entry_bytes(record), verifier) for record in records]
    assert all(isinstance(one, Entry) for one in found)
    return found  # type: ignore[return-value]


def appended(tail: LedgerState, payloads: Sequence[bytes], access: Access) -> PendingEntries:
    """Payloads that have joined a group."""
    work = PendingEntries(tail, access, payloads)
    work.join(PendingGroup())
    return work


def placed(tail: LedgerState, entry: Entry, access: Access) -> PendingEntries:
    """An entry with an id of its own that has joined a group."""
    work = ReplicaEntry(tail, access, entry)
    work.join(PendingGroup())
    return work


def brought(tail: LedgerState, head: tuple[int, int, int, int], data: bytes) -> PendingEntries:
    """An entry as its client has made it that has joined a group."""
    work = ClientEntry(tail, WRITER, head, data)
    work.join(PendingGroup())
    return work


def fence(tail: LedgerState) -> None:
    """A fence has joined a group."""
    PendingFence(tail, WRITER).join(PendingGroup())


def _store(tail: LedgerState, facts: LedgerRecord) -> None:
    if facts is not tail.facts:
        tail.facts, tail.is_claimed = facts, True


def admit(tail: LedgerState, access: Access) -> None:
    """Check the credentials of an add, and store what they claim, as work does that joins a group."""
    if access is not tail.admitted:
        facts = tail.facts_for_add(access)
        _store(tail, facts)
        if not facts.fenced:
            tail.admitted = access


def admit_fence(tail: LedgerState, access: Access) -> None:
    """The same for a fence."""
    _store(tail, tail.facts_for_fence(access))


def admit_lac(tail: LedgerState, access: Access) -> None:
    """The same for an explicit last add confirmed."""
    _store(tail, tail.facts_for_lac(access))


def settle(tail: LedgerState, run: PendingEntries) -> None:
    """Show entries that are durable, as a commit does."""
    tail.end = LedgerEnd(run.last_id, run.length)


def entry(entry_id: int, length: int) -> Entry:
    return Entry(7, entry_id, NO_ENTRY, length, b"xy")


def claimed(end: LedgerEnd = EMPTY) -> LedgerState:
    """A ledger of the writer's."""
    tail = LedgerState(7, end, KNOWN)
    admit(tail, WRITER)
    return tail


# ── what is added ────────────────────────────────────────────────────────────────────────────────────────


def test_ids_and_lengths_go_on_over_what_is_not_settled_yet() -> None:
    tail = claimed()
    first, second = appended(tail, [b"abc", b""], WRITER), appended(tail, [b"de"], WRITER)
    assert entries([*first.records, *second.records]) == [
        Entry(7, 0, -1, 3, b"abc"),
        Entry(7, 1, -1, 3, b""),
        Entry(7, 2, -1, 5, b"de"),
    ]
    assert (first.first_id, first.last_id, second.first_id) == (0, 1, 2)
    assert first.size == sum(map(len, first.records))


def test_only_durable_entries_count_as_confirmed() -> None:
    tail = claimed()
    run = appended(tail, [b"abc"], WRITER)
    assert entries(appended(tail, [b"d"], WRITER).records)[0].last_add_confirmed == NO_ENTRY
    settle(tail, run)
    assert entries(appended(tail, [b"e"], WRITER).records)[0].last_add_confirmed == 0


def test_ids_that_were_given_back_are_used_again() -> None:
    tail = claimed(SOME)
    appended(tail, [b"abc", b"d"], WRITER)
    tail.hand_back(KNOWN)
    assert entries(appended(tail, [b"e"], WRITER).records) == [Entry(7, 5, 4, 101, b"e")]


def test_appended_entries_follow_the_largest_id_that_was_added() -> None:
    tail = claimed()
    far = placed(tail, entry(9, 50), WRITER)
    placed(tail, entry(3, 20), WRITER)
    assert entries(appended(tail, [b"e"], WRITER).records) == [Entry(7, 10, -1, 51, b"e")]
    settle(tail, far)
    assert tail.end == LedgerEnd(9, 50)


def test_appends_continue_from_the_newest_copy_of_the_last_entry() -> None:
    tail = claimed(LedgerEnd(9, 50))
    placed(tail, entry(9, 60), WRITER)
    assert entries(appended(tail, [b"e"], WRITER).records) == [Entry(7, 10, 9, 61, b"e")]


def test_the_end_never_goes_back() -> None:
    store = Site().open()
    tail = StoreInternals(store).tail(7)
    ends = []
    for entry_id, length in ((9, 50), (3, 20), (9, 60)):
        store.add(entry(entry_id, length))
        ends.append(tail.end)
    assert ends == [LedgerEnd(9, 50), LedgerEnd(9, 50), LedgerEnd(9, 60)]


def test_the_largest_lac_of_an_entry_is_visible_when_the_entry_is() -> None:
    store = Site().open()
    tail = StoreInternals(store).tail(7)
    assert tail.lac_seen == NO_ENTRY
    seen = []
    for entry_id, confirmed in ((9, 5), (10, 3), (11, 6)):
        store.add(Entry(7, entry_id, confirmed, 50, b"xy"))
        seen.append(tail.lac_seen)
    assert seen == [5, 5, 6]


@pytest.mark.parametrize("digest_type", DigestType)
def test_entries_are_protected_as_the_ledger_s_are(digest_type: DigestType) -> None:
    tail = LedgerState(7, EMPTY, NEW)
    access = of(WRITER, digest_type=digest_type)
    admit(tail, access)
    runs: list[PendingEntries] = [
        appended(tail, [b"abc", b"d"], access),
        appended(tail, [b"e"], access),
        placed(tail, entry(5, 50), access),
    ]
    for run in runs:
        assert entries(run.records, digester(digest_type, PASSWORD))
        # As tables expect them: in fronts of one size.
        assert run.front_size == record_format.front_size(digest_type)
        assert run.size == sum(map(len, run.records))
    first, second = entries(runs[0].records, digester(digest_type, PASSWORD))
    assert (first.payload, second.payload, second.length) == (b"abc", b"d", 4)


@pytest.mark.parametrize("digest_type", [*DigestType, None])
def test_bytes_go_on_as_they_came_split_as_the_ledger_s_others(digest_type: DigestType | None) -> None:
    tail = LedgerState(7, SOME, replace(KNOWN, digest_type=digest_type))
    data = entry_format.encode(Entry(7, 9, 3, 50, b"xy"), digester(digest_type or DigestType.DUMMY, PASSWORD))
    run = brought(tail, (7, 9, 3, 50), data)
    assert run.records == [journal_format.encode_record(data)]
    width = 0 if digest_type is None else digest_type.width
    assert run.front_size == record_format.HEAD_FRONT_SIZE + width
    assert (run.first_id, run.length, run.confirmed, run.size) == (9, 50, 3, len(run.records[0]))


def test_bytes_that_are_shorter_than_a_front_are_one() -> None:
    tail = LedgerState(7, SOME, replace(KNOWN, digest_type=DigestType.MAC))
    data = entry_format.HEAD.pack(7, 9, 3, 50) + b"short"
    run = brought(tail, (7, 9, 3, 50), data)
    assert (run.records, run.payloads) == ([journal_format.encode_record(data)], (b"",))


def test_no_append_to_a_ledger_whose_digest_type_is_unknown() -> None:
    tail = LedgerState(7, SOME, replace(KNOWN, digest_type=None))
    with pytest.raises(DigestUnknown):
        appended(tail, [b"x"], WRITER)
    with pytest.raises(DigestUnknown):
        placed(tail, entry(9, 50), WRITER)


def test_values_that_no_field_can_hold_are_refused() -> None:
    with pytest.raises(InvalidEntry, match="nothing may be above"):
        appended(claimed(LedgerEnd((1 << 63) - 1, 5)), [b"x"], WRITER)


# ── who may add ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_add_decides_about_the_key() -> None:
    tail = LedgerState(7, EMPTY, NEW)
    known = [tail.is_claimed]
    admit(tail, WRITER)
    assert [*known, tail.is_claimed] == [False, True]
    for stranger in (STRANGER, Access(b""), Access(WRITER.master_key[:-1]), Access(NEW.master_key or b"")):
        for _ in range(2):
            with pytest.raises(Unauthorized):
                admit(tail, stranger)
    admit(tail, Access(WRITER.master_key))


CLAIMS = {
    "named": (of(WRITER, digest_type=DigestType.MAC), DigestType.MAC, KnownBy.DECLARED),
    "not named": (WRITER, DigestType.CRC32C, KnownBy.DECLARED),
    "told": (of(WRITER, digest_type=DigestType.CRC32, is_told=True), DigestType.CRC32, KnownBy.INFERRED),
    "not told": (of(WRITER, is_told=True), None, KnownBy.INFERRED),
}


@pytest.mark.parametrize("how", CLAIMS)
def test_the_first_add_decides_about_the_digest_type(how: str) -> None:
    access, digest_type, known_by = CLAIMS[how]
    tail = LedgerState(7, EMPTY, NEW)
    admit(tail, access)
    assert (tail.facts.digest_type, tail.facts.known_by) == (digest_type, known_by)


def test_another_digest_type_than_the_ledger_s_is_refused_by_its_name() -> None:
    tail = LedgerState(7, SOME, replace(KNOWN, digest_type=DigestType.MAC))
    admit(tail, WRITER)
    admit(tail, of(WRITER, digest_type=DigestType.MAC))
    with pytest.raises(DigestDiffers) as caught:
        admit(tail, of(WRITER, digest_type=DigestType.CRC32C))
    assert caught.value.recorded == "MAC"


def test_the_digest_type_of_one_entry_is_not_assumed_for_the_others() -> None:
    tail = LedgerState(7, SOME, KNOWN)
    admit(tail, of(WRITER, digest_type=DigestType.CRC32, is_told=True))
    assert tail.facts == KNOWN


TOLD = of(WRITER, digest_type=DigestType.MAC, is_told=True)


def test_the_first_entry_decides_the_digest_type_after_a_fence_or_a_confirmation() -> None:
    tail = LedgerState(7, EMPTY, NEW)
    admit_fence(tail, WRITER)
    assert not tail.tells_digest
    admit(tail, TOLD)
    assert (tail.facts.digest_type, tail.facts.known_by) == (DigestType.MAC, KnownBy.INFERRED)
    assert tail.tells_digest


def test_the_first_entry_decides_the_digest_type() -> None:
    tail = claimed()
    appended(tail, [b"x"], WRITER)
    assert tail.tells_digest
    admit(tail, TOLD)
    assert tail.facts == KNOWN


def test_an_unknown_digest_type_cannot_be_declared_later() -> None:
    tail = LedgerState(7, SOME, replace(KNOWN, digest_type=None))
    admit(tail, WRITER)
    with pytest.raises(DigestUnknown):
        admit(tail, of(WRITER, digest_type=DigestType.CRC32C))


@pytest.mark.parametrize(
    ("end", "facts"),
    [(SOME, KNOWN), (EMPTY, FENCED), (EMPTY, replace(KNOWN, explicit_lac=bytes(20)))],
    ids=["entries", "fenced", "confirmed"],
)
def test_a_ledger_that_exists_has_its_key_already(end: LedgerEnd, facts: LedgerRecord) -> None:
    tail = LedgerState(7, end, facts)
    assert tail.is_claimed
    with pytest.raises(Unauthorized):
        admit(tail, STRANGER)


def test_a_ledger_with_a_row_that_never_existed_may_be_claimed() -> None:
    # Its digest type was written down, and then there was no space for its first entry.
    tail = LedgerState(7, EMPTY, replace(KNOWN, digest_type=DigestType.MAC))
    admit(tail, STRANGER)
    assert (tail.facts.master_key, tail.facts.digest_type) == (STRANGER.master_key, DigestType.CRC32C)


def test_a_writer_that_was_admitted_is_not_checked_again() -> None:
    tail = claimed()
    tail.facts = replace(KNOWN, master_key=STRANGER.master_key)  # as no caller does
    admit(tail, WRITER)
    with pytest.raises(Unauthorized):
        admit(tail, replace(WRITER))  # another writer, whose key was not checked before


# ── a key that nothing proves ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("access", [WRITER, STRANGER], ids=["writer", "stranger"])
def test_without_a_proven_key_all_writes_are_refused_and_any_client_may_fence(access: Access) -> None:
    tail = LedgerState(7, SOME, UNPROVEN)
    for refused in (admit, admit_lac):
        with pytest.raises(LedgerUnproven):
            refused(tail, access)
    admit(tail, of(access, purpose=Purpose.RECOVERING))
    admit_fence(tail, access)
    tail.check_key(access)
    assert tail.facts == UNPROVEN


def test_a_recovery_without_a_key_does_not_authorize_ordinary_adds() -> None:
    tail = LedgerState(7, SOME, UNPROVEN)
    admit(tail, RECOVERY)
    with pytest.raises(LedgerUnproven):
        admit(tail, WRITER)


def test_only_the_owner_of_a_proven_key_may_change_the_ledger() -> None:
    for facts in (KNOWN, FENCED):
        tail = LedgerState(7, SOME, facts)
        for check in (tail.facts_for_fence, tail.facts_for_lac, tail.check_key):
            check(WRITER)
            with pytest.raises(Unauthorized):
                check(STRANGER)


@pytest.mark.parametrize("admit", [admit_fence, admit_lac], ids=["fence", "word"])
def test_a_fence_or_confirmation_of_a_new_ledger_claims_it(admit: object) -> None:
    tail = LedgerState(7, EMPTY, NEW)
    assert callable(admit)
    admit(tail, WRITER)
    assert tail.is_claimed
    with pytest.raises(Unauthorized):
        admit(tail, STRANGER)


# ── a fence ──────────────────────────────────────────────────────────────────────────────────────────────


def fenced_now() -> LedgerState:
    """Its fence is on its way, and not durable yet."""
    tail = claimed(SOME)
    fence(tail)
    return tail


@pytest.mark.parametrize("tail", [fenced_now(), LedgerState(7, SOME, FENCED)], ids=["on its way", "durable"])
def test_after_a_fence_only_a_recovery_can_add(tail: LedgerState) -> None:
    for _ in range(2):
        with pytest.raises(LedgerFenced):
            admit(tail, WRITER)
        admit(tail, RECOVERY)  # and is not taken for the writer, nor the writer for it
        with pytest.raises(Unauthorized):
            admit(tail, of(STRANGER, purpose=Purpose.RECOVERING))


def test_a_fence_that_was_never_durable_is_gone_with_its_group() -> None:
    tail = fenced_now()
    tail.hand_back(KNOWN)
    admit(tail, WRITER)
    assert appended(tail, [b"x"], WRITER).first_id == 5


# ── what never happened ──────────────────────────────────────────────────────────────────────────────────


def test_a_writer_admitted_by_a_rolled_back_claim_claims_again() -> None:
    tail = LedgerState(7, EMPTY, NEW)
    admit(tail, WRITER)
    tail.hand_back(NEW)
    admit(tail, WRITER)
    assert (tail.is_claimed, tail.facts.master_key) == (True, WRITER.master_key)


def test_a_claim_of_which_nothing_was_durable_is_handed_back() -> None:
    tail = LedgerState(7, EMPTY, NEW)
    admit(tail, WRITER)
    appended(tail, [b"abc"], WRITER)
    tail.hand_back(NEW)
    assert (tail.is_claimed, tail.facts) == (False, NEW)
    admit(tail, STRANGER)
    with pytest.raises(Unauthorized):
        admit(tail, WRITER)


def test_a_claim_with_an_entry_that_is_durable_stays() -> None:
    tail = LedgerState(7, EMPTY, NEW)
    admit(tail, WRITER)
    settle(tail, appended(tail, [b"abc"], WRITER))
    tail.hand_back(KNOWN)
    assert tail.is_claimed
    with pytest.raises(Unauthorized):
        admit(tail, STRANGER)


def eventful() -> LedgerState:
    tail = LedgerState(
        7, LedgerEnd(9, 50), replace(FENCED, digest_type=DigestType.MAC, explicit_lac=b"packet")
    )
    work = ClientEntry(tail, RECOVERY, (7, 10, 8, 60), bytes(60))
    work.join(PendingGroup())
    settle(tail, work)
    tail.prefix.first_missing, tail.lost = 11, OSError("lost")
    return tail


def test_after_a_delete_it_is_another_ledger() -> None:
    tail = eventful()
    tail.restart(NEW)
    assert (tail.end, tail.is_claimed) == (EMPTY, False)
    assert (tail.prefix.first_missing, tail.lac_seen, tail.lost) == (0, NO_ENTRY, None)
    admit(tail, STRANGER)
    assert entries(appended(tail, [b"new"], STRANGER).records) == [Entry(7, 0, -1, 3, b"new")]
    with pytest.raises(Unauthorized):
        admit(tail, WRITER)


# ── all of them ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_tail_is_looked_for_once_and_is_the_same_for_everybody() -> None:
    asked: list[int] = []

    def find(ledger_id: int) -> LedgerEnd:
        asked.append(ledger_id)
        return SOME

    tails = LedgerStates(find, lambda _: KNOWN, new_lock())
    assert tails.known(7) is None
    tail = tails.of(7)
    assert tails.of(7) is tail is tails.known(7)
    assert asked == [7]


def test_the_tail_of_a_ledger_without_entries_is_shared_and_freed_with_the_last_reference() -> None:
    tails = LedgerStates(lambda _: EMPTY, plain, new_lock())
    one = tails.of(7)
    assert tails.of(7) is one is tails.known(7)
    del one
    assert tails.known(7) is None


def test_the_state_of_a_ledger_is_kept_from_its_first_entry_to_its_delete() -> None:
    tails = LedgerStates(lambda _: EMPTY, plain, new_lock())
    tail = tails.of(7)
    tail.end = LedgerEnd(0, 3)
    tails.keep(tail)
    del tail
    tail = tails.of(7)
    assert tail.end == LedgerEnd(0, 3)
    tail.restart(plain(7))
    tails.release(tail)
    assert tails.known(7) is tail
    del tail
    assert tails.known(7) is None


def test_the_states_that_are_kept_change_only_under_the_lock() -> None:
    tails = LedgerStates(lambda _: SOME, plain, HeldLock())
    state = LedgerState(7, SOME, NEW)
    for change in (lambda: tails.keep(state), lambda: tails.release(state), lambda: tails.of(7)):
        with pytest.raises(LockIsHeld):
            change()
    assert tails.known(7) is None


def test_a_digest_type_that_a_refused_add_has_left_is_not_the_ledger_s() -> None:
    left = replace(NEW, digest_type=DigestType.MAC)
    tail = LedgerState(7, EMPTY, left)
    assert not tail.tells_digest
    admit(tail, of(WRITER, digest_type=DigestType.MAC))
    assert tail.tells_digest


def test_two_threads_that_look_up_one_ledger_get_the_same_state() -> None:
    found: list[LedgerState] = []

    def find(ledger_id: int) -> LedgerEnd:
        if not found:
            found.append(found_tail := LedgerState(ledger_id, EMPTY, KNOWN))
            found[0] = tails.of(ledger_id)
            assert found[0] is not found_tail
        return EMPTY

    tails = LedgerStates(find, plain, new_lock())
    assert tails.of(7) is found[0]


def test_an_end_found_before_a_ledger_state_was_released_is_looked_up_again() -> None:
    ends = [SOME, EMPTY]

    def find(ledger_id: int) -> LedgerEnd:
        end = ends.pop(0)
        if ends:
            other = LedgerState(ledger_id, SOME, KNOWN)
            tails.keep(other)
            tails.release(other)
        return end

    tails = LedgerStates(find, plain, new_lock())
    assert tails.of(7).end == EMPTY


def test_a_fence_made_during_the_look_up_of_the_ledger_s_end_holds() -> None:
    """Another thread has fenced a ledger without entries, and let go of its tail, before that is kept."""
    facts, lock = KNOWN, new_lock()

    @contextmanager
    def late() -> Iterator[None]:
        nonlocal facts
        facts = FENCED
        with lock:
            yield

    tails = LedgerStates(lambda _: EMPTY, lambda _: facts, late())
    with pytest.raises(LedgerFenced):
        admit(tails.of(7), WRITER)


def test_a_rollback_gives_back_the_ids_of_every_ledger_and_its_claim() -> None:
    facts = {1: replace(KNOWN, ledger_id=1), 2: replace(KNOWN, ledger_id=2)}
    tails = LedgerStates(lambda _: SOME, lambda ledger_id: facts[ledger_id], new_lock())
    for ledger_id in facts:
        appended(tails.of(ledger_id), [b"abc"], WRITER)
        fence(tails.of(ledger_id))
    facts[2] = replace(facts[2], fenced=True)
    tails.hand_back()
    assert entries(appended(tails.of(1), [b"e"], WRITER).records)[0].entry_id == 5
    admit(tails.of(1), WRITER)
    with pytest.raises(LedgerFenced):
        admit(tails.of(2), WRITER)
