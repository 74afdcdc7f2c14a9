"""Bugs that were found by constructing bad schedules on purpose, each with its schedule."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from keyboard_interrupts import interrupted
from sampling import every, many
from stepped_store import LEDGERS, SMALL, Site, payloads
from store_internals import EngineCall, StoreInternals, access_of, is_told_to_stop, wake_with

from recovery import open_store, open_view
from recovery.crashlab import FailedSync, Lasting, Refused, Stopped, Verb, When
from storage import (
    DigestType,
    DiskFull,
    Entry,
    InvalidEntry,
    LedgerFenced,
    StoreClosed,
    StoreConfig,
    StoreFailed,
)
from storage.commit import committer, deletes, ledger_control, pending, portions
from storage.commit import queue as commit_queue
from storage.commit.pending import PendingEntries, PendingFence, PendingLac
from storage.entry import format as entry_format
from storage.entry.credentials import Access
from storage.entry.digest import Digester
from storage.entry.model import ID_MAX
from storage.journal import journal_set
from storage.journal import writer as journal_writer
from storage.ledger import Ledger
from storage.ledgers import metadata as ledgers_metadata
from storage.ledgers import metadata_log, waiters
from storage.ledgers import state as ledgers_state
from storage.memtable import table as memtable_table
from storage.open_report import IndexFound
from storage.runtime import worker as runtime_worker
from storage.runtime.worker import ThreadWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.commit.pending import PendingGroup
    from storage.store import Store

ADDS = (
    committer,
    pending,
    portions,
    journal_writer,
    journal_set,
    memtable_table,
    ledgers_state,
    commit_queue,
)
"""The modules whose code an add runs."""

QUIET = StoreConfig(checkpoint_interval_s=None, idle_seal_s=None)


def in_time(act: Callable[[], object]) -> bool:
    """Return whether the call returns in time. If not, its daemon thread keeps running."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def enter(store: Store, ledger_id: int, *texts: bytes) -> tuple[PendingEntries, PendingGroup]:
    work = PendingEntries(StoreInternals(store).tail(ledger_id), access_of(store.ledger(ledger_id)), texts)
    group = StoreInternals(store).join(work)
    assert group is not None
    return work, group


# ── hangs ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_that_is_stopped_while_it_wakes_up_ends() -> None:
    at_clear, may_clear = threading.Event(), threading.Event()

    class Late(threading.Event):
        def clear(self) -> None:
            at_clear.set()
            assert may_clear.wait(10)
            super().clear()

    worker = ThreadWorker("late", lambda: None, lambda error: None)
    woken = wake_with(worker, Late())
    worker.wake()
    assert at_clear.wait(10)
    stopping = threading.Thread(target=worker.stop, daemon=True)
    stopping.start()
    assert woken.wait(10)
    while not is_told_to_stop(worker):
        pass
    may_clear.set()
    stopping.join(10)
    assert not stopping.is_alive()


def test_a_callback_of_a_future_may_add_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data", QUIET)
    ledger, ids = store.ledger(1), []

    def chain() -> None:
        future = ledger.submit(b"one")
        future.add_done_callback(lambda done: ids.extend([done.result(), ledger.append(b"two")]))
        ledger.append(b"or so")

    assert in_time(chain)
    assert in_time(store.close)
    assert sorted(ids) == [0, 2]


def _add_one(store: Store) -> None:
    store.add(Entry(1, 1, 0, 7, b"one"))


def _append_one(store: Store) -> None:
    store.ledger(1).append(b"one")


@pytest.mark.slow
@pytest.mark.parametrize("add", [_add_one, _append_one])
def test_a_ctrl_c_anywhere_in_an_add_is_raised_when_it_is_durable_or_before_it_began(
    add: Callable[[Store], None],
) -> None:
    number = 0
    while True:
        number += 1
        site = Site()
        store = site.open()
        ledger = store.ledger(1)
        ledger.append(b"zero")
        if not interrupted(partial(add, store), number, *ADDS):
            break
        cut = Site(disk=site.disk.copy())
        there = payloads(store, 1)
        assert payloads(cut.after_power_cut(), 1) == there, f"interrupted at place {number}"
        assert there in ([b"zero"], [b"zero", b"one"]), f"interrupted at place {number}"
        # By another thread, which would wait for ever for a commit that was left in its middle.
        assert in_time(partial(ledger.append, b"two")), f"interrupted at place {number}"
        assert payloads(site.after_power_cut(), 1) == [*there, b"two"], f"interrupted at place {number}"
    assert number > 40


