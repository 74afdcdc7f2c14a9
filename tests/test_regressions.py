"""Bugs that were found by thinking like a saboteur, each with the schedule that showed it."""

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
from ctrl_c import interrupted
from stepped import LEDGERS, SMALL, Site, payloads

from recovery import open_store
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
    adding,
    alone,
    commit,
    entrance,
    journal_writer,
    journals,
    memtable,
    registry,
    tail,
    turnstile,
    warden,
)
from storage.access import Access
from storage.codec import entry as entry_codec
from storage.codec.digest import Digester
from storage.entry import ID_MAX
from storage.ledger import Ledger
from storage.report import IndexFound
from storage.turnstile import Turnstile
from storage.worker import ThreadWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.grouping import Load
    from storage.store import Store
    from storage.tail import Run
    from storage.turnstile import Turn

ADDS = (adding, alone, commit, entrance, journal_writer, journals, memtable, tail, turnstile)
"""What an add goes through."""

QUIET = StoreConfig(checkpoint_interval_s=None, idle_seal_s=None)


def in_time(act: Callable[[], object]) -> bool:
    """Whether it comes back; if not, a daemon is left behind."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def enter(store: Store, ledger_id: int, *texts: bytes) -> tuple[Run, Turn[Load]]:
    tail, access = store._parts.tails.of(ledger_id), store.ledger(ledger_id)._access
    entered = store._committer.entrance.enter(tail, access, lambda end: end.append(texts, access))
    assert entered is not None
    return entered


# ── hangs ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_that_is_stopped_while_it_wakes_up_ends() -> None:
    at_clear, may_clear = threading.Event(), threading.Event()

    class Late(threading.Event):
        def clear(self) -> None:
            at_clear.set()
            assert may_clear.wait(10)
            super().clear()

    worker = ThreadWorker("late", lambda: None, lambda error: None)
    worker._woken = Late()
    worker.wake()
    assert at_clear.wait(10)
    stopping = threading.Thread(target=worker.stop, daemon=True)
    stopping.start()
    assert worker._woken.wait(10)
    while not worker._stopped:
        pass
    may_clear.set()
    stopping.join(10)
    assert not stopping.is_alive()


def test_whoever_hears_of_a_future_may_add_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data", QUIET)
    ledger, ids = store.ledger(1), []

    def chain() -> None:
        future = ledger.submit(b"one")
        future.add_done_callback(lambda done: ids.extend([done.result(), ledger.append(b"two")]))
        ledger.append(b"or so")

    assert in_time(chain)
    assert in_time(store.close)
    assert sorted(ids) == [0, 2]


def test_a_ctrl_c_anywhere_in_the_turnstile_leaves_the_next_caller_a_way_through() -> None:
    number = 0
    while True:
        number += 1
        passage: Turnstile[list[int]] = Turnstile(list, lambda _: None)
        if not interrupted(passage.flush, number, turnstile):
            break
        assert in_time(passage.flush), f"interrupted at place {number}"
    assert number > 10


def _add_one(store: Store) -> None:
    store.add(Entry(1, 1, 0, 7, b"one"))


def _append_one(store: Store) -> None:
    store.ledger(1).append(b"one")


@pytest.mark.parametrize(("add", "places"), [(_add_one, 60), (_append_one, 35)])
def test_a_ctrl_c_anywhere_in_an_add_leaves_no_hole(add: Callable[[Store], None], places: int) -> None:
    number = 0
    while True:
        number += 1
        site = Site()
        store = site.open()
        store.ledger(1).append(b"zero")
        if not interrupted(partial(add, store), number, *ADDS):
            break
        # By another thread: what an interrupted one has left undone it may make up for when it comes again.
        assert in_time(partial(_try_to_add, store.ledger(1))), f"interrupted at place {number}"
        found = payloads(site.after_kill(), 1)
        assert found[0] == b"zero", f"interrupted at place {number}"
    assert number > places, "in a turn, and alone"


def _try_to_add(ledger: Ledger) -> None:
    with suppress(StoreFailed, LedgerFenced):
        ledger.append(b"one")


@pytest.mark.parametrize("speak", [Ledger.delete, Ledger.fence])
def test_a_ctrl_c_anywhere_in_what_is_said_leaves_the_next_caller_a_way_through(
    speak: Callable[[Ledger], object],
) -> None:
    number = 0
    while True:
        number += 1
        site = Site()
        ledger = site.open().ledger(1)
        ledger.append(b"zero")
        if not interrupted(partial(speak, ledger), number, *ADDS, warden, registry):
            break

        assert in_time(partial(_try_to_add, ledger)), f"interrupted at place {number}"
        store = site.after_kill()
        found = payloads(store, 1) if store.ledger(1).exists else []
        assert found in ([], [b"zero"], [b"zero", b"one"], [b"one"])
        assert found or speak is Ledger.delete
    assert number > 40


def test_whoever_hears_of_a_future_may_add_to_the_ledger_that_was_deleted_with_it() -> None:
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
            patched.setattr("storage.posix_files.PosixWriteFile.write", full)
            before = _descriptors()
            for _ in range(5):
                with pytest.raises(DiskFull):
                    store.ledger(1).append(b"x")
            assert _descriptors() == before
        assert store.ledger(1).append(b"x") == 0


def test_an_opening_that_fails_loses_no_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    pid = os.fork()
    if not pid:  # pragma: no cover - it is killed, as it were
        open_store(path, QUIET).ledger(1).append(b"x")
        os._exit(0)
    os.waitpid(pid, 0)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "bad")

    monkeypatch.setattr("storage.journal_writer.JournalWriter.sync", fail)
    before = _descriptors()
    with pytest.raises(OSError, match="bad"):
        open_store(path, QUIET)
    assert _descriptors() == before


def _on_a_full_disk(room: int) -> tuple[Site, Store]:
    """A store whose journal has about so much room, and which gets no other when it needs one."""
    site = Site()
    store = site.open()
    while (journal := store._parts.journals.active) is None or not 0 <= room - journal.room < 8192:
        store.ledger(1).append(bytes(4000))
    site.disk.plant(Refused(When(verb=Verb.CREATE, name="*.txn.draft", nth=1), errno.ENOSPC))
    return site, store


def test_a_checkpoint_that_shares_its_turn_with_an_add_without_space_is_made_all_the_same() -> None:
    site, store = _on_a_full_disk(30_000)
    before = site.mark()
    _, turn = enter(store, 1, bytes(60_000))
    site.checkpoint(store)
    assert isinstance(turn.error, DiskFull)
    assert site.mark() > before
    assert store.ledger(1).append(b"now") > 0


def test_who_was_durable_before_the_space_ran_out_is_answered() -> None:
    _, store = _on_a_full_disk(82_000)
    committer = store._committer
    taken = committer.turnstile.begin()
    assert taken is not None
    first, turn = enter(store, 5, bytes(40_000))
    second, _ = enter(store, 6, bytes(40_000))
    committer.turnstile.end(taken)
    committer.turnstile.go_through(turn)
    assert isinstance(turn.error, DiskFull)
    assert (first.is_durable, second.is_durable) == (True, False)
    assert (store.ledger(5).last_entry_id, store.ledger(6).last_entry_id) == (0, None)


def test_who_forces_is_told_of_what_was_lost_before_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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

    def full(*_: object) -> None:
        monkeypatch.undo()
        raise DiskFull("full")

    monkeypatch.setattr(store._committer, "_write", full)
    store._committer.turnstile.flush()
    assert len(told) == 1


def test_a_claim_that_found_no_space_does_not_come_to_light_behind_another() -> None:
    site = Site()
    store = site.open()
    store.ledger(9, DigestType.CRC32).append(b"opens the file of rows")
    site.disk.plant(FailedSync(When(verb=Verb.SYNC, name="ledgers.rows*"), error=errno.ENOSPC))
    with pytest.raises(DiskFull):
        store.ledger(1, DigestType.CRC32, b"other").append(b"refused")
    store.ledger(1).append(b"plain")
    assert payloads(site.after_kill(), 1) == [b"plain"]


def test_a_second_attempt_without_entries_ends_at_the_log_of_the_checkpoint_before() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"gone before it is written")
    full = When(verb=Verb.WRITE, name="*.log*", nth=2, lasting=Lasting.UNTIL_MENDED)
    site.disk.plant(Refused(full, errno.ENOSPC))
    site.checkpoint(store)
    site.disk.mend()
    ledger.delete()
    site.crew.elapse()
    assert store._parts.checkpointer.state.log_end is None
    store.ledger(2).append(b"kept")
    store = site.after_kill()
    site.checkpoint(store)
    assert store.ledgers() == [2]


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_checkpoint_asked_for_while_another_finds_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    store = site.open()
    committer, checkpointer = store._committer, store._parts.checkpointer
    freeze = committer.freeze
    numbers: list[int] = []

    def freeze_and_add() -> None:
        freeze()
        if not numbers:
            store.ledger(1).append(b"new")
            numbers.append(checkpointer.request())

    monkeypatch.setattr(committer, "freeze", freeze_and_add)
    checkpointer.request()
    while checkpointer._finished < (numbers or [1])[0]:
        checkpointer.step()
    assert store._parts.reading._index.find(1, 0) is not None


def _entry(ledger_id: int, digest_type: DigestType) -> bytes:
    return bytes(entry_codec.encode(Entry(ledger_id, 0, -1, 1, b"x"), Digester(digest_type)))


@pytest.mark.parametrize("said", ["fence", "confirmation"])
def test_what_is_said_of_a_ledger_does_not_take_back_what_its_first_entry_tells(said: str) -> None:
    site = Site()
    store = site.open()
    access = Access(b"key")
    packet = entry_codec.encode_lac(1, 0, Digester(DigestType.CRC32C))
    end = store._parts.tails.of(1)
    make = (
        partial(warden.fence_of, end, access)
        if said == "fence"
        else partial(warden.confirmation_of, end, access, packet)
    )
    assert store._committer.entrance.enter_statement(end, make) is not None
    store.bookie.recover(_entry(1, DigestType.CRC32), b"key")  # the same turn
    assert store.bookie.read(1, 0) == _entry(1, DigestType.CRC32)
    site.checkpoint(store)
    assert site.after_kill().bookie.read(1, 0) == _entry(1, DigestType.CRC32)


def test_a_reader_whom_a_delete_overtakes_says_nothing_of_the_ledger_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Site().open()
    ledger = store.ledger(1)
    ledger.append_many([b"old"] * 100)
    reading = store._parts.reading
    ask = reading._first_missing

    def then_make_again(*asked: int) -> int:
        monkeypatch.undo()
        answer = ask(*asked)
        ledger.delete()
        ledger.append(b"new")
        return answer

    monkeypatch.setattr(reading, "_first_missing", then_make_again)
    assert ledger.last_add_confirmed in (0, 99)
    assert ledger.last_add_confirmed == 0


def test_a_ledger_that_is_deleted_while_its_end_is_looked_for_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    site.open().ledger(1).append(b"one")
    store = site.after_kill()
    reading = store._parts.reading
    ask = reading.last_id

    def then_delete(ledger_id: int) -> int | None:
        monkeypatch.undo()
        answer = ask(ledger_id)
        store.ledger(1).delete()
        return answer

    monkeypatch.setattr(reading, "last_id", then_delete)
    assert store.ledger(1).last_add_confirmed == -1


@pytest.mark.parametrize("first", ["count", "last"])
def test_a_checkpoint_between_two_questions_does_not_make_up_for_a_missing_entry(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "data", QUIET) as store:
        for entry_id in (0, 1, 2, 4):
            store.add(Entry(1, entry_id, -1, 9, b"x"))
        store.checkpoint()
        store.add(Entry(1, 5, -1, 9, b"x"))
        index = store._parts.reading._index
        ask = getattr(index, first)

        def then_checkpoint(ledger_id: int) -> object:
            answer = ask(ledger_id)
            store.checkpoint()
            return answer

        monkeypatch.setattr(index, first, then_checkpoint)
        assert store.ledger(1).last_add_confirmed == 2


def test_a_reader_whose_store_is_closed_hears_just_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "data", QUIET)
    ledger = store.ledger(1)
    ledger.append_many([bytes(9000)] * 300)  # more than are read ahead
    store.checkpoint()
    entries = ledger.entries()
    next(entries)
    read_into = store._parts.reading._logs.read_into

    def close_first(*args: Any) -> int:
        store.close()
        return read_into(*args)

    monkeypatch.setattr(store._parts.reading._logs, "read_into", close_first)
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
    bookie, check = store.bookie, store._latch.check_writes

    def then_close() -> None:
        monkeypatch.undo()
        check()
        store.close()
        site.open().bookie.enter_limbo(2)

    monkeypatch.setattr(store._latch, "check_writes", then_close)
    with pytest.raises(StoreClosed):
        bookie.enter_limbo(1)
    store = site.after_kill()
    assert [store._parts.registry.may_lack(ledger_id) for ledger_id in (1, 2)] == [False, True]


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_opening_that_checkpoints_as_it_goes_keeps_a_batch_whole_or_not_at_all() -> None:
    config = replace(SMALL, group_size_max=4 << 20, memtable_size_max=1 << 20, journal_size=8 << 20)
    site = Site(config)
    store = site.open()
    store.ledger(1).append(b"first")
    enter(store, 1, *[bytes([number]) * 60_000 for number in range(40)])
    turn = store._committer.turnstile.begin()
    assert turn is not None
    next(store._committer.stages(turn.load))  # written, and killed before it is synced
    site.disk.kill()
    whole = Site(config, site.disk.copy())
    whole.open()
    for operation in whole.disk.trace[len(site.disk.trace) :]:
        one = Site(config, site.disk.copy())
        one.disk.stop_before(operation.number)
        with pytest.raises(Stopped):
            one.open()
        assert len(payloads(one.after_power_cut(), 1)) in (1, 41), f"cut before {operation}"


def test_a_rebuilt_index_claims_nothing_of_logs_that_were_only_read() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"one")
    site.checkpoint(store)
    store.ledger(1).append_many([bytes(2000)] * 20)
    store._parts.checkpointer.request()
    store._parts.checkpointer.step()  # killed with a tail in the log that nobody has synced
    store = site.after_kill()
    site.checkpoint(store)
    site.disk.kill()
    site.remove(f"{LEDGERS}/index")
    assert site.open().opened.index is IndexFound.REBUILT
    assert len(payloads(site.after_power_cut(), 1)) == 21


def test_an_index_of_another_past_is_not_believed() -> None:
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


def test_an_idle_store_comes_to_rest() -> None:
    site = Site(replace(SMALL, idle_seal_s=1.0, checkpoint_interval_s=60.0))
    store = site.open()
    store.ledger(1).append(b"once")
    for _ in range(5):
        site.crew.elapse()
    assert [hand.pause for hand in site.crew.hands.values()] == [None] * len(site.crew.hands)
    operations = len(site.disk.trace)
    site.crew.elapse()
    assert len(site.disk.trace) == operations
