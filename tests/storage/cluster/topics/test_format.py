"""The bytes of entries: by hand, there and back, and damaged."""

from __future__ import annotations

import gc
import random
import re
import sys
import zlib
from typing import TYPE_CHECKING, NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.cluster.topics.errors import (
    BatchCountWrong,
    CompressionUnavailable,
    EntryChecksumWrong,
    InvalidMessageEntry,
    UnknownCompression,
    UnsupportedMessage,
)
from storage.cluster.topics.format import (
    BrokerEntry,
    Compression,
    DecodedEntry,
    Framing,
    decode_entry,
    encode_entry,
)
from storage.cluster.topics.message import Message
from storage.cluster.topics.message_id import MessageId

if TYPE_CHECKING:
    from collections.abc import Sequence

SINGLE = bytes.fromhex(
    "0a0170"  # producer_name "p"
    "1007"  # sequence_id 7
    "1863"  # publish_time 99
    "4802"  # uncompressed_size 2
)
BATCH = bytes.fromhex(
    "0a0170"  # producer_name "p"
    "1007"  # sequence_id 7
    "1863"  # publish_time 99
    "5802"  # num_messages_in_batch 2
    "c00108"  # highest_sequence_id 8
)
IN_BATCH = bytes.fromhex(
    "00000004" "18024007" + b"hi".hex() +  # payload_size 2, sequence_id 7
    "00000004" "18034008" + b"you".hex()  # payload_size 3, sequence_id 8
)  # fmt: skip


def slow_crc32c(data: bytes) -> int:
    """Compute CRC-32C bit by bit."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def entry(metadata: bytes, payload: bytes) -> bytes:
    """Return the entry of this metadata and payload, with a checksum."""
    rest = len(metadata).to_bytes(4, "big") + metadata + payload
    return b"\x0e\x01" + slow_crc32c(rest).to_bytes(4, "big") + rest


def made(
    messages: Sequence[Message],
    compression: Compression = Compression.NONE,
    framing: Framing = Framing.BY_COUNT,
    broker: BrokerEntry | None = None,
) -> bytes:
    return encode_entry(
        messages,
        producer_name="p",
        sequence_ids=range(7, 7 + len(messages)),
        publish_time_ms=99,
        compression=compression,
        framing=framing,
        broker=broker,
    )


def published(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages as they are read."""
    return tuple(
        one._replace(producer_name="p", publish_time_ms=99, sequence_id=number)
        for number, one in enumerate(messages, 7)
    )


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
MESSAGES = st.builds(
    Message,
    st.binary(max_size=300),
    st.none() | TEXTS | st.binary(max_size=20),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
    st.none() | st.binary(max_size=20),
    st.integers(0, 2**62),
    is_null=st.booleans(),
)


def test_a_single_message_is_metadata_and_payload_with_a_checksum() -> None:
    assert made([Message(b"hi")]) == entry(SINGLE, b"hi")


def test_messages_of_a_batch_have_their_size_before_them() -> None:
    assert made([Message(b"hi"), Message(b"you")]) == entry(BATCH, IN_BATCH)


def test_the_fields_of_a_single_message_are_in_the_metadata() -> None:
    message = Message(b"", b"\x00\xff", {"a": "b"}, b"o", 5, is_null=True)
    expected = (
        "0a0170" "1007" "1863"
        "2206" "0a0161" "120162"  # properties a=b
        "3204" + b"AP8=".hex() +  # partition_key in base64
        "4800" "6005"  # uncompressed_size, event_time
        "880101" "92016f".replace("92016f", "9201016f") +  # partition_key_b64_encoded, ordering_key
        "c80101"  # null_value
    )  # fmt: skip
    assert made([message]) == entry(bytes.fromhex(expected), b"")


def test_a_batch_has_the_keys_of_its_first_message_in_its_metadata() -> None:
    written = made([Message(b"hi", "k", ordering_key=b"o"), Message(b"you", "l")])
    expected = bytes.fromhex("0a0170" "1007" "1863" "32016b" "5802" "9201016f" "c00108")  # fmt: skip
    assert written[6:10] == len(expected).to_bytes(4, "big")
    assert written[10 : 10 + len(expected)] == expected


def test_an_entry_without_checksum_is_read() -> None:
    raw = len(SINGLE).to_bytes(4, "big") + SINGLE + b"hi"
    assert decode_entry(raw).messages == published([Message(b"hi")])


