"""Our encoders follow the journal's format, rule by rule."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import OurJournal, change, entry_record, flip, reader

from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import JournalPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.errors import InvalidFormat
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.group_reader import GroupWatch, SealedGroup, groups
from storage.journal.reader import StoredPadding, StoredRecord
from storage.journal.seal import GroupFlag, Seal

IDS = st.integers(0, 2**63 - 1)
POSITIONS = st.builds(JournalPosition, IDS, IDS)
ALIGNMENTS = st.sampled_from(journal_seal.ALIGNMENTS)


# ── header ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("version", "size"), [(4, 8), (5, 512), (6, 512)])
def test_a_header_has_its_version_s_size(version: int, size: int) -> None:
    header = journal_format.JournalHeader(version)
    encoded = journal_format.encode_header(header)
    assert len(encoded) == header.size == size
    assert encoded[:8] == b"BKLG" + struct.pack(">i", version)
    assert not any(encoded[8:])


@pytest.mark.parametrize("version", [0, 1, 2, 3, 7, -1])
def test_only_versions_4_to_6_are_written(version: int) -> None:
    with pytest.raises(InvalidFormat):
        journal_format.encode_header(journal_format.JournalHeader(version))


def test_a_short_header_has_no_room_for_a_salt() -> None:
    with pytest.raises(InvalidFormat):
        journal_format.encode_header(journal_format.JournalHeader(4, salt=1))


@given(st.sampled_from([5, 6]), st.integers(0, 2**64 - 1))
def test_our_header_keeps_its_salt_in_bytes_that_a_bookie_ignores(version: int, salt: int) -> None:
    encoded = journal_format.encode_header(journal_format.JournalHeader(version, salt))
    assert journal_format.decode_header(encoded) == journal_format.JournalHeader(version, salt)
    assert encoded[:8] == journal_format.encode_header(journal_format.JournalHeader(version))[:8]
    assert encoded[8:12] == b"LSSL"
    assert encoded[16:24] == salt.to_bytes(8, "big")
    assert not any(encoded[24:])


def test_no_flipped_bit_in_our_header_is_believed() -> None:
    encoded = journal_format.encode_header(journal_format.JournalHeader(6, 0x1234567890ABCDEF))
    for bit in range(512 * 8):
        assert isinstance(journal_format.decode_header(flip(encoded, bit // 8, bit % 8)), Damaged), bit


@pytest.mark.parametrize(
    ("version", "flaw"),
    [
        (0, Flaw.BAD_VERSION),
        (1, Flaw.BAD_VERSION),
        (-1, Flaw.BAD_VERSION),
        (7, Flaw.FUTURE_VERSION),
        (2**31 - 1, Flaw.FUTURE_VERSION),
    ],
)
def test_versions_that_were_never_written_are_damage(version: int, flaw: Flaw) -> None:
    head = (b"BKLG" + struct.pack(">i", version)).ljust(512, b"\0")
    answer = journal_format.decode_header(head)
    assert isinstance(answer, Damaged)
    assert answer.flaw is flaw


def test_a_newer_version_of_ours_is_named_as_such() -> None:
    plain = b"BKLG" + struct.pack(">i", 7) + b"LSSL" + bytes(4) + bytes(8)
    plain = plain.ljust(512, b"\0")
    checksum = crc32c(plain[16:], crc32c(plain[:12]))
    answer = journal_format.decode_header(plain[:12] + struct.pack(">I", checksum) + plain[16:])
    assert answer == Damaged(4, Flaw.FUTURE_VERSION, "version 7")


def test_a_header_cut_short_is_void() -> None:
    encoded = journal_format.encode_header(journal_format.JournalHeader(6, 99))
    assert {journal_format.decode_header(encoded[:size]) for size in range(512)} == {journal_format.Void()}


def test_a_bookie_s_header_with_bytes_where_zeros_belong_is_damaged() -> None:
    head = bytearray(journal_format.encode_header(journal_format.JournalHeader(6)))
    head[300] = 1
    assert journal_format.decode_header(head) == Damaged(8, Flaw.HEADER_FILL)


# ── records ──────────────────────────────────────────────────────────────────────────────────────────────


@given(IDS, st.binary(min_size=8, max_size=200))
def test_a_record_is_its_length_and_its_body(ledger_id: int, rest: bytes) -> None:
    body = struct.pack(">q", ledger_id) + rest
    assert journal_format.encode_record(body) == struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("body", [b"", bytes(15), bytes(RECORD_SIZE_MAX + 1), b"\x80" + bytes(15)])
def test_a_record_that_no_reader_would_believe_is_not_written(body: bytes) -> None:
    with pytest.raises(InvalidFormat):
        journal_format.encode_record(body)


@given(IDS, st.binary(max_size=64))
def test_a_ledger_key_record(ledger_id: int, key: bytes) -> None:
    record = journal_format.encode_ledger_key(ledger_id, key)
    assert record == struct.pack(">iqqi", 20 + len(key), ledger_id, -0x1000, len(key)) + key
    assert journal_format.decode_record(record[4:], 6) == journal_format.LedgerKey(ledger_id, key)


@given(IDS)
def test_a_fence_record(ledger_id: int) -> None:
    record = journal_format.encode_fence(ledger_id)
    assert record == struct.pack(">iqq", 16, ledger_id, -0x2000)
    assert journal_format.decode_record(record[4:], 6) == journal_format.Fence(ledger_id)


@given(IDS, st.binary(max_size=64))
def test_an_explicit_lac_record(ledger_id: int, packet: bytes) -> None:
    record = journal_format.encode_explicit_lac(ledger_id, packet)
    assert record == struct.pack(">iqqi", 20 + len(packet), ledger_id, -0x8000, len(packet)) + packet
    assert journal_format.decode_record(record[4:], 6) == journal_format.ExplicitLac(ledger_id, packet)


@pytest.mark.parametrize(
    ("record", "first_version"),
    [
        (journal_format.encode_ledger_key(1, b"k"), 3),
        (journal_format.encode_fence(1), 4),
        (journal_format.encode_explicit_lac(1, b"p"), 6),
    ],
)
def test_special_records_exist_from_their_version_on(record: bytes, first_version: int) -> None:
    assert not isinstance(journal_format.decode_record(record[4:], first_version), Damaged)
    answer = journal_format.decode_record(record[4:], first_version - 1)
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.RECORD_TOO_NEW


def test_an_unknown_negative_entry_id_is_a_record_to_skip() -> None:
    body = struct.pack(">qq", 7, -0x10000) + b"anything"
    assert journal_format.decode_record(body, 6) == journal_format.UnknownRecord(7, -0x10000, body)


@pytest.mark.parametrize("inner", [-1, 0, 19, 21, 2**31 - 1])
def test_an_inner_length_that_disagrees_is_damage(inner: int) -> None:
    body = struct.pack(">qqi", 1, journal_format.LEDGER_KEY, inner) + bytes(20)
    answer = journal_format.decode_record(body, 6)
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.INNER_LENGTH


def test_a_fence_with_bytes_after_it_is_damage() -> None:
    assert isinstance(journal_format.decode_record(journal_format.encode_fence(1)[4:] + b"x", 6), Damaged)


def test_a_negative_ledger_is_damage() -> None:
    body = struct.pack(">qq", -5, 1) + bytes(30)
    answer = journal_format.decode_record(body, 6)
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.LEDGER_NEGATIVE


def frame(length: int, remaining: int, version: int = 6) -> object:
    return journal_format.frame(
        struct.pack(">ii", length, 0), 512, remaining, journal_format.JournalHeader(version)
    )


def test_lengths_and_what_they_mean() -> None:
    assert frame(0, 1000) == EndOfData(512)
    assert frame(16, 1000) == journal_format.JournalFrame(
        journal_format.JournalFrameKind.RECORD, 512, 516, 532
    )
    assert frame(996, 1000) == journal_format.JournalFrame(
        journal_format.JournalFrameKind.RECORD, 512, 516, 1512
    )
    assert frame(997, 1000) == Torn(512, Flaw.BODY_CUT)
    assert frame(2**31 - 1, 1000) == Torn(512, Flaw.BODY_CUT)
    assert frame(-1, 1000) == Damaged(512, Flaw.LENGTH_NEGATIVE, "length -1")
    assert frame(-5, 1000) == Damaged(512, Flaw.LENGTH_NEGATIVE, "length -5")
    assert frame(15, 1000) == Damaged(512, Flaw.LENGTH_TOO_SMALL, "length 15")
    assert frame(2**31 - 1, 2**32) == Damaged(512, Flaw.LENGTH_TOO_LARGE, "length 2147483647")
    assert frame(-0x100, 1000) == journal_format.JournalFrame(
        journal_format.JournalFrameKind.PADDING, 512, 520, 520
    )
    assert frame(-0x100, 1000, version=4) == Damaged(512, Flaw.LENGTH_NEGATIVE, "length -256")
    assert frame(-0x100, 7) == Torn(512, Flaw.LENGTH_CUT)


def test_the_end_of_the_file_inside_a_length() -> None:
    assert journal_format.frame(b"\0\0\0", 512, 3, journal_format.JournalHeader(6)) == EndOfData(512)
    assert journal_format.frame(b"\0\0\1", 512, 3, journal_format.JournalHeader(6)) == Torn(
        512, Flaw.LENGTH_CUT
    )
    assert journal_format.frame(b"", 512, 0, journal_format.JournalHeader(6)) == EndOfData(512)


# ── padding ──────────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(512, 1 << 24), ALIGNMENTS)
def test_padding_ends_at_the_alignment_and_has_room_for_its_two_lengths(
    position: int, alignment: int
) -> None:
    padding = journal_format.encode_padding(position, alignment)
    assert (position + len(padding)) % alignment == 0
    assert len(padding) == 0 or 8 <= len(padding) < alignment + 8
    if padding:
        assert padding == struct.pack(">ii", -0x100, len(padding) - 8) + bytes(len(padding) - 8)


@pytest.mark.parametrize(
    ("missing", "size"), [(0, 0), (1, 513), (4, 516), (7, 519), (8, 8), (9, 9), (511, 511)]
)
def test_padding_that_does_not_fit_goes_on_into_the_next_unit(missing: int, size: int) -> None:
    assert len(journal_format.encode_padding(1024 - missing, 512)) == size


# ── groups and seals ─────────────────────────────────────────────────────────────────────────────────────

SEALS = st.builds(
    Seal,
    journal_id=IDS,
    salt=st.integers(0, 2**64 - 1),
    sequence=st.integers(1, 2**64 - 1),
    group_start=st.integers(0, 1 << 40),
    durable_up_to=POSITIONS,
    record_count=st.integers(0, 2**32 - 1),
    flags=st.sampled_from(GroupFlag),
)


@given(SEALS, st.lists(st.binary(min_size=20, max_size=900), max_size=6), ALIGNMENTS)
def test_a_group_ends_aligned_with_its_seal_as_the_last_64_bytes(
    seal: Seal, records: list[bytes], alignment: int
) -> None:
    seal = Seal(seal.journal_id, seal.salt, seal.sequence, seal.group_start * alignment, seal.durable_up_to,
                seal.record_count, seal.flags)  # fmt: skip
    group = journal_seal.encode_group(records, sum(map(len, records)), seal, alignment)
    assert len(group) % alignment == 0
    stored = journal_seal.decode(group[-64:])
    assert isinstance(stored, journal_seal.StoredSeal)
    assert stored.seal == seal
    assert stored.checksum == crc32c(group[:-4])
    mark = journal_seal.encode_atomic_mark() if seal.flags else b""
    assert group.startswith(mark + b"".join(records))


@given(st.integers(0, 8191), ALIGNMENTS)
def test_a_seal_always_has_room(position: int, alignment: int) -> None:
    size = journal_seal.padding_size(position, alignment)
    assert (position + size) % alignment == 0
    assert 8 + 64 <= size < 8 + 64 + alignment


@pytest.mark.parametrize("alignment", journal_seal.ALIGNMENTS)
def test_groups_begin_aligned_after_the_header(alignment: int) -> None:
    journal = OurJournal(5, alignment=alignment)
    assert journal.end == journal_seal.first_group_start(alignment) == alignment
    journal.group(entry_record(1, 0)).group(entry_record(1, 1))
    found = list(groups(reader(journal.file(), 5)))
    assert [type(group) for group in found] == [SealedGroup, SealedGroup, EndOfData]
    assert [group.start for group in found[:2] if isinstance(group, SealedGroup)] == [
        alignment,
        journal.ends[0],
    ]


def test_an_empty_group_is_one_sealed_padding_record() -> None:
    journal = OurJournal(5).group()
    items = list(reader(journal.file(), 5).items(4096))
    assert isinstance(items[0], StoredPadding)
    assert isinstance(items[0].seal, journal_seal.StoredSeal)
    assert items[0].end - items[0].offset == 4096


def test_a_bookie_sees_only_records_and_padding_in_our_journals() -> None:
    """The real reader's loop: a length; 0 ends, -0x100 skips, anything else is a record of that length."""
    journal = OurJournal(5)
    journal.group(entry_record(1, 0), entry_record(1, 1)).group(
        journal_format.encode_fence(1), flags=GroupFlag.ATOMIC
    )
    data, at, seen = journal.file(), 512, []
    while length := struct.unpack_from(">i", data, at)[0]:
        if length == -0x100:
            at += 8 + struct.unpack_from(">i", data, at + 4)[0]
        else:
            seen.append(data[at : at + 4 + length])
            at += 4 + length
    assert seen == [entry_record(1, 0), entry_record(1, 1), journal_format.encode_fence(1)]


