"""The acknowledgements of one subscription. Pure.

    mark-delete   the position up to which, and with which, everything is acknowledged
    intervals     entries after it that are acknowledged too, for each ledger
    batches       batches of which some messages are acknowledged: the mask of the others

The mark-delete position moves over each interval that it touches, also from the end of a ledger to the next
one. For that a cursor has to know where the ledgers of its topic end: `Extents`.

A small state is in the node of the cursor. One with more ranges than `RANGES_IN_NODE_MAX` is in the last
entry of a ledger that the node names. So is each state with a part of a batch: a broker writes those to the
node too, but reads them from a ledger only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.cluster.topics.errors import NotInTopic
from storage.cluster.topics.managed_ledger import (
    NO_LEDGER,
    BatchAcks,
    DeletedBits,
    DeletedRange,
    ManagedCursorInfo,
    Position,
    PositionInfo,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.cluster.topics.message_id import MessageId

RANGES_IN_NODE_MAX = 1_000
"""Ranges in the node of a cursor, as brokers have it."""

RANGES_IN_ENTRY_MAX = 10_000
"""Ranges in an entry of a cursor's ledger. More of them are written as bits, which are shorter then."""

BEFORE_ALL = Position(-1, -1)


# ── where the ledgers end ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Extents:
    """The ledgers of a topic, in their order, each with its number of entries."""

    ledgers: tuple[tuple[int, int], ...] = ()
    """Pairs of id and entries. In a ledger that is still written only acknowledged entries count."""
    is_last_open: bool = False
    """Whether the last ledger may get more entries."""

    @property
    def last(self) -> Position:
        """The last entry of the topic; the place before the first ledger's first one if there is none."""
        for ledger_id, entries in reversed(self.ledgers):
            if entries:
                return Position(ledger_id, entries - 1)
        return Position(self.ledgers[0][0], -1) if self.ledgers else BEFORE_ALL

    def entries_of(self, ledger_id: int) -> int | None:
        """Return the number of entries of a ledger; `None` if the topic does not have it."""
        at = bisect_left(self.ledgers, (ledger_id, -1))
        if at < len(self.ledgers) and self.ledgers[at][0] == ledger_id:
            return self.ledgers[at][1]
        return None

    def after(self, position: Position) -> Position:
        """Return the first entry after a position. It need not be there yet."""
        entries = self.entries_of(position.ledger_id)
        is_last = bool(self.ledgers) and position.ledger_id == self.ledgers[-1][0]
        if entries is not None and (position.entry_id + 1 < entries or (is_last and self.is_last_open)):
            return Position(position.ledger_id, position.entry_id + 1)
        at = bisect_left(self.ledgers, (position.ledger_id + 1, -1))
        for number, (ledger_id, entries) in enumerate(self.ledgers[at:], at):
            if entries or number == len(self.ledgers) - 1:
                return Position(ledger_id, 0)
        return Position(position.ledger_id, position.entry_id + 1)

    def count(self, after: Position, through: Position) -> int:
        """Return the number of entries after one position, up to and with another."""
        total = 0
        for ledger_id, entries in self.ledgers:
            first = after.entry_id + 1 if ledger_id == after.ledger_id else 0
            end = min(entries, through.entry_id + 1) if ledger_id == through.ledger_id else entries
            if after.ledger_id <= ledger_id <= through.ledger_id:
                total += max(0, end - first)
        return total


