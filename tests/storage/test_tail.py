"""The ends of ledgers: what is handed out, settled, and taken back; and who may add there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.access import Access, Purpose
from storage.codec import entry as entry_codec
from storage.codec import journal as journal_codec
from storage.codec import record as record_codec
from storage.codec.digest import Digester, digester, mac_key, master_key
from storage.codec.entry import Head
from storage.entry import NO_ENTRY, DigestType, Entry
from storage.errors import (
    DigestDiffers,
    DigestUnknown,
    InvalidEntry,
    LedgerFenced,
    LedgerUnproven,
    Unauthorized,
)
from storage.registry import plain
from storage.row import KnownBy, LedgerRow
from storage.tail import EMPTY, LedgerEnd, Run, Tail, Tails

CRC32C = digester(DigestType.CRC32C)
PASSWORD = b"password"
WRITER = Access(master_key(PASSWORD), mac_key=mac_key(PASSWORD))
STRANGER = Access(master_key(b"another"))
NEW = plain(7)
KNOWN = LedgerRow(7, 1, DigestType.CRC32C, master_key=WRITER.master_key)
FENCED = replace(KNOWN, fenced=True)
UNPROVEN = replace(KNOWN, master_key=None)
SOME = LedgerEnd(4, 100)


def of(access: Access, **changes: object) -> Access:
    return replace(access, **changes)  # type: ignore[arg-type]


RECOVERY = of(WRITER, purpose=Purpose.RECOVERING)


def entries(records: object, verifier: Digester = CRC32C) -> list[Entry]:
    assert isinstance(records, list)
    found = [entry_codec.decode(record_codec.entry_bytes(record), verifier) for record in records]
    assert all(isinstance(one, Entry) for one in found)
    return found  # type: ignore[return-value]


def settle(tail: Tail, run: Run) -> None:
    tail.settle(run.last_id, run.length, run.confirmed)


def entry(entry_id: int, length: int) -> Entry:
    return Entry(7, entry_id, NO_ENTRY, length, b"xy")


def claimed(end: LedgerEnd = EMPTY) -> Tail:
    """A ledger of the writer's."""
    tail = Tail(7, end, KNOWN)
    tail.admit(WRITER)
    return tail


# ── what is added ────────────────────────────────────────────────────────────────────────────────────────


def test_ids_and_lengths_go_on_over_what_is_not_settled_yet() -> None:
    tail = claimed()
    first, second = tail.append([b"abc", b""], WRITER), tail.append([b"de"], WRITER)
    assert entries([*first.records, *second.records]) == [
        Entry(7, 0, -1, 3, b"abc"),
        Entry(7, 1, -1, 3, b""),
        Entry(7, 2, -1, 5, b"de"),
    ]
    assert (first.first_id, first.last_id, second.first_id) == (0, 1, 2)
    assert first.size == sum(map(len, first.records))


def test_only_what_is_settled_counts_as_confirmed() -> None:
    tail = claimed()
    run = tail.append([b"abc"], WRITER)
    assert entries(tail.append([b"d"], WRITER).records)[0].last_add_confirmed == NO_ENTRY
    settle(tail, run)
    assert entries(tail.append([b"e"], WRITER).records)[0].last_add_confirmed == 0


def test_what_is_handed_back_is_handed_out_again() -> None:
    tail = claimed(SOME)
    tail.append([b"abc", b"d"], WRITER)
    tail.hand_back(KNOWN)
    assert entries(tail.append([b"e"], WRITER).records) == [Entry(7, 5, 4, 101, b"e")]


def test_what_is_appended_goes_behind_the_largest_id_that_was_placed() -> None:
    tail = claimed()
    far = tail.place(entry(9, 50), WRITER)
    tail.place(entry(3, 20), WRITER)
    assert entries(tail.append([b"e"], WRITER).records) == [Entry(7, 10, -1, 51, b"e")]
    settle(tail, far)
    assert tail.end == LedgerEnd(9, 50)


def test_what_is_appended_goes_on_from_the_newest_copy_of_the_last_entry() -> None:
    tail = claimed(LedgerEnd(9, 50))
    tail.place(entry(9, 60), WRITER)
    assert entries(tail.append([b"e"], WRITER).records) == [Entry(7, 10, 9, 61, b"e")]


def test_the_end_never_goes_back() -> None:
    tail = claimed()
    settle(tail, tail.place(entry(9, 50), WRITER))
    settle(tail, tail.place(entry(3, 20), WRITER))
    assert tail.end == LedgerEnd(9, 50)
    settle(tail, tail.place(entry(9, 60), WRITER))
    assert tail.end == LedgerEnd(9, 60)


