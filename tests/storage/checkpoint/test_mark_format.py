"""The lastMark file: BookKeeper's sixteen bytes, followed by ours."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from journal_builder import flip

from storage.checkpoint import mark_format
from storage.checkpoint.mark_format import EmptyMark, Mark, Trailer
from storage.entry.position import JournalPosition, LogPosition
from storage.entry.read_result import Damaged, Flaw, Torn

IDS = st.integers(0, 2**63 - 1)
MARKS = st.builds(
    Mark,
    st.builds(JournalPosition, IDS, IDS),
    st.builds(
        Trailer,
        generation=st.integers(0, 2**64 - 1),
        newest_journal=IDS,
        log_end=st.none() | st.builds(LogPosition, st.integers(0, 2**31 - 1), IDS),
        rows_sequence=IDS,
    ),
)
OURS = Mark(JournalPosition(7, 8192), Trailer(3, 9, LogPosition(2, 40960), 5))


@given(MARKS)
def test_a_mark_reads_back(mark: Mark) -> None:
    encoded = mark_format.encode(mark)
    assert len(encoded) == mark_format.SIZE == 68
    assert mark_format.decode(encoded) == mark


@given(MARKS)
def test_the_first_16_bytes_are_a_bookie_s_whole_file(mark: Mark) -> None:
    encoded = mark_format.encode(mark)
    assert encoded[:16] == struct.pack(">qq", mark.position.journal_id, mark.position.offset)
    assert mark_format.encode(Mark(mark.position)) == encoded[:16]
    assert mark_format.decode(encoded[:16]) == Mark(mark.position)


def test_no_bytes_mean_replay_everything() -> None:
    assert mark_format.decode(b"") == EmptyMark()


def test_every_other_prefix_is_torn_or_damaged() -> None:
    encoded = mark_format.encode(OURS)
    for size in range(1, 16):
        assert mark_format.decode(encoded[:size]) == Torn(0, Flaw.FILE_SHORT)
    for size in range(17, 68):
        assert isinstance(mark_format.decode(encoded[:size]), Damaged)


def test_no_flipped_bit_is_believed() -> None:
    encoded = mark_format.encode(OURS)
    for bit in range(len(encoded) * 8):
        assert isinstance(mark_format.decode(flip(encoded, bit // 8, bit % 8)), Damaged), bit


def test_bytes_after_the_trailer_are_damage() -> None:
    answer = mark_format.decode(mark_format.encode(OURS) + b"\0")
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.FILE_LONG


def test_a_newer_trailer_is_named_as_such() -> None:
    from crc32c import crc32c

    newer = bytearray(mark_format.encode(OURS)[:-4])
    newer[20:24] = struct.pack(">I", 2)
    answer = mark_format.decode(bytes(newer) + struct.pack(">I", crc32c(newer)))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.FUTURE_VERSION


def test_a_bookie_s_mark_with_negative_numbers_is_damage() -> None:
    assert isinstance(mark_format.decode(struct.pack(">qq", -1, 0)), Damaged)
    assert isinstance(mark_format.decode(struct.pack(">qq", 1, -512)), Damaged)
