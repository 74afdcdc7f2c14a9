"""The order of a commit, for one add and for several."""

from __future__ import annotations

import errno
import gc
import threading
import time
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING

import pytest
from async_stores import AwaitedSite, in_time, run
from stepped_store import SMALL, Site, payloads
from store_internals import EngineCall, StoreInternals, access_of

from recovery.crashlab import Lasting, Refused, Verb, When
from storage.commit.pending import PendingEntries, PendingGroup, PendingSeal
from storage.entry.model import DigestType, Entry
from storage.errors import DiskFull, LedgerFenced, ReentrantCall, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.commit.pending import Pending
    from storage.store import Store


def test_adds_of_one_thread_are_there_after_a_power_cut_in_their_order() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    ids = [ledger.append(b"1"), *ledger.append_many([b"2", b"3"]), store.ledger(1).append(b"4")]
    assert ids == [1, 2, 3, 4]
    assert payloads(store, 1) == payloads(site.after_power_cut(), 1) == [b"0", b"1", b"2", b"3", b"4"]


def test_answered_adds_survive_an_immediate_power_cut() -> None:
    site = Site()
    ledger = site.open().ledger(1)
    for number in range(4):
        ledger.append(b"%d" % number)
        # Another machine with the same disk: this one goes on.
        cut = Site(disk=site.disk.copy())
        assert payloads(cut.after_power_cut(), 1) == [b"%d" % before for before in range(number + 1)]


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_group_that_is_done_is_freed_without_the_garbage_collector(batch: int) -> None:
    ledger = Site().open().ledger(1)
    ledger.append(b"first")
    gc.collect()
    gc.disable()
    try:
        before = [one for one in gc.get_objects() if type(one) in (PendingGroup, PendingEntries)]
        for _ in range(20):
            ledger.submit(b"of another caller")
            ledger.append_many([b"payload"] * batch)
            ledger.append(b"alone")
        after = [one for one in gc.get_objects() if type(one) in (PendingGroup, PendingEntries)]
    finally:
        gc.enable()
    assert len(after) - len(before) < 9


def _submitted(store: Store) -> None:
    store.ledger(1).submit(b"waits")


def _of_another(store: Store) -> None:
    store.ledger(2).submit(b"waits")


@pytest.mark.parametrize("wait", [_submitted, _of_another])
def test_work_that_waits_already_is_written_first(wait: Callable[[Store], None]) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"before")
    before = StoreInternals(store).journal_groups
    wait(store)
    ledger.append(b"behind")
    assert StoreInternals(store).journal_groups == before + 1
    found = site.after_power_cut()
    waited = [b"waits"] if wait is _submitted else []
    assert payloads(found, 1) == [b"before", *waited, b"behind"]
    assert found.ledgers() == ([1] if waited else [1, 2])


def has_room(store: Store) -> bool:
    """Whether the next small add certainly rolls no journal."""
    journal = StoreInternals(store).journal
    return journal is not None and journal.room > 40 << 10


def test_the_key_of_a_ledger_is_logged_once_in_each_journal() -> None:
    site = Site()
    store = site.open()

    def keyed() -> list[int]:
        journal = StoreInternals(store).journal
        return [] if journal is None else sorted(journal.keyed)

    store.ledger(1).append(b"0")
    assert keyed() == [1]
    store.ledger(2).append(b"0")
    assert keyed() == [1, 2]
    first = StoreInternals(store).journal
    while StoreInternals(store).journal is first or not has_room(store):
        store.ledger(1).append(bytes(30 << 10))
        site.workers.run()
    assert keyed() == [1]
    store.ledger(2).append(b"its key is not in this journal yet")
    assert keyed() == [1, 2]
    store.ledger(2).append(b"now it is")
    assert store.ledger(2).last_entry_id == 2


@pytest.mark.parametrize("digest_type", [one for one in DigestType if one is not DigestType.CRC32C])
def test_entries_of_any_digest_type_are_there_after_a_power_cut(digest_type: DigestType) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1, digest=digest_type, password=b"password")
    ledger.append(b"0")
    assert (ledger.append(b"1"), list(ledger.append_many([b"2", b"3"]))) == (1, [2, 3])
    again = site.after_power_cut().ledger(1, digest=digest_type, password=b"password")
    assert list(again.payloads()) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("size", [0, 1 << 10, (16 << 10) - 40, (16 << 10) - 39, 20 << 10])
