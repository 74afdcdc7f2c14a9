"""Test that a Pulsar broker and our topics keep the same topic, and hand it over to each other.

    python tests/interop/pulsar_topics.py [--messages 20000]

The broker lets a topic go when it is unloaded, and we do when it is closed.

    read     messages of the broker, single and batched with each compression, are read here: the same ids, as
             text and bytes, payloads, keys, properties and times, in the same order
    write    the same the other way round: messages that were written here are consumed through the broker
    cursors  one side acknowledges messages singly, inside batches and all up to one, and the other goes on
    trims    what one side has trimmed is gone for the other, and both go on
    parts    both choose the same partition for each key, with either hash
    numbers  a producer with a name that sends messages again to the other side writes each once
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from bookies import cluster, our_bookie, our_metadata
from jvm import PULSAR, classpath, exit_code_of
from pulsar_brokers import topics_broker

from storage.cluster import connect
from storage.cluster.topics.compression import Compression
from storage.cluster.topics.message import Message
from storage.cluster.topics.message_id import EARLIEST
from storage.cluster.topics.policies import Retention, RollOver
from storage.cluster.topics.producer import NO_BATCHES, Batching
from storage.cluster.topics.routing import KeyHash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_brokers import TopicsBroker

    from storage.cluster.client.blocking import Cluster
    from storage.cluster.topics.blocking import Topic
    from storage.cluster.topics.message import ReceivedMessage

_NAMESPACE = "public/shared"
_TRIMMED = "public/trimmed"
"""The namespace in which the broker keeps nothing that is acknowledged."""
_DEDUPLICATED = "public/deduplicated"
"""The namespace in which the broker writes a message with a number that it has seen only once."""
_PARTITIONS = 5
_TRIM_S = 60.0
_BATCH = 10
_PIECE = 500
"""Messages of one command to the broker."""
_ENTRIES_OF_A_LEDGER = 150
_FORMS = tuple((batch, codec) for batch in (0, _BATCH) for codec in Compression)
_KEPT: dict[str, object] = {"managedLedgerMaxUnackedRangesToPersistInMetadataStore": 0}
"""The broker keeps a cursor with ranges in its ledger, so that it knows parts of batches when it opens it
again: from the cursor's node it reads only whole entries."""


class SharedMessage(NamedTuple):
    """A message that one side writes, as both sides have to find it."""

    value: str | None
    key: str | None
    properties: dict[str, str]
    ordering_key: str | None
    event_time_ms: int

    @classmethod
    def made(cls, number: int) -> SharedMessage:
        """Return the message of this number; every third has a key, every fifth all fields."""
        chance = random.Random(number)
        payload = chance.randbytes(chance.randrange(30)) + b"%d " % number * chance.randrange(1, 20)
        is_full = number % 5 == 0
        return cls(
            None if number % 97 == 0 else payload.hex(),
            f"key-{number % 7}" if is_full or number % 3 == 0 else None,
            {"number": str(number), "empty": ""} if is_full else {},
            chance.randbytes(4).hex() if is_full else None,
            1_700_000_000_000 + number if is_full else 0,
        )

    def for_broker(self) -> dict[str, Any]:
        found: dict[str, Any] = {"value": self.value, "properties": self.properties}
        if self.key is not None:
            found["key"] = self.key
        if self.ordering_key is not None:
            found["orderingKey"] = self.ordering_key
        if self.event_time_ms:
            found["eventTime"] = self.event_time_ms
        return found

    def for_us(self) -> Message:
        return Message(
            bytes.fromhex(self.value or ""),
            self.key,
            self.properties,
            None if self.ordering_key is None else bytes.fromhex(self.ordering_key),
            self.event_time_ms,
            is_null=self.value is None,
        )

    @classmethod
    def of_broker(cls, found: dict[str, Any]) -> SharedMessage:
        return cls(
            found["value"],
            found.get("key"),
            found.get("properties", {}),
            found.get("orderingKey"),
            found.get("eventTime", 0),
        )

    @classmethod
    def of_ours(cls, found: ReceivedMessage) -> SharedMessage:
        message = found.message
        key = message.key.decode() if isinstance(message.key, bytes) else message.key
        ordering_key = None if message.ordering_key is None else message.ordering_key.hex()
        value = None if message.is_null else message.payload.hex()
        return cls(value, key, dict(message.properties), ordering_key, message.event_time_ms)