class Intervals:
    """Sets of consecutive entries of one ledger, apart from each other."""

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []

    def __len__(self) -> int:
        return len(self.firsts)

    def __contains__(self, entry_id: int) -> bool:
        at = bisect_right(self.firsts, entry_id) - 1
        return at >= 0 and entry_id <= self.lasts[at]

    def add(self, first: int, last: int) -> None:
        """Add entries, and join them to the intervals that they touch."""
        begin, end = bisect_left(self.lasts, first - 1), bisect_right(self.firsts, last + 1)
        if begin < end:
            first, last = min(first, self.firsts[begin]), max(last, self.lasts[end - 1])
        self.firsts[begin:end], self.lasts[begin:end] = [first], [last]

    def remove_through(self, entry_id: int) -> None:
        """Remove all entries up to one."""
        end = bisect_right(self.lasts, entry_id)
        del self.firsts[:end], self.lasts[:end]
        if self.firsts and self.firsts[0] <= entry_id:
            self.firsts[0] = entry_id + 1

    @property
    def bits(self) -> int:
        """The entries as a number, in which bit i is that of entry i."""
        made = bytearray(self.lasts[-1] // 8 + 1) if self.lasts else bytearray()
        for first, last in zip(self.firsts, self.lasts, strict=True):
            for entry_id in range(first, last + 1):
                made[entry_id >> 3] |= 1 << (entry_id & 7)
        return int.from_bytes(made, "little")

    def add_bits(self, bits: int) -> None:
        """Add the entries of a number."""
        at = 0
        while bits:
            skipped = (bits & -bits).bit_length() - 1
            bits >>= skipped
            count = (~bits & (bits + 1)).bit_length() - 1
            self.add(at + skipped, at + skipped + count - 1)
            bits >>= count
            at += skipped + count


# ── acknowledgements ─────────────────────────────────────────────────────────────────────────────────────


class Cursor:
    """What one subscription has acknowledged. For one thread."""

    def __init__(self, topic: str, mark_delete: Position) -> None:
        self.topic = topic
        self.mark_delete = mark_delete
        self.changes = 0
        """Grows with each change, so that a caller sees whether a state that it wrote is still the newest."""
        self.properties: tuple[tuple[str, int], ...] = ()
        """Properties of the position, as a broker's client has set them."""
        self.cursor_properties: tuple[tuple[str, str], ...] = ()
        """Properties of the subscription, as a broker's client has set them."""
        self._acknowledged: dict[int, Intervals] = {}
        self._batches: dict[Position, int] = {}

    @classmethod
    def recover(
        cls, topic: str, node: ManagedCursorInfo, entry: PositionInfo | None, extents: Extents
    ) -> Cursor:
        """Return the cursor of a node, and of the last entry of its ledger if it has one.

        Without that entry, because its ledger is empty or gone, the node has an older state, which only means
        that some messages are delivered once more.
        """
        state = entry if entry is not None else node
        cursor = cls(topic, state.mark_delete or BEFORE_ALL)
        cursor.properties, cursor.cursor_properties = state.properties, node.cursor_properties
        for lower, upper in state.ranges:
            for ledger_id, first, last in _split(lower, upper, extents):
                cursor._intervals(ledger_id).add(first, last)
        if entry is not None and not entry.ranges:
            for one in entry.bits:
                cursor._intervals(one.ledger_id).add_bits(one.bits)
        cursor._batches = {one.position: one.remaining for one in state.batches if one.remaining}
        cursor._move_to(cursor.mark_delete)
        return cursor

    def __repr__(self) -> str:
        return f"<Cursor of {self.topic} at {self.mark_delete}, {self.ranges_count} ranges after it>"

    @property
    def ranges_count(self) -> int:
        """The number of intervals after the mark-delete position."""
        return sum(map(len, self._acknowledged.values()))

    @property
    def needs_ledger(self) -> bool:
        """Whether the node of the cursor cannot have the state."""
        return bool(self._batches) or self.ranges_count > RANGES_IN_NODE_MAX

    def is_acknowledged(self, position: Position) -> bool:
        """Return whether the whole entry is acknowledged."""
        if position <= self.mark_delete:
            return True
        intervals = self._acknowledged.get(position.ledger_id)
        return intervals is not None and position.entry_id in intervals

    def remaining(self, position: Position, count: int) -> int:
        """Return the mask of those of an entry's messages that are not acknowledged; 0 if all are."""
        if self.is_acknowledged(position):
            return 0
        return self._batches.get(position, -1) & ((1 << count) - 1)

    def acknowledge(self, message_id: MessageId, batch_size: int, extents: Extents) -> None:
        """Acknowledge one message; with the batch index -1 all messages of an entry.

        `batch_size` is the number of messages in the entry, 0 outside a batch.
        """
        position = self._position(message_id, batch_size, extents)
        if self.is_acknowledged(position):
            return
        self.changes += 1
        if message_id.batch_index >= 0:
            whole = (1 << batch_size) - 1
            left = self._batches.get(position, whole) & whole & ~(1 << message_id.batch_index)
            if left:
                self._batches[position] = left
                return
        self._batches.pop(position, None)
        self._intervals(position.ledger_id).add(position.entry_id, position.entry_id)
        self._advance(extents)

    def acknowledge_through(self, message_id: MessageId, batch_size: int, extents: Extents) -> None:
        """Acknowledge a message and all before it."""
        position = self._position(message_id, batch_size, extents)
        if position <= self.mark_delete:
            return
        self.changes += 1
        left = 0
        if message_id.batch_index >= 0:
            whole = (1 << batch_size) - 1
            left = self._batches.get(position, whole) & whole & -(2 << message_id.batch_index)
        if left and not self.is_acknowledged(position):
            self._move_to(max(self.mark_delete, Position(position.ledger_id, position.entry_id - 1)))
            self._batches[position] = left
        else:
            self._move_to(position)
        self._advance(extents)

    def seek(self, position: Position) -> None:
        """Make this entry the first one that is not acknowledged."""
        self.changes += 1
        self._acknowledged.clear()
        self._batches.clear()
        self.mark_delete = Position(position.ledger_id, position.entry_id - 1)

    def settle(self, extents: Extents) -> str:
        """Move into the ledgers that the topic has. Return what was wrong, or an empty text.

        A cursor is before the first ledger after a trim. It is after the last entry if the topic was deleted
        and made again, or restored from a copy.
        """
        reason = ""
        at, entries = self.mark_delete, extents.entries_of(self.mark_delete.ledger_id)
        is_in_open_ledger = extents.is_last_open and at.ledger_id == extents.ledgers[-1][0]
        if extents.ledgers and at < (extents.ledgers[0][0], -1):
            if at != BEFORE_ALL:
                reason = f"the cursor was at {at}, before the first ledger {extents.ledgers[0][0]}"
            self.changes += 1
            self._move_to(Position(extents.ledgers[0][0], -1))
        elif at > extents.last and not is_in_open_ledger and (entries is None or at.entry_id >= entries):
            reason = f"the cursor was at {at}, after the last entry {extents.last}"
            self.seek(Position(extents.last.ledger_id, extents.last.entry_id + 1))
        self._advance(extents)
        return reason

    def mapped(
        self, topic: str, mark_delete: Position, place_of: Callable[[Position], Position | None]
    ) -> Cursor:
        """Return the same acknowledgements in a copy of the topic, in which entries have other places.

        `mark_delete` is the place of the position there, and `place_of` returns that of an entry.
        """
        made = Cursor(topic, mark_delete)
        made.properties, made.cursor_properties = self.properties, self.cursor_properties
        for ledger_id, intervals in self._acknowledged.items():
            for first, last in zip(intervals.firsts, intervals.lasts, strict=True):
                for entry_id in range(first, last + 1):
                    place = place_of(Position(ledger_id, entry_id))
                    if place is not None:
                        made._intervals(place.ledger_id).add(place.entry_id, place.entry_id)
        known = ((place_of(position), left) for position, left in self._batches.items())
        made._batches = {place: left for place, left in known if place is not None}
        return made

    def backlog(self, extents: Extents) -> int:
        """Return the number of entries that are not acknowledged."""
        passed = sum(
            min(last, (extents.entries_of(ledger_id) or 0) - 1) - first + 1
            for ledger_id, intervals in self._acknowledged.items()
            for first, last in zip(intervals.firsts, intervals.lasts, strict=True)
        )
        return max(0, extents.count(self.mark_delete, extents.last) - passed)

    def _position(self, message_id: MessageId, batch_size: int, extents: Extents) -> Position:
        """Return the entry of a message. Raise `NotInTopic` if the topic has no such message."""
        if 0 <= batch_size <= message_id.batch_index:
            raise NotInTopic(self.topic, str(message_id), f"its entry has {batch_size} messages in a batch")
        position = Position(message_id.ledger_id, message_id.entry_id)
        if position > self.mark_delete:
            entries = extents.entries_of(position.ledger_id)
            if entries is None:
                raise NotInTopic(self.topic, str(message_id), "the topic does not have its ledger")
            if not 0 <= position.entry_id < entries:
                raise NotInTopic(self.topic, str(message_id), f"its ledger has {entries} entries")
        return position

    def _intervals(self, ledger_id: int) -> Intervals:
        return self._acknowledged.setdefault(ledger_id, Intervals())

    def _move_to(self, position: Position) -> None:
        """Move the mark-delete position, and forget what is before it."""
        self.mark_delete = position
        for ledger_id in [one for one in self._acknowledged if one <= position.ledger_id]:
            if ledger_id == position.ledger_id:
                self._acknowledged[ledger_id].remove_through(position.entry_id)
            if ledger_id < position.ledger_id or not self._acknowledged[ledger_id]:
                del self._acknowledged[ledger_id]
        if self._batches:
            self._batches = {at: left for at, left in self._batches.items() if at > position}

    def _advance(self, extents: Extents) -> None:
        """Move over the intervals that the mark-delete position touches."""
        while self._acknowledged:
            following = extents.after(self.mark_delete)
            intervals = self._acknowledged.get(following.ledger_id)
            if intervals is None or intervals.firsts[0] != following.entry_id:
                return
            self._move_to(Position(following.ledger_id, intervals.lasts[0]))

    # ── bytes ─────────────────────────────────────────────────────────────────────────────────────────

    def ranges(self) -> Iterator[DeletedRange]:
        """Yield the intervals in the order of the entries, as ranges after their lower end."""
        for ledger_id in sorted(self._acknowledged):
            intervals = self._acknowledged[ledger_id]
            for first, last in zip(intervals.firsts, intervals.lasts, strict=True):
                yield DeletedRange(Position(ledger_id, first - 1), Position(ledger_id, last))

    def batches(self) -> tuple[BatchAcks, ...]:
        """Return the batches of which some messages are acknowledged."""
        return tuple(BatchAcks(position, self._batches[position]) for position in sorted(self._batches))

    def to_node(self) -> ManagedCursorInfo:
        """Return what the node of the cursor has if it has the whole state."""
        assert not self.needs_ledger, "a ledger has this state"
        return ManagedCursorInfo(
            NO_LEDGER,
            self.mark_delete,
            tuple(self.ranges()),
            self.properties,
            cursor_properties=self.cursor_properties,
        )

    def to_node_with_ledger(self, cursors_ledger_id: int) -> ManagedCursorInfo:
        """Return what the node of the cursor has if its ledger has the state."""
        return ManagedCursorInfo(
            cursors_ledger_id, self.mark_delete, (), self.properties, cursor_properties=self.cursor_properties
        )

    def to_entry(self) -> PositionInfo:
        """Return the entry of the cursor's ledger."""
        if self.ranges_count <= RANGES_IN_ENTRY_MAX:
            return PositionInfo(self.mark_delete, tuple(self.ranges()), self.properties, self.batches())
        bits = tuple(DeletedBits(one, self._acknowledged[one].bits) for one in sorted(self._acknowledged))
        return PositionInfo(self.mark_delete, (), self.properties, self.batches(), bits)


def _split(lower: Position, upper: Position, extents: Extents) -> Iterator[tuple[int, int, int]]:
    """Yield the parts of a range in each ledger: older brokers write ranges over several ledgers."""
    if lower.ledger_id == upper.ledger_id:
        if lower.entry_id < upper.entry_id:
            yield lower.ledger_id, lower.entry_id + 1, upper.entry_id
        return
    for ledger_id in {lower.ledger_id, upper.ledger_id, *(one for one, _ in extents.ledgers)}:
        if not lower.ledger_id <= ledger_id <= upper.ledger_id:
            continue
        first = lower.entry_id + 1 if ledger_id == lower.ledger_id else 0
        entries = upper.entry_id + 1 if ledger_id == upper.ledger_id else extents.entries_of(ledger_id) or 0
        if first < entries:
            yield ledger_id, first, entries - 1
