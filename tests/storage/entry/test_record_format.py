"""Records in two parts: front and payload together are the entry, under every digest."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.entry import format as entry_format
from storage.entry import record_format
from storage.entry.digest import digester
from storage.entry.model import DigestType, Entry

IDS = st.integers(0, 2**63 - 1)
ENTRIES = st.builds(Entry, IDS, IDS, st.integers(-1, 2**63 - 1), IDS, st.binary(max_size=200))
DIGESTS = st.sampled_from(DigestType)


def whole(entry: Entry, digest_type: DigestType, password: bytes) -> bytes:
    """Encode the record as the entry format defines it."""
    encoded = entry_format.encode(entry, digester(digest_type, password))
    return len(encoded).to_bytes(4, "big") + encoded


@given(ENTRIES, DIGESTS, st.binary(max_size=10))
def test_front_and_payload_are_the_record(entry: Entry, digest_type: DigestType, password: bytes) -> None:
    head = entry.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length
    front = record_format.encode_front_with(digester(digest_type, password), *head, entry.payload)
    assert front + entry.payload == whole(entry, digest_type, password)
    assert len(front) == record_format.front_size(digest_type)
    assert record_format.split(front + entry.payload, len(front)) == (front, entry.payload)


@given(DIGESTS, st.lists(st.binary(max_size=60), max_size=5), st.integers(0, 2**40), st.integers(0, 2**40))
def test_ids_and_lengths_go_on_over_consecutive_entries(
    digest_type: DigestType, payloads: list[bytes], first_id: int, length: int
) -> None:
    fronts = record_format.encode_fronts_with(digester(digest_type, b"pw"), 7, first_id, 3, length, payloads)
    records = b"".join(record_format.buffers(fronts, payloads)) if payloads else fronts
    made = []
    for entry_id, payload in enumerate(payloads, first_id):
        length += len(payload)
        made.append(whole(Entry(7, entry_id, 3, length, payload), digest_type, b"pw"))
    assert records == b"".join(made)


@pytest.mark.parametrize("digest_type", DigestType)
def test_a_number_larger_than_a_record_can_hold_is_refused(digest_type: DigestType) -> None:
    for first_id, length in [(2**63 - 1, 0), (0, 2**63 - 2)]:
        with pytest.raises(struct.error):
            record_format.encode_fronts_with(digester(digest_type), 1, first_id, 0, length, [b"ab", b"c"])


def test_the_front_of_each_digest_type() -> None:
    sizes = {one.name: record_format.front_size(one) for one in DigestType}
    assert sizes == {"CRC32": 44, "MAC": 56, "CRC32C": 40, "DUMMY": 36}
    assert min(sizes.values()) == record_format.HEAD_FRONT_SIZE
    assert sizes["CRC32C"] == record_format.FRONT_SIZE


def test_a_record_is_split_wherever_it_is_long_enough() -> None:
    assert record_format.split(b"front", 5) == (b"front", b"")
    assert record_format.split(b"front", 2) == (b"fr", b"ont")
    with pytest.raises(AssertionError, match="cut"):
        record_format.split(b"front", 6)


# ── many at once ─────────────────────────────────────────────────────────────────────────────────────────


def one_by_one(first_id: int, confirmed: int, length: int, payloads: list[bytes]) -> list[bytes]:
    fronts = []
    for entry_id, payload in enumerate(payloads, first_id):
        length += len(payload)
        fronts.append(record_format.encode_front(7, entry_id, confirmed, length, payload))
    return fronts


@pytest.mark.parametrize("count", [record_format.MANY, record_format.MANY + 300])
@pytest.mark.parametrize("first_id", [0, 250, 2**32 - 3, 2**63 - record_format.MANY - 300])
@pytest.mark.parametrize("sizes", [[100], [0, 1, 700], [record_format.MANY * 9, 3]], ids=str)
def test_fronts_of_many_records_equal_those_encoded_one_by_one(
    count: int, first_id: int, sizes: list[int]
) -> None:
    pytest.importorskip("numpy", reason="compared with the encoding one by one")
    payloads = [bytes([at % 251]) * sizes[at % len(sizes)] for at in range(count)]
    for length in 0, 2**40 - 5, 2**62, 2**63 - 1 - sum(map(len, payloads)):
        fronts = record_format.encode_fronts(7, first_id, first_id - 1, length, payloads)
        assert fronts == b"".join(one_by_one(first_id, first_id - 1, length, payloads))
        assert record_format.ledger_length(fronts) == length + sum(map(len, payloads))


@pytest.mark.parametrize(
    ("first_id", "length"), [(2**63 - record_format.MANY, 0), (0, 2**63 - record_format.MANY)]
)
def test_a_number_among_many_larger_than_a_record_can_hold_is_refused(first_id: int, length: int) -> None:
    with pytest.raises(struct.error):
        record_format.encode_fronts(1, first_id, 0, length, [b"x"] * (record_format.MANY + 1))


@pytest.mark.parametrize("sizes", [[0], [1], [100], [700], [100, 101], [0, 200]], ids=str)
@pytest.mark.parametrize("count", [1, 2, record_format.MANY, record_format.MANY + 1])
def test_buffers_are_the_records_one_after_the_other(sizes: list[int], count: int) -> None:
    payloads = [bytes([at % 251]) * sizes[at % len(sizes)] for at in range(count)]
    fronts = one_by_one(3, 2, 0, payloads)
    records = b"".join(front + payload for front, payload in zip(fronts, payloads, strict=True))
    assert b"".join(record_format.buffers(b"".join(fronts), payloads)) == records


@pytest.mark.parametrize("width", [1, 3, 40])
@pytest.mark.parametrize("count", [1, 2, 1023, 1024, 1025, 2048, 2500])
def test_evenly_split_pieces_are_the_same_bytes_when_they_are_joined(count: int, width: int) -> None:
    pieces = [at.to_bytes(4, "big")[-1:] * width for at in range(count)]
    assert list(record_format.split_evenly(b"".join(pieces), count)) == pieces
