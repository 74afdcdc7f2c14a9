"""Batches of entries out of blocks and out of tables: with numpy and without, the same right results."""

from __future__ import annotations

import random
import struct
from array import array
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import many
from store_internals import kernel_of

from storage.entry import batch as entry_batch
from storage.entry import batch_numpy, batch_plain, verify
from storage.entry import format as entry_format
from storage.entry.batch import LEAD, SLACK, BlockLayout, EntryBatch, WantedEntries
from storage.entry.digest import Digester, digester
from storage.entry.model import ID_MAX, DigestType, Entry
from storage.entry.read_result import Damaged
from storage.entry.record_format import front_size
from storage.journal import format as journal_format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.entry.batch import BatchKernel

    Told = tuple[int, list[tuple[int, int, int, int]], list[bytes]]

KERNELS: list[BatchKernel] = [batch_plain, batch_numpy]
LEDGER, FIRST = 7, 100
SIZES = [[50] * 40, [0] * 40, [1] * 20 + [2] * 20, [5, 900, 0, 33, 33, 7] * 5, [300] * 33 + [299], [4] * 3]
NEAR = batch_plain.NEAR


def entry(number: int, size: int, ledger_id: int = LEDGER) -> Entry:
    # Zeros at the end too, which must not be taken for padding.
    payload = random.Random(number).randbytes(size - size // 3).ljust(size, b"\0")
    return Entry(ledger_id, number, number - 2, 1000 * number, payload)


def entries_of(sizes: Sequence[int], first: int = FIRST) -> list[Entry]:
    return [entry(number, size) for number, size in enumerate(sizes, first)]


def record(one: Entry, digest: Digester) -> bytes:
    return bytes(journal_format.encode_record(entry_format.encode(one, digest)))


class Block:
    """Records, some with other bytes between them, as they would be laid out and read."""

    def __init__(self, records: Sequence[bytes], gaps: Sequence[int] = ()) -> None:
        dice = random.Random(3)
        pieces, self.starts, at = [], [], 0
        for number, one in enumerate(records):
            gap = dice.randbytes(gaps[number % len(gaps)]) if gaps else b""
            pieces += [one, gap]
            self.starts.append(at)
            at += len(one) + len(gap)
        self.data = b"".join(pieces)

    def taken(self, kernel: BatchKernel, wanted: WantedEntries) -> Told:
        # An earlier block has left these bytes before and after it.
        block = bytearray(b"\xa5" * LEAD + self.data + b"\x5a" * SLACK)
        count, heads, payloads = kernel.of_block(block, self.starts, len(self.data), wanted)
        return count, list(heads), list(chain.from_iterable(payloads))


def wanted_of(digest: Digester, first: int = FIRST) -> WantedEntries:
    return WantedEntries(LEDGER, first, digest)


def told(entries: Sequence[Entry]) -> Told:
    heads = [(one.ledger_id, one.entry_id, one.last_add_confirmed, one.length) for one in entries]
    return len(entries), heads, [one.payload for one in entries]


def sound(block: Block, wanted: WantedEntries) -> list[Entry]:
    """Return the expected batch: one entry after the other, until one is wrong."""
    found: list[Entry] = []
    for start, limit in zip(block.starts, [*block.starts[1:], len(block.data)], strict=True):
        word = block.data[start : start + 4]
        end = start + 4 + int.from_bytes(word, "big", signed=True)
        if len(word) < 4 or not start < end <= limit:
            break
        one = entry_format.decode(block.data[start + 4 : end], wanted.digester)
        if isinstance(one, Damaged) or (one.ledger_id, one.entry_id) != (LEDGER, FIRST + len(found)):
            break
        found.append(one)
    return found


# ── out of blocks ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.sampled(one_of=6)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("gaps", [(), (0, 0, 0, 9), (1, 2, 3, 4, 5), (700,)])
def test_a_sound_block_is_taken_whole(
    kernel: BatchKernel, kind: DigestType, sizes: list[int], gaps: tuple[int, ...]
) -> None:
    digest, entries = digester(kind, b"pw"), entries_of(sizes)
    block = Block([record(one, digest) for one in entries], gaps)
    count, heads, payloads = block.taken(kernel, wanted_of(digest))
    assert (count, heads, payloads) == told(entries)
    assert {type(one) for one in payloads} == {bytes}


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [DigestType.CRC32C, DigestType.CRC32, DigestType.MAC])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("gaps", [(), (3, 0)])
def test_a_block_is_taken_up_to_the_damage(
    kernel: BatchKernel, kind: DigestType, sizes: list[int], gaps: tuple[int, ...]
) -> None:
    digest, entries = digester(kind, b"pw"), entries_of(sizes)
    records = [record(one, digest) for one in entries]
    for index in sorted({0, 1, len(records) // 2, len(records) - 1}):
        for offset in (0, 3, 4, 11, 12, 19, 27, 35, 36, front_size(kind) - 1, len(records[index]) - 1):
            damaged = bytearray(records[index])
            damaged[offset] ^= 0x40
            block = Block([*records[:index], bytes(damaged), *records[index + 1 :]], gaps)
            assert block.taken(kernel, wanted_of(digest)) == told(entries[:index]), (index, offset)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sizes", SIZES)
def test_errors_that_would_cancel_in_a_sum_end_a_batch_at_the_first(
    kernel: BatchKernel, sizes: list[int]
) -> None:
    digest, entries = digester(DigestType.CRC32C), entries_of(sizes)
    records = [bytearray(record(one, digest)) for one in entries]
    for index in (1, 2, len(records) - 1):
        records[index][36] ^= 0x10
    block = Block([bytes(one) for one in records])
    assert block.taken(kernel, wanted_of(digest)) == told(entries[:1])


DAMAGE = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=3)


@pytest.mark.sampled
@settings(max_examples=many(100, 13))
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40) | st.integers(0, 60).map(lambda size: [size] * 30),
    st.sampled_from([DigestType.CRC32C, DigestType.CRC32]),
    st.sampled_from([(), (0, 0, 0, 0, 7), (1, 5)]),
    DAMAGE,
)
def test_both_ways_take_the_entries_that_are_sound_one_by_one(
    sizes: list[int], kind: DigestType, gaps: tuple[int, ...], damage: list[tuple[int, int]]
) -> None:
    digest = digester(kind)
    block = Block([record(one, digest) for one in entries_of(sizes)], gaps)
    data = bytearray(block.data)
    for offset, bits in damage:
        data[offset % len(data)] ^= bits
    block.data = bytes(data)
    expected = told(sound(block, wanted_of(digest)))
    for kernel in KERNELS:
        assert block.taken(kernel, wanted_of(digest)) == expected


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize(
    "other", [entry(FIRST + 21, 50), entry(FIRST + 19, 50), entry(FIRST + 20, 50, ledger_id=LEDGER + 1)]
)
def test_a_batch_ends_at_another_entry(kernel: BatchKernel, kind: DigestType, other: Entry) -> None:
    digest, entries = digester(kind, b"pw"), entries_of([50] * 40)
    records = [record(one, digest) for one in entries]
    records[20] = record(other, digest)
    assert Block(records).taken(kernel, wanted_of(digest)) == told(entries[:20])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("numbers", [(-2, 0), (-(2**63), 0), (-1, -1), (-1, -(2**63))])
