"""The acknowledgements of a subscription, compared with a set of all acknowledged messages."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.cluster.topics.cursor import (
    BEFORE_ALL,
    RANGES_IN_ENTRY_MAX,
    RANGES_IN_NODE_MAX,
    Cursor,
    Extents,
    Intervals,
)
from storage.cluster.topics.errors import NotInTopic
from storage.cluster.topics.managed_ledger import (
    NO_LEDGER,
    DeletedRange,
    ManagedCursorInfo,
    Position,
    PositionInfo,
    decode_cursor,
    decode_position_info,
    encode_cursor,
    encode_position_info,
)
from storage.cluster.topics.message_id import EARLIEST, LATEST, MessageId

EXTENTS = Extents(((1, 3), (4, 0), (5, 2), (9, 4)), is_last_open=True)

ENTRIES = [Position(ledger_id, entry_id) for ledger_id, count in EXTENTS.ledgers for entry_id in range(count)]

BATCH_SIZES = {Position(1, 1): 3, Position(5, 0): 1, Position(9, 0): 2, Position(9, 3): 70}
"""The other entries have a message that is in no batch."""


def messages_of(position: Position) -> list[MessageId]:
    size = BATCH_SIZES.get(position, 0)
    return [MessageId(*position, -1, index) for index in range(size)] or [MessageId(*position)]


MESSAGES = [one for position in ENTRIES for one in messages_of(position)]


def batch_size(message_id: MessageId) -> int:
    return BATCH_SIZES.get(Position(*message_id[:2]), 0)


def recovered(cursor: Cursor) -> Cursor:
    """Return the cursor that is read from the bytes of this one."""
    if cursor.needs_ledger:
        node = decode_cursor("n", encode_cursor(cursor.to_node_with_ledger(77)))
        entry = decode_position_info("e", encode_position_info(cursor.to_entry()))
        return Cursor.recover(cursor.topic, node, entry, EXTENTS)
    return Cursor.recover("t", decode_cursor("n", encode_cursor(cursor.to_node())), None, EXTENTS)


def assert_agrees(cursor: Cursor, acknowledged: set[MessageId]) -> None:
    for position in ENTRIES:
        ids = messages_of(position)
        mask = sum(1 << number for number, one in enumerate(ids) if one not in acknowledged)
        assert cursor.remaining(position, len(ids)) == mask, position
        assert cursor.is_acknowledged(position) == (mask == 0)
        if position <= cursor.mark_delete:
            assert mask == 0
    following = EXTENTS.after(cursor.mark_delete)
    assert not cursor.is_acknowledged(following)
    missing = [one for one in ENTRIES if not set(messages_of(one)) <= acknowledged]
    assert cursor.backlog(EXTENTS) == len(missing)


@given(
    st.lists(st.tuples(st.sampled_from(("one", "through", "seek")), st.sampled_from(MESSAGES)), max_size=25)
)
def test_a_cursor_knows_what_is_acknowledged_also_after_a_restart(
    steps: list[tuple[str, MessageId]],
) -> None:
    cursor, acknowledged = Cursor("t", BEFORE_ALL), set[MessageId]()
    cursor.settle(EXTENTS)
    for step, message_id in steps:
        if step == "one":
            cursor.acknowledge(message_id, batch_size(message_id), EXTENTS)
            acknowledged.add(message_id)
        elif step == "through":
            cursor.acknowledge_through(message_id, batch_size(message_id), EXTENTS)
            acknowledged |= {one for one in MESSAGES if one <= message_id}
        else:
            cursor.seek(Position(*message_id[:2]))
            acknowledged = {one for one in MESSAGES if one < message_id.of_entry}
        assert_agrees(cursor, acknowledged)
        again = recovered(cursor)
        assert_agrees(again, acknowledged)
        assert again.mark_delete == cursor.mark_delete


def test_the_mark_delete_position_moves_over_the_end_of_a_ledger() -> None:
    cursor = Cursor("t", Position(1, 1))
    cursor.acknowledge(MessageId(5, 0), 0, EXTENTS)
    assert cursor.mark_delete == Position(1, 1)
    assert list(cursor.ranges()) == [DeletedRange(Position(5, -1), Position(5, 0))]
    cursor.acknowledge(MessageId(1, 2), 0, EXTENTS)
    assert cursor.mark_delete == Position(5, 0)
    assert not cursor.ranges_count


def test_each_change_is_counted_and_an_acknowledgement_that_changes_nothing_is_not() -> None:
    cursor = Cursor("t", Position(1, -1))
    cursor.acknowledge(MessageId(1, 1, -1, 2), 3, EXTENTS)
    cursor.acknowledge_through(MessageId(1, 0), 0, EXTENTS)
    changes = cursor.changes
    cursor.acknowledge(MessageId(1, 0), 0, EXTENTS)
    cursor.acknowledge_through(EARLIEST, 0, EXTENTS)
    assert (changes, cursor.changes) == (2, 2)


@pytest.mark.parametrize(
    ("message_id", "size", "reason"),
    [
        (MessageId(3, 0), 0, "does not have its ledger"),
        (MessageId(5, 2), 0, "has 2 entries"),
        (MessageId(5, -1), 0, "has 2 entries"),
        (LATEST, 0, "does not have its ledger"),
        (MessageId(9, 3, -1, 70), 70, "has 70 messages"),
        (MessageId(1, 2, -1, 0), 0, "has 0 messages"),
    ],
)
def test_an_acknowledgement_of_what_the_topic_does_not_have_is_refused(
    message_id: MessageId, size: int, reason: str
) -> None:
    cursor = Cursor("persistent://a/b/c", Position(1, -1))
    for acknowledge in (cursor.acknowledge, cursor.acknowledge_through):
        with pytest.raises(NotInTopic, match=reason) as refused:
            acknowledge(message_id, size, EXTENTS)
        assert f"persistent://a/b/c has no message {message_id}" in str(refused.value)
    assert cursor.changes == 0


@pytest.mark.parametrize(
    ("at", "expected", "reason"),
    [
        (BEFORE_ALL, Position(1, -1), ""),
        (Position(0, 7), Position(1, -1), "before the first ledger 1"),
        (Position(4, -1), Position(4, -1), ""),
        (Position(9, 3), Position(9, 3), ""),
        (Position(9, 5), Position(9, 5), ""),
        (Position(12, -1), Position(9, 3), "after the last entry 9:3"),
    ],
)
def test_a_cursor_outside_of_its_topic_moves_into_it_and_says_why(
    at: Position, expected: Position, reason: str
) -> None:
    cursor = Cursor("t", at)
    said = cursor.settle(EXTENTS)
    assert (cursor.mark_delete, bool(said)) == (expected, bool(reason))
    assert reason in said


def test_a_cursor_after_the_end_of_a_closed_ledger_moves_back() -> None:
    cursor = Cursor("t", Position(9, 8))
    assert "after the last entry 9:3" in cursor.settle(Extents(EXTENTS.ledgers))
    assert cursor.mark_delete == Position(9, 3)


def test_the_node_has_small_states_and_a_ledger_the_others() -> None:
    extents = Extents(((1, 10**6),), is_last_open=True)
    cursor = Cursor("t", Position(1, -1))
    for number in range(RANGES_IN_NODE_MAX):
        cursor.acknowledge(MessageId(1, 2 * number + 1), 0, extents)
    assert cursor.to_node().cursors_ledger_id == NO_LEDGER
    needed_ledger = cursor.needs_ledger
    cursor.acknowledge(MessageId(1, 10**5), 0, extents)
    assert (needed_ledger, cursor.needs_ledger) == (False, True)
    assert cursor.to_node_with_ledger(6).ranges == ()
    assert len(cursor.to_entry().ranges) == RANGES_IN_NODE_MAX + 1


def test_a_part_of_a_batch_is_in_a_ledger_because_brokers_read_it_there_only() -> None:
    cursor = Cursor("t", Position(1, 0))
    cursor.acknowledge(MessageId(1, 1, -1, 1), 3, EXTENTS)
    needed_ledger = cursor.needs_ledger
    assert [one.remaining for one in cursor.to_entry().batches] == [0b101]
    cursor.acknowledge_through(MessageId(1, 1, -1, 1), 3, EXTENTS)
    assert [one.remaining for one in cursor.to_entry().batches] == [0b100]
    cursor.acknowledge(MessageId(1, 1, -1, 2), 3, EXTENTS)
    assert (needed_ledger, cursor.needs_ledger) == (True, False)
    assert cursor.mark_delete == Position(1, 1)


def test_a_part_of_a_batch_is_forgotten_when_the_position_passes_it() -> None:
    cursor = Cursor("t", Position(1, 0))
    cursor.acknowledge(MessageId(1, 1, -1, 1), 3, EXTENTS)
    cursor.acknowledge_through(MessageId(1, 2), 0, EXTENTS)
    assert (cursor.needs_ledger, cursor.batches()) == (False, ())


def test_very_many_ranges_are_written_as_bits() -> None:
    extents = Extents(((1, 10**6),), is_last_open=True)
    ranges = tuple(
        DeletedRange(Position(1, 2 * number), Position(1, 2 * number + 1))
        for number in range(RANGES_IN_ENTRY_MAX + 1)
    )
    cursor = Cursor.recover("t", ManagedCursorInfo(NO_LEDGER, Position(1, -1), ranges), None, extents)
    entry = cursor.to_entry()
    assert entry.ranges == ()
    assert entry.bits[0].bits == sum(1 << (2 * number + 1) for number in range(RANGES_IN_ENTRY_MAX + 1))
    again = Cursor.recover("t", ManagedCursorInfo(7, Position(1, -1)), entry, extents)
    assert tuple(again.ranges()) == ranges


def test_a_range_over_several_ledgers_is_split() -> None:
    node = ManagedCursorInfo(NO_LEDGER, Position(1, 0), (DeletedRange(Position(1, 1), Position(9, 1)),))
    cursor = Cursor.recover("t", node, None, EXTENTS)
    assert list(cursor.ranges()) == [
        DeletedRange(Position(1, 1), Position(1, 2)),
        DeletedRange(Position(5, -1), Position(5, 1)),
        DeletedRange(Position(9, -1), Position(9, 1)),
    ]


def test_without_its_ledger_the_older_state_of_the_node_counts() -> None:
    node = ManagedCursorInfo(7, Position(1, 1), cursor_properties=(("a", "b"),))
    cursor = Cursor.recover("t", node, None, EXTENTS)
    assert (cursor.mark_delete, cursor.cursor_properties) == (Position(1, 1), (("a", "b"),))
    newer = Cursor.recover("t", node, PositionInfo(Position(5, 0), properties=(("n", 3),)), EXTENTS)
    assert (newer.mark_delete, newer.properties) == (Position(5, 0), (("n", 3),))


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)), max_size=20), st.integers(-1, 60))
def test_intervals_are_a_set_of_numbers(steps: list[tuple[int, int]], through: int) -> None:
    intervals, expected = Intervals(), set[int]()
    for first, more in steps:
        intervals.add(first, first + more)
        expected |= set(range(first, first + more + 1))
    intervals.remove_through(through)
    expected -= set(range(through + 1))
    assert {one for one in range(80) if one in intervals} == expected
    assert all(last + 1 < first for last, first in zip(intervals.lasts, intervals.firsts[1:], strict=False))
    assert intervals.bits == sum(1 << one for one in expected)
    again = Intervals()
    again.add_bits(intervals.bits)
    assert (again.firsts, again.lasts) == (intervals.firsts, intervals.lasts)


def test_the_last_entry_of_a_topic_is_that_of_its_last_ledger_with_entries() -> None:
    assert Extents(((1, 3), (4, 2)), is_last_open=True).last == Position(4, 1)
    assert Extents(((1, 3), (4, 0))).last == Position(1, 2)
    assert Extents().last == BEFORE_ALL


def test_random_positions_have_the_entry_after_them() -> None:
    chance = random.Random(3)
    for _ in range(200):
        position = Position(chance.randrange(12), chance.randrange(-1, 5))
        later = [one for one in ENTRIES if one > position]
        if later:
            assert EXTENTS.after(position) == later[0]
            assert EXTENTS.count(position, EXTENTS.last) == len(later)
