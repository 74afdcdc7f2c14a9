"""The entries of the log in which an embedded store keeps the nodes of its topics. Pure.

    entry = a protocol buffer:   1 path          of the node
                                 2 data          absent if the node was deleted
                                 3 version       of the node after the change
                                 4 created_ms    5 modified_ms
    or                           6 topic         for which a ledger was announced
                                 7 cursor        if it is for a subscription

An entry is the whole state of one node, so that the last one counts, and reading one twice does no harm.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.cluster.errors import InvalidMetadata
from storage.cluster.wire.protobuf import (
    FieldKind,
    Malformed,
    MessageField,
    MessageTable,
    ProtobufMessage,
    decode,
    encode,
)

_TABLE = MessageTable(
    "NodeChange",
    MessageField(1, "path", FieldKind.TEXT),
    MessageField(2, "data", FieldKind.BYTES),
    MessageField(3, "version", FieldKind.INTEGER),
    MessageField(4, "created_ms", FieldKind.INTEGER),
    MessageField(5, "modified_ms", FieldKind.INTEGER),
    MessageField(6, "topic", FieldKind.TEXT),
    MessageField(7, "cursor", FieldKind.TEXT),
)


class NodeState(NamedTuple):
    """A node after a change. Its data are `None` if it was deleted."""

    path: str
    data: bytes | None
    version: int = 0
    created_ms: int = 0
    modified_ms: int = 0


class AnnouncedLedger(NamedTuple):
    """A ledger that is about to be created. The id of this entry gives it its own."""

    topic: str
    cursor: str | None


def encode_change(change: NodeState | AnnouncedLedger) -> bytes:
    """Return the entry of a change."""
    if isinstance(change, AnnouncedLedger):
        values = {"topic": change.topic} | ({} if change.cursor is None else {"cursor": change.cursor})
        return encode(_TABLE, ProtobufMessage(values))
    path, data, version, created_ms, modified_ms = change
    if data is None:
        return encode(_TABLE, ProtobufMessage({"path": path}))
    return encode(
        _TABLE,
        ProtobufMessage(
            {
                "path": path,
                "data": data,
                "version": version,
                "created_ms": created_ms,
                "modified_ms": modified_ms,
            }
        ),
    )


def decode_change(place: str, entry: bytes) -> NodeState | AnnouncedLedger:
    """Return the change in an entry. Raise `InvalidMetadata` with the place of the entry."""
    message = decode(_TABLE, entry)
    if isinstance(message, Malformed):
        raise InvalidMetadata(place, message.reason)
    if "topic" in message:
        return AnnouncedLedger(message.text("topic"), message.text("cursor") if "cursor" in message else None)
    if not message.text("path").startswith("/"):
        raise InvalidMetadata(place, "neither a node nor a ledger")
    if "data" not in message:
        return NodeState(message.text("path"), None)
    return NodeState(
        message.text("path"),
        message.data("data"),
        message.integer("version"),
        message.integer("created_ms"),
        message.integer("modified_ms"),
    )
