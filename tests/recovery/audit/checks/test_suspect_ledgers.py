"""What fingerprints decide, and what they cannot decide."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from replicated_ledgers import (
    AS_SCANNED,
    STORES,
    WHOLE_RUNS,
    HeldRuns,
    SimulatedCluster,
    checks_of,
    random_world,
    segment_of,
    sound,
    together,
)

from recovery.audit.model.ensemble import LedgerEnsembles, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replicated_ledgers import RunCutting

STRIPED = LedgerEnsembles(7, 2, 2, (Segment(0, STORES[:3]),), last_entry=20)
WHOLE = LedgerEnsembles(8, 3, 2, (Segment(0, STORES[:3]), Segment(10, ("bk1", "bk4", "bk3"))), 20)


def suspects(ensembles: Sequence[LedgerEnsembles], held: Sequence[HeldRuns]) -> tuple[int, ...]:
    return tuple(sorted(checks_of(ensembles, held).suspect_ledgers()))


def compared_ledgers(
    world: SimulatedCluster, seed: int = 0, cutting: RunCutting = AS_SCANNED
) -> tuple[int, ...]:
    return suspects(world.ensembles, world.held(Random(seed), cutting))


def differing_ledgers(world: SimulatedCluster) -> Iterator[int]:
    """Return the ledgers of which two copies in required places differ."""
    for one in world.ensembles:
        for entry in range(64):
            segment = segment_of(one, entry)
            if segment is None or (one.last_entry is not None and entry > one.last_entry):
                continue
            shelves = [world.shelves[store] for store in one.places(segment, entry)]
            key = one.ledger_id, entry
            if len({shelf.entries[key] for shelf in shelves if key in shelf.entries}) > 1:
                yield one.ledger_id


@pytest.mark.parametrize("seed", range(20))
def test_sound_ledgers_are_never_compared_however_runs_are_cut(seed: int) -> None:
    assert compared_ledgers(sound([STRIPED, WHOLE]), seed) == ()


def random_worlds(random: Random, count: int) -> SimulatedCluster:
    return together(random_world(random).moved(100 * number) for number in range(count))


def test_no_difference_is_missed_however_runs_are_cut() -> None:
    random = Random(1)
    world = random_worlds(random, 60)
    for shelf in world.shelves.values():
        for key in shelf.entries:
            shelf.entries[key] += random.random() < 0.02
    differing = set(differing_ledgers(world))
    assert len(differing) > 10
    assert differing <= set(suspects(world.ensembles, world.held(random)))


def test_a_ledger_with_unreadable_entries_has_to_be_compared() -> None:
    random = Random(2)
    world = random_worlds(random, 60)
    listed = {one.ledger_id for one in world.ensembles}
    bad = {key[0] for shelf in world.shelves.values() for key in shelf.bad} & listed
    assert len(bad) > 10
    assert bad <= set(suspects(world.ensembles, world.held(random)))


def test_a_ledger_with_a_differing_copy_has_to_be_compared() -> None:
    world = sound([STRIPED, WHOLE])
    world.shelves["bk4"].entries[8, 15] += 1
    assert compared_ledgers(world) == (8,)


def test_a_store_that_lacks_some_entries_is_compared_but_not_one_that_lacks_all() -> None:
    world = sound([STRIPED])
    del world.shelves["bk2"].entries[7, 4]
    assert compared_ledgers(world, cutting=WHOLE_RUNS) == (7,)
    world.shelves["bk2"].entries.clear()
    assert compared_ledgers(world, cutting=WHOLE_RUNS) == ()


def twice_over(one: HeldRuns, times: int) -> HeldRuns:
    files = np.concatenate([one.files] * times)
    return HeldRuns(one.name, files, files)


def test_entries_that_cancel_out_in_the_fingerprint_are_found() -> None:
    """An entry that is stored twice has no fingerprint, and one that is stored three times its own."""
    world = sound([STRIPED])
    first, *others = world.held(Random(3), AS_SCANNED)
    assert suspects([STRIPED], [twice_over(first, 3), *others]) == (7,)
    world.shelves["bk2"].entries[7, 4] += 1
    assert suspects([STRIPED], [twice_over(one, 2) for one in world.held(Random(3), WHOLE_RUNS)]) == (7,)


def test_counts_are_compared_as_well_as_fingerprints() -> None:
    held = sound([STRIPED]).held(Random(3), WHOLE_RUNS)
    held[0].files["count"][0] += 1
    assert suspects([STRIPED], held) == (7,)


def test_an_unreadable_entry_is_found_even_without_another_copy() -> None:
    alone = LedgerEnsembles(9, 1, 1, (Segment(0, ("bk1",)),), 20)
    world = sound([alone])
    world.shelves["bk1"].bad.add((9, 3))
    (first, *others) = world.held(Random(3), WHOLE_RUNS)
    bookie = HeldRuns("bk1", first.files, first.files)
    assert suspects([alone], [bookie, *others]) == (9,)


def test_a_store_whose_files_differ_from_what_it_serves_is_compared() -> None:
    world = sound([STRIPED])
    first, *others = world.held(Random(3), AS_SCANNED)
    less = HeldRuns(first.name, first.served[1:], first.files)
    assert suspects([STRIPED], [less, *others]) == (7,)


def test_a_run_across_a_change_of_the_ensemble_that_moved_its_store_is_compared() -> None:
    """No store can be compared with a part of the run's fingerprint."""
    moved = LedgerEnsembles(
        7, 2, 2, (Segment(0, ("bk1", "bk2", "bk3")), Segment(9, ("bk2", "bk1", "bk3"))), 20
    )
    assert compared_ledgers(sound([moved]), cutting=WHOLE_RUNS) == (7,)


