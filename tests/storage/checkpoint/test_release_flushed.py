"""Entries of a finished checkpoint are freed some at a time, and never while a reader uses them."""

from __future__ import annotations

from stepped_store import SMALL, Site, payloads
from store_internals import StoreInternals

from storage.checkpoint.checkpointer import _free_slowly
from storage.entry.position import START
from storage.memtable.table import Memtable
from storage.runtime.worker import AT_ONCE

RECORD = b"r" * 44


def table_of(*counts: int) -> Memtable:
    table = Memtable(START)
    for ledger_id, count in enumerate(counts):
        table.insert(ledger_id, 0, [RECORD + bytes([ledger_id])] * count)
    return table


def test_entries_are_freed_in_steps_of_about_a_thousand() -> None:
    table = table_of(5000, 10, 10, 10, 3000)
    lists = table.lists_to_free()
    del table
    steps = list(_free_slowly(lists))
    assert set(steps) == {AT_ONCE}
    assert 6 <= len(steps) <= 9
    assert lists == []


def test_entries_that_a_reader_still_uses_are_not_freed() -> None:
    table = table_of(3000, 2000)
    lists = table.lists_to_free()
    assert len(list(_free_slowly(lists))) == 0
    assert [table.get(ledger_id, 1999) for ledger_id in (0, 1)] == [RECORD + b"\0", RECORD + b"\1"]
    assert len(table) == 5000


def test_a_reader_that_loads_a_block_meanwhile_keeps_its_locations() -> None:
    table = table_of(3000)
    lists = table.lists_to_free()
    [run] = lists
    del table
    assert list(_free_slowly(lists)) == []
    assert len(run) == 3000


def test_a_scan_that_began_before_a_checkpoint_sees_everything() -> None:
    site = Site(SMALL)
    store = site.open()
    texts = [b"%d" % number * 100 for number in range(300)]
    store.ledger(1).append_many(texts)
    found = store.ledger(1).payloads()
    first = next(found)
    site.checkpoint(store)
    assert StoreInternals(store).frozen_table is None
    assert [first, *found] == payloads(store, 1) == texts
