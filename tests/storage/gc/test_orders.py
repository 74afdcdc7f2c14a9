"""The orders of slices, removals and purges: crashes at every operation, readers and deletes in between."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from collecting_world import torn_headers
from sampling import every
from stepped_store import LEDGERS, SMALL, Site
from store_internals import EngineCall, StoreInternals

from recovery.crashlab import KeepAll, Lasting, LoseAll, Refused, SimulatedDisk, Verb, When
from recovery.directory.layout import Layout
from storage.entry.model import Entry
from storage.gc.proof import KeptBecause
from storage.runtime.worker import AT_ONCE, Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from recovery.crashlab import Operation
    from storage.config import StoreConfig
    from storage.store import Store

SMALL_LOGS = replace(SMALL, entry_log_size_max=12 << 10)
INDEX = f"{LEDGERS}/index"
OLD, KEPT = 0, 1
"""A ledger that is deleted and made again, and one that stays."""


def payload(ledger_id: int, entry_id: int, version: int = 0) -> bytes:
    return b"%d.%d.%d." % (ledger_id, entry_id, version) + b"x" * 1200


def add(store: Store, ledger_id: int, count: int, version: int = 0) -> None:
    """Add entries with the ids from 0 on. Those that exist are replaced."""
    for entry_id in range(count):
        data = payload(ledger_id, entry_id, version)
        store.add(Entry(ledger_id, entry_id, entry_id - 1, 2000 * (entry_id + 1), data))


def entries(store: Store, ledger_id: int) -> list[bytes]:
    return [one.payload for one in store.ledger(ledger_id).entries()] if ledger_id in store.ledgers() else []


def expected(ledger_id: int, count: int, version: int = 0) -> list[bytes]:
    return [payload(ledger_id, entry_id, version) for entry_id in range(count)]


def log_of(store: Store, ledger_id: int) -> int:
    """Return the log that has the ledger's first entry."""
    found = StoreInternals(store).index.find(ledger_id, 0)
    assert found is not None
    return found >> 32


def lose_index(site: Site) -> None:
    site.disk.power_cut(LoseAll())
    site.remove(INDEX)


def finish(verb: Generator[Any, None, Any], store: Store) -> Any:
    """Take the remaining steps of a verb and of the runner."""
    while True:
        try:
            if next(verb) is None:
                StoreInternals(store).step_checkpoint()
        except StopIteration as end:
            return end.value


def until_submitted(verb: Generator[Any, None, Any]) -> None:
    """Take the steps of a verb up to the first one that waits for the runner of checkpoints."""
    while next(verb) is not None:
        pass


# ── a crash at every operation ───────────────────────────────────────────────────────────────────────────


def full_site(config: StoreConfig = SMALL_LOGS) -> tuple[Site, Store]:
    """A store whose first logs have entries of both ledgers, and whose last log was begun by a later run."""
    site = Site(config)
    store = site.open()
    add(store, OLD, 6)
    add(store, KEPT, 6)
    site.checkpoint(store)
    store.close()
    store = site.open()
    store.ledger(2).append(b"of the second run")
    site.checkpoint(store)
    return site, store


def delete_old(site: Site, store: Store) -> None:
    store.ledger(OLD).delete()


def checkpoint(site: Site, store: Store) -> None:
    site.checkpoint(store)


def move_all(site: Site, store: Store) -> None:
    for log_id in StoreInternals(store).log_ids[:-1]:
        finish(StoreInternals(store).compactor.move(log_id), store)


def roll(site: Site, store: Store) -> None:
    finish(StoreInternals(store).compactor.roll(), store)


def move_last(site: Site, store: Store) -> None:
    moved = finish(StoreInternals(store).compactor.move(StoreInternals(store).log_ids[-1]), store)
    assert moved.why_kept is None


def remove_all(site: Site, store: Store) -> None:
    finish(StoreInternals(store).compactor.remove(StoreInternals(store).log_ids), store)


def purge(site: Site, store: Store) -> None:
    finish(StoreInternals(store).compactor.purge_tombstones(), store)


def add_again(site: Site, store: Store) -> None:
    add(store, OLD, 3, version=1)


def delete_another(site: Site, store: Store) -> None:
    store.ledger(2).delete()


def open_again(site: Site, store: Store) -> Store:
    """Begin another run, in another journal and another log."""
    store.close()
    store = site.open()
    store.ledger(3).append(b"of the next run")
    site.checkpoint(store)
    return store