def test_a_batch_ends_at_impossible_numbers_under_a_right_digest(
    kernel: BatchKernel, numbers: tuple[int, int]
) -> None:
    digest, entries = digester(DigestType.CRC32C), entries_of([50] * 40)
    records = [record(one, digest) for one in entries]
    head = struct.pack(">qqqq", LEDGER, FIRST + 20, *numbers)
    payload = entries[20].payload
    records[20] = struct.pack(">i", 86) + head + struct.pack(">I", crc32c(payload, crc32c(head))) + payload
    assert Block(records).taken(kernel, wanted_of(digest)) == told(entries[:20])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40])
def test_a_batch_of_the_largest_ids_and_numbers(kernel: BatchKernel, count: int) -> None:
    digest, first = digester(DigestType.CRC32C), ID_MAX - count + 1
    entries = [Entry(ID_MAX, first + number, ID_MAX, ID_MAX, b"x" * 30) for number in range(count)]
    block = Block([record(one, digest) for one in entries])
    assert block.taken(kernel, WantedEntries(ID_MAX, first, digest)) == told(entries)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("word", [0, -1, -(2**31), 31, 35, 87, 89, 2**31 - 1])
@pytest.mark.parametrize("index", [0, 20, 39])
def test_a_batch_ends_at_a_wrong_length_word(kernel: BatchKernel, word: int, index: int) -> None:
    digest, entries = digester(DigestType.CRC32C), entries_of([50] * 40)
    records = [bytearray(record(one, digest)) for one in entries]
    records[index][:4] = struct.pack(">i", word)
    assert Block([bytes(one) for one in records]).taken(kernel, wanted_of(digest)) == told(entries[:index])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("room", [1, 3, 4, 20, 35, 36])