@pytest.mark.slow
@pytest.mark.parametrize("add", [_add_one, _append_one])
def test_a_ctrl_c_anywhere_in_an_add_leaves_no_waiter_asleep(add: Callable[[Store], None]) -> None:
    number = 0
    while True:
        number += 1
        store, heard = Site().open(), list[str]()
        store.ledger(1).append(b"zero")
        StoreInternals(store).on_change(1, partial(heard.append, "of a change"))
        if not interrupted(partial(add, store), number, *ADDS, waiters):
            break
        if StoreInternals(store).failure is not None or store.ledger(1).last_entry_id == 1:
            assert heard, f"interrupted at place {number}"
    assert heard
    assert number > 35


def _try_to_add(ledger: Ledger) -> None:
    with suppress(StoreFailed, LedgerFenced):
        ledger.append(b"one")


@pytest.mark.sampled
# The calling thread only begins a delete: a thread in which no handler runs makes the rest.
@pytest.mark.parametrize(("speak", "places_min"), [(Ledger.delete, 20), (Ledger.fence, 100)])
def test_after_a_ctrl_c_anywhere_in_a_fence_or_a_delete_the_next_caller_can_add(
    speak: Callable[[Ledger], object], places_min: int
) -> None:
    number = 0
    while True:
        number += many(1, 5)
        site = Site()
        ledger = site.open().ledger(1)
        ledger.append(b"zero")
        if not interrupted(
            partial(speak, ledger),
            number,
            *(*ADDS, ledger_control, ledgers_metadata, deletes, metadata_log, runtime_worker),
        ):
            break

        assert in_time(partial(_try_to_add, ledger)), f"interrupted at place {number}"
        store = site.after_kill()
        found = payloads(store, 1) if store.ledger(1).exists else []
        assert found in ([b"zero"], [b"zero", b"one"], [b"one"])
        assert found == [b"zero"] or speak is Ledger.delete or not store.ledger(1).is_fenced
    assert number > places_min


def test_a_callback_of_a_future_may_add_to_the_ledger_that_was_deleted_in_the_same_group() -> None:
    store = Site().open()
    store.ledger(1).append(b"zero")
    ids: list[int] = []
    future = store.ledger(2).submit(b"beside it")
    future.add_done_callback(lambda _: ids.append(store.ledger(1).append(b"again")))
    assert in_time(store.ledger(1).delete)
    assert ids == [0]


def _descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


# ── a full disk ──────────────────────────────────────────────────────────────────────────────────────────


def test_adds_that_find_no_space_lose_no_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with open_store(tmp_path / "data", QUIET) as store:
        with monkeypatch.context() as patched:
            patched.setattr("storage.disk.posix.PosixWriteFile.write", full)
            before = _descriptors()
            for _ in range(5):
                with pytest.raises(DiskFull):
                    store.ledger(1).append(b"x")
            assert _descriptors() == before
        assert store.ledger(1).append(b"x") == 0


def test_an_opening_that_fails_loses_no_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    pid = os.fork()
    if not pid:  # pragma: no cover - it stands for a kill
        store = open_store(path, QUIET)  # kept, because a store that is dropped is closed in order
        store.ledger(1).append(b"x")
        os._exit(0)
    os.waitpid(pid, 0)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "bad")

    monkeypatch.setattr("storage.journal.writer.JournalWriter.sync", fail)
    before = _descriptors()
    with pytest.raises(OSError, match="bad"):
        open_store(path, QUIET)
    assert _descriptors() == before


