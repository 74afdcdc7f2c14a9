"""A replay that is larger than the tables leaves durable entries in the journals until a checkpoint."""

from __future__ import annotations

import gc
import random
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped_store import JOURNAL, LEDGERS, SMALL, Site, payloads
from store_internals import EngineCall, StoreInternals, journals_of

from recovery.crashlab import FailedSync, Lasting, LoseAll, Refused, SimulatedDisk, Stopped, Verb, When
from recovery.crashlab.model.fates import NEWEST
from recovery.crashlab.model.handles import SimulatedReadFile
from recovery.opening.open_store import JOURNALS_MAX
from recovery.replay.apply import JOURNALS_WAITING_MAX, TABLES_WAITING_MAX
from recovery.replay.journal_backed_table import JournalBackedTable
from recovery.replay.journals import Replay
from storage.commit.pending import ReplicaEntry
from storage.entry.format import IDS
from storage.entry.model import DigestType, Entry
from storage.entry.position import START
from storage.errors import (
    CorruptionError,
    EntryUnreadable,
    LedgerFenced,
    NewerFormat,
    NoSuchEntry,
    StoreFailed,
    Unauthorized,
)
from storage.journal.format import encode_record
from storage.journal.writer import Group
from storage.validation import access_of

if TYPE_CHECKING:
    from recovery.crashlab.model.pending import PendingUnits, Survivors
    from storage.memtable.table import Memtable
    from storage.store import Store

KIB = 1 << 10
TABLE = 32 * KIB
LARGE = replace(SMALL, memtable_size_max=1 << 20, journal_size=512 * KIB)
"""The configuration with which the journals are filled, without a checkpoint."""
LITTLE = replace(LARGE, memtable_size_max=TABLE)
"""The configuration with which they are replayed."""


def texts(count: int, size: int = 500, seed: int = 1) -> list[bytes]:
    dice = random.Random(seed)
    return [dice.randbytes(size) for _ in range(count)]


def filled(*ledgers: int, tables: float = 2.0) -> tuple[Site, dict[int, list[bytes]]]:
    """A store that was killed with the entries of so many tables in its journals, in batches of ten."""
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
    return StoreInternals(store).frozen_table


def assert_whole(store: Store, added: dict[int, list[bytes]]) -> None:
    for ledger_id, expected in added.items():
        ledger = store.ledger(ledger_id)
        assert list(ledger.payloads()) == expected
        assert [ledger.read(one).payload for one in range(len(expected))] == expected
        assert ledger.last_entry_id == ledger.last_add_confirmed == len(expected) - 1
        with pytest.raises(NoSuchEntry):
            ledger.read(len(expected))


def test_a_long_replay_stays_in_the_journals_and_can_be_read() -> None:
    site, added = filled(1, 2, 3)
    store = site.open()
    assert isinstance(waiting(store), JournalBackedTable)
    assert (site.mark(), site.names(LEDGERS, ".log")) == (START, [])
    assert_whole(store, added)
    assert store.ledgers() == [1, 2, 3]


def test_a_long_replay_is_checkpointed_by_itself_and_the_journals_are_trimmed() -> None:
    site, added = filled(1, 2, 3)
    store = site.open()
    before = site.names(JOURNAL, ".txn")
    site.workers.run()
    assert waiting(store) is None
    assert site.mark() > START
    assert site.names(LEDGERS, ".log")
    assert set(site.names(JOURNAL, ".txn")) < set(before)
    assert_whole(store, added)
    store.close()
    assert site.open().opened.records_replayed == 0


def test_a_replay_that_fits_into_a_table_is_read_into_memory() -> None:
    site, added = filled(1, 2, tables=0.8)
    store = site.open()
    assert waiting(store) is None
    assert len(StoreInternals(store).active_table) == sum(map(len, added.values()))
    assert_whole(store, added)


def test_the_report_and_the_progress_say_what_a_replay_into_memory_would_say() -> None:
    site, added = filled(1, 2)
    twin = Site(LARGE, site.disk.copy())
    plain, left = twin.open().opened, site.open().opened
    assert (left.records_replayed, left.bytes_replayed) == (plain.records_replayed, plain.bytes_replayed)
    assert left.records_replayed == sum(map(len, added.values()))
    assert left.records_carried == plain.records_carried == 10


