"""Files read through memory: the same bytes as by system calls, whatever may happen to the files."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from store_internals import StoreInternals

from recovery import open_store
from storage.config import ReadMode, StoreConfig
from storage.disk import mapped as mapped_file
from storage.disk.mapped import MappedFile, open_mapped
from storage.disk.posix import PosixReadFile, open_file
from storage.entry.model import DigestType
from storage.errors import EntryUnreadable, StoreClosed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 50_000
MAPPED = StoreConfig(read_mode=ReadMode.MMAP, checkpoint_interval_s=None, idle_seal_s=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_bytes(Random(1).randbytes(SIZE))
    return path


@pytest.fixture
def files(path: Path) -> Iterator[tuple[MappedFile, PosixReadFile]]:
    with open_mapped(path) as mapped, open_file(path) as read:
        yield mapped, read


def same(files: tuple[MappedFile, PosixReadFile], offset: int, size: int) -> bool:
    mapped, read = files
    expected = read.read(offset, size)
    buffer = bytearray(size)
    count = mapped.read_into(offset, memoryview(buffer))
    return mapped.read(offset, size) == expected == bytes(buffer[:count])


PLACES = [(0, 9), (0, SIZE), (5, 4096), (SIZE - 3, 3), (SIZE - 3, 4), (SIZE, 5), (SIZE + 9, 5), (7, 0)]


@pytest.mark.parametrize(("offset", "size"), PLACES)
def test_a_mapped_file_reads_the_same_bytes_as_the_system(
    files: tuple[MappedFile, PosixReadFile], offset: int, size: int
) -> None:
    assert same(files, offset, size)
    assert files[0].size() == SIZE
    assert type(files[0].read(offset, size)) is bytes


@pytest.mark.parametrize("growth", [1, 1000, SIZE // 8, SIZE // 8 + 1, 3 * SIZE])
def test_bytes_that_were_added_are_read_too(
    files: tuple[MappedFile, PosixReadFile], path: Path, growth: int
) -> None:
    assert same(files, 0, SIZE)
    for _ in range(3):
        with path.open("ab") as file:
            file.write(Random(2).randbytes(growth))
        size = files[0].size()
        for offset in (0, SIZE - 10, size - 20, size - 1, size):
            for length in (1, 20, size):
                assert same(files, offset, length)
        assert size - len(files[0]._map) <= len(files[0]._map) // 8 + 1


def test_bytes_that_were_overwritten_are_seen(files: tuple[MappedFile, PosixReadFile], path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"changed")
    assert files[0].read(100, 7) == b"changed"


def test_a_removed_file_can_still_be_read(files: tuple[MappedFile, PosixReadFile], path: Path) -> None:
    path.unlink()
    assert same(files, 0, SIZE)


@pytest.mark.parametrize("offset", [0, SIZE - 1, SIZE + 5])
def test_a_closed_mapped_file_raises_the_usual_error(path: Path, offset: int) -> None:
    file = open_mapped(path)
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(offset, 5)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_into(offset, memoryview(bytearray(5)))


def test_a_mapped_file_closed_during_a_copy_lets_the_copy_finish(path: Path) -> None:
    file = open_mapped(path)
    with memoryview(file._map) as copying:
        file.close()
        assert len(copying) == SIZE


def test_an_empty_file_is_not_mapped(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty"):
        open_mapped(tmp_path / "empty")


# ── a store that reads so ────────────────────────────────────────────────────────────────────────────────


def text(number: int) -> bytes:
    return (b"%d " % number).ljust(100 + number % 50, b".")


@pytest.mark.parametrize("kind", DigestType)
def test_a_store_reads_its_entries_through_memory(kind: DigestType, tmp_path: Path) -> None:
    with open_store(tmp_path / "data", MAPPED) as store:
        ledger = store.ledger(1, kind, b"pw")
        for turn in range(4):  # the log in use grows while it is read
            ledger.append_many([text(turn * 300 + number) for number in range(300)])
            store.checkpoint()
            count = 300 * (turn + 1)
            for _ in range(2):
                assert [ledger.read(one).payload for one in range(count)] == [
                    text(one) for one in range(count)
                ]
                assert list(ledger.payloads()) == [text(one) for one in range(count)]
        assert type(StoreInternals(store).open_log(0)) is MappedFile
    with open_store(tmp_path / "data", replace(MAPPED, read_mode=ReadMode.PREAD)) as store:
        ledger = store.ledger(1, password=b"pw")
        assert list(ledger.payloads()) == [text(one) for one in range(1200)]
        assert type(StoreInternals(store).open_log(0)) is PosixReadFile


def test_rot_is_reported_through_memory_too(tmp_path: Path) -> None:
    with open_store(tmp_path / "data", MAPPED) as store:
        store.ledger(1).append_many([text(number) for number in range(100)])
    (log,) = (tmp_path / "data").rglob("0.log")
    data = bytearray(log.read_bytes())
    data[data.index(text(50)) + 30] ^= 1
    log.write_bytes(data)
    with open_store(tmp_path / "data", MAPPED) as store:
        ledger = store.ledger(1)
        for _ in range(3):
            assert ledger.read(49).payload == text(49)
            with pytest.raises(EntryUnreadable):
                ledger.read(50)
            with pytest.raises(EntryUnreadable):
                list(ledger.payloads())


def test_readers_of_a_closed_store_get_the_error_that_it_is_closed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "data", MAPPED)
    ledger = store.ledger(1)
    ledger.append_many([text(number) for number in range(2000)])
    store.checkpoint()
    begun = threading.Barrier(4)

    def read(seed: int) -> None:
        dice = Random(seed)
        begun.wait(60)
        while True:
            number = dice.randrange(2000)
            assert ledger.read(number).payload == text(number)
            assert next(ledger.payloads(number, number + 30 if number < 1900 else number)) == text(number)

    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(read, seed) for seed in range(3)]
        begun.wait(60)
        for number in range(300):
            ledger.read(number)
        store.close()
        for one in done:
            with pytest.raises(StoreClosed):
                one.result(60)


def test_a_file_is_mapped_again_only_after_a_large_growth() -> None:
    assert mapped_file._GROWTH_PARTS == 8