def test_what_a_broker_adds_is_before_the_checksum_and_is_read() -> None:
    written = made([Message(b"hi")], broker=BrokerEntry(5, 6))
    assert written == bytes.fromhex("0e02" "00000004" "0805" "1006") + entry(SINGLE, b"hi")  # fmt: skip
    assert decode_entry(written).broker == BrokerEntry(5, 6)
    assert decode_entry(made([Message(b"hi")])).broker is None


@given(
    st.lists(MESSAGES, min_size=1, max_size=5),
    st.sampled_from(Compression),
    st.sampled_from(Framing),
    st.none() | st.builds(BrokerEntry, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)),
)
@settings(max_examples=60, deadline=None)
def test_messages_are_read_as_they_were_written(
    messages: list[Message], compression: Compression, framing: Framing, broker: BrokerEntry | None
) -> None:
    read = decode_entry(made(messages, compression, framing, broker))
    is_batch = len(messages) > 1 or framing is Framing.BATCH
    assert read == DecodedEntry(
        published(messages), is_batch, compression, "p", 99, 7, 6 + len(messages), broker, None
    )


def ids_of(data: bytes) -> list[MessageId]:
    received = decode_entry(data).received(MessageId(3, 4, 5), "a topic")
    assert all(one.topic == "a topic" for one in received)
    return [one.id for one in received]


def test_the_ids_of_a_batch_have_indexes_even_if_it_has_one_message() -> None:
    assert ids_of(made([Message(b"")])) == [MessageId(3, 4, 5)]
    one = made([Message(b"")], framing=Framing.BATCH)
    assert ids_of(one) == [MessageId(3, 4, 5, 0)]
    assert decode_entry(one).batch_size == 1
    assert ids_of(made([Message(b""), Message(b"")])) == [MessageId(3, 4, 5, 0), MessageId(3, 4, 5, 1)]


@pytest.mark.parametrize("keys", [(None, None), ("k", None)], ids=["plain", "with a key"])
def test_a_received_message_is_that_of_the_entry(keys: tuple[str | None, ...]) -> None:
    messages = [Message(b"a", keys[0], {"b": "c"} if keys[0] else {}), Message(b"you", keys[1])]
    for batch in (messages, messages[:1]):
        received = decode_entry(made(batch)).received(MessageId(3, 4), "a topic")
        assert [one.message for one in received] == list(published(batch))
        assert [(one.payload, one.key, one.properties) for one in received] == [
            (one.payload, one.key, one.properties) for one in batch
        ]


def test_a_received_message_does_not_keep_those_beside_it_in_memory() -> None:
    payloads = [b"%d" % number + bytes(10_000) for number in range(20)]
    kept = decode_entry(made([Message(one) for one in payloads])).received(MessageId(0, 0), "")[7]
    gc.collect()
    objects, size = [kept], 0
    for one in objects:
        size += sys.getsizeof(one)
        objects += [other for other in gc.get_referents(one) if not isinstance(other, type)]
    assert kept.payload == payloads[7]
    assert size < 15_000


def test_a_zlib_stream_that_a_flush_ends_is_read() -> None:
    stream = zlib.compressobj()
    payload = stream.compress(b"a" * 1000) + stream.flush(zlib.Z_SYNC_FLUSH)
    metadata = bytes.fromhex("0a0170" "1007" "1863" "4002" "48e807")  # fmt: skip
    assert decode_entry(entry(metadata, payload)).messages[0].payload == b"a" * 1000


def test_an_entry_that_a_broker_wrote_for_itself_has_no_messages() -> None:
    marker = decode_entry(entry(SINGLE + bytes.fromhex("a0010a" "b00101" "b80101"), b"x"))  # fmt: skip
    assert (marker.marker_type, marker.messages) == (10, ())


class Bad(NamedTuple):
    data: bytes
    kind: type[InvalidMessageEntry]
    reason: str


