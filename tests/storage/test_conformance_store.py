"""Counterparts of BookKeeper's own tests of adds and checkpoints; docs/conformance.md has the list."""

from __future__ import annotations

import errno
import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from memory_files import MemoryFile
from stepped_store import JOURNAL, LEDGERS, SMALL, Site, payloads
from store_internals import EngineCall, StoreInternals

from recovery import open_store
from recovery.crashlab import FailedSync, Lasting, Refused, Verb, When
from storage.config import StoreConfig
from storage.entry.digest_inference import EntryVerifier
from storage.entry.model import Entry
from storage.entry.position import START, JournalPosition
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader, LogEntry
from storage.errors import NoSuchEntry, NoSuchLedger, Overloaded, StoreFailed
from storage.memtable.table import Memtable

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from recovery.crashlab import Operation
    from storage.ledger import Ledger
    from storage.store import Store

KIB = 1 << 10


def entry(entry_id: int, payload: bytes, ledger_id: int = 1) -> Entry:
    return Entry(ledger_id, entry_id, entry_id - 1, len(payload) * (entry_id + 1), payload)


def entries_of(site: Site, name: str) -> list[tuple[int, int]]:
    """Return the ids in an entry log, in their order."""
    log_id = int(name.partition(".")[0], 16)
    opened = EntryLogReader(MemoryFile(site.bytes_of(f"{LEDGERS}/{name}")), log_id, EntryVerifier())
    return [item.ids for item in entrylog_scan.items(opened) if isinstance(item, LogEntry)]


def assert_missing(ledger: Ledger, *entry_ids: int) -> None:
    for entry_id in entry_ids:
        with pytest.raises(NoSuchEntry):
            ledger.read(entry_id)


# ── J: journal and replay ────────────────────────────────────────────────────────────────────────────────


def test_j13_a_replay_larger_than_the_table_is_flushed_as_it_goes() -> None:
    site = Site(replace(SMALL, memtable_size_max=1 << 20))
    store = site.open()
    texts = [b"%4d" % number * 1000 for number in range(100)]
    store.ledger(1).append_many(texts)
    site.disk.kill()
    site.config = replace(SMALL, memtable_size_max=32 * KIB)
    store = site.open()
    assert site.trailer().generation > 3
    assert payloads(store, 1) == texts


def test_j14_nothing_is_answered_or_readable_before_its_sync_and_the_mark_stays() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"first")
    covered = StoreInternals(store).covered_until
    future = ledger.submit(b"second")
    assert (future.done(), ledger.last_entry_id) == (False, 0)
    seen_at_sync: list[tuple[bool, int | None, JournalPosition]] = []

    def look(operation: Operation) -> None:
        if operation.verb is Verb.SYNC:
            seen_at_sync.append((future.done(), ledger.last_entry_id, StoreInternals(store).covered_until))
            assert_missing(ledger, 1)

    site.disk.watch(look)
    site.workers.elapse()
    assert seen_at_sync == [(False, 0, covered)]
    assert (future.result(0), ledger.last_entry_id) == (1, 1)
    assert StoreInternals(store).covered_until > covered


def test_j17_submitted_and_appended_entries_are_all_answered_in_their_order_after_a_sync() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    futures: dict[int, Future[int]] = {}
    for number in range(0, 60, 2):
        futures[number] = ledger.submit(b"%d" % number)
        assert ledger.append(b"%d" % (number + 1)) == number + 1
    assert {number: future.result(0) for number, future in futures.items()} == {n: n for n in futures}
    assert payloads(site.after_power_cut(), 1) == [b"%d" % number for number in range(60)]


def test_j18_with_nothing_else_to_do_an_add_is_answered_after_a_sync_of_its_own() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    done = len(site.disk.trace)
    covered = StoreInternals(store).covered_until
    store.ledger(1).append(b"alone")
    assert [operation.verb for operation in site.disk.trace[done:]] == [Verb.WRITE, Verb.SYNC]
    assert StoreInternals(store).covered_until > covered


def test_j22_memory_for_adds_is_bounded_and_every_add_is_answered() -> None:
    site = Site(replace(SMALL, memtable_size_max=1))
    store = site.open()
    texts = [bytes([number]) * (60 * KIB) for number in range(10)]
    for text in texts:
        store.ledger(1).append(text)
        site.workers.run()
        assert sum(StoreInternals(store).table_sizes) < 70 * KIB
    assert payloads(site.after_power_cut(), 1) == texts


