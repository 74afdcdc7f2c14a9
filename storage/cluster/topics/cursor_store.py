"""Where the state of a subscription is kept: in its node, and when that cannot have it, in a ledger.

    open      fence the ledger of the former consumer, read its last entry; write the node
    save      a small state: write the node
              any other, or if there is a ledger: add an entry to it; then the node names it if it is new
    seek      as a save without a ledger, so that the node is never ahead of the cursor
    close     a small state: write the node without a ledger, then delete the ledger
              any other: add an entry, close the ledger

Each write of the node names the version that this consumer knows. Opening writes it, so that a former
consumer that still runs is refused from then on. A ledger is deleted after the node names it no longer.
A subscription that was deleted and made again has the same versions once more, so it is also compared when
the node was created. Each write has a mark of its consumer, so that one whose answer was lost is known again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.cluster.errors import LedgerClosed, NoSuchLedgerExistsOnMetadataServer, OutcomeUnknown
from storage.cluster.metadata.znodes import (
    ANY_VERSION,
    Conflict,
    Created,
    Deleted,
    Gone,
    Node,
    NoParent,
    Unknown,
    Written,
)
from storage.cluster.topics.cursor import Cursor, Extents
from storage.cluster.topics.errors import NoSuchSubscription, NoSuchTopic, SubscriptionFenced
from storage.cluster.topics.managed_ledger import (
    NO_LEDGER,
    ManagedCursorInfo,
    Position,
    PositionInfo,
    decode_cursor,
    decode_name,
    decode_position_info,
    encode_consumers_cursor,
    encode_name,
    encode_position_info,
)
from storage.cluster.topics.owner import managed_name
from storage.errors import LedgerFenced, NoSuchEntry, StoreError

if TYPE_CHECKING:
    from storage.cluster.metadata.znodes import NodeStat
    from storage.cluster.topics.ledgers_port import LedgerAppender, TopicLedgers
    from storage.cluster.topics.managed_ledger import TopicName

ENTRIES_IN_LEDGER_MAX = 10_000
"""Entries of a cursor's ledger. Only its last one counts, so a full ledger is replaced by a new one."""

_ATTEMPTS_MAX = 10


