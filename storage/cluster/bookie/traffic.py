"""The requests of a bookie's clients, counted: by outcome, with their durations, and their bytes.

The clock is read once for all adds of one pass of the loop, and so it is for the reads from memory.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    BatchRead,
    BookieInfo,
    CodeAnswer,
    ForceLedger,
    FoundEntries,
    FoundEntry,
    ListEntries,
    LongPoll,
    ReadEntry,
    ReadLac,
    WriteLac,
)
from storage.latencies import Latencies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.cluster.wire.messages import Answer, Request


class RequestKind(enum.Enum):
    """A kind of request, and what it is called in the names of BookKeeper's metrics."""

    ADD = "ADD_ENTRY"
    READ = "READ_ENTRY"
    FENCE = "READ_ENTRY_FENCE"
    LONG_POLL = "READ_ENTRY_LONG_POLL"
    WRITE_LAC = "WRITE_LAC"
    READ_LAC = "READ_LAC"
    FORCE = "FORCE_LEDGER"
    LIST = "GET_LIST_OF_ENTRIES_OF_LEDGER"
    INFO = "GET_BOOKIE_INFO"
    OTHER = "OTHER"


_OPERATIONS: dict[type, RequestKind] = {
    ReadEntry: RequestKind.READ,
    BatchRead: RequestKind.READ,
    LongPoll: RequestKind.LONG_POLL,
    WriteLac: RequestKind.WRITE_LAC,
    ReadLac: RequestKind.READ_LAC,
    ForceLedger: RequestKind.FORCE,
    ListEntries: RequestKind.LIST,
    BookieInfo: RequestKind.INFO,
}


def operation_of(request: Request) -> RequestKind:
    """Return the operation of a request that is no add."""
    if isinstance(request, ReadEntry | BatchRead) and request.fences:
        return RequestKind.FENCE
    return _OPERATIONS.get(type(request), RequestKind.OTHER)


class OperationCounts:
    """The requests of one operation."""

    __slots__ = ("codes", "done", "failed")

    def __init__(self) -> None:
        self.done = Latencies()
        """Those that were answered with `OK`."""
        self.failed = Latencies()
        self.codes: dict[Code, int] = {}
        """The number of answers with each other code."""

    def note(self, code: Code, seconds: float, now: float, count: int = 1) -> None:
        """Count requests that were answered now."""
        if code is Code.OK:
            self.done.note(seconds, now, count)
        else:
            self.failed.note(seconds, now, count)
            self.codes[code] = self.codes.get(code, 0) + count


class Traffic:
    """The requests of all clients. For the thread of the loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` is `time.monotonic`."""
        self.clock = clock
        self.operations = {one: OperationCounts() for one in RequestKind}
        # Looked up once, because an enum as a key costs as much as the rest of the count.
        self._added = self.operations[RequestKind.ADD].done
        self._found = self.operations[RequestKind.READ].done
        self.bytes_added = 0
        """Bytes of entries that were accepted to be made durable."""
        self.bytes_read = 0
        """Bytes of entries in answers."""

    def note(self, operation: RequestKind, code: Code, since: float, count: int = 1) -> None:
        """Count requests that arrived at `since` and are answered now."""
        now = self.clock()
        self.operations[operation].note(code, now - since, now, count)

    def note_added(self, count: int, since: float) -> None:
        """Count adds that arrived at `since` and are durable now."""
        now = self.clock()
        self._added.note(now - since, now, count)

    def note_found(self, count: int, size: int, since: float) -> None:
        """Count ordinary reads that are answered now with entries of this size together."""
        now = self.clock()
        self.bytes_read += size
        self._found.note(now - since, now, count)

    def note_reads(self, answers: Sequence[Answer], since: float) -> None:
        """Count ordinary reads that arrived together and are answered now."""
        found = size = 0
        for answer in answers:
            if isinstance(answer, CodeAnswer):
                self.note(RequestKind.READ, answer.code, since)
            else:
                found += 1
                size += _size_of(answer)
        if found:
            self.note_found(found, size, since)

    def note_answer(self, request: Request, answer: Answer, since: float) -> None:
        """Count a request that is no add, and no ordinary read unless that is refused at once."""
        code = answer.code if isinstance(answer, CodeAnswer) else Code.OK
        self.bytes_read += _size_of(answer)
        self.note(operation_of(request), code, since)


def _size_of(answer: Answer) -> int:
    """Return the bytes of the entries in an answer."""
    if isinstance(answer, FoundEntry):
        return len(answer.entry or b"")
    return sum(map(len, answer.entries)) if isinstance(answer, FoundEntries) else 0
