"""The copies of entries that were sent over one connection and are not answered yet.

A writer sends each entry several times, so these copies are most of a client's work. The parts that the
copies of an entry have in common are made once: its frame has the same transaction id for each bookie.
Answers of success are compared with the expected bytes, and the writer gets those of one pass of the loop
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.client.effects import BookieAnswer, Sending
from storage.cluster.wire import v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import CodeAnswer

if TYPE_CHECKING:
    from storage.cluster.wire.messages import AddEntry

AddsAnswered = Callable[[Sending, Sequence[int], BookieAnswer], None]
"""Called with the answer to the copies of these entries. Each copy has one answer."""

_STORED = CodeAnswer(Code.OK)


class AddBatch(NamedTuple):
    """The copies that a writer sends at once, and what they have in common."""

    answered: AddsAnswered
    deadline: float


CopyCall = tuple[Sending, int, bytes, AddBatch]
"""Where a copy was sent, its entry id, and the bytes after the header in an answer of success."""


class CopyQueue(NamedTuple):
    """Copies for one bookie."""

    calls: dict[bytes, CopyCall]
    """By the header that the answer repeats."""
    frames: list[bytes]


def queues_of(
    copies: Sequence[tuple[AddEntry, Sequence[Sending]]], batch: AddBatch, first_number: int
) -> dict[Sending, CopyQueue]:
    """Return the copies by their sending. Their transaction ids begin with `first_number`."""
    queues: dict[Sending, CopyQueue] = {}
    encoded = v3.encode_adds([request for request, _ in copies], first_number)
    for (request, sendings), (header, frame, success) in zip(copies, encoded, strict=True):
        entry_id = request.entry_id
        for sending in sendings:
            queue = queues.get(sending)
            if queue is None:
                queue = queues[sending] = CopyQueue({}, [])
            queue.calls[header] = sending, entry_id, success, batch
            queue.frames.append(frame)
    return queues


class AddCalls:
    """The copies under way on one connection, in the order in which they were sent."""

    def __init__(self) -> None:
        self._calls: dict[bytes, CopyCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, calls: dict[bytes, CopyCall]) -> None:
        self._calls.update(calls)

    def end_stored(self, bodies: list[bytes]) -> list[bytes]:
        """End the copies that were stored, as these bodies of frames say. Return the other bodies."""
        calls = self._calls
        if not calls:
            return bodies
        stored, others = [], []
        for body in bodies:
            header = body[2 : 2 + body[1]] if len(body) > 1 else b""
            call = calls.get(header)
            if call is not None and body[2 + len(header) :] == call[2]:
                del calls[header]
                stored.append(call)
            else:
                others.append(body)
        tell(stored, _STORED)
        return others

    def end(self, number: int, answer: BookieAnswer) -> bool:
        """End the copy of this transaction id. Return whether it was under way."""
        call = self._calls.pop(v3.add_header(number), None)
        if call is None:
            return False
        tell([call], answer)
        return True

    def end_late(self, now: float, answer: BookieAnswer) -> bool:
        """End the copies whose time is over. Return whether there are any."""
        late = list(takewhile(lambda one: one[1][3].deadline <= now, self._calls.items()))
        for header, _ in late:
            del self._calls[header]
        tell([call for _, call in late], answer)
        return bool(late)

    def end_all(self, answer: BookieAnswer) -> None:
        calls, self._calls = self._calls, {}
        tell(calls.values(), answer)


def tell(calls: Iterable[CopyCall], answer: BookieAnswer) -> None:
    """Tell the writers of these copies their answer: once for those that belong to one sending."""
    runs: list[tuple[AddBatch, Sending, list[int]]] = []
    last, entry_ids = None, list[int]()
    for sending, entry_id, _, batch in calls:
        if sending is not last:
            last = sending
            entry_ids = []
            runs.append((batch, sending, entry_ids))
        entry_ids.append(entry_id)
    for batch, sending, entry_ids in runs:
        batch.answered(sending, entry_ids, answer)
