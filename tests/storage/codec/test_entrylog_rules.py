"""What our codecs write follows the entry log's format, rule by rule."""

from __future__ import annotations

import struct

import pytest
from entrylogs import Log, direct_log, entries, items, reader
from hypothesis import given
from hypothesis import strategies as st
from journals import entry_bytes, flip

from storage.codec import entrylog as codec
from storage.codec.entrylog import Origin
from storage.entrylog_scan import LogFiller
from storage.errors import InvalidFormat
from storage.outcome import Damaged, EndOfData, Flaw, Torn

ORIGIN = Origin(bytes(range(16)), 0x1122334455667788)


def test_a_header_has_1024_bytes_and_no_map_yet() -> None:
    header = codec.encode_header()
    assert header == (b"BKLO" + struct.pack(">iqi", 1, 0, 0)).ljust(1024, b"\0")
    assert codec.decode_header(header) == codec.Header()


def test_our_mark_stands_in_header_bytes_that_a_bookie_ignores() -> None:
    header = codec.encode_header(ORIGIN)
    assert header[:20] == codec.encode_header()[:20]
    assert header[20:24] == b"LSEL"
    assert not any(header[56:])
    assert codec.decode_header(header) == codec.Header(origin=ORIGIN)


def test_sealing_does_not_touch_our_mark() -> None:
    header = bytearray(codec.encode_header(ORIGIN))
    seal = codec.encode_map_fields(1622, 2)
    assert seal == struct.pack(">qi", 1622, 2)
    header[codec.MAP_FIELDS_OFFSET : codec.MAP_FIELDS_OFFSET + len(seal)] = seal
    assert codec.decode_header(header) == codec.Header(1, 1622, 2, ORIGIN)


