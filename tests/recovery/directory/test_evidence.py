"""Which group of the ledgers' metadata was durable, as mark, index and journals tell."""

from __future__ import annotations

import pytest
from simulated_directories import SimulatedDirectories

from recovery.directory.evidence import durable_group
from storage.checkpoint.mark import NoMark
from storage.checkpoint.mark_format import Mark, Trailer
from storage.entry.position import START
from storage.index.state import IndexState


def mark_of(rows_sequence: int) -> Mark:
    return Mark(START, Trailer(3, 0, None, rows_sequence))


def state_of(rows_sequence: int) -> IndexState:
    return IndexState(generation=3, rows_sequence=rows_sequence)


@pytest.mark.parametrize(
    ("found", "state", "known"),
    [
        (NoMark(), None, 0),
        (Mark(START, None), None, 0),
        (mark_of(5), None, 5),
        (NoMark(), state_of(4), 4),
        (mark_of(5), state_of(4), 5),
        (mark_of(4), state_of(5), 5),
    ],
)
def test_the_newest_group_that_mark_or_index_names_was_durable(
    found: Mark | NoMark, state: IndexState | None, known: int
) -> None:
    assert durable_group(SimulatedDirectories().layout, found, state) == known