def test_openings_after_a_close_and_after_a_kill_lose_no_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "data"
    before = _descriptors()
    for number in range(3):
        with open_store(path, QUIET) as store:
            store.ledger(1).append(b"%d" % number)
            store.ledger(2).append(b"to be deleted")
            store.checkpoint()
            store.ledger(2).delete()
        assert _descriptors() == before
        pid = os.fork()
        if not pid:  # pragma: no cover - it stands for a kill
            store = open_store(path, QUIET)
            store.ledger(1).append(b"x")
            os._exit(0)
        os.waitpid(pid, 0)
        # What a killed checkpoint leaves: a log that nothing names.
        (path / "ledgers/current/77.log").write_bytes(bytes(2048))
        with open_view(path) as view:
            assert view.ledger(1).exists
        assert _descriptors() == before


def _on_a_full_disk(room: int) -> tuple[Site, Store]:
    """Return a store whose journal has about this much room, on a disk without space for another journal."""
    site = Site()
    store = site.open()
    while (journal := StoreInternals(store).journal) is None or not 0 <= room - journal.room < 8192:
        store.ledger(1).append(bytes(4000))
    site.disk.plant(Refused(When(verb=Verb.CREATE, name="*.txn.draft", nth=1), errno.ENOSPC))
    return site, store


def test_a_checkpoint_requested_together_with_an_add_without_space_is_made() -> None:
    site, store = _on_a_full_disk(30_000)
    before = site.mark()
    _, group = enter(store, 1, bytes(60_000))
    site.checkpoint(store)
    assert isinstance(group.error, DiskFull)
    assert site.mark() > before
    assert store.ledger(1).append(b"now") > 0


def test_adds_that_were_durable_before_the_disk_was_full_are_answered() -> None:
    _, store = _on_a_full_disk(82_000)
    with StoreInternals(store).commit_held():
        first, group = enter(store, 5, bytes(40_000))
        second, _ = enter(store, 6, bytes(40_000))
    StoreInternals(store).go_through(first)
    assert isinstance(group.error, DiskFull)
    assert (first.is_durable, second.is_durable) == (True, False)
    assert (store.ledger(5).last_entry_id, store.ledger(6).last_entry_id) == (0, None)


def test_a_force_reports_lost_deferred_adds_before_other_adds_are_answered() -> None:
    store = Site().open()
    bookie, told = store.bookie, []
    bookie.defer(_entry(1, DigestType.CRC32C), b"key")
    future = bookie.submit(_entry(2, DigestType.CRC32C), b"key")

    def force(_: object) -> None:
        try:
            bookie.force(1)
        except DiskFull as error:
            told.append(error)

    future.add_done_callback(force)

    ends: list[Callable[[], None]] = []
    ends.append(StoreInternals(store).refuse_for_space(lambda: ends[0]()))  # noqa: PLW0108 - it is not there yet
    StoreInternals(store).flush()
    assert len(told) == 1


def test_a_key_whose_add_found_no_space_does_not_appear_after_another_add() -> None:
    site = Site()
    store = site.open()
    store.ledger(9, DigestType.CRC32).append(b"opens the file of rows")
    site.disk.plant(FailedSync(When(verb=Verb.SYNC, name="ledgers.rows*"), error=errno.ENOSPC))
    with pytest.raises(DiskFull):
        store.ledger(1, DigestType.CRC32, b"other").append(b"refused")
    store.ledger(1).append(b"plain")
    assert payloads(site.after_kill(), 1) == [b"plain"]


def test_a_repeated_checkpoint_without_entries_keeps_the_log_end_of_the_one_before() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"gone before it is written")
    full = When(verb=Verb.WRITE, name="*.log*", nth=2, lasting=Lasting.UNTIL_MENDED)
    site.disk.plant(Refused(full, errno.ENOSPC))
    site.checkpoint(store)
    site.disk.mend()
    ledger.delete()
    site.workers.elapse()
    assert StoreInternals(store).index_state.log_end is None
    store.ledger(2).append(b"kept")
    store = site.after_kill()
    site.checkpoint(store)
    assert store.ledgers() == [2]


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_checkpoint_requested_while_another_finds_nothing_to_do_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    store = site.open()
    engine = StoreInternals(store)
    freeze = engine.call(EngineCall.FREEZE)
    numbers: list[int] = []

    def freeze_and_add() -> None:
        freeze()
        if not numbers:
            store.ledger(1).append(b"new")
            numbers.append(engine.number_checkpoint())

    monkeypatch.setattr(*engine.at(EngineCall.FREEZE), freeze_and_add)
    engine.number_checkpoint()
    while not engine.has_checkpointed((numbers or [1])[0]):
        engine.step_checkpoint()
    assert engine.index.find(1, 0) is not None


