"""A store on a full disk: the work that goes on, the adds that are refused, and how they begin again."""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

import pytest
from bookie_clients import AddingClient
from stepped_store import JOURNAL, LEDGERS, SMALL, Site, payloads
from store_internals import StoreInternals

from recovery.crashlab import Lasting, LoseAll
from recovery.crashlab.model.disk_errors import FailedSync, Refused, When
from recovery.crashlab.model.operations import Operation, Verb
from storage.errors import DiskFull, StoreError, StoreFailed

if TYPE_CHECKING:
    from storage.config import StoreConfig
    from storage.store import Store

KIB = 1 << 10
RESERVE = 512 * KIB
FOR_OPENINGS = RESERVE // 4
CONFIG = replace(SMALL, memtable_size_max=120 * KIB, journal_size=160 * KIB, space_reserve=RESERVE)
LIMITED = replace(CONFIG, space_reserve=0, space_min_free=100 * KIB)
HUGE = 1 << 40
CLIENT = AddingClient(2, password=b"")


def used(site: Site) -> int:
    site.disk.limit(HUGE)
    return HUGE - site.disk.root().space().free


def leave_free(site: Site, size: int) -> None:
    """Let another program take all space of the disk but so much."""
    site.disk.limit(used(site) + size)


def opened(config: StoreConfig = CONFIG) -> tuple[Site, Store]:
    """Return a store with two ledgers and a full reserve."""
    site = Site(config)
    store = site.open()
    for ledger_id in (1, 2):
        store.ledger(ledger_id).append(b"first of %d" % ledger_id)
    site.workers.elapse()
    site.workers.elapse()
    return site, store


def refusal(store: Store) -> str:
    with pytest.raises(DiskFull) as caught:
        store.ledger(1).append(b"refused")
    return caught.value.reason


def fill_active_journal(store: Store) -> None:
    """Leave no room in the journal for another group of adds, and none on the disk for another journal."""
    for size in (8 * KIB, 4 * KIB, 100):
        while True:
            try:
                store.ledger(3).append(bytes(size))
            except DiskFull:
                break


# ── with no byte free ────────────────────────────────────────────────────────────────────────────────────


def test_the_reserve_is_filled_after_the_first_commit_and_not_by_an_add() -> None:
    site = Site(CONFIG)
    store = site.open()
    site.workers.elapse()
    assert "reserve" not in site.names(LEDGERS)
    store.ledger(1).append(b"first")
    assert store.stats().reserve_bytes == 0
    site.workers.elapse()
    assert (store.stats().reserve_bytes, site.names(LEDGERS, "reserve")) == (RESERVE, ["reserve"])


def test_a_fence_on_a_full_disk_gives_up_the_reserve_and_is_durable() -> None:
    site, store = opened()
    leave_free(site, 0)
    fill_active_journal(store)
    assert store.stats().reserve_bytes == RESERVE
    store.ledger(1).fence()
    assert (store.stats().reserve_bytes, site.names(LEDGERS, "reserve")) == (FOR_OPENINGS, [])
    assert site.after_power_cut().ledger(1).is_fenced


def test_an_explicit_lac_on_a_full_disk_gives_up_the_reserve_and_is_durable() -> None:
    site, store = opened()
    leave_free(site, 0)
    fill_active_journal(store)
    store.ledger(2).set_explicit_lac(0)
    assert site.after_power_cut().ledger(2).explicit_lac == 0


def test_a_delete_on_a_full_disk_gives_up_the_reserve_and_is_durable() -> None:
    site, store = opened()
    leave_free(site, 0)
    store.ledger(1).delete()
    assert store.stats().reserve_bytes == FOR_OPENINGS
    assert site.after_power_cut().ledgers() == [2]


def test_a_checkpoint_on_a_full_disk_gives_up_the_reserve_and_ends() -> None:
    site, store = opened()
    leave_free(site, 0)
    site.checkpoint(store)
    stats = store.stats()
    assert (stats.checkpoint.count, stats.reserve_bytes) == (1, FOR_OPENINGS)
    assert not stats.checkpoint.waits_for_space
    assert site.mark() > type(site.mark())(1, 0)


