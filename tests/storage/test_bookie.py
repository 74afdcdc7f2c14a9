"""The bookie's interface over simulated crashes: entries as bytes, master keys, fences, limbo."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest
from bookie_clients import AddingClient, flipped
from stepped_store import LEDGERS, SMALL, Site
from store_internals import StoreInternals

from recovery.crashlab import Lasting, Refused, Verb, When
from storage.commit.pending import OVER
from storage.entry import format as entry_format
from storage.entry.credentials import Purpose
from storage.entry.digest import master_key
from storage.entry.model import DigestType
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
from storage.ledgers.state import LedgerState, LedgerStates

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.crashlab import Operation
    from storage.bookie import Bookie
    from storage.store import Store

Answer = TypeVar("Answer")

WRITER = AddingClient()
ALL_TYPES = pytest.mark.parametrize("digest_type", DigestType)
BLOCK = b"x" * (50 << 10)
NO_ROOM = Refused(When(verb=Verb.ZERO_FILL, lasting=Lasting.UNTIL_MENDED), errno.ENOSPC)


def checkpoint_and_power_cut(site: Site, store: Store) -> Store:
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
    "checkpoint and power cut": checkpoint_and_power_cut,
    "index lost": index_lost,
    "closed": closed,
}
"""The events that may come between an answer and the next call."""


@pytest.fixture(params=list(LATER))
def later(request: pytest.FixtureRequest) -> Callable[[Site, Store], Store]:
    return LATER[request.param]


def opened() -> tuple[Site, Store, Bookie]:
    site = Site()
    store = site.open()
    return site, store, store.bookie


def add(bookie: Bookie, writer: AddingClient, *entry_ids: int) -> None:
    for entry_id in entry_ids:
        bookie.add(writer.entry(entry_id), writer.key)


# ── bytes in, bytes out ──────────────────────────────────────────────────────────────────────────────────


@ALL_TYPES
def test_an_entry_is_read_as_the_bytes_that_its_writer_sent(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    writer = AddingClient(digest_type=digest_type)
    texts = [b"first", b"x" * 5000, b"y"]
    sent = [writer.entry(entry_id, text) for entry_id, text in enumerate(texts)]
    for data in sent:
        bookie.add(bytearray(data), writer.key)  # type: ignore[arg-type]  # as it lies in a buffer
    bookie = later(site, store).bookie
    assert [bookie.read(7, entry_id) for entry_id in range(3)] == sent
    assert (bookie.read_last(7), bookie.entry_ids(7)) == (sent[2], [range(3)])


@ALL_TYPES
def test_a_ledger_s_owner_reads_entries_added_through_the_bookie(digest_type: DigestType) -> None:
    site, _, bookie = opened()
    writer = AddingClient(digest_type=digest_type)
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
def test_an_entry_with_an_impossible_number_is_refused(at: int) -> None:
    _, store, bookie = opened()
    data = bytearray(WRITER.entry(0))
    data[at : at + 8] = b"\x80" + bytes(7)
    with pytest.raises(InvalidEntry):
        bookie.add(bytes(data), WRITER.key)
    assert store.ledgers() == []


def test_an_entry_larger_than_the_limit_is_refused() -> None:
    _, store, bookie = opened()
    room = SMALL.entry_size_max - 36
    with pytest.raises(EntryTooLarge):
        bookie.add(WRITER.entry(0, b"x" * (room + 1)), WRITER.key)
    bookie.add(WRITER.entry(0, b"x" * room), WRITER.key)
    assert store.ledger(7).last_entry_id == 0


def test_the_second_of_two_equal_ids_counts(later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    again = WRITER.entry(1, b"another text")
    bookie.add(again, WRITER.key)
    assert later(site, store).bookie.read_last(7) == again


# ── master keys ──────────────────────────────────────────────────────────────────────────────────────────

VERBS: dict[str, Callable[[Bookie, bytes], object]] = {
    "add": lambda bookie, key: bookie.add(WRITER.entry(1), key),
    "recover": lambda bookie, key: bookie.recover(WRITER.entry(1), key),
    "submit": lambda bookie, key: bookie.submit(WRITER.entry(1), key),
    "defer": lambda bookie, key: bookie.defer(WRITER.entry(1), key),
    "fence": lambda bookie, key: bookie.fence(7, key),
    "set_explicit_lac": lambda bookie, key: bookie.set_explicit_lac(7, WRITER.packet(1), key),
}
EVERY_VERB = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


@pytest.mark.sampled(one_of=6)
@EVERY_VERB
@pytest.mark.parametrize("key", [b"k", master_key(b""), master_key(b"wrong"), WRITER.key[:19]])
def test_another_key_is_refused(
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


@pytest.mark.sampled(one_of=3)
@EVERY_VERB
def test_the_first_key_becomes_the_ledger_s(
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
        bookie.add(AddingClient(ledger_id).entry(0), key)
    bookie = later(site, store).bookie
    for ledger_id, key in enumerate(keys):
        bookie.add(AddingClient(ledger_id).entry(1), key)
        with pytest.raises(Unauthorized):
            bookie.add(AddingClient(ledger_id).entry(1), key[:-1] + b"!")


# ── digests on the way in ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
@pytest.mark.parametrize("at", [24, 33, -1], ids=["head", "digest", "payload"])
@pytest.mark.parametrize("verb", ["add", "recover", "submit", "defer"])
def test_an_entry_that_was_damaged_in_transit_is_refused(digest_type: DigestType, at: int, verb: str) -> None:
    site, _, bookie = opened()
    writer = AddingClient(digest_type=digest_type)
    add(bookie, writer, 0)
    for _ in range(2):
        with pytest.raises(DigestMismatch) as caught:
            getattr(bookie, verb)(flipped(writer.entry(1), at), writer.key)
        assert (caught.value.ledger_id, caught.value.entry_id) == (7, 1)
        bookie = site.after_kill().bookie
    assert bookie.entry_ids(7) == [range(1)]


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
def test_the_first_entry_of_a_ledger_is_verified_by_its_own_digest_type(digest_type: DigestType) -> None:
    _, store, bookie = opened()
    writer = AddingClient(digest_type=digest_type)
    with pytest.raises(DigestMismatch):
        bookie.add(flipped(writer.entry(0)), writer.key)
    assert store.ledgers() == []
    add(bookie, writer, 0)
    assert store.ledger(7).digest_type is digest_type


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
def test_a_crc_is_recognized_from_an_entry_in_the_middle(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    writer = AddingClient(digest_type=digest_type)
    add(bookie, writer, 5)
    store = later(site, store)
    assert store.ledger(7).digest_type is digest_type
    with pytest.raises(DigestMismatch):
        store.bookie.add(flipped(writer.entry(6)), writer.key)


@pytest.mark.parametrize("digest_type", [DigestType.MAC, DigestType.DUMMY])
def test_a_bookie_returns_entries_that_it_cannot_verify(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    writer = AddingClient(digest_type=digest_type)
    sent = [writer.entry(0), flipped(writer.entry(1))]
    for data in sent:
        bookie.add(data, writer.key)
    store = later(site, store)
    assert store.ledger(7).digest_type is digest_type
    assert [store.bookie.read(7, entry_id) for entry_id in (0, 1)] == sent


@pytest.mark.parametrize("digest_type", [DigestType.MAC, DigestType.DUMMY])
def test_entries_of_an_unknown_digest_type_are_returned_as_bytes(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    writer = AddingClient(digest_type=digest_type)
    add(bookie, writer, 5, 6)
    store = later(site, store)
    assert [store.bookie.read(7, entry_id) for entry_id in (5, 6)] == [writer.entry(5), writer.entry(6)]
    assert store.ledger(7).digest_type is None
    with pytest.raises(DigestUnknown):
        store.ledger(7, password=writer.password).read(5)
    named = store.ledger(7, digest_type, writer.password)
    assert named.read(5).payload == b"%8d" % 5


@pytest.mark.sampled(one_of=4)
@ALL_TYPES
@pytest.mark.parametrize("said", ["a fence", "a last add confirmed"])
def test_metadata_before_the_first_entry_does_not_decide_its_digest_type(
    digest_type: DigestType, said: str, later: Callable[[Site, Store], Store]
) -> None:
    # A recovery fences all bookies of a ledger, also those without entries of it, and then copies entries.
    site, store, bookie = opened()
    writer = AddingClient(digest_type=digest_type)
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


def test_a_damaged_entry_is_unreadable_if_its_digest_is_verified() -> None:
    site, store, bookie = opened()
    others = AddingClient(8, DigestType.DUMMY)
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


# ── runs of reads ────────────────────────────────────────────────────────────────────────────────────────

MUCH = 1 << 20


def read_all(bookie: Bookie, ids: range) -> tuple[list[bytes], int]:
    """Return all these entries as a server reads them, and the length of the longest run."""
    found: list[bytes] = []
    longest = 0
    while len(found) < len(ids):
        at = ids.start + len(found)
        run = bookie.read_run(7, at, ids.stop - at, MUCH)
        found += run or [bookie.read(7, at)]
        longest = max(longest, len(run))
    return found, longest


def test_runs_are_the_entries_that_are_read_one_by_one(later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, *range(20))
    store = later(site, store)
    store.bookie.add(WRITER.entry(9, b"a newer copy"), WRITER.key)
    add(store.bookie, WRITER, *range(20, 30))
    expected = [store.bookie.read(7, entry_id) for entry_id in range(30)]
    assert read_all(store.bookie, range(30))[0] == expected
    site.checkpoint(store)
    found, longest = read_all(store.bookie, range(30))
    assert found == expected
    assert longest >= 10
    assert len(store.bookie.read_run(7, 3, 5, MUCH)) == 5


def test_a_run_ends_where_its_size_is_reached() -> None:
    site, store, bookie = opened()
    for entry_id in range(20):
        bookie.add(WRITER.entry(entry_id, bytes(1000)), WRITER.key)
    assert len(bookie.read_run(7, 0, 20, 5_000)) == 5
    site.checkpoint(store)
    assert len(bookie.read_run(7, 0, 20, 5_000)) == 5


def test_a_run_ends_before_a_gap_and_before_truncated_entries() -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, *range(10), *range(15, 25))
    for _ in range(2):
        assert [len(bookie.read_run(7, first, 100, MUCH)) for first in (0, 4, 10, 15, 25)] == [
            10,
            6,
            0,
            10,
            0,
        ]
        site.checkpoint(store)
    bookie.truncate(7, 5)
    assert [len(bookie.read_run(7, first, 100, MUCH)) for first in (0, 4, 5, 15)] == [0, 0, 5, 10]
    add(bookie, AddingClient(8), *range(10))
    bookie.truncate(8, 5)
    assert [len(bookie.read_run(8, first, 100, MUCH)) for first in (0, 4, 5)] == [0, 0, 5]
    bookie.delete(7)
    assert bookie.read_run(7, 5, 100, MUCH) == []


def test_a_run_ends_before_a_damaged_entry() -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, *range(20))
    site.checkpoint(store)
    site.disk.kill()
    log = f"{LEDGERS}/0.log"
    site.put(log, site.bytes_of(log).replace(WRITER.entry(7), flipped(WRITER.entry(7))))
    bookie = site.open().bookie
    assert bookie.read_run(7, 0, 20, MUCH) == [WRITER.entry(entry_id) for entry_id in range(7)]
    assert bookie.read_run(7, 7, 13, MUCH) == []
    assert len(bookie.read_run(7, 8, 12, MUCH)) == 12


@pytest.mark.parametrize("digest_type", [DigestType.MAC, DigestType.DUMMY, DigestType.CRC32])
def test_entries_with_another_digest_are_read_one_by_one(digest_type: DigestType) -> None:
    _, _, bookie = opened()
    add(bookie, AddingClient(digest_type=digest_type), *range(10))
    assert bookie.read_run(7, 0, 10, MUCH) == []


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", ["add", "submit", "defer"])
def test_after_a_fence_only_a_recovery_can_add(verb: str, later: Callable[[Site, Store], Store]) -> None:
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


def test_a_recovery_may_add_to_a_ledger_that_is_not_fenced(later: Callable[[Site, Store], Store]) -> None:
    site, store, bookie = opened()
    bookie.recover(WRITER.entry(4), WRITER.key)
    bookie = later(site, store).bookie
    assert (bookie.read(7, 4), bookie.is_fenced(7)) == (WRITER.entry(4), False)
    add(bookie, WRITER, 5)


# ── deferred adds ────────────────────────────────────────────────────────────────────────────────────────


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


def test_a_force_covers_deferred_adds_of_all_threads_and_so_does_any_add() -> None:
    site, _, bookie = opened()
    bookie.defer(WRITER.entry(0), WRITER.key)
    add(bookie, AddingClient(8), 0)
    done = syncs(site)
    bookie.force(7)
    assert syncs(site) == done
    assert site.after_power_cut().bookie.read(7, 0) == WRITER.entry(0)


def test_deferred_entries_become_durable_by_themselves_after_a_while() -> None:
    site, _, bookie = opened()
    bookie.defer(WRITER.entry(0), WRITER.key)
    site.workers.elapse()
    assert site.after_power_cut().bookie.read(7, 0) == WRITER.entry(0)


def test_deferred_entries_are_written_when_they_fill_a_group() -> None:
    _, _, bookie = opened()
    large = b"x" * (SMALL.group_size_max // 4)
    for entry_id in range(5):
        bookie.defer(WRITER.entry(entry_id, large), WRITER.key)
    assert bookie.entry_ids(7)[0].stop >= 4


def full() -> tuple[Site, Store, Bookie, int]:
    """Return a store on a disk without space for another journal, and the number of entries of its ledger
    7."""
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
    site.workers.elapse()
    site.disk.mend()
    add(bookie, AddingClient(8), 0)
    bookie.force(8)
    with pytest.raises(DiskFull):
        bookie.force(7)
    assert not bookie.has(7, taken)
    bookie.defer(WRITER.entry(taken), WRITER.key)
    bookie.force(7)
    assert site.after_power_cut().bookie.read(7, taken) == WRITER.entry(taken)


def test_a_force_that_meets_a_full_disk_fails_and_drops_the_deferred_entries() -> None:
    site, _, bookie, taken = full()
    bookie.defer(WRITER.entry(taken, BLOCK), WRITER.key)
    with pytest.raises(DiskFull):
        bookie.force(7)
    site.disk.mend()
    bookie.force(7)
    assert not bookie.has(7, taken)


def test_what_a_full_disk_has_lost_is_known_before_its_group_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an interruption between the two would let `force` return as if nothing were lost."""
    _, store, bookie, taken = full()
    bookie.defer(WRITER.entry(taken, BLOCK), WRITER.key)
    group, steps, keep = StoreInternals(store).open_group, list[int](), LedgerStates.keep

    def noting(states: LedgerStates, state: LedgerState) -> None:
        steps.append(group.step)
        keep(states, state)

    monkeypatch.setattr(LedgerStates, "keep", noting)
    with pytest.raises(DiskFull):
        bookie.force(7)
    assert steps
    assert max(steps) < OVER


