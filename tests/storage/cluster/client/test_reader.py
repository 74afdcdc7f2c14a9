"""One entry from its copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from played_machines import ENTRIES, USUAL, open_metadata, stored

from storage.cluster.client.effects import NoAnswer
from storage.cluster.client.reader import BatchOfEntries, EntryRead, LacRead, NotThere
from storage.cluster.errors import CopiesUnreadable, LastAddConfirmedUnknown, UnauthorizedAccess
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import BatchRead, CodeAnswer, FoundEntries, FoundEntry, FoundLac
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


# ── the last add confirmed ───────────────────────────────────────────────────────────────────────────────


def lac_of(*answers: BookieAnswer) -> object:
    """Return the result of a read of the last add confirmed that has got these answers."""
    read = LacRead(ENTRIES, open_metadata().with_ensemble_change(3, BOOKIES))
    for send, answer in zip(read.begin(), answers, strict=False):
        read.answered(send.token, answer)
    return read.result


def test_the_last_add_confirmed_is_the_largest_of_bookies_that_cover_the_ensemble() -> None:
    in_entry, explicit = FoundLac(None, stored(6, 5)), FoundLac(ENTRIES.encode_lac(7), stored(6, 5))

    assert lac_of(in_entry) is None
    assert lac_of(in_entry, NO_ENTRY) == 5
    assert lac_of(in_entry, explicit) == 7
    # A ledger has a segment from 3 on only if the entries before were acknowledged.
    assert lac_of(NO_ENTRY, CodeAnswer(Code.NO_LEDGER)) == 2


def test_a_damaged_copy_or_a_silent_bookie_does_not_cover_the_ensemble() -> None:
    damaged, silent = FoundLac(None, stored(6, 5)[:-1] + b"x"), NoAnswer("timed out")
    assert lac_of(damaged, silent) is None
    result = lac_of(damaged, silent, NO_ENTRY)

    assert isinstance(result, LastAddConfirmedUnknown)
    assert result.reasons == {"b1": "a damaged entry", "b2": "timed out"}


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────


def batch_of(*answers: BookieAnswer) -> tuple[list[int] | None, list[str], set[str]]:
    """Return the entries of a batch from 2 on, the bookies that it has asked, and those that are unable."""
    batch = BatchOfEntries(ENTRIES, BOOKIES, 2, 3, 1000)
    sends = batch.begin()
    asked = [one.bookie for one in sends]
    for answer in answers:
        (send,) = sends
        assert isinstance(send.request, BatchRead)
        sends = batch.answered(send.token, answer)
        asked += [one.bookie for one in sends]
    found = None if batch.result is None else [one.entry_id for one in batch.result]
    return found, asked, batch.unable


def test_a_batch_ends_before_a_damaged_copy_and_the_next_bookie_is_asked_for_the_first_entry() -> None:
    damaged = stored(3)[:-1] + b"x"

    assert batch_of(FoundEntries((stored(2), damaged, stored(4)))) == ([2], ["b1"], set())
    assert batch_of(FoundEntries((damaged,)), FoundEntries((stored(2),))) == ([2], ["b1", "b2"], set())
    # Another entry's bytes are as bad as damaged ones, and no more are taken than were asked for.
    assert batch_of(FoundEntries((stored(2), stored(4))))[0] == [2]
    assert batch_of(FoundEntries(tuple(stored(one) for one in range(2, 9))))[0] == [2, 3, 4]


def test_a_bookie_without_batch_reads_is_noted_and_one_without_the_entry_is_not() -> None:
    closed = NoAnswer("the connection was lost")
    unknown = CodeAnswer(Code.BAD_REQUEST)

    assert batch_of(closed, NO_ENTRY, unknown) == ([], ["b1", "b2", "b3"], {"b1", "b3"})
    assert batch_of(closed, FoundEntries((stored(2),))) == ([2], ["b1", "b2"], {"b1"})