def _entry(ledger_id: int, digest_type: DigestType) -> bytes:
    return bytes(entry_format.encode(Entry(ledger_id, 0, -1, 1, b"x"), Digester(digest_type)))


@pytest.mark.parametrize("said", ["fence", "confirmation"])
def test_a_fence_does_not_undo_the_digest_type_that_the_first_entry_sets(said: str) -> None:
    site = Site()
    store = site.open()
    access = Access(b"key")
    packet = entry_format.encode_lac(1, 0, Digester(DigestType.CRC32C))
    end = StoreInternals(store).tail(1)
    record = PendingFence(end, access) if said == "fence" else PendingLac(end, access, packet)
    assert StoreInternals(store).join(record) is not None
    store.bookie.recover(_entry(1, DigestType.CRC32), b"key")  # the same group
    assert store.bookie.read(1, 0) == _entry(1, DigestType.CRC32)
    site.checkpoint(store)
    assert site.after_kill().bookie.read(1, 0) == _entry(1, DigestType.CRC32)


def test_a_reader_overtaken_by_a_delete_does_not_answer_for_the_next_ledger_of_that_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Site().open()
    ledger = store.ledger(1)
    ledger.append_many([b"old"] * 100)
    ask = StoreInternals(store).call(EngineCall.FIRST_MISSING)

    def then_make_again(*asked: int) -> int:
        monkeypatch.undo()
        answer = ask(*asked)
        ledger.delete()
        ledger.append(b"new")
        return answer  # type: ignore[no-any-return]

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.FIRST_MISSING), then_make_again)
    assert ledger.last_add_confirmed in (0, 99)
    assert ledger.last_add_confirmed == 0


def test_a_ledger_that_is_deleted_while_its_end_is_looked_up_has_no_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    site.open().ledger(1).append(b"one")
    store = site.after_kill()
    ask = StoreInternals(store).call(EngineCall.LAST_ID)

    def then_delete(ledger_id: int) -> int | None:
        monkeypatch.undo()
        answer = ask(ledger_id)
        store.ledger(1).delete()
        return answer  # type: ignore[no-any-return]

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.LAST_ID), then_delete)
    assert store.ledger(1).last_add_confirmed == -1


@pytest.mark.parametrize("first", [EngineCall.INDEXED_COUNT, EngineCall.INDEXED_LAST], ids=["count", "last"])
def test_a_checkpoint_between_two_lookups_does_not_hide_a_missing_entry(
    first: EngineCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "data", QUIET) as store:
        for entry_id in (0, 1, 2, 4):
            store.add(Entry(1, entry_id, -1, 9, b"x"))
        store.checkpoint()
        store.add(Entry(1, 5, -1, 9, b"x"))
        ask = StoreInternals(store).call(first)

        def then_checkpoint(ledger_id: int) -> object:
            answer = ask(ledger_id)
            store.checkpoint()
            return answer

        monkeypatch.setattr(*StoreInternals(store).at(first), then_checkpoint)
        assert store.ledger(1).last_add_confirmed == 2


def test_a_reader_whose_store_is_closed_gets_store_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "data", QUIET)
    ledger = store.ledger(1)
    ledger.append_many([bytes(9000)] * 300)  # more than are read ahead
    store.checkpoint()
    entries = ledger.entries()
    next(entries)
    read_into = StoreInternals(store).call(EngineCall.READ_LOG_INTO)

    def close_first(*args: Any) -> int:
        store.close()
        return read_into(*args)  # type: ignore[no-any-return]

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.READ_LOG_INTO), close_first)
    with pytest.raises(StoreClosed):
        list(entries)