DAMAGED = [
    Bad(b"", InvalidMessageEntry, "no entry of a topic"),
    Bad(b"hello, world", InvalidMessageEntry, "no entry of a topic"),
    Bad(b"\x0e\x01\0\0", InvalidMessageEntry, "ends in its checksum"),
    Bad(b"\x0e\x02\0\0\0\x09", InvalidMessageEntry, "broker entry metadata"),
    Bad(entry(b"\x08\x01", b""), InvalidMessageEntry, "producer_name is missing"),
    Bad(entry(SINGLE, b"hi")[:-1], EntryChecksumWrong, "checksum"),
    Bad(entry(SINGLE + b"\x40\x09", b"hi"), UnknownCompression, "compression 9"),
    Bad(entry(SINGLE + b"\x40\x02", b"hi"), InvalidMessageEntry, "zlib: "),
    Bad(entry(SINGLE + b"\x40\x02", zlib.compress(b"abc")), InvalidMessageEntry, "instead of 2"),
    Bad(entry(SINGLE + b"\x40\x02\x48\xff\xff\xff\xff\x0f", b""), InvalidMessageEntry, "the limit is"),
    Bad(entry(SINGLE + b"\x32\x01*\x88\x01\x01", b""), InvalidMessageEntry, "base64"),
    Bad(entry(BATCH, IN_BATCH[:-1]), BatchCountWrong, "ends in its message 1 of 2"),
    Bad(entry(BATCH, IN_BATCH[:12]), BatchCountWrong, "ends in its message 1 of 2"),
    Bad(entry(BATCH + b"\x58\x01", IN_BATCH), BatchCountWrong, "more messages instead of 1"),
    Bad(entry(BATCH + b"\x58\x03", IN_BATCH), BatchCountWrong, "2 messages instead of 3"),
    Bad(entry(BATCH + b"\x58\x00", IN_BATCH), BatchCountWrong, "a batch of 0 messages"),
    Bad(entry(BATCH + b"\x58\xff\xff\xff\x07", IN_BATCH), BatchCountWrong, "a batch of 16777215 messages"),
    Bad(entry(BATCH, b"\0\0\0\x04\x18\x82\x82\x82hi" * 2), InvalidMessageEntry, "it ends early"),
    Bad(entry(SINGLE + b"\xd8\x01\x02", b"hi"), UnsupportedMessage, "chunked"),
    Bad(entry(SINGLE + b"\x6a\x00", b"hi"), UnsupportedMessage, "encrypted"),
    Bad(entry(SINGLE + b"\xb0\x01\x05\xb8\x01\x06", b"hi"), UnsupportedMessage, "transactional"),
    Bad(entry(BATCH + b"\xf8\x01\x00", IN_BATCH), UnsupportedMessage, "compacted"),
    Bad(
        entry(BATCH, b"\0\0\0\x06\x18\x02\x20\x01\x40\x07hi" + IN_BATCH[10:]), UnsupportedMessage, "compacted"
    ),
]


@pytest.mark.parametrize("bad", DAMAGED, ids=lambda bad: bad.reason)
def test_an_entry_that_gives_no_messages_is_refused_with_its_place(bad: Bad) -> None:
    with pytest.raises(InvalidMessageEntry, match=bad.reason) as refused:
        decode_entry(bad.data, "persistent://a/b/c", 17, 4)
    assert type(refused.value) is bad.kind
    assert str(refused.value).startswith("persistent://a/b/c: entry 4 of ledger 17: ")


