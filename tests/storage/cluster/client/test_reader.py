"""One entry from its copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from played_machines import ENTRIES, USUAL, stored

from storage.cluster.client.effects import NoAnswer
from storage.cluster.client.reader import EntryRead, NotThere
from storage.cluster.errors import CopiesUnreadable, UnauthorizedAccess
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import CodeAnswer, FoundEntry
from storage.entry.model import Entry

if TYPE_CHECKING:
    from storage.cluster.client.effects import BookieAnswer, Send

BOOKIES = ("b1", "b2", "b3")
NO_ENTRY = CodeAnswer(Code.NO_ENTRY)


def read_of(entry_id: int, *answers: BookieAnswer) -> tuple[EntryRead, list[str]]:
    """Return a read that has got these answers, and the bookies that it has asked."""
    read = EntryRead(ENTRIES, USUAL, BOOKIES, entry_id)
    sends: list[Send] = read.begin()
    asked = [one.bookie for one in sends]
    for answer in answers:
        sends += read.answered(sends.pop(0).token, answer)
        asked += [one.bookie for one in sends]
    return read, asked


def test_the_first_good_copy_is_the_entry() -> None:
    read, asked = read_of(1, FoundEntry(stored(1), 1, 4))

    assert isinstance(read.result, Entry)
    assert (read.result.payload, read.last_add_confirmed) == (b"abc", 4)
    assert asked == ["b2"]


@pytest.mark.parametrize(
    "answer",
    [
        FoundEntry(stored(1)[:-1] + b"x", 1),
        FoundEntry(stored(2), 1),
        FoundEntry(b"", 1),
        NO_ENTRY,
        NoAnswer("timed out"),
        CodeAnswer(Code.IO_ERROR),
    ],
)
def test_the_next_bookie_is_asked_when_one_has_no_good_copy(answer: BookieAnswer) -> None:
    read, asked = read_of(1, answer, FoundEntry(stored(1), 1))

    assert isinstance(read.result, Entry)
    assert asked == ["b2", "b3"]


def test_an_entry_is_not_there_only_if_every_bookie_says_so() -> None:
    assert read_of(0, NO_ENTRY, NO_ENTRY, CodeAnswer(Code.NO_LEDGER))[0].result == NotThere()
    assert read_of(0, NO_ENTRY, NO_ENTRY)[0].result is None

    read, _ = read_of(0, NO_ENTRY, NoAnswer("timed out"), NO_ENTRY)
    assert isinstance(read.result, CopiesUnreadable)
    assert read.result.reasons == {"b1": "no such entry", "b2": "timed out", "b3": "no such entry"}


def test_another_password_ends_the_read() -> None:
    assert isinstance(read_of(0, CodeAnswer(Code.UNAUTHORIZED))[0].result, UnauthorizedAccess)


def test_another_bookie_is_asked_while_an_answer_takes_long() -> None:
    read = EntryRead(ENTRIES, USUAL, BOOKIES, 0)
    (first,) = read.begin()
    (second,) = read.waited()
    assert (first.bookie, second.bookie) == ("b1", "b2")

    read.answered(second.token, FoundEntry(stored(0), 0))
    assert isinstance(read.result, Entry)
    assert read.waited() == []
    assert read.answered(first.token, NO_ENTRY) == []


def test_slow_bookies_are_asked_last() -> None:
    read = EntryRead(ENTRIES, USUAL, BOOKIES, 0, frozenset({"b1"}))

    assert [one.bookie for one in read.begin()] == ["b2"]
