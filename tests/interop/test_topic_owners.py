"""The check of topics with several owners finds what it is there for."""

from __future__ import annotations

import pytest
from topic_owners import OwnersTrial

from storage.cluster.topics.message_id import MessageId

FOUND = [
    ("numbered", 0, MessageId(1, 0)),
    ("plain", 0, MessageId(1, 1)),
    ("numbered", 1, MessageId(2, 0)),
    ("plain", 3, MessageId(2, 1)),
]


def trial() -> OwnersTrial:
    made = OwnersTrial()
    for words in (
        ["acked", "numbered", "0", "1:0:-1:-1"],
        ["acked", "plain", "0", "1:1:-1:-1"],
        ["failed", "plain", "2", "MessageOutcomeUnknown"],
        ["acked", "numbered", "1", "2:0:-1:-1"],
        ["acked", "numbered", "1", "None"],
    ):
        made.take(words)
    return made


def test_what_owners_say_is_counted() -> None:
    made = trial()

    assert (made.last, made.unknown, made.dropped, made.fenced) == (1, 1, 1, 0)
    made.check(FOUND)
    assert made.wrong == []


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (FOUND[1:], "numbered 0 was acknowledged at 1:0:-1:-1 and is at None"),
        ([*FOUND, FOUND[3]], "1 messages are there more than once"),
        ([FOUND[0], FOUND[3], FOUND[1], FOUND[2]], "the messages of plain are not in their order"),
        ([*FOUND, ("numbered", 3, MessageId(2, 2))], "the messages of the producer with a name have a gap"),
    ],
)
def test_a_topic_that_is_not_as_it_was_acknowledged_is_reported(
    found: list[tuple[str, int, MessageId]], wrong: str
) -> None:
    made = trial()
    made.check(found)

    assert wrong in made.wrong
