"""The ids of entry logs, which a bookie would give too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.entry.position import LOG_ID_MAX
from storage.entrylog import log_set

LARGEST = LOG_ID_MAX - 1


def test_the_first_log_of_a_store_is_0() -> None:
    assert log_set.next_log_id([], None) == 0


@pytest.mark.parametrize("last_log", [0, 5, LARGEST])
def test_logs_of_up_to_half_the_ids_are_in_their_order_also_where_ids_have_wrapped(last_log: int) -> None:
    circle = LOG_ID_MAX + 1
    written = [(last_log + one * circle // 100) % circle for one in (-49, -35, -1, 0, 1, 35, 49)]
    assert sorted(written, key=log_set.age_of(last_log)) == written


def test_e34_without_a_note_of_the_last_log_ids_go_on_after_the_highest() -> None:
    assert log_set.next_log_id([0, 1, 7], None) == 8
    assert log_set.next_log_id([LARGEST - 1], None) == LARGEST


def test_e35_a_note_older_than_the_logs_changes_nothing() -> None:
    assert log_set.next_log_id([9], 3) == 10
    assert log_set.next_log_id([3, 9], 3) == 10


def test_e36_the_id_of_a_stray_log_is_skipped() -> None:
    assert log_set.next_log_id([0, 1], 0) == 2
    assert log_set.next_log_id([5, 0, 6, 1], 0) == 7
    assert log_set.next_log_id([LARGEST, 0, 1, 3], LARGEST) == 4


def test_the_ids_of_logs_after_the_last_one_are_skipped_too() -> None:
    assert log_set.next_log_id([0, 800_000_000, 800_000_001, 1_500_000_000], 799_999_999) == 800_000_002


def test_an_id_in_a_gap_between_existing_logs_is_not_used() -> None:
    third = LOG_ID_MAX // 3
    in_the_way = [0, 1, 2, 4]
    assert log_set.next_log_id([*in_the_way, third, 2 * third - 5], LARGEST) == 3


def test_the_largest_number_in_a_name_counts_as_the_last_id() -> None:
    assert log_set.next_log_id([LOG_ID_MAX], None) == 0
    assert log_set.next_log_id([], LOG_ID_MAX) == 0


def test_e38_after_the_last_possible_id_comes_0() -> None:
    assert log_set.next_log_id([LARGEST], None) == 0
    assert log_set.next_log_id([LARGEST], LARGEST) == 0
    assert log_set.next_log_id([], LARGEST) == 0


def test_e38_after_a_wrap_ids_go_on_after_the_small_ones() -> None:
    assert log_set.next_log_id([LARGEST - 1, LARGEST, 0, 1], None) == 2
    assert log_set.next_log_id([LARGEST - 1, LARGEST, 0, 1], 1) == 2


def test_e38_a_log_being_compacted_reserves_no_id_and_a_compacted_one_does() -> None:
    names = ["0.log", "a.log", "1f.log.compacting", "1e.log.draft", "14.log.9.compacted", "30.txn", "lastId"]
    assert log_set.taken_by(names) == {0, 10, 20}


def test_an_id_whose_log_is_gone_is_not_used_again() -> None:
    assert log_set.next_log_id([50], 100) == 101
    assert log_set.next_log_id([], 7) == 8
    assert log_set.next_log_id([LARGEST], 1) == 2


@pytest.mark.parametrize("last", [None, LOG_ID_MAX])
def test_an_id_out_of_our_range_is_no_obstacle(last: int | None) -> None:
    assert log_set.next_log_id([LOG_ID_MAX], last) == 0


IDS = st.one_of(st.integers(0, 20), st.integers(LARGEST - 20, LOG_ID_MAX), st.integers(0, LOG_ID_MAX))


@given(st.lists(IDS), st.none() | IDS)
def test_a_new_id_is_free_and_fits_into_a_name(taken: list[int], last: int | None) -> None:
    log_id = log_set.next_log_id(taken, last)
    assert log_id not in taken
    assert 0 <= log_id <= LARGEST


@given(st.integers(0, LARGEST), st.integers(1, 30))
def test_consecutive_logs_have_consecutive_ids(first: int, count: int) -> None:
    taken, last = [first], first
    for number in range(1, count):
        last = log_set.next_log_id(taken, last)
        assert last == (first + number) % LOG_ID_MAX
        taken.append(last)
