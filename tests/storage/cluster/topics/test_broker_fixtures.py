"""What a Pulsar broker and its Java client wrote is read as they read it, and written as they write it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from storage.cluster.topics.cursor import Cursor, Extents
from storage.cluster.topics.errors import UnsupportedMessage
from storage.cluster.topics.format import BrokerEntry, decode_entry, encode_entry
from storage.cluster.topics.managed_ledger import (
    NO_LEDGER,
    Position,
    decode_cursor,
    decode_managed_ledger,
    decode_position_info,
    encode_cursor,
    encode_managed_ledger,
)
from storage.cluster.topics.message import Message
from storage.cluster.topics.message_id import MessageId

FIXTURES = Path(__file__).parents[3] / "fixtures" / "pulsar"


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / f"{name}.json").read_text())


ENTRIES = fixture("entries") | fixture("broker_metadata")
CURSORS = {
    f"{name}, {how}": (state, how)
    for name in ("cursors", "cursors_in_ledgers", "cursors_of_ranges")
    for how, state in fixture(name)["cursors"].items()
}
MOMENTS = ("while the broker has the topic", "after it was unloaded")


def expected(found: dict[str, Any]) -> Message:
    """Return the message that a reader of Pulsar got."""
    key = found.get("key", "")
    ordering_key = found.get("orderingKey")
    return Message(
        b"" if found["value"] is None else bytes.fromhex(found["value"]),
        base64.b64decode(key) if found.get("isKeyBytes") else found.get("key"),
        found.get("properties", {}),
        None if ordering_key is None else bytes.fromhex(ordering_key),
        found.get("eventTime", 0),
        found["publishTime"],
        found["producer"],
        found["sequenceId"],
        found["value"] is None,
    )


@pytest.mark.parametrize("name", [name for name in ENTRIES if name != "chunked"])
def test_messages_of_a_broker_are_read_with_the_same_ids_and_fields(name: str) -> None:
    read = []
    for place, data in ENTRIES[name]["entries"].items():
        entry = decode_entry(bytes.fromhex(data))
        ids = [one.id for one in entry.received(MessageId(*map(int, place.split(":"))), "")]
        read += [(str(one), one.to_bytes(entry.batch_size).hex()) for one in ids]
        assert (
            entry.messages
            == tuple(expected(one) for one in ENTRIES[name]["found"])[len(read) - len(ids) :][: len(ids)]
        )
        assert (entry.broker is None) == (not data.startswith("0e02"))
    shown = [str(MessageId.parse(one["id"])) for one in ENTRIES[name]["found"]]
    assert read == [(one, each["bytes"]) for one, each in zip(shown, ENTRIES[name]["found"], strict=True)]


@pytest.mark.parametrize("name", ["single-NONE", "batched-NONE", "single", "batched"])
def test_entries_without_compression_are_written_byte_for_byte_as_by_the_java_client(name: str) -> None:
    for data in map(bytes.fromhex, ENTRIES[name]["entries"].values()):
        entry = decode_entry(data)
        made = encode_entry(
            entry.messages,
            producer_name=entry.producer_name,
            sequence_ids=[one.sequence_id for one in entry.messages],
            publish_time_ms=entry.publish_time_ms,
            broker=entry.broker,
        )
        assert made == data
        assert entry.broker is None or isinstance(entry.broker, BrokerEntry)


def test_the_chunks_of_a_large_message_are_refused_by_name() -> None:
    for data in ENTRIES["chunked"]["entries"].values():
        with pytest.raises(UnsupportedMessage, match="chunked"):
            decode_entry(bytes.fromhex(data))


@pytest.mark.parametrize("found", fixture("message_ids"), ids=lambda found: found["id"])
def test_ids_have_the_text_and_the_bytes_of_the_java_client(found: dict[str, Any]) -> None:
    read = MessageId.parse(found["id"])
    assert read.to_bytes(found["batchSize"]).hex() == found["bytes"]
    assert MessageId.from_bytes(bytes.fromhex(found["bytes"])) == read
    assert str(read).startswith(found["id"])


@pytest.mark.parametrize(("moment", "data"), fixture("managed_ledgers").items())
def test_lists_of_a_broker_are_written_back_byte_for_byte(moment: str, data: str) -> None:
    info = decode_managed_ledger("/x", bytes.fromhex(data))
    assert encode_managed_ledger(info).hex() == data
    assert (info.terminated is not None) == (moment == "terminated")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("case", CURSORS)
def test_the_acknowledgements_of_a_broker_are_read(case: str, moment: str) -> None:
    state, how = CURSORS[case]
    messages = [MessageId.parse(one) for one in state["messages"]]
    acknowledged = set(state["individual"])
    if state.get("cumulative") is not None:
        acknowledged |= set(range(state["cumulative"] + 1))
    data = bytes.fromhex(state[moment]["znode"])
    node = decode_cursor("/x", data)
    if not data.startswith(b"\x47\x78"):
        assert encode_cursor(node) == data
    entries = state[moment]["entries"]
    entry = decode_position_info("x", bytes.fromhex(entries[-1])) if entries else None
    assert (node.cursors_ledger_id == NO_LEDGER) == (not entries)
    ends = {one.ledger_id: one.entry_id + 1 for one in messages}
    extents = Extents(tuple(sorted(ends.items())), is_last_open=True)
    cursor = Cursor.recover("t", node, entry, extents)
    cursor.settle(extents)
    left = []
    for number, one in enumerate(messages):
        count = sum(other.of_entry == one.of_entry for other in messages)
        if cursor.remaining(Position(*one[:2]), count) >> max(one.batch_index, 0) & 1:
            left.append(number)
    if how == "inside-batches" and moment == MOMENTS[0]:
        # A broker adds no entry for parts of batches, as long as the position has not moved since.
        acknowledged = {0}
    assert left == [number for number in range(len(messages)) if number not in acknowledged]
