"""A journal before it has a name: a header and zeros, in whatever steps it is filled."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from recovery.crashlab import SimulatedDisk
from storage.commit.queue import new_lock
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.entry.position import START, JournalPosition
from storage.journal.format import JournalHeader
from storage.journal.journal_set import Journals, JournalShape
from storage.journal.reader import JournalReader
from storage.journal.writer import NOTHING, Group, JournalDraft

ALIGNMENT = 512


@pytest.mark.parametrize("steps", [(8192,), (8192, 4096), (4096, 4096, 12288)])
def test_the_header_says_how_far_the_journal_was_filled_in_all_steps(steps: tuple[int, ...]) -> None:
    directory = SimulatedDisk().root()
    draft = JournalDraft(directory, 1, 0x5A17, ALIGNMENT)
    start = draft.filled_until
    for size in steps:
        draft.fill(size)
    draft.publish()
    draft.abandon()

    with directory.open(filenames.journal(1)) as file:
        reader = JournalReader(file, 1)
        assert isinstance(reader.header, JournalHeader)
        assert reader.header.filled_until == start + sum(steps) == file.size()
        assert not reader.has_lost_its_end


def test_a_journal_that_has_lost_its_last_step_is_told_from_a_whole_one() -> None:
    directory = SimulatedDisk().root()
    draft = JournalDraft(directory, 1, 0x5A17, ALIGNMENT)
    draft.fill(8192)
    filled = draft.filled_until
    draft.fill(8192)
    draft.publish()
    draft.abandon()
    with directory.open(filenames.journal(1)) as file:
        left = file.read(0, filled)

    directory.remove(filenames.journal(1))
    with directory.create(filenames.journal(1)) as file:
        file.write(0, [left])

    with directory.open(filenames.journal(1)) as file:
        assert JournalReader(file, 1).has_lost_its_end


def test_a_journal_has_room_for_a_group_and_its_keys_or_for_neither() -> None:
    directory = SimulatedDisk().root()
    draft = JournalDraft(directory, 1, 0x5A17, ALIGNMENT)
    draft.fill(8 * ALIGNMENT)
    writer = draft.writer()
    group = Group((bytes(4 * ALIGNMENT),), 1, 4 * ALIGNMENT)

    assert writer.has_room(group)
    assert writer.has_room(group, ALIGNMENT)
    assert not writer.has_room(group, 4 * ALIGNMENT)
    assert not writer.has_room(group, 8 * ALIGNMENT)


def test_a_journal_is_half_full_when_more_than_half_of_the_file_is_written() -> None:
    directory = SimulatedDisk().root()
    draft = JournalDraft(directory, 1, 0x5A17, ALIGNMENT)
    draft.fill(7 * ALIGNMENT)
    writer = draft.writer()
    position = JournalPosition(1, 0)

    ends = []
    while not writer.is_half_full:
        ends.append(writer.end)
        writer.write(Group((b"x",), 1, 1), position)
        position = writer.sync()

    assert ends[-1] <= draft.filled_until // 2 < writer.end


class Nameless(PosixDirectory):
    """A directory whose names cannot be made durable."""

    def sync(self) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)


def test_a_journal_whose_name_cannot_be_made_durable_is_closed_with_the_others(tmp_path: Path) -> None:
    shape = JournalShape(4096, 64 << 10)
    journals = Journals(Nameless(tmp_path), shape, 0, lambda: 1, new_lock(), lambda _: nullcontext(), START)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(OSError, match="Input/output error"):
        journals.roll(4096)
    journals.close()
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_journal_that_may_have_its_name_is_filled_no_more(tmp_path: Path) -> None:
    """Neither by a leader that waited for the lock nor by the worker that prepares the next journal."""
    directory, shape = PosixDirectory(tmp_path), JournalShape(4096, 64 << 10)
    journals = Journals(directory, shape, 0, lambda: 1, new_lock(), lambda _: nullcontext(), START)
    writer = journals.roll(8192)
    while not writer.is_half_full:
        writer.write(NOTHING, START)
        writer.sync()
    nameless = Journals(Nameless(tmp_path), shape, 1, lambda: 1, new_lock(), lambda _: nullcontext(), START)
    nameless.active = writer
    with pytest.raises(OSError, match="Input/output error"):
        nameless.roll(4096)
    size = (tmp_path / "2.txn").stat().st_size
    with pytest.raises(OSError, match="names of journals are unknown"):
        nameless.roll(16384)
    assert not nameless.prepare()
    assert (tmp_path / "2.txn").stat().st_size == size
    nameless.close()
