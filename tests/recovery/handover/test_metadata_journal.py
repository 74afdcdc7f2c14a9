"""The records of a handover are written in groups, those of one ledger in the same group."""

from __future__ import annotations

from itertools import chain

import pytest

from recovery.handover.metadata_journal import in_groups


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([[10]], [1]),
        ([[4], [1]], [2]),
        ([[4], [2]], [1, 1]),
        ([[3, 3], [1]], [2, 1]),
        ([[1], [3, 3], [1], [4]], [1, 2, 2]),
        ([], []),
    ],
)
def test_a_group_is_full_when_the_records_of_the_next_ledger_do_not_fit(
    sizes: list[list[int]], groups: list[int]
) -> None:
    records = [[bytes(size) for size in of_ledger] for of_ledger in sizes]
    found = list(in_groups(records, 5))
    assert [one.record_count for one in found] == groups
    assert [*chain.from_iterable(one.buffers for one in found)] == [*chain.from_iterable(records)]
    assert [one.size for one in found] == [sum(map(len, one.buffers)) for one in found]
