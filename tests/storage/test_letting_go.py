"""What a checkpoint has written down leaves memory some at a time, and never under a reader's hands."""

from __future__ import annotations

from stepped import SMALL, Site, payloads

from storage.checkpoint import _let_go
from storage.memtable import Memtable
from storage.position import START
from storage.worker import AT_ONCE

RECORD = b"r" * 44


def table_of(*counts: int) -> Memtable:
    table = Memtable(START)
    for ledger_id, count in enumerate(counts):
        table.insert(ledger_id, 0, [RECORD + bytes([ledger_id])] * count)
    return table


def test_it_goes_in_steps_of_about_a_thousand_entries() -> None:
    table = table_of(5000, 10, 10, 10, 3000)
    remains = table.remains()
    del table
    steps = list(_let_go(remains))
    assert set(steps) == {AT_ONCE}
    assert 6 <= len(steps) <= 9
    assert remains == []


def test_what_a_reader_still_has_is_whole() -> None:
    table = table_of(3000, 2000)
    remains = table.remains()
    assert len(list(_let_go(remains))) == 0
    assert [table.get(ledger_id, 1999) for ledger_id in (0, 1)] == [RECORD + b"\0", RECORD + b"\1"]
    assert len(table) == 5000


def test_who_comes_in_between_keeps_what_he_has_got() -> None:
    table = table_of(3000)
    remains = table.remains()
    [run] = remains
    del table
    assert list(_let_go(remains)) == []
    assert len(run) == 3000


def test_a_scan_that_began_before_a_checkpoint_sees_everything() -> None:
    site = Site(SMALL)
    store = site.open()
    texts = [b"%d" % number * 100 for number in range(300)]
    store.ledger(1).append_many(texts)
    found = store.ledger(1).payloads()
    first = next(found)
    site.checkpoint(store)
    assert store._parts.slot.tables.frozen is None
    assert [first, *found] == payloads(store, 1) == texts