def only_open_again(site: Site, store: Store) -> Store:
    store.close()
    return site.open()


Script = tuple["Callable[[Site, Store], Store | None]", ...]
SCRIPTS: dict[str, tuple[Script, Script]] = {
    "a slice": ((delete_old, checkpoint), (move_all,)),
    "a slice of the log in use, after a roll": ((delete_old, checkpoint), (roll, move_last, remove_all)),
    "a slice of the last log of an earlier run": (
        (delete_old, checkpoint, only_open_again),
        (move_last, remove_all),
    ),
    "a slice that begins a log": ((delete_old, checkpoint, only_open_again), (move_all,)),
    "a slice, and a tombstone that is bounded after it": (
        (only_open_again, delete_old),
        (move_all, checkpoint),
    ),
    "a slice, a delete and a ledger that is made again": (
        (),
        (move_all, delete_old, add_again, checkpoint),
    ),
    "a removal": ((delete_old, checkpoint, move_all), (remove_all,)),
    "a removal after which logs are written": (
        (delete_old, checkpoint, move_all),
        (remove_all, add_again, checkpoint),
    ),
    "a purge": (
        (delete_old, delete_another, checkpoint, open_again, move_all, remove_all, add_again, checkpoint),
        (purge,),
    ),
}


Contents = list[list[bytes]]


def crashed(script: str) -> list[tuple[str, SimulatedDisk, Contents]]:
    """Play a script. Return the disk before each operation of its second part, and what the ledger `OLD` may
    hold then."""
    before, during = SCRIPTS[script]
    site, store = full_site()
    for act in before:
        store = act(site, store) or store
    moments: list[tuple[str, SimulatedDisk, Contents]] = []
    allowed: Contents = [expected(OLD, 3, 1)]
    if add_again not in before:
        allowed += [expected(OLD, count, 1) for count in range(3)]
    if delete_old not in before:
        allowed += [expected(OLD, 6)]

    def keep(operation: Operation) -> None:
        moments.append((f"{operation.verb} {operation.path}", site.disk.copy(), allowed.copy()))

    site.disk.watch(keep)
    for act in during:
        act(site, store)
        if act is delete_old:
            allowed.remove(expected(OLD, 6))
    moments.append(("at the end", site.disk.copy(), allowed.copy()))
    return moments


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_crash_at_any_operation_loses_nothing_and_brings_nothing_back(script: str) -> None:
    found = after_power_cuts(script)
    for where, disk, allowed in found if script == "a purge" else every(15, found):
        check_opening(Site(SMALL_LOGS, disk, first_salt=1000), where, allowed)


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_crash_at_any_operation_and_a_lost_index_lose_nothing_and_bring_nothing_back(script: str) -> None:
    # Also an index that is ahead of the mark is lost, because every entry of the scripts is acknowledged.
    found = [one for one in after_power_cuts(script) if not torn_headers(Layout(one[1].root()).ledgers)]
    # A bound that the mark does not cover shows after very few of the crashes.
    for where, disk, allowed in found if "bounded" in script else every(15, found):
        site = Site(SMALL_LOGS, disk, first_salt=1000)
        site.remove(INDEX)
        check_opening(site, f"{where}, index lost", allowed)


def after_power_cuts(script: str) -> list[tuple[str, SimulatedDisk, Contents]]:
    """Return what power cuts before each operation of a script leave."""
    found = []
    for what, disk, allowed in crashed(script):
        for fate in (LoseAll(), KeepAll()):
            copy = disk.copy()
            copy.power_cut(fate)
            found.append((f"{script}, {what}, {fate}", copy, allowed))
    assert len(found) > 6
    return found


def check_opening(site: Site, where: str, allowed: Contents) -> None:
    store = site.open()
    assert store.opened.findings == (), where
    assert entries(store, KEPT) == expected(KEPT, 6), where
    assert entries(store, OLD) in allowed, where
    # New entries must survive another loss of the index, in logs whose ids may have been given out before.
    if OLD in store.ledgers():
        store.ledger(OLD).delete()
    add(store, OLD, 2, version=2)
    site.checkpoint(store)
    lose_index(site)
    store = site.open()
    assert entries(store, OLD) == expected(OLD, 2, 2), where
    assert entries(store, KEPT) == expected(KEPT, 6), where


