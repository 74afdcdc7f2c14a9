"""Reads a topic: its ledgers one after the other, each entry's messages in their order.

A reader changes nothing, so it may read beside the process that writes the topic. Of the ledger that is
written it shows what is acknowledged. When a ledger is closed, the reader looks at the list for the next one.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from storage.cluster.errors import LedgerNotClosed, NoSuchLedgerExistsOnMetadataServer
from storage.cluster.metadata.znodes import Gone, Unchanged
from storage.cluster.topics import managed_ledger
from storage.cluster.topics.cursor import Extents
from storage.cluster.topics.errors import LedgerMissing, NoSuchTopic, NotInTopic
from storage.cluster.topics.format import DecodedEntry, decode_entry
from storage.cluster.topics.managed_ledger import ManagedLedgerInfo, Position
from storage.cluster.topics.message_id import EARLIEST, LATEST, MessageId
from storage.cluster.topics.policies import MissingLedgers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from storage.cluster.metadata.znodes import Node, NodeWatch
    from storage.cluster.topics.ledgers_port import LedgerReader, TopicLedgers
    from storage.cluster.topics.managed_ledger import LedgerInfo, TopicName
    from storage.cluster.topics.message import ReceivedMessage
    from storage.entry.model import Entry

_BATCH_COUNT = 500
"""Entries of one request to the ledger that is written."""


@dataclass(frozen=True, slots=True)
class After:
    """Start with the message after this one; after all of the entry if the id has no batch index."""

    id: MessageId


@dataclass(frozen=True, slots=True)
class AtTime:
    """Start with the first entry that was published at this time or later."""

    time_ms: int


Start: TypeAlias = MessageId | After | AtTime
"""Where to start. A message id is that of the first message, or `EARLIEST`, or `LATEST` for only new ones."""


class TopicEntry(NamedTuple):
    """An entry that was read."""

    position: Position
    decoded: DecodedEntry
    payload: bytes


def _nothing_written() -> Position | None:
    """Default of `last_written`: a process that does not own the topic has written nothing."""
    return None


class AsyncTopicReader:
    """Reads the messages of a topic from one place on. For one coroutine at a time."""

    def __init__(
        self,
        ledgers: TopicLedgers,
        name: TopicName,
        start: Start = EARLIEST,
        missing: MissingLedgers = MissingLedgers.REFUSE,
        last_written: Callable[[], Position | None] = _nothing_written,
    ) -> None:
        """`last_written` returns the last entry that this process has written and that is acknowledged.

        The bookies tell others of an entry with the next one, or a moment later.
        """
        self.name = name
        self._topic, self._partition = str(name), name.partition_index
        self.next = Position(-1, 0)
        """The entry that is read next; it need not be there."""
        self.skipped_ledgers: list[int] = []
        """Ledgers that did not exist, and were passed over on request."""
        self._ledgers = ledgers
        self._start: Start | None = start
        self._missing = missing
        self._last_written = last_written
        self._first_index = 0
        """Messages of the next entry's batch with a smaller index are passed over."""
        self._given: ReceivedMessage | None = None
        """The last message that was given of an entry with others, or of an iteration that was left."""
        self._info: ManagedLedgerInfo | None = None
        self._known: tuple[tuple[int, int], ...] = ()
        """The ledgers of the list but the last one, each with its number of entries."""
        self._seen = self.next
        """The place after the last entry that was read."""
        self._ends: dict[int, int] = {}
        """The number of entries of ledgers that were followed to their end."""
        self._watch: NodeWatch[Node | Gone] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.name} at {self.next}>"

    async def messages(self) -> AsyncGenerator[ReceivedMessage, None]:
        """Yield the messages up to the current end. Called again, it goes on with those that came since."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for message in batch:
                    self._given = message
                    yield message
                self._given = None

    async def batches(self) -> AsyncGenerator[list[ReceivedMessage], None]:
        """Yield the same messages, those of an entry together, which costs less for each of them."""
        async with aclosing(self._entries()) as entries:
            async for some in entries:
                for entry in some:
                    if batch := self._received(entry, self._decoded(entry)):
                        yield batch

    async def follow(self) -> AsyncGenerator[ReceivedMessage, None]:
        """Yield the messages without end: wait for those that are still to come."""
        async with aclosing(self.follow_batches()) as batches:
            async for batch in batches:
                for message in batch:
                    self._given = message
                    yield message
                self._given = None

    async def follow_batches(self) -> AsyncGenerator[list[ReceivedMessage], None]:
        """Yield the same messages, those of an entry together."""
        async with aclosing(self.follow_entries()) as entries:
            async for entry in entries:
                if batch := self.received(entry):
                    yield batch

    def received(self, entry: TopicEntry) -> list[ReceivedMessage]:
        """Return the messages of an entry that this reader has just read, from the first wanted one on."""
        return self._received(entry.position, entry.decoded)

    def _received(self, place: Position | Entry, decoded: DecodedEntry) -> list[ReceivedMessage]:
        # The constructor is left out, because it is a function of Python and takes twice as long.
        message_id = tuple.__new__(MessageId, (place.ledger_id, place.entry_id, self._partition, -1))
        received = decoded.received(message_id, self._topic)
        first, self._first_index = self._first_index, 0
        return received[first:] if first else received

    async def entries(self) -> AsyncGenerator[TopicEntry, None]:
        """Yield the entries up to the current end."""
        async with aclosing(self._entries()) as entries:
            async for some in entries:
                for entry in some:
                    yield self._read_entry(entry)

    async def _entries(self) -> AsyncGenerator[list[Entry], None]:
        """Yield the entries up to the current end, as many at once as the ledger gives.

        The caller decodes one after the other, so that the place of the reader is after the last one.
        """
        info = await self._refresh()
        if info is None:
            self._note_without_topic()
            raise NoSuchTopic(str(self.name))
        await self._begin(info)
        while (ledger := self._ledger_of_next()) is not None:
            async with aclosing(self._up_to_the_end(ledger)) as entries:
                async for some in entries:
                    yield some
            if not self._is_passed(ledger):
                return

    async def follow_entries(self) -> AsyncGenerator[TopicEntry, None]:
        """Yield the entries without end."""
        info = await self._refresh()
        if info is None:
            self._note_without_topic()
            info = await self._changed()
        await self._begin(info)
        try:
            while True:
                ledger = self._ledger_of_next()
                if ledger is None:
                    await self._changed()
                    continue
                found = self._followed(ledger) if self._is_written(ledger) else self._up_to_the_end(ledger)
                async with aclosing(found) as entries:
                    async for some in entries:
                        for entry in some:
                            yield self._read_entry(entry)
                if not self._is_passed(ledger):
                    await self._changed()
        finally:
            self._stop_watching()

    def extents(self) -> Extents:
        """Return where the ledgers end, as far as this reader has seen it."""
        if not self._listed:
            return Extents()
        last = self._listed[-1]
        entries = last.entries if last.entries is not None else self._ends.get(last.ledger_id)
        if entries is not None:
            return Extents((*self._known, (last.ledger_id, entries)))
        seen = self._seen.entry_id if self._seen.ledger_id == last.ledger_id else 0
        return Extents((*self._known, (last.ledger_id, seen)), is_last_open=True)

    async def read_extents(self) -> Extents:
        """Return where the ledgers end now. Raise `NoSuchTopic`."""
        info = await self._refresh()
        if info is None:
            raise NoSuchTopic(str(self.name))
        if info.ledgers and self._is_written(info.ledgers[-1]):
            self._seen = max(self._seen, await self._end(info))
        return self.extents()

    async def move_to(self, start: Start) -> MessageId:
        """Go on at this place, and return it. Another iteration has to be begun. Raise `NoSuchTopic`."""
        self._start, self._given = start, None
        info = await self._refresh()
        if info is None:
            raise NoSuchTopic(str(self.name))
        await self._begin(info)
        return MessageId(*self.next, self.name.partition_index, self._first_index or -1)

    def rewind(self, position: Position) -> None:
        """Go on with this entry. Another iteration has to be begun."""
        self._start, self._given, self.next, self._first_index = None, None, position, 0

    def go_back_to(self, message: ReceivedMessage) -> None:
        """Go on with this message. Another iteration has to be begun."""
        self._start, self._given = message.id, None

    def go_on_after(self, given: ReceivedMessage) -> None:
        """Go on after this message, because those after it were not used. Another iteration begins there."""
        self._given = given

    # ── one ledger ────────────────────────────────────────────────────────────────────────────────────

    async def _up_to_the_end(self, ledger: LedgerInfo) -> AsyncGenerator[list[Entry], None]:
        """Yield the entries of a ledger that are acknowledged now."""
        reader = await self._view(ledger)
        if reader is None:
            return
        end = ledger.entries if ledger.entries is not None else self._ends.get(ledger.ledger_id)
        if end is None:
            end = await self._acknowledged(reader, ledger.ledger_id)
        if self.next.entry_id >= end:
            return
        try:
            async with aclosing(reader.entry_batches(self.next.entry_id, end - 1)) as batches:
                async for batch in batches:
                    yield batch
        except LedgerNotClosed:
            while self.next.entry_id < end:
                count = min(_BATCH_COUNT, end - self.next.entry_id)
                batch = await reader.read_batch(self.next.entry_id, count)
                yield [entry for entry in batch if entry.entry_id < end]
        if self.next.ledger_id == ledger.ledger_id and self.next.entry_id < end:
            await self._pass_missing(ledger)  # in a local store a ledger that is gone looks like an empty one

    async def _acknowledged(self, reader: LedgerReader, ledger_id: int) -> int:
        """Return how many entries of a ledger that is written are acknowledged, as far as it is known."""
        count = await reader.read_last_add_confirmed() + 1
        written = self._last_written()
        return max(count, written.entry_id + 1) if written and written.ledger_id == ledger_id else count

    async def _followed(self, ledger: LedgerInfo) -> AsyncGenerator[list[Entry], None]:
        """Yield the entries of the ledger that is written, until it is closed."""
        reader = await self._view(ledger)
        if reader is None:
            return
        async with aclosing(reader.follow(self.next.entry_id)) as entries:
            async for entry in entries:
                yield [entry]
        self._ends[ledger.ledger_id] = self.next.entry_id
        await self._refresh()

    async def _view(self, ledger: LedgerInfo) -> LedgerReader | None:
        """Return a reader of a ledger. `None` if the list has changed, or to pass over a missing ledger."""
        try:
            return await self._ledgers.view(ledger.ledger_id)
        except NoSuchLedgerExistsOnMetadataServer:
            await self._pass_missing(ledger)
            return None

    async def _pass_missing(self, ledger: LedgerInfo) -> None:
        """Pass over a ledger that is gone: it was trimmed after the list was read, or it is skipped."""
        await self._refresh()
        if all(one.ledger_id != ledger.ledger_id for one in self._listed):
            return
        if self._missing is MissingLedgers.REFUSE:
            raise LedgerMissing(str(self.name), ledger.ledger_id) from None
        self.skipped_ledgers.append(ledger.ledger_id)
        self._ends[ledger.ledger_id] = 0
        self.next = Position(ledger.ledger_id, max(self.next.entry_id, ledger.entries or 0))

    def _read_entry(self, entry: Entry) -> TopicEntry:
        decoded = self._decoded(entry)
        return TopicEntry(Position(entry.ledger_id, entry.entry_id), decoded, entry.payload)

    def _decoded(self, entry: Entry) -> DecodedEntry:
        ledger_id, entry_id = entry.ledger_id, entry.entry_id
        if (ledger_id, entry_id) != self.next:
            self._first_index = 0
        decoded = decode_entry(entry.payload, self._topic, ledger_id, entry_id)
        self.next = after = tuple.__new__(Position, (ledger_id, entry_id + 1))
        if after > self._seen:
            self._seen = after
        return decoded

    @property
    def _listed(self) -> tuple[LedgerInfo, ...]:
        return () if self._info is None else self._info.ledgers

    def _is_written(self, ledger: LedgerInfo) -> bool:
        """Return whether a ledger may get more entries, as far as it is known."""
        return ledger == self._listed[-1] and ledger.entries is None and ledger.ledger_id not in self._ends

    # ── the list ──────────────────────────────────────────────────────────────────────────────────────

    def _ledger_of_next(self) -> LedgerInfo | None:
        """Return the ledger that has the next entry, or may get it. `None` if no ledger is left."""
        for one in self._listed:
            if one.ledger_id >= self.next.ledger_id:
                if one.ledger_id > self.next.ledger_id:
                    self.next, self._first_index = Position(one.ledger_id, 0), 0
                return one
        return None

    def _is_passed(self, ledger: LedgerInfo) -> bool:
        """Move to the next ledger after all entries of this one. Return whether there is a next one."""
        later = [one.ledger_id for one in self._listed if one.ledger_id > ledger.ledger_id]
        if later and self.next.ledger_id <= ledger.ledger_id:
            self.next, self._first_index = Position(later[0], 0), 0
        return bool(later)

    async def _refresh(self) -> ManagedLedgerInfo | None:
        """Read the list again. `None` if there is no such topic."""
        nodes, path = self._ledgers.nodes, self.name.path
        await nodes.sync(path)
        return self._take(await nodes.get(path))

    def _take(self, node: Node | Gone) -> ManagedLedgerInfo | None:
        if isinstance(node, Gone):
            self._info = None
        else:
            self._info = managed_ledger.decode_managed_ledger(self.name.path, node.data)
            self._known = tuple(
                (one.ledger_id, one.entries or self._ends.get(one.ledger_id, 0)) for one in self._listed[:-1]
            )
        return self._info

    async def _changed(self) -> ManagedLedgerInfo:
        """Wait until the list is another one than the reader has, and until there is a topic."""
        if self._watch is None:
            self._watch = self._ledgers.nodes.watch(self.name.path)
        known = self._info
        while True:
            node = await self._watch.next()
            if not isinstance(node, Unchanged) and self._take(node) not in (None, known):
                assert self._info is not None, "just taken"
                return self._info

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    # ── where to begin ────────────────────────────────────────────────────────────────────────────────

    def _note_without_topic(self) -> None:
        """Note that there is no topic yet, so that all its messages will be new ones."""
        if self._start in (LATEST, After(LATEST)):
            self._start = EARLIEST

    async def _begin(self, info: ManagedLedgerInfo) -> None:
        """Find the first entry, once, or where an iteration was left."""
        if self._start is None and self._given is not None:
            self._start = After(self._given.id)
        self._given = None
        if self._start is None:
            return
        match self._start:
            case AtTime(time_ms):
                self.next = await self._at_time(info, time_ms)
            case After(message_id):
                self.next, self._first_index = self._place(info, message_id), message_id.batch_index + 1
                if message_id.batch_index < 0 and message_id not in (EARLIEST, LATEST):
                    self.next = Position(message_id.ledger_id, message_id.entry_id + 1)
            case message_id:
                self.next, self._first_index = self._place(info, message_id), max(message_id.batch_index, 0)
        if self._start in (LATEST, After(LATEST)):
            self.next = await self._end(info)
        self._start = None

    def _place(self, info: ManagedLedgerInfo, message_id: MessageId) -> Position:
        """Return the entry of an id. Raise `NotInTopic` if it is certainly that of another topic."""
        if message_id in (EARLIEST, LATEST):
            return Position(-1, 0)
        place, text = Position(message_id.ledger_id, max(message_id.entry_id, 0)), str(message_id)
        partition = self.name.partition_index
        if message_id.partition not in (-1, partition):
            raise NotInTopic(str(self.name), text, f"it is in the partition {message_id.partition}")
        ids = [one.ledger_id for one in info.ledgers]
        if not ids or place.ledger_id > ids[-1]:
            raise NotInTopic(str(self.name), text, "its ledger would be after the last one of the topic")
        # A trim takes only the oldest ledgers, so an id between two ledgers of the list is of another topic.
        if ids[0] < place.ledger_id and place.ledger_id not in ids and message_id.entry_id >= 0:
            raise NotInTopic(str(self.name), text, "the topic does not have its ledger")
        return place

    async def _end(self, info: ManagedLedgerInfo) -> Position:
        if not info.ledgers:
            return Position(-1, 0)
        last = info.ledgers[-1]
        if last.entries is not None:
            return Position(last.ledger_id, last.entries)
        reader = await self._view(last)
        if reader is None:
            return Position(last.ledger_id, 0)
        return Position(last.ledger_id, await self._acknowledged(reader, last.ledger_id))

    async def _at_time(self, info: ManagedLedgerInfo, time_ms: int) -> Position:
        """Search by bisection, because messages are published in the order of the entries, or nearly."""
        for one in info.ledgers:
            if one.timestamp_ms and one.timestamp_ms < time_ms:
                continue  # it was closed before
            reader = await self._view(one)
            if reader is None:
                continue
            entries = one.entries
            first = 0
            end = entries if entries is not None else await self._acknowledged(reader, one.ledger_id)
            while first < end:
                middle = (first + end) // 2
                payload = (await reader.read(middle)).payload
                decoded = decode_entry(payload, str(self.name), one.ledger_id, middle)
                if decoded.publish_time_ms < time_ms:
                    first = middle + 1
                else:
                    end = middle
            if entries is None or first < entries:
                return Position(one.ledger_id, first)
        return await self._end(info)


async def read_extents(ledgers: TopicLedgers, name: TopicName) -> Extents:
    """Return where the ledgers of a topic end now. Raise `NoSuchTopic`."""
    return await AsyncTopicReader(ledgers, name).read_extents()
