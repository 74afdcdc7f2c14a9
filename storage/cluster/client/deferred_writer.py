"""The writer of a ledger whose bookies may answer adds before they are durable.

    add      is acknowledged when Qa bookies have taken it, perhaps only in memory
    force    asks all bookies of the ensemble to make durable what they have taken. When all have answered,
             what was acknowledged at the beginning of the force is confirmed
    close    forces, and then closes the ledger after the last acknowledged entry

The last add confirmed moves only by a force, because readers are shown what is confirmed, and recoveries take
it for durable. Three rules follow from the memory of the bookies:

* A force needs every bookie of the ensemble: any Qa of a write set may be the ones that have an entry.
* The ensemble does not change while an acknowledged entry is not forced. The entry would be confirmed by a
  force of bookies that never had it. A bookie that fails then ends the writer.
* A bookie whose connection was lost may have been restarted, and have lost what was in its memory. It would
  answer the next force with success all the same. So its copies do not count any more.

A writer that ends in this way leaves the ledger open: a recovery keeps what it finds.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.cluster.client.effects import (
    EntriesForced,
    ForceFailed,
    Send,
    Token,
)
from storage.cluster.client.reader import reason_of
from storage.cluster.client.writer import LedgerWriter, WriterState
from storage.cluster.errors import EntriesNotForced, ForceIncomplete
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddOptions, CodeAnswer, ForceLedger
from storage.entry.model import NO_ENTRY

if TYPE_CHECKING:
    from storage.cluster.client.effects import BookieAnswer, Effect
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.client.placement import Candidates
    from storage.cluster.client.writer import WriterLimits
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.update import Versioned


class SyncMode(enum.Enum):
    """When the entries of a ledger become durable."""

    EACH_ADD = "before they are acknowledged"
    DEFERRED = "when the writer forces them"


@dataclass(slots=True)
class ForceUnderWay:
    """One force, and what it will confirm."""

    last_entry: int
    length: int
    number: int
    unanswered: set[int]
    """The indices of the ensemble that have not answered."""
    reasons: dict[str, str]
    """By bookie: why it has not forced its entries."""


class DeferredLedgerWriter(LedgerWriter):
    """Adds entries to one open ledger, and forces them. For one thread."""

    options = AddOptions(is_deferred=True)

    def __init__(
        self,
        entries: EntryCodec,
        metadata: Versioned[ClusterLedgerMetadata],
        candidates: Candidates,
        seed: int,
        limits: WriterLimits | None = None,
    ) -> None:
        super().__init__(entries, metadata, candidates, seed, limits)
        self._length_acknowledged = 0
        self._force: ForceUnderWay | None = None
        self._forces = 0
        self._is_force_wanted = False
        """Whether another force begins when the one under way ends."""

    @property
    def _is_all_forced(self) -> bool:
        return self.last_confirmed == self.last_acknowledged

    # ── adds ──────────────────────────────────────────────────────────────────────────────────────────

    def _note_acknowledged(self, length: int) -> None:
        self._length_acknowledged = length  # a force confirms it

    def _begin_change(self) -> list[Effect]:
        if self._is_all_forced:
            return super()._begin_change()
        failed = sorted(self._copies.bookies[index] for index in self._copies.failed)
        return self._lose(EntriesNotForced(self._entries.ledger_id, failed[0], self.last_confirmed))

    def connection_lost(self, bookie: str) -> list[Effect]:
        """Note that a bookie may have lost what it had in memory."""
        if bookie not in self._copies.bookies or self.state in (WriterState.CLOSED, WriterState.LOST):
            return []
        if not self._is_all_forced:
            return self._lose(EntriesNotForced(self._entries.ledger_id, bookie, self.last_confirmed))
        if not self._copies.pending:
            return []
        self._copies.fail(bookie)
        return self._begin_change() if self.state is WriterState.OPEN else []

    # ── forces ────────────────────────────────────────────────────────────────────────────────────────

    def force(self) -> list[Effect]:
        """Make durable what is acknowledged now. It is reported when it is confirmed."""
        if self._end is not None:
            raise self._end
        if self._force is not None:
            self._is_force_wanted = True
            return []
        return [] if self._is_all_forced else self._begin_force()

    def _begin_force(self) -> list[Effect]:
        self._forces += 1
        self._is_force_wanted = False
        indices = range(len(self._copies.bookies))
        self._force = ForceUnderWay(
            self.last_acknowledged, self._length_acknowledged, self._forces, set(indices), {}
        )
        request = ForceLedger(self._entries.ledger_id)
        return [
            Send(self._copies.bookies[index], request, Token(NO_ENTRY, index, self._forces))
            for index in indices
        ]

    def answered(self, token: Token, answer: BookieAnswer) -> list[Effect]:
        force = self._force
        if force is None or token.sending != force.number or self.state is WriterState.LOST:
            return []
        force.unanswered.discard(token.bookie_index)
        if answer != CodeAnswer(Code.OK):
            force.reasons[self._copies.bookies[token.bookie_index]] = reason_of(answer)
        return [] if force.unanswered else self._end_force(force)

    def _end_force(self, force: ForceUnderWay) -> list[Effect]:
        self._force = None
        if force.reasons:
            error = ForceIncomplete(self._entries.ledger_id, force.last_entry, force.reasons)
            failed: list[Effect] = [ForceFailed(force.last_entry, error)]
            if self.state is WriterState.CLOSING:
                return failed + self._lose(error)
            return failed + (self._begin_force() if self._is_force_wanted else [])
        self.last_confirmed, self.length_confirmed = force.last_entry, force.length
        effects: list[Effect] = [EntriesForced(force.last_entry)]
        if self.state is WriterState.CLOSING:
            return effects + self._close_metadata()
        is_more = self._is_force_wanted and not self._is_all_forced
        return effects + (self._begin_force() if is_more else [])

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def _close_metadata(self) -> list[Effect]:
        if self._is_all_forced:
            return super()._close_metadata()
        self.state = WriterState.CLOSING
        return [] if self._force is not None else self._begin_force()
