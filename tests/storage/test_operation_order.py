"""Orders of operations that only a thread between two statements could observe, checked at calls of the
engine."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import lmdb
import pytest
from journal_builder import entry_record
from stepped_store import JOURNAL, LEDGERS, Site, payloads
from store_internals import EngineCall, StoreInternals

from recovery.crashlab import FailedSync, Refused, SimulatedDisk, Verb, When
from storage.entry import record_chunk
from storage.entry.read_result import Damaged, Flaw
from storage.entrylog.format import Origin
from storage.entrylog.writer import EntryLogWriter
from storage.errors import StoreFailed
from storage.index.lmdb import environment as lmdb_environment
from storage.ledgers.waiters import CHECKPOINT, ROOM
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from pathlib import Path


def test_readers_leave_the_frozen_table_when_no_copy_of_old_places_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    engine, tables = StoreInternals(store), []
    forget = engine.call(EngineCall.FORGET_PLACES)

    def noted(ledger_ids: object) -> None:
        tables.append(engine.frozen_table)
        forget(ledger_ids)

    monkeypatch.setattr(*engine.at(EngineCall.FORGET_PLACES), noted)
    site.checkpoint(store)

    assert tables
    assert None not in tables
    assert engine.frozen_table is None


def test_a_store_that_has_failed_writes_no_tombstone(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    site.checkpoint(store)
    engine = StoreInternals(store)
    proceed = engine.call(EngineCall.DELETES)

    def failing(group: object) -> None:
        engine.fail(OSError("the disk"))
        done = len(site.disk.trace)
        try:
            proceed(group)
        finally:
            assert len(site.disk.trace) == done

    monkeypatch.setattr(*engine.at(EngineCall.DELETES), failing)
    with pytest.raises(StoreFailed):
        store.ledger(1).delete()

    assert payloads(site.after_power_cut(), 1) == [b"first"]


def test_a_draft_that_cannot_be_removed_costs_no_answer() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    site.disk.plant(Refused(When(verb=Verb.ZERO_FILL, name="*.txn.draft"), errno.EIO))
    site.disk.plant(Refused(When(verb=Verb.REMOVE, name="*.txn.draft"), errno.EIO))
    for number in range(20):
        store.ledger(1).append(b"%d" % number * 20_000)
        site.workers.run()
    site.disk.mend()

    assert len(payloads(site.after_power_cut(), 1)) == 21


def test_a_journal_of_ours_that_the_mark_does_not_name_is_not_a_bookie_s() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    site.checkpoint(store)
    before = site.bytes_of(f"{LEDGERS}/lastMark")
    while len(site.names(JOURNAL, ".txn")) < 2:
        store.ledger(1).append(b"x" * 60_000)
    added = payloads(store, 1)
    site.disk.kill()
    # The state after a crash between the name of a journal and its announcement.
    site.put(f"{LEDGERS}/lastMark", before)

    store = site.open()

    assert store.opened.index is IndexFound.GOOD
    assert payloads(store, 1) == added


@pytest.mark.parametrize(
    ("code", "expected"), [(1, 1), (errno.ENOSPC, errno.ENOSPC), (0, errno.EIO), (-30796, errno.EIO)]
)
def test_system_errors_of_lmdb_keep_their_number_and_others_become_eio(code: int, expected: int) -> None:
    error = lmdb.Error("said")
    vars(error)["code"] = code

    assert vars(lmdb_environment)["_system_error"](error, "index").errno == expected


def test_errors_of_lmdb_without_a_number_become_eio() -> None:
    found = vars(lmdb_environment)["_system_error"](lmdb.Error("said"), "index")

    assert (found.errno, found.filename) == (errno.EIO, "index")


@pytest.mark.parametrize(("dupsort", "dupfixed"), [(False, False), (True, False), (True, True)])
def test_a_database_whose_locations_are_not_sorted_pairs_of_one_size_is_no_index(
    dupsort: bool, dupfixed: bool, tmp_path: Path
) -> None:
    places, *others = (vars(lmdb_environment)[name] for name in ("_PLACES", "_ROWS", "_STATE"))
    with lmdb.open(str(tmp_path), map_size=1 << 20, max_dbs=3) as environment:
        environment.open_db(places, dupsort=dupsort, dupfixed=dupfixed)
        for name in others:
            environment.open_db(name)

    found = lmdb_environment.open_environment(tmp_path, 1 << 20)

    if dupfixed:
        assert not isinstance(found, Damaged)
        found.close()
    else:
        assert found == Damaged(0, Flaw.BAD_FIELD, "a database with other flags")


def test_a_woken_waiter_finds_the_change_that_woke_it(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    engine = StoreInternals(store)
    wake, woken = engine.call(EngineCall.WAKE), []
    number = engine.number_checkpoint()

    def noted(what: object) -> None:
        if what == ROOM:
            woken.append(("room", engine.frozen_table is None))
        if what == CHECKPOINT:
            woken.append(("checkpoint", engine.has_checkpointed(number)))
        wake(what)

    monkeypatch.setattr(*engine.at(EngineCall.WAKE), noted)
    site.checkpoint(store)

    assert ("room", True) in woken
    assert ("checkpoint", True) in woken
    assert not [what for what, is_there in woken if not is_there]


def test_an_entry_log_whose_sync_has_failed_is_never_synced_again() -> None:
    disk = SimulatedDisk()
    writer = EntryLogWriter.create(disk.root(), 0, Origin(bytes(16), 1, None))
    writer.write([*record_chunk.of_records(7, [0], [entry_record(7, 0)])])
    disk.plant(FailedSync(When(verb=Verb.SYNC, name="*"), seed=1))

    with pytest.raises(OSError, match="Input/output"):
        writer.sync()

    syncs = [operation for operation in disk.trace if operation.verb is Verb.SYNC]
    with pytest.raises(AssertionError, match="given up"):
        writer.sync()
    assert [operation for operation in disk.trace if operation.verb is Verb.SYNC] == syncs
