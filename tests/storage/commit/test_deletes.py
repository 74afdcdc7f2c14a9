"""Deletes: what an interrupted caller leaves."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
from async_stores import in_time
from keyboard_interrupts import interrupted
from sampling import many
from stepped_store import Site, payloads
from store_internals import EngineCall, LockIsHeld, StoreInternals

from storage.commit import committer, deletes, ledger_control, pending, pending_deletes, portions
from storage.commit import queue as commit_queue
from storage.commit.pending import ERASED
from storage.commit.pending_deletes import PendingDelete
from storage.errors import NoSuchLedger, StoreFailed
from storage.index import visible
from storage.journal import journal_set
from storage.ledgers import metadata as ledgers_metadata
from storage.ledgers import metadata_log, waiters
from storage.ledgers import state as ledgers_state
from storage.runtime import worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.store import Store

MODULES = (
    committer,
    deletes,
    pending,
    pending_deletes,
    portions,
    journal_set,
    metadata_log,
    waiters,
    worker,
    ledgers_metadata,
    ledgers_state,
    commit_queue,
    visible,
    ledger_control,
)
OLD = [b"old 0", b"old 1", b"old 2"]


def with_old_ledger() -> tuple[Site, Store]:
    """Ledger 7 is to be deleted: the index has a part of it, and the table the rest. Ledger 8 stays."""
    site = Site()
    store = site.open()
    store.ledger(7).append_many(OLD[:2])
    store.ledger(8).append(b"other")
    site.checkpoint(store)
    store.ledger(7).append(OLD[2])
    return site, store


def is_answered(act: Callable[[], object]) -> bool:
    """Whether another thread gets an answer from a store that goes on."""
    answers: list[bool] = []

    def ask() -> None:
        try:
            act()
        except NoSuchLedger:
            answers.append(True)
        except StoreFailed:
            answers.append(False)
        else:
            answers.append(True)

    assert in_time(ask)
    return answers == [True]


ACTS: dict[str, tuple[int, Callable[[Store], object], list[list[bytes]]]] = {
    "an add": (1, lambda store: store.ledger(7).append(b"new"), [[b"new"], [*OLD, b"new"]]),
    "a delete": (2, lambda store: store.ledger(7).delete(), [[]]),
    "a close": (3, lambda store: store.close(), [[], OLD]),
}
"""By step: the first place of the Ctrl-C, the interrupted call, and the states that it may leave."""


@pytest.mark.sampled
@pytest.mark.parametrize("then", ACTS)
def test_a_ctrl_c_anywhere_in_a_delete_blocks_no_thread_and_leaves_all_of_the_ledger_or_nothing(
    then: str,
) -> None:
    place, act, left = ACTS[then]
    while True:
        site, store = with_old_ledger()
        if not interrupted(store.ledger(7).delete, place, *MODULES):
            break
        assert is_answered(partial(act, store))
        if then != "a close":
            assert is_answered(partial(store.ledger(8).append, b"more"))
        store = site.after_power_cut()
        shown = payloads(store, 7) if store.ledger(7).exists else []
        assert shown in left
        place += many(1, 3)
    assert place > 15


def test_the_tombstone_of_a_decided_delete_ends_where_the_commit_ended_whichever_thread_leads() -> None:
    site, store = with_old_ledger()
    engine = StoreInternals(store)
    delete = PendingDelete(engine.tail(7), None)
    assert engine.join(delete) is not None
    engine.flush()
    assert [one.upto for one in engine.waiting_deletes] == [engine.durable_up_to]
    store.close()  # which ends what was decided
    assert delete.is_done
    assert site.open().ledgers() == [8]


def test_a_ledger_that_enters_limbo_while_it_is_deleted_is_in_limbo_afterwards() -> None:
    _, store = with_old_ledger()
    engine = StoreInternals(store)
    engine.between_tombstone_and_answer(lambda: store.bookie.enter_limbo(7))
    store.ledger(7).delete()
    assert engine.row(7).in_limbo
    assert engine.tail(7).facts == engine.row(7)


def test_a_close_ends_a_delete_that_no_commit_has_decided_yet() -> None:
    site, store = with_old_ledger()
    engine = StoreInternals(store)
    delete = PendingDelete(engine.tail(7), None)
    assert engine.join(delete) is not None
    assert engine.waiting_deletes == ()
    store.close()
    assert delete.is_done
    assert site.open().ledgers() == [8]


def test_after_a_thread_has_ended_what_was_decided_another_delete_goes_through() -> None:
    site, store = with_old_ledger()
    engine = StoreInternals(store)
    delete = PendingDelete(engine.tail(7), None)
    assert engine.join(delete) is not None
    engine.flush()
    engine.finish_deletes()
    assert delete.is_done
    store.ledger(8).delete()
    assert store.ledgers() == site.after_power_cut().ledgers() == []


def test_a_delete_that_was_decided_is_handed_over_once_and_under_the_lock() -> None:
    _, store = with_old_ledger()
    engine = StoreInternals(store)
    delete = PendingDelete(engine.tail(7), None)
    take = engine.call(EngineCall.TAKE_DELETES)
    with engine.deletes_lock_held(), pytest.raises(LockIsHeld):
        take([delete])
    for _ in range(2):  # by a thread that resumes what a signal handler has interrupted
        take([delete])
    assert engine.waiting_deletes == (delete,)


def test_a_close_waits_for_the_delete_under_way() -> None:
    _, store = with_old_ledger()
    engine, arrived, found = StoreInternals(store), threading.Event(), list[bool]()

    def finish() -> None:
        engine.finish_deletes()
        found.append(store.ledger(7).exists)
        arrived.set()

    closing = threading.Thread(target=finish, daemon=True)

    def close_meanwhile() -> None:
        engine.hear_of_deletes_lock(arrived.set)
        closing.start()
        assert arrived.wait(10)

    engine.between_tombstone_and_answer(close_meanwhile)
    store.ledger(7).delete()
    closing.join(10)
    assert found == [False]


def test_a_thread_that_comes_when_another_one_has_made_all_deletes_writes_nothing() -> None:
    site, store = with_old_ledger()
    engine, before = StoreInternals(store), len(site.disk.trace)
    deletes = engine.begin_deletes()
    assert deletes is not None
    engine.call(EngineCall.DELETES)(deletes)
    assert (deletes.step, len(site.disk.trace)) == (ERASED, before)
    engine.end_deletes(deletes)
    store.ledger(7).delete()
    assert store.ledgers() == [8]


def test_the_commit_that_hides_a_ledger_is_asked_for_once() -> None:
    _, store = with_old_ledger()
    engine = StoreInternals(store)
    assert engine.join(PendingDelete(engine.tail(7), None)) is not None
    engine.flush()
    deletes = engine.begin_deletes()
    assert deletes is not None
    engine.write_tombstones(deletes)
    erasure = deletes.erasure
    assert [*engine.open_group.erasures] == [erasure]
    engine.flush()
    assert [*engine.delete_stages(deletes)] == []
    assert deletes.erasure is erasure
    assert [*engine.open_group.erasures] == []
    engine.end_deletes(deletes)
    assert store.ledgers() == [8]