class Place(NamedTuple):
    """The id of a message, as the client of brokers prints it, and its bytes."""

    text: str
    data: str

    @classmethod
    def of_broker(cls, found: dict[str, Any]) -> Place:
        return cls(found["id"], found["bytes"])

    @classmethod
    def of_ours(cls, found: ReceivedMessage) -> Place:
        text = str(found.id)
        # That client prints three fields for a message outside a batch.
        text = text if found.id.batch_index >= 0 else text.removesuffix(":-1")
        return cls(text, found.id.to_bytes(found.batch_size).hex())


class SharedTopics:
    """A broker, a client of ours, and what is wrong so far."""

    def __init__(self, broker: TopicsBroker, client: Cluster, messages: int) -> None:
        self._broker = broker
        self._client = client
        self._count = messages
        self.wrong: list[str] = []

    def _name(self, local: str) -> str:
        return f"persistent://{_NAMESPACE}/{local}"

    @contextmanager
    def _ours(self, local: str, retention: Retention | None = None) -> Iterator[Topic]:
        """Take a topic over; close it afterwards, so that the broker can have it."""
        self._broker.ask("unload", self._name(local))
        roll_over = RollOver(entries=_ENTRIES_OF_A_LEDGER)
        topic = self._client.topic(self._name(local), roll_over=roll_over, retention=retention or Retention())
        with topic:
            yield topic

    def _compare(self, what: str, expected: Sequence[object], found: Sequence[object]) -> None:
        if expected == found:
            print(f"  {what}: {len(found):,}", flush=True)
            return
        places = (n for n, (one, other) in enumerate(zip(expected, found, strict=False)) if one != other)
        at = next(places, min(len(expected), len(found)))
        self.wrong.append(
            f"{what}: {len(expected)} expected, {len(found)} found; the first difference is at {at}: "
            f"{[*expected[at : at + 1]]} and {[*found[at : at + 1]]}"
        )

    def _produce_there(self, local: str, numbers: Sequence[int], batch: int, codec: Compression) -> None:
        for at in range(0, len(numbers), _PIECE):
            messages = [SharedMessage.made(number).for_broker() for number in numbers[at : at + _PIECE]]
            self._broker.ask(
                "produce", self._name(local), messages=messages, batch=batch, compression=codec.name
            )

    def _produce_here(self, topic: Topic, numbers: Sequence[int], batch: int, codec: Compression) -> None:
        batching = Batching(count=batch, delay_s=10.0) if batch else NO_BATCHES
        with topic.producer(batch=batching, compression=codec) as producer:
            producer.send_many([SharedMessage.made(number).for_us() for number in numbers])

    def _pieces(self) -> list[range]:
        size = self._count // len(_FORMS)
        return [range(at * size, (at + 1) * size) for at in range(len(_FORMS))]

    def read_and_write(self) -> None:
        """The broker writes messages that are read here, and the other way round, in one topic."""
        local, name = "both", self._name("both")
        self._broker.ask("create", name)
        self._broker.ask("subscribe", name, subscription="all")
        numbers = [number for piece in self._pieces() for number in piece]
        for (batch, codec), piece in zip(_FORMS, self._pieces(), strict=True):
            self._produce_there(local, piece, batch, codec)
        theirs = self._broker.ask("read", name)["messages"]
        with self._ours(local) as topic:
            ours = list(topic.reader().messages())
            self._compare_both("written by the broker", numbers, theirs, ours)
            for (batch, codec), piece in zip(_FORMS, self._pieces(), strict=True):
                self._produce_here(topic, piece, batch, codec)
            ours = list(topic.reader().messages())
        theirs = self._broker.ask("consume", name, subscription="all", count=2 * len(numbers))["messages"]
        self._compare_both("written by both", numbers * 2, theirs, ours)
        self._produce_there(local, range(10), 0, Compression.NONE)
        with self._ours(local) as topic:
            ours = list(topic.reader().messages())[-10:]
        self._compare(
            "after both", [*map(SharedMessage.made, range(10))], [*map(SharedMessage.of_ours, ours)]
        )

    def _compare_both(
        self, what: str, numbers: Sequence[int], theirs: list[dict[str, Any]], ours: list[ReceivedMessage]
    ) -> None:
        made = [SharedMessage.made(number) for number in numbers]
        self._compare(
            f"{what}, messages as the broker has them", made, [*map(SharedMessage.of_broker, theirs)]
        )
        self._compare(f"{what}, messages as we have them", made, [*map(SharedMessage.of_ours, ours)])
        self._compare(f"{what}, ids", [*map(Place.of_broker, theirs)], [*map(Place.of_ours, ours)])

    def cursors(self) -> None:
        """Each side acknowledges some messages, and the other one goes on with the rest."""
        local, name = "cursors", self._name("cursors")
        self._broker.ask("create", name)
        self._broker.ask("subscribe", name, subscription="shared")
        self._produce_there(local, range(20), 0, Compression.NONE)
        self._produce_there(local, range(20, 60), _BATCH, Compression.LZ4)
        numbers = range(60)
        left = [*numbers]
        # Single messages, parts of two batches, and everything up to one.
        individual = [3, 4, 7, 20, 22, 25, 41]
        self._broker.ask(
            "consume", name, subscription="shared", count=60, individual=individual, cumulative=1
        )
        left = [number for number in left if number > 1 and number not in individual]
        with self._ours(local) as topic, topic.subscription("shared", start=EARLIEST) as subscription:
            received = [subscription.receive() for _ in left]
            self._compare_left("acknowledged at the broker, left here", left, received)
            here = [0, 2, 5, 20, 30, len(left) - 1]
            for place in here:
                subscription.ack(received[place])
        left = [number for place, number in enumerate(left) if place not in here]
        answer = self._broker.ask("consume", name, subscription="shared", rest=True)["messages"]
        self._compare(
            "acknowledged here, left at the broker",
            [SharedMessage.made(number) for number in left],
            [SharedMessage.of_broker(one) for one in answer],
        )
        self._broker.ask("consume", name, subscription="shared", count=len(left), cumulative=len(left) - 1)
        self._produce_there(local, range(100, 103), 0, Compression.NONE)
        with self._ours(local) as topic, topic.subscription("shared", start=EARLIEST) as subscription:
            self._compare_left("after all", [100, 101, 102], [subscription.receive() for _ in range(3)])

    def _compare_left(self, what: str, numbers: Sequence[int], found: list[ReceivedMessage]) -> None:
        self._compare(what, [*map(SharedMessage.made, numbers)], [*map(SharedMessage.of_ours, found)])

    def trims(self) -> None:
        """We trim what the subscription has passed, and the broker goes on."""
        local, name = "trims", self._name("trims")
        count = self._pass_all(name)
        with self._ours(local, Retention(0, 0)) as topic:
            if not topic.trim():
                self.wrong.append("trims: nothing was trimmed here")
            left = [SharedMessage.of_ours(one) for one in topic.reader().messages()]
            self._produce_here(topic, range(count, count + 10), 0, Compression.NONE)
        theirs = self._broker.ask("read", name)["messages"]
        more = [SharedMessage.made(number) for number in range(count, count + 10)]
        self._compare("trimmed here", left + more, [SharedMessage.of_broker(one) for one in theirs])

    def broker_trims(self) -> None:
        """The broker trims what the subscription has passed, and we go on."""
        name = f"persistent://{_TRIMMED}/trims"
        count = self._pass_all(name)
        self._broker.ask("trim", name)
        give_up_at = time.monotonic() + _TRIM_S
        while len(self._broker.ask("internal", name)["stats"]["ledgers"]) > 1:
            if time.monotonic() > give_up_at:
                self.wrong.append("trims: the broker has trimmed nothing")
                return
            time.sleep(0.5)
        theirs = self._broker.ask("read", name)["messages"]
        self._broker.ask("unload", name)
        with self._client.topic(name) as topic:
            ours = list(topic.reader().messages())
            self._produce_here(topic, range(count, count + 10), _BATCH, Compression.NONE)
        self._compare("trimmed by the broker", [*map(Place.of_broker, theirs)], [*map(Place.of_ours, ours)])
        found = self._broker.ask("consume", name, subscription="passed", count=10)["messages"]
        more = [SharedMessage.made(number) for number in range(count, count + 10)]
        self._compare(
            "written after the broker's trim", more, [SharedMessage.of_broker(one) for one in found]
        )

    def partitions(self, key_hash: KeyHash, scheme: str) -> None:
        """Both sides write messages with the same keys to a topic with partitions."""
        name = self._name(f"parts-{key_hash.value}")
        self._broker.ask("create-partitioned", name, partitions=_PARTITIONS)
        keys = [f"key {number}" for number in range(100)] + ["", "k", "schlüssel", "键", "🔑" * 20]
        messages = [{"value": key.encode().hex(), "key": key} for key in keys]
        sent = self._broker.ask("produce", name, messages=messages, batch=0, hash=scheme)["ids"]
        for number in range(_PARTITIONS):
            self._broker.ask("unload", f"{name}-partition-{number}")
        with self._client.topic(name) as topic, topic.partitioned(key_hash=key_hash) as parts:
            ids = parts.send_many([Message(key.encode(), key) for key in keys])
            self._compare(
                f"partitions of keys, {key_hash.value}",
                [int(one["id"].split(":")[2]) for one in sent],
                [one.partition for one in ids],
            )
            found = {(one.payload.decode(), one.id.partition) for one in parts.reader().messages()}
            self._compare("a key is in one partition", [*sorted(keys)], sorted(key for key, _ in found))
        theirs = self._broker.ask("read", name)["messages"]
        read = sorted(bytes.fromhex(one["value"]).decode() for one in theirs)
        self._compare("both read by the broker", sorted(keys * 2), read)

    def deduplication(self) -> None:
        """A producer with a name sends messages again to the other side, four times in turn."""
        name = f"persistent://{_DEDUPLICATED}/numbers"
        self._broker.ask("create", name)
        ends: list[int] = []
        for first in range(0, 40, 10):
            numbers = range(max(first - 5, 0), first + 10)
            if first % 20 == 0:
                messages = [{"value": f"{number}".encode().hex(), "sequenceId": number} for number in numbers]
                self._broker.ask("produce", name, messages=messages, batch=0, producer="numbered")
                self._broker.ask("unload", name)
            else:
                with self._client.topic(name) as topic, topic.producer("numbered") as producer:
                    ends.append(producer.last_sequence_id)
                    sent = [producer.send(f"{number}".encode(), number) for number in numbers]
                    self._compare("sent again here", [None] * 5, sent[:5])
        self._compare("last numbers of the broker's messages", [9, 29], ends)
        theirs = [bytes.fromhex(one["value"]) for one in self._broker.ask("read", name)["messages"]]
        self._compare("each once", [f"{number}".encode() for number in range(40)], theirs)

    def _pass_all(self, name: str) -> int:
        """Produce some ledgers of messages at the broker, and acknowledge all; return how many there are."""
        self._broker.ask("create", name)
        self._broker.ask("subscribe", name, subscription="passed")
        count = 4 * _ENTRIES_OF_A_LEDGER
        messages = [SharedMessage.made(number).for_broker() for number in range(count)]
        self._broker.ask("produce", name, messages=messages, batch=0)
        self._broker.ask("consume", name, subscription="passed", count=count, cumulative=count - 1)
        return count


