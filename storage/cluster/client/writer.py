"""The writer of an open ledger.

    add      give each payload the next id; send it to the Qw bookies of its write set
    answer   count the copy; acknowledge from the head of the queue whatever has Qa copies
    failure  change the ensemble: write the metadata, *then* send all copies that the change has displaced,
             *then* acknowledge what is still complete
    close    write the last acknowledged entry and the length into the metadata

Acknowledged entries have Qa copies in the ensemble that the metadata name. So nothing is acknowledged while a
change is under way: a copy at a bookie that is being replaced would count, although no reader looks there.

The writer ends for good when it meets a fence, or metadata that are not open: another client has taken the
ledger over. It also ends, and closes the ledger, when an entry cannot get Qa copies any more.

Entries without an acknowledgement are reported as failed when the writer ends. They are certainly not in the
ledger if this writer has closed it before them. Otherwise the recovery of the ledger decides,
because it keeps what it finds: their error is `AddOutcomeUnknown`.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.cluster.client.copies import CopyResult, EntriesUnderWay
from storage.cluster.client.distribution import quorums_of
from storage.cluster.client.effects import (
    AddsAcknowledged,
    AddsFailed,
    Send,
    SendAdds,
    Token,
    UnderReplicated,
    Wait,
    WriterClosed,
    WriterLost,
)
from storage.cluster.client.metadata_change import MetadataChange
from storage.cluster.client.placement import not_enough, replace_bookies
from storage.cluster.errors import (
    AddOutcomeUnknown,
    AddQuorumTimeout,
    ClientClosed,
    ClusterError,
    EnsembleChangesExhausted,
    LedgerClosed,
    MetadataConflict,
    NotEnoughBookies,
    UnauthorizedAccess,
    WriterFenced,
)
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.update import Versioned
from storage.cluster.wire.frames import FRAME_SIZE_MAX
from storage.cluster.wire.messages import AddEntry, AddOptions, WriteLac
from storage.entry.model import NO_ENTRY
from storage.errors import EntryTooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.client.effects import (
        BookieAnswer,
        Effect,
        MetadataRead,
        MetadataWritten,
        Sending,
    )
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.client.placement import Candidates
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata

_FRAME_OVERHEAD = 256
"""More than any version of the protocol adds to an entry."""


class WriterState(enum.Enum):
    OPEN = "entries are acknowledged"
    CHANGING = "the ensemble is being changed: entries are taken and sent, but not acknowledged"
    CLOSING = "the metadata are being closed"
    CLOSED = "this writer has closed the ledger"
    LOST = "the writer has ended without closing the ledger"


class Replacement(enum.Enum):
    """When a bookie that has failed is replaced."""

    AT_ONCE = "before the next acknowledgement"
    WHEN_NEEDED = "when an entry could not get Qa copies without it"


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """The limits of a writer."""

    entries_in_flight_max: int = 10_000
    bytes_in_flight_max: int = 64 << 20
    entry_size_max: int = FRAME_SIZE_MAX - _FRAME_OVERHEAD
    """A larger entry, with its head and digest, would make each bookie close the connection."""
    ensemble_changes_max: int = 100
    """Changes without an acknowledgement between them."""
    change_delay_min_s: float = 0.05
    """The delay before the second of them. Each later one has twice the delay of the one before."""
    change_delay_max_s: float = 5.0
    replacement: Replacement = Replacement.AT_ONCE
    add_quorum_timeout_s: float | None = None
    """An entry without Qa copies after this time ends the writer. `None` for no limit, because calls to
    bookies have limits of their own."""
    explicit_lac_interval_s: float | None = None
    """How often the last add confirmed is sent to the bookies without an entry; `None` for never."""


class LedgerWriter:
    """Adds entries to one open ledger. For one thread."""

    options = AddOptions()
    """The options of its adds."""

    def __init__(
        self,
        entries: EntryCodec,
        metadata: Versioned[ClusterLedgerMetadata],
        candidates: Candidates,
        seed: int,
        limits: WriterLimits | None = None,
    ) -> None:
        """Write to a ledger that was created with these metadata and has no entries yet.

        `seed` decides between bookies that would do equally well.
        """
        value = metadata.value
        assert len(value.segments) == 1, "a ledger has one writer, which has created it"
        self._entries = entries
        self.limits = limits or WriterLimits()
        self._quorums = quorums_of(value)
        self._copies = EntriesUnderWay(self._quorums, value.segments[0].bookies, NO_ENTRY + 1)
        self._overhead = len(entries.encode(0, NO_ENTRY, 0, b""))
        """The bytes of an entry besides its payload."""
        self._seed = seed
        self.candidates = candidates
        """The bookies that may replace others. The driver keeps this up to date."""
        self.metadata = metadata
        """The newest metadata that this writer has written or read."""
        self.state = WriterState.OPEN
        self.last_pushed = NO_ENTRY
        """The id of the last entry that was taken."""
        self.last_acknowledged = NO_ENTRY
        """The id of the last acknowledged entry: Qa bookies have taken it and each entry before it."""
        self.last_confirmed = NO_ENTRY
        """The id of the last acknowledged entry that is durable."""
        self.length = 0
        """The length of all payloads that were taken."""
        self.length_confirmed = 0
        """The length of all payloads up to `last_confirmed`."""
        self.bytes_in_flight = 0
        self._change: MetadataChange | None = None
        """The write of metadata that is under way."""
        self._changes = 0
        """Ensemble changes since the last acknowledgement."""
        self._considered: frozenset[int] = frozenset()
        """The failed indices that the change under way has tried to replace."""
        self._end: ClusterError | None = None
        """Why no more entries are taken."""
        self._given_up = range(0)
        """The entries that were under way when the close began."""
        self._told = NO_ENTRY
        """The last add confirmed that was sent to the bookies without an entry."""
        self._pushed_before: deque[tuple[float, int]] = deque()
        """Times, and the last entry that was taken before each of them."""

    # ── adding ────────────────────────────────────────────────────────────────────────────────────────

    def has_room(self, more_entries: int = 0, more_bytes: int = 0) -> bool:
        """Return whether entries should be added now. The limits bound the memory of what is under way.

        The bound is for what is under way and so much more.
        """
        in_flight = len(self._copies.pending) + len(self._copies.unanswered) // self._quorums.write
        return (
            in_flight + more_entries < self.limits.entries_in_flight_max
            and self.bytes_in_flight + more_bytes < self.limits.bytes_in_flight_max
        )

    def check(self, payload: bytes) -> None:
        """Raise if the writer has ended, or this is too large for an entry."""
        if self._end is not None:
            raise self._end
        if self._overhead + len(payload) > self.limits.entry_size_max:
            raise EntryTooLarge(self._overhead + len(payload), self.limits.entry_size_max)

    def add(self, payloads: Sequence[bytes]) -> list[Effect]:
        """Add entries. Their ids follow `last_pushed`. Raise if the writer has ended or one is too large."""
        self.check(max(payloads, key=len, default=b""))
        copies = []
        for payload in payloads:
            self.last_pushed += 1
            self.length += len(payload)
            data = self._entries.encode(self.last_pushed, self.last_confirmed, self.length, payload)
            self.bytes_in_flight += len(data)
            request = AddEntry(
                self._entries.ledger_id, self.last_pushed, self._entries.master_key, data, self.options, b""
            )
            copies.append(self._copies.add(request, self.length))
        effects: list[Effect] = [SendAdds(copies)]
        # A bookie that has failed after the last acknowledgement is replaced before anything depends on it.
        if self._copies.failed and self._is_change_needed():
            effects += self._begin_change()
        return effects

    def added(self, sending: Sending, entry_ids: Sequence[int], answer: BookieAnswer) -> list[Effect]:
        match self._copies.answered(sending, entry_ids, answer):
            case CopyResult.STORED:
                return self._acknowledge()
            case CopyResult.STALE:
                return self._settle()
            case _ if self.state not in (WriterState.OPEN, WriterState.CHANGING):
                return self._settle()
            case CopyResult.FENCED:
                return self._lose(WriterFenced(self._entries.ledger_id))
            case CopyResult.UNAUTHORIZED:
                return self._lose(UnauthorizedAccess(self._entries.ledger_id))
            case _:
                return self._begin_change() if self._is_change_needed() else []

    def _acknowledge(self) -> list[Effect]:
        """Acknowledge the complete entries at the head of the queue."""
        if self.state is not WriterState.OPEN:
            return []
        complete = self._copies.take_complete()
        if not complete:
            return []
        first = self.last_acknowledged + 1
        self.last_acknowledged += len(complete)
        self._note_acknowledged(complete[-1].length)
        self.bytes_in_flight -= sum(len(entry.request.entry) for entry in complete)
        self._changes = 0
        return [AddsAcknowledged(first, self.last_acknowledged)]

    def _note_acknowledged(self, length: int) -> None:
        """Confirm what is acknowledged, because it is durable. `length` is that of all its payloads."""
        self.last_confirmed, self.length_confirmed = self.last_acknowledged, length

    def answered(self, token: Token, answer: BookieAnswer) -> list[Effect]:  # noqa: ARG002 - for forces
        """Ignore the answer to a last add confirmed that was sent without an entry."""
        return []

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────

    def tell_confirmed(self) -> list[Effect]:
        """Tell all bookies the last add confirmed, if it has moved since they were told.

        Each entry brings the one of its sending, so without this a reader learns of the last entry only when
        the ledger is closed. The answers change nothing.
        """
        if self._end is not None or self.last_confirmed == self._told:
            return []
        self._told = self.last_confirmed
        packet = self._entries.encode_lac(self._told)
        request = WriteLac(self._entries.ledger_id, self._told, self._entries.master_key, packet)
        return [
            Send(bookie, request, Token(NO_ENTRY, index, 0))
            for index, bookie in enumerate(self._copies.bookies)
        ]

    def check_time(self, now: float) -> list[Effect]:
        """End if an entry has waited for too long. `now` is the time of any clock in seconds."""
        limit_s, pending = self.limits.add_quorum_timeout_s, self._copies.pending
        if limit_s is None or self._end is not None:
            return []
        first = next(iter(pending), self.last_pushed + 1)
        times = self._pushed_before
        while times and times[0][1] < first:
            times.popleft()
        if times and now - times[0][0] >= limit_s:
            return self._begin_close(AddQuorumTimeout(self._entries.ledger_id, first, limit_s))
        if pending and (not times or times[-1][1] < self.last_pushed):
            times.append((now, self.last_pushed))
        return []

    def connection_lost(self, bookie: str) -> list[Effect]:  # noqa: ARG002 - for deferred syncs
        """Note that a connection was lost. Copies that were answered are durable, so nothing changes."""
        return []

    # ── changing the ensemble ─────────────────────────────────────────────────────────────────────────

    def _is_change_needed(self) -> bool:
        """Return whether the bookies that have failed are replaced now."""
        if self.state is not WriterState.OPEN or not self._copies.pending:
            return False
        is_delayed = self.limits.replacement is Replacement.WHEN_NEEDED
        return not (is_delayed and self._copies.can_complete(self._copies.failed))

    def _begin_change(self) -> list[Effect]:
        self.state = WriterState.CHANGING
        if not self._changes:
            return self._change_ensemble()
        delay = self.limits.change_delay_min_s * 2 ** (self._changes - 1)
        return [Wait(min(delay, self.limits.change_delay_max_s))]

    def waited(self) -> list[Effect]:
        return self._change_ensemble() if self.state is WriterState.CHANGING else []

    def _change_ensemble(self) -> list[Effect]:
        self._change = MetadataChange(self._entries.ledger_id, self._changed)
        return self._proceed(self._change.begin(self.metadata))

    def _changed(self, metadata: ClusterLedgerMetadata) -> ClusterLedgerMetadata:
        """Return the metadata with other bookies for those that have failed, as far as there are others."""
        if metadata.is_closed:
            raise LedgerClosed(self._entries.ledger_id)
        if metadata.state is not ClusterLedgerState.OPEN:
            raise WriterFenced(self._entries.ledger_id)
        self._considered = frozenset(self._copies.failed)
        ensemble = metadata.segments[-1].bookies
        # A write without an answer may have replaced some of them.
        failed = {index for index in self._considered if ensemble[index] == self._copies.bookies[index]}
        others = replace_bookies(self.candidates, self._quorums, ensemble, failed, self._seed)
        kept = failed.difference(others)
        # An entry that needs one of these would wait for ever, because they get no more copies.
        if not self._copies.can_complete(kept):
            raise not_enough(self.candidates, len(failed), len(others))
        if not others:
            return metadata
        changed = [others.get(index, bookie) for index, bookie in enumerate(ensemble)]
        return metadata.with_ensemble_change(self.last_confirmed + 1, changed)

    def _end_change(self, result: Versioned[ClusterLedgerMetadata] | ClusterError) -> list[Effect]:
        match result:
            case Versioned() as metadata:
                self._changes += metadata is not self.metadata
                self.metadata = metadata
                effects: list[Effect] = [
                    SendAdds(self._copies.use_ensemble(metadata.value.segments[-1].bookies))
                ]
                if self._changes > self.limits.ensemble_changes_max:
                    error = EnsembleChangesExhausted(self._entries.ledger_id, self._changes)
                    return effects + self._begin_close(error)
                if self._is_change_outdated():
                    return effects + self._begin_change()
                # Not before every displaced copy is sent again: a copy that no reader looks for would count.
                self.state = WriterState.OPEN
                return effects + self._acknowledge()
            case NotEnoughBookies() as error:
                return self._begin_close(error)
            case error:
                return self._lose(error)

    def _is_change_outdated(self) -> bool:
        """Return whether the change that has ended needs another one.

        It knew neither the failures during its write, nor the entries that were added and the copies that
        were lost meanwhile. An entry without enough copies under way would wait for ever.
        """
        failed = self._copies.failed
        return bool(failed - self._considered) or not self._copies.can_complete(failed)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> list[Effect]:
        """Close the ledger after the last acknowledged entry. Entries under way are given up."""
        if self.state in (WriterState.OPEN, WriterState.CHANGING) and self._end is None:
            return self._begin_close(LedgerClosed(self._entries.ledger_id))
        return []

    def abandon(self) -> list[Effect]:
        """End without closing the ledger, because the client is closed. Another client can take it over."""
        if self.state in (WriterState.CLOSED, WriterState.LOST):
            return []
        return self._lose(ClientClosed())

    def _begin_close(self, reason: ClusterError) -> list[Effect]:
        self._end = reason
        self._given_up = self._copies.drain()
        self.bytes_in_flight = 0
        if self.state is WriterState.CHANGING and self._change is not None and self._change.result is None:
            return []  # its write has to end first
        return self._close_metadata()

    def _close_metadata(self) -> list[Effect]:
        self.state = WriterState.CLOSING
        self._change = MetadataChange(self._entries.ledger_id, self._closed)
        return self._proceed(self._change.begin(self.metadata))

    def _closed(self, metadata: ClusterLedgerMetadata) -> ClusterLedgerMetadata:
        """Return the metadata closed after the last acknowledged entry.

        Also if another client is recovering the ledger: this writer knows its end for certain.
        """
        end = self.last_confirmed, self.length_confirmed
        if not metadata.is_closed:
            return metadata.closed(*end)
        if (metadata.last_entry, metadata.length) != end:
            found = f"closed at entry {metadata.last_entry} with length {metadata.length} by another client"
            raise MetadataConflict(f"ledger {self._entries.ledger_id}", found)
        return metadata

    def _end_close(self, result: Versioned[ClusterLedgerMetadata] | ClusterError) -> list[Effect]:
        assert self._end is not None
        if isinstance(result, ClusterError):
            return self._lose(result)
        self.metadata = result
        self.state = WriterState.CLOSED
        failed = _failed(self._given_up, self._end)
        return [*failed, WriterClosed(result), *self._settle()]

    def _lose(self, error: ClusterError) -> list[Effect]:
        """End without closing the ledger."""
        self.state = WriterState.LOST
        self._end = error
        given_up = self._given_up or self._copies.drain()
        self.bytes_in_flight = 0
        which = f"ledger {self._entries.ledger_id}, entries {given_up.start} to {given_up.stop - 1}"
        unknown = AddOutcomeUnknown(which, str(error))
        return [*_failed(given_up, unknown), WriterLost(error)]

    def _settle(self) -> list[Effect]:
        """Report the bookies that lack copies, once all copies are answered and the ledger is closed."""
        if self.state is not WriterState.CLOSED or self._copies.unanswered or not self._copies.lacking:
            return []
        lacking, self._copies.lacking = frozenset(self._copies.lacking), set()
        return [UnderReplicated(lacking)]

    # ── metadata ──────────────────────────────────────────────────────────────────────────────────────

    def metadata_written(self, answer: MetadataWritten) -> list[Effect]:
        assert self._change is not None
        return self._proceed(self._change.metadata_written(answer))

    def metadata_read(self, answer: MetadataRead) -> list[Effect]:
        assert self._change is not None
        return self._proceed(self._change.metadata_read(answer))

    def _proceed(self, effects: list[Effect]) -> list[Effect]:
        assert self._change is not None
        result = self._change.result
        if self.state is WriterState.LOST:
            return []  # a fence was met while the write was under way
        if result is None:
            return effects
        if self.state is WriterState.CLOSING:
            return effects + self._end_close(result)
        if self._end is not None:
            # The close has waited for this change. Its own first read shows what became of it.
            self.metadata = result if isinstance(result, Versioned) else self.metadata
            return effects + self._close_metadata()
        return effects + self._end_change(result)


def _failed(entries: range, error: ClusterError) -> list[Effect]:
    return [AddsFailed(entries.start, entries.stop - 1, error)] if entries else []