def test_the_largest_lac_that_an_entry_has_brought_is_seen_when_it_is_settled() -> None:
    tail = claimed()
    run = tail.place(Entry(7, 9, 5, 50, b"xy"), WRITER)
    assert tail.lac_seen == NO_ENTRY
    settle(tail, run)
    settle(tail, tail.place(Entry(7, 10, 3, 60, b"xy"), WRITER))
    assert tail.lac_seen == 5


@pytest.mark.parametrize("digest_type", DigestType)
def test_entries_are_protected_as_the_ledger_s_are(digest_type: DigestType) -> None:
    tail = Tail(7, EMPTY, NEW)
    access = of(WRITER, digest_type=digest_type)
    tail.admit(access)
    runs: list[Run] = [
        tail.append([b"abc", b"d"], access),
        tail.append([b"e"], access),
        tail.place(entry(5, 50), access),
    ]
    for run in runs:
        assert entries(run.records, digester(digest_type, PASSWORD))
        # As tables expect them: in fronts of one size.
        assert run.front_size == record_codec.front_size(digest_type)
        assert run.size == sum(map(len, run.records))
    first, second = entries(runs[0].records, digester(digest_type, PASSWORD))
    assert (first.payload, second.payload, second.length) == (b"abc", b"d", 4)


@pytest.mark.parametrize("digest_type", [*DigestType, None])
def test_bytes_go_on_as_they_came_split_as_the_ledger_s_others(digest_type: DigestType | None) -> None:
    tail = Tail(7, SOME, replace(KNOWN, digest_type=digest_type))
    data = entry_codec.encode(Entry(7, 9, 3, 50, b"xy"), digester(digest_type or DigestType.DUMMY, PASSWORD))
    run = tail.place_bytes(Head(7, 9, 3, 50), data)
    assert run.records == [journal_codec.encode_record(data)]
    width = 0 if digest_type is None else digest_type.width
    assert run.front_size == record_codec.HEAD_FRONT_SIZE + width
    assert (run.first_id, run.length, run.confirmed, run.size) == (9, 50, 3, len(run.records[0]))


def test_bytes_that_are_shorter_than_a_front_are_one() -> None:
    tail = Tail(7, SOME, replace(KNOWN, digest_type=DigestType.MAC))
    data = entry_codec.HEAD.pack(7, 9, 3, 50) + b"short"
    run = tail.place_bytes(Head(7, 9, 3, 50), data)
    assert (run.records, run.payloads) == ([journal_codec.encode_record(data)], (b"",))


def test_nothing_is_appended_where_nothing_tells_how_to_protect_it() -> None:
    tail = Tail(7, SOME, replace(KNOWN, digest_type=None))
    with pytest.raises(DigestUnknown):
        tail.append([b"x"], WRITER)
    with pytest.raises(DigestUnknown):
        tail.place(entry(9, 50), WRITER)


def test_what_no_field_could_hold_is_refused() -> None:
    with pytest.raises(InvalidEntry, match="nothing may be above"):
        claimed(LedgerEnd((1 << 63) - 1, 5)).append([b"x"], WRITER)


# ── who may add ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_add_decides_about_the_key() -> None:
    tail = Tail(7, EMPTY, NEW)
    known = [tail.is_claimed]
    tail.admit(WRITER)
    assert [*known, tail.is_claimed] == [False, True]
    for stranger in (STRANGER, Access(b""), Access(WRITER.master_key[:-1]), Access(NEW.master_key or b"")):
        for _ in range(2):
            with pytest.raises(Unauthorized):
                tail.admit(stranger)
    tail.admit(Access(WRITER.master_key))


CLAIMS = {
    "named": (of(WRITER, digest_type=DigestType.MAC), DigestType.MAC, KnownBy.DECLARED),
    "not named": (WRITER, DigestType.CRC32C, KnownBy.DECLARED),
    "told": (of(WRITER, digest_type=DigestType.CRC32, is_told=True), DigestType.CRC32, KnownBy.INFERRED),
    "not told": (of(WRITER, is_told=True), None, KnownBy.INFERRED),
}


@pytest.mark.parametrize("how", CLAIMS)
def test_the_first_add_decides_about_the_digest_type(how: str) -> None:
    access, digest_type, known_by = CLAIMS[how]
    tail = Tail(7, EMPTY, NEW)
    tail.admit(access)
    assert (tail.facts.digest_type, tail.facts.known_by) == (digest_type, known_by)


