"""Entries and their digests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import flip

from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck, Digester, digester
from storage.entry.model import DigestType, Entry
from storage.entry.read_result import Damaged, Flaw
from storage.errors import InvalidEntry

IDS = st.integers(0, 2**63 - 1)
ENTRIES = st.builds(Entry, IDS, IDS, st.integers(-1, 2**63 - 1), IDS, st.binary(max_size=200))
DIGESTS = st.sampled_from(DigestType)
VERIFIABLE = [DigestType.CRC32, DigestType.CRC32C, DigestType.MAC]
HELLO = Entry(1, 0, -1, 5, b"hello")


@given(ENTRIES, DIGESTS, st.binary(max_size=10))
def test_an_entry_reads_back(entry: Entry, digest_type: DigestType, password: bytes) -> None:
    encoded = entry_format.encode(entry, digester(digest_type, password))
    assert len(encoded) == 32 + digest_type.width + len(entry.payload)
    assert entry_format.decode(encoded, digester(digest_type, password)) == entry


@pytest.mark.parametrize("digest_type", VERIFIABLE)
def test_every_flipped_bit_is_seen(digest_type: DigestType) -> None:
    encoded = entry_format.encode(HELLO, digester(digest_type, b"pw"))
    for bit in range(len(encoded) * 8):
        damaged = flip(encoded, bit // 8, bit % 8)
        assert isinstance(entry_format.decode(damaged, digester(digest_type, b"pw")), Damaged), bit
        assert entry_format.check_digest(damaged, digester(digest_type, b"pw")) is DigestCheck.MISMATCH


@pytest.mark.parametrize("digest_type", DigestType)
def test_every_prefix_is_damaged_or_unverified(digest_type: DigestType) -> None:
    encoded = entry_format.encode(HELLO, digester(digest_type, b"pw"))
    for size in range(32 + digest_type.width):
        assert isinstance(entry_format.decode(encoded[:size], digester(digest_type, b"pw")), Damaged), size
    if digest_type is not DigestType.DUMMY:
        assert isinstance(entry_format.decode(encoded[:-1], digester(digest_type, b"pw")), Damaged)


def test_a_mac_with_another_password_does_not_match() -> None:
    encoded = entry_format.encode(HELLO, digester(DigestType.MAC, b"right"))
    assert entry_format.check_digest(encoded, digester(DigestType.MAC, b"wrong")) is DigestCheck.MISMATCH


@pytest.mark.parametrize("unable", [Digester(DigestType.MAC), Digester(DigestType.DUMMY)])
def test_an_entry_that_cannot_be_verified_is_never_called_good(unable: Digester) -> None:
    encoded = entry_format.encode(HELLO, digester(unable.digest_type))
    assert not unable.verifies
    assert entry_format.check_digest(encoded, unable) is DigestCheck.UNVERIFIED


def test_the_upper_half_of_a_crc32_counts_too() -> None:
    encoded = bytearray(entry_format.encode(HELLO, digester(DigestType.CRC32)))
    encoded[32] = 1
    assert entry_format.check_digest(encoded, digester(DigestType.CRC32)) is DigestCheck.MISMATCH


@pytest.mark.parametrize(
    ("offset", "flaw"),
    [(0, Flaw.LEDGER_NEGATIVE), (8, Flaw.ENTRY_NEGATIVE), (16, Flaw.BAD_FIELD), (24, Flaw.BAD_FIELD)],
)
def test_negative_numbers_are_damage(offset: int, flaw: Flaw) -> None:
    encoded = bytearray(entry_format.encode(HELLO, digester(DigestType.DUMMY)))
    encoded[offset : offset + 8] = (-2).to_bytes(8, "big", signed=True)
    answer = entry_format.decode_head(encoded)
    assert isinstance(answer, Damaged)
    assert answer.flaw is flaw


@pytest.mark.parametrize(
    "numbers",
    [(-1, 0, -1, 0), (2**63, 0, -1, 0), (0, -1, -1, 0), (0, 0, -2, 0), (0, 0, -1, -1), (0, 2**63, 0, 0)],
)
def test_an_entry_with_numbers_out_of_range_is_refused(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(InvalidEntry):
        Entry(*numbers, b"")


@given(IDS, st.integers(-1, 2**63 - 1), DIGESTS)
def test_an_explicit_lac_reads_back(ledger_id: int, lac: int, digest_type: DigestType) -> None:
    packet = entry_format.encode_lac(ledger_id, lac, digester(digest_type, b"pw"))
    assert entry_format.decode_lac(packet, digester(digest_type, b"pw")) == lac


def test_a_damaged_explicit_lac_is_seen() -> None:
    crc32c = digester(DigestType.CRC32C)
    packet = entry_format.encode_lac(1, 7, crc32c)
    for bit in range(len(packet) * 8):
        assert isinstance(entry_format.decode_lac(flip(packet, bit // 8, bit % 8), crc32c), Damaged)
    assert isinstance(entry_format.decode_lac(packet[:-1], crc32c), Damaged)
    below = entry_format.encode_lac(1, 0, digester(DigestType.DUMMY))[:8] + (-2).to_bytes(
        8, "big", signed=True
    )
    assert isinstance(entry_format.decode_lac(below, digester(DigestType.DUMMY)), Damaged)
