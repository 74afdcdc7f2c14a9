"""The lastMark file: BookKeeper's sixteen bytes, and ours behind them."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from journals import flip

from storage.codec import mark as codec
from storage.codec.mark import EmptyMark, Mark, Trailer
from storage.outcome import Damaged, Flaw, Torn
from storage.position import JournalPosition, LogPosition

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
    encoded = codec.encode(mark)
    assert len(encoded) == codec.SIZE == 68
    assert codec.decode(encoded) == mark


@given(MARKS)
def test_the_first_16_bytes_are_a_bookie_s_whole_file(mark: Mark) -> None:
    encoded = codec.encode(mark)
    assert encoded[:16] == struct.pack(">qq", mark.position.journal_id, mark.position.offset)
    assert codec.encode(Mark(mark.position)) == encoded[:16]
    assert codec.decode(encoded[:16]) == Mark(mark.position)


def test_no_bytes_mean_replay_everything() -> None:
    assert codec.decode(b"") == EmptyMark()


def test_every_other_prefix_is_torn_or_damaged() -> None:
    encoded = codec.encode(OURS)
    for size in range(1, 16):
        assert codec.decode(encoded[:size]) == Torn(0, Flaw.FILE_SHORT)
    for size in range(17, 68):
        assert isinstance(codec.decode(encoded[:size]), Damaged)


def test_no_flipped_bit_is_believed() -> None:
    encoded = codec.encode(OURS)
    for bit in range(len(encoded) * 8):
        assert isinstance(codec.decode(flip(encoded, bit // 8, bit % 8)), Damaged), bit


def test_bytes_behind_the_trailer_are_damage() -> None:
    answer = codec.decode(codec.encode(OURS) + b"\0")
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.FILE_LONG


def test_a_newer_trailer_is_named_as_such() -> None:
    from crc32c import crc32c

    newer = bytearray(codec.encode(OURS)[:-4])
    newer[20:24] = struct.pack(">I", 2)
    answer = codec.decode(bytes(newer) + struct.pack(">I", crc32c(newer)))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.FUTURE_VERSION


def test_a_bookie_s_mark_with_negative_numbers_is_damage() -> None:
    assert isinstance(codec.decode(struct.pack(">qq", -1, 0)), Damaged)
    assert isinstance(codec.decode(struct.pack(">qq", 1, -512)), Damaged)