def test_another_digest_type_than_the_ledger_s_is_refused_by_its_name() -> None:
    tail = Tail(7, SOME, replace(KNOWN, digest_type=DigestType.MAC))
    tail.admit(WRITER)
    tail.admit(of(WRITER, digest_type=DigestType.MAC))
    with pytest.raises(DigestDiffers) as caught:
        tail.admit(of(WRITER, digest_type=DigestType.CRC32C))
    assert caught.value.recorded == "MAC"


def test_what_one_entry_told_is_not_held_against_the_ledger_s_others() -> None:
    tail = Tail(7, SOME, KNOWN)
    tail.admit(of(WRITER, digest_type=DigestType.CRC32, is_told=True))
    assert tail.facts == KNOWN


TOLD = of(WRITER, digest_type=DigestType.MAC, is_told=True)


def test_of_a_ledger_that_was_fenced_or_confirmed_before_its_first_entry_that_one_tells() -> None:
    tail = Tail(7, EMPTY, NEW)
    tail.admit_fence(WRITER)
    assert not tail.tells_digest
    tail.admit(TOLD)
    assert (tail.facts.digest_type, tail.facts.known_by) == (DigestType.MAC, KnownBy.INFERRED)
    assert tail.tells_digest


def test_behind_the_first_entry_no_other_tells() -> None:
    tail = claimed()
    tail.append([b"x"], WRITER)
    assert tail.tells_digest
    tail.admit(TOLD)
    assert tail.facts == KNOWN


def test_where_nothing_tells_the_digest_type_none_can_be_named_any_more() -> None:
    tail = Tail(7, SOME, replace(KNOWN, digest_type=None))
    tail.admit(WRITER)
    with pytest.raises(DigestUnknown):
        tail.admit(of(WRITER, digest_type=DigestType.CRC32C))


@pytest.mark.parametrize(
    ("end", "facts"),
    [(SOME, KNOWN), (EMPTY, FENCED), (EMPTY, replace(KNOWN, explicit_lac=bytes(20)))],
    ids=["entries", "fenced", "confirmed"],
)
def test_a_ledger_that_exists_has_its_key_already(end: LedgerEnd, facts: LedgerRow) -> None:
    tail = Tail(7, end, facts)
    assert tail.is_claimed
    with pytest.raises(Unauthorized):
        tail.admit(STRANGER)


def test_a_ledger_that_has_a_row_and_never_was_may_be_claimed() -> None:
    # Its digest type was written down, and then there was no space for its first entry.
    tail = Tail(7, EMPTY, replace(KNOWN, digest_type=DigestType.MAC))
    tail.admit(STRANGER)
    assert (tail.facts.master_key, tail.facts.digest_type) == (STRANGER.master_key, DigestType.CRC32C)


def test_who_was_admitted_is_not_asked_again() -> None:
    tail = claimed()
    tail.facts = replace(KNOWN, master_key=STRANGER.master_key)  # as nobody does
    tail.admit(WRITER)
    with pytest.raises(Unauthorized):
        tail.admit(replace(WRITER))  # another one, of whom nothing is remembered


# ── a key that nothing proves ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("access", [WRITER, STRANGER], ids=["writer", "stranger"])
def test_without_a_proven_key_nobody_writes_and_anybody_protects(access: Access) -> None:
    tail = Tail(7, SOME, UNPROVEN)
    for refused in (tail.admit, tail.admit_word):
        with pytest.raises(LedgerUnproven):
            refused(access)
    tail.admit(of(access, purpose=Purpose.RECOVERING))
    tail.admit_fence(access)
    tail.admit_delete(access)
    assert tail.facts == UNPROVEN


def test_a_recovery_that_passed_without_a_key_opens_no_way_for_adds() -> None:
    tail = Tail(7, SOME, UNPROVEN)
    tail.admit(RECOVERY)
    with pytest.raises(LedgerUnproven):
        tail.admit(WRITER)


def test_where_a_key_is_proven_only_its_owner_speaks_for_the_ledger() -> None:
    for facts in (KNOWN, FENCED):
        tail = Tail(7, SOME, facts)
        for admit in (tail.admit_fence, tail.admit_word, tail.admit_delete):
            admit(WRITER)
            with pytest.raises(Unauthorized):
                admit(STRANGER)


@pytest.mark.parametrize("admit", [Tail.admit_fence, Tail.admit_word], ids=["fence", "word"])
def test_who_speaks_for_a_ledger_that_is_new_claims_it(admit: object) -> None:
    tail = Tail(7, EMPTY, NEW)
    assert callable(admit)
    admit(tail, WRITER)
    assert tail.is_claimed
    with pytest.raises(Unauthorized):
        tail.admit(STRANGER)


