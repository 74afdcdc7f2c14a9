"""Requests and answers of the protocol, the same for both versions.

A client that uses version 2 asks for some things in version 3 on a second connection (`ReadLac`, `WriteLac`,
`BookieInfo`), because version 2 has no message for them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.cluster.wire.codes import Code

LAST_ENTRY = -1
"""The entry id that asks for the last entry of a ledger."""

MASTER_KEY_SIZE = 20


class Protocol(enum.Enum):
    """The version of a message. A connection may carry both."""

    V2 = 2
    V3 = 3


class OperationCode(enum.IntEnum):
    """The number of an operation in version 3."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES = 11
    BATCH_READ_ENTRY = 12


class AddOptions(NamedTuple):
    """The options of an add. An ordinary add has none of them."""

    is_recovery: bool = False
    """A fenced ledger takes the add, too."""
    is_urgent: bool = False
    is_deferred: bool = False
    """It may be answered before it is durable."""


class AddEntry(NamedTuple):
    """A request to store an entry. The ids are also in the first sixteen bytes of the entry."""

    ledger_id: int
    entry_id: int
    master_key: bytes
    entry: bytes
    options: AddOptions
    success: bytes
    """The whole frame that answers the request with success, because nearly every add has that answer."""


class ReadEntry(NamedTuple):
    """A request for an entry; `LAST_ENTRY` asks for the last one."""

    ledger_id: int
    entry_id: int
    master_key: bytes | None = None
    fences: bool = False
    """The ledger is fenced before it is read."""
    is_urgent: bool = False


class LongPoll(NamedTuple):
    """A request that waits until the last add confirmed is larger than `previous_lac`."""

    ledger_id: int
    entry_id: int
    previous_lac: int
    timeout_ms: int | None
    """`None` for a request that does not wait."""
    wants_entry: bool
    """The answer brings the entry after `previous_lac`, if it is here."""


@dataclass(frozen=True, slots=True)
class BatchRead:
    """A request for consecutive entries. Version 2 only."""

    ledger_id: int
    first_entry_id: int
    request_id: int
    count_max: int
    """The most entries; 0 or less for no limit."""
    size_max: int
    master_key: bytes | None = None
    fences: bool = False
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class Authenticate:
    """A message of an authentication, in both directions."""

    plugin: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class WriteLac:
    """A request to store an explicit last add confirmed, as a packet with a digest."""

    ledger_id: int
    lac: int
    master_key: bytes
    packet: bytes