def test_only_unproven_records_are_written_again() -> None:
    site, added = filled(1)
    store = site.open()
    assert len(StoreInternals(store).active_table) == store.opened.records_carried == 10
    backlog = waiting(store)
    assert backlog is not None
    assert backlog.last_id(1) == len(added[1]) - 11


@pytest.mark.parametrize("written", [0, 5, 1000])
def test_nothing_is_lost_if_the_store_is_reopened_at_any_step_of_the_checkpoint(written: int) -> None:
    site, added = filled(1, 2, 3)
    for _ in range(3):
        site.open()
        for _ in range(written):
            site.workers.step()
        site.disk.power_cut(LoseAll())
    assert_whole(site.open(), added)


def test_a_crash_before_any_operation_of_the_checkpoint_loses_nothing() -> None:
    site, added = filled(1, 2)
    opened = site.disk.copy()
    site.open()
    first = len(site.disk.trace)
    site.workers.run()
    for number in range(first, len(site.disk.trace) + 1, 3):
        again = Site(LITTLE, opened.copy())
        again.disk.stop_before(number)
        with suppress(Stopped):
            again.open()
            again.workers.run()
        again.disk.power_cut(LoseAll())
        assert_whole(again.open(), added)


def test_adds_continue_beside_a_journal_backed_table() -> None:
    site, added = filled(1, 2)
    store = site.open()
    for _ in range(3):
        assert store.ledger(1).append(b"more") == len(added[1])
        added[1].append(b"more")
        site.workers.step()
    store.ledger(4).append_many(texts(3))
    added[4] = texts(3)
    assert_whole(store, added)
    site.workers.run()
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
    site.workers.run()
    assert store.ledger(1).read(3) == newer
    store.close()
    assert list(site.open().ledger(1).payloads()) == added[1]


def test_the_newer_copy_of_an_id_in_a_later_journal_is_read() -> None:
    site, added = Site(LARGE), list[bytes]()
    store = site.open()
    journal = None
    while journal is None or journal.room > 50 * KIB:
        some = texts(10, seed=len(added))
        store.ledger(1).append_many(some)
        added += some
        journal = StoreInternals(store).journal
    # Too large for the rest of the journal, so that the older id is the first of the next journal.
    newer = Entry(1, 3, 2, 2000, bytes(60 * KIB))
    store.add(newer)
    added[3] = newer.payload
    for number in range(20):
        some = texts(10, seed=1000 + number)
        store.ledger(1).append_many(some)
        added += some
    assert StoreInternals(store).journal is not journal
    site.disk.kill()
    site.config = LITTLE

    store = site.open()

    assert store.ledger(1).read(3) == newer
    assert list(store.ledger(1).payloads()) == added


def test_a_later_journal_with_smaller_ids_is_read_record_by_record() -> None:
    site, added = Site(LARGE), dict[int, bytes]()
    store = site.open()

    def add(entry_id: int) -> None:
        added[entry_id] = texts(1, seed=entry_id)[0]
        store.add(Entry(1, entry_id, -1, 500 * (entry_id + 1), added[entry_id]))

    add(100)
    first, following = StoreInternals(store).journal, iter(range(101, 2000))
    while (
        (journal := StoreInternals(store).journal) is first and journal is not None and journal.room > 8 * KIB
    ):
        add(next(following))
    store.add(Entry(1, 0, -1, 500, bytes(60 * KIB)))  # does not fit, so that it begins the next journal
    added[0] = bytes(60 * KIB)
    for entry_id in range(1, 100):
        add(entry_id)
    site.disk.kill()
    site.config = LITTLE

    store = site.open()

    assert payloads(store, 1) == [added[one] for one in sorted(added)]
    assert {one: store.ledger(1).read(one).payload for one in added} == added


def test_journals_with_ids_out_of_order_are_read_record_by_record() -> None:
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
    """Keys, a fence, a confirmation and a digest type, all before the entries that stay in the journals."""
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


