"""Waiting for changes of one ledger: no wake-up is lost, and no other ledger's writer asks a waiter."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from async_stores import in_time
from stepped_store import SMALL, Site
from store_internals import EngineCall, StoreInternals

from storage.commit.pending import PendingEntries
from storage.ledgers.waiters import CHECKPOINT, ROOM, LedgerWaiters
from storage.validation import access_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.store import Store

LONG_S = 3600.0
"""Longer than any test waits: a test whose wake-up is lost fails because its thread does not end."""


def test_a_condition_that_holds_already_is_not_waited_for() -> None:
    waiters = LedgerWaiters()
    assert waiters.wait_for(7, lambda: True)
    assert waiters.waiting == {}


def test_a_change_of_the_ledger_wakes_its_waiter() -> None:
    waiters, looked, there = LedgerWaiters(), threading.Event(), threading.Event()

    def look() -> bool:
        found = there.is_set()
        looked.set()
        return found

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiters.wait_for, 7, look, LONG_S)
        assert looked.wait(10)
        there.set()
        waiters.wake(7)
        assert waiting.result(10)


def test_a_change_between_the_check_and_the_blocking_is_not_lost() -> None:
    waiters, looks = LedgerWaiters(), 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            waiters.wake(7)
        return looks == 2

    assert in_time(lambda: waiters.wait_for(7, look, LONG_S))
    assert looks == 2


def test_many_changes_before_it_blocks_are_looked_at_once() -> None:
    waiters, looks = LedgerWaiters(), 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            for _ in range(100):
                waiters.wake(7)
        return False

    assert not waiters.wait_for(7, look, 0.001)
    assert looks == 3  # at first, because it was woken, and when the time was up


def test_a_change_of_another_ledger_wakes_no_waiter() -> None:
    waiters, looks = LedgerWaiters(), 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            waiters.wake(8)
            waiters.wake(ROOM)
        return False

    assert not waiters.wait_for(7, look, 0.001)
    assert looks == 2


def test_waiters_may_register_leave_and_wake_while_another_checks() -> None:
    waiters = LedgerWaiters()

    def look() -> bool:
        waiters.register(7, looked.set)
        waiters.wake(7)
        waiters.forget(7, looked.set)
        return True

    looked = threading.Event()
    assert in_time(lambda: waiters.wait_for(7, look))
    assert looked.is_set()
    assert waiters.waiting == {}


def test_a_wait_ends_at_its_timeout_and_unregisters_the_waiter() -> None:
    waiters = LedgerWaiters()
    assert not waiters.wait_for(7, lambda: False, 0)
    assert not waiters.wait_for(7, lambda: False, 0.001)
    assert waiters.waiting == {}


def test_a_check_that_raises_ends_the_wait_and_unregisters_the_waiter() -> None:
    waiters = LedgerWaiters()
    with pytest.raises(ZeroDivisionError):
        waiters.wait_for(7, lambda: 1 // 0 == 1)
    assert waiters.waiting == {}


def test_a_waiter_that_leaves_does_not_unregister_another() -> None:
    waiters, first, second = LedgerWaiters(), threading.Event(), threading.Event()
    waiters.register(7, first.set)
    waiters.register(7, second.set)
    waiters.forget(7, first.set)
    waiters.forget(7, first.set)
    waiters.wake(7)
    assert (first.is_set(), second.is_set()) == (False, True)


def test_the_end_of_the_store_wakes_everything_that_waits_in_it() -> None:
    waiters, woken = LedgerWaiters(), [threading.Event() for _ in range(4)]
    for ledger_id, event in zip((1, 2, ROOM, CHECKPOINT), woken, strict=True):
        waiters.register(ledger_id, event.set)
    waiters.wake_all()
    assert all(event.is_set() for event in woken)


# ── in a store ───────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def waiting_for(store: Store, ledger_id: int) -> Iterator[list[int]]:
    """Have a thread wait for a confirmation, and count its checks. At the end a fence wakes it."""
    looks, looked = [0], threading.Event()

    def look() -> None:
        looks[0] += 1
        looked.set()

    ledger = store.ledger(ledger_id)
    waiting = threading.Thread(target=ledger.wait_for_last_add_confirmed, args=(10**9, LONG_S), daemon=True)
    with StoreInternals(store).looks_watched(look):
        waiting.start()
        assert looked.wait(10)
    yield looks
    waiting.join(0.05)  # time to look again, if anything has woken it
    ledger.fence()
    waiting.join(10)
    assert not waiting.is_alive()


def test_adds_to_one_ledger_make_no_waiter_of_another_look() -> None:
    store = Site().open()
    store.ledger(1).append_many([b"0", b"1"])
    store.ledger(2).append_many([b"0", b"1"])
    with waiting_for(store, 2) as looks:
        for _ in range(10):
            store.ledger(1).append(b"alone")
        store.ledger(1).append_many([b"in", b"a", b"turn"] * 5)
        store.ledger(3).append(b"the first of its ledger")
        store.ledger(3).fence()
        store.ledger(3).delete()
    assert looks == [2]  # at first, and because of the fence


def test_an_add_does_not_wait_for_the_check_of_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Site().open()
    store.ledger(1).append_many([b"0", b"1"])
    store.ledger(2).append_many([b"0", b"1"])
    engine, at_check, may_go_on = StoreInternals(store), threading.Event(), threading.Event()
    look = engine.call(EngineCall.FIRST_MISSING)

    def slow(*asked: int) -> int:
        at_check.set()
        assert may_go_on.wait(60)
        found: int = look(*asked)
        return found

    monkeypatch.setattr(*engine.at(EngineCall.FIRST_MISSING), slow)
    waiting = threading.Thread(
        target=store.ledger(2).wait_for_last_add_confirmed, args=(2, LONG_S), daemon=True
    )
    waiting.start()
    assert at_check.wait(10)
    try:
        assert in_time(lambda: store.ledger(1).append(b"to another ledger"))
        assert in_time(lambda: store.ledger(2).append(b"to the same ledger"))
    finally:
        may_go_on.set()
    store.ledger(2).append(b"3")
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_wait_for_a_deleted_ledger_ends_though_another_ledger_has_its_id() -> None:
    store = Site().open()
    ledger = store.ledger(2)
    ledger.append_many([b"0", b"1"])
    looked = threading.Event()
    with ThreadPoolExecutor(1) as pool, StoreInternals(store).looks_watched(looked.set):
        waiting = pool.submit(ledger.wait_for_last_add_confirmed, 5, LONG_S)
        assert looked.wait(10)
        ledger.delete()
        assert waiting.result(10) == -1
    ledger.append(b"another ledger")
    assert ledger.wait_for_last_add_confirmed(-1) == 0


def test_an_add_that_waits_for_room_is_woken_by_the_end_of_a_commit_without_a_checkpoint() -> None:
    site = Site(replace(SMALL, throttle_timeout_s=LONG_S))
    store = site.open()
    ledger, engine, block = store.ledger(1), StoreInternals(store), bytes(60_000)
    ledger.append(b"first")
    looked = threading.Event()
    access = access_of(b"", None)
    while engine.waiting_size < SMALL.memtable_size_max:
        assert engine.promise(PendingEntries(engine.tail(1), access, (block,)))
    with engine.looks_watched(looked.set), ThreadPoolExecutor(1) as pool:
        adding = pool.submit(ledger.append, b"last")
        try:
            assert looked.wait(10)
            assert not adding.done()
            engine.flush()
            assert adding.result(10) == ledger.last_entry_id
        finally:
            store.close()  # ends the wait of an add that was not woken
    assert engine.frozen_table is None
