"""The search for the next sound record."""

from __future__ import annotations

import struct

import pytest
from journal_builder import entry_bytes
from memory_files import MemoryFile, SparseFile

from storage.disk import search as disk_search
from storage.disk.buffered import CHUNK_SIZE, Window
from storage.disk.search import candidates
from storage.entry.model import RECORD_SIZE_MAX
from storage.entrylog import format as entrylog_format

MEMORY_MAX = 64 << 20


FOUND = entrylog_format.encode_record(entry_bytes(1, 1))
META = struct.pack(">iqq", 100, -1, -2)


class Judge:
    """Judges every place as sound, or none, and remembers the places."""

    def __init__(self, *, sound: bool) -> None:
        self._sound = sound
        self.places: list[int] = []

    def __call__(self, place: int) -> bool:
        self.places.append(place)
        return self._sound


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search looks at a hundred bytes at a time."""
    monkeypatch.setattr(disk_search, "CHUNK_SIZE", 100)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("record", [FOUND, META], ids=["entry", "map"])
def test_a_record_is_found_wherever_the_chunks_of_the_search_end(record: bytes) -> None:
    for place in range(350):
        judge = Judge(sound=True)
        window = Window(MemoryFile(b"\xee" * place + record))
        assert disk_search.find_record(window, 0, judge, window.size) == place
        assert judge.places == [place]


@pytest.mark.usefixtures("small_chunks")
def test_no_offset_is_judged_twice_and_none_outside_the_range() -> None:
    window = Window(MemoryFile(FOUND * 10))
    for start in range(1, len(FOUND) + 1):
        judge = Judge(sound=False)
        assert disk_search.find_record(window, start, judge, 7 * len(FOUND)) is None
        assert judge.places == [number * len(FOUND) for number in range(1, 7)]


def test_a_record_that_begins_at_the_last_offset_of_the_range_is_found() -> None:
    window = Window(MemoryFile(b"\xee" * 50 + FOUND))
    assert disk_search.find_record(window, 0, lambda _: True, 51) == 50
    assert disk_search.find_record(window, 0, lambda _: True, 50) is None


def test_a_search_holds_no_more_than_a_chunk() -> None:
    file = SparseFile(b"\xee" * 4096, 5 << 20)
    window = Window(file)
    assert disk_search.find_record(window, 0, lambda _: True, window.size) is None
    assert file.largest <= 2 * CHUNK_SIZE


def head(size: int, ledger_id: int, entry_id: int, confirmed: int, length: int) -> bytes:
    return struct.pack(">iqqqq", size, ledger_id, entry_id, confirmed, length)


@pytest.mark.parametrize(
    ("fields", "plausible"),
    [
        ((100, 1, 5, 4, 100), True),
        ((100, 0, 5, -1, 48), True),
        ((100, 0, 5, 5, 100), False),
        ((100, 0, 5, 6, 100), False),
        ((100, 1, 5, 4, 47), False),
        ((32, 0, 0, -1, 0), True),
        ((31, 0, 0, -1, 0), False),
        ((RECORD_SIZE_MAX, 1, 5, 4, RECORD_SIZE_MAX), True),
        ((RECORD_SIZE_MAX + 1, 1, 5, 4, RECORD_SIZE_MAX * 2), False),
        ((100, -1, 5, 4, 100), False),
        ((100, 1, -1, -2, 100), False),
        ((100, 1, 5, -2, 100), False),
        ((100, 1, 5, 4, -1), False),
        ((100, -1, -2, 5, 0), True),
        ((100, -1, -3, 0, 0), True),
        ((100, -1, -4, 0, 0), False),
    ],
)
def test_the_filter_passes_every_possible_record(
    fields: tuple[int, int, int, int, int], plausible: bool
) -> None:
    for behind in (b"", b"x"):
        assert (0 in candidates(head(*fields) + behind)) is plausible


def test_the_front_of_a_map_or_filler_is_enough() -> None:
    assert list(candidates(META)) == [0]
    assert list(candidates(b"\xee" * 200 + META)) == [200]
