"""A replay that no table could hold: what is proven stays in the journals until it is written down."""

from __future__ import annotations

import gc
import random
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped import JOURNAL, LEDGERS, SMALL, Site, payloads

from recovery.crashlab import FailedSync, Lasting, LoseAll, Refused, Stopped, Verb, When
from recovery.crashlab.handles import SimulatedReadFile
from recovery.replaying import JOURNALS_WAITING_MAX, TABLES_WAITING_MAX
from storage.backlog import Backlog
from storage.entry import DigestType, Entry
from storage.errors import (
    CorruptionError,
    EntryUnreadable,
    LedgerFenced,
    NoSuchEntry,
    StoreFailed,
    Unauthorized,
)
from storage.position import START

if TYPE_CHECKING:
    from storage.memtable import Memtable
    from storage.store import Store

KIB = 1 << 10
TABLE = 32 * KIB
LARGE = replace(SMALL, memtable_size_max=1 << 20, journal_size=512 * KIB)
"""Under this the journals are filled, without a checkpoint."""
LITTLE = replace(LARGE, memtable_size_max=TABLE)
"""Under this they are replayed."""


def texts(count: int, size: int = 500, seed: int = 1) -> list[bytes]:
    dice = random.Random(seed)
    return [dice.randbytes(size) for _ in range(count)]


def filled(*ledgers: int, tables: float = 2.0) -> tuple[Site, dict[int, list[bytes]]]:
    """A store that was killed with so many tables' worth in its journals, in batches of ten."""
    site = Site(LARGE)
    store, added = site.open(), {ledger_id: list[bytes]() for ledger_id in ledgers}
    for number in range(int(tables * TABLE / 500 / 10)):
        ledger_id = ledgers[number % len(ledgers)]
        some = texts(10, seed=number)
        store.ledger(ledger_id).append_many(some)
        added[ledger_id] += some
    site.disk.kill()
    site.config = LITTLE
    return site, added


def waiting(store: Store) -> Memtable | None:
    return store._parts.slot.tables.frozen


def assert_whole(store: Store, added: dict[int, list[bytes]]) -> None:
    for ledger_id, expected in added.items():
        ledger = store.ledger(ledger_id)
        assert list(ledger.payloads()) == expected
        assert [ledger.read(one).payload for one in range(len(expected))] == expected
        assert ledger.last_entry_id == ledger.last_add_confirmed == len(expected) - 1
        with pytest.raises(NoSuchEntry):
            ledger.read(len(expected))


def test_it_waits_in_the_journals_and_all_of_it_can_be_read() -> None:
    site, added = filled(1, 2, 3)
    store = site.open()
    assert isinstance(waiting(store), Backlog)
    assert (site.mark(), site.names(LEDGERS, ".log")) == (START, [])
    assert_whole(store, added)
    assert store.ledgers() == [1, 2, 3]


def test_it_is_written_down_without_being_asked_for_and_the_journals_go() -> None:
    site, added = filled(1, 2, 3)
    store = site.open()
    before = site.names(JOURNAL, ".txn")
    site.crew.run()
    assert waiting(store) is None
    assert site.mark() > START
    assert site.names(LEDGERS, ".log")
    assert set(site.names(JOURNAL, ".txn")) < set(before)
    assert_whole(store, added)
    store.close()
    assert site.open().opened.records_replayed == 0


def test_what_a_table_could_hold_comes_into_memory() -> None:
    site, added = filled(1, 2, tables=0.8)
    store = site.open()
    assert waiting(store) is None
    assert len(store._parts.slot.tables.active) == sum(map(len, added.values()))
    assert_whole(store, added)


def test_the_report_and_the_progress_say_what_a_replay_into_memory_would_say() -> None:
    site, added = filled(1, 2)
    twin = Site(LARGE, site.disk.copy())
    plain, left = twin.open().opened, site.open().opened
    assert (left.records_replayed, left.bytes_replayed) == (plain.records_replayed, plain.bytes_replayed)
    assert left.records_replayed == sum(map(len, added.values()))
    assert left.records_carried == plain.records_carried == 10


def test_only_what_nothing_proves_is_written_again() -> None:
    site, added = filled(1)
    store = site.open()
    assert len(store._parts.slot.tables.active) == store.opened.records_carried == 10
    backlog = waiting(store)
    assert backlog is not None
    assert backlog.last_id(1) == len(added[1]) - 11


@pytest.mark.parametrize("written", [0, 5, 1000])
def test_opened_again_however_far_it_was_written_down_nothing_is_lost(written: int) -> None:
    site, added = filled(1, 2, 3)
    for _ in range(3):
        site.open()
        for _ in range(written):
            site.crew.step()
        site.disk.power_cut(LoseAll())
    assert_whole(site.open(), added)


