"""The errors of topics: one branch of the tree in `storage.cluster.errors`.

TopicError
├── the caller's mistake: nothing was changed
│   ├── InvalidTopicName         a name that no topic can have; also a ValueError
│   ├── TopicsInUse              coroutines, or threads, use the topics of the local store already
│   ├── InvalidMessageId         a text or bytes that are no message id; also a ValueError
│   ├── NotInTopic               an id that no message of the topic can have; also a ValueError
│   ├── NoSuchTopic              there is no topic of this name; also a KeyError
│   ├── TopicExists              there is a topic of this name already
│   ├── NoSuchSubscription       the topic has no subscription of this name; also a KeyError
│   └── CompressionUnavailable   the package of a compression is not installed
├── the owner of a topic
│   ├── TopicFenced              another process writes the topic now
│   ├── TopicClosed              the topic, or its producer, was closed here
│   ├── TopicTerminated          a broker has ended the topic: it takes no more messages
│   ├── LedgerMissing            the list names a ledger that does not exist
│   ├── MessageTooLarge          a message above the limit; also an EntryTooLarge
│   ├── ProducerExists           a producer of this name is open already
│   ├── SequenceNotAscending     a sequence id that is not larger than the one before it
│   └── MessageOutcomeUnknown    a message may be in the topic or not; also an OutcomeUnknown
├── the consumer of a subscription
│   ├── SubscriptionBusy         another consumer has an exclusive subscription
│   └── SubscriptionFenced       another consumer has taken the subscription over
└── entries that give no messages: topic, ledger and entry are named
    ├── InvalidMessageEntry      bytes that are no entry of a topic
    │   ├── EntryChecksumWrong   the checksum does not match the bytes
    │   ├── UnknownCompression   a compression that this version does not know
    │   └── BatchCountWrong      a batch has more or fewer messages than its metadata says
    └── UnsupportedMessage       chunked, encrypted, transactional or compacted
"""

from __future__ import annotations

from storage.cluster.errors import ClusterError, OutcomeUnknown
from storage.errors import EntryTooLarge


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
    """No message of the topic can have this id."""

    topic: str
    message_id: str
    reason: str
    text = "{topic} has no message {message_id}: {reason}"


class NoSuchTopic(TopicError, KeyError):
    """There is no topic of this name."""

    code = -25
    topic: str
    text = "there is no topic {topic}"


class TopicsInUse(TopicError):
    """The topics of a local store are in use by coroutines, or by threads, already; nothing was done."""

    path: str
    text = (
        "the topics of the store {path} are in use already: use them either from coroutines or from threads"
    )


class TopicExists(TopicError):
    """There is a topic of this name already."""

    topic: str
    reason: str
    text = "there is a topic {topic} already: {reason}"


class NoSuchSubscription(TopicError, KeyError):
    """The topic has no subscription of this name."""

    code = -25
    topic: str
    subscription: str
    text = "{topic} has no subscription {subscription!r}"


class SubscriptionBusy(TopicError):
    """Another consumer has an exclusive subscription."""

    topic: str
    subscription: str
    holder: str
    text = "subscription {subscription!r} of {topic} is in use by {holder}"


class SubscriptionFenced(TopicError):
    """Another consumer has taken the subscription over: this one's acknowledgements are refused."""

    code = -101
    topic: str
    subscription: str
    text = "subscription {subscription!r} of {topic} was taken over by another consumer"


class CompressionUnavailable(TopicError):
    """The package of a compression is not installed."""

    compression: str
    package: str
    text = (
        "{compression} needs the package {package}, which is not installed: pip install 'ledgerstore[topics]'"
    )


# the owner of a topic


class TopicFenced(TopicError):
    """Another process has taken the topic over, so that this one can no longer write it."""

    code = -101
    topic: str
    text = "{topic} was taken over by another process: this one writes it no more"


class TopicClosed(TopicError):
    """The topic, or its producer, was closed in this process."""

    code = -11
    topic: str
    text = "{topic} is closed: it takes no more messages from here"


class TopicTerminated(TopicError):
    """A broker has ended the topic after an entry."""

    code = -11
    topic: str
    ledger_id: int
    entry_id: int
    text = "{topic} was terminated after entry {entry_id} of ledger {ledger_id}: it takes no more messages"


class LedgerMissing(TopicError):
    """The list of a topic names a ledger that does not exist."""

    code = -25
    topic: str
    ledger_id: int
    text = (
        "{topic}: ledger {ledger_id} is in the list of the topic, but does not exist: its messages are lost "
        "(`MissingLedgers.SKIP` goes on without it)"
    )


class MessageTooLarge(TopicError, EntryTooLarge):
    """A message does not fit into an entry."""

    size: int
    limit: int
    topic: str
    text = "{topic}: a message of {size} bytes makes an entry that is too large; the limit is {limit} bytes"


class ProducerExists(TopicError):
    """A producer of this name is open already, and both would number their messages."""

    topic: str
    producer: str
    text = "{topic} has an open producer {producer!r} already"


class SequenceNotAscending(TopicError, ValueError):
    """The sequence id of a message is not larger than that of the message before it."""

    topic: str
    producer: str
    sequence_id: int
    last: int
    text = "{topic}: sequence id {sequence_id} of producer {producer!r} does not follow {last}"


class MessageOutcomeUnknown(TopicError, OutcomeUnknown):
    """A message was not acknowledged, and may be in the topic nevertheless.

    A producer with a name may send it again with the same sequence id: it is written only once.
    """

    code = -12
    path: str
    reason: str
    text = "{path}: a message was not acknowledged, and may be in the topic: {reason}"


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