def test_a_collection_on_a_full_disk_gives_up_the_reserve_and_frees_the_log() -> None:
    site, store = opened(replace(CONFIG, entry_log_size_max=12 * KIB))
    for _ in range(6):
        store.ledger(3).append(bytes(3 * KIB))
        store.ledger(2).append(bytes(1 * KIB))
    site.checkpoint(store)
    store.ledger(3).delete()
    site.checkpoint(store)
    engine = StoreInternals(store)
    victims = engine.log_ids[:-1]
    before = payloads(store, 2)
    leave_free(site, 0)
    moved = [engine.move(log_id) for log_id in victims]
    assert (sum(one.entries_moved for one in moved) > 0, [one.error for one in moved]) == (
        True,
        [None] * len(victims),
    )
    removed = engine.remove(*victims)
    assert (removed.logs_removed, removed.error) == (tuple(victims), None)
    assert store.stats().reserve_bytes == FOR_OPENINGS
    assert payloads(site.after_power_cut(), 2) == before


def test_adds_are_refused_while_the_reserve_is_gone_even_if_there_is_space() -> None:
    site, store = opened()
    leave_free(site, 0)
    store.ledger(1).delete()
    leave_free(site, RESERVE)
    site.workers.elapse()
    with pytest.raises(DiskFull) as caught:
        store.ledger(2).append(b"refused")
    assert "the reserve of 0.5 MiB is in use" in caught.value.reason
    assert caught.value.reason in str(caught.value)
    assert store.stats().read_only == caught.value.reason
    with pytest.raises(DiskFull):
        store.ledger(2).submit(b"refused")
    assert payloads(store, 2) == [b"first of 2"]


def test_adds_of_recoveries_are_refused_too_while_the_reserve_is_gone() -> None:
    site, store = opened()
    leave_free(site, 0)
    store.ledger(1).delete()
    with pytest.raises(DiskFull):
        store.bookie.recover(CLIENT.entry(1, b"recovered"), CLIENT.key)


def test_adds_resume_by_themselves_when_the_reserve_is_whole_again() -> None:
    site, store = opened()
    leave_free(site, 0)
    store.ledger(1).delete()
    leave_free(site, 2 * RESERVE + 64 * KIB)
    site.workers.elapse()
    site.workers.elapse()
    assert (store.stats().reserve_bytes, store.stats().read_only) == (RESERVE, None)
    assert store.ledger(2).append(b"resumed") == 1
    assert payloads(site.after_power_cut(), 2) == [b"first of 2", b"resumed"]


def test_the_reserve_is_not_filled_again_while_there_is_no_room_for_it_twice() -> None:
    site, store = opened()
    leave_free(site, 0)
    store.ledger(1).delete()
    leave_free(site, 2 * (RESERVE - FOR_OPENINGS) - 4 * KIB)
    for _ in range(3):
        site.workers.elapse()
    assert store.stats().reserve_bytes == FOR_OPENINGS
    assert site.names(LEDGERS, "reserve.draft") == []


def test_a_full_disk_is_met_again_while_the_reserve_is_being_filled() -> None:
    site, store = opened()
    leave_free(site, 0)
    store.ledger(1).delete()
    site.disk.limit(None)
    site.disk.plant(
        Refused(When(verb=Verb.ZERO_FILL, name="reserve*", lasting=Lasting.UNTIL_MENDED), errno.EDQUOT)
    )
    site.workers.run()
    assert store.stats().read_only is not None
    site.disk.mend()
    site.workers.elapse()
    assert store.stats().read_only is None


@pytest.mark.parametrize("name", ["remove", "sync"])
def test_an_error_while_the_reserve_is_given_up_stops_the_store(name: str) -> None:
    site, store = opened()
    leave_free(site, 0)
    when = When(verb=Verb.REMOVE, name="reserve") if name == "remove" else When(verb=Verb.SYNC_DIRECTORY)
    site.disk.plant(Refused(when) if name == "remove" else FailedSync(when))
    with pytest.raises(StoreFailed):
        store.ledger(1).delete()
    site.disk.limit(None)
    site.disk.mend()
    assert 2 in site.after_power_cut().ledgers()


def test_a_failed_sync_without_an_error_of_space_never_gives_up_the_reserve() -> None:
    site, store = opened()
    site.disk.plant(FailedSync(When(verb=Verb.SYNC, name="ledgers.rows*")))
    store.ledger(1).delete()
    assert store.stats().reserve_bytes == RESERVE


def test_a_checkpoint_that_meets_another_error_never_gives_up_the_reserve() -> None:
    site, store = opened()
    site.disk.plant(Refused(When(verb=Verb.WRITE, name="*.log*")))
    site.checkpoint(store)
    assert store.stats().checkpoint.count == 1
    assert not [one for one in site.disk.trace if one.verb is Verb.REMOVE and one.path.endswith("/reserve")]