def test_a_crash_before_every_operation_of_its_checkpoint_loses_nothing() -> None:
    site, added = filled(1, 2)
    opened = site.disk.copy()
    site.open()
    first = len(site.disk.trace)
    site.crew.run()
    for number in range(first, len(site.disk.trace) + 1, 3):
        again = Site(LITTLE, opened.copy())
        again.disk.stop_before(number)
        with suppress(Stopped):
            again.open()
            again.crew.run()
        again.disk.power_cut(LoseAll())
        assert_whole(again.open(), added)


def test_adds_go_on_beside_it() -> None:
    site, added = filled(1, 2)
    store = site.open()
    for _ in range(3):
        assert store.ledger(1).append(b"more") == len(added[1])
        added[1].append(b"more")
        site.crew.step()
    store.ledger(4).append_many(texts(3))
    added[4] = texts(3)
    assert_whole(store, added)
    site.crew.run()
    assert_whole(store, added)
    assert_whole(site.after_power_cut(), added)


def test_an_id_that_is_added_again_shows_the_newer_copy() -> None:
    site, added = filled(1)
    store = site.open()
    newer = Entry(1, 3, 2, 2000, b"newer")
    store.add(newer)
    assert store.ledger(1).read(3) == newer
    added[1][3] = b"newer"
    assert list(store.ledger(1).payloads()) == added[1]
    site.crew.run()
    assert store.ledger(1).read(3) == newer
    store.close()
    assert list(site.open().ledger(1).payloads()) == added[1]


def test_of_ids_in_another_order_the_records_are_looked_at() -> None:
    site = Site(LARGE)
    store = site.open()
    payload = {one: texts(1, seed=one)[0] for one in range(200)}
    for one in [*range(100, 200), *range(100), 7]:
        store.add(Entry(1, one, -1, 500 * (one + 1), payload[one]))
    site.disk.kill()
    site.config = LITTLE
    store = site.open()
    assert waiting(store) is None
    assert site.mark() > START
    assert payloads(store, 1) == [payload[one] for one in range(200)]


# ── what is said of ledgers ──────────────────────────────────────────────────────────────────────────────


def site_with_facts() -> Site:
    """Keys, a fence, a confirmation and a digest type, all before what is left in the journals."""
    site = Site(LARGE)
    store = site.open()
    store.ledger(7, password=b"secret").append(b"key")
    store.ledger(8, DigestType.CRC32).append(b"another digest")
    store.ledger(9).append(b"fenced")
    store.ledger(9).fence()
    for number in range(14):
        store.ledger(1).append_many(texts(10, seed=number))
    site.disk.kill()
    site.config = LITTLE
    return site


def assert_facts(store: Store) -> None:
    assert [entry.payload for entry in store.ledger(7, password=b"secret").entries()] == [b"key"]
    with pytest.raises(Unauthorized):
        store.ledger(7, password=b"wrong").append(b"refused")
    assert store.ledger(8).digest_type is DigestType.CRC32
    assert [entry.payload for entry in store.ledger(8).entries()] == [b"another digest"]
    with pytest.raises(LedgerFenced):
        store.ledger(9).append(b"refused")


def test_keys_and_fences_stand_while_it_waits_and_when_it_is_written_down() -> None:
    site = site_with_facts()
    store = site.open()
    assert isinstance(waiting(store), Backlog)
    assert_facts(store)
    site.crew.run()
    assert_facts(store)
    site.disk.power_cut(LoseAll())
    store = site.open()
    assert store.opened.records_replayed <= 10
    assert_facts(store)


@pytest.mark.parametrize("when", ["before", "between", "while it waits"])
def test_a_deleted_ledger_does_not_come_back(when: str) -> None:
    site = Site(LARGE)
    store, added = site.open(), []
    store.ledger(5).append_many(texts(10))
    if when == "before":
        store.ledger(5).delete()
    for number in range(20):
        added += texts(10, seed=number)
        store.ledger(1).append_many(added[-10:])
        if number == 9 and when == "between":
            store.ledger(5).delete()
    site.disk.kill()
    site.config = LITTLE
    store = site.open()
    assert isinstance(waiting(store), Backlog)
    if when == "while it waits":
        site.crew.step()
        store.ledger(5).delete()
    for _ in range(2):
        assert (store.ledgers(), payloads(store, 1)) == ([1], added)
        site.crew.run()
    store = site.after_power_cut()
    assert (store.ledgers(), payloads(store, 1)) == ([1], added)


@pytest.mark.parametrize("journal_size", [256 * KIB, 4 << 20], ids=["another journal", "the same journal"])
def test_a_ledger_that_is_made_again_has_only_its_new_entries(journal_size: int) -> None:
    site = Site(replace(LARGE, journal_size=journal_size))
    store = site.open()
    store.ledger(5).append_many(texts(30))
    store.ledger(5).delete()
    store.ledger(5).append_many([b"new"] * 3)
    for number in range(10):
        store.ledger(1).append_many(texts(10, seed=number))
    site.disk.kill()
    site.config = LITTLE
    store = site.open()
    # What is dead and what lives have the same ids: in one journal each record is looked at.
    assert (waiting(store) is None) == (journal_size > 1 << 20)
    assert payloads(store, 5) == [b"new"] * 3
    site.crew.run()
    assert payloads(site.after_power_cut(), 5) == [b"new"] * 3


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────