@pytest.mark.parametrize(
    ("compression", "package"),
    [(Compression.LZ4, "lz4"), (Compression.ZSTD, "zstandard"), (Compression.SNAPPY, "cramjam")],
)
def test_without_its_package_a_compression_is_refused_with_the_command_that_installs_it(
    compression: Compression, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = made([Message(b"hi")], compression)
    monkeypatch.setitem(sys.modules, "lz4.block" if package == "lz4" else package, None)
    for use in (lambda: made([Message(b"hi")], compression), lambda: decode_entry(written)):
        with pytest.raises(CompressionUnavailable, match=rf"{package}.*ledgerstore\[topics\]"):
            use()


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return an entry with a few changes; most of them have a checksum that matches."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 3)):
        at = chance.randrange(len(changed))
        match chance.randrange(3):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                del changed[at : at + chance.randrange(1, 5)]
            case _:
                changed[at:at] = chance.randbytes(chance.randrange(1, 5))
        changed = changed or bytearray(1)
    at = changed.find(b"\x0e\x01")
    if at >= 0 and chance.randrange(8):
        changed[at + 2 : at + 6] = crc32c(changed[at + 6 :]).to_bytes(4, "big")
    return bytes(changed)


def only_known_errors(count: int, seed: int) -> int:
    """Decode mutated entries, and return how many of them still gave messages."""
    chance = random.Random(seed)
    messages = [
        Message(b"hello" * 3, "key", {"a": "b"}, event_time_ms=5),
        Message(b"you"),
        Message(b"", b"\0\1", ordering_key=b"o", is_null=True),
    ]
    originals = [
        made(messages[:number], compression, broker=broker)
        for number in (1, 3)
        for compression in Compression
        for broker in (None, BrokerEntry(5, 6))
    ]
    good = 0
    for _ in range(count):
        try:
            decode_entry(mutated(chance.choice(originals), chance))
            good += 1
        except InvalidMessageEntry:
            pass
    return good


def test_a_changed_entry_is_decoded_or_refused() -> None:
    assert 50 < only_known_errors(1_000, 1) < 950


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_thousand_changed_entries_are_decoded_or_refused(seed: int) -> None:
    assert 2_500 < only_known_errors(50_000, seed) < 47_500


@pytest.mark.parametrize("size", [0, 1, 127, 128, 70_000])
@pytest.mark.parametrize("sequence_id", [0, 127, 128, 1 << 40])
def test_a_plain_message_has_the_bytes_that_the_table_makes(
    size: int, sequence_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encoded() -> bytes:
        return encode_entry(
            [Message(bytes(size))],
            producer_name="prodücer",
            sequence_ids=[sequence_id],
            publish_time_ms=1_700_000_000_000,
        )

    plain = encoded()
    monkeypatch.setattr("storage.cluster.topics.format.is_plain", lambda _: False)
    assert plain == encoded()


@pytest.mark.parametrize("sizes", [[3] * 300, [0, 127, 128, 128, 70_000]], ids=["equal", "different"])
@pytest.mark.parametrize("first", [0, 100, 127, 16_300, (1 << 40) - 2])
def test_plain_messages_of_a_batch_have_the_bytes_that_the_table_makes(
    sizes: list[int], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(4)
    payloads = [chance.randbytes(size) for size in sizes]
    ids = range(first, first + len(sizes))

    def encoded(messages: Sequence[Message | bytes]) -> bytes:
        return encode_entry(messages, producer_name="p", sequence_ids=ids, publish_time_ms=99)

    plain = encoded(payloads)
    assert encoded([Message(one) for one in payloads]) == plain
    read = decode_entry(plain).messages
    assert [(one.payload, one.sequence_id) for one in read] == [*zip(payloads, ids, strict=True)]
    monkeypatch.setattr("storage.cluster.topics.format.is_plain", lambda _: False)
    monkeypatch.setattr("storage.cluster.topics.batch_format.payloads_of", lambda _: None)
    assert encoded(payloads) == plain


def test_sequence_ids_with_gaps_are_written_one_by_one() -> None:
    ids = [5, 6, 200, 20_000]
    raw = encode_entry([b"a"] * 4, producer_name="p", sequence_ids=ids, publish_time_ms=99)
    assert [one.sequence_id for one in decode_entry(raw).messages] == ids


def test_the_messages_of_a_batch_are_a_sequence() -> None:
    messages = decode_entry(made([Message(b"a"), Message(b"b"), Message(b"c")])).messages
    expected = published([Message(b"a"), Message(b"b"), Message(b"c")])
    assert (len(messages), messages[-1], messages[1:], expected == messages) == (
        3,
        expected[2],
        expected[1:],
        True,
    )
    assert repr(messages) == repr(expected)
    with pytest.raises(IndexError):
        messages[3]


def test_plain_entries_are_decoded_as_the_tables_do(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    plain = [Message(bytes(size)) for size in (1, 127, 128, 3, 3)]
    originals = [
        encode_entry(
            messages,
            producer_name="prodücer",
            sequence_ids=[first + number for number in range(len(messages))],
            publish_time_ms=1_700_000_000_000,
            broker=broker,
        )
        for messages in (plain[:1], plain, [*plain[:2], Message(b"x", "key"), *plain[2:]], plain[:1] * 9)
        for first in (0, 126, 1 << 40)
        for broker in (None, BrokerEntry(5, 6))
    ]
    entries = originals + [mutated(chance.choice(originals), chance) for _ in range(1_000)]

    def decoded() -> list[DecodedEntry | str]:
        found: list[DecodedEntry | str] = []
        for one in entries:
            try:
                found.append(decode_entry(one))
            except InvalidMessageEntry as error:
                found.append(repr(error))
        return found

    fast = decoded()
    assert all(isinstance(one, DecodedEntry) for one in fast[: len(originals)])
    monkeypatch.setattr("storage.cluster.topics.format._decode_plain", lambda _: None)
    monkeypatch.setattr("storage.cluster.topics.batch_format._PLAIN_METADATA", re.compile(rb"(?!)"))
    assert fast == decoded()
