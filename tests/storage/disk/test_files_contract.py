"""The contract of `storage.disk.files`, which the system's files and the simulated disk's both keep."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab import SimulatedDisk
from storage.disk import posix as posix_files
from storage.disk.posix import PosixDirectory
from storage.errors import AlreadyOpen, StoreLocked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.disk.files import Directory


@pytest.fixture(params=["posix", "posix in small pieces", "simulated"])
def directory(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Directory:
    """An empty directory."""
    if request.param == "simulated":
        return SimulatedDisk().root()
    if request.param == "posix in small pieces":
        monkeypatch.setattr(os, "pwritev", _write_few(at_most=5))
        monkeypatch.setattr(os, "pwrite", _write_few_of_one(at_most=5))
        monkeypatch.setattr(os, "pread", _read_few(at_most=3))
        monkeypatch.setattr(os, "preadv", _read_few_into(at_most=3))
    return PosixDirectory(tmp_path)


class _write_few:  # noqa: N801 - stands for a function
    """Write a few bytes at a time, as the system's `pwritev` may."""

    def __init__(self, *, at_most: int) -> None:
        self._at_most = at_most

    def __call__(self, descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        return os.pwrite(descriptor, b"".join(buffers)[: self._at_most], offset)


class _write_few_of_one:  # noqa: N801 - stands for a function
    """Write a few bytes at a time, as the system's `pwrite` may."""

    def __init__(self, *, at_most: int) -> None:
        self._at_most, self._pwrite = at_most, os.pwrite

    def __call__(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        return self._pwrite(descriptor, memoryview(buffer)[: self._at_most], offset)


class _read_few:  # noqa: N801 - stands for a function
    """Return a few bytes at a time, as the system's `pread` may."""

    def __init__(self, *, at_most: int) -> None:
        self._at_most, self._pread = at_most, os.pread

    def __call__(self, descriptor: int, size: int, offset: int) -> bytes:
        return self._pread(descriptor, min(size, self._at_most), offset)


class _read_few_into:  # noqa: N801 - stands for a function
    """Read a few bytes at a time, as the system's `preadv` may."""

    def __init__(self, *, at_most: int) -> None:
        self._at_most, self._preadv = at_most, os.preadv

    def __call__(self, descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        return self._preadv(descriptor, [buffer[: self._at_most] for buffer in buffers], offset)


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


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_tuple_of_buffers_is_written_like_a_list(directory: Directory, count: int) -> None:
    buffers = tuple(b"buffer %d" % number for number in range(count))
    with directory.create("a") as file:
        file.write(3, buffers)

    assert content(directory, "a") == (b"\0\0\0" + b"".join(buffers) if count else b"")


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


@pytest.mark.parametrize(("offset", "size"), [(0, 10), (0, 3), (4, 5), (4, 100), (10, 7), (99, 7), (3, 0)])
def test_a_read_into_a_buffer_gives_the_same_bytes(directory: Directory, offset: int, size: int) -> None:
    put(directory, "a", b"0123456789")
    buffer = bytearray(b"x" * size)
    with directory.open("a") as file:
        expected = file.read(offset, size)
        assert file.read_into(offset, memoryview(buffer)) == len(expected)
    assert buffer == expected.ljust(size, b"x")


def test_nothing_is_read_from_a_closed_file(directory: Directory) -> None:
    put(directory, "a", b"0123456789")
    with directory.open("a") as file:
        pass
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, 3)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_into(0, memoryview(bytearray(3)))


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


def test_a_range_that_the_system_writes_out_early_can_still_be_read(directory: Directory) -> None:
    with directory.create("a") as file:
        file.write(0, [bytes(8192), b"behind"])
        file.start_writeback(0, 8192)
        file.start_writeback(4096, 1 << 20)
        file.write(4096, [b"again"])

    assert content(directory, "a") == bytes(4096) + b"again" + bytes(4091) + b"behind"


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


def test_a_missing_file_is_not_found(directory: Directory) -> None:
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


def test_names_are_sorted_and_include_directories(directory: Directory) -> None:
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
    for fails in (directory.directory("a").names, directory.directory("a").sync):
        with pytest.raises(NotADirectoryError):
            fails()


def test_a_rename_replaces_what_had_the_name(directory: Directory) -> None:
    put(directory, "mark", b"old")
    put(directory, "draft", b"new")
    directory.rename("draft", "mark")

    assert directory.names() == ["mark"]
    assert content(directory, "mark") == b"new"


def test_a_renamed_file_can_still_be_used_through_its_handle(directory: Directory) -> None:
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


def test_a_removed_file_can_still_be_read_through_its_handle(directory: Directory) -> None:
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
        with directory.lock("lock"), pytest.raises(StoreLocked):
            directory.lock("lock")


# ── what only the system's files have ────────────────────────────────────────────────────────────────────


@pytest.fixture
def posix(tmp_path: Path) -> PosixDirectory:
    return PosixDirectory(tmp_path)


def test_a_write_that_the_system_never_takes_is_an_error(
    posix: PosixDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([2, 0])
    monkeypatch.setattr(os, "pwritev", lambda *_: next(answers))
    with posix.create("a") as file, pytest.raises(OSError, match="accepted no byte") as refused:
        file.write(0, [b"four"])
    assert refused.value.errno == errno.EIO
    assert str(refused.value).endswith("/a'")


class Synced:
    """Replaces the system's syncs, and notes which inodes they were asked for."""

    def __init__(self) -> None:
        self.inodes: list[int] = []

    def __call__(self, descriptor: int, *_: object) -> None:
        self.inodes.append(os.fstat(descriptor).st_ino)


def test_a_sync_of_a_file_or_a_directory_calls_the_system(
    posix: PosixDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_data, of_names = Synced(), Synced()
    monkeypatch.setattr(posix_files, "_sync_data", of_data)
    monkeypatch.setattr(os, "fsync", of_names)
    monkeypatch.setattr(posix_files, "_FULL_SYNC", None)
    with posix.create("a") as file:
        file.sync()
    posix.sync()
    assert of_data.inodes == [(tmp_path / "a").stat().st_ino]
    assert of_names.inodes == [tmp_path.stat().st_ino]


def test_the_full_sync_is_used_if_a_sync_leaves_data_in_the_drive(
    posix: PosixDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Synced()
    monkeypatch.setattr(posix_files, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", full)
    monkeypatch.setattr(posix_files, "_sync_data", None)
    monkeypatch.setattr(os, "fsync", None)
    with posix.create("a") as file:
        file.sync()
    posix.sync()
    assert full.inodes == [(tmp_path / "a").stat().st_ino, tmp_path.stat().st_ino]


def test_the_umask_decides_the_permissions_of_a_new_file(posix: PosixDirectory, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        posix.create("a").close()
        posix.lock("lock").close()
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "lock")} == {0o666}


def test_a_lock_names_the_process_that_holds_it(posix: PosixDirectory, tmp_path: Path) -> None:
    with posix.lock("lock"):
        assert int((tmp_path / "lock").read_text()) == os.getpid()
        (tmp_path / "lock").write_bytes(b"nobody")
        with pytest.raises(AlreadyOpen) as busy:
            posix.lock("lock")
        assert busy.value.pid == os.getpid()


class RemovesFirst:
    """Replaces `_take_lock`: the first time, another process removes or replaces the lock's file."""

    def __init__(self, path: Path, *, replaced: bool) -> None:
        self._path, self._replaced = path, replaced
        self._take_lock = posix_files._take_lock  # noqa: SLF001 - it stands for this
        self.calls = 0

    def __call__(self, descriptor: int, path: str) -> None:
        self.calls += 1
        if self.calls == 1:
            self._path.unlink()
            if self._replaced:
                self._path.touch()
        self._take_lock(descriptor, path)


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_lock_whose_file_was_removed_meanwhile_is_taken_again(
    posix: PosixDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    take = RemovesFirst(tmp_path / "lock", replaced=replaced)
    monkeypatch.setattr(posix_files, "_take_lock", take)
    with posix.lock("lock"):
        assert take.calls == 2
        with pytest.raises(StoreLocked):
            posix.lock("lock")


class Open:
    """Notes which descriptors are open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.descriptors: set[int] = set()
        self._open, self._close = os.open, os.close
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(os, "close", self.close)

    def open(self, path: str | Path, flags: int, mode: int = 0o777) -> int:
        descriptor = self._open(path, flags, mode)
        self.descriptors.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self.descriptors.remove(descriptor)
        self._close(descriptor)


def test_whatever_happens_no_descriptor_stays_open(
    posix: PosixDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Open(monkeypatch)
    with posix.create("a") as file:
        file.write(0, [b"x"])
    with posix.open("a") as again:
        again.read(0, 1)
    posix.sync()
    monkeypatch.setattr(posix_files, "_take_lock", RemovesFirst(tmp_path / "lock", replaced=False))
    with posix.lock("lock"):
        with pytest.raises(StoreLocked):
            posix.lock("lock")
        assert len(opened.descriptors) == 1
    monkeypatch.setattr(posix_files, "_sync", lambda *_: (tmp_path / "nothing").stat())
    with pytest.raises(FileNotFoundError):
        posix.sync()
    assert opened.descriptors == set()


def test_any_descriptor_is_closed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(os, "close", closed.append)
    for descriptor in (0, 7):
        file = posix_files.PosixReadFile(descriptor, "a")
        file.close()
        file.close()

    assert closed == [0, 7]


def test_an_error_of_advice_to_the_system_is_ignored(
    posix: PosixDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ESPIPE, "no advice")

    monkeypatch.setattr(os, "posix_fadvise", refuse, raising=False)
    with posix.create("a") as file:
        file.write(0, [b"one"])
        file.start_writeback(0, 3)
    assert content(posix, "a") == b"one"


def test_any_open_descriptor_can_be_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(posix_files, "_sync_data", synced.append)
    for descriptor in (0, 7):
        posix_files.PosixWriteFile(descriptor, "a").sync()

    assert synced == [0, 7]


def test_a_lock_is_taken_even_if_the_disk_is_full(
    posix: PosixDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        lock = posix.lock("lock")
    with pytest.raises(AlreadyOpen):
        posix.lock("lock")
    lock.close()


def test_a_lock_that_another_thread_takes_or_releases_meanwhile_is_this_process_s(
    posix: PosixDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(descriptor: int, operation: int) -> None:
        change()
        raise BlockingIOError

    for is_released in (False, True):
        path = tmp_path / f"lock {is_released}"
        path.touch()
        taken = [posix_files.PosixLock(os.open(path, os.O_RDONLY), "")] if is_released else []

        def change(path: Path = path, taken: list[posix_files.PosixLock] = taken) -> None:
            """Release the lock, or take it."""
            if taken:
                taken.pop().close()
            else:
                taken.append(posix_files.PosixLock(os.open(path, os.O_RDONLY), ""))

        with monkeypatch.context() as patched:
            patched.setattr(fcntl, "flock", busy)
            with pytest.raises(AlreadyOpen):
                posix.lock(path.name)
        for one in taken:
            one.close()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "0.log")
    before = set(os.listdir("/dev/fd"))  # noqa: PTH208 - names are wanted, not paths
    with pytest.raises(OSError, match="not a regular file") as caught:
        PosixDirectory(tmp_path).open("0.log")
    assert caught.value.filename == str(tmp_path / "0.log")
    assert set(os.listdir("/dev/fd")) == before  # noqa: PTH208 - names are wanted, not paths


def test_a_lock_that_is_taken_already_leaves_no_descriptor_open(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    with posix_files.lock_at(directory, "lock"):
        before = len([*Path("/proc/self/fd").iterdir()])
        with pytest.raises(StoreLocked):
            posix_files.lock_at(directory, "lock")
        assert len([*Path("/proc/self/fd").iterdir()]) == before
    os.close(directory)
