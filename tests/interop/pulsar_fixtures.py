"""Make the files of tests/fixtures/pulsar: what a Pulsar broker writes into ledgers and znodes.

    PYTHONPATH=tests/support python tests/interop/pulsar_fixtures.py

The broker runs on three of our bookies and our metadata server. A program with Pulsar's client produces and
consumes; the bytes are read with our clients of ledgers and of ZooKeeper.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bookies import cluster, our_bookie, our_metadata
from jvm import exit_code_of
from pulsar_brokers import topics_broker

from storage.cluster import connect
from storage.cluster.errors import NoSuchLedgerExistsOnMetadataServer
from storage.cluster.metadata.address import parse_address
from storage.cluster.metadata.znodes import Gone
from storage.cluster.zookeeper.client import ClientConfig, run
from storage.errors import NoSuchEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_brokers import TopicsBroker

    from storage.cluster.client.blocking import Cluster
    from storage.cluster.metadata.znodes import Znodes

FIXTURES = Path(__file__).parent.parent / "fixtures" / "pulsar"
_NAMESPACE = "public/fixtures"
_CODECS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
_IMMEDIATELY: dict[str, object] = {"managedLedgerDefaultMarkDeleteRateLimit": 0}
"""Each acknowledgement is kept at once, so that the cursor's ledger has all of them."""

_LARGEST = 2**63 - 1
_MADE_IDS: Sequence[Sequence[int]] = (
    *((1, 2, -1), (1, 2, 0), (300, 70_000, 7), (-1, -1, -1), (_LARGEST, _LARGEST, -1)),
    *((1, 2, -1, 0, 1), (1, 2, 3, 4, 10), (300, 70_000, -1, 0, 2), (300, 70_000, 1, 199, 200)),
)
"""Ledger, entry and partition, and for an id of a message in a batch its index and the size of the batch."""

_SIMPLE: tuple[dict[str, object], ...] = tuple(
    {"value": (f"message {number}, " + "and so on " * 12).encode().hex(), "properties": {"n": str(number)}}
    for number in range(3)
)
_EVERYTHING: tuple[dict[str, object], ...] = (
    {"value": b"with a key".hex(), "key": "text \N{EURO SIGN}"},
    {"value": b"with a key of bytes".hex(), "keyBytes": "00ff10"},
    {"value": b"with an ordering key".hex(), "orderingKey": "0102fe"},
    {"value": b"with times".hex(), "eventTime": 1_700_000_000_123},
    {"value": b"with properties".hex(), "properties": {"a": "1", "b": "", "\N{EURO SIGN}": "\N{POUND SIGN}"}},
    {"value": None, "key": "null value"},
    {"value": "", "key": "empty value"},
    {
        "value": b"with all of them".hex(),
        "key": "k",
        "orderingKey": "6f",
        "eventTime": 1,
        "properties": {"a": "b"},
    },
)


class Reference(NamedTuple):
    """A running broker, and clients of the cluster that it keeps its topics in."""

    uri: str
    broker: TopicsBroker
    ledgers: Cluster

    def topic(self, name: str) -> str:
        return f"persistent://{_NAMESPACE}/{name}"

    def znode(self, path: str) -> bytes | None:
        """Return the data of a znode below those of topics of the namespace; `None` without it."""

        async def read(znodes: Znodes) -> bytes | None:
            node = await znodes.get(f"/managed-ledgers/{_NAMESPACE}/persistent/{path}")
            return None if isinstance(node, Gone) else node.data

        return run(ClientConfig(parse_address(self.uri).hosts), read)

    def entries(self, ledger_id: int) -> list[str]:
        """Return the entries of a ledger, which may be open."""
        reader = self.ledgers.view(ledger_id)
        found: list[str] = []
        try:
            while True:
                found.append(reader.read(len(found)).payload.hex())
        except NoSuchEntry:
            return found

    def stored(self, messages: Sequence[dict[str, Any]]) -> dict[str, str]:
        """Return the entries of these messages, by the id of the entry."""
        positions = {":".join(message["id"].split(":")[:2]) for message in messages}
        ledgers = {ledger: self.entries(int(ledger)) for ledger in {one.split(":")[0] for one in positions}}
        return {one: ledgers[one.split(":")[0]][int(one.split(":")[1])] for one in _ascending(positions)}


def _ascending(positions: set[str]) -> list[str]:
    return sorted(positions, key=lambda one: [int(number) for number in one.split(":")])