def test_a_disk_that_is_full_ends_a_slice_and_loses_nothing() -> None:
    site, store = full_site()
    first = StoreInternals(store).log_ids[0]
    site.disk.limit(0)

    moved = finish(StoreInternals(store).compactor.move(first), store)

    assert moved.error is not None
    assert moved.why_kept.because is KeptBecause.FAILED
    assert entries(store, KEPT) == expected(KEPT, 6)
    site.disk.limit(None)
    assert finish(StoreInternals(store).compactor.move(first), store).error is None
    assert entries(store, KEPT) == expected(KEPT, 6)


def test_a_slice_that_the_index_refuses_leaves_no_copies_in_a_log_that_goes_on() -> None:
    site, store = full_site(SMALL)  # with logs that have room for the copies and for the next checkpoint
    site.disk.plant(Refused(When(verb=Verb.CREATE, name="index.draft"), errno.ENOSPC))

    moved = finish(StoreInternals(store).compactor.move(log_of(store, OLD)), store)
    store.ledger(OLD).delete()
    store.ledger(2).append(b"more")
    site.checkpoint(store)

    assert moved.error is not None
    assert moved.error.errno == errno.ENOSPC
    lose_index(site)
    store = site.open()
    assert entries(store, OLD) == []
    assert entries(store, KEPT) == expected(KEPT, 6)


def test_the_name_of_a_log_is_durable_before_the_index_points_at_copies_in_it() -> None:
    site, store = full_site()
    store = only_open_again(site, store)
    begun = len(site.disk.trace)

    move_all(site, store)

    did = [(one.verb, one.path.rpartition("/")[2]) for one in site.disk.trace[begun:]]
    named, index = did.index((Verb.RENAME, "3.log.draft")), did.index((Verb.CREATE, "index.draft"))
    assert (Verb.SYNC_DIRECTORY, "current") in did[named:index]


def test_entries_that_only_a_journal_has_survive_a_slice_and_a_crash() -> None:
    site, store = full_site()
    add(store, 5, 3)

    move_all(site, store)

    assert entries(site.after_power_cut(), 5) == expected(5, 3)


# ── other work between two steps ─────────────────────────────────────────────────────────────────────────


def test_entries_that_are_replaced_after_they_were_read_are_not_moved() -> None:
    site, store = full_site()
    verb = StoreInternals(store).compactor.move(log_of(store, KEPT))
    until_submitted(verb)
    add(store, KEPT, 6, version=1)
    site.checkpoint(store)

    finish(verb, store)

    assert entries(store, KEPT) == expected(KEPT, 6, 1)
    lose_index(site)
    assert entries(site.open(), KEPT) == expected(KEPT, 6, 1)


def test_records_that_are_replaced_in_a_new_log_while_a_removal_reads_are_no_finding() -> None:
    site, store = full_site()
    logs = StoreInternals(store).log_ids[:-1]
    store.ledger(OLD).delete()
    site.checkpoint(store)
    verb = StoreInternals(store).compactor.remove(logs)
    until_submitted(verb)
    StoreInternals(store).step_checkpoint()
    StoreInternals(store).step_checkpoint()
    assert next(verb) == AT_ONCE  # the first log is read
    add(store, KEPT, 6, version=1)
    add(store, 3, 6)
    site.checkpoint(store)
    assert StoreInternals(store).log_ids[-1] > logs[-1] + 1

    removed = finish(verb, store)

    assert [str(one) for one in removed.why_kept if one.finding] == []
    assert removed.logs_removed == tuple(logs)
    assert entries(store, KEPT) == expected(KEPT, 6, 1)


def test_a_ledger_that_is_deleted_within_a_slice_stays_deleted() -> None:
    site, store = full_site()
    verb = StoreInternals(store).compactor.move(log_of(store, OLD))
    until_submitted(verb)
    StoreInternals(store).step_checkpoint()
    StoreInternals(store).step_checkpoint()
    store.ledger(OLD).delete()
    finish(verb, store)
    site.checkpoint(store)

    assert entries(store, OLD) == []
    lose_index(site)
    assert entries(site.open(), OLD) == []


