"""The window that everything is read through."""

from __future__ import annotations

import random

import pytest
from memory import Counting, MemoryFile

from storage.window import LOOK_BEHIND, Window

MEMORY_MAX = 64 << 20


LETTERS = bytes(range(97, 123)) * 40


def test_a_window_shows_the_file_wherever_one_looks() -> None:
    for look in (Window.view, Window.peek):
        window = Window(MemoryFile(LETTERS), chunk_size=100)
        for offset in (0, 1, 500, 99, 100, 0, 1039, 1040, 5000):
            for size in (1, 10, 250, 0, 5000):
                assert bytes(look(window, offset, size)) == LETTERS[offset : offset + size], (offset, size)


def test_what_a_window_holds_is_not_read_again_and_nothing_behind_the_end() -> None:
    file = Counting(LETTERS)
    window = Window(file)
    for look in (window.view, window.view, window.peek):
        assert bytes(look(0, len(LETTERS))) == LETTERS
        assert bytes(look(0, 1)) == LETTERS[:1]
        assert bytes(look(len(LETTERS), 1)) == bytes(look(1 << 30, 1)) == b""
    assert file.count == len(LETTERS)


def test_what_lies_a_little_before_is_still_there_and_what_lies_further_is_read() -> None:
    data = random.Random(8).randbytes(300_000)
    file = Counting(data)
    for look in (Window.view, Window.peek):
        window = Window(file, chunk_size=1000)
        assert bytes(window.view(200_000, 10)) == data[200_000:200_010]
        count = file.count
        first = 200_000 - LOOK_BEHIND
        assert bytes(look(window, first, 10)) == data[first : first + 10]
        assert file.count == count
        assert bytes(look(window, first - 1, 10)) == data[first - 1 : first + 9]


def test_a_window_forgets_on_request() -> None:
    file = MemoryFile(LETTERS)
    window = Window(file)
    assert bytes(window.view(0, 1)) == b"a"
    file._data = LETTERS.upper()
    assert bytes(window.view(0, 1)) == b"a"
    window.refresh()
    assert bytes(window.view(0, 1)) == b"A"


def test_a_range_comes_in_pieces_up_to_the_end_of_the_file() -> None:
    window = Window(MemoryFile(LETTERS), chunk_size=100)
    pieces = [(offset, bytes(piece)) for offset, piece in window.pieces(50, 1 << 20)]
    assert pieces == [(offset, LETTERS[offset : offset + 100]) for offset in range(50, 1040, 100)]


def test_a_file_that_lost_part_of_what_is_asked_for_is_an_error() -> None:
    file = MemoryFile(LETTERS)
    window = Window(file)
    file._data = LETTERS[:500]
    with pytest.raises(OSError, match="shorter"):
        window.view(400, 200)