@pytest.mark.parametrize(
    "tail",
    [b"", bytes(63), bytes(64), b"BKLG" + bytes(60), b"LSSM" + bytes(60)],
    ids=["none", "short", "zeros", "other", "near"],
)
def test_padding_without_a_seal(tail: bytes) -> None:
    assert journal_seal.decode(tail) == journal_seal.NoSeal()


@pytest.mark.parametrize(
    ("offset", "byte", "flaw"),
    [
        (4, 2, Flaw.FUTURE_VERSION),
        (4, 0, Flaw.BAD_VERSION),
        (5, 2, Flaw.BAD_FIELD),
        (40, 0x80, Flaw.BAD_FIELD),
    ],
)
def test_an_impossible_seal_is_reported_only_if_its_checksum_matches(
    offset: int, byte: int, flaw: Flaw
) -> None:
    group = bytearray(OurJournal(5).group(entry_record(1, 0)).file()[4096:8192])
    group[-64 + offset] = byte
    data = OurJournal(5).file()
    assert group_flaw(data[:4096] + group + data[8192:]) is Flaw.CHECKSUM
    group[-4:] = crc32c(bytes(group[:-4])).to_bytes(4, "big")
    assert group_flaw(data[:4096] + group + data[8192:]) is flaw


def test_an_atomic_mark_and_its_flag_go_together() -> None:
    mark = journal_seal.encode_atomic_mark()
    marked = OurJournal(5)
    marked.group(mark, entry_record(1, 0))  # the mark as if it were a record, and no flag
    assert group_flaw(marked.file()) is Flaw.BAD_FIELD


