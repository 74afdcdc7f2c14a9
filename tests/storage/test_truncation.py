"""Truncation of ledgers: what readers find, what stays, and what a crash leaves."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from index_builder import CountedIndex
from stepped_store import LEDGERS, SMALL, Site, payloads
from store_internals import EngineCall, StoreInternals

from recovery.crashlab import (
    FailedSync,
    KeepAll,
    Lasting,
    LoseAll,
    RandomFate,
    Refused,
    SimulatedDisk,
    Verb,
    When,
)
from storage.disk import filenames
from storage.entry import format as entry_format
from storage.entry.digest import Digester, master_key
from storage.entry.model import DigestType, Entry
from storage.errors import (
    CorruptionError,
    DiskFull,
    EntryTruncated,
    InvalidEntry,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    StoreFailed,
    Unauthorized,
)
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.store import Store

COUNT = 10
ALL = [b"%d" % number for number in range(COUNT)]


@dataclass(frozen=True)
class LedgerFacts:
    """The properties of a ledger that a truncation changes or keeps."""

    ids: list[range]
    first: int
    last: int | None
    confirmed: int
    payloads: list[bytes]


def facts(store: Store, ledger_id: int = 1) -> LedgerFacts:
    ledger = store.ledger(ledger_id)
    return LedgerFacts(
        ledger.entry_ids(),
        ledger.first_entry_id,
        ledger.last_entry_id,
        ledger.last_add_confirmed,
        list(ledger.payloads()),
    )


def left(before: int) -> LedgerFacts:
    """Return the facts of the ledger after this truncation."""
    ids = [range(before, COUNT)] if before < COUNT else []
    return LedgerFacts(ids, before, COUNT - 1, COUNT - 1, ALL[before:])


# ── where the entries are ────────────────────────────────────────────────────────────────────────────────


def in_the_table(site: Site) -> Store:
    store = site.open()
    store.ledger(1).append_many(ALL)
    return store


def in_the_frozen_table(site: Site) -> Store:
    store = site.open()
    store.ledger(1).append_many(ALL)
    StoreInternals(store).freeze()
    return store


def in_both_tables(site: Site) -> Store:
    store = site.open()
    store.ledger(1).append_many(ALL[:6])
    StoreInternals(store).freeze()
    store.ledger(1).append_many(ALL[6:])
    return store


def in_the_index(site: Site) -> Store:
    store = site.open()
    store.ledger(1).append_many(ALL)
    site.checkpoint(store)
    return store


def in_the_cache(site: Site) -> Store:
    store = in_the_index(site)
    for _ in range(30):
        assert [store.ledger(1).read(one).payload for one in range(COUNT)] == ALL
    return store


def in_index_and_table(site: Site) -> Store:
    store = site.open()
    store.ledger(1).append_many(ALL[:6])
    site.checkpoint(store)
    store.ledger(1).append_many(ALL[6:])
    return store


def as_strays(site: Site) -> Store:
    store = site.open()
    for number in reversed(range(COUNT)):
        entry = Entry(1, number, number - 1, sum(map(len, ALL[: number + 1])), ALL[number])
        store.add(entry)
    return store


PLACES = [
    in_the_table,
    in_the_frozen_table,
    in_both_tables,
    in_the_index,
    in_the_cache,
    in_index_and_table,
    as_strays,
]
places = pytest.mark.parametrize("place", PLACES)
befores = pytest.mark.parametrize("before", [1, 5, 6, 7, COUNT])


@places
@befores
def test_truncated_entries_are_certainly_gone(place: Callable[[Site], Store], before: int) -> None:
    store = place(Site())
    ledger = store.ledger(1)
    assert ledger.read(before - 1).payload == ALL[before - 1]
    ledger.truncate(before)

    for entry_id in range(before):
        with pytest.raises(EntryTruncated, match=f"begin at {before}") as refused:
            ledger.read(entry_id)
        assert isinstance(refused.value, NoSuchEntry)
        with pytest.raises(EntryTruncated):
            store.bookie.read(1, entry_id)
        with pytest.raises(EntryTruncated):
            list(ledger.entries(entry_id))
        assert not store.bookie.has(1, entry_id)
    assert [ledger.read(one).payload for one in range(before, COUNT)] == ALL[before:]
    assert [entry.payload for entry in ledger.entries()] == ALL[before:]
    assert store.bookie.entry_ids(1) == ledger.entry_ids()
    assert facts(store) == left(before)
    with pytest.raises(NoSuchEntry) as missing:
        ledger.read(COUNT)
    assert type(missing.value) is NoSuchEntry


@places
def test_the_ids_the_length_and_the_last_add_confirmed_go_on(place: Callable[[Site], Store]) -> None:
    store = place(Site())
    store.ledger(1).truncate(COUNT)
    assert store.ledger(1).append(b"more") == COUNT
    entry = store.ledger(1).read(COUNT)
    assert (entry.length, entry.last_add_confirmed) == (len(b"".join(ALL)) + 4, COUNT - 1)
    assert facts(store) == LedgerFacts([range(COUNT, COUNT + 1)], COUNT, COUNT, COUNT, [b"more"])


# ── what an opening finds ────────────────────────────────────────────────────────────────────────────────


def after_close(site: Site, store: Store) -> Store:
    store.close()
    return site.open()


def after_kill(site: Site, _: Store) -> Store:
    return site.after_kill()


def after_power_cut(site: Site, _: Store) -> Store:
    return site.after_power_cut()


def without_index(site: Site, store: Store) -> Store:
    store.close()
    site.remove(f"{LEDGERS}/{filenames.INDEX}")
    found = site.open()
    assert found.opened.index is IndexFound.REBUILT
    return found


def after_kill_without_index(site: Site, _: Store) -> Store:
    site.disk.kill()
    if filenames.INDEX in site.names(LEDGERS):
        site.remove(f"{LEDGERS}/{filenames.INDEX}")
    return site.open()


ENDINGS = [after_close, after_kill, after_power_cut, without_index, after_kill_without_index]
endings = pytest.mark.parametrize("ending", ENDINGS)


@pytest.mark.sampled(one_of=6)
@places
@befores
@endings
@pytest.mark.parametrize("checkpointed", [False, True], ids=["before-a-checkpoint", "after-a-checkpoint"])
def test_an_opening_respects_a_truncation(
    place: Callable[[Site], Store],
    before: int,
    ending: Callable[[Site, Store], Store],
    checkpointed: object,
) -> None:
    site = Site()
    store = place(site)
    store.ledger(1).truncate(before)
    if checkpointed:
        site.checkpoint(store)
    store = ending(site, store)
    assert facts(store) == left(before)
    assert store.ledger(1).append(b"more") == COUNT
    assert store.ledger(1).read(COUNT).length == len(b"".join(ALL)) + 4
    store.close()
    store = site.open()
    assert store.ledger(1).first_entry_id == before
    assert payloads(store, 1) == [*ALL[before:], b"more"]


@places
@befores
def test_the_next_checkpoint_removes_the_locations(place: Callable[[Site], Store], before: int) -> None:
    site = Site()
    store = place(site)
    store.ledger(1).truncate(before)
    site.checkpoint(store)
    site.checkpoint(store)
    index = StoreInternals(store).index
    assert [entry_id for entry_id, _ in index.locations(1, 0, 100)] == list(range(before, COUNT))
    assert [row.first_entry_id for row in index.rows()] == [before]


@endings
def test_an_opening_between_the_row_and_the_checkpoint_removes_the_locations(
    ending: Callable[[Site, Store], Store],
) -> None:
    site = Site()
    store = in_the_index(site)
    store.ledger(1).truncate(4)
    store = ending(site, store)
    assert [entry_id for entry_id, _ in StoreInternals(store).index.locations(1, 0, 100)] == list(
        range(4, COUNT)
    )


def test_entries_that_a_long_replay_leaves_in_the_journals_are_truncated() -> None:
    site = Site()
    store = site.open()
    many = [b"%3d" % number * 100 for number in range(400)]
    for start in range(0, 400, 20):
        store.ledger(1).append_many(many[start : start + 20])
    store.ledger(1).truncate(57)
    site.disk.kill()
    site.config = replace(SMALL, memtable_size_max=64 << 10)
    store = site.open()
    frozen = StoreInternals(store).frozen_table
    assert type(frozen).__name__ == "JournalBackedTable"
    assert frozen is not None
    assert len(frozen) >= 380
    for _ in range(2):
        assert facts(store) == LedgerFacts([range(57, 400)], 57, 399, 399, many[57:])
        with pytest.raises(EntryTruncated):
            store.ledger(1).read(56)
        site.checkpoint(store)
    assert StoreInternals(store).index.locations(1, 0, 1)[0][0] == 57


def test_a_replay_reads_no_truncated_entry_into_memory() -> None:
    site = Site()
    store = in_the_table(site)
    store.ledger(1).truncate(6)
    store = site.after_kill()
    assert len(StoreInternals(store).active_table) == COUNT - 6


# ── what bad input gets ──────────────────────────────────────────────────────────────────────────────────


def test_a_truncation_goes_only_forward() -> None:
    store = in_the_table(Site())
    ledger = store.ledger(1)
    ledger.truncate(0)
    assert facts(store) == left(0)
    ledger.truncate(6)
    for before in (0, 3, 6):
        ledger.truncate(before)
        assert facts(store) == left(6)
    ledger.truncate(7)
    assert facts(store) == left(7)


def test_a_truncation_past_the_end_is_refused_and_changes_nothing() -> None:
    site = Site()
    store = in_the_table(site)
    with pytest.raises(InvalidEntry, match="ends at entry 9, and cannot be truncated before entry 11"):
        store.ledger(1).truncate(COUNT + 1)
    for wrong in (-1, 2**63, True, 1.5, "1"):
        with pytest.raises((InvalidEntry, TypeError)):
            store.ledger(1).truncate(wrong)  # type: ignore[arg-type]
    assert facts(store) == left(0)
    store.ledger(2).fence()
    with pytest.raises(InvalidEntry, match="has no entries"):
        store.ledger(2).truncate(1)
    store.ledger(2).truncate(0)
    assert facts(site.after_kill()) == left(0)


def test_a_ledger_that_does_not_exist_cannot_be_truncated() -> None:
    store = in_the_table(Site())
    for before in (0, 1):
        with pytest.raises(NoSuchLedger):
            store.ledger(2).truncate(before)
        with pytest.raises(NoSuchLedger):
            store.bookie.truncate(2, before)
    assert store.ledgers() == [1]


def test_another_password_may_not_truncate() -> None:
    store = Site().open()
    store.ledger(1, password=b"secret").append_many(ALL)
    with pytest.raises(Unauthorized):
        store.ledger(1).truncate(3)
    store.bookie.truncate(1, 3)
    assert store.bookie.first_entry_id(1) == 3


# ── fences, deletes and other facts ──────────────────────────────────────────────────────────────────────


@endings
def test_a_fence_and_an_explicit_lac_stay(ending: Callable[[Site, Store], Store]) -> None:
    site = Site()
    store = in_the_index(site)
    store.ledger(1).set_explicit_lac(7)
    assert store.ledger(1).fence() == COUNT - 1
    store.ledger(1).truncate(COUNT)
    assert store.ledger(1).fence() == COUNT - 1
    store = ending(site, store)
    ledger = store.ledger(1)
    assert (ledger.is_fenced, ledger.explicit_lac, ledger.last_entry_id) == (True, 7, COUNT - 1)
    with pytest.raises(LedgerFenced):
        ledger.append(b"more")
    assert facts(store) == left(COUNT)
    assert store.bookie.last_add_confirmed(1) >= 7


@endings
def test_a_fence_after_a_truncation_keeps_it(ending: Callable[[Site, Store], Store]) -> None:
    site = Site()
    store = in_the_table(site)
    store.ledger(1).truncate(6)
    store.ledger(1).fence()
    site.checkpoint(store)
    store = ending(site, store)
    assert store.ledger(1).is_fenced
    assert facts(store) == left(6)


@endings
@pytest.mark.parametrize("before", [4, COUNT])
def test_a_ledger_that_is_made_again_forgets_the_truncation(
    ending: Callable[[Site, Store], Store], before: int
) -> None:
    site = Site()
    store = in_index_and_table(site)
    store.ledger(1).truncate(before)
    store.ledger(1).delete()
    assert not store.ledger(1).exists
    assert store.ledger(1).first_entry_id == 0
    store.ledger(1).append_many([b"new 0", b"new 1"])
    new = LedgerFacts([range(2)], 0, 1, 1, [b"new 0", b"new 1"])
    assert facts(store) == new
    assert store.ledger(1).read(0).length == 5
    store = ending(site, store)
    assert facts(store) == new
    site.checkpoint(store)
    assert facts(store) == new
    store.ledger(1).truncate(1)
    store = ending(site, store)
    assert facts(store) == LedgerFacts([range(1, 2)], 1, 1, 1, [b"new 1"])


def test_a_delete_right_after_an_opening_is_not_undone_by_records_that_the_opening_has_dropped() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"of another ledger")
    store.ledger(0).append(b"truncated")  # no later group proves this one to be durable
    store.ledger(0).truncate(1)
    store = site.after_power_cut()
    assert store.opened.records_carried == 0
    store.ledger(0).delete()

    for _ in range(2):
        store = site.after_power_cut()
        assert store.ledgers() == [1]
    store.ledger(0).append(b"of a new ledger")
    assert payloads(site.after_power_cut(), 0) == [b"of a new ledger"]


def test_a_truncated_ledger_without_entries_exists_and_can_be_deleted() -> None:
    site = Site()
    store = in_the_index(site)
    store.ledger(1).truncate(COUNT)
    store = after_close(site, store)
    assert store.ledger(1).exists
    assert store.ledgers() == [1]
    store.ledger(1).delete()
    assert store.ledgers() == []
    assert site.after_kill().ledgers() == []


@pytest.mark.parametrize("is_durable", [False, True], ids=["while-decided", "with-a-durable-tombstone"])
def test_a_delete_that_overtakes_a_truncation_wins(
    monkeypatch: pytest.MonkeyPatch, is_durable: object
) -> None:
    site = Site()
    store = in_the_index(site)
    engine = StoreInternals(store)
    seen: list[type[Exception]] = []

    def truncate() -> None:
        try:
            store.ledger(1).truncate(COUNT)
        except NoSuchLedger as error:
            seen.append(type(error))

    if is_durable:
        end = engine.between_tombstone_and_answer(truncate)
        store.ledger(1).delete()
        end()
    else:
        persist = engine.call(EngineCall.PERSIST_TRUNCATION)

        def overtaken(*arguments: object) -> bool:
            store.ledger(1).delete()
            store.ledger(1).append(b"new")
            assert persist(*arguments) is False
            return False

        monkeypatch.setattr(*engine.at(EngineCall.PERSIST_TRUNCATION), overtaken)
        truncate()
        monkeypatch.undo()
    assert seen == [NoSuchLedger]
    store.ledger(1).append(b"new")
    new = [b"new"] if is_durable else [b"new", b"new"]
    for _ in range(2):
        assert (store.ledger(1).first_entry_id, payloads(store, 1)) == (0, new)
        store = site.after_kill()


def test_an_entry_that_is_added_before_the_truncation_later_is_truncated_too() -> None:
    site = Site()
    store = in_the_table(site)
    store.ledger(1).truncate(5)
    store.bookie.recover(entry_bytes_of(store, 2), master_key(b""))
    site.checkpoint(store)
    store.bookie.recover(entry_bytes_of(store, 3), master_key(b""))
    store.bookie.recover(entry_bytes_of(store, 4), master_key(b""))
    for _ in range(3):
        assert facts(store) == left(5)
        site.checkpoint(store)
        assert StoreInternals(store).index.locations(1, 0, 1)[0][0] == 5
        store = site.after_kill()


def entry_bytes_of(store: Store, entry_id: int) -> bytes:
    other = Site().open()
    other.ledger(1).append_many(ALL)
    return other.bookie.read(1, entry_id)


@endings
def test_the_length_goes_on_from_the_truncation_if_the_last_entry_is_added_again(
    ending: Callable[[Site, Store], Store],
) -> None:
    site = Site()
    store = in_the_table(site)
    store.ledger(1).truncate(COUNT)
    again = Entry(1, COUNT - 1, COUNT - 2, 10 * COUNT, b"x")
    store.bookie.recover(entry_format.encode(again, Digester(DigestType.CRC32C)), master_key(b""))
    # The copy is truncated, so that no opening finds it. What comes next must not count from it either.
    store.ledger(1).append(b"more")
    assert store.ledger(1).read(COUNT).length == len(b"".join(ALL)) + 4
    store.ledger(1).truncate(COUNT + 1)
    store.bookie.recover(entry_format.encode(again, Digester(DigestType.CRC32C)), master_key(b""))
    store = ending(site, store)
    store.ledger(1).append(b"more")
    assert store.ledger(1).read(COUNT + 1).length == len(b"".join(ALL)) + 8


def test_an_entry_that_a_truncation_overtakes_in_one_group_does_not_count_either() -> None:
    site = Site()
    store = in_the_table(site)
    again = Entry(1, COUNT - 1, COUNT - 2, 10 * COUNT, b"x")
    store.bookie.defer(entry_format.encode(again, Digester(DigestType.CRC32C)), master_key(b""))
    store.ledger(1).truncate(COUNT)  # commits both
    store.ledger(1).append(b"more")
    assert store.ledger(1).read(COUNT).length == len(b"".join(ALL)) + 4


# ── the last add confirmed ───────────────────────────────────────────────────────────────────────────────


def test_the_last_add_confirmed_that_the_last_entry_carried_stays() -> None:
    site = Site()
    store = site.open()
    store.add(Entry(1, 4, 3, 50, b"x"))
    assert store.bookie.last_add_confirmed(1) == 3
    store.ledger(1).truncate(5)
    for _ in range(2):
        assert store.bookie.last_add_confirmed(1) == 3
        assert store.ledger(1).last_add_confirmed == 4
        assert store.ledger(1).last_entry_id == 4
        store = after_close(site, store)
    with pytest.raises(EntryTruncated):
        store.bookie.read_last(1)
    assert store.bookie.fence(1, master_key(b"")) is None
    assert store.bookie.is_fenced(1)


def test_a_missing_entry_after_the_truncation_holds_up_the_last_add_confirmed() -> None:
    store = Site().open()
    for entry_id in (0, 1, 3, 4, 6):
        store.add(Entry(1, entry_id, -1, entry_id + 1, b"x"))
    assert store.ledger(1).last_add_confirmed == 1
    store.ledger(1).truncate(3)
    assert store.ledger(1).last_add_confirmed == 4


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_truncated_ledger_is_counted_and_not_walked(checkpointed: object) -> None:
    site = Site()
    store = site.open()
    for _ in range(20):
        store.ledger(1).append_many([b"x"] * 1000)
        site.checkpoint(store)
    store.ledger(1).truncate(7)
    if checkpointed:
        site.checkpoint(store)
    store = after_close(site, store)
    index = CountedIndex(StoreInternals(store).index)
    StoreInternals(store).use_index(index)
    assert store.ledger(1).last_add_confirmed == 19_999
    assert sum(index.asked.values()) <= 6


# ── iterations and followers ─────────────────────────────────────────────────────────────────────────────


def test_an_iteration_that_is_overtaken_raises_and_skips_nothing() -> None:
    store = Site().open()
    store.ledger(1).append_many([b"x"] * 2000)
    seen = []
    entries = store.ledger(1).entries()
    seen.append(next(entries).entry_id)
    store.ledger(1).truncate(2000)
    with pytest.raises(EntryTruncated):
        seen.extend(entry.entry_id for entry in entries)
    assert seen == list(range(len(seen)))
    assert 0 < len(seen) < 2000


def test_an_iteration_without_a_start_begins_at_the_present_first_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = in_the_index(Site())
    entries = store.ledger(1).entries()
    batches = StoreInternals(store).call(EngineCall.BATCHES)
    calls = []

    def overtaken(*arguments: object) -> object:
        calls.append(arguments[1])
        if len(calls) == 1:
            store.ledger(1).truncate(4)
        return batches(*arguments)

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.BATCHES), overtaken)
    assert [entry.entry_id for entry in entries] == list(range(4, COUNT))
    assert calls == [0, 4]


def test_a_follower_begins_at_the_first_entry_that_is_left() -> None:
    store = in_the_table(Site())
    made_before = store.ledger(1).follow(idle_timeout_s=0)
    store.ledger(1).truncate(4)
    for follower in (made_before, store.ledger(1).follow(idle_timeout_s=0)):
        assert [entry.entry_id for entry in follower] == list(range(4, COUNT))
    with pytest.raises(EntryTruncated):
        next(store.ledger(1).follow(2, idle_timeout_s=0))


def test_a_follower_that_a_truncation_overtakes_raises() -> None:
    store = in_the_table(Site())
    follower = store.ledger(1).follow(idle_timeout_s=0)
    assert next(follower).entry_id == 0
    follower = store.ledger(1).follow(COUNT - 1, idle_timeout_s=5)
    assert next(follower).entry_id == COUNT - 1
    store.ledger(1).append_many([b"10", b"11"])
    store.ledger(1).truncate(COUNT + 1)
    for _ in range(2):
        with pytest.raises(EntryTruncated) as refused:
            next(follower)
        assert (refused.value.entry_id, refused.value.first_entry_id) == (COUNT, COUNT + 1)


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Moment:
    """The disk before an operation, and the truncations that were requested and answered by then."""

    disk: SimulatedDisk
    requested: int
    answered: int
    what: str


def moments(place: Callable[[Site], Store], befores: list[int]) -> list[Moment]:
    site = Site()
    store = place(site)
    found: list[Moment] = []
    requested = answered = 0
    site.disk.watch(
        lambda operation: found.append(Moment(site.disk.copy(), requested, answered, f"{operation}"))
    )
    for requested in befores:
        store.ledger(1).truncate(requested)
        answered = requested
        site.checkpoint(store)
    store.close()
    found.append(Moment(site.disk.copy(), requested, answered, "at the end"))
    return found


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("place", [in_the_index, in_index_and_table, in_the_table])
@pytest.mark.parametrize("befores", [[4], [COUNT]], ids=str)
@pytest.mark.parametrize("lost", [False, True], ids=["with-index", "index-lost"])
def test_a_crash_at_any_operation_loses_no_truncation_and_no_entry(
    place: Callable[[Site], Store], befores: list[int], lost: object
) -> None:
    walked = moments(place, befores)
    assert len(walked) > 10
    assert any(one.requested != one.answered for one in walked)
    for one in walked:
        for fate in (None, LoseAll(), KeepAll(), RandomFate(1)):
            disk = one.disk.copy()
            if fate is None:
                disk.kill()
            else:
                disk.power_cut(fate)
            site = Site(disk=disk, first_salt=1000)
            if lost and filenames.INDEX in site.names(LEDGERS):
                site.remove(f"{LEDGERS}/{filenames.INDEX}")
            store = site.open()
            first = store.ledger(1).first_entry_id
            assert first in {one.requested, one.answered}, one.what
            assert facts(store) == left(first), one.what
            again = site.after_power_cut()
            assert facts(again) == left(first), one.what


def test_the_row_is_durable_before_a_reader_misses_an_entry() -> None:
    site = Site()
    store = in_the_index(site)
    seen: list[tuple[str, bool]] = []
    site.disk.watch(
        lambda operation: (
            seen.append((operation.verb.name, store.bookie.has(1, 0)))
            if filenames.LEDGER_ROWS in str(operation.path)
            else None
        )
    )
    store.ledger(1).truncate(5)
    assert seen
    assert all(was_there for _, was_there in seen)
    assert not store.bookie.has(1, 0)


# ── errors of the disk ───────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_leaves_the_entries_and_the_store_goes_on() -> None:
    site = Site()
    store = in_the_index(site)
    site.disk.plant(Refused(When(verb=Verb.WRITE, name=f"{filenames.LEDGER_ROWS}*"), errno.ENOSPC))
    with pytest.raises(DiskFull):
        store.ledger(1).truncate(5)
    assert facts(store) == left(0)
    store.ledger(1).truncate(5)
    assert facts(store) == left(5)
    assert facts(site.after_power_cut()) == left(5)


def test_a_store_that_stops_within_a_truncation_shows_the_whole_ledger() -> None:
    site = Site(replace(SMALL, space_reserve=0))
    store = in_the_index(site)
    store.ledger(1).truncate(2)  # makes the file
    # The group that proves that the row's group is durable, and then the file that is written in its place.
    when = When(verb=Verb.WRITE, name=f"{filenames.LEDGER_ROWS}*", nth=2, lasting=Lasting.UNTIL_MENDED)
    site.disk.plant(Refused(when, errno.ENOSPC))
    with pytest.raises(StoreFailed):
        store.ledger(1).truncate(5)
    assert facts(store) == left(2)
    site.disk.mend()
    assert facts(site.after_power_cut()) in (left(2), left(5))


def test_a_failed_sync_of_the_rows_is_answered_by_a_new_file() -> None:
    site = Site()
    store = in_the_index(site)
    site.disk.plant(FailedSync(When(verb=Verb.SYNC, name=filenames.LEDGER_ROWS)))
    store.ledger(1).truncate(5)
    assert facts(store) == left(5)
    assert facts(site.after_power_cut()) == left(5)


def test_rot_of_the_row_is_refused_and_brings_no_entry_back() -> None:
    site = Site()
    store = in_the_index(site)
    store.ledger(1).truncate(2)  # makes the file
    store.ledger(1).truncate(5)
    site.disk.kill()
    path = f"{LEDGERS}/{filenames.LEDGER_ROWS}"
    data = site.bytes_of(path)
    rows = [at for at in range(0, len(data), 4096) if b"\x9b\x02\x01" in data[at : at + 64]]
    assert len(rows) == 2
    site.flip(path, rows[-1] + 60)
    with pytest.raises(CorruptionError, match="LGR-002"):
        site.open()


def test_a_store_that_has_failed_truncates_nothing() -> None:
    site = Site()
    store = in_the_index(site)
    StoreInternals(store).fail(OSError("the disk"))
    with pytest.raises(StoreFailed):
        store.ledger(1).truncate(5)
    assert site.after_kill().ledger(1).first_entry_id == 0


def test_truncations_one_after_the_other() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    for number in range(60):
        ledger.append_many([b"x"] * 5)
        ledger.truncate(number * 5 + 2)
        if number % 7 == 3:
            site.checkpoint(store)
        assert ledger.entry_ids() == [range(number * 5 + 2, number * 5 + 5)]
    ids = [entry.entry_id for entry in site.after_power_cut().ledger(1).entries()]
    assert ids == [297, 298, 299]
    assert all(one + 1 == other for one, other in pairwise(ids))