def test_more_than_a_few_tables_are_written_down_before_the_store_is_open() -> None:
    site, added = filled(1, 2, tables=3 * TABLES_WAITING_MAX)
    sizes: list[int] = []
    store = site.open()
    backlog = waiting(store)
    assert isinstance(backlog, Backlog)
    sizes = [one.size for ledger_id in backlog.ledgers() for one in backlog.pieces(ledger_id)]
    assert 0 < sum(sizes) <= TABLES_WAITING_MAX * TABLE
    assert site.mark() > START
    assert_whole(store, added)
    site.crew.run()
    assert_whole(site.after_power_cut(), added)


def test_nor_does_it_wait_in_more_than_a_few_journals() -> None:
    site = Site(replace(LARGE, memtable_size_max=TABLE, journal_size=4 * TABLE))
    added: list[bytes] = []
    for number in range(JOURNALS_WAITING_MAX + 4):
        store = site.open()
        some = texts(10, seed=number)
        store.ledger(1).append_many(some)
        added += some
        site.disk.kill()  # before anything is written down
        assert len(site.names(JOURNAL, ".txn")) <= JOURNALS_WAITING_MAX + 3
    assert_whole(site.open(), {1: added})


def test_a_checkpoint_on_the_way_that_fails_is_noticed() -> None:
    site, added = filled(1, tables=2 * TABLES_WAITING_MAX)
    site.disk.plant(Refused(When(verb=Verb.WRITE, name="*.log*", lasting=Lasting.UNTIL_MENDED), 5))
    with pytest.raises(OSError, match="Input/output error"):
        site.open()
    assert site.mark() == START
    site.disk.mend()
    assert_whole(site.after_power_cut(), added)


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


def place_of(site: Site, text: bytes) -> tuple[str, int]:
    """Where a journal holds this text."""
    for name in site.names(JOURNAL, ".txn"):
        place = site.bytes_of(f"{JOURNAL}/{name}").find(text)
        if place >= 0:
            return f"{JOURNAL}/{name}", place
    raise AssertionError("no journal has it")


def test_damage_in_what_is_proven_is_refused_as_ever() -> None:
    site, added = filled(1)
    site.flip(*place_of(site, added[1][20]))
    with pytest.raises(CorruptionError, match="JRN-003"):
        site.open()


def test_damage_that_comes_while_it_waits_is_told_by_the_read_and_stops_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, added = filled(1, 2)
    store = site.open()
    path, place = place_of(site, added[1][20])
    site.flip(path, place)  # for who opens it next
    sound = SimulatedReadFile.read

    def read(file: SimulatedReadFile, offset: int, size: int) -> bytes:
        data = bytearray(sound(file, offset, size))
        if file.name.endswith(path) and offset <= place < offset + size:
            data[place - offset] ^= 0x10
        return bytes(data)

    monkeypatch.setattr(SimulatedReadFile, "read", read)
    with pytest.raises(EntryUnreadable):
        store.ledger(1).read(20)
    assert store.ledger(1).read(19).payload == added[1][19]
    site.crew.run()
    assert site.mark() == START
    with pytest.raises(StoreFailed):
        store.ledger(2).append(b"refused")
    monkeypatch.undo()
    with pytest.raises(CorruptionError, match="JRN-003"):
        site.after_kill()


def test_an_error_of_its_checkpoint_is_overcome_with_a_new_log() -> None:
    site, added = filled(1, 2)
    store = site.open()
    site.disk.plant(FailedSync(When(verb=Verb.SYNC, name="*.log*")))
    site.crew.run()
    assert waiting(store) is None
    assert_whole(store, added)
    assert_whole(site.after_power_cut(), added)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_journals_are_let_go_when_it_is_written_down() -> None:
    site, _ = filled(1)
    backlog = waiting(site.open())
    assert isinstance(backlog, Backlog)
    files = backlog._close
    del backlog
    gc.disable()
    try:
        site.crew.run()
        assert not files.alive
    finally:
        gc.enable()


def test_the_journals_are_let_go_when_the_store_closes_in_the_middle_or_is_forked() -> None:
    for end in ("close", "fork"):
        site, _ = filled(1)
        store = site.open()
        backlog = waiting(store)
        assert isinstance(backlog, Backlog)
        site.disk.plant(Refused(When(verb=Verb.WRITE, name="*.log*", lasting=Lasting.UNTIL_MENDED), 28))
        if end == "close":
            store.close()
        else:
            store.forked()
        assert not backlog._close.alive