def run(messages: int) -> int:
    classpath(PULSAR)
    with (
        cluster(our_metadata, our_bookie, 3) as uri,
        topics_broker(
            uri,
            "broker-shared",
            managedLedgerMaxEntriesPerLedger=_ENTRIES_OF_A_LEDGER,
            managedLedgerDefaultMarkDeleteRateLimit=0,
            **_KEPT,
        ) as broker,
        connect(uri) as client,
    ):
        print("a Pulsar broker and our topics share topics:", flush=True)
        broker.ask("namespace", namespace=_NAMESPACE, minutes=-1, megabytes=-1)
        broker.ask("namespace", namespace=_TRIMMED, minutes=0, megabytes=0)
        broker.ask("namespace", namespace=_DEDUPLICATED, minutes=-1, megabytes=-1)
        broker.ask("deduplicate", namespace=_DEDUPLICATED)
        shared = SharedTopics(broker, client, messages)
        shared.deduplication()
        shared.partitions(KeyHash.JAVA_STRING, "JavaStringHash")
        shared.partitions(KeyHash.MURMUR3, "Murmur3_32Hash")
        shared.cursors()
        shared.trims()
        shared.broker_trims()
        shared.read_and_write()
    print(*shared.wrong, sep="\n", end="\n" if shared.wrong else "")
    print(f"pulsar-topics: {messages:,} messages each way, {len(shared.wrong)} differences")
    return 1 if shared.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=20_000)
    return run(parser.parse_args().messages)


if __name__ == "__main__":
    sys.exit(exit_code_of("pulsar-topics", main))
