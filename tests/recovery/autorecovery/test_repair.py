"""The repair of one ledger, in worlds of dictionaries: bookies that are lost, damaged, silent, full."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from planted_repair_bugs import REPAIR_BUGS, PlantedRepairBug, planted
from repair_world import (
    LEDGER,
    RepairWorld,
    data_of,
    is_readable,
    ledger,
    random_world,
    world_of,
)

from recovery.autorecovery.repair import (
    GrowingWithoutBookies,
    LedgerGone,
    Postponed,
    Repaired,
    Unrepairable,
)
from storage.cluster.client.entries import entry_codec
from storage.cluster.metadata.ledger import LedgerSegment
from storage.entry.model import DigestType

SEEDS = range(150)


def check_random_world(seed: int) -> None:
    """Repair a world; its entries are then all there, and nothing was copied in vain."""
    random = Random(seed)
    world = random_world(random)
    assert world.metadata is not None
    if not is_readable(world):
        return
    suspects = {bookie for one in world.metadata.segments for bookie in one.bookies}
    result = world.play(world.repair(*suspects, seed=seed), random)
    growing = None if world.metadata.is_closed else world.metadata.segments[-1]
    if growing is not None and world.down & set(growing.bookies):
        assert result == GrowingWithoutBookies(
            growing.first_entry, tuple(sorted(world.down & set(growing.bookies)))
        )
    elif isinstance(result, Postponed) and "no bookie that takes adds" in result.reason:
        # With six bookies, of which two may be down, an ensemble of four may have no bookie left.
        return
    else:
        assert result == Repaired()
    assert world.lacking() == []
    assert not world.names_lost()
    assert world.superfluous() == []


@pytest.mark.parametrize("first", range(0, 150, 50))
def test_a_repair_makes_every_fragment_whole_and_copies_nothing_else(first: int) -> None:
    for seed in SEEDS[first : first + 50]:
        check_random_world(seed)


def check_lost_answers(seed: int) -> None:
    """Repair again and again while answers are lost; the change of the metadata never precedes a copy."""
    random = Random(seed)
    world = random_world(random)
    assert world.metadata is not None
    if not is_readable(world):
        return
    suspects = {bookie for one in world.metadata.segments for bookie in one.bookies}
    for loss in (0.2, 0.1, 0.0):
        world.loss = loss
        result = world.play(world.repair(*suspects, seed=seed), random)
        if result == Repaired():
            assert world.lacking() == []
    result = world.play(world.repair(*suspects, seed=seed), random)
    if not isinstance(result, Postponed):
        assert world.lacking() == []


def test_lost_answers_delay_a_repair_and_do_no_harm() -> None:
    for seed in range(60):
        check_lost_answers(seed)


def test_a_session_that_is_lost_at_any_step_leaves_what_the_next_repair_completes() -> None:
    """A bookie is lost in two segments. The repair is cut at each step, and a second one completes it."""
    metadata = ledger(2, 2, [(0, "123"), (4, "143")], 8)
    steps, is_over = 0, False
    while not is_over:
        world = world_of(metadata)
        world.down = {"b1"}
        is_over = world.play(world.repair("b1", seed=3), Random(1), steps) is not None
        assert world.play(world.repair("b1", seed=4), Random(2)) == Repaired()
        assert world.lacking() == []
        assert not world.names_lost()
        steps += 1
    assert steps > 20


def test_two_workers_at_the_same_time_replace_a_bookie_once() -> None:
    """The first worker has copied everything when the second one changes the metadata."""
    world = world_of(ledger(2, 2, [(0, "123")], 5))
    world.down = {"b1"}

    def another() -> None:
        assert world.play(world.repair("b1", seed=99), Random(9)) == Repaired()

    world.before_write = another
    assert world.play(world.repair("b1", seed=1), Random(5)) == Repaired()
    assert world.writes == 1
    assert world.lacking() == []


# ── what is not repaired, and why ─────────────────────────────────────────────────────────────────────────


def test_a_bookie_without_an_answer_has_lost_nothing() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 5))
    world.silent = {"b2"}
    assert isinstance(world.play(world.repair(), Random(1)), Postponed)
    assert (world.added, world.writes) == ([], 0)


def test_a_busy_bookie_gets_no_copies() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 5))
    world.busy = {"b2"}
    assert isinstance(world.play(world.repair(), Random(1)), Postponed)
    assert (world.added, world.writes) == ([], 0)


def test_entries_that_all_bookies_lack_are_lost_and_others_are_copied() -> None:
    world = world_of(ledger(2, 2, [(0, "123"), (3, "456")], 5))
    world.down = {"b4"}
    for store in world.stores.values():
        store.pop(0, None)
    result = world.play(world.repair("b1", "b2", "b3", "b4"), Random(1))
    assert isinstance(result, Unrepairable)
    assert result.absent == frozenset()
    assert not world.names_lost()


def test_entries_of_bookies_that_are_not_registered_may_come_back() -> None:
    world = world_of(ledger(1, 1, [(0, "123")], 5))
    world.down = {"b1"}
    result = world.play(world.repair("b1"), Random(1))
    assert isinstance(result, Unrepairable)
    assert result.absent == frozenset({"b1"})


def test_a_deleted_ledger_needs_no_repair() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 5))
    world.metadata = None
    assert world.play(world.repair("b1"), Random(1)) == LedgerGone()


def test_without_a_bookie_for_the_copies_the_ledger_waits() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 5), bookies=3)
    world.down = {"b1"}
    assert isinstance(world.play(world.repair("b1"), Random(1)), Postponed)
    assert world.writes == 0


def test_a_wiped_bookie_is_filled_again_in_place_when_there_is_no_other() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 5), bookies=3)
    world.stores["b2"].clear()
    assert world.play(world.repair(), Random(1)) == Repaired()
    assert (world.lacking(), world.writes) == ([], 0)


def test_a_bookie_that_does_not_keep_what_it_takes_is_replaced() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 5))
    world.stores["b2"].clear()
    world.forgetful = {"b2"}
    assert world.play(world.repair("b2"), Random(1)) == Repaired()
    assert world.lacking() == []


def test_a_read_only_bookie_that_lacks_entries_is_replaced() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 5))
    del world.stores["b2"][0]
    world.read_only = {"b2"}
    assert world.play(world.repair("b2"), Random(1)) == Repaired()
    assert world.lacking() == []


def test_a_read_only_bookie_that_has_its_entries_stays() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 5))
    world.read_only = {"b2"}
    assert world.play(world.repair("b2"), Random(1)) == Repaired()
    assert world.added == []


def test_a_target_that_fills_up_does_not_get_into_the_metadata() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 5), bookies=4)
    world.down, world.full = {"b1"}, {"b4"}
    assert isinstance(world.play(world.repair("b1"), Random(1)), Postponed)
    assert world.writes == 0


def test_an_entry_that_is_missing_in_the_middle_is_found_at_a_suspect_only() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 20))
    del world.stores["b2"][10]
    assert world.play(world.repair(), Random(1)) == Repaired()
    assert world.lacking() == [("b2", 10)]
    assert world.play(world.repair("b2"), Random(1)) == Repaired()
    assert world.lacking() == []


def test_a_suspect_that_was_silent_at_first_is_read_completely_by_a_later_check() -> None:
    world = world_of(ledger(3, 2, [(0, "123")], 20))
    world.down, world.silent = {"b1"}, {"b2"}
    del world.stores["b2"][10]
    # It answers again when the entries of the lost bookie have been copied.
    world.before_write = world.silent.clear
    assert world.play(world.repair("b1", "b2"), Random(1)) == Repaired()
    assert world.lacking() == []


def test_a_suspect_is_read_completely_in_a_segment_that_is_closed_during_the_repair() -> None:
    world = world_of(ledger(2, 2, [(0, "123"), (6, "425")], 20))
    del world.stores["b2"][10]
    closed = world.metadata
    world.metadata, world.down = ledger(2, 2, [(0, "123"), (6, "425")], None), {"b1"}

    def close() -> None:
        world.metadata, world.version = closed, world.version + 1

    world.before_write = close
    assert world.play(world.repair("b1", "b2"), Random(1)) == Repaired()
    assert world.lacking() == []


def test_the_last_entry_of_a_fragment_is_read_at_every_bookie() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], 20))
    del world.stores["b2"][19]  # the last one that is striped to its index
    assert world.play(world.repair(), Random(1)) == Repaired()
    assert world.lacking() == []


def test_the_segment_of_a_writer_is_neither_read_nor_changed() -> None:
    world = world_of(ledger(2, 2, [(0, "123"), (4, "145")], None))
    world.down = {"b1"}
    assert world.play(world.repair("b1"), Random(1)) == GrowingWithoutBookies(4, ("b1",))
    assert all(entry_id < 4 for _, entry_id in world.read)
    assert world.metadata is not None
    assert world.metadata.segments[-1] == LedgerSegment(4, ("b1", "b4", "b5"))
    assert world.lacking() == []


GROWING = ledger(2, 2, [(0, "123"), (4, "145")], None)


def growing_world(last: int) -> RepairWorld:
    """Return a world in which a ledger grows from 4 on, and every copy is there up to this entry."""
    world = world_of(ledger(2, 2, [(0, "123"), (4, "145")], last))
    world.metadata = GROWING
    return world


def test_a_suspect_that_has_everything_where_the_ledger_grows_loses_its_mark() -> None:
    for last in range(3, 9):
        world = growing_world(last)
        assert world.play(world.repair("b4", "b5"), Random(1)) == Repaired()
        assert (world.added, world.writes) == ([], 0)


def test_a_suspect_that_lacks_an_entry_where_the_ledger_grows_keeps_its_mark_and_gets_no_copy() -> None:
    world = growing_world(8)
    del world.stores["b4"][6]
    assert world.play(world.repair("b4"), Random(1)) == Postponed("b4 lacks entry 6, where the ledger grows")
    assert world.play(world.repair("b2"), Random(1)) == Repaired(), "it is not where the ledger grows"
    assert (world.added, world.writes) == ([], 0)
    world.metadata = ledger(2, 2, [(0, "123"), (4, "145")], 8)
    assert world.play(world.repair("b4"), Random(1)) == Repaired()
    assert world.lacking() == []


def test_a_suspect_that_lacks_the_last_entry_only_is_noticed_by_those_that_have_it() -> None:
    world = growing_world(8)
    del world.stores["b5"][8]
    lacks = Postponed("b5 lacks entry 8, where the ledger grows")
    assert world.play(world.repair("b5"), Random(1)) == lacks
    # The bookie that has it may be the only one, and then it has to answer.
    world.silent = {"b1"}
    result = world.play(world.repair("b5"), Random(1))
    assert isinstance(result, Postponed)
    assert result != lacks


def test_an_entry_that_is_on_its_way_to_a_suspect_is_looked_for_again() -> None:
    world = growing_world(8)
    late = world.stores["b4"].pop(7)
    world.before_wait = lambda: world.stores["b4"].update({7: late})
    assert world.play(world.repair("b4"), Random(1)) == Repaired()


def test_a_suspect_is_read_to_the_end_of_a_ledger_that_is_closed_during_its_check() -> None:
    world = growing_world(8)
    late = world.stores["b4"].pop(7)

    def close() -> None:
        world.stores["b4"][7] = late
        for bookie, entry_id in (("b1", 9), ("b4", 9), ("b5", 10)):
            world.stores[bookie][entry_id] = data_of(entry_id)
        world.metadata, world.version = ledger(2, 2, [(0, "123"), (4, "145")], 10), world.version + 1

    world.before_wait = close
    assert world.play(world.repair("b4"), Random(1)) == Repaired()
    assert world.added == [("b4", 10)]
    assert world.lacking() == []


def test_a_damaged_entry_of_a_suspect_where_the_ledger_grows_keeps_the_mark() -> None:
    world = growing_world(8)
    for entry_id in (6, 7):
        store, good = world.stores["b4"], dict(world.stores["b4"])
        store[entry_id] = data_of(entry_id)[:-1] + b"!"
        assert isinstance(world.play(world.repair("b4"), Random(1)), Postponed), entry_id
        store.update(good)


@pytest.mark.parametrize("kind", [DigestType.CRC32, DigestType.CRC32C, DigestType.MAC])
def test_a_ledger_of_an_old_format_is_copied_with_the_digest_that_its_entries_have(kind: DigestType) -> None:
    """The first format of metadata says neither the digest type nor the password."""
    codec = entry_codec(LEDGER, kind, b"")
    metadata = replace(ledger(2, 2, [(0, "123")], 5), password=None, digest_type=None, format_version=1)
    world = world_of(metadata)
    entries = {
        entry_id: codec.encode(entry_id, entry_id - 1, 4 * (entry_id + 1), b"%4d" % entry_id)
        for entry_id in range(6)
    }
    world.stores = {name: {one: entries[one] for one in store} for name, store in world.stores.items()}
    world.key, world.down = codec.master_key, {"b1"}
    world.check_change = lambda *_: None  # type: ignore[method-assign]  # it expects another digest
    assert world.play(world.repair("b1"), Random(1)) == Repaired()
    assert world.metadata is not None
    [segment] = world.metadata.segments
    for entry_id in range(6):
        for index in (entry_id % 3, (entry_id + 1) % 3):
            assert world.stores[segment.bookies[index]][entry_id] == entries[entry_id]


def test_an_empty_closed_ledger_loses_only_a_name() -> None:
    world = world_of(ledger(2, 2, [(0, "123")], -1))
    world.down = {"b1"}
    assert world.play(world.repair("b1"), Random(1)) == Repaired()
    assert (world.added, world.names_lost(), world.writes) == ([], False, 1)


def test_a_ledger_of_many_segments_is_changed_a_few_times() -> None:
    metadata = ledger(2, 2, [(first, "123") for first in range(1100)], 1099)
    world = world_of(metadata)
    world.down = {"b1"}
    assert world.play(world.repair("b1"), Random(1)) == Repaired()
    assert world.writes == 2


# ── planted bugs ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bug", REPAIR_BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: PlantedRepairBug) -> None:
    with planted(bug), pytest.raises((AssertionError, KeyError, IndexError)):
        find(bug)


def find(bug: PlantedRepairBug) -> None:
    """Play the tests that have to find a bug."""
    for test in bug.tests(globals()):
        test()
    if not bug.found_by:
        for seed in range(300):
            check_random_world(seed)
