"""What a store does after each error of the disk: it stops, tries again in a new file, or refuses an add.

The table is in docs/durability.md, and each line of it has its tests here. A store that has stopped still
reads, and has all acknowledged entries; every test ends with a power cut that proves it.
"""

from __future__ import annotations

import errno
import gc
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from file_index import FileIndex, FileIndexPlace
from stepped_store import JOURNAL, LEDGERS, SMALL, Site, payloads
from store_internals import StoreInternals, used_bytes

from recovery.crashlab import FailedSync, Lasting, LoseAll, Pages, Refused, ShortWrite, Verb, When
from storage.commit.pending import PendingGroup
from storage.commit.pending_deletes import PendingDelete
from storage.entry.model import Entry
from storage.entry.position import JournalPosition
from storage.errors import DiskFull, EntryUnreadable, NoSuchLedger, Overloaded, StoreError, StoreFailed
from storage.journal.writer import Group, JournalWriter
from storage.read import ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from recovery.crashlab import Fault, Operation
    from storage.disk.files import WriteFile
    from storage.store import Store

KIB = 1 << 10
BLOCK = b"x" * (50 * KIB)
"""Five such blocks fill a table."""

FOREVER = Lasting.UNTIL_MENDED


def on(verb: Verb, name: str, nth: int = 1, lasting: Lasting = Lasting.ONCE) -> When:
    return When(verb=verb, name=name, nth=nth, lasting=lasting)


def opened(*texts: bytes) -> tuple[Site, Store]:
    """Return a store after a first checkpoint, so that files, names and index exist."""
    site = Site()
    store = site.open()
    for text in texts:
        store.ledger(1).append(text)
    site.checkpoint(store)
    return site, store


def adds_until(refusal: type[StoreError], store: Store, after_each: Callable[[], None] | None = None) -> int:
    """Return how many blocks the store accepted before it refused one with this error."""
    for taken in range(100):
        try:
            store.ledger(1).append(BLOCK)
        except refusal:
            return taken
        if after_each is not None:
            after_each()
    pytest.fail(f"never {refusal.__name__}")


def changes(site: Site) -> int:
    return len(site.disk.trace)


def assert_stopped(site: Site, store: Store, readable: list[bytes]) -> None:
    """Check that every write is refused, every read is answered, and closing writes nothing."""
    ledger = store.ledger(1)
    done = changes(site)
    entry = Entry(1, 99, -1, 99, b"placed")
    verbs: list[Callable[[], object]] = [
        lambda: ledger.append(b"more"),
        lambda: ledger.append_many([b"more", b"and more"]),
        lambda: ledger.submit(b"more"),
        lambda: store.add(entry),
        store.checkpoint,
    ]
    for verb in verbs:
        with pytest.raises(StoreFailed) as caught:
            verb()
        assert isinstance(caught.value.__cause__, OSError)
    assert payloads(store, 1) == readable
    assert [ledger.read(number).payload for number in range(len(readable))] == readable
    assert (ledger.last_entry_id, ledger.last_add_confirmed) == (len(readable) - 1, len(readable) - 1)
    assert store.ledgers() == [1]
    site.workers.elapse()
    store.close()
    assert changes(site) == done


def assert_recovers(site: Site, acknowledged: list[bytes], unknown: bytes = b"") -> None:
    """Check that a reopened store has all acknowledged entries, after a kill and after a power cut."""
    kept, cut = Site(disk=site.disk.copy()), Site(disk=site.disk.copy())
    for store in (kept.after_kill(), cut.after_power_cut()):
        found = payloads(store, 1)
        assert found in (acknowledged, [*acknowledged, unknown])
        assert store.ledger(1).append(b"on again") == len(found)


# ── a journal's group ────────────────────────────────────────────────────────────────────────────────────

GROUP = "*.txn.draft"  # a file is called by the name under which it was created
GROUP_FAULTS = {
    "write": Refused(on(Verb.WRITE, GROUP)),
    "no space": Refused(on(Verb.WRITE, GROUP), errno.ENOSPC),
    "short write": ShortWrite(on(Verb.WRITE, GROUP), errno.EIO),
    "sync": Refused(on(Verb.SYNC, GROUP)),
    "sync that forgets": FailedSync(on(Verb.SYNC, GROUP), seed=1),
    "sync that evicts": FailedSync(on(Verb.SYNC, GROUP), seed=2, pages=Pages.EVICTED),
}