def test_the_first_group_has_number_1() -> None:
    journal = OurJournal(5)
    journal.sequence = 1
    assert group_flaw(journal.group(entry_record(1, 0)).file()) is Flaw.SEAL_ORDER


def group_flaw(data: bytes, journal_id: int = 5) -> Flaw:
    *_, last = groups(reader(data, journal_id))
    assert isinstance(last, Damaged)
    return last.flaw


def test_a_seal_of_another_journal_is_not_accepted() -> None:
    assert group_flaw(OurJournal(5).group(entry_record(1, 0)).file(), journal_id=6) is Flaw.OTHER_PLACE


def test_a_seal_with_another_salt_is_not_accepted() -> None:
    other = OurJournal(5, salt=1).group(entry_record(1, 0)).file()
    ours = OurJournal(5, salt=2).file()
    assert group_flaw(ours[:4096] + other[4096:]) is Flaw.OTHER_PLACE


def test_a_group_moved_to_another_offset_is_not_accepted() -> None:
    journal = OurJournal(5).group(entry_record(1, 0)).group(entry_record(1, 1))
    data = journal.file()
    assert group_flaw(data[:8192] + data[4096:8192] + data[12288:]) is Flaw.OTHER_PLACE


def test_a_group_out_of_sequence_is_not_accepted() -> None:
    journal = OurJournal(5).group(entry_record(1, 0))
    journal.sequence = 2
    assert group_flaw(journal.group(entry_record(1, 1)).file()) is Flaw.SEAL_ORDER