class CursorStore:
    """Keeps the cursor of a subscription for the consumer that has opened it. For one coroutine at a time."""

    def __init__(self, ledgers: TopicLedgers, name: TopicName, subscription: str, token: bytes) -> None:
        """`token` is that of no other consumer."""
        self.cursor = Cursor(str(name), Position(-1, -1))
        self.saved_changes = 0
        """The changes of the cursor that are durable."""
        self._ledgers = ledgers
        self._name = name
        self.subscription = subscription
        self._token = token
        self._path = name.cursor_path(subscription)
        self._version = 0
        self._created_zxid = -1
        """When the node was created."""
        self._unanswered: set[bytes] = set()
        """What was written to the node without an answer, also because the coroutine was cancelled."""
        self._appender: LedgerAppender | None = None
        self._appended = 0
        self._former_ledger = NO_LEDGER
        """The ledger that the node named before, and that is deleted when the node has changed."""

    @property
    def is_saved(self) -> bool:
        """Whether all changes of the cursor are durable."""
        return self.saved_changes == self.cursor.changes

    async def create(self, cursor: Cursor) -> None:
        """Make the subscription with these acknowledgements; open it if it was made meanwhile."""
        self.cursor = cursor
        reason = ""
        for _ in range(_ATTEMPTS_MAX):
            data = encode_consumers_cursor(cursor.to_node_with_ledger(NO_LEDGER), self._token)
            answer = await self._ledgers.nodes.create(self._path, data)
            if isinstance(answer, Created):
                self._version = 0
                self._created_zxid = await self._zxid_of_creation(data)
                self.saved_changes = cursor.changes
                if cursor.ranges_count or cursor.needs_ledger:
                    await self.save()
                return
            if isinstance(answer, NoParent):
                raise NoSuchTopic(str(self._name))
            if await read_node(self._ledgers, self._name, self.subscription) is not None:
                # Another consumer has made it at the same time, or the answer was lost.
                await self.open(Extents())
                return
            reason = str(answer)
        raise OutcomeUnknown(self._path, reason)

    async def open(self, extents: Extents) -> None:
        """Take the subscription over from a former consumer. Raise `NoSuchSubscription`."""
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                await self._open(extents)
            except SubscriptionFenced:
                # The former consumer has written the node after this one has read it.
                if attempt == _ATTEMPTS_MAX:
                    raise
            else:
                return

    async def _open(self, extents: Extents) -> None:
        node = await read_node(self._ledgers, self._name, self.subscription)
        if node is None:
            raise NoSuchSubscription(str(self._name), self.subscription)
        info, stat = node
        self._version, self._created_zxid = stat.version, stat.created_zxid
        self._unanswered.clear()
        entry = None
        if info.cursors_ledger_id != NO_LEDGER:
            try:
                end = await self._ledgers.take_over(info.cursors_ledger_id)
                entry = await _last_entry(self._ledgers, info.cursors_ledger_id, end.entries - 1)
            except NoSuchLedgerExistsOnMetadataServer:
                entry = None
        self._former_ledger = info.cursors_ledger_id
        self.cursor = Cursor.recover(str(self._name), info, entry, extents)
        if self.cursor.needs_ledger:
            await self._save_to_ledger()
        else:
            await self._write_node(self.cursor.to_node())
        self.saved_changes = self.cursor.changes

    async def save(self) -> None:
        """Make the current state durable. Raise `SubscriptionFenced` if another consumer has taken over."""
        await self._check_created()
        changes = self.cursor.changes
        if self._appender is not None or self.cursor.needs_ledger:
            await self._save_to_ledger()
        else:
            await self._write_node(self.cursor.to_node())
        self.saved_changes = changes

    async def save_seek(self) -> None:
        """Make a seek durable: in the node, and not only in the ledger that it names.

        The node is read by others while the last entry of a ledger is not shown to them yet, and it is what
        is left if the ledger is lost. So it must not be ahead of the cursor: a trim would take what a seek
        back needs.
        """
        await self._leave_ledger()
        await self.save()

    async def close(self) -> None:
        """Make the current state durable where the next consumer finds it soonest."""
        await self._check_created()
        changes = self.cursor.changes
        if not self.cursor.needs_ledger:
            if self._appender is not None or not self.is_saved:
                await self._leave_ledger()
                await self._write_node(self.cursor.to_node())
        else:
            if not self.is_saved:
                await self._save_to_ledger()
            if self._appender is not None:
                await self._appender.close()
        self.saved_changes = changes

    async def _save_to_ledger(self) -> None:
        entry = encode_position_info(self.cursor.to_entry())
        if self._appender is not None and self._appended < ENTRIES_IN_LEDGER_MAX:
            try:
                await self._appender.submit(entry)
            except (LedgerFenced, LedgerClosed):
                raise SubscriptionFenced(str(self._name), self.subscription) from None
            except StoreError:
                # A writer takes nothing after its first failure, but there may be bookies for another ledger.
                await self._leave_ledger()
                await self.save()
            else:
                self._appended += 1
            return
        node = self.cursor.to_node_with_ledger
        appender = await self._ledgers.create(managed_name(self._name), encode_name(self.subscription))
        try:
            await appender.submit(entry)
        except StoreError:
            with suppress(StoreError):
                await self._ledgers.delete(appender.id)  # no node names it
            raise
        try:
            await self._leave_ledger()
            await self._write_node(node(appender.id))
        except SubscriptionFenced:
            await self._ledgers.delete(appender.id)
            raise
        self._appender, self._appended = appender, 1

    async def _leave_ledger(self) -> None:
        """Close the ledger of the cursor. It is deleted when the node names it no longer."""
        if self._appender is not None:
            self._former_ledger = self._appender.id
            appender, self._appender = self._appender, None
            with suppress(StoreError):
                await (
                    appender.close()
                )  # the next write of the node says whether another consumer has fenced it

    async def _write_node(self, info: ManagedCursorInfo) -> None:
        """Write the node if it is still that of this consumer, and delete the ledger that it named before."""
        data, reason = encode_consumers_cursor(info, self._token), ""
        for _ in range(_ATTEMPTS_MAX):
            is_first = not self._unanswered
            self._unanswered.add(data)
            match await self._ledgers.nodes.set(self._path, data, self._version):
                case Written(version):
                    self._version = version
                    break
                case Conflict() if is_first:
                    raise SubscriptionFenced(str(self._name), self.subscription)
                case Gone():
                    raise NoSuchSubscription(str(self._name), self.subscription)
                case Unknown(reason):
                    pass
            # The answer to this write, or to one before it, was lost: the content decides.
            await self._ledgers.nodes.sync(self._path)
            node = await self._ledgers.nodes.get(self._path)
            if isinstance(node, Gone) or node.stat.created_zxid != self._created_zxid:
                raise SubscriptionFenced(str(self._name), self.subscription)
            if node.stat.version == self._version:
                continue
            if not self._is_own(node):
                raise SubscriptionFenced(str(self._name), self.subscription)
            self._version = node.stat.version
            self._unanswered.clear()
            if node.data == data:
                break
            await self._delete_former(decode_cursor(self._path, node.data).cursors_ledger_id)
        else:
            raise OutcomeUnknown(self._path, reason)
        self._unanswered.clear()
        await self._delete_former(info.cursors_ledger_id)
        self._former_ledger = NO_LEDGER

    async def _zxid_of_creation(self, data: bytes) -> int:
        """Return when the node was created that this consumer has just created with these data."""
        node = await self._newest()
        if (node.stat.version, node.data) != (0, data):
            raise SubscriptionFenced(str(self._name), self.subscription)
        return node.stat.created_zxid

    async def _check_created(self) -> None:
        """Raise `SubscriptionFenced` if the node is that of a subscription of the same name made later."""
        if (await self._newest()).stat.created_zxid != self._created_zxid:
            raise SubscriptionFenced(str(self._name), self.subscription)

    async def _newest(self) -> Node:
        """Return the node as it is now. Raise `NoSuchSubscription`."""
        await self._ledgers.nodes.sync(self._path)
        node = await self._ledgers.nodes.get(self._path)
        if isinstance(node, Gone):
            raise NoSuchSubscription(str(self._name), self.subscription)
        return node

    def _is_own(self, node: Node) -> bool:
        """Return whether the node is as one of the writes without an answer has left it."""
        return node.stat.version == self._version + 1 and node.data in self._unanswered

    async def _delete_former(self, named: int) -> None:
        """Delete the ledger that the node has named before, unless it is the one that is named now."""
        former, self._former_ledger = self._former_ledger, named
        if former not in (NO_LEDGER, named):
            await self._ledgers.delete(former)


