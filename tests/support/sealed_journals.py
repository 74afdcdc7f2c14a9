"""Random journals of ours: sound, damaged, or with a wrong seal field and a right checksum."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

from crc32c import crc32c
from hypothesis import strategies as st
from journal_builder import OurJournal, entry_record
from memory_files import MemoryFile
from random_damage import mutated

from storage.disk.buffered import Window
from storage.entry.position import JournalPosition
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.reader import JournalReader
from storage.journal.seal import GroupFlag

if TYPE_CHECKING:
    from collections.abc import Callable

JOURNAL_ID = 5
CHUNK_SIZES = st.sampled_from([600, 5000, 1 << 20])
"""Sizes of read windows. A small window ends inside length words, records, padding and seals."""

_SPECIALS = (
    journal_format.encode_ledger_key(1, b"k" * 20),
    journal_format.encode_fence(2),
    journal_format.encode_explicit_lac(3, b"p" * 20),
    journal_format.encode_record(struct.pack(">qq", 1, -7)),
)
_UNREADABLE = (
    struct.pack(">iqq", 16, -1, 5),
    journal_format.encode_record(struct.pack(">qqi", 1, journal_format.LEDGER_KEY, 5)),
)
_FLAGS = st.sampled_from([GroupFlag.NONE, GroupFlag.NONE, GroupFlag.ATOMIC])


class SealedJournal:
    """A journal, and the offsets at which its groups begin and end."""

    def __init__(self, data: bytes, places: list[int]) -> None:
        self.data = data
        self.places = places

    def __repr__(self) -> str:
        """Leave the zeros out, because pytest refuses to print the whole file."""
        return f"SealedJournal({len(self.data)} bytes, {self.data.rstrip(bytes(1))[:1000]!r}, {self.places})"

    def reader(self, chunk_size: int = 1 << 20) -> JournalReader:
        return reader(self.data, chunk_size)


def reader(data: bytes, chunk_size: int = 1 << 20) -> JournalReader:
    """Make a reader with a window of that size."""
    opened = JournalReader(MemoryFile(data), JOURNAL_ID)
    opened.window = Window(MemoryFile(data), chunk_size)
    return opened


def reseal(data: bytearray, start: int, end: int, offset: int, field: bytes) -> None:
    """Change a field in a group's seal, and make the checksum match."""
    place = end - journal_seal.SIZE + offset
    data[place : place + len(field)] = field
    checksum = crc32c(bytes(data[start : end - journal_seal.CHECKSUM_SIZE]))
    data[end - journal_seal.CHECKSUM_SIZE : end] = struct.pack(">I", checksum)


MISTAKES: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "version": (4, lambda _: b"\2"),
    "flags": (5, lambda _: b"\1"),
    "unknown flags": (5, lambda _: b"\2"),
    "journal": (8, lambda _: struct.pack(">q", JOURNAL_ID + 1)),
    "salt": (16, lambda _: struct.pack(">Q", 1)),
    "sequence": (24, lambda _: struct.pack(">Q", 99)),
    "start": (32, lambda start: struct.pack(">q", start + 512)),
    "durable in": (40, lambda _: struct.pack(">q", -1)),
    "durable to": (48, lambda _: struct.pack(">q", -1)),
    "count": (56, lambda _: struct.pack(">I", 99)),
}
"""The offset of the wrong field in the seal, and its value."""


@st.composite
def records(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 9))
    if kind < 7:
        size = draw(st.sampled_from([1, 30, 400, 3000, 9000]))
        return entry_record(draw(st.integers(0, 3)), draw(st.integers(0, 99)), b"x" * size)
    return draw(st.sampled_from(_SPECIALS))


@st.composite
def sound(draw: st.DrawFn) -> SealedJournal:
    """Make a sound journal: alignment 512 or 4096, plain and atomic groups, some empty, with or without zeros
    at the end."""
    journal = OurJournal(JOURNAL_ID, alignment=draw(st.sampled_from(journal_seal.ALIGNMENTS)))
    places = [512, journal.end]
    for group in draw(st.lists(st.lists(records(), max_size=6), max_size=6)):
        durable = draw(
            st.one_of(st.none(), st.builds(JournalPosition, st.integers(0, 9), st.integers(0, 9999)))
        )
        journal.group(*group, durable_up_to=durable, flags=draw(_FLAGS))
        places.append(journal.end)
    journal.size = draw(st.sampled_from([0, journal.end + 1000, 1 << 16]))
    return SealedJournal(journal.file(), places)


@st.composite
def unsound(draw: st.DrawFn) -> SealedJournal:
    """Make a journal with one random defect, and sometimes with none."""
    sample = draw(sound())
    data = bytearray(sample.data)
    for _ in range(draw(st.integers(0, 2))):
        number = draw(st.integers(0, len(sample.places) - 2))
        start, end = sample.places[number : number + 2]
        match draw(st.integers(0, 5)):
            case 0 | 1 if number > 0:
                offset, field = MISTAKES[draw(st.sampled_from(sorted(MISTAKES)))]
                reseal(data, start, end, offset, field(start))
            case 2 if number > 0:
                data[end - journal_seal.SIZE : end] = bytes(journal_seal.SIZE)
            case 3:
                data[start:start] = draw(st.sampled_from([journal_seal.encode_atomic_mark(), *_UNREADABLE]))
            case 4:
                del data[draw(st.integers(start, end)) :]
            case _:
                data = bytearray(mutated(bytes(data), random.Random(draw(st.integers(0, 1 << 32)))))
        data = data or bytearray(1)
    return SealedJournal(bytes(data), sample.places)