def test_a_payload_that_contains_a_journal_is_not_taken_for_one() -> None:
    inner = OurJournal(5).group(entry_record(9, 0)).file()[:8192]
    outer = OurJournal(5)
    outer.group(entry_record(1, 0, inner), entry_record(1, 1))
    records = [item for item in reader(outer.file(), 5).items() if isinstance(item, StoredRecord)]
    assert len(records) == 2
    damaged = bytearray(outer.file())
    damaged[4096 + 50] ^= 1
    assert list(reader(bytes(damaged), 5).seals_after(4096)) == []


def resealed(group: bytes, flags: int) -> bytes:
    """Return the group with other flags in its seal, and the checksum for them."""
    changed = group[:-59] + bytes([flags]) + group[-58:-4]
    return changed + crc32c(changed).to_bytes(4, "big")


def test_an_atomic_group_is_a_group_like_any_other() -> None:
    journal = OurJournal(5).group(entry_record(1, 0), entry_record(1, 1), flags=GroupFlag.ATOMIC)
    journal.group(entry_record(1, 2))
    first, second, end = groups(reader(journal.file(), 5))
    assert isinstance(first, SealedGroup)
    assert isinstance(second, SealedGroup)
    assert (first.seal.flags, first.record_count) == (GroupFlag.ATOMIC, 2)
    assert (second.seal.flags, second.record_count) == (GroupFlag.NONE, 1)
    assert end == EndOfData(journal.end)
    assert [stored.flaw for stored in reader(journal.file(), 5).seals_after(0)] == [None, None]


