"""The last add confirmed is found without reading every id, and is right if entries are missing."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from index_builder import CountedIndex
from stepped_store import Site
from store_internals import StoreInternals

from storage.entry.model import Entry

if TYPE_CHECKING:
    from collections import Counter

    from storage.store import Store

MANY = 20_000


def counted(store: Store) -> Counter[str]:
    index = CountedIndex(StoreInternals(store).index)
    StoreInternals(store).use_index(index)
    return index.asked


def entry(entry_id: int) -> Entry:
    return Entry(1, entry_id, -1, 9, b"x")


def grow(site: Site, store: Store, count: int, *, step: int = 1000) -> None:
    for _ in range(0, count, step):
        store.ledger(1).append_many([b"x"] * step)
        site.checkpoint(store)


def test_a_ledger_that_has_grown_in_the_index_is_counted_and_not_walked() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append_many([b"x"] * 10)
    assert store.ledger(1).last_add_confirmed == 9
    grow(site, store, MANY)
    asked = counted(store)
    assert store.ledger(1).last_add_confirmed == MANY + 9
    assert sum(asked.values()) <= 4


def test_a_ledger_that_has_grown_in_the_table_needs_no_look_up_in_the_index() -> None:
    store = Site().open()
    ledger = store.ledger(1)
    for number in range(300):
        ledger.append(b"x")
        asked = counted(store)
        assert ledger.last_add_confirmed == number
        assert asked == {}


def test_a_ledger_that_has_not_grown_needs_one_look_up_at_most() -> None:
    site = Site()
    store = site.open()
    grow(site, store, 1000)
    assert store.ledger(1).last_add_confirmed == 999
    asked = counted(store)
    assert store.ledger(1).last_add_confirmed == 999
    assert sum(asked.values()) <= 1


def test_after_a_gap_many_entries_take_one_look_up() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append_many([b"x"] * 10)
    assert store.ledger(1).last_add_confirmed == 9
    grow(site, store, MANY)
    store.add(entry(MANY + 100))
    site.checkpoint(store)
    asked = counted(store)
    assert store.ledger(1).last_add_confirmed == MANY + 9
    assert sum(asked.values()) <= 3 * (MANY // 4096 + 2) + 1


def test_a_gap_that_is_filled_is_confirmed() -> None:
    site = Site()
    store = site.open()
    for entry_id in (0, 1, 2, 4, 5, 9):
        store.add(entry(entry_id))
    assert store.ledger(1).last_add_confirmed == 2
    site.checkpoint(store)
    assert store.ledger(1).last_add_confirmed == 2
    store.add(entry(3))
    assert store.ledger(1).last_add_confirmed == 5
    for entry_id in (8, 7, 6):
        store.add(entry(entry_id))
    assert store.ledger(1).last_add_confirmed == 9
    site.checkpoint(store)
    assert store.ledger(1).last_add_confirmed == 9


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("seed", range(12))
def test_the_last_add_confirmed_equals_a_walk_over_the_entries(seed: int) -> None:
    """Entries are added in any order, some twice, and are in either table, in the index, or in several of
    these."""
    dice = Random(seed)
    site = Site()
    store = site.open()
    there: set[int] = set()
    for _ in range(150):
        deed = dice.random()
        if deed < 0.5:
            store.ledger(1).append(b"x")
            entry_ids = [max(there, default=-1) + 1]
        elif deed < 0.9:
            entry_ids = [dice.choice([*range(12), max(there, default=0) + dice.randrange(3)])]
            store.add(entry(entry_ids[0]))
        else:
            entry_ids = []
            if dice.random() < 0.5:
                StoreInternals(store).freeze()
            else:
                site.checkpoint(store)
        there.update(entry_ids)
        if dice.random() < 0.3:
            store = site.after_kill()
        if dice.random() < 0.5:
            missing = next(one for one in range(len(there) + 1) if one not in there)
            said = store.ledger(1).read(max(there)).last_add_confirmed if there else -1
            assert store.ledger(1).last_add_confirmed == max(missing - 1, said)
