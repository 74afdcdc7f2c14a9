"""When a checkpoint tells those that wait for it, and how much of a log it leaves to one sync."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stepped_store import SMALL, Site
from store_internals import Engine

from recovery.crashlab import Verb
from storage.checkpoint.reclaimer import SYNC_STEP
from storage.ledgers.waiters import CHECKPOINT


def test_the_end_of_a_checkpoint_is_told_although_another_one_was_requested() -> None:
    site = Site()
    store = site.open()
    engine = Engine(store)
    store.ledger(1).append(b"first")
    first = engine.number_checkpoint()
    engine.step_checkpoint()
    store.ledger(1).append(b"second")
    second = engine.number_checkpoint()
    heard: list[bool] = []
    engine.on_change(CHECKPOINT, lambda: heard.append(engine.has_checkpointed(first)))
    while not engine.has_checkpointed(first):
        assert heard == []
        engine.step_checkpoint()
    assert heard == [True]
    assert not engine.has_checkpointed(second)
    site.workers.run()


@pytest.mark.parametrize("count", [1, 9])
def test_a_log_is_synced_after_each_step_so_that_no_sync_is_long(count: int) -> None:
    site = Site(replace(SMALL, memtable_size_max=64 << 20, journal_size=64 << 20, group_size_max=8 << 20))
    store = site.open()
    for number in range(count):
        store.ledger(number + 1).append_many([bytes(SMALL.entry_size_max - 100)] * (SYNC_STEP // 4 >> 16))
    syncs: list[str] = []
    site.disk.watch(
        lambda one: syncs.append(one.path) if one.verb is Verb.SYNC and ".log" in one.path else None
    )
    site.checkpoint(store)
    assert len(syncs) >= (1 if count == 1 else 3)