def test_no_file_is_synced_again_after_a_full_disk_was_met_in_its_sync() -> None:
    site, store = opened()
    store.ledger(1).delete()
    before = len(site.disk.trace)
    site.disk.plant(FailedSync(When(verb=Verb.SYNC, name="ledgers.rows*"), error=errno.ENOSPC))
    store.ledger(2).delete()
    syncs = [one.node for one in site.disk.trace[before:] if one.verb is Verb.SYNC]
    failed = next(
        one.node for one in site.disk.trace[before:] if one.verb is Verb.SYNC and one.outcome != "done"
    )
    assert syncs.count(failed) == 1
    assert site.after_power_cut().ledgers() == []


def test_a_fence_in_the_group_of_refused_adds_is_durable_and_the_adds_are_not() -> None:
    site, store = opened()
    leave_free(site, 0)
    fill_active_journal(store)
    waiting = store.ledger(3).submit(bytes(8 * KIB))
    store.ledger(1).fence()
    site.workers.run()
    assert isinstance(waiting.exception(0), DiskFull)
    assert site.after_power_cut().ledger(1).is_fenced


def test_a_delete_in_the_group_of_refused_adds_makes_room_and_is_durable() -> None:
    site, store = opened()
    leave_free(site, 0)
    fill_active_journal(store)
    waiting = store.ledger(3).submit(bytes(8 * KIB))
    store.ledger(1).delete()
    assert isinstance(waiting.exception(0), DiskFull)
    assert store.stats().reserve_bytes == FOR_OPENINGS
    assert 1 not in site.after_power_cut().ledgers()


@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
def test_a_store_is_opened_with_no_byte_free(end: str) -> None:
    site, store = opened()
    leave_free(site, 0)
    if end == "close":
        store.close()
    again = {"close": site.open, "kill": site.after_kill, "power cut": site.after_power_cut}[end]()
    assert [payloads(again, one) for one in (1, 2)] == [[b"first of 1"], [b"first of 2"]]
    again.ledger(2).delete()
    again.close()
    site.disk.limit(None)
    third = site.open()
    site.workers.elapse()
    site.workers.elapse()
    assert third.ledger(1).append(b"resumed") == 1


@pytest.mark.parametrize("end", ["kill", "power cut"])
def test_a_store_without_its_reserve_is_opened_with_no_byte_free(end: str) -> None:
    site, store = opened()
    leave_free(site, 0)
    store.ledger(1).delete()
    store.ledger(2).fence()
    leave_free(site, 0)
    again = site.after_kill() if end == "kill" else site.after_power_cut()
    assert (again.ledgers(), again.ledger(2).is_fenced) == ([2], True)
    assert again.stats().reserve_bytes == 0
    assert payloads(again, 2) == [b"first of 2"]


@pytest.mark.parametrize("end", ["kill", "power cut"])
def test_an_opening_frees_drafts_and_backups_when_there_is_no_reserve(end: str) -> None:
    site = Site(replace(CONFIG, space_reserve=0, journal_max_backups=9))
    store = site.open()
    for _ in range(4):
        for _ in range(10):
            store.ledger(1).append(bytes(8 * KIB))
        site.checkpoint(store)
    store.ledger(1).append(b"last")
    assert len(site.names(JOURNAL, ".txn")) > 2
    leave_free(site, 0)
    again = site.after_kill() if end == "kill" else site.after_power_cut()
    assert payloads(again, 1) == [*[bytes(8 * KIB)] * 40, b"last"]


def test_an_opening_that_finds_no_space_anywhere_is_refused_and_loses_nothing() -> None:
    site = Site(replace(CONFIG, space_reserve=0))
    store = site.open()
    store.ledger(1).append(b"first")
    leave_free(site, 0)
    with pytest.raises(DiskFull):
        site.after_kill()
    site.disk.limit(None)
    assert payloads(site.open(), 1) == [b"first"]


def test_a_store_that_was_killed_without_its_reserve_refuses_adds_until_there_is_room() -> None:
    site, store = opened()
    leave_free(site, 0)
    store.ledger(1).delete()
    again = site.after_kill()
    assert "the reserve of 0.5 MiB is in use" in refusal(again)
    site.disk.limit(None)
    site.workers.elapse()
    site.workers.elapse()
    assert again.ledger(2).append(b"resumed") == 1


