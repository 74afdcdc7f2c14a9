"""Ids of entry logs, as a bookie would give them too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import log_ids
from storage.position import LOG_ID_MAX

LARGEST = LOG_ID_MAX - 1


def test_the_first_log_of_a_store_is_0() -> None:
    assert log_ids.next_log_id([], None) == 0


def test_e34_without_a_note_of_the_last_one_ids_go_on_behind_the_highest() -> None:
    assert log_ids.next_log_id([0, 1, 7], None) == 8
    assert log_ids.next_log_id([LARGEST - 1], None) == LARGEST


def test_e35_a_note_older_than_the_logs_changes_nothing() -> None:
    assert log_ids.next_log_id([9], 3) == 10
    assert log_ids.next_log_id([3, 9], 3) == 10


def test_e36_a_stray_log_in_the_way_is_passed_over() -> None:
    assert log_ids.next_log_id([0, 1], 0) == 2
    assert log_ids.next_log_id([5, 0, 6, 1], 0) == 7
    assert log_ids.next_log_id([LARGEST, 0, 1, 3], LARGEST) == 4


def test_the_logs_behind_the_last_one_are_passed_over_too() -> None:
    assert log_ids.next_log_id([0, 800_000_000, 800_000_001, 1_500_000_000], 799_999_999) == 800_000_002


def test_e38_behind_the_last_possible_id_comes_0() -> None:
    assert log_ids.next_log_id([LARGEST], None) == 0
    assert log_ids.next_log_id([LARGEST], LARGEST) == 0
    assert log_ids.next_log_id([], LARGEST) == 0


def test_e38_after_a_wrap_ids_go_on_behind_the_small_ones() -> None:
    assert log_ids.next_log_id([LARGEST - 1, LARGEST, 0, 1], None) == 2
    assert log_ids.next_log_id([LARGEST - 1, LARGEST, 0, 1], 1) == 2


def test_e38_a_log_being_compacted_reserves_no_id_and_a_compacted_one_does() -> None:
    names = ["0.log", "a.log", "1f.log.compacting", "1e.log.draft", "14.log.9.compacted", "30.txn", "lastId"]
    assert log_ids.taken_by(names) == {0, 10, 20}


def test_an_id_whose_log_is_gone_is_not_used_again() -> None:
    assert log_ids.next_log_id([50], 100) == 101
    assert log_ids.next_log_id([], 7) == 8
    assert log_ids.next_log_id([LARGEST], 1) == 2


@pytest.mark.parametrize("last", [None, LOG_ID_MAX])
def test_an_id_that_we_would_not_give_is_no_obstacle(last: int | None) -> None:
    assert log_ids.next_log_id([LOG_ID_MAX], last) == 0


IDS = st.one_of(st.integers(0, 20), st.integers(LARGEST - 20, LOG_ID_MAX), st.integers(0, LOG_ID_MAX))


@given(st.lists(IDS), st.none() | IDS)
def test_a_new_id_is_free_and_one_that_a_name_can_carry(taken: list[int], last: int | None) -> None:
    log_id = log_ids.next_log_id(taken, last)
    assert log_id not in taken
    assert 0 <= log_id <= LARGEST


@given(st.integers(0, LARGEST), st.integers(1, 30))
def test_logs_made_one_after_the_other_have_one_id_after_the_other(first: int, count: int) -> None:
    taken, last = [first], first
    for number in range(1, count):
        last = log_ids.next_log_id(taken, last)
        assert last == (first + number) % LOG_ID_MAX
        taken.append(last)
