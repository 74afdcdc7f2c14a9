"""Which bookies have an entry, and what some of their answers prove."""

from __future__ import annotations

from itertools import combinations

import pytest

from storage.cluster.client.distribution import Quorums

ALL = [
    Quorums(ensemble, write, ack)
    for ensemble in range(1, 7)
    for write in range(1, ensemble + 1)
    for ack in range(1, write + 1)
]


def test_entries_are_striped_over_consecutive_bookies() -> None:
    quorums = Quorums(4, 3, 2)

    assert [quorums.write_set(entry_id) for entry_id in range(5)] == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 0),
        (3, 0, 1),
        (0, 1, 2),
    ]


def test_large_entry_ids_are_striped_like_small_ones() -> None:
    quorums = Quorums(5, 3, 2)

    assert quorums.write_set((1 << 40) + 3) == quorums.write_set(((1 << 40) + 3) % 5)


@pytest.mark.parametrize("sizes", [(2, 3, 1), (3, 2, 3), (3, 3, 0), (0, 0, 0)])
def test_sizes_that_cannot_work_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        Quorums(*sizes)


def subsets(count: int) -> list[frozenset[int]]:
    return [frozenset(one) for size in range(count + 1) for one in combinations(range(count), size)]


def test_t6_both_definitions_of_coverage_agree() -> None:
    # The other definition of QuorumCoverage.tla: every set of bookies that can acknowledge an entry has
    # answered at least once.
    for quorums in ALL:
        ack_quorums = [
            ack_quorum
            for entry_id in range(quorums.ensemble)
            for ack_quorum in combinations(quorums.write_set(entry_id), quorums.ack)
        ]
        for answered in subsets(quorums.ensemble):
            every_quorum_is_hit = all(answered.intersection(one) for one in ack_quorums)
            assert quorums.is_covered(answered) == every_quorum_is_hit, (quorums, answered)


def test_44_coverage_of_the_usual_sizes() -> None:
    assert Quorums(3, 3, 2).is_covered({0, 1})
    assert not Quorums(3, 3, 2).is_covered({2})
    assert not Quorums(3, 2, 1).is_covered({0, 1})
    assert Quorums(5, 3, 2).is_covered({0, 1, 3, 4})
    assert not Quorums(5, 3, 2).is_covered({0, 1, 2})


def test_43_so_many_negative_answers_that_too_few_bookies_are_left_prove_that_an_entry_is_missing() -> None:
    for quorums in ALL:
        assert quorums.write - quorums.missing < quorums.ack
        assert quorums.write - (quorums.missing - 1) >= quorums.ack