def test_a_reserve_that_is_too_small_by_now_is_filled_again_after_a_checkpoint() -> None:
    site, store = opened()
    store.close()
    site.config = replace(CONFIG, space_reserve=4 * RESERVE)
    again = site.open()
    again.ledger(1).append(b"second")
    site.checkpoint(again)
    site.workers.elapse()
    site.workers.elapse()
    assert again.stats().reserve_bytes == 4 * RESERVE


def test_a_reserve_that_is_switched_off_is_removed() -> None:
    site, store = opened()
    store.close()
    site.config = replace(CONFIG, space_reserve=0)
    again = site.open()
    again.ledger(1).append(b"second")
    site.workers.elapse()
    assert site.names(LEDGERS, "reserve") == []


def test_a_close_removes_the_draft_of_a_reserve() -> None:
    site = Site(replace(CONFIG, space_reserve=16 << 20))
    store = site.open()
    store.ledger(1).append(b"first")
    site.workers.run()
    for worker in site.workers.by_name.values():
        worker.elapse()
    site.workers.step()
    assert site.names(LEDGERS, ".draft") == ["reserve.opening.draft"]
    store.close()
    assert site.names(LEDGERS, ".draft") == []


# ── backups first ────────────────────────────────────────────────────────────────────────────────────────


def test_journal_backups_go_before_an_add_is_refused() -> None:
    site = Site(replace(CONFIG, journal_max_backups=9))
    store = site.open()
    for _ in range(3):
        for _ in range(12):
            store.ledger(1).append(bytes(8 * KIB))
        site.checkpoint(store)
    site.workers.elapse()
    site.workers.elapse()
    before = len(site.names(JOURNAL, ".txn"))
    leave_free(site, 0)
    for _ in range(14):
        store.ledger(1).append(bytes(8 * KIB))
    assert len(site.names(JOURNAL, ".txn")) < before
    assert store.stats().reserve_bytes == RESERVE


def test_a_backup_that_cannot_be_removed_leaves_the_way_to_the_reserve() -> None:
    site = Site(replace(CONFIG, journal_max_backups=9))
    store = site.open()
    for _ in range(2):
        for _ in range(12):
            store.ledger(1).append(bytes(8 * KIB))
        site.checkpoint(store)
    site.workers.elapse()
    site.workers.elapse()
    leave_free(site, 0)
    site.disk.plant(Refused(When(verb=Verb.REMOVE, name="*.txn", lasting=Lasting.UNTIL_MENDED)))
    store.ledger(1).delete()
    assert (store.stats().failed, store.stats().reserve_bytes) == (None, FOR_OPENINGS)


def test_free_space_that_cannot_be_read_changes_nothing() -> None:
    site, store = opened(LIMITED)
    guard = StoreInternals(store).space_of(SimpleNamespace(space=_refuse_to_tell))
    guard.check()
    guard.review()
    assert store.ledger(1).append(b"second") == 1
    site.checkpoint(store)
    assert store.stats().failed is None


def _refuse_to_tell() -> NoReturn:
    raise OSError(errno.EIO, "unreadable")


# ── before the disk is full ──────────────────────────────────────────────────────────────────────────────


def test_below_the_limit_adds_are_refused_and_other_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    site, store = opened(LIMITED)
    leave_free(site, 130 * KIB)
    with caplog.at_level(logging.INFO, "ledgerstore"):
        site.checkpoint(store)
    leave_free(site, 90 * KIB)
    store.ledger(1).append(b"second")
    site.checkpoint(store)
    assert "less than the limit of" in refusal(store)
    assert [record.levelname for record in caplog.records if "adds are" in record.message] == ["WARNING"]
    store.ledger(1).fence()
    store.ledger(2).delete()
    store.close()


def test_adds_resume_at_twice_the_limit_and_not_before(caplog: pytest.LogCaptureFixture) -> None:
    site, store = opened(LIMITED)
    leave_free(site, 90 * KIB)
    site.checkpoint(store)
    refusal(store)
    leave_free(site, 190 * KIB)
    site.workers.elapse()
    refusal(store)
    leave_free(site, 200 * KIB)
    with caplog.at_level(logging.INFO, "ledgerstore"):
        site.workers.elapse()
    assert store.ledger(1).append(b"resumed") == 1
    assert "adds are accepted again" in caplog.text
    leave_free(site, 110 * KIB)
    site.checkpoint(store)
    assert store.ledger(1).append(b"between the limits") == 2