def test_an_atomic_mark_is_four_bytes_in_a_padding_record() -> None:
    assert journal_seal.encode_atomic_mark() == struct.pack(">ii", -0x100, 4) + b"LSAT"


def test_an_atomic_mark_counts_only_before_its_group() -> None:
    data = OurJournal(5).group(entry_record(1, 0) + journal_seal.encode_atomic_mark()).file()
    group = resealed(data[4096:8192], GroupFlag.ATOMIC)
    assert group_flaw(data[:4096] + group + data[8192:]) is Flaw.SEAL_MISSING


@pytest.mark.parametrize("offset", [8, 32, 40, 48], ids=["journal", "start", "durable in", "durable to"])
def test_a_seal_with_a_negative_position_is_damage(offset: int) -> None:
    tail = OurJournal(5).group(entry_record(1, 0)).file()[8192 - 64 : 8192]
    for changed, flaw in ((tail, None), (change(tail, offset, b"\x80"), Flaw.BAD_FIELD)):
        stored = journal_seal.decode(changed)
        assert isinstance(stored, journal_seal.StoredSeal)
        assert stored.flaw is flaw


@pytest.mark.parametrize(("flags", "flaw"), [(0, None), (1, None), (2, Flaw.BAD_FIELD), (3, Flaw.BAD_FIELD)])
def test_a_seal_with_unknown_flags_is_damage(flags: int, flaw: Flaw | None) -> None:
    tail = resealed(OurJournal(5).group(entry_record(1, 0)).file()[4096:8192], flags)[-64:]
    stored = journal_seal.decode(tail)
    assert isinstance(stored, journal_seal.StoredSeal)
    assert stored.flaw is flaw


