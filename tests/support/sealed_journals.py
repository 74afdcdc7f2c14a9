"""Our journals at random: sound, damaged, or with a mistake in a seal whose checksum is right."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

from crc32c import crc32c
from hypothesis import strategies as st
from journals import OurJournal, entry_record
from memory import MemoryFile
from mutations import mutated

from storage.codec import journal as codec
from storage.codec import seal as seal_codec
from storage.codec.seal import GroupFlag
from storage.journal_reader import JournalReader
from storage.position import JournalPosition
from storage.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable

JOURNAL_ID = 5
CHUNK_SIZES = st.sampled_from([600, 5000, 1 << 20])
"""A small window ends everywhere: inside a length word, a record, a padding, a seal."""

_SPECIALS = (
    codec.encode_ledger_key(1, b"k" * 20),
    codec.encode_fence(2),
    codec.encode_explicit_lac(3, b"p" * 20),
    codec.encode_record(struct.pack(">qq", 1, -7)),
)
_UNREADABLE = (
    struct.pack(">iqq", 16, -1, 5),
    codec.encode_record(struct.pack(">qqi", 1, codec.LEDGER_KEY, 5)),
)
_FLAGS = st.sampled_from([GroupFlag.NONE, GroupFlag.NONE, GroupFlag.ATOMIC])


class Sample:
    """A journal and the places in it at which a group begins or ends."""

    def __init__(self, data: bytes, places: list[int]) -> None:
        self.data = data
        self.places = places

    def __repr__(self) -> str:
        """Without the zeros: a report of the whole file is refused as too long."""
        return f"Sample({len(self.data)} bytes, {self.data.rstrip(bytes(1))[:1000]!r}, {self.places})"

    def reader(self, chunk_size: int = 1 << 20) -> JournalReader:
        return reader(self.data, chunk_size)


def reader(data: bytes, chunk_size: int = 1 << 20) -> JournalReader:
    """Reads through a window of that size."""
    opened = JournalReader(MemoryFile(data), JOURNAL_ID)
    opened.window = Window(MemoryFile(data), chunk_size)
    return opened


def reseal(data: bytearray, start: int, end: int, offset: int, field: bytes) -> None:
    """Another field in the seal of the group, and the checksum that belongs to it."""
    place = end - seal_codec.SIZE + offset
    data[place : place + len(field)] = field
    checksum = crc32c(bytes(data[start : end - seal_codec.CHECKSUM_SIZE]))
    data[end - seal_codec.CHECKSUM_SIZE : end] = struct.pack(">I", checksum)


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
"""What the seal says wrongly: where in it, and what."""


@st.composite
def records(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 9))
    if kind < 7:
        size = draw(st.sampled_from([1, 30, 400, 3000, 9000]))
        return entry_record(draw(st.integers(0, 3)), draw(st.integers(0, 99)), b"x" * size)
    return draw(st.sampled_from(_SPECIALS))


@st.composite
def sound(draw: st.DrawFn) -> Sample:
    """A journal with nothing wrong: 512 or 4096, plain and atomic groups, some empty, zeros behind or not."""
    journal = OurJournal(JOURNAL_ID, alignment=draw(st.sampled_from(seal_codec.ALIGNMENTS)))
    places = [512, journal.end]
    for group in draw(st.lists(st.lists(records(), max_size=6), max_size=6)):
        durable = draw(
            st.one_of(st.none(), st.builds(JournalPosition, st.integers(0, 9), st.integers(0, 9999)))
        )
        journal.group(*group, durable_up_to=durable, flags=draw(_FLAGS))
        places.append(journal.end)
    journal.size = draw(st.sampled_from([0, journal.end + 1000, 1 << 16]))
    return Sample(journal.file(), places)


@st.composite
def unsound(draw: st.DrawFn) -> Sample:
    """A journal with one of everything that may be wrong; now and then with nothing."""
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
                data[end - seal_codec.SIZE : end] = bytes(seal_codec.SIZE)
            case 3:
                data[start:start] = draw(st.sampled_from([seal_codec.encode_atomic_mark(), *_UNREADABLE]))
            case 4:
                del data[draw(st.integers(start, end)) :]
            case _:
                data = bytearray(mutated(bytes(data), random.Random(draw(st.integers(0, 1 << 32)))))
        data = data or bytearray(1)
    return Sample(bytes(data), sample.places)
