"""Which group of the ledgers' metadata was durable, as mark, index and journals tell."""

from __future__ import annotations

import pytest
from journal_builder import OurJournal, entry_record
from simulated_directories import SimulatedDirectories

from recovery.directory.evidence import durable_group
from storage.checkpoint.mark import NoMark
from storage.checkpoint.mark_format import Mark, Trailer
from storage.entry.position import START
from storage.index.state import IndexState
from storage.journal.seal import metadata_tag


def mark_of(rows_sequence: int) -> Mark:
    return Mark(START, Trailer(3, 0, None, rows_sequence))


def state_of(rows_sequence: int) -> IndexState:
    return IndexState(generation=3, rows_sequence=rows_sequence)


cases = pytest.mark.parametrize(
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


@cases
def test_the_newest_group_that_mark_or_index_names_was_durable(
    found: Mark | NoMark, state: IndexState | None, known: int
) -> None:
    assert durable_group(SimulatedDirectories().layout, found, state) == known


@cases
def test_a_journal_after_the_mark_names_a_later_group_unless_nothing_of_ours_names_the_mark(
    found: Mark | NoMark, state: IndexState | None, known: int
) -> None:
    site = SimulatedDirectories()
    made = OurJournal(1)
    made.group(entry_record(1, 0), metadata_tag=metadata_tag(9))
    site.put_journal(1, bytes(made.file()))
    assert durable_group(site.layout, found, state) == (9 if known else 0)
