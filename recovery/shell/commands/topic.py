"""`ledgerstore topic`: the group of the commands for topics."""

from __future__ import annotations

from typing import ClassVar

import click

from recovery.shell.lazy_group import CommandEntry, LazyGroup

_MESSAGES = "recovery.shell.commands.topic_messages"
_WHOLE = "recovery.shell.commands.topic_ledgers"


class TopicGroup(LazyGroup):
    """The commands for topics, those for messages first."""

    entries: ClassVar = {
        "produce": CommandEntry(_MESSAGES, "Write messages: the arguments, or lines of stdin.", "produce"),
        "read": CommandEntry(_MESSAGES, "Read the messages up to the current end.", "read"),
        "follow": CommandEntry(_MESSAGES, "Read messages, and wait for more.", "follow"),
        "subscribe": CommandEntry(_MESSAGES, "Receive and acknowledge messages.", "subscribe"),
        "create": CommandEntry(_WHOLE, "Create a topic with partitions.", "create"),
        "list": CommandEntry(_WHOLE, "List the topics of a cluster or store.", "list_topics"),
        "stats": CommandEntry(_WHOLE, "Show the ledgers and subscriptions of a topic.", "stats"),
        "roll-over": CommandEntry(_WHOLE, "Close the current ledger, and begin the next.", "roll_over"),
        "trim": CommandEntry(_WHOLE, "Delete ledgers that all subscriptions have passed.", "trim"),
        "delete": CommandEntry(_WHOLE, "Delete a topic, or one of its subscriptions.", "delete"),
        "copy": CommandEntry(_WHOLE, "Copy a topic with its subscriptions to another place.", "copy"),
    }


@click.group(cls=TopicGroup)
def command() -> None:
    """Write and read topics, in the formats of Pulsar (docs/topics.md).

    PLACE is the address of a cluster's metadata, or the directory of a store that no process has open. TOPIC
    is tenant/namespace/name, or a name alone, which is then in public/default.

    \b
    Examples:
      ledgerstore topic produce zk://localhost:2181/ledgers orders "a message"
      ledgerstore topic follow zk://localhost:2181/ledgers orders
      ledgerstore topic stats data orders
    """
