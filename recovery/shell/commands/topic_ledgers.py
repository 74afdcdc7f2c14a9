"""`ledgerstore topic create`, `list`, `stats`, `roll-over`, `trim`, `delete`, `copy`: whole topics.

Rows of `list`:   topic, partitions (of a topic that has them), ledgers, entries, size, subscriptions
Rows of `stats`:  kind (partitions, ledger or subscription), name, entries (of a subscription: those it has
                  not acknowledged), size, closed (when the ledger was closed), position (the entry up to
                  which all are acknowledged), ranges (acknowledged entries after it, in intervals).
                  Of a topic with partitions the first rows have the sums of all of them
Rows of `copy`:   source, target (ledger:entry of an entry and of its copy), messages
"""

from __future__ import annotations

from contextlib import AsyncExitStack, nullcontext, suppress
from typing import TYPE_CHECKING

import click

from recovery.shell import options, topics
from recovery.shell.cluster_metadata import MetadataConnection, connection
from recovery.shell.exit_codes import say
from recovery.shell.output import Column, Form, counted, number_column, row_writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from recovery.shell.output import Row
    from storage.cluster.client.distribution import Quorums
    from storage.cluster.topics.ledgers_port import TopicLedgers
    from storage.cluster.topics.managed_ledger import TopicName


@click.command()
@topics.place
@topics.topic_name
@click.option("--partitions", type=click.IntRange(1, 100_000), required=True, metavar="N", help="How many.")
@connection
def create(place: str, name: TopicName, partitions: int, connection: MetadataConnection) -> None:
    """Create TOPIC with N partitions. A topic without partitions is created by its first message.

    Messages with a key go to the partition that the key chooses, others to the partitions in turn.

    \b
    Examples:
      ledgerstore topic create zk://localhost:2181/ledgers orders --partitions 4
    """
    from storage.cluster.topics.administration import create_partitions

    async def work() -> None:
        async with topics.open_topics(place, connection) as ledgers:
            await create_partitions(ledgers, name, partitions)

    topics.run(work())
    say(f"topic create: {name} has {counted(partitions, 'partition')}")


@click.command("list")
@topics.place
@options.output
@connection
def list_topics(place: str, form: Form, connection: MetadataConnection) -> None:
    """List the topics at PLACE. Each partition is a topic.

    \b
    Examples:
      ledgerstore topic list zk://localhost:2181/ledgers
      ledgerstore topic list zk://localhost:2181/ledgers --json | jq '.[].topic'
    """
    columns = [
        Column("topic", width=40),
        *(number_column(name) for name in ("ledgers", "entries", "size", "subscriptions")),
    ]

    async def work() -> int:
        out, count = row_writer(form, columns), 0
        async with topics.open_topics(place, connection) as ledgers:
            async for row in _topic_rows(ledgers):
                out.row(row)
                count += 1
        out.end()
        return count

    say(f"topic list: {counted(topics.run(work()), 'topic')}")


async def _topic_rows(ledgers: TopicLedgers) -> AsyncIterator[Row]:
    from storage.cluster.topics.administration import list_topics
    from storage.cluster.topics.topic import AsyncTopic

    async for name in list_topics(ledgers):
        stats = await AsyncTopic(ledgers, name).stats()
        yield {
            "topic": str(name),
            "ledgers": len(stats.ledgers),
            "entries": stats.entries,
            "size": stats.size,
            "subscriptions": len(stats.cursors),
        }


@click.command()
@topics.place
@topics.topic_name
@options.output
@connection
def stats(place: str, name: TopicName, form: Form, connection: MetadataConnection) -> None:
    """Show the ledgers and the subscriptions of TOPIC. Nothing is changed.

    \b
    Examples:
      ledgerstore topic stats zk://localhost:2181/ledgers orders
    """
    columns = [
        Column("kind", width=12),
        Column("name", width=12),
        number_column("entries"),
        number_column("size"),
        Column("closed", rank=1),
        Column("position"),
        number_column("ranges", rank=2),
    ]

    async def work() -> None:
        out = row_writer(form, columns)
        async with topics.open_topics(place, connection) as ledgers:
            async for row in _stats_rows(ledgers, name):
                out.row(row)
        out.end()

    topics.run(work())


