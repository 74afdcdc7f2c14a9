"""Reaches the topics of a cluster or of a store for a command: places, names, where to start, rows."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recovery.shell.cluster_metadata import is_address
from recovery.shell.exit_codes import CannotDo, StoreRefused, check_installed
from recovery.shell.options import PayloadFormat
from recovery.shell.output import Column, number_column

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence

    from recovery.shell.cluster_metadata import MetadataConnection
    from recovery.shell.output import Row
    from storage.cluster.client.distribution import Quorums
    from storage.cluster.topics.ledgers_port import TopicLedgers
    from storage.cluster.topics.managed_ledger import TopicName
    from storage.cluster.topics.message import ReceivedMessage
    from storage.cluster.topics.policies import MissingLedgers
    from storage.cluster.topics.reader import AsyncTopicReader, Start

    _Function = TypeVar("_Function", bound=Callable[..., Any])

_T = TypeVar("_T")


# ── places and names ─────────────────────────────────────────────────────────────────────────────────────


class QuorumsType(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Parses `3/3/2`: ensemble, write quorum, ack quorum."""

    name = "E/W/A"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Quorums:
        from storage.cluster.client.distribution import Quorums
        from storage.cluster.errors import InvalidQuorums

        if isinstance(value, Quorums):
            return value
        if not re.fullmatch(r"\d{1,4}/\d{1,4}/\d{1,4}", value, re.ASCII):
            self.fail(f"{value!r} is not three numbers such as 3/3/2", param, ctx)
        try:
            return Quorums(*map(int, value.split("/")))
        except InvalidQuorums as error:
            self.fail(str(error), param, ctx)


class TopicNameType(click.ParamType):  # type: ignore[type-arg]
    """Parses `name`, `tenant/namespace/name` or `persistent://tenant/namespace/name`."""

    name = "TOPIC"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicName:
        from storage.cluster.topics.errors import InvalidTopicName
        from storage.cluster.topics.managed_ledger import TopicName

        try:
            return value if isinstance(value, TopicName) else TopicName.parse(value)
        except InvalidTopicName as error:
            self.fail(str(error), param, ctx)


place = click.argument("place", metavar="PLACE")
"""Adds the argument for where topics are: the address of a cluster's metadata, or a store's directory."""

topic_name = click.argument("name", metavar="TOPIC", type=TopicNameType())

quorums = click.option(
    "--quorums",
    type=QuorumsType(),
    default="3/3/2",
    show_default=True,
    help="Ensemble, write and ack quorum of new ledgers in a cluster.",
)


@asynccontextmanager
async def open_topics(
    place: str, connection: MetadataConnection, quorums: Quorums | None = None
) -> AsyncIterator[TopicLedgers]:
    """Open the cluster or the store that has the topics."""
    if not is_address(place):
        async with _open_store(place) as ledgers:
            yield ledgers
        return
    check_installed("topic", "cluster", "kazoo")
    from storage.cluster.client.cluster import open_cluster
    from storage.cluster.client.distribution import Quorums
    from storage.cluster.errors import InvalidMetadataUri
    from storage.cluster.metadata.address import parse_address
    from storage.cluster.topics.cluster_ledgers import ClusterLedgers
    from storage.cluster.zookeeper import client as zookeeper

    try:
        parsed = parse_address(place)
    except InvalidMetadataUri as error:
        raise click.UsageError(str(error)) from error
    async with (
        zookeeper.connect(connection.config(parsed)) as znodes,
        open_cluster(znodes, parsed.root, parsed.tree) as cluster,
    ):
        yield ClusterLedgers(cluster, quorums or Quorums(1, 1, 1))


