"""Records move to the log in use, dead logs are removed, and tombstones that kill nothing are purged."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped_store import LEDGERS, SMALL, Site, payloads
from store_internals import StoreInternals

from recovery.crashlab import Lasting, Refused, Verb, When
from storage.errors import NoSuchLedger
from storage.gc.proof import KeptBecause

if TYPE_CHECKING:
    from collections.abc import Generator

    from storage.gc.compactor import Moved
    from storage.runtime.worker import Pause
    from storage.store import Store

SMALL_LOGS = replace(SMALL, entry_log_size_max=16 << 10)
PAYLOAD = 700
KEPT, DELETED = (1, 3), (0, 2)


def added(ledger_id: int, count: int = 16) -> list[bytes]:
    return [bytes([65 + ledger_id]) * PAYLOAD] * count


def fill(site: Site, store: Store) -> list[int]:
    """Add entries of four ledgers in four checkpoints; return the ids of the logs."""
    for _ in range(4):
        for ledger_id in (*KEPT, *DELETED):
            store.ledger(ledger_id).append_many(added(ledger_id, 4))
        site.checkpoint(store)
    logs = StoreInternals(store).log_ids
    assert len(logs) > 3
    return logs


def delete(site: Site, store: Store, *ledger_ids: int) -> None:
    for ledger_id in ledger_ids:
        store.ledger(ledger_id).delete()
    site.checkpoint(store)


def compact(store: Store, logs: list[int]) -> None:
    for log_id in logs:
        moved = StoreInternals(store).move(log_id)
        assert moved.why_kept is None


def check(store: Store) -> None:
    """Check that the store has exactly the ledgers that were not deleted, with all of their entries."""
    assert store.ledgers() == list(KEPT)
    assert [payloads(store, one) for one in KEPT] == [added(one) for one in KEPT]
    with pytest.raises(NoSuchLedger):
        store.ledger(DELETED[0]).read(0)


def names(site: Site) -> set[str]:
    return set(site.names(LEDGERS, ".log"))


# ── moves and removals ───────────────────────────────────────────────────────────────────────────────────


def test_moved_entries_are_read_and_their_logs_are_removed() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED)

    compact(store, logs[:-1])
    removed = StoreInternals(store).remove(*logs[:-1])

    assert list(removed.logs_removed) == logs[:-1]
    assert removed.why_kept == ()
    assert names(site).isdisjoint(f"{one:x}.log" for one in logs[:-1])
    check(store)
    check(site.after_kill())
    check(site.after_power_cut())


def test_a_move_counts_what_it_has_moved() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    first = fill(site, store)[0]
    delete(site, store, *DELETED)

    moved = StoreInternals(store).move(first)

    assert moved.entries_moved > 0
    assert moved.bytes_moved == moved.entries_moved * (PAYLOAD + 40)
    assert moved.bytes_read > moved.bytes_moved
    assert StoreInternals(store).move(first).entries_moved == 0


def test_a_move_of_many_slices_moves_and_counts_every_record() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED)
    whole = [StoreInternals(store).move(one) for one in logs[:2]]
    StoreInternals(store).make_each_chunk_a_slice()

    in_slices = StoreInternals(store).move(logs[2])

    assert in_slices.entries_moved == whole[0].entries_moved == whole[1].entries_moved > 4
    assert in_slices.bytes_moved == whole[0].bytes_moved
    assert in_slices.why_kept is None
    assert list(StoreInternals(store).remove(logs[2]).logs_removed) == [logs[2]]
    check(site.after_power_cut())


def until_it_waits(verb: Generator[Pause, None, Moved]) -> int:
    """Take the steps of a move up to the first one that waits for the runner. Return their number."""
    count = 0
    while next(verb) is not None:
        count += 1
    return count


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a step read the four entries that a log has of a ledger."""
    monkeypatch.setattr("storage.gc.log_walk.BLOCK_SIZE", 4 * (PAYLOAD + 40))


