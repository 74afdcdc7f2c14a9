"""When a checkpoint tells those that wait for it, and how much of a log it leaves to one sync."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from async_stores import in_time
from stepped_store import LEDGERS, SMALL, Site
from store_internals import EngineCall, StoreInternals

from recovery.crashlab import Lasting, Refused, Verb, When
from storage.checkpoint.reclaimer import SYNC_STEP
from storage.ledgers.waiters import CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.store import Store


def test_the_end_of_a_checkpoint_is_told_although_another_one_was_requested() -> None:
    site = Site()
    store = site.open()
    engine = StoreInternals(store)
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


def test_no_table_is_frozen_before_a_checkpoint_was_requested() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    for worker in site.workers.by_name.values():
        worker.wake()
    site.workers.run()
    assert site.names(LEDGERS, ".log") == []
    site.checkpoint(store)
    assert site.names(LEDGERS, ".log") == ["0.log"]


def is_frozen(engine: StoreInternals) -> bool:
    return engine.frozen_table is not None


def test_the_checkpoint_of_a_table_that_was_frozen_before_answers_no_later_request() -> None:
    site = Site()
    store = site.open()
    engine = StoreInternals(store)
    store.ledger(1).append(b"first")
    engine.freeze()
    store.ledger(1).append(b"second")
    number = engine.number_checkpoint()
    while is_frozen(engine):
        engine.step_checkpoint()
    while not is_frozen(engine):
        assert not engine.has_checkpointed(number)
        engine.step_checkpoint()
    site.workers.run()
    assert engine.has_checkpointed(number)


def meet_full_disk(engine: StoreInternals) -> None:
    while engine.disk_full_error is None:
        engine.step_checkpoint()


ENDS: dict[str, Callable[[Store], object]] = {
    "a failure": lambda store: StoreInternals(store).fail_background(OSError(errno.EIO, "the disk")),
    "a full disk": lambda store: meet_full_disk(StoreInternals(store)),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_thread_that_waits_for_a_checkpoint_is_told_that_there_is_none_now(end: str) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    site.disk.plant(
        Refused(When(verb=Verb.CREATE, name="*.log*", lasting=Lasting.UNTIL_MENDED), errno.ENOSPC)
    )
    number, heard = StoreInternals(store).number_checkpoint(), list[int]()
    StoreInternals(store).on_change(CHECKPOINT, lambda: heard.append(number))
    ENDS[end](store)
    assert heard
    assert in_time(lambda: StoreInternals(store).wait_for_checkpoint(number))
    assert not StoreInternals(store).has_checkpointed(number)


def test_no_sync_counts_as_slow_at_an_opening_or_a_close_where_each_is_as_large_as_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    store = site.open()
    engine, reported = StoreInternals(store), list[float]()
    monkeypatch.setattr(*engine.at(EngineCall.NOTE_SYNC), reported.append)
    store.ledger(1).append(b"first")
    engine.finish_checkpoint()
    assert reported == []
    store.ledger(1).append(b"second")
    site.checkpoint(store)
    assert len(reported) == 1
