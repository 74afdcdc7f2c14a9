"""The metadata of ledgers in an open store: how many are deleted, and what an error leaves."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped_store import Site
from store_internals import LockIsHeld, StoreInternals

from recovery.crashlab import Lasting, Refused, Verb, When
from storage.entry.model import DigestType
from storage.errors import DiskFull, StoreError, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.index.state import IndexState
    from storage.store import Store


def test_all_deleted_ledgers_are_counted_once_and_no_other_ones() -> None:
    site = Site()
    store = site.open()
    for ledger_id in range(1, 6):
        store.ledger(ledger_id, password=b"secret" if ledger_id == 5 else b"").append(b"0")
    store.bookie.enter_limbo(4)
    assert store.stats().tombstones == 0
    store.ledger(1).delete()
    store.bookie.delete(2)
    # A tombstone that says more than that the ledger is deleted is kept apart from the others.
    store.bookie.enter_limbo(2)
    assert store.stats().tombstones == 2
    site.checkpoint(store)
    assert store.stats().tombstones == 2
    store.ledger(3).delete()
    assert store.stats().tombstones == 3


def declare(store: Store) -> None:
    store.ledger(2, digest=DigestType.CRC32, password=b"secret").append(b"1")


@pytest.mark.parametrize(("number", "told"), [(errno.ENOSPC, DiskFull), (errno.EIO, StoreFailed)])
def test_a_row_that_could_not_be_written_is_not_known(number: int, told: type[StoreError]) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"0")
    before = StoreInternals(store).row(2)
    site.disk.plant(
        Refused(When(verb=Verb.SYNC, name="*ledgers.rows*", lasting=Lasting.UNTIL_MENDED), number)
    )
    with pytest.raises(told):
        declare(store)
    assert StoreInternals(store).row(2) == before


def test_a_delete_whose_empty_group_cannot_be_written_is_proven_by_a_new_file() -> None:
    """The error comes with the second sync of the delete, which proves the first one."""
    site = Site()
    store = site.open()
    for ledger_id in (1, 2, 3):
        store.ledger(ledger_id).append(b"0")
    store.ledger(3).delete()
    file = "ledgers/current/ledgers.rows"
    before = site.bytes_of(file)
    site.disk.plant(Refused(When(verb=Verb.SYNC, name="*ledgers.rows*", nth=2), errno.EIO))
    store.ledger(2).delete()
    assert site.bytes_of(file)[: len(before)] != before
    assert store.ledgers() == site.after_power_cut().ledgers() == [1]


# ── locks ────────────────────────────────────────────────────────────────────────────────────────────────


def changes(store: Store) -> dict[str, Callable[[], object]]:
    """A call of each method that changes something."""
    engine, metadata = StoreInternals(store), StoreInternals(store).metadata
    deleted = metadata.persist_tombstones({9: engine.durable_up_to})[0]
    return {
        "apply_journaled": lambda: metadata.apply_journaled(
            1, lambda row: replace(row, fenced=True), engine.active_table
        ),
        "persist_now": lambda: metadata.persist_now({2: lambda row: replace(row, in_limbo=True)}),
        "persist_tombstones": lambda: metadata.persist_tombstones({1: engine.durable_up_to}),
        "hide_deleted": lambda: metadata.hide_deleted([deleted]),
        "forget_locations": lambda: metadata.forget_locations({1}),
        "persist_changed": lambda: metadata.persist_changed(engine.active_table, engine.index_state),
        "close": metadata.close,
    }


LOCKS = {
    "apply_journaled": {"lock"},
    "persist_now": {"writing", "lock"},
    "persist_tombstones": {"writing", "lock"},
    "hide_deleted": {"lock", "forgetting"},
    "forget_locations": {"forgetting"},
    "persist_changed": {"writing", "lock"},
    "close": {"writing"},
}


@pytest.mark.parametrize("name", LOCKS)
def test_each_change_waits_for_the_locks_of_what_it_changes(name: str) -> None:
    taken = set()
    for lock in ("writing", "lock", "forgetting"):
        store = Site().open()
        store.ledger(1).append(b"0")
        change = changes(store)[name]
        with StoreInternals(store).metadata_lock_held(lock):
            try:
                change()
            except LockIsHeld:
                taken.add(lock)
    assert taken == LOCKS[name]


def test_a_tombstone_is_purged_by_its_own_number_only() -> None:
    site = Site()
    store = site.open()
    for ledger_id in (1, 2, 3):
        store.ledger(ledger_id).append(b"0")
        store.ledger(ledger_id).delete()
    site.checkpoint(store)
    engine = StoreInternals(store)
    change = {one: engine.row(one).change for one in (1, 2, 3)}

    def purged(ledger_id: int, number: int) -> int:
        return engine.metadata.purge({ledger_id: number}, lambda _: engine.index_state)[0]

    assert purged(1, change[1] - 1) == purged(1, change[1] + 1) == 0
    assert purged(1, change[1]) == 1
    assert purged(3, change[3]) == 0  # later numbers go on from the largest
    assert store.stats().tombstones == 2


def test_where_no_tombstone_may_be_purged_nothing_is_written() -> None:
    site = Site()
    store = site.open()
    store.ledger(7).append(b"x")
    store.ledger(7).delete()
    metadata, done = StoreInternals(store).metadata, len(site.disk.trace)

    def forget(_: object) -> IndexState:
        pytest.fail("nothing was purged")

    assert metadata.purge({7: 0, 8: 1}, forget) == (0, None)
    assert len(site.disk.trace) == done
    assert metadata.of(7).tombstone is not None