def test_a_loss_of_a_deleted_ledger_is_not_reported_to_a_new_ledger_of_its_id() -> None:
    site, _, bookie, taken = full()
    bookie.defer(WRITER.entry(taken, BLOCK), WRITER.key)
    site.workers.elapse()
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


def test_deferred_entries_wait_for_room_like_other_entries() -> None:
    site = Site(replace(SMALL, memtable_size_max=100 << 10))
    bookie = site.open().bookie
    with pytest.raises(Overloaded):  # noqa: PT012 - at which one depends on the size of a table
        for entry_id in range(100):
            bookie.defer(WRITER.entry(entry_id, b"x" * (20 << 10)), WRITER.key)
    site.workers.run()
    bookie.force(7)
    assert bookie.entry_ids(7)[0].stop > 5


# ── fences ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fence_returns_the_last_entry_and_so_does_a_second_fence(
    later: Callable[[Site, Store], Store],
) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 3, 1)
    assert bookie.fence(7, WRITER.key) == WRITER.entry(3)
    store = later(site, store)
    done = len(site.disk.trace)
    assert store.bookie.fence(7, WRITER.key) == WRITER.entry(3)
    assert len(site.disk.trace) == done


def test_a_fence_sees_entries_added_in_its_own_group() -> None:
    _, _, bookie = opened()
    add(bookie, WRITER, 0)
    future = bookie.submit(WRITER.entry(1), WRITER.key)
    bookie.defer(WRITER.entry(2), WRITER.key)
    assert bookie.fence(7, WRITER.key) == WRITER.entry(2)
    assert future.result(0) == 1


