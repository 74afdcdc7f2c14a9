"""Which call an answer of version 2 belongs to.

Answers of version 2 have no number. They have the operation and the ids of the request, which say what was
asked, but neither when nor with which flags. Two calls with the same ids must not be under way on one
connection: the answer to an ordinary read would be taken for the answer to a read that fences, and a recovery
would then believe that a bookie is fenced which is not. So such a call has to be made on another connection.

A call that has ended without an answer still has its ids here, because its answer may come yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from storage.cluster.wire import v2
from storage.cluster.wire.messages import AddEntry, AnswerTo, BatchRead, OperationCode, ReadEntry

if TYPE_CHECKING:
    from storage.cluster.wire.messages import Request
    from storage.cluster.wire.protobuf import Malformed

    CallIds = tuple[OperationCode, int, int]

NO_CALL = 0
"""No call has this number."""


class V2Calls:
    """The calls on one connection of version 2, by the ids that their answers bring."""

    def __init__(self) -> None:
        self._numbers: dict[CallIds, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def has_ids_of(self, request: Request) -> bool:
        """Return whether the answer to an earlier call with the ids of this request may still come."""
        return _ids_of(request) in self._numbers

    def encode(self, request: Request, number: int) -> bytes:
        """Return the frame of a request, and note that its answer belongs to the call of this number."""
        assert not self.has_ids_of(request)
        if isinstance(request, BatchRead):
            return v2.encode_request(replace(request, request_id=number))
        self._numbers[_ids_of(request)] = number
        return v2.encode_request(request)

    def decode(self, body: bytes) -> AnswerTo | Malformed:
        """Return the answer in the body of a frame with the number of its call."""
        answer = v2.decode_answer(body)
        if not isinstance(answer, AnswerTo) or answer.operation == OperationCode.BATCH_READ_ENTRY:
            return answer
        ids = OperationCode(answer.operation), answer.ledger_id, answer.entry_id
        return answer._replace(number=self._numbers.pop(ids, NO_CALL))

    def clear(self) -> None:
        """Forget all calls, because the connection is lost."""
        self._numbers.clear()


def is_in_v2(request: Request) -> bool:
    """Return whether version 2 has a message for this request, with all that it asks for."""
    if isinstance(request, AddEntry):
        return not request.options.is_deferred
    return isinstance(request, ReadEntry | BatchRead)


def _ids_of(request: Request) -> CallIds:
    match request:
        case AddEntry(ledger_id, entry_id):
            return OperationCode.ADD_ENTRY, ledger_id, entry_id
        case ReadEntry(ledger_id, entry_id):
            return OperationCode.READ_ENTRY, ledger_id, entry_id
        case BatchRead():
            return OperationCode.BATCH_READ_ENTRY, request.ledger_id, NO_CALL
        case _:
            raise AssertionError(f"version 2 has no such request: {request}")