def test_no_flipped_bit_in_our_mark_is_believed() -> None:
    header = codec.encode_header(ORIGIN)
    for bit in (*range(20 * 8, 56 * 8), *range(8 * 8)):
        answer = codec.decode_header(flip(header, bit // 8, bit % 8))
        assert not isinstance(answer, codec.Header) or answer.origin is None, bit


def test_a_store_id_has_16_bytes() -> None:
    with pytest.raises(InvalidFormat):
        codec.encode_header(Origin(b"short", 1))


@pytest.mark.parametrize("size", [0, 1, 20, 1023])
def test_a_log_shorter_than_its_header_is_empty(size: int) -> None:
    assert codec.decode_header(codec.encode_header()[:size]) == codec.EmptyLog()
    assert items(codec.encode_header()[:size]) == [EndOfData(1024)]


@pytest.mark.parametrize(
    ("start", "replacement", "flaw"),
    [
        (0, b"BKLG", Flaw.BAD_MAGIC),
        (4, struct.pack(">i", 2), Flaw.FUTURE_VERSION),
        (4, struct.pack(">i", -1), Flaw.BAD_VERSION),
        (8, struct.pack(">q", -1), Flaw.BAD_MAP),
        (8, struct.pack(">q", 1000), Flaw.BAD_MAP),
        (16, struct.pack(">i", -1), Flaw.BAD_MAP),
    ],
)
def test_headers_nobody_wrote(start: int, replacement: bytes, flaw: Flaw) -> None:
    header = bytearray(codec.encode_header())
    header[start : start + len(replacement)] = replacement
    answer = codec.decode_header(header)
    assert isinstance(answer, Damaged)
    assert answer.flaw is flaw


def test_a_record_s_location_is_four_behind_its_length() -> None:
    log = Log().add(entry_bytes(1, 0), entry_bytes(1, 1))
    opened = reader(log.file(), log_id=0x1F4)
    for place in log.places:
        frame = opened.frame_at(place)
        assert isinstance(frame, codec.Frame)
        location = opened.entry(frame).position.location
        assert (location.offset, location.pack()) == (place + 4, 0x1F4 << 32 | place + 4)


@given(st.integers(1024, 1 << 24))
def test_a_filler_ends_at_4096_and_every_scan_skips_it(position: int) -> None:
    filler = codec.encode_filler(position)
    assert (position + len(filler)) % 4096 == 0
    assert len(filler) < 4096 + 20
    if filler:
        size, ledger_id, entry_id = struct.unpack_from(">iqq", filler)
        assert (size, ledger_id, entry_id) == (len(filler) - 4, -1, -3)
        assert not any(filler[20:])


@given(st.dictionaries(st.integers(0, 2**63 - 1), st.integers(0, 2**40), max_size=40))
def test_a_ledgers_map_reads_back(sizes: dict[int, int]) -> None:
    batches = codec.encode_ledgers_map(sizes)
    decoded = [codec.decode_map_batch(batch[4:]) for batch in batches]
    assert dict(pair for pairs in decoded if isinstance(pairs, list) for pair in pairs) == sizes


@pytest.mark.parametrize(("count", "batches"), [(0, 0), (1, 1), (10_000, 1), (10_001, 2), (25_000, 3)])
def test_a_ledgers_map_has_batches_of_at_most_10000(count: int, batches: int) -> None:
    records = codec.encode_ledgers_map(dict.fromkeys(range(count), 1))
    assert len(records) == batches
    for record in records:
        size, ledger_id, entry_id, pairs = struct.unpack_from(">iqqi", record)
        assert (size, ledger_id, entry_id) == (20 + 16 * pairs, -1, -2)
        assert pairs <= 10_000


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_map_whose_count_disagrees_is_damage(count: int) -> None:
    body = bytearray(codec.encode_ledgers_map({1: 10, 2: 20})[0][4:])
    body[16:20] = struct.pack(">i", count)
    assert isinstance(codec.decode_map_batch(body), Damaged)


def frame(size: int, remaining: int, ledger_id: int = 1, entry_id: int = 1) -> object:
    return codec.frame(struct.pack(">iqq", size, ledger_id, entry_id), 2048, remaining)


def test_sizes_and_what_they_mean() -> None:
    assert frame(0, 100) == EndOfData(2048)
    assert frame(16, 100) == codec.Frame(codec.FrameKind.ENTRY, 2048, 2052, 2068)
    assert frame(96, 100) == codec.Frame(codec.FrameKind.ENTRY, 2048, 2052, 2148)
    assert frame(97, 100) == Torn(2048, Flaw.BODY_CUT)
    assert frame(2**31 - 1, 100) == Torn(2048, Flaw.BODY_CUT)
    assert frame(2**31 - 1, 2**32) == Damaged(2048, Flaw.LENGTH_TOO_LARGE, "size 2147483647")
    assert frame(15, 100) == Damaged(2048, Flaw.LENGTH_TOO_SMALL, "size 15")
    assert frame(-1, 100) == Damaged(2048, Flaw.LENGTH_NEGATIVE, "size -1")
    assert frame(-5, 100) == Damaged(2048, Flaw.LENGTH_NEGATIVE, "size -5")
    assert frame(40, 100, ledger_id=-1, entry_id=-2) == codec.Frame(codec.FrameKind.MAP, 2048, 2052, 2092)
    assert frame(40, 100, ledger_id=-1, entry_id=-3) == codec.Frame(codec.FrameKind.FILLER, 2048, 2052, 2092)
    assert frame(40, 100, ledger_id=-1, entry_id=0) == codec.Frame(codec.FrameKind.FILLER, 2048, 2052, 2092)
    assert frame(40, 100, ledger_id=-2) == Damaged(2048, Flaw.LEDGER_NEGATIVE, "ledger -2")
    assert frame(40, 100, entry_id=-1) == Damaged(2048, Flaw.ENTRY_NEGATIVE, "entry -1")
    assert codec.frame(b"\0\0", 2048, 2) == EndOfData(2048)
    assert codec.frame(b"\0\1", 2048, 2) == Torn(2048, Flaw.LENGTH_CUT)


@pytest.mark.parametrize("missing", [1, 2, 3, 4, 100, 4095])
def test_a_direct_writer_s_padding_reaches_to_the_next_block(missing: int) -> None:
    offset = 8192 - missing
    prefix = bytes([0xF0] * min(missing, 20)) + b"\0" * 20
    assert codec.frame(prefix[:20], offset, missing + 100) == codec.DirectPadding(offset, 8192)


def test_a_direct_writer_s_log_is_read() -> None:
    found = items(direct_log())
    assert entries(found) == [(1, 0), (1, 1), (1, 2)]
    assert found[0] == LogFiller(1024, 4096)
    assert found[-1] == EndOfData(20480)
    assert reader(direct_log()).ledgers_map() == {
        1: sum(4 + len(entry_bytes(1, number)) for number in range(3))
    }