def test_a_fence_of_a_ledger_without_entries_returns_no_entry(
    later: Callable[[Site, Store], Store],
) -> None:
    site, store, bookie = opened()
    assert bookie.fence(7, WRITER.key) is None
    store = later(site, store)
    assert (store.bookie.is_fenced(7), store.ledgers()) == (True, [7])
    assert store.bookie.fence(7, WRITER.key) is None
    with pytest.raises(LedgerFenced):
        add(store.bookie, WRITER, 0)


def test_is_fenced_of_a_missing_ledger_raises() -> None:
    _, _, bookie = opened()
    with pytest.raises(NoSuchLedger):
        bookie.is_fenced(7)
    add(bookie, WRITER, 0)
    assert not bookie.is_fenced(7)
    bookie.fence(7, WRITER.key)
    assert bookie.is_fenced(7)


def test_a_fence_is_not_visible_before_it_is_durable() -> None:
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

    add(bookie, AddingClient(8), 0)
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


def test_a_ledger_without_entries_has_no_last_entry() -> None:
    _, _, bookie = opened()
    with pytest.raises(NoSuchLedger):
        bookie.read_last(7)
    bookie.fence(7, WRITER.key)
    with pytest.raises(NoSuchEntry):
        bookie.read_last(7)


def test_the_last_add_confirmed_comes_from_the_writer_and_not_from_durable_entries(
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


def test_an_entry_that_confirms_less_does_not_lower_the_last_add_confirmed() -> None:
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


def test_the_larger_confirmation_counts_from_an_entry_or_a_packet() -> None:
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
    writer = AddingClient(digest_type=digest_type)
    add(bookie, writer, 0)
    bookie.set_explicit_lac(7, writer.packet(5), writer.key)
    packet = later(site, store).bookie.explicit_lac(7)
    assert packet == writer.packet(5)
    assert entry_format.decode_lac(packet, writer.digester) == 5


def test_a_fenced_ledger_is_still_confirmed() -> None:
    _, _, bookie = opened()
    add(bookie, WRITER, 0)
    bookie.fence(7, WRITER.key)
    bookie.set_explicit_lac(7, WRITER.packet(0), WRITER.key)
    assert bookie.explicit_lac(7) == WRITER.packet(0)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        WRITER.packet(3)[:15],
        AddingClient(8).packet(3),
        flipped(WRITER.packet(3)),
        WRITER.packet(3) + b"x",
    ],
    ids=["empty", "short", "another ledger's", "damaged", "too long"],
)
def test_bytes_that_are_no_packet_are_refused(packet: bytes) -> None:
    _, _, bookie = opened()
    add(bookie, WRITER, 0)
    with pytest.raises(InvalidEntry):
        bookie.set_explicit_lac(7, packet, WRITER.key)
    assert bookie.explicit_lac(7) is None