def test_an_entry_of_any_size_is_there_after_a_power_cut(size: int) -> None:
    site = Site(config=replace(SMALL, journal_size=4 << 20))
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    ledger.append(b"x" * size)
    ledger.append(b"behind it")
    expected = [b"0", b"x" * size, b"behind it"]
    assert payloads(store, 1) == payloads(site.after_power_cut(), 1) == expected


def test_a_full_table_is_frozen_after_the_add_that_fills_it() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    while (frozen := StoreInternals(store).frozen_table) is None:
        assert StoreInternals(store).table_sizes[0] < site.config.memtable_size_max
        ledger.append(bytes(20 << 10))
    covered = frozen.covers_until
    assert covered == StoreInternals(store).durable_up_to
    site.workers.run()
    assert site.mark() == covered


def test_a_ledger_refuses_an_add_of_its_writer_after_a_fence() -> None:
    ledger = Site().open().ledger(1)
    ledger.append(b"0")
    ledger.append(b"1")
    ledger.fence()
    with pytest.raises(LedgerFenced):
        ledger.append(b"2")


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.SYNC])
def test_an_error_of_the_disk_stops_the_store(verb: Verb) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    site.disk.plant(Refused(When(verb=verb, name="*.txn.draft")))
    with pytest.raises(StoreFailed) as told:
        ledger.append(b"1")
    assert isinstance(told.value.__cause__, OSError)
    assert StoreInternals(store).failure is told.value.__cause__
    with pytest.raises(StoreFailed):
        store.ledger(2).append(b"0")
    assert payloads(store, 1) == [b"0"]


def test_adds_that_come_during_a_commit_share_the_next_group() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    at_sync, may_sync = threading.Event(), threading.Event()
    sync = StoreInternals(store).call(EngineCall.SYNC_JOURNAL)

    def held() -> None:
        at_sync.set()
        assert may_sync.wait(10)
        sync()

    setattr(*StoreInternals(store).at(EngineCall.SYNC_JOURNAL), held)
    alone = threading.Thread(target=ledger.append, args=(b"1",), daemon=True)
    alone.start()
    assert at_sync.wait(10)
    followers = [threading.Thread(target=ledger.append, args=(b"later",), daemon=True) for _ in range(3)]
    for one in followers:
        one.start()
    deadline = time.monotonic() + 10
    while StoreInternals(store).waiting_threads < len(followers):
        assert time.monotonic() < deadline
    before = StoreInternals(store).journal_groups
    may_sync.set()
    for one in (alone, *followers):
        one.join(10)
        assert not one.is_alive()
    assert StoreInternals(store).journal_groups == before + 2
    assert payloads(site.after_power_cut(), 1) == [b"0", b"1", b"later", b"later", b"later"]


def test_a_size_that_was_counted_too_large_is_not_in_the_group() -> None:
    site = Site()
    store = site.open()
    ledgers = [store.ledger(number) for number in (1, 2)]
    engine = StoreInternals(store)
    engine.overstate_waiting_size(100)
    engine.append(ledgers[0], [b"0"])
    engine.overstate_waiting_size(100)
    futures = [ledger.submit(b"1") for ledger in ledgers]
    engine.flush()
    assert [future.result(10) for future in futures] == [1, 0]
    again = site.after_power_cut()
    assert [payloads(again, number) for number in (1, 2)] == [[b"0", b"1"], [b"1"]]


# ── the way into a group ─────────────────────────────────────────────────────────────────────────────────


def test_every_piece_of_work_joins_a_group_under_the_lock_of_the_queue() -> None:
    seen: list[tuple[str, bool]] = []

    def see(work: Pending, engine: StoreInternals) -> None:
        seen.append((type(work).__name__, engine.is_queue_locked))

    async def main() -> None:
        async with AwaitedSite().awaited() as store:
            engine = StoreInternals(store.blocking)
            with engine.joins_watched(partial(see, engine=engine)):
                await store.ledger(1).append(b"one")

    store = Site().open()
    engine, ledger = StoreInternals(store), store.ledger(1)
    with engine.joins_watched(partial(see, engine=engine)):
        ledger.append(b"0")
        ledger.submit(b"1")
        ledger.append_many([b"2", b"3"])
        store.add(Entry(2, 0, -1, 3, b"one"))
        ledger.set_explicit_lac(1)
        ledger.fence()
        ledger.delete()
        engine.flush()
        engine.seal()
        engine.freeze()
    run(main())
    kinds = (
        "PendingEntries ReplicaEntry PendingLac PendingFence PendingDelete Erasure Flush PendingSeal Freeze"
    )
    assert {name for name, _ in seen} >= set(kinds.split())
    assert [one for one in seen if not one[1]] == []