def test_keys_and_fences_count_before_and_after_the_checkpoint() -> None:
    site = site_with_facts()
    store = site.open()
    assert isinstance(waiting(store), JournalBackedTable)
    assert_facts(store)
    site.workers.run()
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
    assert isinstance(waiting(store), JournalBackedTable)
    if when == "while it waits":
        site.workers.step()
        store.ledger(5).delete()
    for _ in range(2):
        assert (store.ledgers(), payloads(store, 1)) == ([1], added)
        site.workers.run()
    store = site.after_power_cut()
    assert (store.ledgers(), payloads(store, 1)) == ([1], added)


def test_a_ledger_that_is_deleted_early_in_the_next_journal_does_not_come_back() -> None:
    site = Site(LARGE)
    store, added = site.open(), list[bytes]()
    while (
        (journal := StoreInternals(store).journal) is None
        or journal.end < 100 * KIB
        or journal.room > 50 * KIB
    ):
        added += texts(10, seed=len(added))
        store.ledger(1).append_many(added[-10:])
    store.ledger(5).append_many(texts(10))
    before = StoreInternals(store).durable_up_to
    added.append(bytes(60 * KIB))
    store.ledger(1).append(added[-1])
    deleted_at = StoreInternals(store).durable_up_to
    assert (deleted_at.journal_id, deleted_at.offset < before.offset) == (before.journal_id + 1, True)
    store.ledger(5).delete()
    store.ledger(1).append(b"proves it")
    store.ledger(1).append(b"last")
    site.config = replace(LITTLE, memtable_size_max=64 * KIB)
    for _ in range(2):
        store = site.after_kill()
        assert store.ledgers() == [1]
        assert payloads(store, 1) == [*added, b"proves it", b"last"]
        site.workers.run()


def write_group(store: Store, *records: bytes) -> None:
    """Write a group to the journal, as a later version of this program could do."""
    engine = StoreInternals(store)
    assert engine.journal is not None
    engine.journal.write(Group(records, len(records), sum(map(len, records))), engine.durable_up_to)
    engine.call(EngineCall.SYNC_JOURNALS)()


@pytest.mark.parametrize("batches", [1, 20], ids=["into memory", "into a table of its own"])
def test_a_record_of_an_unknown_kind_is_refused_and_nothing_is_changed(batches: int) -> None:
    site = Site(LARGE)
    store = site.open()
    store.ledger(1).append(b"before")
    write_group(store, encode_record(IDS.pack(1, -0x10000)))
    for number in range(batches):
        store.ledger(1).append_many(texts(10, seed=number))
    site.disk.kill()
    site.config = LITTLE
    names = site.names(JOURNAL)
    with pytest.raises(NewerFormat, match="a record of an unknown kind, -65536"):
        site.open()
    assert (site.names(JOURNAL), site.mark()) == (names, START)


def test_empty_groups_after_the_last_record_need_no_replay_either() -> None:
    site = Site(LARGE)
    store = site.open()
    store.ledger(1).append(b"last")
    for _ in range(3):
        write_group(store)
    durable_up_to = StoreInternals(store).durable_up_to
    for _ in range(2):
        write_group(store)
    store = site.after_kill()
    assert StoreInternals(store).covered_until >= durable_up_to


def test_extents_are_noted_of_so_many_entries_only() -> None:
    site = Site(replace(LARGE, journal_size=128 * KIB, memtable_size_max=8 << 20))
    store = site.open()
    for number in range(20):
        store.ledger(number).append_many(texts(1, seed=number, size=20 * KIB))
    directory = site.directory(JOURNAL)

    def noted(limit: int) -> list[int]:
        return [one.number for one in Replay(directory, START, 0, {}, limit).extents.values()]

    assert len(noted(1000)) > 3
    assert all(sum(noted(limit)) <= limit for limit in range(sum(noted(1000))))


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
    # The deleted and the new ledger have the same ids, so that one journal is read record by record.
    assert (waiting(store) is None) == (journal_size > 1 << 20)
    assert payloads(store, 5) == [b"new"] * 3
    site.workers.run()
    assert payloads(site.after_power_cut(), 5) == [b"new"] * 3


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────