def test_ids_and_lengths_end_at_the_largest_number(tmp_path: Path) -> None:
    with open_store(tmp_path / "data", QUIET) as store:
        store.add(Entry(1, ID_MAX, -1, 1, b"x"))
        store.add(Entry(2, 3, -1, ID_MAX, b"x"))
        for ledger_id in (1, 2):
            with pytest.raises(InvalidEntry, match="nothing may be above"):
                store.ledger(ledger_id).append(b"y")
        assert [one.entry_id for one in store.ledger(1).follow(ID_MAX, idle_timeout_s=0)] == [ID_MAX]
        with pytest.raises(InvalidEntry):
            list(store.ledger(1).entries(ID_MAX, ID_MAX + 1))


def test_a_row_whose_store_is_closed_meanwhile_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    store = site.open()
    bookie, check = store.bookie, StoreInternals(store).call(EngineCall.CHECK_WRITES)

    def then_close() -> None:
        monkeypatch.undo()
        check()
        store.close()
        site.open().bookie.enter_limbo(2)

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.CHECK_WRITES), then_close)
    with pytest.raises(StoreClosed):
        bookie.enter_limbo(1)
    store = site.after_kill()
    assert [StoreInternals(store).may_lack_entries(ledger_id) for ledger_id in (1, 2)] == [False, True]


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.sampled
def test_an_opening_with_checkpoints_keeps_a_batch_completely_or_not_at_all() -> None:
    config = replace(SMALL, group_size_max=4 << 20, memtable_size_max=1 << 20, journal_size=8 << 20)
    site = Site(config)
    store = site.open()
    store.ledger(1).append(b"first")
    enter(store, 1, *[bytes([number]) * 60_000 for number in range(40)])
    turn = StoreInternals(store).begin_turn()
    assert turn is not None
    next(StoreInternals(store).stages(turn))  # written, and killed before it is synced
    site.disk.kill()
    whole = Site(config, site.disk.copy())
    whole.open()
    for operation in every(18, whole.disk.trace[len(site.disk.trace) :]):
        one = Site(config, site.disk.copy())
        one.disk.stop_before(operation.number)
        with pytest.raises(Stopped):
            one.open()
        assert len(payloads(one.after_power_cut(), 1)) in (1, 41), f"cut before {operation}"


def test_a_rebuilt_index_does_not_take_read_logs_for_durable() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"one")
    site.checkpoint(store)
    store.ledger(1).append_many([bytes(2000)] * 20)
    StoreInternals(store).request_checkpoint()
    StoreInternals(store).step_checkpoint()  # killed with an unsynced tail in the log
    store = site.after_kill()
    site.checkpoint(store)
    site.disk.kill()
    site.remove(f"{LEDGERS}/index")
    assert site.open().opened.index is IndexFound.REBUILT
    assert len(payloads(site.after_power_cut(), 1)) == 21


def test_an_index_of_another_history_is_not_used() -> None:
    site = Site()
    with site.open() as store:
        store.ledger(1).append(b"one")
    other = Site(disk=site.disk.copy())
    with site.open() as store:
        store.ledger(1).append_many([bytes(3000)] * 10)
    with other.open() as store:
        store.ledger(2).append_many([bytes(3000)] * 30)
    other.put(f"{LEDGERS}/index", site.bytes_of(f"{LEDGERS}/index"))
    store = other.open()
    assert store.opened.index is IndexFound.REBUILT
    assert (store.ledger(1).last_entry_id, store.ledger(2).last_entry_id) == (0, 29)


def test_the_workers_of_an_idle_store_stop_waking_up() -> None:
    site = Site(replace(SMALL, idle_seal_s=1.0, checkpoint_interval_s=60.0))
    store = site.open()
    store.ledger(1).append(b"once")
    for _ in range(5):
        site.workers.elapse()
    assert [hand.pause for hand in site.workers.by_name.values()] == [None] * len(site.workers.by_name)
    operations = len(site.disk.trace)
    site.workers.elapse()
    assert len(site.disk.trace) == operations
