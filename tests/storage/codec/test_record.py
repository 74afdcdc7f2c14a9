"""Records made in two parts: front and payload together are the entry, under every digest."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.codec import entry as entry_codec
from storage.codec import record as codec
from storage.codec.digest import digester
from storage.entry import DigestType, Entry

IDS = st.integers(0, 2**63 - 1)
ENTRIES = st.builds(Entry, IDS, IDS, st.integers(-1, 2**63 - 1), IDS, st.binary(max_size=200))
DIGESTS = st.sampled_from(DigestType)


def whole(entry: Entry, digest_type: DigestType, password: bytes) -> bytes:
    """The record as the entry codec makes it."""
    encoded = entry_codec.encode(entry, digester(digest_type, password))
    return len(encoded).to_bytes(4, "big") + encoded


@given(ENTRIES, DIGESTS, st.binary(max_size=10))
def test_front_and_payload_are_the_record(entry: Entry, digest_type: DigestType, password: bytes) -> None:
    head = entry.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length
    front = codec.encode_front_with(digester(digest_type, password), *head, entry.payload)
    assert front + entry.payload == whole(entry, digest_type, password)
    assert len(front) == codec.front_size(digest_type)
    assert codec.split(front + entry.payload, len(front)) == (front, entry.payload)


@given(DIGESTS, st.lists(st.binary(max_size=60), max_size=5), st.integers(0, 2**40), st.integers(0, 2**40))
def test_ids_and_lengths_go_on_over_consecutive_entries(
    digest_type: DigestType, payloads: list[bytes], first_id: int, length: int
) -> None:
    fronts = codec.encode_fronts_with(digester(digest_type, b"pw"), 7, first_id, 3, length, payloads)
    made = []
    for entry_id, payload in enumerate(payloads, first_id):
        length += len(payload)
        made.append(whole(Entry(7, entry_id, 3, length, payload), digest_type, b"pw"))
    assert [b"".join(parts) for parts in zip(fronts, payloads, strict=True)] == made


@pytest.mark.parametrize("digest_type", DigestType)
def test_a_number_that_no_record_could_hold_is_refused(digest_type: DigestType) -> None:
    for first_id, length in [(2**63 - 1, 0), (0, 2**63 - 2)]:
        with pytest.raises(struct.error):
            codec.encode_fronts_with(digester(digest_type), 1, first_id, 0, length, [b"ab", b"c"])


def test_the_front_of_each_digest_type() -> None:
    sizes = {one.name: codec.front_size(one) for one in DigestType}
    assert sizes == {"CRC32": 44, "MAC": 56, "CRC32C": 40, "DUMMY": 36}
    assert min(sizes.values()) == codec.HEAD_FRONT_SIZE
    assert sizes["CRC32C"] == codec.FRONT_SIZE


def test_a_record_is_split_wherever_it_is_long_enough() -> None:
    assert codec.split(b"front", 5) == (b"front", b"")
    assert codec.split(b"front", 2) == (b"fr", b"ont")
    with pytest.raises(AssertionError, match="cut"):
        codec.split(b"front", 6)
