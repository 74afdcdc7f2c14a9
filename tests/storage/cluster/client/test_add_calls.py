"""Copies under way on one connection: each has one answer, and those of one pass are reported together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.cluster.client.add_calls import AddBatch, AddCalls, queues_of
from storage.cluster.client.effects import NoAnswer, Sending
from storage.cluster.wire import frames, v3, v3_tables
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, AddOptions, CodeAnswer, Incoming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.client.effects import BookieAnswer

OK = CodeAnswer(Code.OK)
B1, B2 = Sending("b1", 0, 0), Sending("b2", 1, 1)


def add(entry_id: int) -> AddEntry:
    return AddEntry(7, entry_id, b"k" * 20, b"entry %d" % entry_id, AddOptions(), b"")


class Sent:
    """Entries from 0 on that were sent to b1 and b2, and the answers that the writer got."""

    def __init__(self, count: int, first_number: int = 1) -> None:
        self.answers: list[tuple[Sending, list[int], BookieAnswer]] = []
        self.calls = {B1: AddCalls(), B2: AddCalls()}
        self.frames: dict[Sending, bytes] = {}
        self.send(range(count), first_number, deadline=10.0)

    def send(self, entry_ids: Sequence[int], first_number: int, deadline: float) -> None:
        batch = AddBatch(self._answered, deadline)
        queues = queues_of([(add(one), (B1, B2)) for one in entry_ids], batch, first_number)
        for sending, queue in queues.items():
            self.calls[sending].begin(queue.calls)
            self.frames[sending] = b"".join(queue.frames)

    def _answered(self, sending: Sending, entry_ids: Sequence[int], answer: BookieAnswer) -> None:
        self.answers.append((sending, list(entry_ids), answer))

    def bodies(self, sending: Sending, code: Code = Code.OK) -> list[bytes]:
        """Return the answers of a bookie."""
        found = [v3.decode_request(body) for body in frames.split(self.frames[sending]).bodies]
        answers = [v3.encode_answer(one, CodeAnswer(code)) for one in found if isinstance(one, Incoming)]
        return frames.split(b"".join(answers)).bodies


def test_all_bookies_get_the_same_frames() -> None:
    sent = Sent(3, first_number=126)  # the number gets a second byte on the way

    assert sent.frames[B1] == sent.frames[B2]
    bodies = frames.split(sent.frames[B1]).bodies
    assert bodies == [
        frames.split(v3_tables.encode_request(add(one), 126 + one)).bodies[0] for one in range(3)
    ]


def test_copies_that_are_stored_in_one_pass_are_reported_together() -> None:
    sent = Sent(3)

    assert sent.calls[B1].end_stored(sent.bodies(B1)) == []
    assert sent.answers == [(B1, [0, 1, 2], OK)]
    assert (len(sent.calls[B1]), len(sent.calls[B2])) == (0, 3)


def test_an_answer_that_comes_twice_is_reported_once() -> None:
    sent = Sent(2)
    bodies = sent.bodies(B1)

    assert sent.calls[B1].end_stored([bodies[0], *bodies]) == [bodies[0]]
    assert sent.answers == [(B1, [0, 1], OK)]
    assert not sent.calls[B1].end(1, OK)
    assert len(sent.answers) == 1


def test_only_the_expected_answer_is_success() -> None:
    sent = Sent(2)
    failed = sent.bodies(B1, Code.FENCED)
    # The number belongs to entry 0, and the rest to entry 1.
    first, second = sent.bodies(B1)
    mixed = first[: 2 + first[1]] + second[2 + second[1] :]
    longer = first + b"\x28\x01"

    others = [*failed, mixed, longer, b"\x0a"]
    assert sent.calls[B1].end_stored(others) == others
    assert sent.answers == []
    assert sent.calls[B1].end(2, CodeAnswer(Code.FENCED))
    assert sent.answers == [(B1, [1], CodeAnswer(Code.FENCED))]
    assert len(sent.calls[B1]) == 1


def test_copies_end_with_their_time_and_no_others_do() -> None:
    sent = Sent(2)
    sent.send([2], 3, deadline=20.0)
    calls, timed_out = sent.calls[B1], NoAnswer("timed out")

    assert not calls.end_late(9.9, timed_out)
    assert calls.end_late(10.0, timed_out)
    assert sent.answers == [(B1, [0, 1], timed_out)]
    assert calls.end_stored(sent.bodies(B1)) == []
    assert sent.answers[1:] == [(B1, [2], OK)]


def test_all_copies_end_with_their_connection() -> None:
    sent = Sent(2)
    lost = NoAnswer("the connection was lost")

    sent.calls[B2].end_all(lost)
    sent.calls[B2].end_all(lost)
    assert sent.answers == [(B2, [0, 1], lost)]
