"""Following a ledger until the follower is stopped, the ledger is deleted, or the program shuts down."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from stepped_store import LEDGERS, SMALL, Site
from store_internals import StoreInternals, used_bytes

from storage import DigestType, DiskFull, EntryUnreadable
from storage.follower import Follower

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.store import Store


@pytest.fixture
def store() -> Iterator[Store]:
    with Site().open() as store:
        store.ledger(1).append_many([b"zero", b"one"])
        yield store


def ids(follower: Follower) -> list[int]:
    return [entry.entry_id for entry in follower]


@contextmanager
def waiting_thread(store: Store, follower: Follower) -> Iterator[list[bytes]]:
    """Run a thread that follows and waits for a missing entry; yield the entries that it gets until it
    ends."""
    got: list[bytes] = []
    looked = threading.Event()
    thread = threading.Thread(target=lambda: got.extend(one.payload for one in follower), daemon=True)
    with StoreInternals(store).looks_watched(looked.set):
        thread.start()
        assert looked.wait(10)
        yield got
        thread.join(10)
    assert not thread.is_alive(), "the follower has not ended"


def wait_for(is_so: Callable[[], bool]) -> None:
    """Return when another thread has made the call."""
    give_up_at = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < give_up_at


# ── stopping one ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_follower_that_waits_is_stopped_by_another_thread(store: Store) -> None:
    follower = store.ledger(1).follow(2)
    with waiting_thread(store, follower) as got:
        follower.stop()
    assert got == []
    store.ledger(1).append(b"two")
    assert ids(follower) == []
    assert StoreInternals(store).registered == 0


def test_stopping_one_follower_ends_no_other(store: Store) -> None:
    ledger = store.ledger(1)
    one, other = ledger.follow(2), ledger.follow(2)
    with waiting_thread(store, other) as got:
        with waiting_thread(store, one):
            one.stop()
        ledger.append(b"two")
        wait_for(lambda: bool(got))
        other.stop()
    assert got == [b"two"]


@pytest.mark.parametrize("stop", ["stop", "close", "with", "closing"])
def test_a_stopped_follower_hands_out_nothing_that_it_has_read(store: Store, stop: str) -> None:
    follower = store.ledger(1).follow()
    assert next(follower).entry_id == 0
    if stop in {"stop", "close"}:
        getattr(follower, stop)()
    else:
        with follower if stop == "with" else closing(follower):
            pass
    assert ids(follower) == []


def test_a_follower_that_was_idle_for_too_long_has_ended(store: Store) -> None:
    follower = store.ledger(1).follow(idle_timeout_s=0)
    assert ids(follower) == [0, 1]
    store.ledger(1).append(b"two")
    assert ids(follower) == []


def test_a_follower_raises_for_a_damaged_entry_each_time() -> None:
    site = Site(replace(SMALL, entry_log_size_max=1 << 20))
    with site.open() as store:
        store.ledger(1).append_many([b"zero", b"one"])
        site.checkpoint(store)
        log = f"{LEDGERS}/0.log"
        site.flip(log, site.bytes_of(log).index(b"one"))
        follower = store.ledger(1).follow(idle_timeout_s=0)
        assert next(follower).entry_id == 0
        for _ in range(2):
            with pytest.raises(EntryUnreadable):
                next(follower)


# ── a ledger that is deleted ─────────────────────────────────────────────────────────────────────────────


def test_a_follower_that_waits_ends_when_its_ledger_is_deleted(store: Store) -> None:
    ledger = store.ledger(1)
    with waiting_thread(store, ledger.follow(2)) as got:
        ledger.delete()
    ledger.append_many([b"new"] * 5)
    assert got == []


def test_a_follower_gets_nothing_of_the_ledger_that_is_made_again(store: Store) -> None:
    ledger = store.ledger(1)
    follower = ledger.follow()
    assert next(follower).payload == b"zero"
    ledger.delete()
    ledger.append_many([b"new"] * 5)
    # Entries read before the delete belong to the followed ledger.
    assert [entry.payload for entry in follower] == [b"one"]
    assert [entry.payload for entry in ledger.follow(idle_timeout_s=0)] == [b"new"] * 5


def test_a_follower_between_two_reads_gets_no_entry_of_a_new_ledger_of_the_id(store: Store) -> None:
    ledger = store.ledger(1)
    ledger.append_many([b"old"] * 3000)
    follower = ledger.follow()
    got = [next(follower).payload]
    ledger.delete()
    ledger.append_many([b"new"] * 5000)
    got += [entry.payload for entry in follower]
    # Not all entries were read before the delete, and none that is read after it is returned.
    assert 1024 <= len(got) < 3002
    assert got == [b"zero", b"one", *[b"old"] * (len(got) - 2)]


@contextmanager
def between_tombstone_and_answer(store: Store, act: Callable[[], None]) -> Iterator[None]:
    """Make the call when the tombstone of a delete is durable and readers still find the ledger."""
    end = StoreInternals(store).between_tombstone_and_answer(act)
    try:
        yield
    finally:
        end()


def test_a_follower_that_begins_during_a_delete_gets_no_entry_of_the_next_ledger(
    store: Store,
) -> None:
    ledger, followers, got = store.ledger(1), list[Follower](), list[bytes]()

    def begin() -> None:
        followers.extend(ledger.follow(idle_timeout_s=0) for _ in range(2))
        got.append(next(followers[0]).payload)

    with between_tombstone_and_answer(store, begin):
        ledger.delete()
    ledger.append_many([b"new"] * 5)
    for follower in followers:
        got += [entry.payload for entry in follower]
    assert got == [b"zero", b"one"]


def test_a_reader_that_begins_to_wait_during_a_delete_is_woken(
    store: Store,
) -> None:
    answers: list[int] = []
    looked = threading.Event()
    waiting = threading.Thread(
        target=lambda: answers.append(store.ledger(1).wait_for_last_add_confirmed(5)), daemon=True
    )

    def begin() -> None:
        waiting.start()
        assert looked.wait(10)

    with (
        StoreInternals(store).looks_watched(looked.set),
        between_tombstone_and_answer(store, begin),
    ):
        store.ledger(1).delete()
    waiting.join(5)
    assert answers == [-1]


def test_a_delete_that_was_refused_leaves_its_followers() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"zero")
    follower = ledger.follow()
    assert next(follower).payload == b"zero"
    site.disk.limit(used_bytes(site.disk))
    with pytest.raises(DiskFull):
        ledger.delete()
    site.disk.limit(None)
    ledger.append(b"one")
    assert next(follower).payload == b"one"


def test_a_follower_ends_although_the_new_ledger_has_another_digest_type(store: Store) -> None:
    ledger = store.ledger(1)
    follower = ledger.follow()
    assert len(list(islice(follower, 2))) == 2
    ledger.delete()
    store.ledger(1, DigestType.MAC, b"secret").append_many([b"new"] * 5)
    assert ids(follower) == []


def test_a_ledger_may_be_followed_before_it_is_made_and_after_a_delete(store: Store) -> None:
    store.ledger(1).delete()
    with waiting_thread(store, store.ledger(1).follow()) as got:
        store.ledger(1).append(b"again")
        wait_for(lambda: bool(got))
        store.ledger(1).delete()
    with waiting_thread(store, store.ledger(9).follow()) as of_another:
        store.ledger(9).fence()  # makes a ledger without entries
        store.ledger(9).delete()
    assert (got, of_another) == ([b"again"], [])


# ── a program that shuts down ────────────────────────────────────────────────────────────────────────────


def test_all_followers_of_a_store_are_stopped_and_everything_else_goes_on(store: Store) -> None:
    ledger, started = store.ledger(1), store.ledger(1).follow()
    assert next(started).entry_id == 0
    with waiting_thread(store, ledger.follow(2)) as got, waiting_thread(store, store.ledger(2).follow()):
        store.stop_followers()
    assert got == []
    assert ids(started) == []
    assert ids(ledger.follow()) == []
    assert ledger.append(b"two") == 2
    assert [entry.payload for entry in ledger.entries()] == [b"zero", b"one", b"two"]


def test_readers_that_wait_for_a_confirmation_are_answered(store: Store) -> None:
    store.stop_followers()
    assert store.ledger(1).wait_for_last_add_confirmed(10**9) == 1
    assert store.bookie.wait_for_last_add_confirmed(1, 10**9) == -1


def test_a_signal_handler_stops_a_follower_in_the_thread_that_it_interrupts(store: Store) -> None:
    handler = signal.signal(signal.SIGUSR1, lambda *_: store.stop_followers())
    try:
        with StoreInternals(store).looks_watched(lambda: signal.raise_signal(signal.SIGUSR1)):
            assert ids(store.ledger(1).follow(2)) == []
    finally:
        signal.signal(signal.SIGUSR1, handler)


@pytest.mark.parametrize("end", ["stop", "delete", "stop_followers", "close"])
def test_a_follower_that_has_ended_does_not_block(end: str) -> None:
    store = Site().open()
    ledger = store.ledger(1)
    ledger.append(b"zero")
    follower = ledger.follow(1)
    ends: dict[str, Callable[[], object]] = {
        "stop": follower.stop,
        "delete": ledger.delete,
        "stop_followers": store.stop_followers,
        "close": store.close,
    }
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            ends[end]()

    with StoreInternals(store).looks_watched(look):
        assert ids(follower) == []
    # Woken by the add, and once more without a reason, because the token of a wake-up was kept.
    assert looks == 2
