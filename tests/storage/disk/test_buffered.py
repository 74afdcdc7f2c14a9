"""The window through which files are read."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from memory_files import CountingFile, MemoryFile

from storage.disk.buffered import KEPT_BEFORE, Window
from storage.disk.posix import open_file

if TYPE_CHECKING:
    from pathlib import Path

MEMORY_MAX = 64 << 20


LETTERS = bytes(range(97, 123)) * 40


def test_a_window_returns_the_bytes_of_any_range() -> None:
    for look in (Window.view, Window.peek):
        window = Window(MemoryFile(LETTERS), chunk_size=100)
        for offset in (0, 1, 500, 99, 100, 0, 1039, 1040, 5000):
            for size in (1, 10, 250, 0, 5000):
                assert bytes(look(window, offset, size)) == LETTERS[offset : offset + size], (offset, size)


def test_buffered_bytes_are_not_read_again_and_none_after_the_end() -> None:
    file = CountingFile(LETTERS)
    window = Window(file)
    for look in (window.view, window.view, window.peek):
        assert bytes(look(0, len(LETTERS))) == LETTERS
        assert bytes(look(0, 1)) == LETTERS[:1]
        assert bytes(look(len(LETTERS), 1)) == bytes(look(1 << 30, 1)) == b""
    assert file.count == len(LETTERS)


def test_nothing_is_read_ahead_from_the_end_on(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(LETTERS)
    with open_file(path) as file:
        window = Window(file)
        for offset in (len(LETTERS), len(LETTERS) + 1, 1 << 30):
            assert bytes(window.ahead(offset)) == b""


def test_bytes_shortly_before_are_kept_and_earlier_ones_are_read() -> None:
    data = random.Random(8).randbytes(300_000)
    file = CountingFile(data)
    for look in (Window.view, Window.peek):
        window = Window(file, chunk_size=1000)
        assert bytes(window.view(200_000, 10)) == data[200_000:200_010]
        count = file.count
        first = 200_000 - KEPT_BEFORE
        assert bytes(look(window, first, 10)) == data[first : first + 10]
        assert file.count == count
        assert bytes(look(window, first - 1, 10)) == data[first - 1 : first + 9]


def test_the_rest_is_read_only_if_nothing_is_buffered() -> None:
    file = CountingFile(LETTERS)
    window = Window(file, chunk_size=100)
    assert bytes(window.rest(0)) == LETTERS[:100]
    assert bytes(window.rest(99)) == LETTERS[99:100]
    assert file.count == 100
    assert bytes(window.rest(100)) == LETTERS[100:200]
    assert bytes(window.rest(1039)) == LETTERS[1039:]
    assert bytes(window.rest(1040)) == b""


def test_the_rest_is_at_most_a_chunk() -> None:
    window = Window(MemoryFile(LETTERS), chunk_size=100)
    window.view(0, 1000)
    assert bytes(window.rest(300)) == LETTERS[300:400]


def test_the_rest_before_the_buffer_is_read() -> None:
    data = random.Random(8).randbytes(300_000)
    window = Window(MemoryFile(data), chunk_size=1000)
    window.view(200_000, 10)
    assert bytes(window.rest(100)) == data[100:1100]


def test_reading_ahead_gives_a_whole_chunk_and_reads_nothing_before_it() -> None:
    file = CountingFile(LETTERS)
    window = Window(file, chunk_size=100)
    assert bytes(window.ahead(0)) == bytes(window.ahead(0)) == LETTERS[:100]
    assert file.count == 100
    assert bytes(window.ahead(60)) == LETTERS[60:160]
    assert file.count == 200
    assert bytes(window.ahead(20)) == LETTERS[20:120]
    for offset in (940, 1000, 1039):
        assert bytes(window.ahead(offset)) == LETTERS[offset:]
    assert bytes(window.ahead(1040)) == bytes(window.ahead(2000)) == b""


@pytest.mark.parametrize("chunk_size", [100, 1 << 20, 2 << 20], ids=["small", "usual", "larger than usual"])
def test_the_first_byte_that_is_not_zero_is_found_wherever_it_stands(chunk_size: int) -> None:
    size = 2 * chunk_size + 50
    for place in (0, 1, chunk_size - 1, chunk_size, 2 * chunk_size + 49):
        data = bytes(place) + b"\1" + bytes(size - place - 1)
        window = Window(MemoryFile(data), chunk_size)
        assert window.first_nonzero(0) == window.first_nonzero(place) == place
        assert window.first_nonzero(place + 1) is None


def test_a_window_forgets_on_request() -> None:
    file = MemoryFile(LETTERS)
    window = Window(file)
    assert bytes(window.view(0, 1)) == b"a"
    file.become(LETTERS.upper())
    assert bytes(window.view(0, 1)) == b"a"
    window.refresh()
    assert bytes(window.view(0, 1)) == b"A"


def test_a_range_comes_in_pieces_up_to_the_end_of_the_file() -> None:
    window = Window(MemoryFile(LETTERS), chunk_size=100)
    pieces = [(offset, bytes(piece)) for offset, piece in window.pieces(50, 1 << 20)]
    assert pieces == [(offset, LETTERS[offset : offset + 100]) for offset in range(50, 1040, 100)]


def test_a_file_that_became_shorter_while_it_was_read_is_an_error() -> None:
    file = MemoryFile(LETTERS)
    window = Window(file)
    file.become(LETTERS[:500])
    with pytest.raises(OSError, match="shorter"):
        window.view(400, 200)