async def _stats_rows(ledgers: TopicLedgers, name: TopicName) -> AsyncIterator[Row]:
    from storage.cluster.topics.administration import partition_names
    from storage.cluster.topics.errors import NoSuchTopic

    names = await partition_names(ledgers, name)
    rows: list[Row] = []
    for one in names:
        # A partition is made by its first message.
        with suppress(NoSuchTopic) if names != [name] else nullcontext():
            rows += [row async for row in _rows_of(ledgers, one)]
    if names != [name]:
        yield {
            "topic": str(name),
            "kind": "partitions",
            "name": str(len(names)),
            "entries": sum(int(str(row["entries"])) for row in rows if row["kind"] == "ledger"),
            "size": sum(int(str(row["size"])) for row in rows if row["kind"] == "ledger"),
        }
        totals: dict[str, int] = {}
        for row in rows:
            if row["kind"] == "subscription":
                subscription = str(row["name"])
                totals[subscription] = totals.get(subscription, 0) + int(str(row["entries"]))
        for subscription, left in totals.items():
            yield {"topic": str(name), "kind": "subscription", "name": subscription, "entries": left}
    for row in rows:
        yield row


async def _rows_of(ledgers: TopicLedgers, name: TopicName) -> AsyncIterator[Row]:
    from storage.cluster.topics.cursor_store import read_cursor, subscriptions_of
    from storage.cluster.topics.reader import read_extents
    from storage.cluster.topics.topic import AsyncTopic

    extents = await read_extents(ledgers, name)
    for ledger in (await AsyncTopic(ledgers, name).stats()).ledgers:
        yield {
            "topic": str(name),
            "kind": "ledger",
            "name": str(ledger.ledger_id),
            "entries": ledger.entries or 0,
            "size": ledger.size or 0,
            "closed": topics.time_of(ledger.timestamp_ms),
        }
    for subscription in await subscriptions_of(ledgers, name):
        cursor = await read_cursor(ledgers, name, subscription, extents)
        yield {
            "topic": str(name),
            "kind": "subscription",
            "name": subscription,
            "entries": cursor.backlog(extents),
            "position": str(cursor.mark_delete),
            "ranges": cursor.ranges_count,
        }


@click.command("roll-over")
@topics.place
@topics.topic_name
@topics.quorums
@connection
def roll_over(place: str, name: TopicName, quorums: Quorums, connection: MetadataConnection) -> None:
    """Take TOPIC over, close its ledgers, and write their ends into its list.

    The next message begins a ledger. Another process that writes the topic is fenced.

    \b
    Examples:
      ledgerstore topic roll-over zk://localhost:2181/ledgers orders
    """

    async def work() -> int:
        from storage.cluster.topics.reader import read_extents
        from storage.cluster.topics.topic import AsyncTopic

        async with topics.open_topics(place, connection, quorums) as ledgers:
            await read_extents(ledgers, name)  # a topic that is not there is not made
            async with AsyncTopic(ledgers, name) as topic:
                await topic.take_over()
            return len(await AsyncTopic(ledgers, name).ledgers())

    say(f"topic roll-over: {name} has {counted(topics.run(work()), 'closed ledger')}")


