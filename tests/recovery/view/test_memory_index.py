"""An index in memory finds locations that were put in any order."""

from __future__ import annotations

import pytest

from recovery.view.memory_index import MemoryIndex, MemoryIndexDirectory
from storage.index.port import NoIndex
from storage.index.state import IndexState
from storage.ledgers.metadata import plain


def made(*runs: tuple[int, list[int], list[int]]) -> MemoryIndex:
    index = MemoryIndexDirectory().draft()
    for run in runs:
        with index.change() as change:
            change.put(*run)
            change.commit(None)
    return index


@pytest.mark.parametrize(
    "runs",
    [
        [(7, [1, 2], [10, 20]), (7, [5, 9], [50, 90])],
        [(7, [5, 9], [50, 90]), (7, [1, 2], [10, 20])],
        [(7, [1, 5], [11, 51]), (7, [1, 2, 5, 9], [10, 20, 50, 90])],
        [(7, [2, 5], [20, 50]), (8, [], []), (7, [1, 9], [10, 90])],
    ],
    ids=["behind", "before", "anew", "around"],
)
def test_locations_are_in_the_order_of_their_entries(runs: list[tuple[int, list[int], list[int]]]) -> None:
    index = made(*runs)
    assert index.locations(7, 0, 100) == [(1, 10), (2, 20), (5, 50), (9, 90)]
    assert index.locations(7, 2, 2) == [(2, 20), (5, 50)]
    assert (index.find(7, 5), index.find(7, 4), index.find(7, 10), index.find(8, 0)) == (50, None, None, None)
    assert (index.last(7), index.count(7), index.last(8), index.count(8)) == ((9, 90), 4, None, 0)
    assert list(index.ledgers()) == [7]


def test_a_change_removes_ledgers_before_it_puts_entries() -> None:
    index = made((7, [1, 2], [10, 20]), (3, [1], [30]))
    with index.change() as change:
        change.put(7, [2], [21])
        change.remove([7, 3, 99])
        change.commit(None)
    assert (index.locations(7, 0, 9), list(index.ledgers())) == ([(2, 21)], [7])


def test_a_change_is_visible_when_it_is_committed() -> None:
    index = made()
    with index.change() as change:
        change.put(7, [1], [10])
        change.put_rows([plain(9), plain(7)])
        assert (list(index.ledgers()), list(index.rows()), index.state()) == ([], [], IndexState())
        change.commit(IndexState(generation=5))
    assert [row.ledger_id for row in index.rows()] == [7, 9]
    assert index.publish().state().generation == 5


def test_a_memory_index_directory_opens_the_old_index_and_makes_another() -> None:
    there = made((7, [1], [10]))
    place = MemoryIndexDirectory(lambda: there)
    assert place.open() is there
    assert place.draft().find(7, 1) is None
    assert isinstance(MemoryIndexDirectory().open(), NoIndex)