def test_below_the_limit_the_adds_of_recoveries_go_on() -> None:
    site, store = opened(LIMITED)
    leave_free(site, 90 * KIB)
    site.checkpoint(store)
    refusal(store)
    store.bookie.recover(CLIENT.entry(1, b"recovered"), CLIENT.key)
    assert store.ledger(2).read(1).payload == b"recovered"


def test_a_store_that_is_opened_below_the_limit_refuses_adds_at_once() -> None:
    site, store = opened(LIMITED)
    store.close()
    leave_free(site, 90 * KIB)
    assert "less than the limit of" in refusal(site.open())


def test_a_share_of_the_disk_is_a_limit_too() -> None:
    size = 4 << 20
    site = Site(replace(LIMITED, space_min_free=0, space_usage_max=0.9, space_usage_resume=0.8))
    store = site.open()
    store.ledger(1).append(b"first")
    other = site.disk.root().create("other")
    site.disk.limit(size)
    filled = size - site.disk.root().space().free
    other.zero_fill(0, int(0.91 * size) - filled)
    site.checkpoint(store)
    assert "adds resume when 0.8 MiB are free" in refusal(store)
    site.disk.limit(None)
    site.workers.elapse()
    assert store.ledger(1).append(b"resumed") == 1


def test_with_little_space_a_checkpoint_keeps_no_backups() -> None:
    site = Site(replace(LIMITED, journal_max_backups=9))
    store = site.open()
    for _ in range(2):
        for _ in range(12):
            store.ledger(1).append(bytes(8 * KIB))
        site.checkpoint(store)
    assert len(site.names(JOURNAL, ".txn")) > 1
    leave_free(site, 199 * KIB)
    site.checkpoint(store)
    store.ledger(1).append(b"more")
    site.checkpoint(store)
    assert len(site.names(JOURNAL, ".txn")) == 1


# ── at every operation ───────────────────────────────────────────────────────────────────────────────────


def work_on(store: Store) -> None:
    store.ledger(1).fence()
    store.ledger(2).set_explicit_lac(0)
    store.ledger(2).delete()


@cache
def operations() -> tuple[Operation, ...]:
    """Return the operations of the work and of the checkpoint after it, on a disk with space."""
    site, store = opened()
    before = len(site.disk.trace)
    work_on(store)
    site.checkpoint(store)
    return site.disk.trace[before:]


def takes_space(operation: Operation) -> bool:
    """Return whether a real disk may be full there. Groups go into space that was filled before."""
    if operation.verb is Verb.WRITE and ".txn" in operation.path:
        return operation.offset == 0
    return operation.verb in (Verb.CREATE, Verb.WRITE, Verb.ZERO_FILL)


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("nth", range(len(operations())))
def test_a_full_disk_at_any_operation_stops_no_fence_no_delete_and_no_checkpoint(nth: int) -> None:
    site, store = opened()
    number = len(site.disk.trace) + nth + 1
    site.disk.plant(Refused(When(number=number), errno.ENOSPC))
    if takes_space(operations()[nth]):
        work_on(store)
        site.checkpoint(store)
        assert (store.stats().checkpoint.count, store.stats().failed) == (1, None)
    else:
        with suppress(StoreError, OSError):
            work_on(store)
        with suppress(StoreError, OSError):
            site.checkpoint(store)
    # Operations that were answered are durable, although the failed one may have stopped the store.
    answered = store.ledger(1).is_fenced, 2 not in store.ledgers()
    again = site.after_power_cut()
    assert again.ledger(1).is_fenced >= answered[0]
    assert (2 not in again.ledgers()) >= answered[1]
    assert payloads(again, 1) == [b"first of 1"]


@cache
def openings(end: str) -> tuple[Operation, ...]:
    site = interrupted(end)
    before = len(site.disk.trace)
    site.open()
    return site.disk.trace[before:]


def interrupted(end: str) -> Site:
    """Return a store that ended with a fence and a delete after its last checkpoint."""
    site, store = opened()
    work_on(store)
    store.ledger(1).delete()
    store.ledger(3).append(b"last")
    if end == "kill":
        site.disk.kill()
    else:
        site.disk.power_cut(LoseAll())
    return site


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "power cut"])
def test_a_full_disk_at_any_operation_of_an_opening_refuses_no_opening(end: str) -> None:
    for nth, operation in enumerate(openings(end)):
        if not takes_space(operation):
            continue
        site = interrupted(end)
        site.disk.plant(Refused(When(number=len(site.disk.trace) + nth + 1), errno.ENOSPC))
        store = site.open()
        assert (store.ledgers(), payloads(store, 3)) == ([3], [b"last"])