# ── without becoming the consumer ────────────────────────────────────────────────────────────────────────


async def read_node(
    ledgers: TopicLedgers, name: TopicName, subscription: str
) -> tuple[ManagedCursorInfo, NodeStat] | None:
    """Return the node of a subscription and its stat; `None` if there is none."""
    path = name.cursor_path(subscription)
    await ledgers.nodes.sync(path)
    node = await ledgers.nodes.get(path)
    return None if isinstance(node, Gone) else (decode_cursor(path, node.data), node.stat)


async def read_cursor(ledgers: TopicLedgers, name: TopicName, subscription: str, extents: Extents) -> Cursor:
    """Return what a subscription has acknowledged, as far as it is durable. Nothing is changed.

    Raise `NoSuchSubscription`.
    """
    node = await read_node(ledgers, name, subscription)
    if node is None:
        raise NoSuchSubscription(str(name), subscription)
    info, entry = node[0], None
    if info.cursors_ledger_id != NO_LEDGER:
        try:
            reader = await ledgers.view(info.cursors_ledger_id)
            last = await reader.read_last_add_confirmed()
            entry = await _last_entry(ledgers, info.cursors_ledger_id, last)
        except (NoSuchLedgerExistsOnMetadataServer, NoSuchEntry):
            entry = None  # it was replaced at this moment, or is lost; the node has an older state
    return Cursor.recover(str(name), info, entry, extents)


async def _last_entry(ledgers: TopicLedgers, ledger_id: int, last: int) -> PositionInfo | None:
    if last < 0:
        return None
    reader = await ledgers.view(ledger_id)
    return decode_position_info(f"entry {last} of ledger {ledger_id}", (await reader.read(last)).payload)


async def subscriptions_of(ledgers: TopicLedgers, name: TopicName) -> list[str]:
    """Return the names of the topic's subscriptions. Raise `NoSuchTopic`."""
    await ledgers.nodes.sync(name.path)
    children = await ledgers.nodes.children(name.path)
    if isinstance(children, Gone):
        raise NoSuchTopic(str(name))
    return sorted(map(decode_name, children.names))


async def delete_subscription(ledgers: TopicLedgers, name: TopicName, subscription: str) -> None:
    """Delete a subscription and its ledger. A consumer that still runs fails at its next save."""
    node = await read_node(ledgers, name, subscription)
    path = name.cursor_path(subscription)
    if node is None:
        raise NoSuchSubscription(str(name), subscription)
    answer = await ledgers.nodes.delete(path, ANY_VERSION)
    if not isinstance(answer, Deleted | Gone):
        raise OutcomeUnknown(path, str(answer))
    if node[0].cursors_ledger_id != NO_LEDGER:
        await ledgers.delete(node[0].cursors_ledger_id)
