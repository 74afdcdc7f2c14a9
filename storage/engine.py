"""The engine of a store: its parts, and operations that need several of them. Entries are bytes here.

`Bookie` is its face for clients that bring entries. `Ledger` is a client in the same process: it frames
payloads into entries and keeps the credentials that it was made with.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from storage.commit.pending import confirmed_without_entries
from storage.entry.ledger_record import Truncation
from storage.entry.read_result import Missing, Unreadable
from storage.errors import AnswerUnknown, EntryTruncated, InvalidEntry, NoSuchEntry, NoSuchLedger
from storage.ledgers.state import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.capacity.guard import SpaceGuard
    from storage.checkpoint.checkpointer import Checkpointer
    from storage.commit.committer import Committer
    from storage.commit.ledger_control import LedgerControl
    from storage.commit.pending import PendingEntries
    from storage.config import StoreConfig
    from storage.disk.files import Directory
    from storage.entry.credentials import Access
    from storage.entry.position import JournalPosition
    from storage.entrylog.log_set import EntryLogs
    from storage.gc.collector import Collector
    from storage.gc.compactor import Compactor
    from storage.gc.usage import UsageSurvey
    from storage.index.port import Index
    from storage.journal.journal_set import Journals
    from storage.ledgers.metadata import LedgerMetadata
    from storage.ledgers.state import LedgerState, LedgerStates
    from storage.memtable.table import Slot
    from storage.read.points import PointReader
    from storage.read.ranges import RangeReader
    from storage.runtime.store_state import StoreState


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One open store below its faces; an opening puts it together. Any thread may call."""

    path: str
    root: Directory
    ledgers: Directory
    """The directory of entry logs and index."""
    config: StoreConfig
    store_state: StoreState
    space: SpaceGuard
    slot: Slot
    states: LedgerStates
    control: LedgerControl
    journals: Journals
    committer: Committer
    logs: EntryLogs
    checkpointer: Checkpointer
    compactor: Compactor
    collector: Collector
    reader: PointReader
    metadata: LedgerMetadata
    range_reader: RangeReader
    index: Index
    """The index as it is committed, in which deleted ledgers may still have locations."""
    usage_survey: Callable[[], UsageSurvey]
    """Makes a survey of the entry logs that are committed now."""

    # ── adds whose callers do not wait ───────────────────────────────────────────────────────────────

    def submit(self, work: PendingEntries) -> Future[int]:
        """Have the next commit make the work durable, in any thread; return a future of its id."""
        work.future = future = Future[int]()
        # It cannot be cancelled, because the entry is on its way with those of other callers.
        future.set_running_or_notify_cancel()
        self._enqueue(work)
        return future

    def defer(self, work: PendingEntries) -> None:
        """The same without an answer: `force` returns when the work is durable."""
        work.is_deferred = True
        self._enqueue(work)

    def _enqueue(self, work: PendingEntries) -> None:
        self.committer.enqueue_when_admitted(work)
        if self.committer.waiting_size >= self.config.group_size_max:
            self.committer.flush()

    def force(self, ledger_id: int) -> None:
        """Return when all that was added to the ledger before is durable; raise if any of it is lost."""
        state = self.states.of(ledger_id)
        self.committer.flush()
        self.store_state.check_writes()
        with self.committer.queue.lock:
            lost, state.lost = state.lost, None
        if lost is not None:
            if state.end == EMPTY:
                self.states.release(state)
            raise self.store_state.as_told(lost)

    # ── truncations ──────────────────────────────────────────────────────────────────────────────────

    def truncate(self, ledger_id: int, before: int, access: Access | None = None) -> None:
        """Return when the entries before that one are gone for ever; the ledger's ids go on.

        Without credentials it is truncated whatever its key is.
        """
        self.store_state.check_writes()
        # Read before anything else of the ledger, so that a delete in between is noticed.
        deleted_at = self.metadata.deleted_at(ledger_id)
        state = self.states.of(ledger_id)
        end = state.end
        if end == EMPTY and not self.exists(ledger_id):
            self.raise_missing(ledger_id)
        if access is not None:
            state.check_key(access)
        if before > end.entry_id + 1:
            last = f"ends at entry {end.entry_id}" if end != EMPTY else "has no entries"
            raise InvalidEntry(f"ledger {ledger_id} {last}, and cannot be truncated before entry {before}")
        if before == 0:
            return
        truncation = Truncation(before)
        if before > end.entry_id:
            # No entry is left that says how the ledger goes on.
            truncation = Truncation(before, end.length, self._confirmed_by_last(state))
        if not self.control.truncate(ledger_id, truncation, deleted_at):
            raise NoSuchLedger(ledger_id)

    def _confirmed_by_last(self, state: LedgerState) -> int:
        """Return the last add confirmed that the ledger's last entry carries, or a larger one."""
        known = max(state.lac_seen, confirmed_without_entries(self.metadata.of(state.ledger_id)))
        head = self.reader.head(state.ledger_id, state.end.entry_id)
        return known if isinstance(head, Missing | Unreadable) else max(known, head.last_add_confirmed)

    # ── existence ────────────────────────────────────────────────────────────────────────────────

    def exists(self, ledger_id: int) -> bool:
        """Return whether there is such a ledger, judged by what is durable."""
        if self.metadata.of(ledger_id).makes_a_ledger:
            return True
        state = self.states.known(ledger_id)
        return self.reader.last_id(ledger_id) is not None if state is None else state.end != EMPTY

    def last_id(self, ledger_id: int) -> int | None:
        """Return the id of the ledger's last durable entry, even if it was truncated.

        `None` if it never had one.
        """
        state = self.states.known(ledger_id)
        if state is not None:
            return None if state.end == EMPTY else state.end.entry_id
        found = self.reader.last_id(ledger_id)
        first_entry_id = self.metadata.first_entry_id(ledger_id)
        return first_entry_id - 1 if first_entry_id and found is None else found

    def raise_missing(self, ledger_id: int, entry_id: int | None = None) -> NoReturn:
        """Raise the error that is true of a ledger or an entry that was not found."""
        first_entry_id = self.metadata.first_entry_id(ledger_id)
        if entry_id is not None and entry_id < first_entry_id:
            raise EntryTruncated(ledger_id, entry_id, first_entry_id)
        if self.metadata.may_have_lost_entries(ledger_id):
            raise AnswerUnknown(ledger_id, entry_id)
        if entry_id is None or not self.exists(ledger_id):
            raise NoSuchLedger(ledger_id)
        raise NoSuchEntry(ledger_id, entry_id)

    # ── waiting for a last add confirmed ─────────────────────────────────────────────────────────────

    def wait_for_lac(
        self, ledger_id: int, confirmed: Callable[[], int], beyond: int, timeout_s: float | None
    ) -> int:
        """Return what is confirmed when that is larger than `beyond`, or will not grow any more."""
        deleted_at = self.metadata.deleted_at(ledger_id)
        self.committer.waiters.wait_for(
            ledger_id, lambda: self.is_settled(ledger_id, deleted_at) or confirmed() > beyond, timeout_s
        )
        return confirmed()

    def is_settled(self, ledger_id: int, deleted_at: JournalPosition | None) -> bool:
        """Return whether no more will be confirmed to a reader.

        For the reader `deleted_at` was the position of the ledger's last delete.
        """
        is_over = self.store_state.has_ended or self.committer.waiters.is_stopped
        row = self.metadata.of(ledger_id)
        return is_over or row.fenced or self.metadata.was_deleted(ledger_id, deleted_at)
