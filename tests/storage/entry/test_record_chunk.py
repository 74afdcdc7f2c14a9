"""Chunks of what a checkpoint writes: all records in their order, in any buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.entry import record_chunk
from storage.entry.record_chunk import COUNT_MAX, SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.entry.record_chunk import RecordChunk

SIZES = st.lists(
    st.one_of(
        st.integers(0, 40), st.sampled_from([1000, SIZE_MAX // 3, SIZE_MAX - 50, SIZE_MAX, 2 * SIZE_MAX])
    ),
    max_size=12,
)


def payloads_of(sizes: Sequence[int]) -> list[bytes]:
    return [bytes([number % 251]) * size for number, size in enumerate(sizes)]


def assert_right(chunks: Sequence[RecordChunk], ids: Sequence[int], records: Sequence[bytes]) -> None:
    assert [one for some in chunks for one in some.ids] == list(ids)
    assert [one for some in chunks for one in some.records()] == list(records)
    for some in chunks:
        assert some.ledger_id == 7
        assert some.size == sum(some.sizes) == sum(map(len, some.buffers))
        assert len(some.sizes) == len(some.ids) == 1 or (some.size <= SIZE_MAX and len(some.ids) <= COUNT_MAX)


@given(SIZES, st.integers(36, 60))
def test_records_in_two_parts_come_whole_and_in_their_order(sizes: list[int], front_size: int) -> None:
    payloads = payloads_of(sizes)
    fronts = bytearray(b"".join(bytes([number % 251 + 1]) * front_size for number in range(len(sizes))))
    records = [
        bytes(fronts[at * front_size : (at + 1) * front_size]) + payload
        for at, payload in enumerate(payloads)
    ]
    chunks = list(record_chunk.of_parts(7, 5, fronts, front_size, payloads))
    assert_right(chunks, range(5, 5 + len(sizes)), records)


@given(SIZES)
def test_whole_records_come_in_chunks_too(sizes: list[int]) -> None:
    records = payloads_of([size + 36 for size in sizes])
    ids = [3 * number for number in range(len(sizes))]
    assert_right(list(record_chunk.of_records(7, ids, records)), ids, records)


@pytest.mark.parametrize("count", [COUNT_MAX - 1, COUNT_MAX, COUNT_MAX + 1, 3 * COUNT_MAX])
def test_many_small_records_make_chunks_of_at_most_the_limit(count: int) -> None:
    records = payloads_of([36] * count)
    fronts = bytearray(b"".join(records))
    expected = [COUNT_MAX] * (count // COUNT_MAX) + [count % COUNT_MAX] * (count % COUNT_MAX > 0)
    in_parts = list(record_chunk.of_parts(7, 0, fronts, 36, [b""] * count))
    by_themselves = list(record_chunk.of_records(7, range(count), records))
    for chunks in (in_parts, by_themselves):
        assert [len(one.ids) for one in chunks] == expected
        assert_right(chunks, range(count), records)


def test_a_chunk_is_as_large_as_the_limit_allows() -> None:
    sizes = [SIZE_MAX // 4] * 9
    assert [len(one.ids) for one in record_chunk.of_records(7, range(9), payloads_of(sizes))] == [4, 4, 1]
    assert record_chunk.fitting_count([SIZE_MAX, 1]) == record_chunk.fitting_count([SIZE_MAX + 1]) == 1


def test_no_records_make_no_chunk() -> None:
    assert list(record_chunk.of_records(7, [], [])) == []
    assert list(record_chunk.of_parts(7, 0, bytearray(), 44, [])) == []