def test_j22_adds_that_wait_for_a_commit_are_bounded() -> None:
    site = Site(replace(SMALL, memtable_size_max=100 * KIB, group_size_max=64 * KIB))
    store = site.open()
    setattr(*StoreInternals(store).at(EngineCall.FLUSH), lambda: None)  # no thread leads a turn
    for _ in range(100):
        with suppress(Overloaded):
            store.ledger(1).submit(b"x" * (10 * KIB))
    assert 100 * KIB <= StoreInternals(store).waiting_size < 120 * KIB


def test_j26_the_smallest_groups_under_many_writers_are_all_answered(tmp_path: Path) -> None:
    config = StoreConfig(group_size_max=1, group_wait_s=0.0, entry_size_max=4 * KIB, journal_size=1 << 20)
    found: dict[int, list[int]] = {}
    with open_store(tmp_path, config) as store:

        def write(number: int) -> None:
            found[number] = [store.ledger(number).append(b"x") for _ in range(25)]
            found[number] += [
                one.result(60) for one in [store.ledger(number).submit(b"y") for _ in range(25)]
            ]

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == {number: list(range(50)) for number in range(4)}
        assert [store.ledger(number).last_entry_id for number in range(4)] == [49] * 4


def test_j28_a_journal_is_replayed_until_it_is_checkpointed_and_then_never_again() -> None:
    site = Site()
    store = site.open()
    assert site.mark() == START
    texts = [b"one", b"two", b"three"]
    for text in texts:
        store.ledger(1).append(text)
    store = site.after_kill()
    assert (store.opened.records_replayed, payloads(store, 1)) == (3, texts)
    store.close()
    assert site.mark() > START
    names = site.names(JOURNAL, ".txn"), site.names(LEDGERS, ".log"), site.mark()
    for _ in range(5):
        store = site.open()
        assert (store.opened.records_replayed, payloads(store, 1)) == (0, texts)
        store.close()
    assert (site.names(JOURNAL, ".txn"), site.names(LEDGERS, ".log"), site.mark()) == names


def test_j28_repeated_openings_and_kills_accumulate_nothing() -> None:
    site = Site()
    site.open().ledger(1).append(b"one")
    for _ in range(12):
        assert payloads(site.after_kill(), 1) == [b"one"]
    assert len(site.names(JOURNAL, ".txn")) <= 4
    assert len(site.names(LEDGERS, ".log")) <= 2


# ── E: entry logs ────────────────────────────────────────────────────────────────────────────────────────


def checkpointed(site: Site, store: Store, *texts: bytes) -> list[str]:
    """Return the logs after another checkpoint with these entries."""
    store.ledger(1).append_many(texts)
    site.checkpoint(store)
    return site.names(LEDGERS, ".log")


def test_e34_without_a_last_id_logs_continue_after_the_highest() -> None:
    site = Site()
    checkpointed(site, site.open(), b"one")
    assert "lastId" not in site.names(LEDGERS)
    assert checkpointed(site, site.after_kill(), b"two") == ["0.log", "1.log"]
    assert checkpointed(site, site.after_kill(), b"three") == ["0.log", "1.log", "2.log"]
    assert payloads(site.after_kill(), 1) == [b"one", b"two", b"three"]


def test_e35_a_last_id_that_is_too_small_is_not_used() -> None:
    site = Site()
    for _ in range(4):
        checkpointed(site, site.after_kill(), b"x")
    site.disk.kill()
    site.put(f"{LEDGERS}/lastId", b"1\n")
    assert checkpointed(site, site.open(), b"x") == ["0.log", "1.log", "2.log", "3.log", "4.log"]


def test_e36_the_id_of_a_log_that_is_not_ours_is_skipped() -> None:
    site = Site()
    checkpointed(site, site.open(), b"one")
    site.disk.kill()
    site.put(f"{LEDGERS}/1.log", b"")
    site.put(f"{LEDGERS}/2.log", b"whatever")
    assert checkpointed(site, site.open(), b"two") == ["0.log", "1.log", "2.log", "3.log"]
    assert site.bytes_of(f"{LEDGERS}/2.log") == b"whatever"
    assert payloads(site.after_power_cut(), 1) == [b"one", b"two"]


