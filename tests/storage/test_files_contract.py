"""What both adapters of `storage.files` do alike: the system's files, and the simulated disk's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab import SimulatedDisk
from storage.errors import StoreLocked
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from storage.files import Directory


@pytest.fixture(params=["posix", "posix with short writes", "simulated"])
def directory(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Directory:
    """An empty directory."""
    if request.param == "simulated":
        return SimulatedDisk().root()
    if request.param == "posix with short writes":
        monkeypatch.setattr(os, "pwritev", _write_few(at_most=5))
    return PosixDirectory(tmp_path)


class _write_few:  # noqa: N801 - stands for a function
    """A `pwritev` that takes a few bytes at a time, as the system may."""

    def __init__(self, *, at_most: int) -> None:
        self._at_most = at_most

    def __call__(self, descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        return os.pwrite(descriptor, b"".join(buffers)[: self._at_most], offset)


def put(directory: Directory, name: str, content: bytes) -> None:
    with directory.create(name) as file:
        file.write(0, [content])


def content(directory: Directory, name: str) -> bytes:
    with directory.open(name) as file:
        return file.read(0, file.size())


def test_buffers_follow_one_another(directory: Directory) -> None:
    with directory.create("a") as file:
        file.write(0, [b"one ", bytearray(b"two "), b"", memoryview(b"three, longer than any short write")])

    assert content(directory, "a") == b"one two three, longer than any short write"


def test_more_buffers_than_the_system_takes_at_once(directory: Directory) -> None:
    with directory.create("a") as file:
        file.write(0, (b"%04d" % number for number in range(2500)))

    assert content(directory, "a") == b"".join(b"%04d" % number for number in range(2500))


def test_a_write_overwrites_and_grows(directory: Directory) -> None:
    with directory.create("a") as file:
        file.write(0, [b"0123456789"])
        file.write(8, [b"abcd"])

    assert content(directory, "a") == b"01234567abcd"


def test_a_write_beyond_the_end_leaves_zeros_before_it(directory: Directory) -> None:
    with directory.create("a") as file:
        file.write(5000, [b"x"])

    assert content(directory, "a") == bytes(5000) + b"x"


@pytest.mark.parametrize("buffers", [[], [b""], [b"", b""]])
def test_nothing_written_changes_nothing(directory: Directory, buffers: list[bytes]) -> None:
    with directory.create("a") as file:
        file.write(100, buffers)
        file.zero_fill(100, 0)

    assert content(directory, "a") == b""


def test_zeros_replace_what_was_there(directory: Directory) -> None:
    with directory.create("a") as file:
        file.write(0, [b"0123456789"])
        file.zero_fill(2, 3)
        file.zero_fill(9, 700)

    assert content(directory, "a") == b"01\0\0\x005678" + bytes(700)


def test_a_file_syncs(directory: Directory) -> None:
    with directory.create("a") as file:
        file.write(0, [b"x"])
        file.sync()
        file.sync()
    directory.sync()

    assert content(directory, "a") == b"x"


@pytest.mark.parametrize(
    ("offset", "size", "expected"),
    [
        (0, 4, b"0123"),
        (3, 4, b"3456"),
        (8, 4, b"89"),
        (10, 4, b""),
        (99, 4, b""),
        (0, 0, b""),
        (2, 99, b"23456789"),
    ],
)
def test_a_read_ends_where_the_file_ends(
    directory: Directory, offset: int, size: int, expected: bytes
) -> None:
    put(directory, "a", b"0123456789")

    with directory.open("a") as file:
        assert file.read(offset, size) == expected


def test_a_reader_sees_what_the_writer_adds(directory: Directory) -> None:
    with directory.create("a") as writer, directory.open("a") as reader:
        assert reader.size() == 0
        writer.write(0, [b"later"])
        assert reader.size() == 5
        assert reader.read(0, 9) == b"later"


def test_a_file_is_named_by_its_path(directory: Directory) -> None:
    with directory.create("a") as file:
        assert file.name.endswith("/a")
        assert file.name.startswith(directory.path)
    with directory.open("a") as reader:
        assert reader.name == file.name


def test_a_taken_name_cannot_be_created(directory: Directory) -> None:
    put(directory, "a", b"first")
    directory.directory("inner").make()

    with pytest.raises(FileExistsError):
        directory.create("a")
    with pytest.raises(FileExistsError):
        directory.create("inner")
    assert content(directory, "a") == b"first"


def test_what_is_not_there_is_not_found(directory: Directory) -> None:
    nowhere = directory.directory("nowhere")
    for fails in (
        lambda: directory.open("a"),
        lambda: directory.rename("a", "b"),
        lambda: directory.remove("a"),
        nowhere.names,
        lambda: nowhere.create("a"),
        nowhere.sync,
        lambda: nowhere.lock("lock"),
        lambda: nowhere.directory("deeper").make(),
    ):
        with pytest.raises(FileNotFoundError):
            fails()


def test_names_are_sorted_and_those_of_directories_are_among_them(directory: Directory) -> None:
    for name in ("b", "a", "C"):
        put(directory, name, b"")
    directory.directory("aa").make()

    assert directory.names() == ["C", "a", "aa", "b"]


def test_a_directory_is_made_once_and_keeps_what_is_in_it(directory: Directory) -> None:
    inner = directory.directory("inner")
    inner.make()
    put(inner, "a", b"x")
    inner.make()
    directory.make()

    assert inner.names() == ["a"]
    assert directory.directory("inner").names() == ["a"]
    assert inner.path == f"{directory.path.rstrip('/')}/inner"


def test_a_directory_cannot_be_made_where_a_file_is(directory: Directory) -> None:
    put(directory, "a", b"x")

    with pytest.raises(FileExistsError):
        directory.directory("a").make()
    with pytest.raises(NotADirectoryError):
        directory.directory("a").names()


def test_a_rename_replaces_what_had_the_name(directory: Directory) -> None:
    put(directory, "mark", b"old")
    put(directory, "draft", b"new")
    directory.rename("draft", "mark")

    assert directory.names() == ["mark"]
    assert content(directory, "mark") == b"new"


def test_a_renamed_file_goes_on_on_its_handle(directory: Directory) -> None:
    with directory.create("draft") as file:
        directory.rename("draft", "log")
        file.write(0, [b"x"])
        file.sync()

    assert content(directory, "log") == b"x"


def test_a_file_renamed_to_itself_stays(directory: Directory) -> None:
    put(directory, "a", b"x")
    directory.rename("a", "a")

    assert content(directory, "a") == b"x"


def test_directories_and_files_do_not_replace_each_other(directory: Directory) -> None:
    put(directory, "file", b"x")
    directory.directory("inner").make()

    with pytest.raises(IsADirectoryError):
        directory.rename("file", "inner")
    with pytest.raises(NotADirectoryError):
        directory.rename("inner", "file")
    with pytest.raises(IsADirectoryError):
        directory.remove("inner")


def test_a_renamed_directory_keeps_what_is_in_it(directory: Directory) -> None:
    draft = directory.directory("draft")
    draft.make()
    put(draft, "a", b"x")
    directory.rename("draft", "final")

    assert content(directory.directory("final"), "a") == b"x"
    with pytest.raises(FileNotFoundError):
        draft.names()


def test_a_directory_that_holds_something_is_not_replaced(directory: Directory) -> None:
    for name in ("one", "other"):
        directory.directory(name).make()
    put(directory.directory("other"), "a", b"x")

    with pytest.raises(OSError, match="other"):
        directory.rename("one", "other")
    directory.rename("other", "one")
    assert directory.names() == ["one"]


def test_a_removed_file_goes_on_for_those_who_have_it_open(directory: Directory) -> None:
    with directory.create("a") as writer, directory.open("a") as reader:
        directory.remove("a")
        writer.write(0, [b"x"])
        assert directory.names() == []
        assert reader.read(0, 9) == b"x"


def test_a_closed_file_does_nothing_more(directory: Directory) -> None:
    put(directory, "a", b"x")
    writer, reader = directory.create("b"), directory.open("a")
    for file in (writer, reader):
        file.close()
        file.close()

    for fails in (lambda: writer.write(0, [b"x"]), writer.sync, reader.size, lambda: reader.read(0, 1)):
        with pytest.raises(OSError, match="file descriptor"):
            fails()


def test_a_lock_excludes_the_second_until_it_is_closed(directory: Directory) -> None:
    with directory.lock("lock"):
        assert directory.names() == ["lock"]
        with pytest.raises(StoreLocked) as busy:
            directory.lock("lock")
        assert busy.value.path.endswith("/lock")
        directory.lock("another").close()
    with directory.lock("lock") as lock:
        lock.close()


def test_a_lock_is_on_the_file_and_not_on_its_name(directory: Directory) -> None:
    with directory.lock("lock"):
        directory.remove("lock")
        with directory.lock("lock"):
            pass
