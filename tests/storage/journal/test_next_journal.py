"""How the next journal is made on real files: in steps beside the adds, or at once by an add."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.commit.queue import new_lock
from storage.disk.posix import PosixDirectory, PosixWriteFile
from storage.entry.position import START, JournalPosition
from storage.errors import DiskFull
from storage.journal.journal_set import FILL_STEP, Journals, JournalShape
from storage.journal.seal import first_group_start
from storage.journal.writer import Group, JournalWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

ALIGNMENT = 4096
SIZE = 2 * FILL_STEP + (512 << 10)
START_OF_GROUPS = first_group_start(ALIGNMENT)


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


class JournalFiles:
    """Journals on real files, and what a test sees of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = new_lock()
        self.announced: list[tuple[int, list[str], list[str]]] = []
        """The id of each announced journal, and the names of all files before and after the announcement."""
        self.before = descriptors()
        shape = JournalShape(ALIGNMENT, SIZE)
        self.journals = Journals(
            PosixDirectory(path), shape, 0, lambda: 7, self.lock, self._announcing, START
        )

    @contextmanager
    def _announcing(self, journal_id: int) -> Iterator[None]:
        assert self.lock.locked(), "one thread at a time makes a journal"
        before = self.names
        yield
        self.announced.append((journal_id, before, self.names))

    @property
    def names(self) -> list[str]:
        return sorted(one.name for one in self.path.iterdir())

    @property
    def open_files(self) -> int:
        return descriptors() - self.before

    def size_of(self, journal_id: int) -> int:
        return (self.path / f"{journal_id:x}.txn").stat().st_size

    def half_full(self) -> JournalWriter:
        """Begin a journal, and write until the next one is wanted."""
        writer = self.journals.roll(4096)
        assert not self.journals.prepare(), "it is not wanted yet"
        while not writer.is_half_full:
            writer.write(Group((bytes(30000),), 1, 30000), START)
            self.journals.sync()
        return writer

    def prepared(self) -> None:
        """Have the next journal prepared."""
        self.half_full()
        while self.journals.prepare():
            pass


@pytest.fixture
def files(tmp_path: Path) -> JournalFiles:
    return JournalFiles(tmp_path)


def test_the_next_journal_is_filled_in_steps_and_then_gets_its_name(files: JournalFiles) -> None:
    files.half_full()
    drafts, draft = [], ""
    while files.journals.prepare():
        (draft,) = [one for one in files.names if one.endswith(".draft")]
        drafts.append((files.path / draft).stat().st_size)
    assert drafts == [START_OF_GROUPS + FILL_STEP, START_OF_GROUPS + 2 * FILL_STEP, SIZE]
    assert files.names == ["1.txn", "2.txn"]
    assert files.announced[1:] == [(2, ["1.txn", draft], ["1.txn", "2.txn"])]
    assert not files.journals.prepare(), "one is enough"
    assert files.names == ["1.txn", "2.txn"]
    assert files.open_files == 2


def test_a_prepared_journal_is_the_next_one_without_another_announcement(files: JournalFiles) -> None:
    files.prepared()
    announced = files.announced[:]
    following = files.journals.roll(4096)
    assert following.journal_id == 2
    assert following.room == SIZE - START_OF_GROUPS
    assert (files.announced, files.open_files) == (announced, 1)
    files.journals.close()
    assert files.open_files == 0


def test_a_draft_that_was_filled_in_part_is_used_by_the_add_that_needs_it(
    files: JournalFiles,
) -> None:
    files.half_full()
    assert files.journals.prepare()
    following = files.journals.roll(4096)
    assert (following.journal_id, files.names) == (2, ["1.txn", "2.txn"])
    assert files.size_of(2) == START_OF_GROUPS + FILL_STEP
    assert files.open_files == 1


def test_a_prepared_journal_with_too_little_room_is_closed_and_counts_no_bytes(files: JournalFiles) -> None:
    files.prepared()
    assert files.journals.roll(SIZE).journal_id == 3
    assert files.names == ["1.txn", "2.txn", "3.txn"]
    assert files.journals.bytes_after(JournalPosition(2, 0)) == files.size_of(3)
    assert files.open_files == 1


