"""The choice of bookies."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from storage.cluster.client.distribution import Quorums
from storage.cluster.client.placement import Candidates, choose_ensemble, replace_bookies
from storage.cluster.errors import NotEnoughBookies

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
    candidates = Candidates(frozenset({"b1", "b2"}), zones={"b1": "north", "b2": "south"})

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
        ensemble = choose_ensemble(Candidates(SIX, zones=zones), Quorums(4, 2, 2), seed)
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
        assert replace_bookies(Candidates(SIX, zones=zones), THREE, ("b1", "b2", "b3"), {0}, seed) == {
            0: "b6"
        }