def test_more_than_a_few_tables_are_checkpointed_before_the_store_is_open() -> None:
    site, added = filled(1, 2, tables=3 * TABLES_WAITING_MAX)
    sizes: list[int] = []
    store = site.open()
    backlog = waiting(store)
    assert isinstance(backlog, JournalBackedTable)
    sizes = [one.size for ledger_id in backlog.ledgers() for one in backlog.chunks(ledger_id)]
    assert 0 < sum(sizes) <= TABLES_WAITING_MAX * TABLE
    assert site.mark() > START
    assert_whole(store, added)
    site.workers.run()
    assert_whole(site.after_power_cut(), added)


def test_entries_are_left_in_a_few_journals_at_most() -> None:
    site = Site(replace(LARGE, memtable_size_max=TABLE, journal_size=4 * TABLE))
    added: list[bytes] = []
    for number in range(JOURNALS_WAITING_MAX + 4):
        store = site.open()
        some = texts(10, seed=number)
        store.ledger(1).append_many(some)
        added += some
        site.disk.kill()  # before the checkpoint has begun
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
    """The offset of this text in a journal."""
    for name in site.names(JOURNAL, ".txn"):
        place = site.bytes_of(f"{JOURNAL}/{name}").find(text)
        if place >= 0:
            return f"{JOURNAL}/{name}", place
    raise AssertionError("no journal has it")


def test_damage_in_durable_groups_is_refused() -> None:
    site, added = filled(1)
    site.flip(*place_of(site, added[1][20]))
    with pytest.raises(CorruptionError, match="JRN-003"):
        site.open()


def test_damage_after_the_replay_makes_a_read_fail_and_stops_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, added = filled(1, 2)
    store = site.open()
    path, place = place_of(site, added[1][20])
    site.flip(path, place)  # for the next opening
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
    site.workers.run()
    assert site.mark() == START
    with pytest.raises(StoreFailed):
        store.ledger(2).append(b"refused")
    monkeypatch.undo()
    with pytest.raises(CorruptionError, match="JRN-003"):
        site.after_kill()


def test_a_failed_checkpoint_is_repeated_with_a_new_log() -> None:
    site, added = filled(1, 2)
    store = site.open()
    site.disk.plant(FailedSync(When(verb=Verb.SYNC, name="*.log*")))
    site.workers.run()
    assert waiting(store) is None
    assert_whole(store, added)
    assert_whole(site.after_power_cut(), added)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_journals_are_closed_after_the_checkpoint() -> None:
    site, _ = filled(1)
    backlog = waiting(site.open())
    assert isinstance(backlog, JournalBackedTable)
    files = journals_of(backlog)
    del backlog
    gc.disable()
    try:
        site.workers.run()
        assert not files.alive
    finally:
        gc.enable()


def test_the_journals_are_closed_when_the_store_closes_or_is_forked() -> None:
    for end in ("close", "fork"):
        site, _ = filled(1)
        store = site.open()
        backlog = waiting(store)
        assert isinstance(backlog, JournalBackedTable)
        site.disk.plant(Refused(When(verb=Verb.WRITE, name="*.log*", lasting=Lasting.UNTIL_MENDED), 28))
        if end == "close":
            store.close()
        else:
            StoreInternals(store).fork()
        assert not journals_of(backlog).alive


# ── what nothing proves ──────────────────────────────────────────────────────────────────────────────────


class FirstSectors:
    """Only the first sectors of unsynced bytes survive in each file."""

    def __init__(self, count: int) -> None:
        self._count = count

    def survivors(self, pending: PendingUnits) -> Survivors:
        kept = (sectors[: self._count] for sectors in pending.sectors_by_file.values())
        return {unit: NEWEST for sectors in kept for unit in sectors}