CALLS: dict[str, Callable[[Store], object]] = {
    "append": lambda store: store.ledger(2).append(b"x"),
    "submit": lambda store: store.ledger(2).submit(b"x"),
    "several": lambda store: store.ledger(2).append_many([b"x", b"y"]),
    "replica": lambda store: store.add(Entry(2, 0, -1, 1, b"x")),
    "fence": lambda store: store.ledger(1).fence(),
    "delete": lambda store: store.ledger(1).delete(),
    "several deletes": lambda store: store.delete([1]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_signal_handler_that_interrupts_work_on_its_way_into_a_group_may_not_add(
    call: Callable[[Store], object],
) -> None:
    """It would wait for ever for the lock that its own thread holds."""
    store = Site().open()
    store.ledger(1).append(b"0")
    refused: list[str] = []

    def handle(_: Pending) -> None:
        try:
            call(store)
        except ReentrantCall:
            refused.append("refused")

    with StoreInternals(store).joins_watched(handle):
        store.ledger(1).append(b"1")
    assert refused == ["refused"]
    assert payloads(store, 1) == [b"0", b"1"]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_another_thread_waits_while_work_is_on_its_way_into_a_group(call: Callable[[Store], object]) -> None:
    store = Site().open()
    store.ledger(1).append(b"0")
    engine, arrived, results = StoreInternals(store), threading.Event(), list[object]()

    def act() -> None:
        try:
            results.append(call(store))
        except ReentrantCall as error:
            results.append(error)
        arrived.set()

    thread = threading.Thread(target=act, daemon=True)

    def admit(_: Pending) -> None:
        if not thread.ident:
            arrived.clear()
            thread.start()
            assert arrived.wait(10)

    engine.hear_of_lock(arrived.set)
    with engine.joins_watched(admit):
        store.ledger(1).append(b"1")
    engine.flush()
    thread.join(10)
    assert len(results) == 1
    assert not isinstance(results[0], ReentrantCall)


def test_a_flush_that_must_not_wait_tells_whether_it_has_committed() -> None:
    store = Site().open()
    engine, ledger = StoreInternals(store), store.ledger(1)
    future = ledger.submit(b"0")
    assert engine.flush_if_free()
    assert future.result(0) == 0
    with engine.commit_held():
        later = ledger.submit(b"1")
        assert not engine.flush_if_free()
        assert not later.done()
    assert engine.flush_if_free()
    assert later.result(0) == 1


def test_a_table_covers_a_group_only_after_the_insert_of_its_entries() -> None:
    store = Site().open()
    engine, ledger = StoreInternals(store), store.ledger(1)
    ledger.append(b"0")
    seen: list[int] = []

    def see(_: int, __: int, last_id: int) -> None:
        seen.append(last_id)
        assert engine.covered_until < engine.durable_up_to

    engine.watch_inserts(see)
    ledger.append(b"1")
    ledger.append_many([b"2", b"3"])
    assert seen == [1, 3]
    assert engine.covered_until == engine.durable_up_to


# ── a seal that is asked for on a full disk ──────────────────────────────────────────────────────────────


def full_at_the_next_roll(store: Store) -> Callable[[], object]:
    ledger, payload = store.ledger(1), bytes(50 << 10)
    while (journal := StoreInternals(store).journal) is not None and journal.room > len(payload) + (8 << 10):
        ledger.append(payload)
    return lambda: ledger.append(payload)


def full_at_the_next_row(store: Store) -> Callable[[], object]:
    return lambda: store.ledger(2, digest=DigestType.CRC32, password=b"secret").append(b"1")


@pytest.mark.parametrize("fill", [full_at_the_next_roll, full_at_the_next_row])
@pytest.mark.parametrize("seals", [0, 1])
def test_a_group_without_space_for_its_entries_proves_the_one_before_if_that_is_asked_for(
    fill: Callable[[Store], Callable[[], object]], seals: int
) -> None:
    site = Site(replace(SMALL, memtable_size_max=64 << 20))
    store = site.open()
    store.ledger(1).append(b"0")
    for verb, name in ((Verb.ZERO_FILL, "*"), (Verb.WRITE, "*ledgers.rows*")):
        site.disk.plant(Refused(When(verb=verb, name=name, lasting=Lasting.UNTIL_MENDED), errno.ENOSPC))
    add, engine = fill(store), StoreInternals(store)
    if seals:
        assert engine.join(PendingSeal()) is not None
    with pytest.raises(DiskFull):
        add()
    assert engine.seals == seals
    assert engine.journal is not None
    assert engine.journal.needs_vouching == (not seals)
    site.disk.mend()
    count = len(payloads(store, 1))
    assert store.ledger(1).append(b"resumed") == count
    assert len(payloads(site.after_power_cut(), 1)) == count + 1


def test_an_error_of_the_disk_outside_of_a_commit_wakes_all_that_wait() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"0")
    heard: list[int] = []
    for ledger_id in (1, 2):
        StoreInternals(store).on_change(ledger_id, lambda one=ledger_id: heard.append(one))  # type: ignore[misc]
    site.disk.plant(
        Refused(When(verb=Verb.WRITE, name="*ledgers.rows*", lasting=Lasting.UNTIL_MENDED), errno.EIO)
    )
    with pytest.raises(StoreFailed):
        store.bookie.enter_limbo(3)
    assert sorted(heard) == [1, 2]


def test_a_large_group_stops_for_a_simulation_after_the_insert_of_each_portion() -> None:
    site = Site()
    store = site.open()
    engine = StoreInternals(store)
    works = [PendingEntries(engine.tail(1), access_of(store.ledger(1)), [bytes(40 << 10)]) for _ in range(2)]
    assert all(engine.join(work) is not None for work in works)
    group = engine.begin_turn()
    assert group is not None
    durable = [sum(work.is_durable for work in works) for _ in engine.stages(group)]
    assert durable == [0, 0, 1, 1, 1]
    engine.end_turn(group)
    assert [work.first_id for work in works] == [0, 1]


def test_adds_that_come_together_get_their_own_refusals_and_if_all_are_refused_there_is_no_group() -> None:
    store = Site().open()
    engine, ledgers = StoreInternals(store), [store.ledger(1), store.ledger(2)]
    for ledger in ledgers:
        ledger.append(b"0")
    ledgers[0].fence()
    works = [PendingEntries(engine.tail(one.id), access_of(one), [b"1"]) for one in ledgers]
    assert engine.join_all(works[:1]) is None
    assert engine.join_all(works) is engine.open_group
    assert [type(one.refusal) for one in works] == [LedgerFenced, NoneType]
    engine.flush()
    assert [payloads(store, one.id) for one in ledgers] == [[b"0"], [b"0", b"1"]]


def test_nothing_that_waits_is_written_after_the_store_has_failed() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"0")
    future = store.ledger(1).submit(b"1")
    StoreInternals(store).fail(OSError(errno.EIO, "the disk"))
    done = len(site.disk.trace)
    StoreInternals(store).flush()
    assert isinstance(future.exception(0), StoreFailed)
    assert len(site.disk.trace) == done
    assert payloads(store, 1) == [b"0"]


def test_an_error_of_the_program_after_the_sync_stops_the_store_and_the_entry_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"0")

    def fail(_: PendingGroup) -> None:
        raise AssertionError("broken")

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.END), fail)

    assert in_time(lambda: store.ledger(1).append(b"1"))  # it is durable, and its caller is told so
    assert isinstance(StoreInternals(store).failure, AssertionError)
    assert payloads(site.after_power_cut(), 1) == [b"0", b"1"]


def test_a_seal_whose_sync_fails_stops_the_store() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"0")
    site.disk.plant(Refused(When(verb=Verb.SYNC)))
    StoreInternals(store).seal()  # whose caller has nothing of its own that could be lost
    with pytest.raises(StoreFailed):
        store.ledger(1).append(b"1")
    assert payloads(site.after_power_cut(), 1) == [b"0"]


def test_a_group_is_proven_by_one_seal_and_not_by_another_one_after_that() -> None:
    store = Site().open()
    engine = StoreInternals(store)
    for number in range(3):
        store.ledger(1).append(b"x")
        for _ in range(2):
            engine.seal()
            assert engine.seals == number + 1