@pytest.mark.parametrize("fault", GROUP_FAULTS.values(), ids=GROUP_FAULTS)
def test_a_group_that_fails_stops_the_store(fault: Fault) -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    site.disk.plant(fault)
    with pytest.raises(StoreFailed):
        store.ledger(1).append(b"unknown")
    site.disk.mend()
    assert_stopped(site, store, [b"first", b"second"])
    assert_recovers(site, [b"first", b"second"], b"unknown")


def test_all_adds_of_a_group_that_fails_get_the_error() -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    site.disk.plant(Refused(on(Verb.SYNC, GROUP)))
    futures = [store.ledger(1).submit(b"one"), store.ledger(2).submit(b"another")]
    site.workers.elapse()
    assert [type(future.exception(0)) for future in futures] == [StoreFailed] * 2
    with pytest.raises(NoSuchLedger):
        store.ledger(2).read(0)
    assert_stopped(site, store, [b"first", b"second"])


def test_a_sync_that_failed_is_not_repeated() -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    site.disk.plant(FailedSync(on(Verb.SYNC, GROUP)))
    with pytest.raises(StoreFailed):
        store.ledger(1).append(b"unknown")
    done = changes(site)
    for _ in range(3):
        with pytest.raises(StoreFailed):
            store.ledger(1).append(b"more")
    assert changes(site) == done


# ── the zeros of the next journal ────────────────────────────────────────────────────────────────────────


def half_full() -> tuple[Site, Store]:
    """Return a store whose next journal is about to be filled while the table has much room."""
    site = Site(replace(SMALL, memtable_size_max=64 << 20))
    store = site.open()
    for _ in range(8):
        store.ledger(1).append(BLOCK)
    return site, store


FILL_FAULTS = {
    "zeros": Refused(on(Verb.ZERO_FILL, "*.txn.draft")),
    "some zeros": ShortWrite(on(Verb.ZERO_FILL, "*.txn.draft"), errno.EIO),
    "their sync": FailedSync(on(Verb.SYNC, "*.txn.draft"), seed=1),
    "their file": Refused(on(Verb.CREATE, "*.txn.draft")),
    "its header": Refused(on(Verb.WRITE, "*.txn.draft")),
}


@pytest.mark.parametrize("fault", FILL_FAULTS.values(), ids=FILL_FAULTS)
def test_a_fill_that_fails_in_advance_is_repeated_without_an_error(fault: Fault) -> None:
    site, store = half_full()
    site.disk.plant(fault)
    site.workers.run()
    assert any(operation.outcome == "EIO" for operation in site.disk.trace)
    texts = [store.ledger(1).read(0).payload] * 8
    for _ in range(20):
        assert store.ledger(1).append(BLOCK) == len(texts)
        texts.append(BLOCK)
        site.workers.run()
    assert payloads(site.after_power_cut(), 1) == texts


def full_at_the_next_roll() -> tuple[Site, Store, int]:
    """Return a store on a disk without space for another journal, and the number of its entries."""
    site = Site(replace(SMALL, memtable_size_max=64 << 20))
    store = site.open()
    store.ledger(1).append(BLOCK)
    site.disk.plant(Refused(on(Verb.ZERO_FILL, "*", lasting=FOREVER), errno.ENOSPC))
    taken = adds_until(DiskFull, store)
    return site, store, 1 + taken


def test_without_space_for_a_journal_adds_are_refused_and_nothing_is_stored() -> None:
    site, store, count = full_at_the_next_roll()
    before = {name: site.bytes_of(f"{JOURNAL}/{name}") for name in site.names(JOURNAL)}
    ledger = store.ledger(1)
    futures = [ledger.submit(b"one"), ledger.submit(b"two"), store.ledger(2).submit(b"other")]
    site.workers.elapse()
    assert [type(future.exception(0)) for future in futures] == [DiskFull] * 3
    with pytest.raises(DiskFull) as caught:
        ledger.append_many([b"one", b"two"])
    assert caught.value.errno == errno.ENOSPC
    assert {name: site.bytes_of(f"{JOURNAL}/{name}") for name in site.names(JOURNAL)} == before
    assert (ledger.last_entry_id, store.ledgers()) == (count - 1, [1])
    assert payloads(store, 1) == [BLOCK] * count


def test_adds_resume_by_themselves_when_there_is_space_and_no_id_is_skipped() -> None:
    site, store, count = full_at_the_next_roll()
    store.ledger(1).submit(b"refused")
    site.workers.elapse()
    site.disk.mend()
    assert store.ledger(1).append(b"resumed") == count
    assert store.ledger(1).read(count).length == count * len(BLOCK) + len(b"resumed")
    assert payloads(site.after_power_cut(), 1) == [*[BLOCK] * count, b"resumed"]