def test_a_batch_ends_at_a_record_without_room_for_a_front(
    kernel: BatchKernel, kind: DigestType, room: int
) -> None:
    """As a damaged index might have it."""
    digest, entries = digester(kind, b"pw"), entries_of([50] * 40)
    block = Block([record(one, digest) for one in entries])
    block.starts.append(len(block.data))
    block.data += bytes(room)
    assert block.taken(kernel, wanted_of(digest)) == told(entries)
    block.starts = list(range(0, 40 * room, room))
    block.data = block.data[: 40 * room]
    assert block.taken(kernel, wanted_of(digest)) == told([])
    block = Block([record(one, digest) for one in entries])
    block.starts.insert(21, block.starts[20] + room)
    assert block.taken(kernel, wanted_of(digest)) == told(entries[:20])


@pytest.mark.parametrize("kind", [DigestType.CRC32C, DigestType.CRC32])
@pytest.mark.parametrize("sizes", [one for one in SIZES if len(one) >= 16])
@pytest.mark.parametrize("gaps", [(), (0, 0, 0, 9), (1, 2, 3, 4, 5)])
def test_with_numpy_a_sound_block_is_verified_at_once(
    kind: DigestType, sizes: list[int], gaps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, entries = digester(kind), entries_of(sizes)
    block = Block([record(one, digest) for one in entries], gaps)
    monkeypatch.setattr(verify, "mismatches_one_by_one", None)
    monkeypatch.setattr(batch_plain, "of_block", None)
    assert block.taken(batch_numpy, wanted_of(digest)) == told(entries)


def test_records_of_one_size_are_taken_without_a_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    digest, entries = digester(DigestType.CRC32C), entries_of([50] * 40)
    monkeypatch.setattr(batch_numpy, "_scattered", None)
    block = Block([record(one, digest) for one in entries])
    assert block.taken(batch_numpy, wanted_of(digest)) == told(entries)


@pytest.mark.parametrize("unable", [Digester(DigestType.MAC), Digester(DigestType.DUMMY)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_entries_that_cannot_be_verified_are_taken_by_their_ids(
    kernel: BatchKernel, unable: Digester
) -> None:
    entries = entries_of([50] * 20)
    records = [record(one, digester(unable.digest_type, b"unknown")) for one in entries]
    assert Block(records).taken(kernel, wanted_of(unable)) == told(entries)


def test_a_batch_yields_its_entries_and_counts_them() -> None:
    digest, entries = digester(DigestType.CRC32C), entries_of([5, 900, 0, 33] * 10)
    block = Block([record(one, digest) for one in entries])
    memory = bytearray(bytes(LEAD) + block.data + bytes(SLACK))
    found = entry_batch.of_block(memory, BlockLayout([], block.starts, len(block.data)), wanted_of(digest))
    assert found.length == 40
    assert list(found.entries()) == entries
    assert {type(one) for one in entry_batch.of_entry(entries[0]).entries()} == {Entry}
    assert list(entry_batch.of_entry(entries[0]).entries()) == entries[:1]


def test_numpy_is_used_if_it_is_installed() -> None:
    assert kernel_of(entry_batch) is batch_numpy


# ── out of tables ────────────────────────────────────────────────────────────────────────────────────────


def of_parts(records: Sequence[bytes], wanted: WantedEntries) -> EntryBatch:
    size = front_size(wanted.digester.digest_type)
    return entry_batch.of_parts(
        b"".join(one[:size] for one in records), [one[size:] for one in records], wanted
    )


@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("sizes", [*SIZES, [], [9]])
def test_sound_parts_are_taken_whole_and_not_copied(kind: DigestType, sizes: list[int]) -> None:
    digest, entries = digester(kind, b"pw"), entries_of(sizes)
    fronts = b"".join(record(one, digest)[: front_size(kind)] for one in entries)
    payloads = [one.payload for one in entries]
    found = entry_batch.of_parts(fronts, payloads, wanted_of(digest))
    given_back = list(chain.from_iterable(found.payloads))
    assert (found.length, list(found.heads), given_back) == told(entries)
    assert all(one is another for one, another in zip(given_back, payloads, strict=True))


@pytest.mark.parametrize("kind", [DigestType.CRC32C, DigestType.CRC32, DigestType.MAC])
def test_parts_are_taken_up_to_the_damage(kind: DigestType) -> None:
    digest, entries = digester(kind, b"pw"), entries_of([50] * 9)
    records = [record(one, digest) for one in entries]
    for index in (0, 4, 8):
        for offset in range(len(records[index])):
            damaged = bytearray(records[index])
            damaged[offset] ^= 0x40
            found = of_parts([*records[:index], bytes(damaged), *records[index + 1 :]], wanted_of(digest))
            assert list(found.entries()) == entries[:index], (index, offset)
            assert found.length == index


# ── how a block is laid out ──────────────────────────────────────────────────────────────────────────────


def lay_out(kernel: BatchKernel, places: Sequence[int], size_max: int) -> BlockLayout:
    ranges, starts, size = kernel.lay_out(array("q", places), size_max)
    return BlockLayout(
        [(int(a), int(b), int(c)) for a, b, c in ranges], [int(one) for one in starts], int(size)
    )


FAR = NEAR + 1
LOG = 5 << 32


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("places", "ranges", "starts"),
    [
        ([LOG + 9], [], []),
        ([0, LOG + 9], [], []),
        ([LOG + 9, 0, LOG + 30], [], []),
        ([LOG + 9, LOG + 20], [(LOG + 9, 0, 22)], [0, 11]),
        ([LOG + 9, LOG + 20, 0, LOG + 40], [(LOG + 9, 0, 22)], [0, 11]),
        ([LOG + 9, LOG + 20, LOG + 50, LOG + 60], [(LOG + 9, 0, 81)], [0, 11, 41, 51]),
        ([LOG + 9, LOG + 9], [], []),
        ([LOG + 20, LOG + 9, LOG + 10], [], []),
        ([LOG, LOG + NEAR], [(LOG, 0, 2 * NEAR)], [0, NEAR]),
        ([LOG, LOG + FAR], [], []),
        ([LOG + 9, LOG + 20, LOG + 21 + NEAR, LOG + 30 + NEAR], None, [0, 11, 22, 31]),
        ([LOG + 9, LOG + 20, LOG + FAR + 99, LOG + 9 * FAR, LOG + 9 * FAR + 5], [(LOG + 9, 0, 22)], [0, 11]),
        ([2 * LOG, 2 * LOG + 8, LOG, LOG + 5], [(2 * LOG, 0, 16), (LOG, 16, 10)], [0, 8, 16, 21]),
        (
            [LOG, LOG + 9, LOG + 12, 2 * LOG, 2 * LOG + 4],
            [(LOG, 0, 21), (2 * LOG, 21, 8)],
            [0, 9, 12, 21, 25],
        ),
        ([0, 1028, 1100], [], []),
    ],
)
def test_locations_that_are_near_are_laid_out_together(
    kernel: BatchKernel, places: list[int], ranges: list[tuple[int, int, int]] | None, starts: list[int]
) -> None:
    found = lay_out(kernel, places, 1 << 30)
    assert found.starts == starts
    assert ranges is None or found.ranges == ranges
    assert found.size == sum(size for _, _, size in found.ranges)


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_more_is_laid_out_than_fits(kernel: BatchKernel) -> None:
    places = [LOG + 10 * number for number in range(5)] + [2 * LOG + 7 * number for number in range(5)]
    whole = lay_out(kernel, places, 1 << 30)
    for size_max in range(100):
        found = lay_out(kernel, places, size_max)
        count = len(found.starts)
        assert found.size <= size_max
        assert found.starts == whole.starts[:count]
        assert count == len(places) or [*whole.starts, whole.size][count + 1] > size_max
        assert found.size == [*whole.starts, whole.size][count]


@given(
    st.lists(
        st.sampled_from([0, 1, 2]).flatmap(
            lambda log: st.integers(0, 40).map(lambda offset: (log << 32) + 5000 * offset)
        )
        | st.just(-1),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 400_000),
)
def test_both_ways_lay_out_alike(steps: list[int], size_max: int) -> None:
    places: list[int] = []
    for step in steps:  # -1 means directly after the one before
        places.append(places[-1] + 700 if step < 0 and places else max(0, step))
    plain, fast = (lay_out(kernel, places, size_max) for kernel in KERNELS)
    assert plain == fast
