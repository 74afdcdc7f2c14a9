"""A bookie that a test plays on the loop of its client. It keeps entries in memory, and may lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.cluster.wire import frames, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    LAST_ENTRY,
    AddEntry,
    CodeAnswer,
    FoundEntry,
    FoundLac,
    Incoming,
    LongPoll,
    ReadEntry,
    ReadLac,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.cluster.wire.messages import Answer

    Spoil = Callable[[Incoming, Answer], list[bytes]]
    """What the bookie says instead of the frame of an answer."""


def honestly(incoming: Incoming, answer: Answer) -> list[bytes]:
    return [v3.encode_answer(incoming, answer)]


class PlayedBookie:
    """One bookie. `answer` is for `played_peer`."""

    def __init__(self) -> None:
        self.ledgers: dict[int, dict[int, bytes]] = {}
        self.spoil: Spoil = honestly
        self._received = b""

    def answer(self, data: bytes) -> bytes:
        found = frames.split(self._received + data)
        self._received = (self._received + data)[found.consumed :]
        requests = [v3.decode_request(body) for body in found.bodies]
        answers = [
            self.spoil(one, self._answer_to(one))
            for one in requests
            if isinstance(one, Incoming) and not isinstance(one.request, LongPoll)
        ]
        return b"".join(frame for frames_of_one in answers for frame in frames_of_one)

    def _answer_to(self, incoming: Incoming) -> Answer:
        match incoming.request:
            case AddEntry(ledger_id, entry_id, _, entry):
                self.ledgers.setdefault(ledger_id, {})[entry_id] = entry
                return CodeAnswer(Code.OK)
            case ReadEntry(ledger_id, entry_id):
                stored = self._stored(ledger_id, entry_id)
                return CodeAnswer(Code.NO_ENTRY) if stored is None else FoundEntry(stored, entry_id)
            case ReadLac(ledger_id):
                last = self._stored(ledger_id, LAST_ENTRY)
                return CodeAnswer(Code.NO_ENTRY) if last is None else FoundLac(None, last)
            case _:
                return CodeAnswer(Code.OK)

    def _stored(self, ledger_id: int, entry_id: int) -> bytes | None:
        entries = self.ledgers.get(ledger_id, {})
        return entries.get(max(entries, default=0) if entry_id == LAST_ENTRY else entry_id)
