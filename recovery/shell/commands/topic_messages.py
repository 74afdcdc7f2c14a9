"""`ledgerstore topic produce`, `read`, `follow`, `subscribe`: the messages of a topic.

id             ledger:entry:partition:batch; -1 without partitions, and for a message outside a batch
key            chooses the partition; 0x… if it is bytes
published      when the producer wrote the entry
event_time     the time that the application gave to the message
producer       the name of the producer
sequence_id    grows with each message of a producer
properties     name=value, …
redelivered    how often a subscription has delivered the message before
size           bytes of the payload
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options, topics
from recovery.shell.cluster_metadata import MetadataConnection, connection, is_address
from recovery.shell.exit_codes import say
from recovery.shell.options import PayloadFormat
from recovery.shell.output import Column, Form, counted, number_column, row_writer

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import AsyncGenerator, Iterator

    from storage.cluster.client.distribution import Quorums
    from storage.cluster.topics.ledgers_port import TopicLedgers
    from storage.cluster.topics.managed_ledger import TopicName
    from storage.cluster.topics.message import ReceivedMessage
    from storage.cluster.topics.message_id import MessageId
    from storage.cluster.topics.reader import Start

_UNDER_WAY_MAX = 1_000
"""Messages whose ids are not printed yet."""

_limit = click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N messages.")


@click.command()
@topics.place
@topics.topic_name
@click.argument("messages", metavar="[MESSAGE]...", nargs=-1)
@click.option("--key", metavar="KEY", help="The key of all messages. It chooses the partition.")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of all messages. May be repeated.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Messages per entry.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4", "zlib", "zstd", "snappy"]),
    default="none",
    show_default=True,
    help="How entries are compressed. lz4, zstd and snappy need the extra [topics].",
)
@click.option(
    "--producer", "producer_name", metavar="NAME", help="The name of the producer.  [default: a new name]"
)
@click.option(
    "--hash",
    "key_hash",
    type=click.Choice(["java-string", "murmur3"]),
    default="java-string",
    show_default=True,
    help="How a key chooses the partition; all producers have to agree.",
)
@topics.quorums
@options.output
@connection
def produce(
    place: str,
    name: TopicName,
    messages: tuple[str, ...],
    key: str | None,
    properties: tuple[str, ...],
    batch: int,
    compression: str,
    producer_name: str | None,
    key_hash: str,
    quorums: Quorums,
    form: Form,
    connection: MetadataConnection,
) -> None:
    """Write messages to TOPIC, and print their ids. Without MESSAGE each line of stdin is one.

    The topic is taken over: another process that writes it is fenced. An id is printed when its message is
    durable. A store is created if the directory PLACE does not exist.

    \b
    Examples:
      ledgerstore topic produce zk://localhost:2181/ledgers orders first second
      ledgerstore topic produce zk://localhost:2181/ledgers orders --batch 100 < lines
      ledgerstore topic produce zk://localhost:2181/ledgers a/b/c --key k --property from=shell message
    """
    from storage.cluster.topics.compression import Compression
    from storage.cluster.topics.message import Message
    from storage.cluster.topics.producer import Batching
    from storage.cluster.topics.routing import KeyHash
    from storage.cluster.topics.topic import open_topic

    pairs = [one.partition("=") for one in properties]
    if any(not separator for _, separator, _ in pairs):
        raise click.UsageError("--property expects NAME=VALUE")
    values = {property_name: value for property_name, _, value in pairs}
    texts = (one.encode() for one in messages) if messages else _lines()
    given = (Message(one, key, values) for one in texts)
    out = row_writer(form, [Column("id", width=10), number_column("size")])

    if not is_address(place):
        Path(place).mkdir(exist_ok=True)  # a store is made by its first message

    async def work() -> int:
        async with (
            topics.open_topics(place, connection, quorums) as ledgers,
            await open_topic(ledgers, name, KeyHash(key_hash)) as topic,
            await topic.producer(
                producer_name, Batching(batch), Compression[compression.upper()]
            ) as producer,
        ):
            count = 0
            waiting: deque[tuple[int, Future[MessageId | None]]] = deque()
            for message in given:
                waiting.append((len(message.payload), await producer.submit(message)))
                if len(waiting) >= max(_UNDER_WAY_MAX, 2 * batch):
                    size, sent = waiting.popleft()
                    out.row({"id": str(await sent), "size": size})
                count += 1
            await producer.flush()
            for size, sent in waiting:
                out.row({"id": str(await sent), "size": size})
            out.end()
            return count

    count = topics.run(work())
    say(f"topic produce: {counted(count, 'message')} to {name}")


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


@click.command()
@topics.place
@topics.topic_name
@topics.start("earliest")
@_limit
@topics.payload
@click.option("--skip-missing", is_flag=True, help="Pass over ledgers of the topic that do not exist.")
@options.output
@connection
def read(
    place: str,
    name: TopicName,
    start: Start,
    limit: int | None,
    payload: str,
    skip_missing: object,
    form: Form,
    connection: MetadataConnection,
) -> None:
    """Read the messages of TOPIC up to its current end. Nothing is changed, and nothing acknowledged.

    Those of all partitions are merged by the times at which they were published.

    \b
    Examples:
      ledgerstore topic read zk://localhost:2181/ledgers orders
      ledgerstore topic read zk://localhost:2181/ledgers orders --after 7:41:-1:-1 --ndjson
      ledgerstore topic read zk://localhost:2181/ledgers orders --since 2026-01-31T12:00:00 --limit 10
    """
    from storage.cluster.topics.policies import MissingLedgers

    missing = MissingLedgers.SKIP if skip_missing else MissingLedgers.REFUSE

    async def work() -> int:
        out, count = row_writer(form, topics.message_columns(PayloadFormat(payload))), 0
        async with topics.open_topics(place, connection) as ledgers:
            readers, messages = await topics.reading(ledgers, name, start, missing)
            async with aclosing(messages):
                async for received in messages:
                    if count == limit:
                        break
                    out.row(topics.message_row(received, PayloadFormat(payload)))
                    count += 1
            for reader in readers:
                for ledger_id in reader.skipped_ledgers:
                    say(
                        f"topic read: {reader.name}: ledger {ledger_id} does not exist, its messages are lost"
                    )
        out.end()
        return count

    count = topics.run(work())
    say(f"topic read: {counted(count, 'message')} of {name}")


@click.command()
@topics.place
@topics.topic_name
@topics.start("latest")
@_limit
@topics.payload
@options.output
@connection
def follow(
    place: str,
    name: TopicName,
    start: Start,
    limit: int | None,
    payload: str,
    form: Form,
    connection: MetadataConnection,
) -> None:
    """Read messages of TOPIC and wait for more, until Ctrl-C. Nothing is changed, and nothing acknowledged.

    Messages of all partitions are shown as they come.

    \b
    Examples:
      ledgerstore topic follow zk://localhost:2181/ledgers orders
      ledgerstore topic follow zk://localhost:2181/ledgers orders --after 7:41:-1:-1 --ndjson
    """

    async def work() -> int:
        async with (
            topics.open_topics(place, connection) as ledgers,
            aclosing(await topics.following(ledgers, name, start)) as messages,
        ):
            return await _show(messages, limit, PayloadFormat(payload), form)

    count = topics.run(work())
    say(f"topic follow: {counted(count, 'message')} of {name}")


async def _show(
    messages: AsyncGenerator[ReceivedMessage, None], limit: int | None, payload: PayloadFormat, form: Form
) -> int:
    """Print messages as they come, because a table that waits for more rows would show none of them."""
    out, count = row_writer(form, topics.message_columns(payload)), 0
    if limit != 0:
        async for received in messages:
            out.row(topics.message_row(received, payload))
            sys.stdout.flush()
            count += 1
            if count == limit:
                break
    out.end()
    return count


@click.command()
@topics.place
@topics.topic_name
@click.argument("subscription", metavar="SUBSCRIPTION")
@topics.start("latest")
@_limit
@click.option("--failover", is_flag=True, help="Wait while another consumer has the subscription.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0.0),
    metavar="SECONDS",
    help="Stop if no message comes for this time.  [default: never]",
)
@topics.payload
@topics.quorums
@options.output
@connection
def subscribe(
    place: str,
    name: TopicName,
    subscription: str,
    start: Start,
    limit: int | None,
    failover: object,
    wait: float | None,
    payload: str,
    quorums: Quorums,
    form: Form,
    connection: MetadataConnection,
) -> None:
    """Receive the messages of SUBSCRIPTION, print and acknowledge them, until Ctrl-C.

    A subscription that does not exist is created; --from, --after and --since then say with which message it
    begins. The next consumer goes on after what was acknowledged.

    \b
    Examples:
      ledgerstore topic subscribe zk://localhost:2181/ledgers orders billing --from earliest
      ledgerstore topic subscribe zk://localhost:2181/ledgers orders billing --limit 10 --ndjson
      ledgerstore topic subscribe zk://localhost:2181/ledgers orders billing --wait 5
    """
    from storage.cluster.topics.subscription import SubscriptionMode
    from storage.cluster.topics.topic import open_topic

    mode = SubscriptionMode.FAILOVER if failover else SubscriptionMode.EXCLUSIVE

    async def received_from(ledgers: TopicLedgers) -> AsyncGenerator[ReceivedMessage, None]:
        async with (
            await open_topic(ledgers, name) as topic,
            await topic.subscription(subscription, mode, start) as consumer,
        ):
            while True:
                message = await (consumer.receive() if wait is None else consumer.receive_within(wait))
                if message is None:
                    return
                try:
                    yield message
                finally:
                    await consumer.ack(message)  # it was printed

    async def work() -> int:
        async with (
            topics.open_topics(place, connection, quorums) as ledgers,
            aclosing(received_from(ledgers)) as messages,
        ):
            return await _show(messages, limit, PayloadFormat(payload), form)

    count = topics.run(work())
    say(f"topic subscribe: {counted(count, 'message')} of {name} acknowledged by {subscription!r}")
