"""The take-over of a ledger: fence it, find its end, close it.

    in recovery   write it into the metadata, so that the writer cannot change the ensemble any more
    fence         ask every bookie of the last ensemble to take no more entries, until they cover it;
                  the largest last add confirmed among them is the *base*
    read          the entries after the base one by one, from the ensemble as it was, until one is certainly
                  missing. Each read fences again: otherwise a bookie that a fence has not reached could say
                  that it lacks an entry, and store it afterwards
    add again     every entry that was found, until Qa bookies have it
    close         write the last entry and the length into the metadata

Why the writer cannot acknowledge an entry after the end. Every write set has fewer than Qa bookies that are
not fenced, so no entry is completed in this ensemble. It cannot use another one, because the metadata are not
open. And an entry that was acknowledged before is never judged as missing: Qa bookies have it, and the
verdict needs Qw - Qa + 1 others that lack it, which are more than there are. All of this rests on bookies
that forget neither a fence nor an entry.

Two recoveries of one ledger may find different ends, because an entry that few bookies have may be found or
not. The first close counts, and the other adopts it. Until then neither end may be shown to a reader. So all
entries are added again with the *base* as their last add confirmed, and not with the growing end.

A bookie that fails is replaced in memory. The metadata name the new ensembles when the ledger is closed.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from storage.cluster.client.copies import CopyResult, EntriesUnderWay
from storage.cluster.client.distribution import quorums_of
from storage.cluster.client.effects import Recovered, RecoveryFailed, Send, SendAdds, Token
from storage.cluster.client.metadata_change import MetadataChange
from storage.cluster.client.placement import not_enough, replace_bookies
from storage.cluster.client.reader import READ, EntryRead, NotThere, reason_of
from storage.cluster.errors import (
    ClusterError,
    EnsembleChangesExhausted,
    MetadataConflict,
    RecoveryIncomplete,
    UnauthorizedAccess,
)
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.update import Versioned
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    LAST_ENTRY,
    AddEntry,
    AddOptions,
    CodeAnswer,
    FoundEntry,
    ReadEntry,
)
from storage.entry.model import NO_ENTRY, Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.client.distribution import Quorums
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

READ_AHEAD = 16
"""Entries that are read or added again at the same time."""

_CHANGES_MAX = 100
"""Changes of the ensemble without an entry that was added again between them."""

_RECOVERING = AddOptions(is_recovery=True, is_urgent=True)


class RecovererState(enum.Enum):
    BEGINNING = "the metadata are being set to in recovery"
    FENCING = "bookies are being fenced"
    READING = "entries are read and added again"
    MEASURING = "the length is read from the last entry"
    CLOSING = "the metadata are being closed"
    ENDED = "the ledger is closed, or the recovery has failed"


class TailRead:
    """Asks the bookies of a write set for one entry that may be the first after the end."""

    def __init__(self, entries: EntryCodec, quorums: Quorums, bookies: Sequence[str], entry_id: int) -> None:
        self._entries = entries
        self._quorums = quorums
        self._bookies = bookies
        self.entry_id = entry_id
        self.found: Entry | None = None
        self._without: set[int] = set()
        """Bookies that certainly do not have it."""
        self.unclear: dict[str, str] = {}
        """By bookie: why its answer says nothing."""

    def begin(self) -> list[Send]:
        """Ask all bookies at once: those that hang cost no time then."""
        key, ledger_id = self._entries.master_key, self._entries.ledger_id
        request = ReadEntry(ledger_id, self.entry_id, key, fences=True, is_urgent=True)
        return [
            Send(self._bookies[index], request, Token(self.entry_id, index, READ))
            for index in self._quorums.write_set(self.entry_id)
        ]

    def answered(self, index: int, answer: BookieAnswer) -> None:
        match answer:
            case FoundEntry(bytes() as data):
                entry = self._entries.decode(self.entry_id, data)
                if entry is None:
                    self.unclear[self._bookies[index]] = "a damaged entry"
                # One good copy decides, whatever the others have said before.
                self.found = self.found or entry
            case CodeAnswer(Code.NO_ENTRY | Code.NO_LEDGER):
                self._without.add(index)
            case _:
                self.unclear[self._bookies[index]] = reason_of(answer)

    @property
    def is_missing(self) -> bool:
        """Return whether the entry was not acknowledged, and cannot be any more."""
        return self.found is None and len(self._without) >= self._quorums.missing

    @property
    def is_unclear(self) -> bool:
        """Return whether all bookies have answered, and the entry is neither found nor missing."""
        is_answered = len(self._without) + len(self.unclear) == self._quorums.write
        return is_answered and self.found is None and not self.is_missing


class LedgerRecoverer:
    """Recovers one ledger. For one thread."""

    def __init__(
        self,
        entries: EntryCodec,
        metadata: Versioned[ClusterLedgerMetadata],
        candidates: Candidates,
        seed: int,
        read_ahead: int = READ_AHEAD,
    ) -> None:
        """Recover the ledger that has these metadata, which may be old."""
        self._entries = entries
        self._metadata = metadata
        self._quorums = quorums_of(metadata.value)
        self._seed = seed
        self.candidates = candidates
        """The bookies that may replace others. The driver keeps this up to date."""
        self._read_ahead = read_ahead
        self.state = RecovererState.BEGINNING
        self._change = MetadataChange(entries.ledger_id, _in_recovery)
        self._fenced: set[int] = set()
        self._silent: dict[str, str] = {}
        """By bookie: why it is not known to be fenced."""
        self._base = NO_ENTRY
        """The entries up to this one were acknowledged. It does not change while entries are added again."""
        self._reads: dict[int, TailRead] = {}
        self._next = 0
        """The first entry that was not added again."""
        self._copies: EntriesUnderWay
        self._ensembles: list[tuple[int, tuple[str, ...]]] = []
        """The changes of the ensemble: the first entry of each, and its bookies."""
        self._changes = 0
        self._last = NO_ENTRY
        """The last entry that Qa bookies have, of those that were added again; the base without any."""
        self._length = 0
        """The length of all payloads up to the last entry."""
        self._measuring: EntryRead

    def begin(self) -> list[Effect]:
        return self._proceed(self._change.begin(self._metadata))

    def answered(self, token: Token, answer: BookieAnswer) -> list[Effect]:
        match self.state:
            case RecovererState.FENCING if token.entry_id == LAST_ENTRY:
                return self._fence_answered(token.bookie_index, answer)
            case RecovererState.READING if token.entry_id in self._reads:
                if answer == CodeAnswer(Code.UNAUTHORIZED):
                    return self._fail(UnauthorizedAccess(self._entries.ledger_id))
                self._reads[token.entry_id].answered(token.bookie_index, answer)
                return self._go_on()
            case RecovererState.MEASURING:
                return self._measured(self._measuring.answered(token, answer))
        return []

    # ── the fence ─────────────────────────────────────────────────────────────────────────────────────

    def _begin_fence(self) -> list[Effect]:
        self.state = RecovererState.FENCING
        last = self._metadata.value.segments[-1]
        self._base = last.first_entry - 1
        key, ledger_id = self._entries.master_key, self._entries.ledger_id
        request = ReadEntry(ledger_id, LAST_ENTRY, key, fences=True, is_urgent=True)
        return [
            Send(bookie, request, Token(LAST_ENTRY, index, READ)) for index, bookie in enumerate(last.bookies)
        ]

    def _fence_answered(self, index: int, answer: BookieAnswer) -> list[Effect]:
        bookies = self._metadata.value.segments[-1].bookies
        match answer:
            case FoundEntry(bytes() as data):
                self._fenced.add(index)
                # The bookie is fenced also if its last entry is damaged. Reading begins earlier then.
                entry = self._entries.decode_any(data)
                self._base = max(self._base, NO_ENTRY if entry is None else entry.last_add_confirmed)
            case CodeAnswer(Code.NO_ENTRY | Code.NO_LEDGER):
                self._fenced.add(index)
            case CodeAnswer(Code.UNAUTHORIZED):
                return self._fail(UnauthorizedAccess(self._entries.ledger_id))
            case _:
                self._silent[bookies[index]] = reason_of(answer)
        if self._quorums.is_covered(self._fenced):
            return self._begin_reads()
        if len(self._fenced) + len(self._silent) == len(bookies):
            return self._fail(self._incomplete("too few bookies are fenced", self._silent))
        return []

    # ── the tail ──────────────────────────────────────────────────────────────────────────────────────

    def _begin_reads(self) -> list[Effect]:
        self.state = RecovererState.READING
        self._last = self._base
        self._next = self._base + 1
        bookies = self._metadata.value.segments[-1].bookies
        self._copies = EntriesUnderWay(self._quorums, bookies, self._next)
        return self._go_on()

    def _go_on(self) -> list[Effect]:
        """Add again what was found, read on, and begin to close once the end is known and durable."""
        effects: list[Effect] = []
        while (read := self._reads.get(self._next)) is not None and read.found is not None:
            del self._reads[self._next]
            self._next += 1
            effects += self._add_again(read.found)
            if self.state is not RecovererState.READING:
                return effects
        if read is not None and read.is_unclear:
            reason = f"it is not clear whether entry {read.entry_id} exists"
            return effects + self._fail(self._incomplete(reason, read.unclear))
        if read is not None and read.is_missing:
            # Entries after the first that is missing are given up: none of them was acknowledged.
            return effects if self._copies.pending else effects + self._measure()
        # From the ensemble as it was: entries were never at a bookie that this recovery has put into it.
        bookies = self._metadata.value.segments[-1].bookies
        while len(self._reads) + len(self._copies.pending) < self._read_ahead:
            entry_id = self._next + len(self._reads)
            self._reads[entry_id] = TailRead(self._entries, self._quorums, bookies, entry_id)
            effects += self._reads[entry_id].begin()
        return effects

    def _add_again(self, entry: Entry) -> list[Effect]:
        data = self._entries.encoded_again(entry, self._base)
        key, ledger_id = self._entries.master_key, self._entries.ledger_id
        request = AddEntry(ledger_id, entry.entry_id, key, data, _RECOVERING, b"")
        effects: list[Effect] = [SendAdds([self._copies.add(request, entry.length)])]
        return effects + self._replace_failed() if self._copies.failed else effects

    def added(self, sending: Sending, entry_ids: Sequence[int], answer: BookieAnswer) -> list[Effect]:
        result = self._copies.answered(sending, entry_ids, answer)
        if self.state is not RecovererState.READING:
            return []
        if result is CopyResult.UNAUTHORIZED:
            return self._fail(UnauthorizedAccess(self._entries.ledger_id))
        if result in (CopyResult.FAILED, CopyResult.FENCED) and self._copies.pending:
            return self._replace_failed()
        complete = self._copies.take_complete()
        if not complete:
            return []
        self._last += len(complete)
        self._length = complete[-1].length
        self._changes = 0
        return self._go_on()

    def _replace_failed(self) -> list[Effect]:
        """Replace failed bookies in memory, as far as there are others and as they are needed."""
        bookies, failed = self._copies.bookies, self._copies.failed
        others = replace_bookies(self.candidates, self._quorums, bookies, failed, self._seed)
        if not self._copies.can_complete(failed.difference(others)):
            return self._fail(not_enough(self.candidates, len(failed), len(others)))
        if not others:
            return []
        self._changes += 1
        if self._changes > _CHANGES_MAX:
            return self._fail(EnsembleChangesExhausted(self._entries.ledger_id, self._changes))
        changed = tuple(others.get(index, bookie) for index, bookie in enumerate(bookies))
        self._ensembles.append((self._last + 1, changed))
        return [SendAdds(self._copies.use_ensemble(changed))]

    # ── the close ─────────────────────────────────────────────────────────────────────────────────────

    def _measure(self) -> list[Effect]:
        """Find the length of the ledger, which only the header of its last entry tells."""
        if self._last > self._base or self._last == NO_ENTRY:
            return self._begin_close()
        self.state = RecovererState.MEASURING
        bookies = self._metadata.value.segment_of(self._last).bookies
        self._measuring = EntryRead(self._entries, self._quorums, bookies, self._last)
        return [*self._measuring.begin()]

    def _measured(self, effects: list[Send]) -> list[Effect]:
        match self._measuring.result:
            case None:
                return [*effects]
            case Entry(length=length):
                self._length = length
                return self._begin_close()
            case NotThere():
                reason = f"entry {self._last}, which was acknowledged, is at none of its bookies"
                bookies = self._metadata.value.segment_of(self._last).bookies
                return self._fail(self._incomplete(reason, dict.fromkeys(bookies, "")))
            case error:
                return self._fail(error)

    def _begin_close(self) -> list[Effect]:
        self.state = RecovererState.CLOSING
        self._change = MetadataChange(self._entries.ledger_id, self._closed)
        return self._proceed(self._change.begin(self._metadata))

    def _closed(self, metadata: ClusterLedgerMetadata) -> ClusterLedgerMetadata:
        """Return the metadata closed at the end that was found, unless another client has closed them."""
        if metadata.is_closed:
            return metadata
        if metadata.state is not ClusterLedgerState.IN_RECOVERY:
            raise MetadataConflict(f"ledger {self._entries.ledger_id}", "open again while it is recovered")
        for first_entry, bookies in self._ensembles:
            metadata = metadata.with_ensemble_change(first_entry, bookies)
        return metadata.closed(self._last, self._length)

    def _fail(self, error: ClusterError) -> list[Effect]:
        self.state = RecovererState.ENDED
        return [RecoveryFailed(error)]

    def _incomplete(self, reason: str, silent: dict[str, str]) -> RecoveryIncomplete:
        which = tuple(f"{bookie} ({why})" if why else bookie for bookie, why in silent.items())
        return RecoveryIncomplete(self._entries.ledger_id, reason, which)

    # ── metadata ──────────────────────────────────────────────────────────────────────────────────────

    def metadata_written(self, answer: MetadataWritten) -> list[Effect]:
        return self._proceed(self._change.metadata_written(answer))

    def metadata_read(self, answer: MetadataRead) -> list[Effect]:
        return self._proceed(self._change.metadata_read(answer))

    def waited(self) -> list[Effect]:
        return []

    def _proceed(self, effects: list[Effect]) -> list[Effect]:
        match self._change.result:
            case None:
                return effects
            case Versioned(value) as metadata if value.is_closed:
                self.state = RecovererState.ENDED
                return [*effects, Recovered(metadata)]
            case Versioned() as metadata:
                self._metadata = metadata
                return effects + self._begin_fence()
            case error:
                return effects + self._fail(error)


def _in_recovery(metadata: ClusterLedgerMetadata) -> ClusterLedgerMetadata:
    return metadata.in_recovery() if metadata.state is ClusterLedgerState.OPEN else metadata
