"""The choice of bookies."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product

import pytest

from storage.cluster.client.distribution import Quorums
from storage.cluster.client.placement import Candidates, ZoneRules, choose_ensemble, replace_bookies
from storage.cluster.errors import NotEnoughBookies, NotEnoughZones

THREE = Quorums(3, 3, 2)
SIX = frozenset(f"b{number}" for number in range(1, 7))


def test_an_ensemble_has_different_bookies() -> None:
    for seed in range(50):
        assert len(set(choose_ensemble(Candidates(SIX), THREE, seed))) == 3


def test_the_same_seed_makes_the_same_choice_and_other_seeds_share_the_load() -> None:
    chosen = [choose_ensemble(Candidates(SIX), THREE, seed) for seed in range(600)]

    assert chosen[17] == choose_ensemble(Candidates(SIX), THREE, 17)
    firsts = Counter(one[0] for one in chosen)
    assert set(firsts) == SIX
    assert min(firsts.values()) > 60


def test_too_few_bookies_are_counted_by_zone() -> None:
    candidates = Candidates(frozenset({"b1", "b2"}), rules=ZoneRules({"b1": "north", "b2": "south"}))

    with pytest.raises(NotEnoughBookies) as caught:
        choose_ensemble(candidates, THREE, 1)

    assert (caught.value.wanted, caught.value.found) == (3, 2)
    assert caught.value.by_zone == {"north": 1, "south": 1}


def test_quarantined_bookies_are_taken_only_if_there_are_not_enough_others() -> None:
    some = Candidates(SIX, quarantined=frozenset({"b1", "b2", "b3"}))
    most = Candidates(SIX, quarantined=frozenset({"b1", "b2", "b3", "b4"}))

    for seed in range(20):
        assert set(choose_ensemble(some, THREE, seed)) == {"b4", "b5", "b6"}
        assert {"b5", "b6"} < set(choose_ensemble(most, THREE, seed))


def test_consecutive_bookies_are_in_different_zones() -> None:
    zones = {"b1": "north", "b2": "north", "b3": "north", "b4": "south", "b5": "south", "b6": "west"}
    for seed in range(20):
        ensemble = choose_ensemble(Candidates(SIX, rules=ZoneRules(zones)), Quorums(4, 2, 2), seed)
        assert all(zones[left] != zones[right] for left, right in pairwise(ensemble))


def test_failed_bookies_are_replaced_by_others_as_far_as_there_are_others() -> None:
    ensemble = ("b1", "b2", "b3")

    both = replace_bookies(Candidates(SIX), THREE, ensemble, {0, 2}, 1)
    assert set(both) == {0, 2}
    assert not set(both.values()) & set(ensemble)
    assert len(set(both.values())) == 2

    one_spare = Candidates(frozenset({"b1", "b2", "b3", "b4"}))
    assert replace_bookies(one_spare, THREE, ensemble, {0, 2}, 1) == {0: "b4"}
    assert replace_bookies(Candidates(frozenset(ensemble)), THREE, ensemble, {0}, 1) == {}


def test_a_replacement_is_in_another_zone_than_its_neighbours() -> None:
    zones = {"b1": "north", "b2": "south", "b3": "west", "b4": "south", "b5": "west", "b6": "north"}
    for seed in range(20):
        assert replace_bookies(
            Candidates(SIX, rules=ZoneRules(zones)), THREE, ("b1", "b2", "b3"), {0}, seed
        ) == {0: "b6"}


# ── a minimum of zones ───────────────────────────────────────────────────────────────────────────────────


def zones_of_write_sets(quorums: Quorums, ensemble: tuple[str, ...], zones: dict[str, str]) -> list[int]:
    """Return the number of zones of each write set."""
    sets = (quorums.write_set(entry_id) for entry_id in range(quorums.ensemble))
    return [len({zones[ensemble[index]] for index in indices}) for indices in sets]


@pytest.mark.parametrize("layout", ["NNNSS", "NNSSW", "NNNNS", "NNSSWW", "NSWNSW"])
@pytest.mark.parametrize("quorums", [Quorums(3, 3, 2), Quorums(4, 2, 2), Quorums(5, 3, 2), Quorums(3, 2, 1)])
def test_every_write_set_is_in_enough_zones_whenever_that_is_possible(layout: str, quorums: Quorums) -> None:
    zones = {f"b{number}": zone for number, zone in enumerate(layout, 1)}
    candidates = Candidates(frozenset(zones), rules=ZoneRules(zones, 2))
    write_sets = [quorums.write_set(entry_id) for entry_id in range(quorums.ensemble)]
    # Any order of zones that the bookies have.
    is_possible = any(
        all(order.count(zone) <= layout.count(zone) for zone in set(layout))
        and all(len({order[index] for index in write_set}) >= 2 for write_set in write_sets)
        for order in product(sorted(set(layout)), repeat=quorums.ensemble)
    )
    for seed in range(5):
        if is_possible:
            ensemble = choose_ensemble(candidates, quorums, seed)
            assert len(set(ensemble)) == quorums.ensemble
            assert min(zones_of_write_sets(quorums, ensemble, zones)) >= 2
        else:
            with pytest.raises(NotEnoughZones):
                choose_ensemble(candidates, quorums, seed)


def test_too_few_zones_are_named_with_their_bookies() -> None:
    zones = dict.fromkeys(SIX, "north")
    with pytest.raises(NotEnoughBookies) as caught:
        choose_ensemble(Candidates(SIX, rules=ZoneRules(zones, 2)), THREE, 1)

    assert str(caught.value) == (
        "each entry needs copies in 2 zones: 3 bookies are needed, 2 can be used "
        "(bookies that take adds: 6 in zone north)"
    )


def test_a_bookie_is_not_replaced_by_one_that_leaves_too_few_zones() -> None:
    zones = {"b1": "north", "b2": "north", "b3": "south", "b4": "north", "b5": "south"}
    rules = ZoneRules(zones, 2)
    north_only = Candidates(frozenset({"b1", "b2", "b4"}), rules=rules)
    both = Candidates(frozenset({"b1", "b2", "b4", "b5"}), rules=rules)

    assert replace_bookies(north_only, THREE, ("b1", "b2", "b3"), {2}, 1) == {}
    assert replace_bookies(both, THREE, ("b1", "b2", "b3"), {2}, 1) == {2: "b5"}
    assert replace_bookies(north_only, THREE, ("b1", "b2", "b3"), {0}, 1) == {0: "b4"}
