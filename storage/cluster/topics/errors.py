"""The errors of topics: one branch of the tree in `storage.cluster.errors`.

TopicError
├── the caller's mistake: nothing was changed
│   ├── InvalidTopicName         a name that no topic can have; also a ValueError
│   ├── InvalidMessageId         a text or bytes that are no message id; also a ValueError
│   └── CompressionUnavailable   the package of a compression is not installed
└── entries that give no messages: topic, ledger and entry are named
    ├── InvalidMessageEntry      bytes that are no entry of a topic
    │   ├── EntryChecksumWrong   the checksum does not match the bytes
    │   ├── UnknownCompression   a compression that this version does not know
    │   └── BatchCountWrong      a batch has more or fewer messages than its metadata says
    └── UnsupportedMessage       chunked, encrypted, transactional or compacted
"""

from __future__ import annotations

from storage.cluster.errors import ClusterError


class TopicError(ClusterError):
    """The base class of all errors of topics."""


# the caller's mistake


class InvalidTopicName(TopicError, ValueError):
    """A name that no topic can have."""

    name: str
    reason: str
    text = "topic {name!r}: {reason}"


class InvalidMessageId(TopicError, ValueError):
    """A text, or bytes in hexadecimal digits, that are no message id."""

    given: str
    reason: str
    text = "message id {given!r}: {reason}"


class NotInTopic(TopicError, ValueError):
    """The id is not that of a message of the topic."""

    topic: str
    message_id: str
    reason: str
    text = "{topic} has no message {message_id}: {reason}"


class CompressionUnavailable(TopicError):
    """The package of a compression is not installed."""

    compression: str
    package: str
    text = (
        "{compression} needs the package {package}, which is not installed: pip install 'ledgerstore[topics]'"
    )


# entries that give no messages


class InvalidMessageEntry(TopicError):
    """The bytes of an entry are not those of messages."""

    topic: str
    ledger_id: int
    entry_id: int
    reason: str
    text = "{topic}: entry {entry_id} of ledger {ledger_id}: {reason}"


class EntryChecksumWrong(InvalidMessageEntry):
    """The checksum in the entry does not match its bytes."""


class UnknownCompression(InvalidMessageEntry):
    """The entry has a compression that this version does not know."""


class BatchCountWrong(InvalidMessageEntry):
    """The batch has more or fewer messages than its metadata says."""


class UnsupportedMessage(InvalidMessageEntry):
    """A chunked, encrypted, transactional or compacted message. Only a broker's client can read it."""