def test_a_prepared_journal_with_exactly_the_room_that_is_needed_is_used(files: JournalFiles) -> None:
    files.prepared()
    assert files.journals.roll(SIZE - START_OF_GROUPS).journal_id == 2


def test_each_journal_that_an_add_makes_is_twice_as_large_up_to_a_limit(
    files: JournalFiles,
) -> None:
    sizes = [START_OF_GROUPS + SIZE // 16 * factor for factor in (1, 2, 4, 8, 16)]
    for number in range(1, 7):
        files.journals.roll(4096)
        assert files.size_of(number) == sizes[min(number, 5) - 1]
    assert files.open_files == 1


def test_after_a_full_disk_the_next_journal_is_small_again_and_no_draft_is_left(
    files: JournalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    for _ in range(3):
        files.journals.roll(4096)
    with monkeypatch.context() as patched:
        patched.setattr(PosixWriteFile, "zero_fill", full)
        with pytest.raises(DiskFull):
            files.journals.roll(4096)
    assert files.names == ["1.txn", "2.txn", "3.txn"]
    assert files.open_files == 1
    files.journals.roll(4096)
    assert files.size_of(4 if "4.txn" in files.names else 5) == START_OF_GROUPS + SIZE // 16


@pytest.mark.parametrize("errors", [1, 2])
def test_a_fill_that_fails_once_is_repeated_in_a_new_file(
    files: JournalFiles, monkeypatch: pytest.MonkeyPatch, errors: int
) -> None:
    zero_fill, left = PosixWriteFile.zero_fill, [OSError(errno.EIO, "bad")] * errors

    def fail(file: PosixWriteFile, offset: int, size: int) -> None:
        if left:
            raise left.pop()
        zero_fill(file, offset, size)

    monkeypatch.setattr(PosixWriteFile, "zero_fill", fail)
    if errors == 1:
        assert files.journals.roll(4096).journal_id == 2
        assert files.names == ["2.txn"]
        assert files.open_files == 1
    else:
        with pytest.raises(OSError, match="bad"):
            files.journals.roll(4096)
        assert (files.names, files.open_files) == ([], 0)


def test_at_the_end_of_a_run_the_prepared_journal_goes_after_the_mark(
    files: JournalFiles,
) -> None:
    files.prepared()
    files.journals.discard_next()
    assert files.names == ["1.txn"]
    assert files.announced[-1] == (1, ["1.txn", "2.txn"], ["1.txn", "2.txn"])
    assert files.open_files == 1
    files.journals.discard_next()
    assert len(files.announced) == 3


def test_at_the_end_of_a_run_the_draft_is_removed(files: JournalFiles) -> None:
    files.half_full()
    assert files.journals.prepare()
    files.journals.discard_next()
    assert files.names == ["1.txn"]
    assert len(files.announced) == 1
    assert files.open_files == 1


def test_closing_closes_all_files_and_removes_none(files: JournalFiles) -> None:
    files.half_full()
    assert files.journals.prepare()
    names = files.names
    assert (len(names), files.open_files) == (2, 2)
    files.journals.close()
    assert (files.names, files.open_files) == (names, 0)


@pytest.mark.parametrize("verb", ["write", "sync"])
@pytest.mark.parametrize("nth", [1, 2])
def test_an_opening_whose_disk_fails_closes_the_journal_that_it_has_begun(
    files: JournalFiles, monkeypatch: pytest.MonkeyPatch, verb: str, nth: int
) -> None:
    working, left = getattr(JournalWriter, verb), [None] * nth

    def fail(*arguments: object) -> object:
        left.pop()
        if not left:
            raise OSError(errno.EIO, "bad")
        return working(*arguments)

    monkeypatch.setattr(JournalWriter, verb, fail)
    with files.lock, pytest.raises(OSError, match="bad"):
        files.journals.carry_over(Group((b"x" * 30,), 1, 30))
    # The second write and the second sync are those of the seal, when the journal has its name.
    assert [one.endswith(".draft") for one in files.names] == [nth == 1]
    files.journals.close()
    assert files.open_files == 0
