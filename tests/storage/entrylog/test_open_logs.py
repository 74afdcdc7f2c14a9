"""The bounded cache of open entry logs: which stay open, which are closed, and when."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from memory_files import MemoryFile

from recovery.opening import assembly, open_store
from storage import ReadMode, StoreConfig
from storage.commit.queue import new_lock
from storage.disk import filenames
from storage.disk.mapped import open_mapped
from storage.disk.posix import open_file
from storage.entrylog.open_logs import OpenEntryLogs

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.disk.files import ReadFile

SIZE = 64


class Watched(MemoryFile):
    """A file that knows whether it is closed, and calls a function in the middle of a read."""

    def __init__(self, name: str) -> None:
        super().__init__(name.encode().ljust(SIZE), name)
        self.is_closed = False
        self.meanwhile: Callable[[], None] = lambda: None

    def read(self, offset: int, size: int) -> bytes:
        self.meanwhile()
        assert not self.is_closed, f"{self.name} is read after it was closed"
        return super().read(offset, size)

    def close(self) -> None:
        self.is_closed = True


class Logs:
    """All files that the cache has opened, in this order."""

    def __init__(self, open_max: int) -> None:
        self.opened: list[Watched] = []
        self.before_open: Callable[[], None] = lambda: None
        self.cache = OpenEntryLogs(self._open, new_lock(), open_max)

    def _open(self, name: str) -> Watched:
        file = Watched(name)
        self.opened.append(file)
        self.before_open()
        return file

    @property
    def open_names(self) -> list[str]:
        return [file.name for file in self.opened if not file.is_closed]

    def read(self, log_id: int) -> bytes:
        return self.cache.read(log_id << 32 | 4, SIZE).rstrip()


def test_no_more_logs_than_the_bound_stay_open() -> None:
    logs = Logs(3)
    for log_id in range(10):
        assert logs.read(log_id) == b"%x.log" % log_id
        assert len(logs.open_names) <= 3
    assert len(logs.opened) == 10


def test_a_log_that_is_read_again_stays_open_and_another_one_goes() -> None:
    logs = Logs(3)
    for log_id in (0, 1, 2, 3, 1, 4, 1, 5, 1, 6, 1):
        logs.read(log_id)
    assert [file.name for file in logs.opened].count("1.log") == 1
    assert len(logs.open_names) == 3


def test_a_log_that_is_evicted_during_a_read_is_closed_after_it() -> None:
    logs = Logs(1)
    logs.read(0)
    (first,) = logs.opened

    def read_others() -> None:
        logs.read(1)
        logs.read(2)

    first.meanwhile = read_others
    assert logs.read(0) == b"0.log"
    assert first.is_closed
    assert logs.open_names == ["2.log"]


def test_a_log_that_is_dropped_during_a_read_is_closed_after_it() -> None:
    logs = Logs(9)
    logs.read(0)
    (first,) = logs.opened
    seen: list[bool] = []

    def drop() -> None:
        logs.cache.drop(0)
        seen.append(first.is_closed)

    first.meanwhile = drop
    assert logs.read(0) == b"0.log"
    assert seen == [False]
    assert first.is_closed
    assert logs.cache.find(0) is None


def test_a_log_that_is_dropped_while_it_is_opened_does_not_stay_open() -> None:
    logs = Logs(9)
    logs.before_open = lambda: logs.cache.drop(0)
    assert logs.read(0) == b"0.log"
    assert logs.open_names == []


def test_a_log_that_was_never_open_can_be_dropped() -> None:
    logs = Logs(9)
    logs.cache.drop(7)
    assert logs.read(7) == b"7.log"


def test_two_threads_that_open_a_log_at_once_share_one_file() -> None:
    logs = Logs(9)

    def open_it_too() -> None:
        logs.before_open = lambda: None
        logs.read(0)

    logs.before_open = open_it_too
    assert logs.read(0) == b"0.log"
    assert len(logs.opened) == 2
    assert logs.open_names == ["0.log"]


def test_a_closed_cache_opens_no_log_and_keeps_none_open() -> None:
    logs = Logs(9)
    logs.read(0)
    logs.cache.close()
    assert logs.open_names == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        logs.read(0)
    assert logs.open_names == []


def descriptors(directory: Path) -> int:
    """Return how many descriptors of this process are of entry logs in that directory."""
    count = 0
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing itself
            file = one.readlink()
            count += file.parent == directory and file.suffix == ".log"
    return count


class Reader(threading.Thread):
    """Reads logs in every way that readers do, and keeps the errors."""

    def __init__(self, cache: OpenEntryLogs, count: int, seed: int) -> None:
        super().__init__()
        self._shelf, self._count, self._dice = cache, count, Random(seed)
        self.wrong: list[object] = []

    def run(self) -> None:
        try:
            for _ in range(400):
                log_id = self._dice.randrange(self._count)
                if self._read(log_id) != content(log_id):
                    self.wrong.append(log_id)
        except BaseException as error:  # set by the test
            self.wrong.append(error)

    def _read(self, log_id: int) -> bytes:
        place, way = log_id << 32 | 4, self._dice.randrange(3)
        if way == 0 and (log := self._shelf.find(log_id)) is not None:
            return log.read(0, 4096)
        if way == 1:
            buffer = memoryview(bytearray(4096))
            return bytes(buffer[: self._shelf.read_into(place, buffer)])
        return self._shelf.read(place, 4096)


def content(log_id: int) -> bytes:
    return b"%8d" % log_id * 512


@pytest.mark.parametrize(("open_log", "each"), [(open_file, 1), (open_mapped, 2)])
def test_threads_read_on_while_logs_are_evicted_and_dropped(
    tmp_path: Path, open_log: Callable[[Path], ReadFile], each: int
) -> None:
    count, bound = 24, 5
    for log_id in range(count):
        (tmp_path / filenames.entry_log(log_id)).write_bytes(content(log_id))
    cache = OpenEntryLogs(lambda name: open_log(tmp_path / name), new_lock(), bound)
    readers = [Reader(cache, count, seed) for seed in range(4)]
    for reader in readers:
        reader.start()
    dice = Random(9)
    while any(reader.is_alive() for reader in readers):
        cache.drop(dice.randrange(count))
    for reader in readers:
        reader.join()
    assert [reader.wrong for reader in readers] == [[], [], [], []]
    assert descriptors(tmp_path) <= bound * each
    cache.close()
    assert descriptors(tmp_path) == 0


@pytest.mark.parametrize(("mode", "each"), [(ReadMode.PREAD, 1), (ReadMode.MMAP, 2)])
def test_a_store_with_more_logs_than_the_bound_reads_all_of_them(
    mode: ReadMode, each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "OpenEntryLogs", partial(OpenEntryLogs, open_max=4))
    config = StoreConfig(
        entry_log_size_max=70 << 10, entry_size_max=64 << 10, checkpoint_interval_s=None, read_mode=mode
    )
    path, texts = tmp_path / "data", [bytes([number]) * 60_000 for number in range(10)]
    logs = path / "ledgers" / "current"
    with open_store.open_store(path, config) as store:
        for text in texts:
            store.ledger(1).append(text)
            store.checkpoint()
        assert len(list(logs.glob("*.log"))) > 8
        for _ in range(2):
            assert [store.ledger(1).read(number).payload for number in range(10)] == texts
            assert list(store.ledger(1).payloads()) == texts
        assert descriptors(logs) <= 1 + 4 * each  # one more for the log that checkpoints write to
    assert descriptors(logs) == 0
