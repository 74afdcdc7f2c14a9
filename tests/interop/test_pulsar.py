"""What is found of a topic is compared with what was acknowledged; no broker is needed for that."""

from __future__ import annotations

from pulsar import UNKNOWN, FoundMessage, Position, SentMessages, differences


def at(entry_id: int, place: int = -1) -> Position:
    return Position(7, entry_id, place)


FIRST, SECOND, THIRD = FoundMessage(0, at(0)), FoundMessage(1, at(1, 0)), FoundMessage(2, at(1, 1))
WRITTEN = SentMessages(3, {0: at(0), 1: at(1, 0)})


def test_a_message_that_was_not_acknowledged_may_be_there_or_not() -> None:
    assert list(differences(WRITTEN, [FIRST, SECOND])) == []
    assert list(differences(WRITTEN, [FIRST, SECOND, THIRD])) == []


def test_an_acknowledged_message_that_is_not_there_is_lost() -> None:
    assert list(differences(WRITTEN, [FIRST, THIRD])) == [
        f"message 1 was acknowledged at {at(1, 0)} and is not there"
    ]


def test_a_message_that_is_there_twice_is_reported() -> None:
    again = FoundMessage(1, at(2))
    assert list(differences(WRITTEN, [FIRST, SECOND, again])) == [
        f"{again} was found after {SECOND}, which is not the order of sending",
        f"message 1 was acknowledged at {at(1, 0)} and is at {at(2)}",
    ]


def test_a_message_that_is_delivered_twice_is_reported() -> None:
    assert len(list(differences(WRITTEN, [FIRST, SECOND, SECOND]))) == 2


def test_messages_in_another_order_are_reported() -> None:
    assert len(list(differences(WRITTEN, [FIRST, THIRD, SECOND]))) == 2


def test_a_message_that_is_not_where_its_acknowledgement_said_is_reported() -> None:
    moved = FoundMessage(1, at(5))
    assert list(differences(WRITTEN, [FIRST, moved])) == [
        f"message 1 was acknowledged at {at(1, 0)} and is at {at(5)}"
    ]


def test_a_repetition_that_the_broker_has_dropped_is_acknowledged_without_a_position() -> None:
    assert list(differences(SentMessages(2, {0: at(0), 1: UNKNOWN}), [FIRST, SECOND])) == []
    assert list(differences(SentMessages(2, {0: at(0), 1: UNKNOWN}), [FIRST])) != []


def test_a_message_that_was_never_sent_is_reported() -> None:
    strange = FoundMessage(3, at(3))
    assert list(differences(WRITTEN, [FIRST, SECOND, strange])) == [f"{strange} was never sent"]