@pytest.mark.usefixtures("small_blocks")
def test_one_slice_is_read_ahead_while_the_runner_moves_the_one_before() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    first = fill(site, store)[0]
    StoreInternals(store).make_each_chunk_a_slice()
    generation = StoreInternals(store).index_state.generation
    verb = StoreInternals(store).compactor.move(first)

    assert until_it_waits(verb) == 2  # one slice is with the runner, and one more was read
    assert StoreInternals(store).index_state.generation == generation
    moved = StoreInternals(store).run(verb)

    assert moved.entries_moved == 16
    assert StoreInternals(store).index_state.generation == generation + 4


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("trouble", ["refused read", "damaged record"])
def test_what_ends_the_reading_does_not_end_the_slice_under_way(trouble: str) -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    first = fill(site, store)[0]
    StoreInternals(store).make_each_chunk_a_slice()
    if trouble == "damaged record":
        site.flip(f"{LEDGERS}/{first:x}.log", 4096 + 10 * (PAYLOAD + 40) + 100)
    verb = StoreInternals(store).compactor.move(first)
    until_it_waits(verb)
    if trouble == "refused read":
        site.disk.plant(Refused(When(verb=Verb.READ, name=f"{first:x}.log"), errno.EIO))

    moved = StoreInternals(store).run(verb)

    assert moved.entries_moved == 8
    assert moved.why_kept is not None
    because = KeptBecause.FAILED if trouble == "refused read" else KeptBecause.DAMAGED
    assert moved.why_kept.because is because
    assert (moved.error is not None) == (trouble == "refused read")
    assert StoreInternals(store).remove(first).why_kept[0].log_id == first


@pytest.mark.usefixtures("small_blocks")
def test_a_move_that_is_given_up_is_settled_when_the_runner_has_followed_its_last_order() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    first = fill(site, store)[0]
    StoreInternals(store).make_each_chunk_a_slice()
    verb = StoreInternals(store).compactor.move(first)
    until_it_waits(verb)
    verb.close()

    settling = StoreInternals(store).compactor.settle()
    assert [next(settling) for _ in range(3)] == [None] * 3
    StoreInternals(store).run(settling)

    assert StoreInternals(store).move(first).entries_moved == 12
    check_all(site.after_power_cut())


def check_all(store: Store) -> None:
    """Check that the store has all entries of all ledgers."""
    ledgers = sorted((*KEPT, *DELETED))
    assert store.ledgers() == ledgers
    assert [payloads(store, one) for one in ledgers] == [added(one) for one in ledgers]


def test_a_disk_that_is_full_in_the_middle_ends_a_move_after_the_slices_before() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    first = fill(site, store)[0]
    delete(site, store, *DELETED)
    StoreInternals(store).make_each_chunk_a_slice()
    site.disk.plant(Refused(When(verb=Verb.CREATE, name="index.draft", nth=2), errno.ENOSPC))

    moved = StoreInternals(store).move(first)

    assert moved.error is not None
    assert moved.why_kept is not None
    assert moved.why_kept.because is KeptBecause.FAILED
    assert moved.entries_moved > 0
    check(site.after_kill())


def test_a_log_that_cannot_be_read_is_not_moved_and_the_error_is_told() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    first = fill(site, store)[0]
    site.disk.plant(Refused(When(verb=Verb.READ, name=f"{first:x}.log"), errno.EIO))

    moved = StoreInternals(store).move(first)

    assert (moved.entries_moved, moved.error is not None) == (0, True)
    assert moved.why_kept is not None
    assert moved.why_kept.because is KeptBecause.FAILED
    assert StoreInternals(store).move(first).error is None


def test_a_log_with_live_records_is_kept() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED)

    removed = StoreInternals(store).remove(*logs)

    assert removed.logs_removed == ()
    assert {one.because for one in removed.why_kept} == {KeptBecause.LIVE, KeptBecause.LAST}