@asynccontextmanager
async def _open_store(path: str) -> AsyncIterator[TopicLedgers]:
    if not Path(path).is_dir():
        raise CannotDo(f"{path}: neither a directory nor the address of a cluster's metadata")
    from recovery.opening.open_async_store import open_async_store
    from storage.cluster.topics.embedded import AsyncEmbeddedTopics

    async with open_async_store(path) as store:
        topics = AsyncEmbeddedTopics(store)
        try:
            yield topics.ledgers
        finally:
            await topics.close()


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine, and turn errors of topics into those of a command."""
    import logging

    from storage.cluster.errors import InvalidMetadata
    from storage.cluster.topics.errors import InvalidMessageEntry
    from storage.errors import StoreError

    # The command prints the outcome by itself, without remarks about lost connections.
    logging.getLogger("ledgerstore").addHandler(logging.NullHandler())
    try:
        return asyncio.run(work)
    except (InvalidMetadata, InvalidMessageEntry) as error:
        raise StoreRefused(str(error)) from error
    except StoreError as error:
        raise CannotDo(str(error)) from error


# ── where to start ───────────────────────────────────────────────────────────────────────────────────────


def start(default: str) -> Callable[[_Function], _Function]:
    """Add `--from`, `--after` and `--since`. The command gets them as `start`."""

    def decorated(function: _Function) -> _Function:
        @click.option(
            "--from",
            "first",
            metavar="ID",
            help=f"First message: an id, earliest or latest.  [default: {default}]",
        )
        @click.option("--after", metavar="ID", help="Begin with the message after this one.")
        @click.option(
            "--since",
            metavar="TIME",
            help="Begin at a time, such as 2026-01-31T12:00:00, local or with its offset.",
        )
        @wraps(function)
        def gathered(first: str | None, after: str | None, since: str | None, **rest: Any) -> Any:
            if sum(one is not None for one in (first, after, since)) > 1:
                raise click.UsageError("--from, --after and --since cannot be used together")
            return function(start=_start_of(first or default, after, since), **rest)

        return gathered  # type: ignore[return-value]

    return decorated


def _start_of(first: str, after: str | None, since: str | None) -> Start:
    from storage.cluster.topics.errors import InvalidMessageId
    from storage.cluster.topics.message_id import EARLIEST, LATEST, MessageId
    from storage.cluster.topics.reader import After, AtTime

    if since is not None:
        try:
            time = datetime.fromisoformat(since)
        except ValueError as error:
            raise click.UsageError(f"--since: {since!r} is no time such as 2026-01-31T12:00:00") from error
        return AtTime(int(time.astimezone(UTC).timestamp() * 1000))
    try:
        if after is not None:
            return After(MessageId.parse(after))
        return {"earliest": EARLIEST, "latest": LATEST}.get(first) or MessageId.parse(first)
    except InvalidMessageId as error:
        raise click.UsageError(str(error)) from error


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────


async def reading(
    ledgers: TopicLedgers, name: TopicName, start: Start, missing: MissingLedgers
) -> tuple[Sequence[AsyncTopicReader], AsyncGenerator[ReceivedMessage, None]]:
    """Return the messages of a topic or of all its partitions, and what reads them."""
    from storage.cluster.topics.partitioned import AsyncPartitionedTopic
    from storage.cluster.topics.topic import open_topic

    topic = await open_topic(ledgers, name, missing=missing)
    if isinstance(topic, AsyncPartitionedTopic):
        merged = topic.reader(start)
        return merged.readers, merged.messages()
    reader = topic.reader(start)
    return [reader], reader.messages()


async def following(
    ledgers: TopicLedgers, name: TopicName, start: Start
) -> AsyncGenerator[ReceivedMessage, None]:
    """Return the messages of a topic or of all its partitions without end."""
    from storage.cluster.topics.partitioned import AsyncPartitionedTopic
    from storage.cluster.topics.topic import open_topic

    topic = await open_topic(ledgers, name)
    if isinstance(topic, AsyncPartitionedTopic):
        return topic.reader(start).follow()
    return topic.reader(start).follow()


# ── rows of messages ─────────────────────────────────────────────────────────────────────────────────────

payload = click.option(
    "--payload",
    type=click.Choice([one.value for one in PayloadFormat]),
    default=PayloadFormat.TEXT.value,
    show_default=True,
    help="How payloads are printed.",
)


def message_columns(payload: PayloadFormat) -> list[Column]:
    columns = [
        Column("id", width=10),
        Column("key", rank=1),
        Column("published", rank=2),
        Column("producer", rank=5),
        number_column("sequence_id", rank=6),
        Column("properties", rank=4),
        number_column("size", rank=3),
    ]
    return columns if payload is PayloadFormat.NONE else [*columns, Column("payload")]


def message_row(received: ReceivedMessage, payload: PayloadFormat) -> Row:
    """Return the cells of a message. A key of bytes is shown in hexadecimal digits after 0x."""
    message = received.message
    row: Row = {
        "id": str(received.id),
        "key": f"0x{message.key.hex()}" if isinstance(message.key, bytes) else message.key,
        "published": time_of(message.publish_time_ms),
        "event_time": time_of(message.event_time_ms),
        "producer": message.producer_name,
        "sequence_id": message.sequence_id,
        "properties": ", ".join(f"{key}={value}" for key, value in message.properties.items()) or None,
        "redelivered": received.redelivery_count,
        "size": len(message.payload),
    }
    match payload:
        case PayloadFormat.HEX:
            row["payload"] = message.payload.hex()
        case PayloadFormat.TEXT:
            row["payload"] = message.payload.decode(errors="backslashreplace")
        case PayloadFormat.NONE:
            pass
    return row


def time_of(time_ms: int | None) -> str | None:
    """Return a time in UTC as text; `None` if there is none."""
    if not time_ms:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