@click.command()
@topics.place
@topics.topic_name
@click.option(
    "--age",
    type=float,
    metavar="SECONDS",
    help="Delete a ledger that was closed longer ago; 0 deletes all of them.",
)
@click.option(
    "--size",
    type=int,
    metavar="BYTES",
    help="Delete a ledger without which so many bytes remain; 0 deletes all of them.",
)
@topics.quorums
@connection
def trim(
    place: str,
    name: TopicName,
    age: float | None,
    size: int | None,
    quorums: Quorums,
    connection: MetadataConnection,
) -> None:
    """Delete the ledgers of TOPIC that all subscriptions have passed, and that are old or too many.

    A ledger is deleted if --age or --size says so; one of them must be given. No subscription needs the
    closed ledgers of a topic without subscriptions. The topic is taken over: another process that writes it
    is fenced.

    \b
    Examples:
      ledgerstore topic trim zk://localhost:2181/ledgers orders --age 86400
    """
    if age is None and size is None:
        raise click.UsageError(
            "say which ledgers: --age, --size or both; 0 is every closed ledger that no subscription needs"
        )

    async def work() -> tuple[int, ...]:
        from storage.cluster.topics.policies import Retention
        from storage.cluster.topics.reader import read_extents
        from storage.cluster.topics.topic import AsyncTopic

        retention = Retention(-1 if age is None else age, -1 if size is None else size)
        async with topics.open_topics(place, connection, quorums) as ledgers:
            await read_extents(ledgers, name)
            async with AsyncTopic(ledgers, name, retention=retention) as topic:
                return await topic.trim()

    deleted = topics.run(work())
    named = f": {', '.join(map(str, deleted))}" if deleted else ""
    say(f"topic trim: {counted(len(deleted), 'ledger')} of {name} deleted{named}")


@click.command()
@topics.place
@topics.topic_name
@click.option("--subscription", metavar="NAME", help="Delete only this subscription.")
@connection
def delete(place: str, name: TopicName, subscription: str | None, connection: MetadataConnection) -> None:
    """Delete TOPIC with all its partitions, messages and subscriptions. A process that writes it is fenced.

    \b
    Examples:
      ledgerstore topic delete zk://localhost:2181/ledgers orders
      ledgerstore topic delete zk://localhost:2181/ledgers orders --subscription billing
    """
    from storage.cluster.topics.administration import delete_partitions, delete_topic, partition_names
    from storage.cluster.topics.cursor_store import delete_subscription
    from storage.cluster.topics.errors import NoSuchTopic

    async def work() -> int:
        async with topics.open_topics(place, connection) as ledgers:
            if subscription is not None:
                await delete_subscription(ledgers, name, subscription)
                return 0
            names, count = await partition_names(ledgers, name), 0
            for one in names:
                try:
                    count += await delete_topic(ledgers, one)
                except NoSuchTopic:
                    if one == name:
                        raise
            if names != [name]:
                await delete_partitions(ledgers, name)
            return count

    count = topics.run(work())
    if subscription is not None:
        say(f"topic delete: subscription {subscription!r} of {name}")
    else:
        say(f"topic delete: {name}, with {counted(count, 'ledger')}")


@click.command()
@topics.place
@topics.topic_name
@click.argument("target", metavar="TARGET")
@click.option(
    "--as", "copied_name", type=topics.TopicNameType(), help="The name of the copy.  [default: the same]"
)
@topics.quorums
@options.output
@connection
def copy(
    place: str,
    name: TopicName,
    target: str,
    copied_name: TopicName | None,
    quorums: Quorums,
    form: Form,
    connection: MetadataConnection,
) -> None:
    """Copy TOPIC with its subscriptions to TARGET, another PLACE, and print where each entry is there.

    A message in a batch has the same index in the copy. Subscriptions go on where they were.

    \b
    Examples:
      ledgerstore topic copy zk://one:2181/ledgers orders zk://two:2181/ledgers --ndjson > ids
      ledgerstore topic copy zk://one:2181/ledgers orders zk://one:2181/ledgers --as orders-2
    """
    columns = [Column("source", width=10), Column("target", width=10), number_column("messages")]

    async def work() -> tuple[int, int]:
        from storage.cluster.topics.administration import copy_topic
        from storage.cluster.topics.policies import RollOver

        out, entries, messages = row_writer(form, columns), 0, 0
        async with AsyncExitStack() as opened:
            here = await opened.enter_async_context(topics.open_topics(place, connection, quorums))
            there = here
            if target != place:  # a store cannot be opened twice
                there = await opened.enter_async_context(topics.open_topics(target, connection, quorums))
            async for one in copy_topic(here, name, there, copied_name or name, RollOver()):
                out.row({"source": str(one.source), "target": str(one.target), "messages": one.messages})
                entries, messages = entries + 1, messages + one.messages
        out.end()
        return entries, messages

    entries, messages = topics.run(work())
    say(f"topic copy: {counted(messages, 'message')} in {counted(entries, 'entry', 'entries')}")