def test_the_last_log_is_never_collected() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *KEPT, *DELETED)

    removed = StoreInternals(store).remove(*logs)

    assert [one.log_id for one in removed.why_kept] == [logs[-1]]
    assert StoreInternals(store).move(logs[-1]).why_kept == removed.why_kept[0]
    assert removed.why_kept[0].because is KeptBecause.LAST
    assert names(site) == {f"{logs[-1]:x}.log"}


def test_ids_of_removed_logs_are_not_given_out_again() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED)
    compact(store, logs[:-1])
    StoreInternals(store).remove(*logs[:-1])
    last = StoreInternals(store).log_ids[-1]

    store = site.after_power_cut()
    store.ledger(9).append(b"new")
    site.checkpoint(store)

    assert StoreInternals(store).log_ids[-1] == last + 1


def test_a_log_that_the_store_does_not_have_is_named() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    fill(site, store)

    assert StoreInternals(store).move(99).why_kept == StoreInternals(store).remove(99).why_kept[0]
    assert StoreInternals(store).remove(99).why_kept[0].because is KeptBecause.NOT_COMMITTED


def test_overwritten_entries_are_dead_and_not_moved() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    for ledger_id in (*KEPT, *DELETED):
        for entry in list(store.ledger(ledger_id).entries()):
            store.add(replace(entry, payload=entry.payload.lower()))
    site.checkpoint(store)

    assert StoreInternals(store).move(logs[0]).entries_moved == 0
    assert StoreInternals(store).remove(logs[0]).logs_removed == (logs[0],)
    assert payloads(store, 1) == [one.lower() for one in added(1)]


def test_an_unlink_that_fails_is_tried_again_and_the_log_stays_gone_until_then() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED, *KEPT)
    site.disk.plant(Refused(When(verb=Verb.REMOVE)))

    removed = StoreInternals(store).remove(logs[0])
    store.ledger(9).append(b"x")
    site.checkpoint(store)

    assert removed.logs_removed == (logs[0],)
    assert removed.error is not None
    assert StoreInternals(store).index_state.gone == (logs[0],)
    assert f"{logs[0]:x}.log" in names(site)
    site.disk.mend()
    StoreInternals(store).remove()
    assert f"{logs[0]:x}.log" not in names(site)
    assert StoreInternals(store).index_state.gone == ()


def test_a_sweep_changes_the_index_once_and_only_when_a_file_is_gone() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED)
    compact(store, logs[:1])
    site.disk.plant(Refused(When(verb=Verb.REMOVE, name="*.log", lasting=Lasting.UNTIL_MENDED)))
    StoreInternals(store).remove(logs[0])
    before = StoreInternals(store).index_state
    assert before.gone == (logs[0],)

    assert StoreInternals(store).remove().error is not None
    assert StoreInternals(store).index_state == before

    site.disk.mend()
    assert StoreInternals(store).remove().error is None
    after = StoreInternals(store).index_state
    assert (after.generation, after.gone) == (before.generation + 1, ())
    check(site.after_power_cut())


def test_a_file_that_cannot_be_unlinked_does_not_keep_other_logs() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED)
    compact(store, logs[:2])
    first, second = (f"{one:x}.log" for one in logs[:2])
    site.disk.plant(Refused(When(verb=Verb.REMOVE, name=first, lasting=Lasting.UNTIL_MENDED), errno.EPERM))
    StoreInternals(store).remove(logs[0])

    removed = StoreInternals(store).remove(logs[1])

    assert removed.logs_removed == (logs[1],)
    assert removed.error is not None
    assert {first, second} & names(site) == {first}
    check(site.after_power_cut())


def test_a_store_is_opened_although_a_removed_log_cannot_be_unlinked() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED)
    compact(store, logs[:1])
    name = f"{logs[0]:x}.log"
    site.disk.plant(Refused(When(verb=Verb.REMOVE, name=name, lasting=Lasting.UNTIL_MENDED), errno.EPERM))
    assert StoreInternals(store).remove(logs[0]).error is not None
    store.close()

    store = site.open()
    check(store)
    assert name in names(site)
    assert StoreInternals(store).index_state.gone == (logs[0],)
    site.disk.mend()
    store.close()
    store = site.open()
    check(store)
    assert name not in names(site)