def test_adds_that_wait_after_a_refused_group_are_refused_with_it() -> None:
    site, store, count = full_at_the_next_roll()
    ledger = store.ledger(1)
    waiting: list[Future[int]] = []

    def come_late(operation: Operation) -> None:
        if operation.verb is Verb.ZERO_FILL and not waiting:
            waiting.append(ledger.submit(b"its id lies behind one that is handed back"))

    site.disk.watch(come_late)
    with pytest.raises(DiskFull):
        ledger.append(b"refused")
    site.disk.mend()
    site.workers.elapse()
    assert isinstance(waiting[0].exception(0), DiskFull)
    assert ledger.append(b"next") == count


@pytest.mark.parametrize("room_kib", range(0, 160, 20))
def test_a_disk_that_is_really_full_loses_nothing_and_resumes(room_kib: int) -> None:
    config = replace(SMALL, journal_size=160 * KIB, memtable_size_max=120 * KIB)
    site = Site(config)
    store = site.open()
    acknowledged = 0
    site.disk.limit(room_kib * KIB + 400 * KIB)
    for _ in range(30):
        try:
            acknowledged = store.ledger(1).append(b"%5d" % acknowledged * (2 * KIB)) + 1
        except (DiskFull, Overloaded):
            break
        site.workers.run()
    else:
        pytest.fail("the disk never was full")
    assert len(payloads(store, 1)) == acknowledged
    twin = Site(config, site.disk.copy())
    twin.disk.limit(None)
    assert len(payloads(twin.after_power_cut(), 1)) == acknowledged
    site.disk.limit(None)
    site.workers.elapse()
    site.workers.elapse()
    assert store.ledger(1).append(b"resumed") == acknowledged
    site.checkpoint(store)
    assert len(payloads(site.after_power_cut(), 1)) == acknowledged + 1


# ── an entry log, in a checkpoint ────────────────────────────────────────────────────────────────────────

LOG = "*.log*"
LOG_FAULTS: dict[str, Fault] = {
    "create": Refused(on(Verb.CREATE, LOG)),
    "header": Refused(on(Verb.WRITE, LOG)),
    "sync of the header": FailedSync(on(Verb.SYNC, LOG), seed=1),
    "rename": Refused(on(Verb.RENAME, LOG)),
    "entries": Refused(on(Verb.WRITE, LOG, nth=2)),
    "some of the entries": ShortWrite(on(Verb.WRITE, LOG, nth=2), errno.EIO),
    "filler": Refused(on(Verb.WRITE, LOG, nth=3)),
    "sync of the entries": FailedSync(on(Verb.SYNC, LOG, nth=2), seed=1),
    "sync that evicts": FailedSync(on(Verb.SYNC, LOG, nth=2), seed=2, pages=Pages.EVICTED),
}
NAMED = {"entries", "some of the entries", "filler", "sync of the entries", "sync that evicts"}


@pytest.mark.parametrize("what", LOG_FAULTS)
def test_a_log_that_fails_is_abandoned_and_the_same_table_goes_to_a_new_log(what: str) -> None:
    site = Site()
    store = site.open()
    texts = [b"entry %d" % number for number in range(20)]
    store.ledger(1).append_many(texts)
    site.disk.plant(LOG_FAULTS[what])
    site.checkpoint(store)
    assert any(operation.outcome == "EIO" for operation in site.disk.trace)
    assert site.trailer().generation == 1
    assert payloads(store, 1) == texts
    assert site.names(LEDGERS, ".log") == (["0.log", "1.log"] if what in NAMED else ["0.log"])
    after = site.after_power_cut()
    assert payloads(after, 1) == texts
    assert after.opened.records_replayed == 0
    if what in NAMED:
        assert "0.log" in after.opened.removed
        assert site.names(LEDGERS, ".log") == ["1.log"]


def test_a_log_in_use_that_fails_keeps_what_was_committed_in_it() -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    site.disk.plant(FailedSync(on(Verb.SYNC, LOG), seed=1))
    site.checkpoint(store)
    assert site.names(LEDGERS, ".log") == ["0.log", "1.log"]
    store.ledger(1).append(b"third")
    site.checkpoint(store)
    after = site.after_power_cut()
    assert payloads(after, 1) == [b"first", b"second", b"third"]
    assert site.names(LEDGERS, ".log") == ["0.log", "1.log"]