@contextmanager
def _reference(uri: str, name: str, **settings: object) -> Iterator[Reference]:
    with topics_broker(uri, name, **_IMMEDIATELY, **settings) as broker, connect(uri) as ledgers:
        yield Reference(uri, broker, ledgers)


def _topic_of_messages(
    reference: Reference, name: str, messages: Sequence[dict[str, object]], **how: object
) -> dict[str, Any]:
    """Produce messages to a new topic; return them as sent and as found, and the entries that have them."""
    topic = reference.topic(name)
    reference.broker.ask("create", topic)
    sent = reference.broker.ask("produce", topic, messages=messages, **how)["ids"]
    found = reference.broker.ask("read", topic)["messages"]
    return {**how, "sent": sent, "found": found, "entries": reference.stored(found)}


def _entries(reference: Reference) -> dict[str, Any]:
    topics = {}
    for codec in _CODECS:
        topics[f"single-{codec}"] = _topic_of_messages(
            reference, f"single-{codec}", _SIMPLE[:1], compression=codec, batch=0
        )
        topics[f"batched-{codec}"] = _topic_of_messages(
            reference, f"batched-{codec}", _SIMPLE, compression=codec, batch=3
        )
    topics["single-everything"] = _topic_of_messages(reference, "single-everything", _EVERYTHING, batch=0)
    topics["batched-everything"] = _topic_of_messages(
        reference, "batched-everything", _EVERYTHING, batch=len(_EVERYTHING)
    )
    topics["batch-of-one"] = _topic_of_messages(reference, "batch-of-one", _SIMPLE[:1], batch=1)
    topics["chunked"] = _topic_of_messages(
        reference, "chunked", [{"value": bytes(range(250)).hex()}], batch=0, chunk=100
    )
    return topics


def _message_ids(reference: Reference) -> list[dict[str, Any]]:
    partitioned = reference.topic("partitioned")
    reference.broker.ask("create-partitioned", partitioned, partitions=2)
    made = reference.broker.ask("ids", ids=_MADE_IDS)["ids"]
    found: list[dict[str, Any]] = [
        {"made of": given, **one} for given, one in zip(_MADE_IDS, made, strict=True)
    ]
    for batch in (0, 2):
        messages = [{"value": "00", "key": str(number)} for number in range(4)]
        sent = reference.broker.ask("produce", partitioned, messages=messages, batch=batch)["ids"]
        found += ({"sent to": "a partitioned topic", "batch": batch, **one} for one in sent)
    return found


class Acknowledged(NamedTuple):
    """What a consumer acknowledges of the messages that it has received."""

    individual: Sequence[int] = ()
    cumulative: int | None = None

    def arguments(self, count: int) -> dict[str, object]:
        last = {} if self.cumulative is None else {"cumulative": self.cumulative}
        return {"count": count, "individual": self.individual, **last}


_SINGLES, _BATCH, _BATCHES = 10, 5, 4
_MESSAGES = _SINGLES + _BATCH * _BATCHES
_CURSORS = {
    "nothing": Acknowledged(),
    "cumulative": Acknowledged(cumulative=4),
    "individual": Acknowledged((2, 3, 5, 8)),
    "inside-batches": Acknowledged((0, _SINGLES, _SINGLES + 2, _SINGLES + 3 * _BATCH + 4)),
    "cumulative-inside-a-batch": Acknowledged(cumulative=_SINGLES + _BATCH + 1),
    "mixed": Acknowledged((6, _SINGLES, _SINGLES + 1, _MESSAGES - 1), cumulative=3),
    "all": Acknowledged(cumulative=_MESSAGES - 1),
}