def test_a_packet_too_large_for_any_digest_is_refused_for_a_new_ledger() -> None:
    _, store, bookie = opened()
    with pytest.raises(InvalidEntry):
        bookie.set_explicit_lac(7, WRITER.packet(3) + bytes(40 << 20), WRITER.key)
    assert store.ledgers() == []


def test_without_a_packet_there_is_no_explicit_lac() -> None:
    _, _, bookie = opened()
    with pytest.raises(NoSuchLedger):
        bookie.explicit_lac(7)
    add(bookie, WRITER, 0)
    assert bookie.explicit_lac(7) is None


def test_ids_are_returned_as_ranges_wherever_the_entries_are() -> None:
    site, store, bookie = opened()
    with pytest.raises(NoSuchLedger):
        bookie.entry_ids(7)
    add(bookie, WRITER, 0, 1, 5, 9)
    site.checkpoint(store)
    add(bookie, WRITER, 2, 6, 9)
    StoreInternals(store).freeze()
    add(bookie, WRITER, 4, 7, 20, 21)
    assert StoreInternals(store).frozen_table is not None
    assert bookie.entry_ids(7) == [range(3), range(4, 8), range(9, 10), range(20, 22)]
    site.workers.run()
    assert bookie.entry_ids(7) == [range(3), range(4, 8), range(9, 10), range(20, 22)]
    bookie.fence(8, WRITER.key)
    assert bookie.entry_ids(8) == []


