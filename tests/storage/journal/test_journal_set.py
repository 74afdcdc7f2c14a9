"""The figures of the journals, and which of their bytes count as bytes after a mark."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab import SimulatedDisk
from storage.disk import filenames
from storage.entry.position import START, JournalPosition
from storage.journal.journal_set import Journals, JournalShape
from storage.journal.seal import metadata_tag

if TYPE_CHECKING:
    from storage.disk.files import Directory

SIZE = 100
CONTENT = 10


@pytest.fixture
def directory() -> Directory:
    return SimulatedDisk().root()


@pytest.fixture
def journals(directory: Directory) -> Journals:
    shape = JournalShape(4096, 64 << 10)
    return Journals(directory, shape, 0, lambda: 7, nullcontext(), lambda _: nullcontext(), START)


def fill(directory: Directory, *journal_ids: int) -> None:
    for journal_id in journal_ids:
        with directory.create(filenames.journal(journal_id)) as file:
            file.write(0, [bytes(SIZE)])


def test_before_the_first_group_nothing_is_written(journals: Journals) -> None:
    assert (journals.bytes_written, journals.groups, journals.seals) == (0, 0, 0)
    assert journals.active is None
    assert journals.bytes_after(START) == 0


def test_the_header_of_the_active_journal_is_written_and_counted(journals: Journals) -> None:
    first = journals.roll(4096)
    assert journals.active is first
    assert journals.bytes_written == first.end

    second = journals.roll(4096)
    assert second.journal_id == first.journal_id + 1
    assert journals.bytes_written == first.end + second.end


def test_bytes_after_a_mark_are_the_content_of_known_journals_and_the_files_of_others(
    directory: Directory, journals: Journals
) -> None:
    fill(directory, 1, 2, 3)
    journals.note_ends({2: CONTENT, 3: CONTENT})
    assert journals.bytes_after(START) == SIZE + 2 * CONTENT
    assert journals.bytes_after(JournalPosition(2, 4)) == 2 * CONTENT - 4
    assert journals.bytes_after(JournalPosition(3, CONTENT)) == 0
    # The mark may be after the last content that was noted.
    assert journals.bytes_after(JournalPosition(3, CONTENT + 1)) == 0


def test_the_durable_end_is_the_end_of_its_journal(directory: Directory, journals: Journals) -> None:
    fill(directory, 1, 2)
    journals.note_ends({1: CONTENT})
    journals.note_durable(JournalPosition(2, 30))
    assert journals.bytes_after(START) == CONTENT + 30

    journals.note_durable(JournalPosition(1, 99))
    assert journals.durable_up_to == JournalPosition(2, 30)


def test_the_ends_of_the_last_64_journals_are_remembered(directory: Directory, journals: Journals) -> None:
    fill(directory, *range(1, 67))
    journals.note_ends(dict.fromkeys(range(1, 65), CONTENT))
    assert journals.bytes_after(START) == 2 * SIZE + 64 * CONTENT

    journals.note_ends({65: CONTENT, 66: CONTENT})
    # The ends of the first two are forgotten, so that their whole files count.
    assert journals.bytes_after(START) == 2 * SIZE + 64 * CONTENT
    assert journals.bytes_after(JournalPosition(3, 0)) == 64 * CONTENT


def test_the_sizes_are_those_of_the_files(directory: Directory, journals: Journals) -> None:
    fill(directory, 3, 5)
    assert journals.sizes() == {3: SIZE, 5: SIZE}


def test_the_seals_of_the_active_journal_and_of_later_ones_name_the_newest_metadata(
    journals: Journals,
) -> None:
    first = journals.roll(4096)
    journals.state_metadata_sequence(5)
    assert first.metadata_tag == metadata_tag(5)
    assert journals.roll(4096).metadata_tag == metadata_tag(5)