def _cursors(reference: Reference, name: str) -> dict[str, Any]:
    """Return what the broker keeps of cursors of a topic, as long as it has the topic and afterwards."""
    broker, topic = reference.broker, reference.topic(name)
    broker.ask("create", topic)
    for subscription in _CURSORS:
        broker.ask("subscribe", topic, subscription=subscription)
    values = [{"value": f"{number:02x}"} for number in range(_MESSAGES)]
    broker.ask("produce", topic, messages=values[:_SINGLES], batch=0)
    broker.ask("produce", topic, messages=values[_SINGLES:], batch=_BATCH)
    found: dict[str, Any] = {}
    for subscription, acknowledged in _CURSORS.items():
        received = broker.ask(
            "consume", topic, subscription=subscription, **acknowledged.arguments(_MESSAGES)
        )
        found[subscription] = {
            **acknowledged.arguments(_MESSAGES),
            "messages": [one["id"] for one in received["messages"]],
        }
    stats = broker.ask("internal", topic)["stats"]
    lists = {"while the broker has the topic": _hex(reference.znode(name))}
    for subscription, cursor in found.items():
        shown = stats["cursors"][subscription]
        ledger_id = shown["cursorLedger"]
        cursor["while the broker has the topic"] = {
            "znode": _hex(reference.znode(f"{name}/{subscription}")),
            "ledger": ledger_id,
            "entries": [] if ledger_id < 0 else reference.entries(ledger_id),
            "stats": {key: shown[key] for key in ("markDeletePosition", "individuallyDeletedMessages")},
        }
    broker.ask("unload", topic)
    lists["after it was unloaded"] = _hex(reference.znode(name))
    for subscription, cursor in found.items():
        ledger_id = cursor["while the broker has the topic"]["ledger"]
        cursor["after it was unloaded"] = {
            "znode": _hex(reference.znode(f"{name}/{subscription}")),
            "entries": _entries_if_any(reference, ledger_id),
        }
    for subscription, cursor in found.items():
        cursor["sent again after the unload"] = _left(reference, topic, subscription)
    return {"managed ledger": lists, "cursors": found}


def _entries_if_any(reference: Reference, ledger_id: int) -> list[str]:
    try:
        return [] if ledger_id < 0 else reference.entries(ledger_id)
    except NoSuchLedgerExistsOnMetadataServer:
        return []


def _left(reference: Reference, topic: str, subscription: str) -> list[str]:
    """Return the ids of all messages that the broker sends to a new consumer."""
    answer = reference.broker.ask("consume", topic, subscription=subscription, rest=True)
    return [one["id"] for one in answer["messages"]]


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _managed_ledgers(reference: Reference) -> dict[str, Any]:
    """Return the list of ledgers of a topic at several moments."""
    name, broker = "rolled-over", reference.broker
    topic = reference.topic(name)
    broker.ask("create", topic)
    found = {"new": _hex(reference.znode(name))}
    values = [{"value": f"{number:04x}"} for number in range(12)]
    broker.ask("produce", topic, messages=values, batch=0)
    found["12 messages, 5 of a ledger"] = _hex(reference.znode(name))
    broker.ask("unload", topic)
    found["unloaded"] = _hex(reference.znode(name))
    broker.ask("terminate", topic)
    found["terminated"] = _hex(reference.znode(name))
    return found


def main() -> int:
    FIXTURES.mkdir(exist_ok=True)
    with cluster(our_metadata, our_bookie, 3) as uri:
        with _reference(uri, "broker-1") as reference:
            reference.broker.ask("namespace", namespace=_NAMESPACE, minutes=-1, megabytes=-1)
            _write("entries", _entries(reference))
            _write("message_ids", _message_ids(reference))
            _write("cursors", _cursors(reference, "cursors"))
            reference.broker.end()
        interceptors = ",".join(
            f"org.apache.pulsar.common.intercept.Append{what}MetadataInterceptor"
            for what in ("BrokerTimestamp", "Index")
        )
        with _reference(
            uri,
            "broker-2",
            brokerEntryMetadataInterceptors=interceptors,
            exposingBrokerEntryMetadataToClientEnabled="true",
            managedLedgerMaxUnackedRangesToPersistInMetadataStore=0,
            managedLedgerMaxEntriesPerLedger=5,
        ) as reference:
            single = _topic_of_messages(reference, "broker-metadata", _SIMPLE, batch=0)
            batched = _topic_of_messages(reference, "broker-metadata-batched", _SIMPLE, batch=3)
            _write("broker_metadata", {"single": single, "batched": batched})
            _write("cursors_in_ledgers", _cursors(reference, "cursors-in-ledgers"))
            _write("managed_ledgers", _managed_ledgers(reference))
            reference.broker.end()
        with _reference(
            uri,
            "broker-3",
            managedLedgerPersistIndividualAckAsLongArray="false",
            managedLedgerMaxUnackedRangesToPersistInMetadataStore=0,
            managedLedgerInfoCompressionType="ZSTD",
            managedLedgerInfoCompressionThresholdInBytes=1,
            managedCursorInfoCompressionType="LZ4",
            managedCursorInfoCompressionThresholdInBytes=1,
        ) as reference:
            _write("cursors_of_ranges", _cursors(reference, "cursors-of-ranges"))
            reference.broker.end()
    return 0


def _write(name: str, found: object) -> None:
    path = FIXTURES / f"{name}.json"
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(f"{path.name}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code_of("pulsar-fixtures", main))
