"""Many entries are verified in one call: with numpy and without, the results are the same."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import flip

from storage.entry import format as entry_format
from storage.entry import verify, verify_numpy
from storage.entry.digest import Digester, digester
from storage.entry.model import DigestType, Entry
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.verify import EntryBounds
from storage.journal import format as journal_format

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.entry.digest import Buffer

    Verify = Callable[[Buffer, EntryBounds, Digester], list[int]]

VERIFIERS: list[Verify] = [verify.mismatches_one_by_one, verify_numpy.mismatches]
WAYS = pytest.mark.parametrize("mismatches", VERIFIERS, ids=["plain", "numpy"])
BATCHED = [DigestType.CRC32C, DigestType.CRC32]


def block(sizes: list[int], digest: Digester, seed: int = 1) -> bytes:
    dice = random.Random(seed)
    entries = [
        entry_format.encode(
            Entry(dice.randrange(4), number, number - 1, number, dice.randbytes(size)), digest
        )
        for number, size in enumerate(sizes)
    ]
    return b"".join(map(journal_format.encode_record, entries))


def bounds_of(data: bytes | bytearray, start: int = 0, end: int | None = None) -> EntryBounds:
    """Return where the entries lie, by their length words."""
    starts, ends, at = [], [], start
    while at < (len(data) if end is None else end):
        starts.append(at + LENGTH_WORD_SIZE)
        at += LENGTH_WORD_SIZE + int.from_bytes(data[at : at + LENGTH_WORD_SIZE], "big")
        ends.append(at)
    return EntryBounds(starts, ends)


SIZES = st.lists(st.integers(0, 300), max_size=30) | st.integers(0, 300).flatmap(
    lambda size: st.integers(0, 40).map(lambda count: [size] * count)
)


@given(SIZES, st.sampled_from(BATCHED), st.integers(0, 10**9))
def test_both_ways_verify_alike_whatever_is_damaged(sizes: list[int], kind: DigestType, seed: int) -> None:
    digest = digester(kind)
    data = bytearray(block(sizes, digest))
    bounds, dice = bounds_of(data), random.Random(seed)
    for _ in range(dice.randrange(4) if data else 0):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    plain, fast = (mismatches(data, bounds, digest) for mismatches in VERIFIERS)
    assert plain == fast


@WAYS
@pytest.mark.parametrize("kind", BATCHED)
@pytest.mark.parametrize("sizes", [[100] * 50, [0] * 9, [5, 900, 0, 33, 33, 33, 33, 7]])
def test_every_damaged_entry_of_a_block_is_named(
    mismatches: Verify, kind: DigestType, sizes: list[int]
) -> None:
    digest = digester(kind)
    data = block(sizes, digest)
    found = bounds_of(data)
    assert len(found.starts) == len(sizes)
    assert mismatches(data, found, digest) == []
    for index, (start, end) in enumerate(zip(found.starts, found.ends, strict=True)):
        for offset in (start + 9, start + 32, end - 1):
            damaged = flip(data, int(offset), 5)
            assert mismatches(damaged, found, digest) == [index]


@WAYS
def test_errors_that_would_cancel_in_a_sum_are_named(mismatches: Verify) -> None:
    digest = digester(DigestType.CRC32C)
    data = bytearray(block([64] * 20, digest))
    found = bounds_of(data)
    for index in (3, 4, 11):
        data[found.starts[index] + 40] ^= 0x10
    assert mismatches(data, found, digest) == [3, 4, 11]


@WAYS
@pytest.mark.parametrize("byte", range(4))
def test_a_crc32_needs_zeros_in_its_upper_half(mismatches: Verify, byte: int) -> None:
    digest = digester(DigestType.CRC32)
    data = bytearray(block([64] * 20, digest))
    found = bounds_of(data)
    data[found.starts[7] + 32 + byte] = 1
    assert mismatches(data, found, digest) == [7]


@WAYS
def test_macs_are_verified_one_by_one(mismatches: Verify) -> None:
    digest = digester(DigestType.MAC, b"pw")
    data = block([10, 20, 30], digest)
    found = bounds_of(data)
    assert mismatches(data, found, digest) == []
    assert mismatches(flip(data, int(found.starts[1]) + 60), found, digest) == [1]


def test_numpy_verifies_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "mismatches_one_by_one", None)
    data = block([50] * 3, digester(DigestType.CRC32C))
    assert verify.mismatches(data, bounds_of(data), digester(DigestType.CRC32C)) == []


@WAYS
def test_a_block_without_an_entry_has_no_mismatch(mismatches: Verify) -> None:
    for kind in BATCHED:
        assert mismatches(b"", EntryBounds([], []), digester(kind)) == []


@WAYS
@pytest.mark.parametrize("kind", BATCHED)
def test_an_entry_too_short_for_its_digest_is_a_mismatch(mismatches: Verify, kind: DigestType) -> None:
    data = block([50] * 3, digester(kind)) + block([0], digester(DigestType.DUMMY))
    assert mismatches(data, bounds_of(data), digester(kind)) == [3]


# ── with numpy, the long way is not taken ────────────────────────────────────────────────────────────────


@pytest.fixture
def not_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a look at single entries fail."""
    monkeypatch.setattr(verify, "mismatches_one_by_one", None)


@pytest.mark.usefixtures("not_one_by_one")
@pytest.mark.parametrize("kind", BATCHED)
@pytest.mark.parametrize("sizes", [[100] * 50, [0], [0] * 9, [5, 900, 0, 33, 33, 33, 33, 7]])
def test_a_sound_block_is_verified_at_once(kind: DigestType, sizes: list[int]) -> None:
    digest = digester(kind)
    data = block(sizes, digest)
    for lead in (b"", b"something in front"):
        found = bounds_of(lead + data, len(lead))
        assert verify_numpy.mismatches(lead + data + b"behind", found, digest) == []