def test_e38_log_ids_wrap_and_the_order_of_writing_is_kept() -> None:
    site = Site()
    site.open().close()
    site.put(f"{LEDGERS}/7ffffffe.log", b"")
    site.put(f"{LEDGERS}/5.log.compacting", b"")
    site.put(f"{LEDGERS}/0.log.7.compacted", b"")
    store = site.open()
    assert "1.log" in checkpointed(site, store, b"one")
    old = store.ledger(1).read(0)
    store = site.after_kill()
    store.add(replace(old, payload=b"two"))
    site.checkpoint(store)
    assert "2.log" in site.names(LEDGERS)
    assert payloads(site.after_power_cut(), 1) == [b"two"]


LITTLE_LOGS = replace(SMALL, entry_log_size_max=8192, memtable_size_max=1 << 20)


def over_many_logs(site: Site) -> Store:
    """Return a store whose next checkpoint writes a log for each ledger."""
    store = site.open()
    for number in range(10):
        store.ledger(number).append(b"%5d" % number * 1000)
    return store


def assert_whole(store: Store) -> None:
    assert [payloads(store, number) for number in range(10)] == [
        [b"%5d" % number * 1000] for number in range(10)
    ]


def test_e41_every_log_of_a_checkpoint_is_durable_before_the_index_names_it() -> None:
    site = Site(LITTLE_LOGS)
    store = over_many_logs(site)
    unsynced: set[str] = set()
    at_commit: list[set[str]] = []

    def look(operation: Operation) -> None:
        if ".log" in operation.path and operation.verb is Verb.WRITE:
            unsynced.add(operation.path)
        elif ".log" in operation.path and operation.verb is Verb.SYNC:
            unsynced.discard(operation.path)
        elif "index" in operation.path and operation.verb is Verb.WRITE:
            at_commit.append(set(unsynced))

    site.disk.watch(look)
    site.checkpoint(store)
    assert len(site.names(LEDGERS, ".log")) == 10
    assert at_commit == [set()]
    assert_whole(site.after_power_cut())


@pytest.mark.parametrize("nth", [2, 3, 7, 20, 30])
def test_e42_the_mark_waits_for_every_log_of_its_checkpoint(nth: int) -> None:
    site = Site(LITTLE_LOGS)
    store = over_many_logs(site)
    forever = When(verb=Verb.SYNC, name="*.log*", nth=nth, lasting=Lasting.UNTIL_MENDED)
    site.disk.plant(Refused(forever, errno.ENOSPC))
    site.checkpoint(store)
    assert site.mark() == START
    site.disk.mend()
    site.workers.elapse()
    assert site.mark() > START
    assert_whole(site.after_power_cut())


def test_e44_entries_are_readable_while_they_are_written_to_a_log() -> None:
    site = Site()
    store = site.open()
    texts = [b"%4d" % number * 500 for number in range(30)]
    store.ledger(1).append_many(texts)
    readable: list[bool] = []
    site.disk.watch(lambda _: readable.append(payloads(store, 1) == texts))
    site.checkpoint(store)
    assert site.trailer().generation == 1
    assert len(readable) > 10
    assert all(readable)


# ── D: the ledger storage ────────────────────────────────────────────────────────────────────────────────


def test_d45_an_entry_is_read_before_and_after_a_checkpoint_and_lac_is_what_the_last_one_says() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(4)
    with pytest.raises(NoSuchLedger):
        ledger.read(0)
    last = Entry(4, 3, 1, 100, b"payload")
    store.add(last)
    for _ in range(2):
        assert ledger.read(3) == last
        assert (ledger.last_entry_id, ledger.last_add_confirmed) == (3, 1)
        assert_missing(ledger, 0, 2, 4)
        site.checkpoint(store)
    reopened = site.after_power_cut().ledger(4)
    assert (reopened.read(3), reopened.last_add_confirmed) == (last, 1)


@pytest.mark.parametrize("checkpoints", ["neither", "between", "begun between", "behind", "both"])
def test_d47_the_second_of_two_entries_with_one_id_counts(checkpoints: str) -> None:
    site = Site()
    store = site.open()
    store.add(entry(0, b"first"))
    if checkpoints in ("between", "both"):
        site.checkpoint(store)
        assert payloads(store, 1) == [b"first"]
    elif checkpoints == "begun between":
        StoreInternals(store).freeze()
    store.add(entry(0, b"second"))
    if checkpoints in ("behind", "both"):
        site.checkpoint(store)
    assert payloads(store, 1) == [b"second"]
    assert store.ledger(1).read(0) == entry(0, b"second")
    site.workers.run()
    assert payloads(store, 1) == [b"second"]
    assert payloads(site.after_power_cut(), 1) == [b"second"]
    site.disk.kill()
    if "index" in site.names(LEDGERS):
        site.remove(f"{LEDGERS}/index")
    assert payloads(site.open(), 1) == [b"second"]


