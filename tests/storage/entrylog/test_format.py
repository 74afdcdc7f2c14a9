"""Our encoders follow the entry log's format, rule by rule."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c
from entry_log_builder import Log, direct_log, entries, items, reader
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import change, entry_bytes, flip

from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import LOG_ID_MAX, EntryLocation, LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog.format import Origin
from storage.entrylog.reader import LogEntry, NotSealed
from storage.entrylog.scan import LogFiller
from storage.errors import InvalidFormat

ORIGIN = Origin(bytes(range(16)), 0x1122334455667788, LogPosition(0x1F3, 8237))


def test_a_header_has_1024_bytes_and_no_map_yet() -> None:
    header = entrylog_format.encode_header()
    assert header == (b"BKLO" + struct.pack(">iqi", 1, 0, 0)).ljust(1024, b"\0")
    assert entrylog_format.decode_header(header) == entrylog_format.LogHeader()


def test_our_mark_is_in_header_bytes_that_a_bookie_ignores() -> None:
    header = entrylog_format.encode_header(ORIGIN)
    assert header[:20] == entrylog_format.encode_header()[:20]
    assert header[20:24] == b"LSEL"
    assert not any(header[72:])
    assert entrylog_format.decode_header(header) == entrylog_format.LogHeader(origin=ORIGIN)


def test_the_log_before_and_its_end_follow_the_generation() -> None:
    assert entrylog_format.encode_header(ORIGIN)[52:68] == struct.pack(">qq", 0x1F3, 8237)
    first = replace(ORIGIN, previous=None)
    assert entrylog_format.encode_header(first)[52:68] == struct.pack(">qq", -1, 0)
    assert entrylog_format.decode_header(entrylog_format.encode_header(first)) == entrylog_format.LogHeader(
        origin=first
    )


@pytest.mark.parametrize("log_id", [0, 1, LOG_ID_MAX])
def test_the_log_before_may_have_any_id(log_id: int) -> None:
    origin = replace(ORIGIN, previous=LogPosition(log_id, 0xFFFF_FFFF))
    assert entrylog_format.decode_header(entrylog_format.encode_header(origin)) == entrylog_format.LogHeader(
        origin=origin
    )


@pytest.mark.parametrize(("log_id", "end"), [(-2, 0), (LOG_ID_MAX + 1, 0), (0, -1), (-1, -1)])
def test_an_impossible_log_before_is_damage(log_id: int, end: int) -> None:
    header = change(entrylog_format.encode_header(ORIGIN), 52, struct.pack(">qq", log_id, end))
    checksum = crc32c(header[20:68], crc32c(header[:8]))
    answer = entrylog_format.decode_header(change(header, 68, struct.pack(">I", checksum)))
    assert isinstance(answer, Damaged)
    assert (answer.offset, answer.flaw) == (20, Flaw.BAD_FIELD)


def test_sealing_does_not_touch_our_mark() -> None:
    header = bytearray(entrylog_format.encode_header(ORIGIN))
    seal = entrylog_format.encode_map_fields(1622, 2)
    assert seal == struct.pack(">qi", 1622, 2)
    header[entrylog_format.MAP_FIELDS_OFFSET : entrylog_format.MAP_FIELDS_OFFSET + len(seal)] = seal
    assert entrylog_format.decode_header(header) == entrylog_format.LogHeader(1, 1622, 2, ORIGIN)


def test_no_flipped_bit_in_our_mark_is_believed() -> None:
    header = entrylog_format.encode_header(ORIGIN)
    for bit in (*range(20 * 8, 72 * 8), *range(8 * 8)):
        answer = entrylog_format.decode_header(flip(header, bit // 8, bit % 8))
        assert not isinstance(answer, entrylog_format.LogHeader) or answer.origin is None, bit


def test_a_store_id_has_16_bytes() -> None:
    with pytest.raises(InvalidFormat):
        entrylog_format.encode_header(Origin(b"short", 1, None))


@pytest.mark.parametrize("size", [0, 1, 20, 1023])
def test_a_log_shorter_than_its_header_is_empty(size: int) -> None:
    assert entrylog_format.decode_header(entrylog_format.encode_header()[:size]) == entrylog_format.EmptyLog()
    assert items(entrylog_format.encode_header()[:size]) == [EndOfData(1024)]


@pytest.mark.parametrize(
    ("start", "replacement", "flaw"),
    [
        (0, b"BKLG", Flaw.BAD_MAGIC),
        (4, struct.pack(">i", 2), Flaw.FUTURE_VERSION),
        (4, struct.pack(">i", -1), Flaw.BAD_VERSION),
        (8, struct.pack(">q", -1), Flaw.BAD_MAP),
        (8, struct.pack(">q", 1), Flaw.BAD_MAP),
        (8, struct.pack(">q", 1023), Flaw.BAD_MAP),
        (16, struct.pack(">i", -1), Flaw.BAD_MAP),
    ],
)
def test_headers_that_were_never_written_are_damage(start: int, replacement: bytes, flaw: Flaw) -> None:
    header = bytearray(entrylog_format.encode_header())
    header[start : start + len(replacement)] = replacement
    answer = entrylog_format.decode_header(header)
    assert isinstance(answer, Damaged)
    assert (answer.flaw, answer.offset) == (flaw, min(start, entrylog_format.MAP_FIELDS_OFFSET))


def test_a_map_may_follow_the_header_directly() -> None:
    header = entrylog_format.encode_header()[:8] + entrylog_format.encode_map_fields(1024, 0)
    assert entrylog_format.decode_header(header.ljust(1024, b"\0")) == entrylog_format.LogHeader(1, 1024, 0)


def test_a_header_of_zeros_is_one_from_before_headers_whatever_follows() -> None:
    assert entrylog_format.decode_header(bytes(1024)) == entrylog_format.LogHeader(version=0)
    assert entrylog_format.decode_header(bytes(1024) + b"more") == entrylog_format.LogHeader(version=0)
    assert entrylog_format.decode_header(
        entrylog_format.encode_header(ORIGIN) + b"more"
    ) == entrylog_format.LogHeader(origin=ORIGIN)


def test_a_newer_mark_of_ours_is_refused_as_newer_and_a_damaged_one_as_damaged() -> None:
    header = change(entrylog_format.encode_header(ORIGIN), 24, struct.pack(">I", 2))
    assert entrylog_format.decode_header(header) == Damaged(0, Flaw.CHECKSUM)
    checksum = crc32c(header[20:68], crc32c(header[:8]))
    newer = change(header, 68, struct.pack(">I", checksum))
    assert entrylog_format.decode_header(newer) == Damaged(24, Flaw.FUTURE_VERSION, "origin 2")


def test_a_record_s_location_is_four_bytes_after_its_length_word() -> None:
    log = Log().add(entry_bytes(1, 0), entry_bytes(1, 1))
    opened = reader(log.file(), log_id=0x1F4)
    for place in log.places:
        frame = opened.frame_at(place)
        assert isinstance(frame, entrylog_format.LogFrame)
        location = opened.entry(frame).position.location
        assert (location.offset, location.pack()) == (place + 4, 0x1F4 << 32 | place + 4)


@given(st.integers(1024, 1 << 24))
def test_a_filler_ends_at_4096_and_every_scan_skips_it(position: int) -> None:
    filler = entrylog_format.encode_filler(position)
    assert (position + len(filler)) % 4096 == 0
    assert len(filler) < 4096 + 20
    if filler:
        size, ledger_id, entry_id = struct.unpack_from(">iqq", filler)
        assert (size, ledger_id, entry_id) == (len(filler) - 4, -1, -3)
        assert not any(filler[20:])


@pytest.mark.parametrize(
    ("missing", "size"), [(0, 0), (1, 4097), (19, 4115), (20, 20), (21, 21), (4095, 4095)]
)
def test_a_filler_takes_at_least_its_length_and_its_ids(missing: int, size: int) -> None:
    assert len(entrylog_format.encode_filler(8192 - missing)) == size


@pytest.mark.parametrize("size", [0, 15, RECORD_SIZE_MAX + 1])
def test_a_record_that_no_reader_would_believe_is_not_written(size: int) -> None:
    with pytest.raises(InvalidFormat):
        entrylog_format.encode_record(bytes(size))


@pytest.mark.parametrize("size", [16, RECORD_SIZE_MAX])
def test_the_smallest_and_the_largest_record(size: int) -> None:
    assert entrylog_format.encode_record(bytes(size))[:4] == struct.pack(">i", size)
    assert frame(size, 2**32) == entrylog_format.LogFrame(
        entrylog_format.LogFrameKind.ENTRY, 2048, 2052, 2052 + size
    )


@given(st.dictionaries(st.integers(0, 2**63 - 1), st.integers(0, 2**40), max_size=40))
def test_a_ledgers_map_reads_back(sizes: dict[int, int]) -> None:
    batches = entrylog_format.encode_ledgers_map(sizes)
    decoded = [entrylog_format.decode_map_batch(batch[4:]) for batch in batches]
    assert dict(pair for pairs in decoded if isinstance(pairs, list) for pair in pairs) == sizes


@pytest.mark.parametrize(("count", "batches"), [(0, 0), (1, 1), (10_000, 1), (10_001, 2), (25_000, 3)])
def test_a_ledgers_map_has_batches_of_at_most_10000(count: int, batches: int) -> None:
    records = entrylog_format.encode_ledgers_map(dict.fromkeys(range(count), 1))
    assert len(records) == batches
    for record in records:
        size, ledger_id, entry_id, pairs = struct.unpack_from(">iqqi", record)
        assert (size, ledger_id, entry_id) == (20 + 16 * pairs, -1, -2)
        assert pairs <= 10_000


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_map_whose_count_disagrees_is_damage(count: int) -> None:
    body = bytearray(entrylog_format.encode_ledgers_map({1: 10, 2: 20})[0][4:])
    body[16:20] = struct.pack(">i", count)
    assert entrylog_format.decode_map_batch(body) == Damaged(
        16, Flaw.BAD_MAP, f"{count} ledgers in a record of 52"
    )


def test_a_map_of_no_ledgers_is_sound() -> None:
    assert entrylog_format.decode_map_batch(struct.pack(">qqi", -1, -2, 0)) == []


@pytest.mark.parametrize(
    ("body", "damage"),
    [
        (bytes(19), Damaged(0, Flaw.BAD_MAP, "a record too short for a map")),
        (struct.pack(">qqi", -1, -3, 0), Damaged(0, Flaw.BAD_MAP, "another record inside the map")),
        (struct.pack(">qqiqq", -1, -2, 1, -1, 30), Damaged(20, Flaw.BAD_MAP, "a negative ledger or size")),
        (struct.pack(">qqiqq", -1, -2, 1, 30, -1), Damaged(20, Flaw.BAD_MAP, "a negative ledger or size")),
    ],
)
def test_a_map_s_damage_has_its_place(body: bytes, damage: Damaged) -> None:
    assert entrylog_format.decode_map_batch(body) == damage


def frame(size: int, remaining: int, ledger_id: int = 1, entry_id: int = 1) -> object:
    return entrylog_format.frame(struct.pack(">iqq", size, ledger_id, entry_id), 2048, remaining)


def test_sizes_and_what_they_mean() -> None:
    assert frame(0, 100) == EndOfData(2048)
    assert frame(16, 100) == entrylog_format.LogFrame(entrylog_format.LogFrameKind.ENTRY, 2048, 2052, 2068)
    assert frame(96, 100) == entrylog_format.LogFrame(entrylog_format.LogFrameKind.ENTRY, 2048, 2052, 2148)
    assert frame(97, 100) == Torn(2048, Flaw.BODY_CUT)
    assert frame(2**31 - 1, 100) == Torn(2048, Flaw.BODY_CUT)
    assert frame(2**31 - 1, 2**32) == Damaged(2048, Flaw.LENGTH_TOO_LARGE, "size 2147483647")
    assert frame(15, 100) == Damaged(2048, Flaw.LENGTH_TOO_SMALL, "size 15")
    assert frame(-1, 100) == Damaged(2048, Flaw.LENGTH_NEGATIVE, "size -1")
    assert frame(-5, 100) == Damaged(2048, Flaw.LENGTH_NEGATIVE, "size -5")
    assert frame(40, 100, ledger_id=-1, entry_id=-2) == entrylog_format.LogFrame(
        entrylog_format.LogFrameKind.MAP, 2048, 2052, 2092
    )
    assert frame(40, 100, ledger_id=-1, entry_id=-3) == entrylog_format.LogFrame(
        entrylog_format.LogFrameKind.FILLER, 2048, 2052, 2092
    )
    assert frame(40, 100, ledger_id=-1, entry_id=0) == entrylog_format.LogFrame(
        entrylog_format.LogFrameKind.FILLER, 2048, 2052, 2092
    )
    assert frame(40, 100, ledger_id=-2) == Damaged(2048, Flaw.LEDGER_NEGATIVE, "ledger -2")
    assert frame(40, 100, entry_id=-1) == Damaged(2048, Flaw.ENTRY_NEGATIVE, "entry -1")
    assert entrylog_format.frame(b"\0\0", 2048, 2) == EndOfData(2048)
    assert entrylog_format.frame(b"\0\1", 2048, 2) == Torn(2048, Flaw.LENGTH_CUT)
    assert entrylog_format.frame(b"\0\0\0\x20", 2048, 4) == Torn(2048, Flaw.BODY_CUT)
    assert entrylog_format.frame(bytes(4), 2048, 4) == EndOfData(2048)


@pytest.mark.parametrize("missing", [1, 2, 3, 4, 100, 4095])
def test_a_direct_writer_s_padding_reaches_to_the_next_block(missing: int) -> None:
    offset = 8192 - missing
    prefix = bytes([0xF0] * min(missing, 20)) + b"\0" * 20
    assert entrylog_format.frame(prefix[:20], offset, missing + 100) == entrylog_format.DirectPadding(
        offset, 8192
    )


@pytest.mark.parametrize("left", [1, 3, 4, 100])
def test_a_direct_writer_s_padding_ends_with_the_file(left: int) -> None:
    prefix = bytes([0xF0] * min(left, 20))
    assert entrylog_format.frame(prefix, 4196, left) == entrylog_format.DirectPadding(4196, 4196 + left)


def test_a_direct_writer_s_log_is_read() -> None:
    found = items(direct_log())
    assert entries(found) == [(1, 0), (1, 1), (1, 2)]
    assert found[0] == LogFiller(1024, 4096)
    assert found[-1] == EndOfData(20480)
    assert reader(direct_log()).ledgers_map() == {
        1: sum(4 + len(entry_bytes(1, number)) for number in range(3))
    }


# ── reading by place ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("bytes_there", "answer"),
    [
        (b"", EndOfData(1024)),
        (bytes(100), EndOfData(1024)),
        (struct.pack(">iqq", 100, 1, 1), Torn(1024, Flaw.BODY_CUT)),
        (struct.pack(">iqq", 3, 1, 1), Damaged(1024, Flaw.LENGTH_TOO_SMALL, "size 3")),
        (entrylog_format.encode_ledgers_map({1: 2})[0], Damaged(1024, Flaw.NOT_A_RECORD)),
        (entrylog_format.encode_filler(1024), Damaged(1024, Flaw.NOT_A_RECORD)),
        (b"\xf0" * 100, Damaged(1024, Flaw.NOT_A_RECORD)),
    ],
    ids=["end", "zeros", "torn", "damaged", "map", "filler", "direct padding"],
)
def test_a_location_without_an_entry_says_what_is_there(bytes_there: bytes, answer: object) -> None:
    opened = reader(entrylog_format.encode_header() + bytes_there)
    assert opened.read(EntryLocation(0, 1028)) == answer


def test_the_first_location_is_after_the_header_and_the_first_length_word() -> None:
    opened = reader(Log().add(entry_bytes(1, 0)).file())
    assert isinstance(opened.read(EntryLocation(0, 1028)), LogEntry)
    assert isinstance(opened.read(EntryLocation(0, 1027)), Damaged)


# ── the ledgers map ──────────────────────────────────────────────────────────────────────────────────────


def sealed(map_offset: int, count: int, behind: bytes = b"") -> bytes:
    """Return a log of one entry whose header says that its map is here, and the bytes after the entry."""
    log = change(Log().add(entry_bytes(1, 0)).file(), 8, entrylog_format.encode_map_fields(map_offset, count))
    return log + behind


PLACE = len(Log().add(entry_bytes(1, 0)).data)
BYTES = PLACE - 1024
ONE_MAP = entrylog_format.encode_ledgers_map({1: BYTES})[0]


@pytest.mark.parametrize(
    ("behind", "answer"),
    [
        (ONE_MAP, {1: BYTES}),
        (ONE_MAP + bytes(50), {1: BYTES}),
        (ONE_MAP + b"\xf0" * 50, {1: BYTES}),
        (
            entrylog_format.encode_ledgers_map({1: BYTES + 1})[0],
            Damaged(8, Flaw.BAD_MAP, "more bytes than stand before the map"),
        ),
        (
            entrylog_format.encode_ledgers_map({1: 5, 2: 6})[0],
            Damaged(8, Flaw.BAD_MAP, "2 ledgers, 1 in the header"),
        ),
        (ONE_MAP[:-1], Damaged(PLACE, Flaw.BAD_MAP, Flaw.BODY_CUT.value)),
        (ONE_MAP + b"\0\0\0\3", Damaged(PLACE + 40, Flaw.BAD_MAP, Flaw.LENGTH_TOO_SMALL.value)),
        (
            ONE_MAP + entrylog_format.encode_record(entry_bytes(1, 1)),
            Damaged(PLACE + 40, Flaw.BAD_MAP, "another record inside the map"),
        ),
        (
            entrylog_format.encode_record(struct.pack(">qqi", -1, -2, 7)),
            Damaged(PLACE, Flaw.BAD_MAP, "7 ledgers in a record of 20"),
        ),
    ],
    ids=[
        "sound",
        "zeros behind",
        "direct padding behind",
        "a byte too many",
        "a ledger too many",
        "torn",
        "damaged behind",
        "an entry behind",
        "contradicting",
    ],
)
def test_a_map_is_believed_only_as_a_whole(behind: bytes, answer: object) -> None:
    assert reader(sealed(PLACE, 1, behind)).ledgers_map() == answer


def test_a_sealed_log_without_a_ledger_in_its_map_is_damaged() -> None:
    answer = reader(sealed(PLACE, 0, bytes(100))).ledgers_map()
    assert answer == Damaged(8, Flaw.BAD_MAP, "0 ledgers, 0 in the header")


def test_an_unsealed_log_has_no_map_and_a_damaged_header_is_reported() -> None:
    assert reader(Log().add(entry_bytes(1, 0)).file()).ledgers_map() == NotSealed()
    assert reader(b"short").ledgers_map() == NotSealed()
    old = change(sealed(PLACE, 1, ONE_MAP), 4, bytes(4))
    assert reader(old).ledgers_map() == NotSealed()
    assert reader(change(old, 0, b"x")).ledgers_map() == Damaged(0, Flaw.BAD_MAGIC)