def test_a_watch_knows_the_first_record_after_the_last_seal() -> None:
    journal = OurJournal(5).group(entry_record(1, 0), entry_record(1, 1))
    opened = reader(journal.file(), 5)
    watch = GroupWatch(opened, 4096)
    seen = []
    for item in opened.items(4096):
        if isinstance(item, StoredRecord):
            watch.record(item)
        elif isinstance(item, StoredPadding):
            watch.padding(item)
        seen.append(watch.first_record)
    assert seen == [4096, 4096, None, None]


def test_only_the_first_512_bytes_are_the_header() -> None:
    for header in (
        journal_format.JournalHeader(6, 99),
        journal_format.JournalHeader(6),
        journal_format.JournalHeader(4),
    ):
        assert (
            journal_format.decode_header(journal_format.encode_header(header).ljust(512, b"\0") + b"more")
            == header
        )
    assert journal_format.decode_header(bytes(512) + b"more") == journal_format.Void()


def test_a_damaged_header_is_damaged_as_a_whole() -> None:
    encoded = journal_format.encode_header(journal_format.JournalHeader(6, 99))
    assert journal_format.decode_header(flip(encoded, 300)) == Damaged(0, Flaw.CHECKSUM)


def test_a_newer_version_is_newer_even_if_the_file_is_short() -> None:
    assert journal_format.decode_header(b"BKLG\0\0\0\7" + bytes(100)) == Damaged(
        4, Flaw.FUTURE_VERSION, "version 7"
    )


@pytest.mark.parametrize(
    ("body", "damage"),
    [
        (struct.pack(">qq", -1, 5), Damaged(0, Flaw.LEDGER_NEGATIVE, "ledger -1")),
        (struct.pack(">qqx", 1, journal_format.FENCE), Damaged(0, Flaw.INNER_LENGTH)),
        (struct.pack(">qq", 1, journal_format.LEDGER_KEY), Damaged(16, Flaw.INNER_LENGTH)),
        (struct.pack(">qqxxx", 1, journal_format.EXPLICIT_LAC), Damaged(16, Flaw.INNER_LENGTH)),
        (
            struct.pack(">qqi", 1, journal_format.LEDGER_KEY, 1),
            Damaged(16, Flaw.INNER_LENGTH, "1 in a body of 20"),
        ),
    ],
)
def test_a_record_s_damage_has_its_place(body: bytes, damage: Damaged) -> None:
    assert journal_format.decode_record(body, 6) == damage


def test_the_place_of_a_record_too_new_is_its_entry_id() -> None:
    answer = journal_format.decode_record(journal_format.encode_fence(1)[4:], 3)
    assert answer == Damaged(8, Flaw.RECORD_TOO_NEW, "entry id -8192 in version 3")


def test_a_record_with_an_entry_id_from_0_on_is_an_entry() -> None:
    assert journal_format.decode_record(struct.pack(">qq", 0, 0), 6) == journal_format.EntryRecord(
        0, 0, bytes(16)
    )
    body = struct.pack(">qq", 0, -1)
    assert journal_format.decode_record(body, 1) == journal_format.UnknownRecord(0, -1, body)


def test_the_limits_of_a_record_s_length() -> None:
    assert frame(RECORD_SIZE_MAX, 2**32) == journal_format.JournalFrame(
        journal_format.JournalFrameKind.RECORD, 512, 516, 516 + RECORD_SIZE_MAX
    )
    assert journal_format.frame(b"\0\0\0\x20", 512, 4, journal_format.JournalHeader(6)) == Torn(
        512, Flaw.BODY_CUT
    )
    assert journal_format.frame(bytes(4), 512, 4, journal_format.JournalHeader(6)) == EndOfData(512)
