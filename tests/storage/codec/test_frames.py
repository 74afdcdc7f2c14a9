"""Whole blocks: with numpy and without, the same answers."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import BookieJournal, OurJournal, change, entry_bytes, flip

from storage.codec import entry as entry_codec
from storage.codec import entrylog as log_codec
from storage.codec import frames, frames_numpy, frames_plain
from storage.codec import journal as journal_codec
from storage.codec.digest import Digester, digester
from storage.entry import DigestType, Entry

if TYPE_CHECKING:
    from storage.codec.digest import Buffer
    from storage.codec.frames import Frames, Kernel
    from storage.codec.frames_plain import Skip

KERNELS: list[Kernel] = [frames_plain, frames_numpy]
BATCHED = [DigestType.CRC32C, DigestType.CRC32]


def block(sizes: list[int], digest: Digester, seed: int = 1) -> bytes:
    dice = random.Random(seed)
    entries = [
        entry_codec.encode(Entry(dice.randrange(4), number, number - 1, number, dice.randbytes(size)), digest)
        for number, size in enumerate(sizes)
    ]
    return b"".join(map(journal_codec.encode_record, entries))


def answer(found: Frames) -> tuple[list[int], list[int], int]:
    return list(found.starts), list(found.ends), found.split_to


SIZES = st.lists(st.integers(0, 300), max_size=30) | st.integers(0, 300).flatmap(
    lambda size: st.integers(0, 40).map(lambda count: [size] * count)
)


@given(SIZES, st.sampled_from(BATCHED), st.integers(0, 10**9))
def test_both_ways_split_and_verify_alike_whatever_is_damaged(
    sizes: list[int], kind: DigestType, seed: int
) -> None:
    digest = digester(kind)
    data = bytearray(block(sizes, digest))
    dice = random.Random(seed)
    for _ in range(dice.randrange(4) if data else 0):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    plain, fast = (kernel.split_log(data, 0) for kernel in KERNELS)
    assert answer(plain) == answer(fast)
    assert frames_plain.mismatches(data, plain, digest) == frames_numpy.mismatches(data, fast, digest)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", BATCHED)
@pytest.mark.parametrize("sizes", [[100] * 50, [0] * 9, [5, 900, 0, 33, 33, 33, 33, 7]])
def test_a_sound_block_splits_whole_and_every_damaged_entry_is_named(
    kernel: Kernel, kind: DigestType, sizes: list[int]
) -> None:
    digest = digester(kind)
    data = block(sizes, digest)
    found = kernel.split_log(data, 0)
    assert found.split_to == len(data)
    assert len(found) == len(sizes)
    assert kernel.mismatches(data, found, digest) == []
    for index, (start, end) in enumerate(zip(found.starts, found.ends, strict=True)):
        for offset in (start + 9, start + 32, end - 1):
            damaged = flip(data, int(offset), 5)
            assert kernel.mismatches(damaged, found, digest) == [index]


@pytest.mark.parametrize("kernel", KERNELS)
def test_errors_that_would_cancel_in_a_sum_are_named(kernel: Kernel) -> None:
    digest = digester(DigestType.CRC32C)
    data = bytearray(block([64] * 20, digest))
    found = kernel.split_log(data, 0)
    for index in (3, 4, 11):
        data[found.starts[index] + 40] ^= 0x10
    assert kernel.mismatches(data, found, digest) == [3, 4, 11]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("byte", range(4))
def test_a_crc32_needs_zeros_in_its_upper_half(kernel: Kernel, byte: int) -> None:
    digest = digester(DigestType.CRC32)
    data = bytearray(block([64] * 20, digest))
    found = kernel.split_log(data, 0)
    data[found.starts[7] + 32 + byte] = 1
    assert kernel.mismatches(data, found, digest) == [7]


@pytest.mark.parametrize("kernel", KERNELS)
def test_macs_are_verified_one_by_one(kernel: Kernel) -> None:
    digest = digester(DigestType.MAC, b"pw")
    data = block([10, 20, 30], digest)
    found = kernel.split_log(data, 0)
    assert kernel.mismatches(data, found, digest) == []
    assert kernel.mismatches(flip(data, int(found.starts[1]) + 60), found, digest) == [1]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("make", [OurJournal, BookieJournal])
def test_a_journal_s_block_is_split_over_its_padding(
    kernel: Kernel, make: type[OurJournal | BookieJournal]
) -> None:
    journal = make(1)
    written = []
    for number in range(12):
        records = [journal_codec.encode_record(entry_bytes(1, 3 * number + i)) for i in range(3)]
        written += records
        if isinstance(journal, OurJournal):
            journal.group(*records)
        else:
            journal.flush(*records)
    data, digest = journal.file(), digester(DigestType.CRC32C)
    found = kernel.split_journal(data, 512)
    assert [data[start - 4 : end] for start, end in zip(found.starts, found.ends, strict=True)] == written
    assert kernel.mismatches(data, found, digest) == []
    assert any(start - 4 != end for end, start in zip(found.ends, found.starts[1:], strict=False))
    assert kernel.mismatches(flip(data, int(found.starts[17]) + 38), found, digest) == [17]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "what",
    [bytes(4), (-1).to_bytes(4, "big", signed=True), (2**31 - 1).to_bytes(4, "big"), (31).to_bytes(4, "big")],
    ids=["zero", "negative", "huge", "too small"],
)
def test_splitting_stops_at_what_is_no_entry(kernel: Kernel, what: bytes) -> None:
    data = block([50] * 20, digester(DigestType.CRC32C))
    place = 90 * 12
    found = kernel.split_log(change(data, place, what), 0)
    assert (len(found), found.split_to) == (12, place)


@pytest.mark.parametrize("kernel", KERNELS)
def test_splitting_stops_at_special_records_and_the_ledgers_map(kernel: Kernel) -> None:
    data = block([50] * 3, digester(DigestType.CRC32C))
    for special in (journal_codec.encode_fence(1), journal_codec.encode_ledger_key(1, b"k" * 20)):
        assert kernel.split_journal(data + special + data, 0).split_to == len(data)
    (meta,) = log_codec.encode_ledgers_map({1: 2})
    assert kernel.split_log(data + meta + data, 0).split_to == len(data)


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_entry_cut_off_by_the_block_s_end_waits_for_the_next_block(kernel: Kernel) -> None:
    data = block([50, 60], digester(DigestType.CRC32C))
    for size in range(90, len(data)):
        assert kernel.split_log(data[:size], 0).split_to == 90


def test_the_public_functions_use_numpy_when_it_is_there() -> None:
    data = block([50] * 3, digester(DigestType.CRC32C))
    assert answer(frames.split_log(data)) == answer(frames_numpy.split_log(data, 0))
    assert frames._kernel() is frames_numpy
    assert frames.mismatches(data, frames.split_journal(data), digester(DigestType.CRC32C)) == []


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_anything_at_all_is_split_alike(data: bytes) -> None:
    for split in ("split_log", "split_journal"):
        plain, fast = (answer(getattr(kernel, split)(data, 0)) for kernel in KERNELS)
        assert plain == fast


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("ledger_id", "entry_id", "splits"),
    [
        (0, 0, True),
        (2**55, 2**55, True),
        (-1, 5, False),
        (5, -1, False),
        (-2, -2, False),
        (-(2**63), 5, False),
        (5, -(2**63), False),
    ],
)
def test_splitting_stops_at_negative_ids(kernel: Kernel, ledger_id: int, entry_id: int, splits: bool) -> None:
    data = block([50] * 12, digester(DigestType.CRC32C))
    changed = change(data, 90 * 10 + 4, struct.pack(">qq", ledger_id, entry_id))
    found = kernel.split_log(changed, 0)
    assert (len(found), found.split_to) == ((12, len(data)) if splits else (10, 900))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("count", [1, 2, 30])
def test_entries_that_are_nothing_but_a_head_are_split(kernel: Kernel, count: int) -> None:
    data = block([0] * count, digester(DigestType.DUMMY))
    assert len(data) == 36 * count
    assert (len(kernel.split_log(data, 0)), kernel.split_log(data, 0).split_to) == (count, len(data))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("count", [1, 20])
def test_no_entry_above_the_limit_is_split(
    kernel: Kernel, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (frames_plain, frames_numpy):
        monkeypatch.setattr(module, "RECORD_SIZE_MAX", 100)
    digest = digester(DigestType.CRC32C)
    assert len(kernel.split_log(block([64] * count, digest), 0)) == count
    assert len(kernel.split_log(block([65] * count, digest), 0)) == 0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [4, 7, 8, 100, 511])
def test_padding_cut_off_by_the_block_s_end_waits_for_the_next_block(kernel: Kernel, size: int) -> None:
    data = block([50], digester(DigestType.CRC32C))
    cut = data + journal_codec.encode_free_padding(512)[:size]
    assert kernel.split_journal(cut, 0).split_to == len(data)
    whole = data + journal_codec.encode_free_padding(512)
    assert kernel.split_journal(whole, 0).split_to == len(whole)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_block_without_an_entry_has_no_mismatch(kernel: Kernel) -> None:
    for kind in BATCHED:
        assert kernel.mismatches(b"", kernel.split_log(b"", 0), digester(kind)) == []


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", BATCHED)
def test_an_entry_too_short_for_its_digest_is_a_mismatch(kernel: Kernel, kind: DigestType) -> None:
    data = block([50] * 3, digester(kind)) + block([0], digester(DigestType.DUMMY))
    assert kernel.mismatches(data, kernel.split_log(data, 0), digester(kind)) == [3]


# ── with numpy, the long way is not taken ────────────────────────────────────────────────────────────────


@pytest.fixture
def no_detour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks at the entries one by one fails."""
    monkeypatch.setattr(frames_plain, "mismatches", None)


