"""Which locations readers see of ledgers that were deleted or truncated."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import combinations
from typing import TYPE_CHECKING, cast

import pytest
from store_internals import HeldLock, LockIsHeld

from storage.entry.position import JournalPosition
from storage.index.visible import VisibleIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.index.port import IndexReader

AT = JournalPosition(3, 4096)

CHANGES: dict[str, Callable[[VisibleIndex], None]] = {
    "hide": lambda visible: visible.hide(1, AT),
    "hide only": lambda visible: visible.hide_only({1: AT}),
    "unhide": lambda visible: visible.unhide({1: AT}),
    "truncate": lambda visible: visible.truncate(1, 5),
    "truncate only": lambda visible: visible.truncate_only({1: 5}),
}


class IndexOfTen:
    """An index in which each ledger has entries 0 to 9."""

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        return 100 * ledger_id + entry_id if entry_id < 10 else None


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_hidden_ledgers_change_only_under_the_lock(change: Callable[[VisibleIndex], None]) -> None:
    visible = VisibleIndex(cast("IndexReader", IndexOfTen()), HeldLock)
    with pytest.raises(LockIsHeld):
        change(visible)
    assert visible.find(1, 0) == 100


class IndexOf:
    """An index in which each ledger has these entries."""

    def __init__(self, *entry_ids: int) -> None:
        self._ids = entry_ids

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        return 100 * ledger_id + entry_id if entry_id in self._ids else None

    def locations(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        return [(one, 100 * ledger_id + one) for one in self._ids if one >= first][:count]

    def last(self, ledger_id: int) -> tuple[int, int] | None:
        return (self._ids[-1], 100 * ledger_id + self._ids[-1]) if self._ids else None

    def count(self, _: int) -> int:
        return len(self._ids)

    def ledgers(self) -> Iterator[int]:
        return iter((1, 2))


def visible_of(*entry_ids: int) -> VisibleIndex:
    return VisibleIndex(cast("IndexReader", IndexOf(*entry_ids)), nullcontext)


SUBSETS = [ids for count in range(5) for ids in combinations(range(4), count)]


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("ids", SUBSETS, ids=str)
@pytest.mark.parametrize("first", range(6))
def test_of_a_truncated_ledger_the_entries_from_the_first_one_on_are_left(
    ids: tuple[int, ...], first: int
) -> None:
    visible = visible_of(*ids)
    visible.truncate(1, first)
    left = [one for one in ids if one >= first]
    assert [one for one in range(6) if visible.find(1, one) is not None] == left
    assert [one for one, _ in visible.locations(1, 0, 10)] == left
    assert visible.count(1) == len(left)
    last = visible.last(1)
    assert (None if last is None else last[0]) == (left[-1] if left else None)
    assert (visible.count(2), visible.find(2, 0)) == (len(ids), 200 if 0 in ids else None)


def test_a_long_ledger_with_gaps_is_counted_from_its_first_entry_on() -> None:
    ids = [one for one in range(20_000) if one % 3]
    visible = visible_of(*ids)
    visible.truncate(1, 100)
    assert visible.count(1) == len([one for one in ids if one >= 100])


def test_an_opening_truncates_these_ledgers_and_no_others() -> None:
    visible = visible_of(0, 1, 2)
    visible.truncate(1, 3)
    visible.truncate_only({2: 1})
    assert (visible.count(1), visible.count(2)) == (3, 2)


def test_a_deleted_ledger_has_no_entry_until_its_locations_are_removed() -> None:
    visible = visible_of(0, 1)
    visible.hide(1, AT)
    assert (visible.find(1, 0), visible.locations(1, 0, 9), visible.last(1), visible.count(1)) == (
        None,
        [],
        None,
        0,
    )
    assert [*visible.ledgers()] == [2]
    visible.unhide({1: AT})
    assert visible.count(1) == 2
    assert [*visible.ledgers()] == [1, 2]


def test_a_ledger_that_was_deleted_again_stays_hidden() -> None:
    visible = visible_of(0)
    again = JournalPosition(4, 0)
    visible.hide(1, AT)
    visible.hide(1, again)
    visible.unhide({1: AT})
    assert visible.find(1, 0) is None
    assert (visible.is_hidden_by(1, AT), visible.is_hidden_by(1, again)) == (False, True)


def test_an_opening_hides_these_ledgers_and_no_others() -> None:
    visible = visible_of(0)
    visible.hide(1, AT)
    visible.hide_only({2: AT})
    assert [*visible.ledgers()] == [1]


def test_a_ledger_that_is_made_again_after_a_delete_was_not_truncated() -> None:
    visible = visible_of(0, 1)
    visible.truncate(1, 2)
    visible.hide(1, AT)
    visible.unhide({1: AT})
    assert visible.count(1) == 2


class WatchedId(int):
    """A ledger id that calls a function whenever it is looked up in a mapping."""

    look: Callable[[], None]

    def __hash__(self) -> int:
        self.look()
        return super().__hash__()


def test_a_reader_beside_a_delete_never_sees_what_was_truncated_before() -> None:
    visible, seen = visible_of(0, 1), []
    visible.truncate(1, 2)
    deleted = WatchedId(1)
    deleted.look = lambda: seen.append(visible.find(1, 0))
    visible.hide(deleted, AT)
    assert len(seen) > 1
    assert set(seen) == {None}
