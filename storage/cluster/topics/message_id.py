"""The id of a message: where in a topic it is.

text    ledger:entry:partition:batch      always four fields; three are read too
bytes   a protocol buffer: 1 ledger, 2 entry, 3 partition (if there is one), 4 batch index (in a batch),
        6 batch size (0 outside a batch)

Ids grow with the messages of one partition, and are not dense: the next message may be in the next ledger.
"""

from __future__ import annotations

import re
from itertools import repeat
from typing import NamedTuple

from storage.cluster.topics.errors import InvalidMessageId
from storage.cluster.wire.protobuf import (
    FieldKind,
    Malformed,
    MessageField,
    MessageTable,
    ProtobufMessage,
    decode,
    encode,
)

_ID_MAX = 2**63 - 1
_INDEX_MAX = 2**31 - 1

_TEXT = re.compile(r"(-?[0-9]{1,19}):(-?[0-9]{1,19}):(-?[0-9]{1,10})(?::(-?[0-9]{1,10}))?", re.ASCII)

_INTEGER = FieldKind.INTEGER
_TABLE = MessageTable(
    "MessageIdData",
    MessageField(1, "ledger", _INTEGER, is_required=True),
    MessageField(2, "entry", _INTEGER, is_required=True),
    MessageField(3, "partition", _INTEGER),
    MessageField(4, "batch_index", _INTEGER),
    MessageField(6, "batch_size", _INTEGER),
    MessageField(7, "first_chunk", FieldKind.BYTES),
)


class MessageId(NamedTuple):
    """The place of a message, ordered by ledger, entry, partition and index in the batch.

    A named tuple, because readers make one for each message, and a frozen dataclass takes three times as
    long.
    """

    ledger_id: int
    entry_id: int
    partition: int = -1
    """-1 in a topic without partitions."""
    batch_index: int = -1
    """-1 outside a batch. As a place to read from it stands for the whole entry."""

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.partition}:{self.batch_index}"

    @property
    def of_entry(self) -> MessageId:
        """The id of the entry that the message is in."""
        return self if self.batch_index < 0 else self._replace(batch_index=-1)

    def of_batch(self, count: int) -> list[MessageId]:
        """Return the ids of the messages of a batch, given that of its entry."""
        ledger_id, entry_id, partition, _ = self
        # The constructor is a function of Python, and takes four times as long.
        rows = zip(repeat(ledger_id), repeat(entry_id), repeat(partition), range(count), strict=False)
        return [*map(tuple.__new__, repeat(type(self)), rows)]

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Return the id of a text of three or four fields. Raise `InvalidMessageId`."""
        found = _TEXT.fullmatch(text)
        if found is None:
            reason = "expected ledger:entry:partition:batch, four numbers with colons between them"
            raise InvalidMessageId(text, reason)
        return _checked(text, cls(*(int(field) for field in found.groups("-1"))))

    def to_bytes(self, batch_size: int | None = 0) -> bytes:
        """Return the bytes that a broker's client makes of the id; `None` leaves the batch size out.

        Clients write the size 0 outside a batch, and in the ids that a send returns.
        """
        values = {"ledger": self.ledger_id, "entry": self.entry_id}
        if self.partition >= 0:
            values["partition"] = self.partition
        if self.batch_index != -1:
            values["batch_index"] = self.batch_index
        if batch_size is not None:
            values["batch_size"] = batch_size
        return encode(_TABLE, ProtobufMessage(values))

    @classmethod
    def from_bytes(cls, data: bytes) -> MessageId:
        """Return the id in these bytes, with or without a batch size. Raise `InvalidMessageId`."""
        message = decode(_TABLE, data)
        if isinstance(message, Malformed):
            raise InvalidMessageId(data.hex(), message.reason)
        if "first_chunk" in message:
            raise InvalidMessageId(data.hex(), "it is the id of a chunked message, which is not supported")
        made = cls(
            message.integer("ledger"),
            message.integer("entry"),
            message.integer("partition", -1),
            message.integer("batch_index", -1),
        )
        return _checked(data.hex(), made)


EARLIEST = MessageId(-1, -1)
"""Before the first message of a topic."""

LATEST = MessageId(_ID_MAX, _ID_MAX)
"""After the last message of a topic."""


def _checked(given: str, made: MessageId) -> MessageId:
    """Return the id if a message can have it, or if it is a place before a ledger's first entry."""
    if min(made) < -1:
        raise InvalidMessageId(given, "the only negative number in an id is -1, for what is absent")
    if max(made[:2]) > _ID_MAX or max(made[2:]) > _INDEX_MAX:
        raise InvalidMessageId(given, "a number is too large")
    if made.ledger_id < 0 <= made.entry_id or made.entry_id < 0 <= made.batch_index:
        raise InvalidMessageId(given, "what follows an absent ledger or entry is absent too")
    return made