# ── waiting for a confirmation ───────────────────────────────────────────────────────────────────────────


class Waiting:
    """Return a thread that waits for more than `beyond`, once it waits."""

    def __init__(self, store: Store, beyond: int) -> None:
        self._looked = threading.Event()
        self._answers: list[int | Exception] = []
        self._bookie = store.bookie
        self._beyond = beyond
        self._thread = threading.Thread(target=self._wait, daemon=True)
        with StoreInternals(store).looks_watched(self._looked.set):
            self._thread.start()
            assert self._looked.wait(60)

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


def test_a_waiting_reader_is_woken_by_an_add_that_confirms_more() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0)
    waiting = Waiting(store, beyond=0)
    bookie.add(WRITER.entry(1, confirmed=0), WRITER.key)
    assert waiting.goes_on
    bookie.add(WRITER.entry(2, confirmed=1), WRITER.key)
    assert waiting.answer() == 1


def test_a_waiting_reader_is_woken_by_an_explicit_confirmation() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    waiting = Waiting(store, beyond=0)
    bookie.set_explicit_lac(7, WRITER.packet(1), WRITER.key)
    assert waiting.answer() == 1


def test_a_waiting_reader_is_woken_by_a_fence() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    waiting = Waiting(store, beyond=0)
    bookie.fence(7, WRITER.key)
    assert waiting.answer() == 0