def test_a_log_that_fails_three_times_stops_the_store() -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    mark = site.mark()
    site.disk.plant(Refused(on(Verb.WRITE, LOG, lasting=FOREVER)))
    site.checkpoint(store)
    assert sum(operation.outcome == "EIO" for operation in site.disk.trace) == 3
    site.disk.mend()
    assert site.mark() == mark
    assert_stopped(site, store, [b"first", b"second"])
    assert_recovers(site, [b"first", b"second"])


def test_errors_of_one_checkpoint_do_not_count_for_the_next() -> None:
    site = Site()
    store = site.open()
    for number in range(4):
        store.ledger(1).append(b"more")
        for _ in range(2):
            site.disk.plant(Refused(on(Verb.WRITE, LOG)))
        site.checkpoint(store)
        assert site.trailer().generation == number + 1
    assert len(payloads(site.after_power_cut(), 1)) == 4


def fill_both_tables(site: Site, store: Store) -> int:
    """Return how many adds were accepted until there was no room."""
    return adds_until(Overloaded, store, site.workers.run)


def test_without_space_for_a_log_adds_go_on_until_both_tables_are_full_and_resume() -> None:
    site, store = opened(b"first")
    mark = site.mark()
    site.disk.plant(Refused(on(Verb.WRITE, LOG, lasting=FOREVER), errno.ENOSPC))
    taken = fill_both_tables(site, store)
    for _ in range(10):
        site.workers.elapse()  # the store does not stop, however often it is tried
    with pytest.raises(Overloaded):
        store.ledger(1).append(BLOCK)
    assert taken * len(BLOCK) > 2 * 200 * KIB
    assert site.mark() == mark
    twin = Site(disk=site.disk.copy())
    assert len(payloads(twin.after_power_cut(), 1)) == 1 + taken
    site.disk.mend()
    site.workers.elapse()
    assert site.mark() > mark
    assert store.ledger(1).append(b"resumed") == 1 + taken
    assert len(payloads(site.after_power_cut(), 1)) == 2 + taken


def test_freed_space_is_not_taken_by_abandoned_logs() -> None:
    site = Site(replace(SMALL, memtable_size_max=4 << 20))
    store = site.open()
    store.ledger(1).append_many([BLOCK] * 8)
    used = used_bytes(site.disk)
    site.disk.limit(used + 200 * KIB)  # less than the table takes
    site.checkpoint(store)
    for room in range(220, 480, 20):
        site.disk.limit(used + room * KIB)
        site.workers.elapse()
    # The table takes 400 KiB. 460 KiB are free, less the files that failed attempts have left.
    assert site.trailer().generation == 1
    assert len(payloads(site.after_power_cut(), 1)) == 8


def test_closing_on_a_full_disk_keeps_everything_in_the_journals() -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    site.disk.plant(Refused(on(Verb.WRITE, LOG, lasting=FOREVER), errno.ENOSPC))
    store.close()
    site.disk.mend()
    assert payloads(site.after_power_cut(), 1) == [b"first", b"second"]


# ── the index ────────────────────────────────────────────────────────────────────────────────────────────

INDEX_FAULTS = {
    "write": Refused(on(Verb.WRITE, "index*")),
    "sync": FailedSync(on(Verb.SYNC, "index*")),
    "rename": Refused(on(Verb.RENAME, "index*")),
}


@pytest.mark.parametrize("fault", INDEX_FAULTS.values(), ids=INDEX_FAULTS)
def test_an_error_of_the_index_stops_the_store(fault: Fault) -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    mark = site.mark()
    site.disk.plant(fault)
    site.checkpoint(store)
    site.disk.mend()
    assert site.mark() == mark
    assert_stopped(site, store, [b"first", b"second"])
    assert_recovers(site, [b"first", b"second"])


def test_a_commit_of_the_index_waits_for_space() -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    site.disk.plant(Refused(on(Verb.WRITE, "index*", lasting=FOREVER), errno.ENOSPC))
    site.checkpoint(store)
    for _ in range(5):
        site.workers.elapse()
    assert site.trailer().generation == 1
    assert store.ledger(1).append(b"third") == 2
    site.disk.mend()
    site.workers.elapse()
    assert site.trailer().generation >= 2
    assert payloads(site.after_power_cut(), 1) == [b"first", b"second", b"third"]