def test_a_replacement_store_is_compared_with_the_others() -> None:
    replaced = LedgerEnsembles(
        9, 2, 2, (Segment(0, ("bk1", "bk2", "bk3")), Segment(9, ("bk1", "bk4", "bk3"))), 20
    )
    world = sound([replaced])
    assert compared_ledgers(world, cutting=WHOLE_RUNS) == ()
    world.shelves["bk4"].entries[9, 10] += 1
    assert compared_ledgers(world, cutting=WHOLE_RUNS) == (9,)


def test_a_copy_that_is_not_required_is_not_compared() -> None:
    world = sound([STRIPED])
    world.shelves["bk5"].entries[7, 3] = 1
    assert compared_ledgers(world) == ()


def test_a_single_copy_has_nothing_to_be_compared_with() -> None:
    alone = LedgerEnsembles(9, 1, 1, (Segment(0, ("bk1",)), Segment(9, ("bk2",))), 20)
    world = sound([alone])
    world.shelves["bk1"].entries |= world.shelves["bk2"].entries
    assert compared_ledgers(world, cutting=WHOLE_RUNS) == ()


def test_a_short_segment_concerns_only_residues_with_entries_in_it() -> None:
    """Entry 9 is of the first residue, whose stores do not change. The move of other stores does not concern
    it.
    """
    first, passing = ("bk1", "bk2", "bk3"), ("bk1", "bk2", "bk4")
    short = LedgerEnsembles(9, 2, 2, (Segment(0, first), Segment(9, passing), Segment(10, first)), 20)
    assert compared_ledgers(sound([short]), cutting=WHOLE_RUNS) == ()


def test_runs_of_several_residues_have_to_be_compared() -> None:
    """A scan that did not know the ensemble made these runs, and their fingerprints cannot be split."""
    world = sound([STRIPED])
    held = world.held(Random(1), WHOLE_RUNS)
    shelf = world.shelves["bk1"].entries
    plain = SimulatedCluster(
        [LedgerEnsembles(7, 1, 1, (Segment(0, ("bk1",)),))], {"bk1": world.shelves["bk1"]}, {}
    )
    assert (7, 2) in shelf
    assert (7, 3) in shelf
    assert suspects([STRIPED], [*plain.held(Random(1), WHOLE_RUNS), *held[1:]]) == (7,)


def test_without_ledgers_nothing_has_to_be_compared() -> None:
    assert suspects([], []) == ()
