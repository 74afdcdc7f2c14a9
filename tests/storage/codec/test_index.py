"""The index's keys and values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage.codec import index as codec
from storage.outcome import Damaged
from storage.position import EntryLocation

IDS = st.integers(0, 2**63 - 1)
LOCATIONS = st.builds(EntryLocation, st.integers(0, 2**31 - 1), st.integers(1028, 2**32 - 1))
VALUES = st.tuples(IDS, LOCATIONS)


@given(IDS, VALUES)
def test_keys_and_values_read_back(ledger_id: int, value: tuple[int, EntryLocation]) -> None:
    assert codec.decode_key(codec.encode_key(ledger_id)) == ledger_id
    assert codec.decode_value(codec.encode_value(*value)) == value
    assert (len(codec.encode_key(ledger_id)), len(codec.encode_value(*value))) == (8, 16)


@given(VALUES, VALUES)
def test_values_sort_as_their_entries_do(
    one: tuple[int, EntryLocation], other: tuple[int, EntryLocation]
) -> None:
    assert (codec.encode_value(*one) < codec.encode_value(*other)) == (one < other)


@given(IDS, IDS)
def test_keys_sort_as_their_ledgers_do(one: int, other: int) -> None:
    assert (codec.encode_key(one) < codec.encode_key(other)) == (one < other)


@given(VALUES)
def test_a_floor_is_not_above_any_value_of_its_entry(value: tuple[int, EntryLocation]) -> None:
    entry_id, _ = value
    assert codec.encode_floor(entry_id) < codec.encode_value(*value)
    if entry_id:
        assert codec.encode_floor(entry_id) > codec.encode_value(
            entry_id - 1, EntryLocation(2**31 - 1, 2**32 - 1)
        )


def test_keys_and_values_nobody_wrote() -> None:
    assert isinstance(codec.decode_key(b""), Damaged)
    assert isinstance(codec.decode_key(b"\xff" * 8), Damaged)
    assert isinstance(codec.decode_value(b"\0" * 15), Damaged)
    assert isinstance(codec.decode_value(b"\xff" * 8 + b"\0" * 7 + b"\1"), Damaged)
    assert isinstance(codec.decode_value(b"\0" * 16), Damaged)


@given(st.lists(VALUES, max_size=5))
def test_many_values_are_those_of_each(values: list[tuple[int, EntryLocation]]) -> None:
    packed = [(entry_id, location.pack()) for entry_id, location in values]
    encoded = list(codec.encode_values([one for one, _ in packed], [place for _, place in packed]))
    assert encoded == [codec.encode_value(*value) for value in values]
    assert list(map(codec.split_value, encoded)) == packed


@given(st.lists(IDS, max_size=5))
def test_keys_of_ours_read_back(ledger_ids: list[int]) -> None:
    assert codec.split_keys(map(codec.encode_key, ledger_ids)) == ledger_ids
