"""Groups as they are written: in one piece, or in several while the disk already writes the first ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_files import WrittenFile
from sampling import many

from storage.entry.position import JournalPosition
from storage.journal import seal as journal_seal
from storage.journal import writer as journal_writer
from storage.journal.seal import GroupFlag, Seal
from storage.journal.writer import Group, JournalWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PAGE = 4096
PIECE = 3 * PAGE
BEFORE = JournalPosition(6, 4096)


class Watched(WrittenFile):
    """Notes each write, and each range that the system is told to write out."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[range] = []
        self.asked: list[range] = []

    def write(self, offset: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        (buffer,) = buffers
        self.writes.append(range(offset, offset + len(buffer)))
        super().write(offset, [buffer])

    def start_writeback(self, offset: int, size: int) -> None:
        self.asked.append(range(offset, offset + size))


def written(
    buffers: Sequence[bytes], flags: GroupFlag = GroupFlag.NONE, alignment: int = PAGE
) -> tuple[Watched, JournalWriter]:
    file, group = Watched(), Group(buffers, len(buffers), sum(map(len, buffers)), flags)
    writer = JournalWriter(file, 7, 0x5A17, alignment, 1 << 30)
    writer.write(group, BEFORE)
    return file, writer


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "SMALL", PAGE)
    monkeypatch.setattr(journal_writer, "_PIECE", PIECE)


SIZES = st.lists(st.integers(0, 2 * PAGE) | st.just(PAGE) | st.just(5 * PIECE), min_size=1, max_size=60)
ALIGNMENTS = st.sampled_from(journal_seal.ALIGNMENTS)


@pytest.mark.sampled
@settings(max_examples=many(300, 40), deadline=None)
@given(SIZES, st.sampled_from([GroupFlag.NONE, GroupFlag.ATOMIC]), ALIGNMENTS)
def test_a_group_is_the_same_bytes_in_however_many_pieces(
    sizes: list[int], flags: GroupFlag, alignment: int
) -> None:
    buffers = [bytes((number % 251,)) * size for number, size in enumerate(sizes)]
    file, writer = written(buffers, flags, alignment)
    start = journal_seal.first_group_start(alignment)
    seal = Seal(7, 0x5A17, 1, start, BEFORE, len(buffers), flags)
    expected = journal_seal.encode_group(buffers, sum(map(len, buffers)), seal, alignment)
    assert file.read(start, file.size()) == expected
    assert writer.sync() == JournalPosition(7, start + len(expected))


@pytest.mark.sampled
@settings(max_examples=many(300, 40), deadline=None)
@given(SIZES, ALIGNMENTS)
def test_no_page_is_written_twice_and_the_disk_begins_with_all_but_the_last_piece(
    sizes: list[int], alignment: int
) -> None:
    file, _ = written([bytes(size) for size in sizes], alignment=alignment)
    assert file.asked == file.writes[:-1]
    at = journal_seal.first_group_start(alignment)
    for piece in file.writes:
        assert piece.start == at
        assert piece.stop > at
        at = piece.stop
    assert {piece.start % PAGE for piece in file.writes[1:]} <= {0}


@settings(max_examples=many(300, 40), deadline=None)
@given(st.binary(min_size=36, max_size=60), st.integers(0, 9000), ALIGNMENTS, st.integers(0, 3))
def test_a_group_of_one_record_is_the_same_bytes_in_fewer_calls(
    front: bytes, size: int, alignment: int, before: int
) -> None:
    payload = bytes(index % 251 for index in range(size))
    files = []
    for is_one in (True, False):
        file = Watched()
        writer = JournalWriter(file, 7, 0x5A17, alignment, 1 << 30)
        durable_up_to = BEFORE
        for number in range(before + 1):
            parts = front, payload[number:]
            record_size = sum(map(len, parts))
            if is_one:
                writer.write_one(*parts, record_size, durable_up_to)
            else:
                writer.write(Group(parts, 1, record_size), durable_up_to)
            durable_up_to = writer.sync()
        files.append(file)
        assert writer.needs_vouching
    one, other = (file.read(0, file.size()) for file in files)
    assert one == other
    assert one.count(front) > before


def test_a_group_of_two_pieces_and_more_is_written_in_pieces() -> None:
    file, _ = written([bytes(PAGE)] * 9)
    assert [len(one) for one in file.writes] == [PIECE, PIECE, PIECE + PAGE]
    file, _ = written([bytes(PAGE)] * 5)
    assert [len(one) for one in file.writes] == [6 * PAGE]


def test_a_group_that_failed_in_the_middle_is_not_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes = iter((None, OSError("the second piece")))

    def write(_file: Watched, _offset: int, _buffers: object) -> None:
        if (error := next(writes)) is not None:
            raise error

    monkeypatch.setattr(Watched, "write", write)
    writer = JournalWriter(Watched(), 7, 0x5A17, PAGE, 1 << 30)
    group = Group([bytes(PAGE)] * 9, 9, 9 * PAGE)
    with pytest.raises(OSError, match="the second piece"):
        writer.write(group, BEFORE)
    with pytest.raises(AssertionError, match="durable"):
        writer.write(group, BEFORE)
