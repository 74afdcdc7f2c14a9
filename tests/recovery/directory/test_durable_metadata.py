"""The journals tell which group of the metadata log was durable."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from journal_builder import OurJournal, entry_record
from memory_files import CountingFile

from recovery.directory.durable_metadata import durable_sequence
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.entry.position import START, JournalPosition
from storage.journal.seal import metadata_sequence, metadata_tag

if TYPE_CHECKING:
    from pathlib import Path


def journal(journal_id: int, *sequences: int, alignment: int = 4096) -> OurJournal:
    """A journal with a group for each number of the metadata log's last durable group."""
    made = OurJournal(journal_id, alignment=alignment)
    for number, sequence in enumerate(sequences):
        made.group(entry_record(1, number), metadata_tag=metadata_tag(sequence))
    return made


def directory(path: Path, *journals: OurJournal) -> PosixDirectory:
    for one in journals:
        (path / filenames.journal(one.journal_id)).write_bytes(one.file())
    return PosixDirectory(path)


@pytest.mark.parametrize("alignment", [512, 4096])
def test_the_newest_group_after_the_mark_names_the_durable_group(tmp_path: Path, alignment: int) -> None:
    journals = directory(
        tmp_path, journal(1, 3, 4, alignment=alignment), journal(2, 5, 9, alignment=alignment)
    )
    assert durable_sequence(journals, START, 3) == 9


def test_a_journal_without_a_group_says_nothing(tmp_path: Path) -> None:
    journals = directory(tmp_path, journal(1, 3, 4), journal(2), journal(3, alignment=512))
    assert durable_sequence(journals, START, 3) == 4


def test_what_is_before_the_mark_is_not_asked(tmp_path: Path) -> None:
    first, second = journal(1, 3, 7), journal(2)
    journals = directory(tmp_path, first, second)
    assert durable_sequence(journals, JournalPosition(1, first.end), 5) == 5
    assert durable_sequence(journals, JournalPosition(1, first.ends[0]), 5) == 7


def test_little_is_read_of_a_journal_that_ends_at_the_mark() -> None:
    made = OurJournal(1, size=1 << 20).group(entry_record(1, 0), metadata_tag=metadata_tag(4))
    file = CountingFile(made.file())
    journals = SimpleNamespace(names=lambda: [filenames.journal(1)], open=lambda _: file)
    assert durable_sequence(cast("Any", journals), JournalPosition(1, made.end), 4) == 4
    assert 0 < file.count <= 8192


def test_a_store_without_a_metadata_log_needs_no_witness(tmp_path: Path) -> None:
    assert durable_sequence(directory(tmp_path, journal(1, 0, 0)), START, 0) == 0


@pytest.mark.parametrize("groups", [1, 2, 3, 5, 12])
def test_the_last_group_is_found_in_a_journal_of_many_chunks(tmp_path: Path, groups: int) -> None:
    made = OurJournal(1, size=4 << 20)
    for number in range(groups):
        made.group(entry_record(1, number, b"x" * 300_000), metadata_tag=metadata_tag(number + 1))
    assert durable_sequence(directory(tmp_path, made), START, 0) == groups


def test_a_damaged_last_group_leaves_the_group_before_it(tmp_path: Path) -> None:
    made = journal(1, 3, 4)
    made.data[made.ends[0] + 50] ^= 1
    assert durable_sequence(directory(tmp_path, made), START, 0) == 3


@pytest.mark.parametrize("known", [1, 65_534, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("ahead", [0, 1, 2, 30_000])
def test_a_tag_names_a_group_at_or_after_the_known_one(known: int, ahead: int) -> None:
    assert metadata_sequence(metadata_tag(known + ahead), known) == known + ahead


@pytest.mark.parametrize("known", [2, 65_535, 65_537, 200_000])
@pytest.mark.parametrize("before", [1, 20_000])
def test_a_tag_of_an_earlier_group_tells_nothing(known: int, before: int) -> None:
    assert metadata_sequence(metadata_tag(max(1, known - before)), known) == known


def test_a_seal_without_a_tag_tells_nothing() -> None:
    assert metadata_tag(0) == 0
    assert metadata_sequence(0, 41) == 41