@pytest.mark.parametrize("between", ["a checkpoint", "nothing"])
def test_d48_entries_may_come_in_any_order_and_gaps_are_missing(between: str) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    store.add(entry(5, b"five"))
    if between == "a checkpoint":
        site.checkpoint(store)
    assert_missing(ledger, 0, 1, 4, 6)
    store.add(entry(1, b"one"))
    assert_missing(ledger, 0, 2, 4, 6)
    assert ledger.last_entry_id == 5
    assert [ledger.read(number).payload for number in (1, 5)] == [b"one", b"five"]
    ledger = site.after_power_cut().ledger(1)
    assert [ledger.read(number).payload for number in (1, 5)] == [b"one", b"five"]
    assert_missing(ledger, 0, 2, 3, 4, 6)
    assert ledger.append(b"behind all") == 6
    assert [one.entry_id for one in ledger.entries(5)] == [5, 6]
    with pytest.raises(NoSuchEntry):
        list(ledger.entries(1))


def test_d51_an_entry_is_found_in_the_table_the_frozen_table_the_index_and_the_cache() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    store.add(entry(3, b"three"))
    stages: list[str] = []

    def look(stage: str) -> None:
        assert ledger.read(3).payload == b"three"
        assert_missing(ledger, 0, 2, 4)
        with pytest.raises(NoSuchLedger):
            store.ledger(2).read(3)
        stages.append(stage)

    look("active")
    StoreInternals(store).freeze()
    assert StoreInternals(store).active_table.get(1, 3) is None
    look("frozen")
    site.workers.run()
    assert StoreInternals(store).frozen_table is None
    for stage in ("index", "cache", "cache again"):
        look(stage)
    assert len(stages) == 5


def test_d53_with_both_tables_full_and_a_slow_checkpoint_an_add_is_refused_in_time() -> None:
    site = Site(replace(SMALL, memtable_size_max=100 * KIB, throttle_timeout_s=0.01))
    store = site.open()
    for taken in range(10):  # the workers do not run, so no checkpoint ends
        assert store.ledger(1).append(b"x" * (20 * KIB)) == taken
    with pytest.raises(Overloaded) as caught:
        store.ledger(1).append(b"x" * (20 * KIB))
    assert caught.value.waited_s == 0.01
    assert store.ledger(1).last_entry_id == 9
    site.workers.run()
    assert store.ledger(1).append(b"room again") == 10


def test_d54_a_checkpoint_writes_entries_in_the_order_of_ledgers_and_ids() -> None:
    site = Site()
    store = site.open()
    ids = [(3, 1), (1, 7), (2, 0), (1, 2), (3, 0), (1, 3), (2, 1), (1, 2)]
    for ledger_id, entry_id in ids:
        store.add(entry(entry_id, b"x", ledger_id))
    site.checkpoint(store)
    assert entries_of(site, "0.log") == sorted(set(ids))


def test_d56_an_empty_ledger_has_no_entry_and_confirms_none() -> None:
    site = Site()
    ledger = site.open().ledger(9)
    for _ in range(2):
        assert (ledger.last_entry_id, ledger.last_add_confirmed) == (None, -1)
        ledger = site.after_power_cut().ledger(9)
    assert ledger.append(b"five!") == 0
    assert ledger.read(0).length == 5


# ── S: checkpoints and the mark ──────────────────────────────────────────────────────────────────────────


def test_s58_the_mark_is_where_the_table_that_was_written_ended() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"in the checkpoint")
    StoreInternals(store).freeze()
    frozen = StoreInternals(store).frozen_table
    assert frozen is not None
    store.ledger(1).append(b"behind it")
    site.workers.run()
    assert site.mark() == frozen.covers_until
    store = site.after_power_cut()
    assert store.opened.records_replayed == 1
    assert payloads(store, 1) == [b"in the checkpoint", b"behind it"]