def test_a_checkpoint_that_is_due_ends_a_slice_and_the_rest_is_moved_afterwards() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    for ledger_id in range(6):
        add(store, ledger_id, 1)
    site.checkpoint(store)
    store.close()
    store = site.open()
    StoreInternals(store).move_chunk_by_chunk()
    store.ledger(9).append(b"of the second run")
    site.checkpoint(store)
    generation = StoreInternals(store).index_state.generation
    verb = StoreInternals(store).compactor.move(StoreInternals(store).log_ids[0])
    until_submitted(verb)
    for _ in range(3):
        StoreInternals(store).step_checkpoint()
    store.ledger(9).append(b"more")
    number = StoreInternals(store).number_checkpoint()
    while not StoreInternals(store).has_checkpointed(number):
        StoreInternals(store).step_checkpoint()

    assert (
        StoreInternals(store).index_state.generation == generation + 2
    )  # the slice up to here, and the checkpoint
    assert finish(verb, store).entries_moved == 6
    assert StoreInternals(store).index_state.generation == generation + 3
    assert [entries(store, one) for one in range(6)] == [expected(one, 1) for one in range(6)]


def test_a_store_is_closed_within_a_slice() -> None:
    site, store = full_site()
    verb = StoreInternals(store).compactor.move(StoreInternals(store).log_ids[0])
    until_submitted(verb)
    StoreInternals(store).step_checkpoint()
    store.close()

    store = site.open()
    assert entries(store, KEPT) == expected(KEPT, 6)
    assert entries(store, OLD) == expected(OLD, 6)


NO_ROOM = {
    "its entry log": Refused(
        When(verb=Verb.WRITE, name="*.log*", lasting=Lasting.UNTIL_MENDED), errno.ENOSPC
    ),
    "the rows of ledgers": Refused(
        When(verb=Verb.WRITE, name="ledgers.rows*", lasting=Lasting.UNTIL_MENDED), errno.ENOSPC
    ),
    "the index": Refused(When(verb=Verb.CREATE, name="index*", lasting=Lasting.UNTIL_MENDED), errno.ENOSPC),
}
"""The writes that have no room when a checkpoint waits for space."""


def waiting_for_space(no_room: Refused) -> tuple[Site, Store]:
    """A store with a dead log, and a checkpoint that waits for space."""
    site, store = full_site()
    add(store, KEPT, 6, version=1)
    site.checkpoint(store)
    store.ledger(OLD).delete()
    site.checkpoint(store)
    store.ledger(3, password=b"secret").append(b"in a table")
    site.disk.plant(no_room)
    site.checkpoint(store)
    assert StoreInternals(store).disk_full_error is not None
    return site, store


@pytest.mark.parametrize("no_room", NO_ROOM.values(), ids=NO_ROOM)
def test_a_checkpoint_that_waits_for_space_gives_way_to_a_removal_and_is_made_afterwards(
    no_room: Refused,
) -> None:
    site, store = waiting_for_space(no_room)
    verb = StoreInternals(store).compactor.remove(StoreInternals(store).log_ids[:1])
    removed, pauses = None, set[Pause]()
    for _ in range(1000):
        try:
            if next(verb) is None:
                pauses.add(StoreInternals(store).step_checkpoint())
        except StopIteration as end:
            removed = end.value
            break
    assert removed is not None, "it waits for ever"
    assert pauses <= {AT_ONCE, None}, "and it goes first"
    site.disk.mend()
    site.checkpoint(store)

    assert StoreInternals(store).disk_full_error is None
    assert entries(store, KEPT) == expected(KEPT, 6, 1)
    assert entries(store, 3) == [b"in a table"]
    lose_index(site)
    store = site.open()
    assert store.ledgers() == [KEPT, 2, 3]
    assert entries(store, KEPT) == expected(KEPT, 6, 1)
    assert entries(store, 3) == [b"in a table"]


def test_a_checkpoint_that_is_tried_again_at_once_goes_before_a_removal() -> None:
    site, store = full_site()
    store.ledger(3).append(b"in a table")
    site.disk.plant(Refused(When(verb=Verb.WRITE, name="*.log*"), errno.EIO))
    engine = StoreInternals(store)
    number = engine.number_checkpoint()
    verb = engine.compactor.remove(engine.log_ids[:1])
    until_submitted(verb)
    while not engine.has_checkpointed(number):
        engine.step_checkpoint()
    assert next(verb) is None, "the removal has not begun"
    assert engine.index.find(3, 0) is not None
    assert finish(verb, store).error is None


@pytest.mark.parametrize("no_room", NO_ROOM.values(), ids=NO_ROOM)
def test_a_store_is_closed_on_a_full_disk_with_a_removal_that_has_not_begun(no_room: Refused) -> None:
    site, store = waiting_for_space(no_room)
    until_submitted(StoreInternals(store).compactor.remove([0]))
    site.disk.stop_before(len(site.disk.trace) + 500)  # otherwise a close that never ends would never fail

    store.close()

    site.disk.mend()
    site.disk.kill()
    store = site.open()
    assert entries(store, KEPT) == expected(KEPT, 6, 1)
    assert entries(store, 3) == [b"in a table"]


