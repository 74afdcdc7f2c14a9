"""Which entries a bookie has of a segment, and which segments have a fixed end."""

from __future__ import annotations

import pytest
from repair_world import ledger

from recovery.autorecovery.check import positions
from recovery.autorecovery.fragments import Fragment, FragmentKey, fixed_fragments, fixed_segments, lost_of
from storage.cluster.client.distribution import Quorums


@pytest.mark.parametrize("ensemble", range(1, 6))
@pytest.mark.parametrize("write", range(1, 6))
def test_a_fragment_has_the_entries_whose_write_set_has_its_index(ensemble: int, write: int) -> None:
    if write > ensemble:
        return
    quorums = Quorums(ensemble, write, 1)
    bookies = tuple(f"b{index}" for index in range(ensemble))
    for first in range(7):
        for stop in range(first, first + 12):
            for index in range(ensemble):
                fragment = Fragment(FragmentKey(first, index), bookies, stop, quorums)
                expected = [one for one in range(first, stop) if index in quorums.write_set(one)]
                assert list(fragment.entries()) == expected
                assert fragment.count == len(expected)


def test_the_segments_of_a_closed_ledger_are_all_fixed() -> None:
    closed = ledger(2, 2, [(0, "12"), (5, "12")], 6)
    assert [(one.first_entry, stop) for one, stop in fixed_segments(closed)] == [(0, 5), (5, 7)]


def test_the_last_segment_of_an_open_ledger_is_not_fixed_also_with_an_equal_list_of_bookies() -> None:
    growing = ledger(2, 2, [(0, "12"), (5, "12")], None)
    assert [(one.first_entry, stop) for one, stop in fixed_segments(growing)] == [(0, 5)]
    assert {one.key.segment for one in fixed_fragments(growing)} == {0}


def test_the_lost_bookies_of_a_ledger_are_those_of_all_segments() -> None:
    metadata = ledger(2, 2, [(0, "12"), (5, "34")], None)
    assert lost_of(metadata, frozenset({"b1", "b4"})) == ["b2", "b3"]


def test_a_sample_has_the_ends_and_one_entry_of_each_part() -> None:
    assert list(positions(1000, 0, 1)) == [0, 999]
    assert list(positions(1, 0, 1)) == [0]
    assert list(positions(0, 50, 1)) == []
    assert list(positions(5, 100, 1)) == [0, 1, 2, 3, 4]
    sample = list(positions(1000, 2, 1))
    assert {one * 20 // 1000 for one in sample} == set(range(20))
    assert sample != list(positions(1000, 2, 2))