@dataclass(frozen=True, slots=True)
class ReadLac:
    """A request for the explicit last add confirmed and the last entry."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """A request for the size of the disk and its free space."""

    requested: int = 0
    """The bits of what is wanted: 1 for the size, 2 for the free space."""


@dataclass(frozen=True, slots=True)
class StartTls:
    """A request to continue the connection with TLS."""


@dataclass(frozen=True, slots=True)
class ForceLedger:
    """A request to make all entries of a ledger durable that were answered before."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class ListEntries:
    """A request for the ids of all entries of a ledger that are here."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class UnknownRequest:
    """A request that this version does not know, or that has no body for its operation."""

    operation: int


Request = (
    AddEntry
    | ReadEntry
    | LongPoll
    | BatchRead
    | Authenticate
    | WriteLac
    | ReadLac
    | BookieInfo
    | StartTls
    | ForceLedger
    | ListEntries
    | UnknownRequest
)


class Incoming(NamedTuple):
    """A request as it arrived, with the parts of its header that the answer needs."""

    protocol: Protocol
    header: bytes
    """The header of a request of version 3, which the answer repeats; the header word of version 2."""
    request: Request


class AddRun(NamedTuple):
    """Adds of one writer to consecutive entries of one ledger, which have arrived one after the other.

    A server takes adds only in runs, also a single one, because the work of a run is done once for all of its
    adds, and so is that of its answer.
    """

    protocol: Protocol
    ledger_id: int
    first_entry_id: int
    master_key: bytes
    options: AddOptions
    entries: Sequence[bytes]
    headers: Sequence[bytes]
    """For each add its header, as in `Incoming`."""
    successes: Sequence[bytes]
    """For each add the whole frame that answers it with success."""
    size: int
    """The bytes of the entries."""

    @classmethod
    def of(cls, incoming: Incoming, request: AddEntry) -> AddRun:
        """Return one add as a run."""
        ledger_id, entry_id, key, entry, options, success = request
        header, size = incoming.header, len(entry)
        return cls(
            incoming.protocol, ledger_id, entry_id, key, options, (entry,), (header,), (success,), size
        )

    def requests(self) -> Iterator[Incoming]:
        """Yield the adds as they arrived."""
        ledger_id, key, options = self.ledger_id, self.master_key, self.options
        parts = zip(self.entries, self.headers, self.successes, strict=True)
        for entry_id, (entry, header, success) in enumerate(parts, self.first_entry_id):
            request = AddEntry(ledger_id, entry_id, key, entry, options, success)
            yield Incoming(self.protocol, header, request)

    def singles(self) -> Iterator[AddRun]:
        """Yield the adds as runs of one add each."""
        if len(self.entries) == 1:
            yield self
            return
        for incoming in self.requests():
            assert type(incoming.request) is AddEntry
            yield self.of(incoming, incoming.request)


class ReadRun(NamedTuple):
    """Ordinary reads of consecutive entries of one ledger, which have arrived one after the other.

    Work is done once for all of them as far as their entries are in one place.
    """

    protocol: Protocol
    ledger_id: int
    first_entry_id: int
    headers: Sequence[bytes]
    """For each read its header, as in `Incoming`."""
    id_varints: Sequence[bytes] = ()
    """For each read of version 3 the bytes of its entry id, which the answer repeats."""

    def after(self, count: int) -> ReadRun:
        """Return the reads without the first ones."""
        first_id = self.first_entry_id + count
        return self._replace(
            first_entry_id=first_id, headers=self.headers[count:], id_varints=self.id_varints[count:]
        )

    def requests(self) -> Iterator[tuple[Incoming, ReadEntry]]:
        """Yield the reads as they arrived."""
        for entry_id, header in enumerate(self.headers, self.first_entry_id):
            request = ReadEntry(self.ledger_id, entry_id)
            yield Incoming(self.protocol, header, request), request


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────


class CodeAnswer(NamedTuple):
    """The answer to a request that brings nothing but a code, and the answer to every failed one."""

    code: Code


class FoundEntry(NamedTuple):
    """The answer with an entry."""

    entry: bytes | None
    """`None` for a long poll that brings no entry."""
    entry_id: int
    lac: int | None = None
    """The largest last add confirmed that the bookie knows. Version 2 cannot carry it."""
    lac_time_ms: int | None = None
    """When it was raised, for a long poll."""


class FoundEntries(NamedTuple):
    """The answer to a batch read."""

    entries: tuple[bytes, ...]


class FoundLac(NamedTuple):
    """The answer to `ReadLac`."""

    packet: bytes | None
    last_entry: bytes | None


class DiskSpaceAnswer(NamedTuple):
    """The answer to `BookieInfo`."""

    total: int | None
    free: int | None


class EntryList(NamedTuple):
    """The answer to `ListEntries`: the bytes of `entry_list`."""

    condensed: bytes


Answer = CodeAnswer | FoundEntry | FoundEntries | FoundLac | DiskSpaceAnswer | EntryList | Authenticate


class AnswerTo(NamedTuple):
    """An answer as a client receives it, with the ids of the request to which it belongs."""

    protocol: Protocol
    operation: int
    number: int
    """The transaction id of version 3; the request id of a batch read in version 2, else -1."""
    ledger_id: int
    entry_id: int
    """The entry id of the request, in version 2; version 3 does not match by it."""
    code: Code
    answer: Answer