def test_a_waiting_reader_is_woken_by_a_close() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    waiting = Waiting(store, beyond=0)
    store.close()
    answer = waiting.answer()
    assert answer == 0 or isinstance(answer, StoreClosed)


def test_a_waiting_reader_is_woken_by_a_failure_of_the_store() -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    waiting = Waiting(store, beyond=0)
    site.disk.plant(Refused(When(verb=Verb.SYNC, name="*.txn*")))
    with pytest.raises(StoreFailed):
        add(bookie, WRITER, 2)
    assert waiting.answer() == 0


def test_a_waiting_reader_is_woken_when_the_ledger_is_deleted() -> None:
    _, store, bookie = opened()
    add(bookie, WRITER, 0, 1)
    waiting = Waiting(store, beyond=0)
    bookie.delete(7)
    assert isinstance(waiting.answer(), NoSuchLedger)


def test_a_wait_that_times_out_returns_the_last_add_confirmed() -> None:
    _, _, bookie = opened()
    add(bookie, WRITER, 0, 1)
    assert bookie.wait_for_last_add_confirmed(7, 0, 0.01) == 0


def test_a_wait_for_an_existing_entry_returns_at_once() -> None:
    _, _, bookie = opened()
    add(bookie, WRITER, 0, 1)
    assert bookie.wait_for_last_add_confirmed(7, -1) == 0
    bookie.fence(7, WRITER.key)
    assert bookie.wait_for_last_add_confirmed(7, 100) == 0


# ── limbo ────────────────────────────────────────────────────────────────────────────────────────────────


def assert_in_limbo(bookie: Bookie) -> None:
    """Check that present entries are read and that all other questions raise `AnswerUnknown`."""
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


def test_in_limbo_present_entries_are_read_and_absent_ones_are_unknown(
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


def test_after_limbo_an_absent_entry_is_missing(later: Callable[[Site, Store], Store]) -> None:
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


def test_a_ledger_may_be_in_limbo_before_it_has_any_entry(
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


def test_added_entries_do_not_end_limbo(later: Callable[[Site, Store], Store]) -> None:
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


def test_in_limbo_a_ledger_s_owner_gets_the_same_answers() -> None:
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
def test_a_limbo_that_could_not_be_made_durable_raises_and_the_store_goes_on(name: str, error: int) -> None:
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
    """Return a store whose index was rebuilt from a log with a gap."""
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
def test_after_damage_to_logs_no_entry_is_reported_missing(openings: int) -> None:
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


def test_a_bookie_deletes_a_ledger_without_checking_a_key(
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


def test_a_ledger_can_be_deleted_while_its_first_add_is_under_way() -> None:
    site, store, bookie = opened()
    future = bookie.submit(WRITER.entry(0), WRITER.key)
    bookie.delete(7)
    assert (future.result(0), store.ledgers()) == (0, [])
    assert site.after_power_cut().ledgers() == []


@ALL_TYPES
def test_an_add_that_was_checked_before_its_ledger_was_deleted_makes_a_ledger_of_its_own_digest_type(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    writer = AddingClient(digest_type=digest_type)
    add(bookie, writer, 0)
    work = bookie.pending_entry(writer.entry(1), writer.key, Purpose.WRITING)
    bookie.delete(7)
    StoreInternals(store).go_through(work)
    store = later(site, store)
    assert store.bookie.read(7, 1) == writer.entry(1)


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32])
def test_another_ledger_of_the_same_id_has_its_own_key_and_digest(
    digest_type: DigestType, later: Callable[[Site, Store], Store]
) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1, 2)
    bookie.fence(7, WRITER.key)
    bookie.set_explicit_lac(7, WRITER.packet(2), WRITER.key)
    bookie.delete(7)
    another = AddingClient(digest_type=digest_type, password=b"another")
    add(bookie, another, 0)
    store = later(site, store)
    bookie = store.bookie
    with pytest.raises(Unauthorized):
        bookie.add(another.entry(1), WRITER.key)
    add(bookie, another, 1)
    assert (bookie.entry_ids(7), bookie.read(7, 0)) == ([range(2)], another.entry(0))
    assert (bookie.is_fenced(7), bookie.explicit_lac(7)) == (False, None)
    assert store.ledger(7).digest_type is digest_type