def test_metadata_survives_a_commit_of_the_index_that_is_repeated() -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    store.ledger(1).fence()
    site.disk.plant(Refused(on(Verb.WRITE, "index*"), errno.ENOSPC))
    site.checkpoint(store)
    site.workers.elapse()
    site.disk.mend()
    assert site.trailer().generation >= 2
    site.disk.power_cut(LoseAll())
    index = FileIndexPlace(site.directory(LEDGERS)).open()
    assert isinstance(index, FileIndex)
    assert [row.fenced for row in index.rows() if row.ledger_id == 1] == [True]


# ── the mark, and names ──────────────────────────────────────────────────────────────────────────────────

MARK_FAULTS = {
    "create": Refused(on(Verb.CREATE, "lastMark*")),
    "write": Refused(on(Verb.WRITE, "lastMark*")),
    "short write": ShortWrite(on(Verb.WRITE, "lastMark*"), errno.EIO, 20),
    "sync": FailedSync(on(Verb.SYNC, "lastMark*")),
}


@pytest.mark.parametrize("fault", MARK_FAULTS.values(), ids=MARK_FAULTS)
def test_a_draft_of_the_mark_that_fails_is_written_anew_before_anything_is_trimmed(fault: Fault) -> None:
    site = Site(replace(SMALL, journal_size=140 * KIB))
    store = site.open()
    for _ in range(4):
        store.ledger(1).append(BLOCK)
    journals = set(site.names(JOURNAL, ".txn"))
    assert len(journals) > 1
    events: list[str] = []

    def look(operation: Operation) -> None:
        if operation.verb is Verb.REMOVE and operation.path.endswith(".txn"):
            events.append("trim")
        elif operation.verb is Verb.CREATE and "lastMark" in operation.path:
            events.append("draft")
        elif operation.verb is Verb.RENAME and "lastMark" in operation.path:
            events.append("mark")

    site.disk.watch(look)
    site.disk.plant(fault)
    site.checkpoint(store)
    assert events[:4] == ["draft", "draft", "mark", "trim"]
    # A journal that was prepared meanwhile may exist too.
    assert journals & set(site.names(JOURNAL, ".txn")) < journals
    assert len(payloads(site.after_power_cut(), 1)) == 4


def test_a_draft_of_the_mark_that_fails_three_times_stops_the_store() -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    mark, journals = site.mark(), site.names(JOURNAL, ".txn")
    site.disk.plant(Refused(on(Verb.WRITE, "lastMark*", lasting=FOREVER)))
    site.checkpoint(store)
    site.disk.mend()
    assert (site.mark(), site.names(JOURNAL, ".txn")) == (mark, journals)
    assert_stopped(site, store, [b"first", b"second"])
    assert_recovers(site, [b"first", b"second"])


@pytest.mark.parametrize("name", ["log", "index", "mark"])
def test_a_name_that_cannot_be_made_durable_stops_the_store(name: str) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    number = ["log", "index", "mark"].index(name) + 1
    site.disk.plant(FailedSync(on(Verb.SYNC_DIRECTORY, f"/{LEDGERS}", nth=number), seed=number))
    journals = site.names(JOURNAL, ".txn")
    site.checkpoint(store)
    assert site.names(JOURNAL, ".txn") == journals
    assert_stopped(site, store, [b"first"])
    assert_recovers(site, [b"first"])


def test_a_journal_whose_name_cannot_be_made_durable_stops_the_store() -> None:
    site, store = opened(b"first")
    site.disk.plant(Refused(on(Verb.SYNC_DIRECTORY, f"/{JOURNAL}")))
    acknowledged = [b"first"] + [BLOCK] * adds_until(StoreFailed, store)
    assert_stopped(site, store, acknowledged)
    assert_recovers(site, acknowledged)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

TEXTS = [b"entry %d " % number * 2000 for number in range(4)]


@pytest.mark.parametrize("verb", [Verb.READ, Verb.OPEN])
def test_a_read_error_concerns_one_entry_and_one_moment(verb: Verb) -> None:
    site, _ = opened(*TEXTS)
    ledger = site.after_kill().ledger(1)
    site.disk.plant(Refused(on(verb, "0.log")))
    with pytest.raises(EntryUnreadable) as caught:
        ledger.read(1)
    assert (caught.value.entry_id, caught.value.file) == (1, "0.log")
    assert isinstance(caught.value.__cause__, OSError)
    assert [ledger.read(number).payload for number in range(4)] == TEXTS
    assert ledger.append(b"writing goes on") == 4


