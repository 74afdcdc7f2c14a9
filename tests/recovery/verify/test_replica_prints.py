"""What fingerprints vouch for, and what they cannot."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from replicated import AS_SCANNED, STORES, WHOLE_RUNS, World, random_world, sound

from recovery.verify.ensemble import Ensembles, Segment
from recovery.verify.replica_prints import suspects
from recovery.verify.replica_rules import Held

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replicated import Cutting

STRIPED = Ensembles(7, 2, 2, (Segment(0, STORES[:3]),), last_entry=20)
WHOLE = Ensembles(8, 3, 2, (Segment(0, STORES[:3]), Segment(10, ("bk1", "bk4", "bk3"))), 20)


def asked(world: World, seed: int = 0, cutting: Cutting = AS_SCANNED) -> tuple[int, ...]:
    return suspects(world.ensembles, world.held(Random(seed), cutting))


def unlike(world: World) -> Iterator[int]:
    """The ledgers of which two copies that somebody reads differ."""
    for one in world.ensembles:
        for entry in range(64):
            segment = one.segment_of(entry)
            if segment is None or (one.last_entry is not None and entry > one.last_entry):
                continue
            shelves = [world.shelves[store] for store in one.places(segment, entry)]
            key = one.ledger_id, entry
            if len({shelf.entries[key] for shelf in shelves if key in shelf.entries}) > 1:
                yield one.ledger_id


@pytest.mark.parametrize("seed", range(20))
def test_what_is_sound_is_never_suspect_wherever_it_is_cut(seed: int) -> None:
    assert asked(sound([STRIPED, WHOLE]), seed) == ()


@pytest.mark.parametrize("seed", range(3))
def test_no_difference_is_passed_over_however_it_is_cut(seed: int) -> None:
    random = Random(seed)
    for _ in range(150):
        world = random_world(random)
        for shelf in world.shelves.values():
            for key in shelf.entries:
                shelf.entries[key] += random.random() < 0.02
        assert set(unlike(world)) <= set(suspects(world.ensembles, world.held(random)))


@pytest.mark.parametrize("seed", range(3))
def test_what_cannot_be_read_is_suspect(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        world = random_world(random)
        listed = {one.ledger_id for one in world.ensembles}
        bad = {key[0] for shelf in world.shelves.values() for key in shelf.bad} & listed
        assert bad <= set(suspects(world.ensembles, world.held(random)))


def test_a_copy_that_differs_makes_its_ledger_suspect() -> None:
    world = sound([STRIPED, WHOLE])
    world.shelves["bk4"].entries[8, 15] += 1
    assert asked(world) == (8,)


def test_a_store_that_lacks_some_entries_is_suspect_and_one_that_lacks_all_has_nothing_to_compare() -> None:
    world = sound([STRIPED])
    del world.shelves["bk2"].entries[7, 4]
    assert asked(world, cutting=WHOLE_RUNS) == (7,)
    world.shelves["bk2"].entries.clear()
    assert asked(world, cutting=WHOLE_RUNS) == ()


def twice_over(one: Held, times: int) -> Held:
    prints = np.concatenate([one.prints] * times)
    return Held(name=one.name, store=one.store, runs=prints, prints=prints)


def test_what_cancels_out_does_not_hide() -> None:
    """An entry that stands twice has no fingerprint, whatever it is, and one that stands thrice its own."""
    world = sound([STRIPED])
    first, *others = world.held(Random(3), AS_SCANNED)
    assert suspects([STRIPED], [twice_over(first, 3), *others]) == (7,)
    world.shelves["bk2"].entries[7, 4] += 1
    assert suspects([STRIPED], [twice_over(one, 2) for one in world.held(Random(3), WHOLE_RUNS)]) == (7,)


def test_as_many_entries_are_asked_for_as_fingerprints() -> None:
    held = sound([STRIPED]).held(Random(3), WHOLE_RUNS)
    held[0].prints["count"][0] += 1
    assert suspects([STRIPED], held) == (7,)


def test_an_entry_that_cannot_be_read_is_suspect_where_nothing_is_compared() -> None:
    alone = Ensembles(9, 1, 1, (Segment(0, ("bk1",)),), 20)
    world = sound([alone])
    world.shelves["bk1"].bad.add((9, 3))
    (first, *others) = world.held(Random(3), WHOLE_RUNS)
    bookie = Held(name="bk1", store="", runs=first.prints, prints=first.prints)
    assert suspects([alone], [bookie, *others]) == (9,)


def test_files_that_hold_something_else_than_is_served_are_suspect() -> None:
    world = sound([STRIPED])
    first, *others = world.held(Random(3), AS_SCANNED)
    less = Held(name=first.name, store="", runs=first.runs[1:], prints=first.prints)
    assert suspects([STRIPED], [less, *others]) == (7,)


def test_a_run_over_a_change_in_which_its_store_moved_is_suspect() -> None:
    """Nobody can say which part of its fingerprint is to be compared with whose."""
    moved = Ensembles(7, 2, 2, (Segment(0, ("bk1", "bk2", "bk3")), Segment(9, ("bk2", "bk1", "bk3"))), 20)
    assert asked(sound([moved]), cutting=WHOLE_RUNS) == (7,)


def test_a_store_that_takes_another_s_place_is_compared_with_it() -> None:
    replaced = Ensembles(9, 2, 2, (Segment(0, ("bk1", "bk2", "bk3")), Segment(9, ("bk1", "bk4", "bk3"))), 20)
    world = sound([replaced])
    assert asked(world, cutting=WHOLE_RUNS) == ()
    world.shelves["bk4"].entries[9, 10] += 1
    assert asked(world, cutting=WHOLE_RUNS) == (9,)


def test_a_copy_that_nobody_asked_for_is_not_compared() -> None:
    world = sound([STRIPED])
    world.shelves["bk5"].entries[7, 3] = 1
    assert asked(world) == ()


def test_a_single_copy_has_nothing_to_be_compared_with() -> None:
    alone = Ensembles(9, 1, 1, (Segment(0, ("bk1",)), Segment(9, ("bk2",))), 20)
    world = sound([alone])
    world.shelves["bk1"].entries |= world.shelves["bk2"].entries
    assert asked(world, cutting=WHOLE_RUNS) == ()


def test_a_short_segment_concerns_only_those_who_have_entries_in_it() -> None:
    """Entry 9 is of the first residue, whose stores stay: that others would have moved touches nobody."""
    first, passing = ("bk1", "bk2", "bk3"), ("bk1", "bk2", "bk4")
    short = Ensembles(9, 2, 2, (Segment(0, first), Segment(9, passing), Segment(10, first)), 20)
    assert asked(sound([short]), cutting=WHOLE_RUNS) == ()


def test_runs_of_several_residues_are_suspect() -> None:
    """Made by a scan that knew nothing of the ensemble: their fingerprints cannot be taken apart."""
    world = sound([STRIPED])
    held = world.held(Random(1), WHOLE_RUNS)
    shelf = world.shelves["bk1"].entries
    plain = World([Ensembles(7, 1, 1, (Segment(0, ("bk1",)),))], {"bk1": world.shelves["bk1"]}, {})
    assert (7, 2) in shelf
    assert (7, 3) in shelf
    assert suspects([STRIPED], [*plain.held(Random(1), WHOLE_RUNS), *held[1:]]) == (7,)


def test_of_nothing_nothing_is_suspect() -> None:
    assert suspects([], []) == ()