def test_s59_an_older_table_that_is_written_later_moves_no_mark_back_and_the_marked_journal_stays() -> None:
    site = Site(replace(SMALL, journal_size=140 * KIB))
    store = site.open()
    for _ in range(4):
        store.ledger(1).append(b"x" * (60 * KIB))
    site.checkpoint(store)
    mark = site.mark()
    store.ledger(1).append(b"y")
    older = Memtable(JournalPosition(1, 4096))
    older.insert(7, 0, [b"\0\0\0\x24" + bytes(7) + b"\x07" + bytes(28)])
    StoreInternals(store).put_frozen(older)
    site.workers.run()
    assert (site.mark(), site.trailer().generation) == (mark, 2)
    marked = f"{site.mark().journal_id:x}.txn"
    assert site.names(JOURNAL, ".txn")[0] == marked
    assert all(
        int(name.partition(".")[0], 16) >= site.mark().journal_id for name in site.names(JOURNAL, ".txn")
    )


def test_s60_a_new_process_continues_from_the_mark_and_only_advances_it() -> None:
    site = Site()
    marks = [StoreInternals(site.open()).index_state.mark]
    for number in range(5):
        store = site.after_kill()
        assert StoreInternals(store).index_state.mark == marks[-1]
        store.ledger(1).append(b"%d" % number)
        site.checkpoint(store)
        marks.append(site.mark())
    assert marks == sorted(set(marks))


def test_s61_closing_waits_for_a_checkpoint_under_way_and_without_interval_none_begins() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append_many([b"x" * (10 * KIB)] * 20)
    site.workers.elapse()
    assert site.mark() == START
    StoreInternals(store).request_checkpoint()
    site.workers.by_name["ledgerstore-checkpoint"].step()
    site.workers.by_name["ledgerstore-checkpoint"].step()
    assert site.mark() == START
    store.ledger(1).append(b"later")
    store.close()
    assert site.mark() > START
    store = site.after_power_cut()
    assert store.opened.records_replayed == 0
    assert store.ledger(1).last_entry_id == 20


def test_s61_closing_waits_for_the_thread_too(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", StoreConfig(checkpoint_interval_s=None)) as store:
        store.ledger(1).append_many([b"x" * (10 * KIB)] * 500)
        StoreInternals(store).request_checkpoint()
    with open_store(tmp_path / "store") as store:
        assert (store.opened.records_replayed, store.ledger(1).last_entry_id) == (0, 499)


def test_s62_a_checkpoint_that_breaks_stops_the_store_and_a_full_disk_does_not() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"one")
    site.disk.plant(Refused(When(verb=Verb.WRITE, name="*.log*"), errno.ENOSPC))
    site.checkpoint(store)
    assert store.ledger(1).append(b"two") == 1
    site.workers.elapse()
    assert site.mark() > START
    site.disk.plant(FailedSync(When(verb=Verb.SYNC, name="index*")))
    site.checkpoint(store)
    with pytest.raises(StoreFailed):
        store.ledger(1).append(b"three")
    assert payloads(store, 1) == [b"one", b"two"]


def test_s62_a_bug_in_a_checkpoint_stops_the_store_too(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"one")

    def break_down(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.APPEND_TO_LOG), break_down)
    site.checkpoint(store)
    with pytest.raises(StoreFailed) as caught:
        store.ledger(1).append(b"two")
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert payloads(site.after_power_cut(), 1) == [b"one"]


def test_s63_a_checkpoint_comes_by_itself_and_the_journals_before_it_are_not_needed() -> None:
    site = Site(replace(SMALL, journal_size=140 * KIB, checkpoint_interval_s=10.0, journal_max_backups=9))
    store = site.open()
    texts = [bytes([number]) * (50 * KIB) for number in range(4)]
    for text in texts:
        store.ledger(1).append(text)
    assert site.mark() == START
    site.workers.elapse()
    site.workers.elapse()
    assert site.mark() == StoreInternals(store).covered_until
    site.disk.kill()
    before = [
        name
        for name in site.names(JOURNAL, ".txn")
        if int(name.partition(".")[0], 16) < site.mark().journal_id
    ]
    assert before
    for name in before:
        site.remove(f"{JOURNAL}/{name}")
    store = site.open()
    assert (store.opened.records_replayed, payloads(store, 1)) == (0, texts)


def test_s63_a_copy_of_the_files_between_two_checkpoints_is_a_store(tmp_path: Path) -> None:
    with open_store(tmp_path / "live", StoreConfig(checkpoint_interval_s=None, idle_seal_s=None)) as store:
        store.ledger(1).append(b"one")
        store.checkpoint()
        store.ledger(1).append(b"two")
        shutil.copytree(tmp_path / "live", tmp_path / "copy")
    with open_store(tmp_path / "copy") as store:
        assert (store.opened.records_replayed, list(store.ledger(1).payloads())) == (1, [b"one", b"two"])