# ── a fence ──────────────────────────────────────────────────────────────────────────────────────────────


def fenced_now() -> Tail:
    """Its fence is on its way, and not durable yet."""
    tail = claimed(SOME)
    tail.fence()
    return tail


@pytest.mark.parametrize("tail", [fenced_now(), Tail(7, SOME, FENCED)], ids=["on its way", "durable"])
def test_behind_a_fence_only_a_recovery_adds(tail: Tail) -> None:
    for _ in range(2):
        with pytest.raises(LedgerFenced):
            tail.admit(WRITER)
        tail.admit(RECOVERY)  # and is not taken for the writer, nor the writer for it
        with pytest.raises(Unauthorized):
            tail.admit(of(STRANGER, purpose=Purpose.RECOVERING))


def test_a_fence_that_was_never_durable_is_gone_with_its_turn() -> None:
    tail = fenced_now()
    tail.hand_back(KNOWN)
    tail.admit(WRITER)
    assert tail.append([b"x"], WRITER).first_id == 5


# ── what never happened ──────────────────────────────────────────────────────────────────────────────────


def test_who_was_admitted_by_a_claim_that_is_handed_back_claims_again() -> None:
    tail = Tail(7, EMPTY, NEW)
    tail.admit(WRITER)
    tail.hand_back(NEW)
    tail.admit(WRITER)
    assert (tail.is_claimed, tail.facts.master_key) == (True, WRITER.master_key)


def test_a_claim_of_which_nothing_was_durable_is_handed_back() -> None:
    tail = Tail(7, EMPTY, NEW)
    tail.admit(WRITER)
    tail.append([b"abc"], WRITER)
    tail.hand_back(NEW)
    assert (tail.is_claimed, tail.facts) == (False, NEW)
    tail.admit(STRANGER)
    with pytest.raises(Unauthorized):
        tail.admit(WRITER)


def test_a_claim_with_an_entry_that_is_durable_stays() -> None:
    tail = Tail(7, EMPTY, NEW)
    tail.admit(WRITER)
    settle(tail, tail.append([b"abc"], WRITER))
    tail.hand_back(KNOWN)
    assert tail.is_claimed
    with pytest.raises(Unauthorized):
        tail.admit(STRANGER)


def eventful() -> Tail:
    tail = Tail(7, LedgerEnd(9, 50), replace(FENCED, digest_type=DigestType.MAC, explicit_lac=b"packet"))
    settle(tail, tail.place_bytes(Head(7, 10, 8, 60), bytes(60)))
    tail.prefix.first_missing, tail.lost = 11, OSError("lost")
    return tail


def test_behind_a_delete_it_is_another_ledger() -> None:
    tail = eventful()
    tail.restart(NEW)
    assert (tail.end, tail.is_claimed) == (EMPTY, False)
    assert (tail.prefix.first_missing, tail.lac_seen, tail.lost) == (0, NO_ENTRY, None)
    tail.admit(STRANGER)
    assert entries(tail.append([b"new"], STRANGER).records) == [Entry(7, 0, -1, 3, b"new")]
    with pytest.raises(Unauthorized):
        tail.admit(WRITER)


# ── all of them ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_tail_is_looked_for_once_and_is_the_same_for_everybody() -> None:
    asked: list[int] = []

    def find(ledger_id: int) -> LedgerEnd:
        asked.append(ledger_id)
        return SOME

    tails = Tails(find, lambda _: KNOWN)
    assert tails.known(7) is None
    tail = tails.of(7)
    assert tails.of(7) is tail is tails.known(7)
    assert asked == [7]


def test_what_is_not_settled_is_handed_back_of_every_ledger_and_the_facts_are_found_anew() -> None:
    facts = {1: replace(KNOWN, ledger_id=1), 2: replace(KNOWN, ledger_id=2)}
    tails = Tails(lambda _: SOME, lambda ledger_id: facts[ledger_id])
    for ledger_id in facts:
        tails.of(ledger_id).append([b"abc"], WRITER)
        tails.of(ledger_id).fence()
    facts[2] = replace(facts[2], fenced=True)
    tails.hand_back()
    assert entries(tails.of(1).append([b"e"], WRITER).records)[0].entry_id == 5
    tails.of(1).admit(WRITER)
    with pytest.raises(LedgerFenced):
        tails.of(2).admit(WRITER)
