"""The index's keys and values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage.entry.position import EntryLocation
from storage.entry.read_result import Damaged
from storage.index import format as index_format

IDS = st.integers(0, 2**63 - 1)
LOCATIONS = st.builds(EntryLocation, st.integers(0, 2**31 - 1), st.integers(1028, 2**32 - 1))
VALUES = st.tuples(IDS, LOCATIONS)


@given(IDS, VALUES)
def test_keys_and_values_read_back(ledger_id: int, value: tuple[int, EntryLocation]) -> None:
    assert index_format.decode_key(index_format.encode_key(ledger_id)) == ledger_id
    assert index_format.decode_value(index_format.encode_value(*value)) == value
    assert (len(index_format.encode_key(ledger_id)), len(index_format.encode_value(*value))) == (8, 16)


@given(VALUES, VALUES)
def test_values_sort_as_their_entries_do(
    one: tuple[int, EntryLocation], other: tuple[int, EntryLocation]
) -> None:
    assert (index_format.encode_value(*one) < index_format.encode_value(*other)) == (one < other)


@given(IDS, IDS)
def test_keys_sort_as_their_ledgers_do(one: int, other: int) -> None:
    assert (index_format.encode_key(one) < index_format.encode_key(other)) == (one < other)


@given(VALUES)
def test_the_floor_of_an_entry_is_not_above_any_of_its_values(value: tuple[int, EntryLocation]) -> None:
    entry_id, _ = value
    assert index_format.encode_floor(entry_id) < index_format.encode_value(*value)
    if entry_id:
        assert index_format.encode_floor(entry_id) > index_format.encode_value(
            entry_id - 1, EntryLocation(2**31 - 1, 2**32 - 1)
        )


def test_invalid_keys_and_values() -> None:
    assert isinstance(index_format.decode_key(b""), Damaged)
    assert isinstance(index_format.decode_key(b"\xff" * 8), Damaged)
    assert isinstance(index_format.decode_value(b"\0" * 15), Damaged)
    assert isinstance(index_format.decode_value(b"\xff" * 8 + b"\0" * 7 + b"\1"), Damaged)
    assert isinstance(index_format.decode_value(b"\0" * 16), Damaged)


@given(st.lists(VALUES, max_size=5))
def test_many_values_are_encoded_like_single_ones(values: list[tuple[int, EntryLocation]]) -> None:
    packed = [(entry_id, location.pack()) for entry_id, location in values]
    encoded = list(index_format.encode_values([one for one, _ in packed], [place for _, place in packed]))
    assert encoded == [index_format.encode_value(*value) for value in values]
    assert list(map(index_format.split_value, encoded)) == packed


@given(st.lists(IDS, max_size=5))
def test_keys_of_ours_read_back(ledger_ids: list[int]) -> None:
    assert index_format.split_keys(map(index_format.encode_key, ledger_ids)) == ledger_ids
