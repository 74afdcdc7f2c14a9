"""The bookie's face: bytes that its clients have made, keys, fences, limbo; over crashes of a disk."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest
from clients import Client, flipped
from stepped import LEDGERS, SMALL, Site

from recovery.crashlab import Lasting, Refused, Verb, When
from storage.codec import entry as entry_codec
from storage.codec.digest import master_key
from storage.entry import DigestType
from storage.errors import (
    AnswerUnknown,
    DigestMismatch,
    DigestUnknown,
    DiskFull,
    EntryTooLarge,
    EntryUnreadable,
    InvalidEntry,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    Overloaded,
    StoreClosed,
    StoreFailed,
    Unauthorized,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.crashlab import Operation
    from storage.bookie import Bookie
    from storage.store import Store

Answer = TypeVar("Answer")

WRITER = Client()
ALL_TYPES = pytest.mark.parametrize("digest_type", DigestType)
BLOCK = b"x" * (50 << 10)
NO_ROOM = Refused(When(verb=Verb.ZERO_FILL, lasting=Lasting.UNTIL_MENDED), errno.ENOSPC)


def checkpointed_and_cut(site: Site, store: Store) -> Store:
    site.checkpoint(store)
    return site.after_power_cut()


def index_lost(site: Site, store: Store) -> Store:
    site.checkpoint(store)
    site.disk.kill()
    site.remove(f"{LEDGERS}/index")
    return site.open()


def closed(site: Site, store: Store) -> Store:
    store.close()
    return site.open()


LATER: dict[str, Callable[[Site, Store], Store]] = {
    "at once": lambda _, store: store,
    "killed": lambda site, _: site.after_kill(),
    "power cut": lambda site, _: site.after_power_cut(),
    "checkpoint and power cut": checkpointed_and_cut,
    "index lost": index_lost,
    "closed": closed,
}
"""What may happen between an answer and the next question."""


@pytest.fixture(params=list(LATER))
def later(request: pytest.FixtureRequest) -> Callable[[Site, Store], Store]:
    return LATER[request.param]


def opened() -> tuple[Site, Store, Bookie]:
    site = Site()
    store = site.open()
    return site, store, store.bookie


def add(bookie: Bookie, writer: Client, *entry_ids: int) -> None:
    for entry_id in entry_ids:
        bookie.add(writer.entry(entry_id), writer.key)


# ── bytes in, bytes out ──────────────────────────────────────────────────────────────────────────────────


@ALL_TYPES
def test_an_entry_comes_back_as_the_bytes_that_its_writer_made(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    writer = Client(digest_type=digest_type)
    texts = [b"first", b"x" * 5000, b"y"]
    sent = [writer.entry(entry_id, text) for entry_id, text in enumerate(texts)]
    for data in sent:
        bookie.add(bytearray(data), writer.key)  # type: ignore[arg-type]  # as it lies in a buffer
    bookie = later(site, store).bookie
    assert [bookie.read(7, entry_id) for entry_id in range(3)] == sent
    assert (bookie.read_last(7), bookie.entry_ids(7)) == (sent[2], [range(3)])


@ALL_TYPES
def test_a_ledger_s_owner_reads_what_came_through_the_bookie(digest_type: DigestType) -> None:
    site, _, bookie = opened()
    writer = Client(digest_type=digest_type)
    add(bookie, writer, 0, 1)
    ledger = site.after_power_cut().ledger(7, password=writer.password)
    assert (ledger.digest_type, list(ledger.payloads())) == (digest_type, [b"%8d" % 0, b"%8d" % 1])


@pytest.mark.parametrize("size", [0, 15, 16, 31])
def test_bytes_that_are_no_entry_are_refused(size: int) -> None:
    _, store, bookie = opened()
    with pytest.raises(InvalidEntry):
        bookie.add(WRITER.entry(0)[:size], WRITER.key)
    assert store.ledgers() == []


@pytest.mark.parametrize("at", [0, 8, 16, 24])
def test_an_entry_with_a_number_that_nobody_has_is_refused(at: int) -> None:
    _, store, bookie = opened()
    data = bytearray(WRITER.entry(0))
    data[at : at + 8] = b"\x80" + bytes(7)
    with pytest.raises(InvalidEntry):
        bookie.add(bytes(data), WRITER.key)
    assert store.ledgers() == []


def test_an_entry_larger_than_the_store_takes_is_refused() -> None:
    _, store, bookie = opened()
    room = SMALL.entry_size_max - 36
    with pytest.raises(EntryTooLarge):
        bookie.add(WRITER.entry(0, b"x" * (room + 1)), WRITER.key)
    bookie.add(WRITER.entry(0, b"x" * room), WRITER.key)
    assert store.ledger(7).last_entry_id == 0


def test_of_an_entry_that_comes_twice_the_second_counts(later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    again = WRITER.entry(1, b"another text")
    bookie.add(again, WRITER.key)
    assert later(site, store).bookie.read_last(7) == again


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────

VERBS: dict[str, Callable[[Bookie, bytes], object]] = {
    "add": lambda bookie, key: bookie.add(WRITER.entry(1), key),
    "recover": lambda bookie, key: bookie.recover(WRITER.entry(1), key),
    "submit": lambda bookie, key: bookie.submit(WRITER.entry(1), key),
    "defer": lambda bookie, key: bookie.defer(WRITER.entry(1), key),
    "fence": lambda bookie, key: bookie.fence(7, key),
    "set_explicit_lac": lambda bookie, key: bookie.set_explicit_lac(7, WRITER.packet(1), key),
}
EVERY_VERB = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


@EVERY_VERB
@pytest.mark.parametrize("key", [b"k", master_key(b""), master_key(b"wrong"), WRITER.key[:19]])
def test_whoever_comes_with_another_key_is_refused(
    verb: Callable[[Bookie, bytes], object], key: bytes, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0)
    store = later(site, store)
    with pytest.raises(Unauthorized):
        verb(store.bookie, key)
    store.bookie.force(7)
    assert (store.bookie.entry_ids(7), store.bookie.is_fenced(7)) == ([range(1)], False)
    assert store.bookie.explicit_lac(7) is None


@EVERY_VERB
def test_the_first_key_that_comes_is_the_ledger_s(
    verb: Callable[[Bookie, bytes], object], later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    verb(bookie, WRITER.key)
    bookie.force(7)
    bookie = later(site, store).bookie
    with pytest.raises(Unauthorized):
        bookie.recover(WRITER.entry(2), master_key(b""))
    bookie.recover(WRITER.entry(2), WRITER.key)


@EVERY_VERB
@pytest.mark.parametrize("key", [b"", bytes(20), b"k" * 1025], ids=["empty", "zeros", "too long"])
def test_a_key_that_no_client_sends_is_refused(verb: Callable[[Bookie, bytes], object], key: bytes) -> None:
    _, store, bookie = opened()
    with pytest.raises(InvalidEntry):
        verb(bookie, key)
    assert store.ledgers() == []


def test_a_key_of_any_length_is_a_key(later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    keys = (b"k", b"\0k\0", b"k" * 1024)
    for ledger_id, key in enumerate(keys):
        bookie.add(Client(ledger_id).entry(0), key)
    bookie = later(site, store).bookie
    for ledger_id, key in enumerate(keys):
        bookie.add(Client(ledger_id).entry(1), key)
        with pytest.raises(Unauthorized):
            bookie.add(Client(ledger_id).entry(1), key[:-1] + b"!")


# ── digests on the way in ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
@pytest.mark.parametrize("at", [24, 33, -1], ids=["head", "digest", "payload"])
@pytest.mark.parametrize("verb", ["add", "recover", "submit", "defer"])
def test_an_entry_that_was_damaged_on_its_way_is_refused(digest_type: DigestType, at: int, verb: str) -> None:
    site, _, bookie = opened()
    writer = Client(digest_type=digest_type)
    add(bookie, writer, 0)
    for _ in range(2):
        with pytest.raises(DigestMismatch) as caught:
            getattr(bookie, verb)(flipped(writer.entry(1), at), writer.key)
        assert (caught.value.ledger_id, caught.value.entry_id) == (7, 1)
        bookie = site.after_kill().bookie
    assert bookie.entry_ids(7) == [range(1)]


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
def test_the_very_first_entry_is_verified_by_what_it_tells_itself(digest_type: DigestType) -> None:
    _, store, bookie = opened()
    writer = Client(digest_type=digest_type)
    with pytest.raises(DigestMismatch):
        bookie.add(flipped(writer.entry(0)), writer.key)
    assert store.ledgers() == []
    add(bookie, writer, 0)
    assert store.ledger(7).digest_type is digest_type


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
def test_a_crc_is_told_from_an_entry_in_the_middle_too(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    writer = Client(digest_type=digest_type)
    add(bookie, writer, 5)
    store = later(site, store)
    assert store.ledger(7).digest_type is digest_type
    with pytest.raises(DigestMismatch):
        store.bookie.add(flipped(writer.entry(6)), writer.key)


@pytest.mark.parametrize("digest_type", [DigestType.MAC, DigestType.DUMMY])
def test_what_a_bookie_cannot_verify_it_hands_on(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    writer = Client(digest_type=digest_type)
    sent = [writer.entry(0), flipped(writer.entry(1))]
    for data in sent:
        bookie.add(data, writer.key)
    store = later(site, store)
    assert store.ledger(7).digest_type is digest_type
    assert [store.bookie.read(7, entry_id) for entry_id in (0, 1)] == sent


@pytest.mark.parametrize("digest_type", [DigestType.MAC, DigestType.DUMMY])
def test_where_nothing_tells_the_digest_type_bytes_are_handed_on_all_the_same(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    writer = Client(digest_type=digest_type)
    add(bookie, writer, 5, 6)
    store = later(site, store)
    assert [store.bookie.read(7, entry_id) for entry_id in (5, 6)] == [writer.entry(5), writer.entry(6)]
    assert store.ledger(7).digest_type is None
    with pytest.raises(DigestUnknown):
        store.ledger(7, password=writer.password).read(5)
    named = store.ledger(7, digest_type, writer.password)
    assert named.read(5).payload == b"%8d" % 5


@ALL_TYPES
@pytest.mark.parametrize("said", ["a fence", "a last add confirmed"])
def test_what_is_said_before_the_first_entry_does_not_tell_its_digest(
    digest_type: DigestType, said: str, later: Callable[[Site, Store], Store]
) -> None:
    # A recovery fences all bookies of a ledger, those too that have none of its entries, and then copies.
    site, store, bookie = opened()
    writer = Client(digest_type=digest_type)
    if said == "a fence":
        assert bookie.fence(7, writer.key) is None
    else:
        bookie.set_explicit_lac(7, writer.packet(3), writer.key)
        bookie.set_explicit_lac(7, writer.packet(4), writer.key)
    store = later(site, store)
    store.bookie.recover(writer.entry(0), writer.key)
    store = later(site, store)
    assert (store.bookie.read(7, 0), store.ledger(7).digest_type) == (writer.entry(0), digest_type)
    if digest_type in (DigestType.CRC32, DigestType.CRC32C):
        with pytest.raises(DigestMismatch):
            store.bookie.recover(flipped(writer.entry(1)), writer.key)


def test_an_entry_that_rots_is_unreadable_and_one_that_is_not_verified_is_not() -> None:
    site, store, bookie = opened()
    others = Client(8, DigestType.DUMMY)
    add(bookie, WRITER, 0)
    add(bookie, others, 0)
    site.checkpoint(store)
    site.disk.kill()
    log = f"{LEDGERS}/0.log"
    data = site.bytes_of(log)
    for entry in (WRITER.entry(0), others.entry(0)):
        data = data.replace(entry, flipped(entry))
    site.put(log, data)
    bookie = site.open().bookie
    with pytest.raises(EntryUnreadable):
        bookie.read(7, 0)
    assert bookie.read(8, 0) == flipped(others.entry(0))


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", ["add", "submit", "defer"])
def test_behind_a_fence_only_a_recovery_adds(verb: str, later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    assert bookie.fence(7, WRITER.key) == WRITER.entry(1)
    bookie = later(site, store).bookie
    with pytest.raises(LedgerFenced):
        getattr(bookie, verb)(WRITER.entry(2), WRITER.key)
    bookie.recover(WRITER.entry(2), WRITER.key)
    with pytest.raises(LedgerFenced):
        getattr(bookie, verb)(WRITER.entry(3), WRITER.key)
    bookie.force(7)
    assert (bookie.entry_ids(7), bookie.read_last(7)) == ([range(3)], WRITER.entry(2))


def test_a_recovery_adds_to_a_ledger_that_nobody_has_fenced(later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    bookie.recover(WRITER.entry(4), WRITER.key)
    bookie = later(site, store).bookie
    assert (bookie.read(7, 4), bookie.is_fenced(7)) == (WRITER.entry(4), False)
    add(bookie, WRITER, 5)


# ── adds that nobody waits for ───────────────────────────────────────────────────────────────────────────


def syncs(site: Site) -> int:
    return sum(operation.verb is Verb.SYNC and ".txn" in operation.path for operation in site.disk.trace)


def test_a_deferred_entry_is_neither_synced_nor_readable_before_it_is_forced() -> None:
    site, _, bookie = opened()
    add(bookie, WRITER, 0)
    done = syncs(site)
    for entry_id in (1, 2):
        bookie.defer(WRITER.entry(entry_id), WRITER.key)
        assert (bookie.entry_ids(7), bookie.has(7, entry_id)) == ([range(1)], False)
        with pytest.raises(NoSuchEntry):
            bookie.read(7, entry_id)
        assert bookie.read_last(7) == WRITER.entry(0)
    assert syncs(site) == done
    bookie.force(7)
    assert syncs(site) == done + 1
    assert bookie.read_last(7) == WRITER.entry(2)


def test_a_deferred_entry_that_was_forced_is_not_lost_and_one_that_was_not_may_be() -> None:
    site, _, bookie = opened()
    bookie.defer(WRITER.entry(0), WRITER.key)
    bookie.force(7)
    bookie.defer(WRITER.entry(1), WRITER.key)
    bookie = site.after_power_cut().bookie
    assert bookie.entry_ids(7) == [range(1)]
    assert bookie.read(7, 0) == WRITER.entry(0)


def test_a_force_covers_what_others_have_deferred_and_goes_with_any_add() -> None:
    site, _, bookie = opened()
    bookie.defer(WRITER.entry(0), WRITER.key)
    add(bookie, Client(8), 0)
    done = syncs(site)
    bookie.force(7)
    assert syncs(site) == done
    assert site.after_power_cut().bookie.read(7, 0) == WRITER.entry(0)


def test_deferred_entries_become_durable_by_themselves_after_a_while() -> None:
    site, _, bookie = opened()
    bookie.defer(WRITER.entry(0), WRITER.key)
    site.crew.elapse()
    assert site.after_power_cut().bookie.read(7, 0) == WRITER.entry(0)


def test_what_is_deferred_is_written_when_there_is_a_group_of_it() -> None:
    _, _, bookie = opened()
    large = b"x" * (SMALL.group_size_max // 4)
    for entry_id in range(5):
        bookie.defer(WRITER.entry(entry_id, large), WRITER.key)
    assert bookie.entry_ids(7)[0].stop >= 4


def full() -> tuple[Site, Store, Bookie, int]:
    """A store on a disk without space for another journal, and how many entries its ledger 7 has."""
    site = Site(replace(SMALL, memtable_size_max=64 << 20))
    store = site.open()
    add(store.bookie, WRITER, 0)
    site.disk.plant(NO_ROOM)
    for taken in range(1, 100):
        try:
            store.bookie.add(WRITER.entry(taken, BLOCK), WRITER.key)
        except DiskFull:
            return site, store, store.bookie, taken
    pytest.fail("the disk never was full")


def test_a_deferred_entry_that_was_lost_to_a_full_disk_makes_the_force_fail() -> None:
    site, _, bookie, taken = full()
    bookie.defer(WRITER.entry(taken, BLOCK), WRITER.key)
    site.crew.elapse()
    site.disk.mend()
    add(bookie, Client(8), 0)
    bookie.force(8)
    with pytest.raises(DiskFull):
        bookie.force(7)
    assert not bookie.has(7, taken)
    bookie.defer(WRITER.entry(taken), WRITER.key)
    bookie.force(7)
    assert site.after_power_cut().bookie.read(7, taken) == WRITER.entry(taken)


def test_a_force_that_meets_a_full_disk_itself_fails_and_what_was_deferred_is_gone() -> None:
    site, _, bookie, taken = full()
    bookie.defer(WRITER.entry(taken, BLOCK), WRITER.key)
    with pytest.raises(DiskFull):
        bookie.force(7)
    site.disk.mend()
    bookie.force(7)
    assert not bookie.has(7, taken)


def test_what_a_deleted_ledger_has_lost_is_not_told_to_the_next_of_its_id() -> None:
    site, _, bookie, taken = full()
    bookie.defer(WRITER.entry(taken, BLOCK), WRITER.key)
    site.crew.elapse()
    site.disk.mend()
    bookie.delete(7)
    add(bookie, WRITER, 0)
    bookie.force(7)
    assert bookie.entry_ids(7) == [range(1)]


def test_a_force_after_a_failed_sync_fails() -> None:
    site, _, bookie = opened()
    add(bookie, WRITER, 0)
    bookie.defer(WRITER.entry(1), WRITER.key)
    site.disk.plant(Refused(When(verb=Verb.SYNC, name="*.txn*")))
    with pytest.raises(StoreFailed):
        bookie.force(7)
    with pytest.raises(StoreFailed):
        bookie.force(7)


def test_deferred_entries_wait_for_room_like_others() -> None:
    site = Site(replace(SMALL, memtable_size_max=100 << 10))
    bookie = site.open().bookie
    with pytest.raises(Overloaded):  # noqa: PT012 - at which one depends on the size of a table
        for entry_id in range(100):
            bookie.defer(WRITER.entry(entry_id, b"x" * (20 << 10)), WRITER.key)
    site.crew.run()
    bookie.force(7)
    assert bookie.entry_ids(7)[0].stop > 5


# ── fences ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fence_answers_with_the_last_entry_and_a_second_one_does_too(
    later: Callable[[Site, Store], Store],
) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 3, 1)
    assert bookie.fence(7, WRITER.key) == WRITER.entry(3)
    store = later(site, store)
    done = len(site.disk.trace)
    assert store.bookie.fence(7, WRITER.key) == WRITER.entry(3)
    assert len(site.disk.trace) == done


def test_a_fence_counts_what_was_added_in_its_own_turn() -> None:
    _, _, bookie = opened()
    add(bookie, WRITER, 0)
    future = bookie.submit(WRITER.entry(1), WRITER.key)
    bookie.defer(WRITER.entry(2), WRITER.key)
    assert bookie.fence(7, WRITER.key) == WRITER.entry(2)
    assert future.result(0) == 1


def test_a_ledger_without_entries_is_fenced_with_nothing_to_show(
    later: Callable[[Site, Store], Store],
) -> None:
    site, store, bookie = opened()
    assert bookie.fence(7, WRITER.key) is None
    store = later(site, store)
    assert (store.bookie.is_fenced(7), store.ledgers()) == (True, [7])
    assert store.bookie.fence(7, WRITER.key) is None
    with pytest.raises(LedgerFenced):
        add(store.bookie, WRITER, 0)


def test_whether_a_ledger_is_fenced_is_asked_of_one_that_exists() -> None:
    _, _, bookie = opened()
    with pytest.raises(NoSuchLedger):
        bookie.is_fenced(7)
    add(bookie, WRITER, 0)
    assert not bookie.is_fenced(7)
    bookie.fence(7, WRITER.key)
    assert bookie.is_fenced(7)


def test_nothing_of_a_fence_is_seen_before_it_is_durable() -> None:
    site, store, bookie = opened()
    seen: list[bool] = []

    def look(operation: Operation) -> None:
        if operation.verb is Verb.SYNC and ".txn" in operation.path and operation.number > begun:
            seen.append(store.ledger(7).exists)
            with pytest.raises(NoSuchLedger):
                bookie.is_fenced(7)
            with pytest.raises(NoSuchLedger):
                bookie.explicit_lac(7)
            with pytest.raises(NoSuchLedger):
                bookie.read(7, 0)

    add(bookie, Client(8), 0)
    begun = len(site.disk.trace)
    site.disk.watch(look)
    bookie.fence(7, WRITER.key)
    assert seen == [False]
    assert store.ledger(7).exists


# ── the end of a ledger ──────────────────────────────────────────────────────────────────────────────────


def test_the_last_entry_is_the_one_with_the_largest_id(later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 4, 9, 2)
    assert later(site, store).bookie.read_last(7) == WRITER.entry(9)


def test_a_ledger_without_entries_has_no_last_one() -> None:
    _, _, bookie = opened()
    with pytest.raises(NoSuchLedger):
        bookie.read_last(7)
    bookie.fence(7, WRITER.key)
    with pytest.raises(NoSuchEntry):
        bookie.read_last(7)


def test_what_is_confirmed_is_what_the_writer_has_said_not_what_is_durable_here(
    later: Callable[[Site, Store], Store],
) -> None:
    site, store, bookie = opened()
    with pytest.raises(NoSuchLedger):
        bookie.last_add_confirmed(7)
    bookie.add(WRITER.entry(0, confirmed=-1), WRITER.key)
    assert bookie.last_add_confirmed(7) == -1
    for entry_id in range(1, 5):
        bookie.add(WRITER.entry(entry_id, confirmed=entry_id // 2), WRITER.key)
    store = later(site, store)
    assert store.bookie.last_add_confirmed(7) == 2
    assert store.ledger(7, password=WRITER.password).last_add_confirmed == 4


def test_an_entry_that_confirms_less_takes_nothing_back() -> None:
    _, _, bookie = opened()
    bookie.add(WRITER.entry(5, confirmed=4), WRITER.key)
    bookie.add(WRITER.entry(6, confirmed=1), WRITER.key)
    bookie.add(WRITER.entry(2, confirmed=3), WRITER.key)
    assert bookie.last_add_confirmed(7) == 4


def test_an_explicit_confirmation_only_grows(later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0)
    for confirmed in (5, 3, 5, 9, 8):
        bookie.set_explicit_lac(7, WRITER.packet(confirmed), WRITER.key)
    bookie = later(site, store).bookie
    assert (bookie.explicit_lac(7), bookie.last_add_confirmed(7)) == (WRITER.packet(9), 9)
    done = len(site.disk.trace)
    bookie.set_explicit_lac(7, WRITER.packet(9), WRITER.key)
    bookie.set_explicit_lac(7, WRITER.packet(2), WRITER.key)
    assert len(site.disk.trace) == done
    assert bookie.explicit_lac(7) == WRITER.packet(9)


def test_the_larger_of_what_was_said_counts_whichever_way_it_came() -> None:
    _, _, bookie = opened()
    bookie.set_explicit_lac(7, WRITER.packet(3), WRITER.key)
    assert bookie.last_add_confirmed(7) == 3
    bookie.add(WRITER.entry(9, confirmed=8), WRITER.key)
    assert bookie.last_add_confirmed(7) == 8
    assert bookie.explicit_lac(7) == WRITER.packet(3)


@ALL_TYPES
def test_a_confirmation_comes_back_as_the_packet_that_came(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    writer = Client(digest_type=digest_type)
    add(bookie, writer, 0)
    bookie.set_explicit_lac(7, writer.packet(5), writer.key)
    packet = later(site, store).bookie.explicit_lac(7)
    assert packet == writer.packet(5)
    assert entry_codec.decode_lac(packet, writer.digester) == 5


def test_a_fenced_ledger_is_still_confirmed() -> None:
    _, _, bookie = opened()
    add(bookie, WRITER, 0)
    bookie.fence(7, WRITER.key)
    bookie.set_explicit_lac(7, WRITER.packet(0), WRITER.key)
    assert bookie.explicit_lac(7) == WRITER.packet(0)


@pytest.mark.parametrize(
    "packet",
    [b"", WRITER.packet(3)[:15], Client(8).packet(3), flipped(WRITER.packet(3)), WRITER.packet(3) + b"x"],
    ids=["empty", "short", "another ledger's", "damaged", "too long"],
)
def test_a_packet_that_is_none_is_refused(packet: bytes) -> None:
    _, _, bookie = opened()
    add(bookie, WRITER, 0)
    with pytest.raises(InvalidEntry):
        bookie.set_explicit_lac(7, packet, WRITER.key)
    assert bookie.explicit_lac(7) is None


def test_a_packet_larger_than_any_digest_makes_it_is_refused_of_a_new_ledger_too() -> None:
    _, store, bookie = opened()
    with pytest.raises(InvalidEntry):
        bookie.set_explicit_lac(7, WRITER.packet(3) + bytes(40 << 20), WRITER.key)
    assert store.ledgers() == []


def test_without_a_packet_there_is_none() -> None:
    _, _, bookie = opened()
    with pytest.raises(NoSuchLedger):
        bookie.explicit_lac(7)
    add(bookie, WRITER, 0)
    assert bookie.explicit_lac(7) is None


def test_ids_are_told_as_ranges_wherever_the_entries_are() -> None:
    site, store, bookie = opened()
    with pytest.raises(NoSuchLedger):
        bookie.entry_ids(7)
    add(bookie, WRITER, 0, 1, 5, 9)
    site.checkpoint(store)
    add(bookie, WRITER, 2, 6, 9)
    store._committer.freeze()
    add(bookie, WRITER, 4, 7, 20, 21)
    assert store._parts.slot.tables.frozen is not None
    assert bookie.entry_ids(7) == [range(3), range(4, 8), range(9, 10), range(20, 22)]
    site.crew.run()
    assert bookie.entry_ids(7) == [range(3), range(4, 8), range(9, 10), range(20, 22)]
    bookie.fence(8, WRITER.key)
    assert bookie.entry_ids(8) == []


# ── waiting for a confirmation ───────────────────────────────────────────────────────────────────────────


class Waiting:
    """A thread that waits for more than `beyond`; here, it waits already."""

    def __init__(self, store: Store, beyond: int) -> None:
        self._looked = threading.Event()
        self._answers: list[int | Exception] = []
        self._bookie = store.bookie
        self._beyond = beyond
        news = store._committer.news
        wait_for = news.wait_for

        def watched(is_there: Callable[[], bool], timeout: float | None = None) -> bool:
            def look() -> bool:
                self._looked.set()  # under the signal's own lock: whoever notifies comes behind the wait
                return is_there()

            return wait_for(look, timeout)

        news.wait_for = watched  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()
        assert self._looked.wait(60)
        news.wait_for = wait_for  # type: ignore[method-assign]

    def _wait(self) -> None:
        try:
            self._answers.append(self._bookie.wait_for_last_add_confirmed(7, self._beyond, 3600))
        except Exception as error:
            self._answers.append(error)

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()

    def answer(self) -> int | Exception:
        self._thread.join(20)
        assert not self._thread.is_alive(), "nothing has woken it"
        return self._answers[0]


def test_who_waits_is_woken_by_the_add_that_confirms_more() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0)
    waiting = Waiting(store, beyond=0)
    bookie.add(WRITER.entry(1, confirmed=0), WRITER.key)
    assert waiting.goes_on
    bookie.add(WRITER.entry(2, confirmed=1), WRITER.key)
    assert waiting.answer() == 1


def test_who_waits_is_woken_by_an_explicit_confirmation() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    waiting = Waiting(store, beyond=0)
    bookie.set_explicit_lac(7, WRITER.packet(1), WRITER.key)
    assert waiting.answer() == 1


def test_who_waits_is_woken_by_a_fence() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    waiting = Waiting(store, beyond=0)
    bookie.fence(7, WRITER.key)
    assert waiting.answer() == 0


def test_who_waits_is_woken_by_a_close() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    waiting = Waiting(store, beyond=0)
    store.close()
    answer = waiting.answer()
    assert answer == 0 or isinstance(answer, StoreClosed)


def test_who_waits_is_woken_by_a_failure_of_the_store() -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    waiting = Waiting(store, beyond=0)
    site.disk.plant(Refused(When(verb=Verb.SYNC, name="*.txn*")))
    with pytest.raises(StoreFailed):
        add(bookie, WRITER, 2)
    assert waiting.answer() == 0


def test_who_waits_is_woken_when_the_ledger_is_deleted() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    waiting = Waiting(store, beyond=0)
    bookie.delete(7)
    assert isinstance(waiting.answer(), NoSuchLedger)


def test_who_waits_too_long_is_told_what_there_is() -> None:
    _, _, bookie = opened()
    add(bookie, WRITER, 0, 1)
    assert bookie.wait_for_last_add_confirmed(7, 0, 0.01) == 0


def test_nobody_waits_for_what_is_there() -> None:
    _, _, bookie = opened()
    add(bookie, WRITER, 0, 1)
    assert bookie.wait_for_last_add_confirmed(7, -1) == 0
    bookie.fence(7, WRITER.key)
    assert bookie.wait_for_last_add_confirmed(7, 100) == 0


# ── limbo ────────────────────────────────────────────────────────────────────────────────────────────────


def assert_in_limbo(bookie: Bookie) -> None:
    """What is there is told; nothing else is."""
    assert bookie.read(7, 1) == WRITER.entry(1)
    assert bookie.has(7, 1)
    assert bookie.entry_ids(7) == [range(2)]
    assert bookie.read_last(7) == WRITER.entry(1)
    assert bookie.last_add_confirmed(7) == 0
    questions: list[Callable[[], object]] = [
        lambda: bookie.read(7, 2),
        lambda: bookie.has(7, 2),
        lambda: bookie.is_fenced(7),
        lambda: bookie.explicit_lac(7),
    ]
    for question in questions:
        with pytest.raises(AnswerUnknown):
            question()


def test_in_limbo_what_is_there_is_told_and_what_is_not_is_unknown(
    later: Callable[[Site, Store], Store],
) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    bookie.enter_limbo(7)
    bookie = later(site, store).bookie
    assert_in_limbo(bookie)
    bookie.fence(7, WRITER.key)
    bookie.set_explicit_lac(7, WRITER.packet(3), WRITER.key)
    assert bookie.is_fenced(7)
    assert bookie.explicit_lac(7) == WRITER.packet(3)


def test_behind_limbo_what_is_not_there_is_missing(later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    bookie.enter_limbo(7)
    bookie.leave_limbo(7)
    bookie = later(site, store).bookie
    with pytest.raises(NoSuchEntry):
        bookie.read(7, 2)
    assert not bookie.has(7, 2)
    assert not bookie.is_fenced(7)
    assert bookie.explicit_lac(7) is None


def test_a_ledger_may_be_in_limbo_before_anything_of_it_is_here(
    later: Callable[[Site, Store], Store],
) -> None:
    site, store, bookie = opened()
    bookie.enter_limbo(7)
    bookie = later(site, store).bookie
    questions: list[Callable[[], object]] = [
        lambda: bookie.read(7, 0),
        lambda: bookie.has(7, 0),
        lambda: bookie.read_last(7),
        lambda: bookie.entry_ids(7),
        lambda: bookie.is_fenced(7),
        lambda: bookie.last_add_confirmed(7),
        lambda: bookie.explicit_lac(7),
        lambda: bookie.fence(7, WRITER.key),
    ]
    for question in questions:
        with pytest.raises(AnswerUnknown):
            question()
    assert bookie.is_fenced(7)
    with pytest.raises(NoSuchLedger):
        bookie.read(8, 0)
    bookie.recover(WRITER.entry(0), WRITER.key)
    assert bookie.fence(7, WRITER.key) == WRITER.entry(0)


def test_entries_that_come_do_not_end_limbo(later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    bookie.enter_limbo(7)
    add(bookie, WRITER, 0, 1)
    assert_in_limbo(later(site, store).bookie)


def test_limbo_ends_with_the_ledger() -> None:
    site, _, bookie = opened()
    add(bookie, WRITER, 0)
    bookie.enter_limbo(7)
    bookie.delete(7)
    for _ in range(2):
        with pytest.raises(NoSuchLedger):
            bookie.read(7, 0)
        bookie = site.after_power_cut().bookie


def test_in_limbo_a_ledger_s_owner_is_told_the_same() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    bookie.enter_limbo(7)
    ledger = store.ledger(7, password=WRITER.password)
    assert list(ledger.payloads()) == [b"%8d" % 0, b"%8d" % 1]
    questions: list[Callable[[], object]] = [
        lambda: ledger.read(2),
        lambda: list(ledger.entries(0, 5)),
        lambda: ledger.is_fenced,
    ]
    for question in questions:
        with pytest.raises(AnswerUnknown):
            question()


@pytest.mark.parametrize("name", ["ledgers.rows*", "*current"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_limbo_that_could_not_be_made_durable_is_told_and_the_store_is_sound(name: str, error: int) -> None:
    site, _, bookie = opened()
    add(bookie, WRITER, 0)
    site.disk.plant(Refused(When(name=name, lasting=Lasting.UNTIL_MENDED), error))
    with pytest.raises((DiskFull, StoreFailed)) as caught:
        bookie.enter_limbo(7)
    site.disk.mend()
    if isinstance(caught.value, DiskFull):
        bookie.enter_limbo(7)
        add(bookie, WRITER, 1)
    else:
        with pytest.raises(StoreFailed):
            add(bookie, WRITER, 1)
        site.after_power_cut().bookie.enter_limbo(7)


# ── an index made from damaged logs ──────────────────────────────────────────────────────────────────────


def damaged() -> Site:
    """A store whose index was made again from a log that had a hole."""
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1, 2)
    site.checkpoint(store)
    site.disk.kill()
    log = bytearray(site.bytes_of(f"{LEDGERS}/0.log"))
    start = log.index(WRITER.entry(1)) - 4
    log[start : start + 44] = b"\xff" * 44
    site.put(f"{LEDGERS}/0.log", bytes(log))
    site.remove(f"{LEDGERS}/index")
    return site


@pytest.mark.parametrize("openings", [1, 3])
def test_where_logs_were_damaged_nothing_is_ever_said_to_be_missing(openings: int) -> None:
    site = damaged()
    for _ in range(openings):
        store = site.open()
        store.ledger(8).append(b"so that there is a checkpoint")
        store.close()
    store = site.open()
    bookie, ledger = store.bookie, store.ledger(7, password=WRITER.password)
    assert [bookie.read(7, 0), bookie.read_last(7)] == [WRITER.entry(0), WRITER.entry(2)]
    assert ledger.read(2).payload == b"%8d" % 2
    questions: list[Callable[[], object]] = [
        lambda: bookie.read(7, 1),
        lambda: bookie.has(7, 1),
        lambda: bookie.is_fenced(7),
        lambda: bookie.read(9, 0),
        lambda: bookie.entry_ids(9),
        lambda: bookie.last_add_confirmed(9),
        lambda: ledger.read(1),
        lambda: list(ledger.entries()),
        lambda: list(store.ledger(9).entries()),
        lambda: store.ledger(9).read(0),
        lambda: ledger.is_fenced,
    ]
    for question in questions:
        with pytest.raises(AnswerUnknown):
            question()


# ── deleting ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_bookie_deletes_what_its_clients_have_given_up_whatever_the_key(
    later: Callable[[Site, Store], Store],
) -> None:
    site, store, bookie = opened()
    with pytest.raises(NoSuchLedger):
        bookie.delete(7)
    add(bookie, WRITER, 0, 1)
    bookie.fence(7, WRITER.key)
    bookie.delete(7)
    store = later(site, store)
    assert store.ledgers() == []
    with pytest.raises(NoSuchLedger):
        store.bookie.read(7, 0)
    with pytest.raises(NoSuchLedger):
        store.bookie.delete(7)


def test_a_ledger_is_deleted_whose_first_add_is_still_on_its_way() -> None:
    site, store, bookie = opened()
    future = bookie.submit(WRITER.entry(0), WRITER.key)
    bookie.delete(7)
    assert (future.result(0), store.ledgers()) == (0, [])
    assert site.after_power_cut().ledgers() == []


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
def test_another_ledger_of_the_same_id_has_its_own_key_and_digest(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1, 2)
    bookie.fence(7, WRITER.key)
    bookie.set_explicit_lac(7, WRITER.packet(2), WRITER.key)
    bookie.delete(7)
    another = Client(digest_type=digest_type, password=b"another")
    add(bookie, another, 0)
    store = later(site, store)
    bookie = store.bookie
    with pytest.raises(Unauthorized):
        bookie.add(another.entry(1), WRITER.key)
    add(bookie, another, 1)
    assert (bookie.entry_ids(7), bookie.read(7, 0)) == ([range(2)], another.entry(0))
    assert (bookie.is_fenced(7), bookie.explicit_lac(7)) == (False, None)
    assert store.ledger(7).digest_type is digest_type