DEATHS: dict[str, Callable[[Store], None]] = {
    "deleted": lambda store: store.ledger(OLD).delete(),
    "truncated": lambda store: store.ledger(OLD).truncate(6),
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_log_whose_records_die_after_the_last_checkpoint_is_no_finding_and_is_removed_later(
    death: str,
) -> None:
    site, store = full_site()
    logs = StoreInternals(store).log_ids[:-1]
    DEATHS[death](store)
    move_all(site, store)

    removed = finish(StoreInternals(store).compactor.remove(logs), store)
    assert {one.because for one in removed.why_kept} == {KeptBecause.WAITS}
    assert not any(one.finding for one in removed.why_kept)

    site.checkpoint(store)
    waiting = tuple(one.log_id for one in removed.why_kept)
    assert finish(StoreInternals(store).compactor.remove(waiting), store).logs_removed == waiting
    assert entries(store, KEPT) == expected(KEPT, 6)


# ── readers ──────────────────────────────────────────────────────────────────────────────────────────────


READS: dict[str, Callable[[Store], bytes]] = {
    "an entry": lambda store: store.ledger(KEPT).read(3).payload,
    "a range": lambda store: next(iter(store.ledger(KEPT).payloads(3))),
    "a bookie's read": lambda store: store.bookie.read(KEPT, 3)[-len(payload(KEPT, 3)) :],
}


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("cached", ["cached", "not cached"])
def test_a_reader_that_has_looked_up_a_removed_log_finds_the_entry(
    how: str, cached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, store = full_site()
    store.ledger(OLD).delete()
    site.checkpoint(store)
    for _ in range(100 if cached == "cached" else 0):
        store.ledger(KEPT).read(3)
    moves: list[None] = []

    def then_collect(call: EngineCall) -> None:
        found = StoreInternals(store).call(call)

        def look_up(*arguments: Any) -> Any:
            places = found(*arguments)
            if not moves:
                moves.append(None)
                move_all(site, store)
                remove_all(site, store)
            return places

        monkeypatch.setattr(*StoreInternals(store).at(call), look_up)

    then_collect(EngineCall.CACHED_PLACE)
    then_collect(EngineCall.CACHED_PLACES)
    assert READS[how](store) == payload(KEPT, 3)
    assert moves
    assert len(site.names(LEDGERS, ".log")) < 4


def test_moved_entries_leave_the_cache_of_locations() -> None:
    site, store = full_site()
    for _ in range(100):
        store.ledger(KEPT).read(0)
    assert StoreInternals(store).call(EngineCall.CACHED_PLACE)(KEPT, 0)[0] == StoreInternals(
        store
    ).index.find(KEPT, 0)

    move_all(site, store)

    assert StoreInternals(store).call(EngineCall.CACHED_PLACE)(KEPT, 0)[0] == 0


def test_the_descriptor_of_a_removed_log_is_released_even_if_it_was_opened_meanwhile() -> None:
    site, store = full_site()
    first = StoreInternals(store).log_ids[0]
    store.ledger(OLD).delete()
    site.checkpoint(store)
    move_all(site, store)

    def read_at_the_last_moment(operation: Operation) -> None:
        if operation.verb is Verb.REMOVE:
            StoreInternals(store).open_logs.read(first << 32 | 4100, 100)

    site.disk.watch(read_at_the_last_moment)
    finish(StoreInternals(store).compactor.remove([first]), store)

    assert first not in StoreInternals(store).log_ids
    assert StoreInternals(store).open_log(first) is None


# ── both proofs ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_record_that_the_index_does_not_know_and_nothing_kills_keeps_its_log() -> None:
    _, store = full_site()
    first = StoreInternals(store).log_ids[0]
    with StoreInternals(store).index.change() as change:
        change.remove([OLD, KEPT])
        change.commit(None)

    removed = finish(StoreInternals(store).compactor.remove([first]), store)

    assert removed.logs_removed == ()
    assert (removed.why_kept[0].because, removed.why_kept[0].finding) == (KeptBecause.UNACCOUNTED, "IDX-003")
    assert removed.why_kept[0].offset == 4096


def test_a_record_that_is_newer_than_the_one_in_the_index_keeps_its_log() -> None:
    site, store = full_site()
    add(store, KEPT, 1, version=1)
    site.checkpoint(store)
    old = StoreInternals(store).index.find(KEPT, 0)
    add(store, KEPT, 1, version=2)
    site.checkpoint(store)
    newer = StoreInternals(store).index.find(KEPT, 0)
    assert old is not None
    assert newer is not None
    with StoreInternals(store).index.change() as change:
        change.move(KEPT, [0], [newer], [old])
        change.commit(None)
    store.close()
    store = site.open()
    store.ledger(2).append(b"in another log")
    site.checkpoint(store)

    removed = finish(StoreInternals(store).compactor.remove([newer >> 32]), store)

    assert removed.logs_removed == ()
    assert removed.why_kept[0].finding in ("IDX-006", None)


def test_a_log_into_which_the_index_points_is_kept_even_if_a_walk_finds_only_dead_records() -> None:
    site, store = full_site()
    first = StoreInternals(store).log_ids[0]
    store.ledger(OLD).delete()
    site.checkpoint(store)
    move_all(site, store)
    with StoreInternals(store).index.change() as change:
        change.put(77, [0], [first << 32 | 4100])  # as if the ids in the record were damaged
        change.commit(None)

    removed = finish(StoreInternals(store).compactor.remove([first]), store)

    assert removed.logs_removed == ()
    assert (removed.why_kept[0].because, removed.why_kept[0].finding) == (KeptBecause.UNACCOUNTED, "IDX-002")


def test_a_log_that_is_shorter_than_its_end_is_kept() -> None:
    site, store = full_site()
    first = StoreInternals(store).log_ids[0]
    store.ledger(OLD).delete()
    site.checkpoint(store)
    move_all(site, store)
    name = f"{LEDGERS}/{first:x}.log"
    site.put(name, site.bytes_of(name)[:6000])

    removed = finish(StoreInternals(store).compactor.remove([first]), store)

    assert removed.logs_removed == ()
    assert removed.why_kept[0].because is KeptBecause.DAMAGED


# ── tombstones ───────────────────────────────────────────────────────────────────────────────────────────


def test_tombstones_stay_while_a_journal_that_is_kept_as_a_backup_has_what_they_kill() -> None:
    site = Site(replace(SMALL_LOGS, journal_max_backups=5))
    store = site.open()
    add(store, OLD, 6)
    site.checkpoint(store)
    for ledger_id in (OLD, 2):
        store.ledger(ledger_id).append(b"x")
        store.ledger(ledger_id).delete()
    site.checkpoint(store)
    store.close()
    store = site.open()
    store.ledger(3).append(b"in another log")
    site.checkpoint(store)
    remove_all(site, store)

    assert finish(StoreInternals(store).compactor.purge_tombstones(), store).tombstones_purged == 0


def test_a_ledgers_map_without_a_checksum_is_not_believed() -> None:
    site, store = full_site()
    first = StoreInternals(store).log_ids[0]
    store.ledger(OLD).delete()
    store.ledger(2).delete()
    site.checkpoint(store)
    store.close()
    name = f"{LEDGERS}/{first:x}.log"
    data = bytearray(site.bytes_of(name))
    at = int.from_bytes(data[8:16], "big") + 24
    data[72:76] = bytes(4)
    while at < len(data):
        if data[at : at + 8] == OLD.to_bytes(8, "big"):
            data[at : at + 8] = (99).to_bytes(8, "big")
        at += 16
    site.put(name, bytes(data))
    store = site.open()
    store.ledger(3).append(b"in another journal")
    site.checkpoint(store)

    assert finish(StoreInternals(store).compactor.purge_tombstones(), store).tombstones_purged == 0
    lose_index(site)
    assert entries(site.open(), OLD) == []


def test_a_file_of_rows_is_small_again_after_very_many_ledgers_were_deleted() -> None:
    site = Site(SMALL_LOGS)
    store = site.open()
    for ledger_id in range(300):
        store.ledger(ledger_id).append(b"short")
        store.ledger(ledger_id).delete()
    site.checkpoint(store)
    for _ in range(2):
        store.close()
        store = site.open()
        store.ledger(1000).append(b"x")
        site.checkpoint(store)
        remove_all(site, store)
        purge(site, store)

    assert len(site.bytes_of(f"{LEDGERS}/ledgers.rows")) < 16 << 10
    assert store.ledgers() == [1000]
    assert StoreInternals(store).row(5).tombstone is None
    assert StoreInternals(store).row(299).tombstone is not None  # the numbers of changes go on from this one