def with_an_entry_twice_in_a_torn_group() -> Site:
    """Entry 0 is added twice more in a group that is never synced. Entry 1 is the group's last record."""
    site = Site(replace(LARGE, group_size_max=100 * KIB), SimulatedDisk(sector_size=4 * KIB))
    store = site.open()
    store.add(Entry(9, 0, -1, 1, b"A"))
    StoreInternals(store).seal()
    engine, access = StoreInternals(store), access_of(b"", None)
    for entry in (
        Entry(9, 0, -1, 1, b"B" * 20 * KIB),
        Entry(9, 0, -1, 1, b"C" * 20 * KIB),
        Entry(9, 1, 0, 2, b"D" * 20 * KIB),
    ):
        assert engine.promise(ReplicaEntry(engine.tail(9), access, entry))
    turn = engine.begin_turn()
    assert turn is not None
    next(engine.stages(turn))
    site.disk.kill()
    site.config = LITTLE
    return site


@pytest.mark.parametrize("sectors", [0, 6, 11])
def test_no_checkpoint_of_a_replay_writes_what_a_second_crash_may_take_back(sectors: int) -> None:
    site = with_an_entry_twice_in_a_torn_group()
    start, twin = len(site.disk.trace), Site(LITTLE, site.disk.copy())
    twin.open()
    named = next(
        one.number for one in twin.disk.trace[start:] if one.verb is Verb.RENAME and JOURNAL in one.path
    )
    site.disk.stop_before(named)
    with suppress(Stopped):
        site.open()
    site.disk.power_cut(FirstSectors(sectors))
    # A prefix of the entries of the group, in the order in which they were added.
    expected = {0: [b"A"], 6: [b"B"], 11: [b"C"]}[sectors]
    for _ in range(2):
        store = site.after_kill()
        assert [one[:1] for one in payloads(store, 9)] == expected


def test_a_ledger_made_again_in_the_journal_of_its_delete_has_its_entries_after_a_long_replay() -> None:
    site = Site(replace(LARGE, journal_size=8 << 20))
    store = site.open()
    store.ledger(1).append(b"old")
    store.ledger(1).delete()
    store.add(Entry(1, 5, -1, 3, b"new"))  # ids in a journal that grow only, as in any long replay
    for number in range(14):
        store.ledger(2).append_many(texts(10, seed=number))
    assert len(site.names(JOURNAL, ".txn")) == 1
    site.disk.kill()
    site.config = LITTLE
    store = site.open()
    assert isinstance(waiting(store), JournalBackedTable)
    assert [(one.entry_id, one.payload) for one in [store.ledger(1).read(5)]] == [(5, b"new")]
    with pytest.raises(NoSuchEntry):
        store.ledger(1).read(0)


def test_a_replay_record_by_record_takes_no_more_memory_than_two_tables() -> None:
    site = Site(replace(LARGE, journal_size=8 << 20))
    store = site.open()
    for one in (1, 0):
        store.add(Entry(2, one, -1, one + 1, b"x"))
    for _ in range(2):
        store.ledger(1).append_many([bytes(500)] * 100)
    assert len(site.names(JOURNAL, ".txn")) < JOURNALS_MAX  # with more the opening makes a checkpoint
    site.disk.kill()
    site.config = LITTLE
    store = site.open()
    assert StoreInternals(store).active_table.size <= 2 * TABLE
    assert len(payloads(store, 1)) == 200


def test_after_an_opening_that_makes_checkpoints_logs_are_synced_in_small_steps_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("storage.checkpoint.checkpointer.SYNC_STEP", KIB)
    site, _ = filled(1, tables=3 * TABLES_WAITING_MAX)
    store = site.open()
    site.workers.run()
    for number in range(90):
        store.ledger(10 + number).append(bytes(100))
    before = len(site.disk.trace)
    site.checkpoint(store)
    syncs = [one for one in site.disk.trace[before:] if one.verb is Verb.SYNC and ".log" in one.path]
    assert len(syncs) > 3


def test_crash_loops_pile_up_no_journals() -> None:
    site = Site()
    for number in range(8):
        store = site.open()
        assert len(site.names(JOURNAL, ".txn")) <= JOURNALS_MAX
        store.ledger(1).append(b"%d" % number)
        site.disk.kill()
    assert payloads(site.open(), 1) == [b"%d" % number for number in range(8)]
