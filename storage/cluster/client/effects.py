"""The requests of a state machine to the program that drives it, and the answers.

Each effect but a report has exactly one answer, which is an event of the machine:

    Send            answered(token, answer)     the bookie's answer, or `NoAnswer`
    SendAdds        added(sending, ids, answer) the same for each copy; equal answers may come together
    WriteMetadata   metadata_written(answer)    compare-and-set, as the port to ZooKeeper answers it
    ReadMetadata    metadata_read(answer)       the newest metadata: after a sync, because the answer decides
    Wait            waited()

The others are reports to the application. Effects take place in their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.cluster.metadata.ledger import ClusterLedgerMetadata
from storage.cluster.metadata.update import Versioned
from storage.cluster.metadata.znodes import Conflict, Gone, Unknown, Written
from storage.cluster.wire import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.errors import ClusterError
    from storage.entry.model import Entry


class Token(NamedTuple):
    """Which read an answer belongs to."""

    entry_id: int
    bookie_index: int
    """The index in the ensemble of the bookie that was asked."""
    sending: int
    """A number that tells polls of one entry from each other; 0 for a read, which is sent once."""


class Sending(NamedTuple):
    """A bookie at its index of the ensemble, as long as it stays there.

    The copies of many entries belong to one sending. After changes from A to D and back to A, the copies that
    A gets belong to another sending than those before.
    """

    bookie: str
    bookie_index: int
    number: int
    """No other sending of the ledger has it."""


class NoAnswer(NamedTuple):
    """There is no answer. The bookie may have done what it was asked for, or may still do it."""

    reason: str


BookieAnswer = messages.Answer | NoAnswer
MetadataWritten = Written | Gone | Conflict | Unknown
MetadataRead = Versioned[ClusterLedgerMetadata] | Gone | Unknown
"""`Unknown` is here a read without an answer."""


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────


class Send(NamedTuple):
    """Send a request to a bookie."""

    bookie: str
    request: messages.Request
    token: Token


class SendAdds(NamedTuple):
    """Send entries to bookies."""

    copies: Sequence[tuple[messages.AddEntry, Sequence[Sending]]]
    """Each entry, and to which bookies."""


class WriteMetadata(NamedTuple):
    """Write the metadata of the ledger if they still have this version."""

    metadata: ClusterLedgerMetadata
    version: int


class ReadMetadata(NamedTuple):
    """Read the metadata of the ledger."""


class Wait(NamedTuple):
    """Let so many seconds pass."""

    seconds: float


# ── reports ──────────────────────────────────────────────────────────────────────────────────────────────


class AddsAcknowledged(NamedTuple):
    """These entries have Qa copies in the ensemble that the metadata name, and so have all before them."""

    first_entry: int
    last_entry: int


class EntriesForced(NamedTuple):
    """The entries up to this one are durable at all bookies that have acknowledged them."""

    last_entry: int


class ForceFailed(NamedTuple):
    """A force of the entries up to this one was not answered by every bookie. Another one may succeed."""

    last_entry: int
    error: ClusterError


class AddsFailed(NamedTuple):
    """These entries were not acknowledged. The error says whether they may be in the ledger nevertheless."""

    first_entry: int
    last_entry: int
    error: ClusterError


class WriterClosed(NamedTuple):
    """The ledger is closed after the last acknowledged entry."""

    metadata: Versioned[ClusterLedgerMetadata]


class WriterLost(NamedTuple):
    """The writer adds no more, and has not closed the ledger."""

    error: ClusterError


class UnderReplicated(NamedTuple):
    """Entries of the closed ledger have fewer than Qw copies, because these bookies lack some."""

    bookies: frozenset[str]


class Recovered(NamedTuple):
    """The ledger is closed, by this recovery or by another client."""

    metadata: Versioned[ClusterLedgerMetadata]


class RecoveryFailed(NamedTuple):
    """The ledger stays in recovery. Another attempt may succeed."""

    error: ClusterError


class ShowEntry(NamedTuple):
    """The next entry of a ledger that is followed."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class FollowEnded:
    """There are no more entries: the ledger is closed, or `error` says why reading went wrong."""

    error: ClusterError | None = None


Effect = (
    Send
    | SendAdds
    | WriteMetadata
    | ReadMetadata
    | Wait
    | AddsAcknowledged
    | AddsFailed
    | EntriesForced
    | ForceFailed
    | WriterClosed
    | WriterLost
    | UnderReplicated
    | Recovered
    | RecoveryFailed
    | ShowEntry
    | FollowEnded
)


class LedgerMachine(Protocol):
    """A state machine: it takes the answers to its effects, and returns further effects."""

    def answered(self, token: Token, answer: BookieAnswer) -> list[Effect]: ...
    def added(self, sending: Sending, entry_ids: Sequence[int], answer: BookieAnswer) -> list[Effect]: ...
    def metadata_written(self, answer: MetadataWritten) -> list[Effect]: ...
    def metadata_read(self, answer: MetadataRead) -> list[Effect]: ...
    def waited(self) -> list[Effect]: ...