def test_a_read_error_in_the_middle_is_raised_at_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "READ_AHEAD", 1)  # each entry alone
    site, _ = opened(*TEXTS)
    ledger = site.after_kill().ledger(1)
    found = ledger.entries()
    site.disk.plant(Refused(on(Verb.READ, "0.log", nth=3, lasting=FOREVER)))
    assert next(found).payload == TEXTS[0]  # in two reads, because its length is at its beginning
    with pytest.raises(EntryUnreadable) as caught:
        list(found)
    assert caught.value.entry_id == 1
    site.disk.mend()
    assert payloads(site.after_kill(), 1) == TEXTS


@pytest.mark.parametrize("verb", [Verb.READ, Verb.OPEN])
@pytest.mark.parametrize("name", ["*.txn", "lastMark", "VERSION", "0.log"])
def test_a_read_error_while_opening_refuses_and_changes_nothing(verb: Verb, name: str) -> None:
    site, store = opened(b"first")
    store.ledger(1).append(b"second")
    site.disk.kill()
    before = site.disk.image()
    site.disk.plant(Refused(on(verb, name, lasting=FOREVER)))
    if (verb, name) == (Verb.READ, "0.log"):
        site.open()  # only the size of a log that is not needed is read
        return
    with pytest.raises(OSError, match="Input/output"):
        site.open()
    assert site.disk.image() == before
    site.disk.mend()
    assert payloads(site.after_kill(), 1) == [b"first", b"second"]


@pytest.mark.parametrize("seed", range(6))
def test_a_name_that_an_opening_could_not_make_durable_proves_nothing_later(seed: int) -> None:
    site = Site()
    site.open().ledger(1).append(b"one")
    site.disk.kill()
    # The third sync of a directory is the journals', after the rename of the carried records' journal.
    site.disk.plant(FailedSync(When(verb=Verb.SYNC_DIRECTORY, nth=3), seed=seed))
    with pytest.raises(OSError, match="Input/output"):
        site.open()
    site.disk.mend()
    store = site.after_kill()
    store.ledger(1).append(b"two")
    assert payloads(site.after_power_cut(), 1) == [b"one", b"two"]


def test_a_future_gets_the_failure_when_the_store_is_closed() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"zero")
    future = store.ledger(1).submit(b"one")
    StoreInternals(store).fail(OSError(errno.EIO, "something else has failed"))
    store.close()
    with pytest.raises(StoreFailed):
        future.result(0)


def test_a_ctrl_c_in_one_thread_is_store_failed_in_the_next() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"zero")
    future = store.ledger(1).submit(b"one")
    StoreInternals(store).fail(KeyboardInterrupt())
    StoreInternals(store).flush()
    with pytest.raises(StoreFailed):
        future.result(0)


def test_a_future_is_answered_although_a_ctrl_c_comes_before() -> None:
    """In a thread where no signal handler runs, because an interrupted answer may leave its lock taken."""
    site = Site()
    store = site.open()
    store.ledger(1).append(b"zero")
    engine = StoreInternals(store)
    future = store.ledger(1).submit(b"one")
    group = engine.open_group
    set_result, threads = future.set_result, list[threading.Thread]()

    def noted(result: int) -> None:
        threads.append(threading.current_thread())
        set_result(result)

    future.set_result = noted  # type: ignore[method-assign]
    engine.flush()
    assert future.result(0) == 1
    assert threads != [threading.main_thread()]
    engine.answer(group)
    assert future.result(0) == 1


def test_a_ledger_in_use_is_not_released_by_the_answer_to_another() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"zero")
    engine = StoreInternals(store)
    tail = engine.tail(1)
    group, delete = PendingGroup(), PendingDelete(tail, None)
    delete.join(group)
    engine.answer(group)
    assert not tail.is_held
    tail.is_held = True  # by the next delete
    engine.answer(group)  # the leader was interrupted, and answers once more
    assert tail.is_held


class Refusing:
    """A file whose writes fail with an error that is in a reference cycle with its data."""

    def write(self, offset: int, data: Sequence[memoryview]) -> None:
        error = OSError(errno.EIO, f"refused {len(data)} buffers")
        raise error


def test_a_failed_write_whose_traceback_is_garbage_warns_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = JournalWriter(cast("WriteFile", Refusing()), 1, 7, 4096, 1 << 20)
    warnings: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", warnings.append)
    with suppress(OSError):
        writer.write(Group([bytes(40_000)], 1, 40_000), JournalPosition(1, 512))
    cycle: list[object] = [writer]
    cycle.append(cycle)
    del writer, cycle
    gc.collect()
    assert warnings == []