@pytest.mark.usefixtures("no_detour")
@pytest.mark.parametrize("kind", BATCHED)
@pytest.mark.parametrize("sizes", [[100] * 50, [0], [0] * 9, [5, 900, 0, 33, 33, 33, 33, 7]])
def test_a_sound_block_is_verified_at_once(kind: DigestType, sizes: list[int]) -> None:
    digest = digester(kind)
    data = block(sizes, digest)
    for lead in (b"", b"something in front"):
        found = frames_plain.split_log(lead + data + b"behind", len(lead))
        assert frames_numpy.mismatches(lead + data + b"behind", found, digest) == []


@pytest.mark.usefixtures("no_detour")
@pytest.mark.parametrize("kind", BATCHED)
def test_padding_between_entries_does_not_matter_to_the_one_checksum(kind: DigestType) -> None:
    digest = digester(kind)
    dice = random.Random(4)
    data = b""
    for number in range(6):
        padding = journal_codec.encode_free_padding(8 + number * 7, dice.randbytes(number * 7))
        data += block([20 + number, 30], digest, seed=number) + padding
    found = frames_numpy.split_journal(data, 0)
    assert len(found) == 12
    assert frames_numpy.mismatches(data, found, digest) == []


def one_by_one_from(data: bytes, start: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Where splitting with numpy goes over to one entry after the other."""
    places: list[int] = []

    def split(block: Buffer, at: int, skip: Skip) -> Frames:
        places.append(at)
        return plain(block, at, skip)

    plain = frames_plain.split
    with monkeypatch.context() as patched:
        patched.setattr(frames_plain, "split", split)
        frames_numpy.split_log(data, start)
    (place,) = places
    return place


def test_a_run_of_entries_of_one_size_is_split_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = digester(DigestType.CRC32C)
    for sizes in ([50] * 20, [50] * 8 + [51] * 8 + [50] * 9 + [0] * 8 + [7] * 8):
        data = block(sizes, digest)
        assert one_by_one_from(data, 0, monkeypatch) == len(data)
        assert one_by_one_from(b"lead" + data + b"behind", 4, monkeypatch) == 4 + len(data)


def test_after_three_short_runs_entries_are_split_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    data = block([50] * 7 + [51] * 8 + [52] * 7 + [53] + [54] * 9, digester(DigestType.CRC32C))
    three_runs_missed = 7 * 90 + 8 * 91 + 7 * 92 + 93
    assert one_by_one_from(data, 0, monkeypatch) == three_runs_missed