def test_logs_whose_unlink_is_durable_are_forgotten_by_the_next_checkpoint() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED, *KEPT)
    StoreInternals(store).remove(logs[0])
    assert StoreInternals(store).index_state.gone == (logs[0],)

    store.ledger(9).append(b"x")
    site.checkpoint(store)

    assert StoreInternals(store).index_state.gone == ()


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["length", "payload"])
def test_a_damaged_log_is_left_alone_with_its_finding(what: str) -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED)
    name = f"{LEDGERS}/{logs[0]:x}.log"
    at = site.bytes_of(name).index(b"B" * PAYLOAD)
    site.flip(name, at if what == "payload" else at - 40)
    store = site.after_kill()
    last = StoreInternals(store).log_ids[-1]

    moved = StoreInternals(store).move(logs[0])
    removed = StoreInternals(store).remove(logs[0])

    assert moved.why_kept is not None
    assert moved.why_kept.because is KeptBecause.DAMAGED
    assert moved.why_kept.finding == ("ELG-003" if what == "payload" else "ELG-004")
    assert moved.why_kept.offset == at - 40
    assert removed.logs_removed == ()
    assert removed.why_kept[0].because in (KeptBecause.DAMAGED, KeptBecause.LIVE)
    assert (moved.entries_moved, last) == (0, StoreInternals(store).log_ids[-1])


# ── tombstones ───────────────────────────────────────────────────────────────────────────────────────────


def with_tombstones_that_kill_nothing() -> tuple[Site, Store]:
    """A store with tombstones that can be purged: no log and no journal has what they kill."""
    site = Site(SMALL_LOGS)
    store = site.open()
    logs = fill(site, store)
    delete(site, store, *DELETED)
    assert StoreInternals(store).purge_tombstones().tombstones_purged == 0  # the logs have what they kill
    compact(store, logs[:-1])
    StoreInternals(store).remove(*logs[:-1])
    store.close()
    store = site.open()
    store.ledger(9).append_many(added(9))
    site.checkpoint(store)
    last = StoreInternals(store).log_ids[0]
    compact(store, [last])
    StoreInternals(store).remove(last)
    delete(site, store, 9)
    return site, store


def test_tombstones_are_purged_when_no_log_and_no_journal_has_what_they_kill() -> None:
    site, store = with_tombstones_that_kill_nothing()

    purged = StoreInternals(store).purge_tombstones()

    assert purged.tombstones_purged == len(DELETED)
    assert purged.tombstones_left == 1  # its number is the largest
    check(store)
    check(site.after_power_cut())


def test_after_a_read_error_the_next_purge_purges() -> None:
    site, store = with_tombstones_that_kill_nothing()
    for _ in range(2):
        store.ledger(8).append_many(added(8))  # until the log that the tombstone of 9 reaches is not the last
        site.checkpoint(store)
    site.disk.plant(Refused(When(verb=Verb.OPEN, name="*.log")))

    refused = StoreInternals(store).purge_tombstones()
    purged = StoreInternals(store).purge_tombstones()

    assert (refused.tombstones_purged, refused.error is not None) == (0, True)
    assert purged.tombstones_purged == len(DELETED)


def test_after_a_failed_sync_of_the_journals_nothing_is_purged_before_the_next_opening() -> None:
    site, store = with_tombstones_that_kill_nothing()
    site.disk.plant(Refused(When(verb=Verb.SYNC_DIRECTORY, name="current")))

    assert StoreInternals(store).purge_tombstones().error is not None
    assert StoreInternals(store).purge_tombstones().tombstones_purged == 0

    store = site.after_kill()
    site.checkpoint(store)
    assert StoreInternals(store).purge_tombstones().tombstones_purged == len(DELETED)
    check(site.after_power_cut())
