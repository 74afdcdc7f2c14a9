"""The journals' records on their way into the table: entries, and what is said of ledgers."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from recovery.journal_facts import larger_lac
from recovery.proven import proven_journals
from storage.backlog import Backlog, Part
from storage.codec import journal as journal_codec
from storage.entries import RECORD_OVERHEAD
from storage.errors import DiskFull
from storage.memtable import Memtable, Tables
from storage.position import START
from storage.registry import PLAIN_KEY
from storage.report import ReplayProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from recovery.proven import ProvenJournal
    from recovery.replay import Replay, Replayed
    from storage.codec.journal import Record
    from storage.journal_records import RecordBatch
    from storage.parts import Parts
    from storage.position import JournalPosition
    from storage.row import LedgerRow


TABLES_WAITING_MAX = 4
"""As much as so many tables hold may wait in the journals when a store is open: a second or two of work."""

JOURNALS_WAITING_MAX = 8
"""And in no more of them than this: crash loops must not pile them up."""


IN_MEMORY_MAX = 8 << 20
"""What takes no more than this, and fits into a table, is brought there: in a few hundredths of a second."""


class Replaying:
    """Fills the table with what the journals hold, and checkpoints it whenever it is full.

    Or leaves it there, where that is much and all of it is plain: see `storage.backlog`.
    """

    def __init__(self, replay: Replay, parts: Parts, progress: Callable[[ReplayProgress], None]) -> None:
        self.records = 0
        self.size = 0
        self.carried: list[bytes] = []
        """Records that nothing proved durable."""
        self._replay = replay
        self._parts = parts
        self._progress = progress
        self._foreign_end = replay.foreign_end
        self._total = replay.size

    def run(self) -> None:
        start = self._leave() if self._foreign_end is None else START
        for replayed in self._replay.batches(start):
            self._take(replayed)
            self._tell()
        # Behind the last record there may be empty groups: they are passed over too.
        active = self._parts.slot.tables.active
        active.covers_until = max(active.covers_until, self._replay.durable_up_to)
        if self._foreign_end is not None:
            self._pass_by(self._foreign_end)

    def _tell(self) -> None:
        total = self._total
        self._progress(ReplayProgress(min(self.size, total), total, self.records))

    # ── what is left in the journals ─────────────────────────────────────────────────────────────────

    def _leave(self) -> JournalPosition:
        """Leaves what is proven where it is, if it is worth it; where the rest begins."""
        journals = proven_journals(self._replay)
        table_size = self._parts.config.memtable_size_max
        if not journals or _memory_of(journals) <= min(table_size, IN_MEMORY_MAX):
            return START
        while len(journals) > JOURNALS_WAITING_MAX or _memory_of(journals) > TABLES_WAITING_MAX * table_size:
            self._wait_in(journals[:1])
            self._finish_checkpoint()
            del journals[0]
        if journals:
            self._wait_in(journals)
        return self._replay.durable_up_to

    def _wait_in(self, journals: Sequence[ProvenJournal]) -> None:
        """What these journals hold is the frozen table, with what the active one knows of ledgers."""
        slot = self._parts.slot
        # Each record once: every journal says the keys of its ledgers again.
        for record in dict.fromkeys(chain.from_iterable(one.special for one in journals)):
            self._hear(record, slot.tables.active)
        for one in journals:
            self.records += one.records
            self.size += one.size
            self._tell()
        slot.tables = Tables(Memtable(journals[-1].end), self._backlog(journals, slot.tables.active.rows))

    def _backlog(self, journals: Sequence[ProvenJournal], rows: Mapping[int, LedgerRow]) -> Backlog:
        parts: dict[int, list[Part]] = {}
        with ExitStack() as unless_whole:
            for one in journals:
                file = unless_whole.enter_context(self._replay.open(one.end.journal_id))
                for ledger_id, packed in one.packed.items():
                    if packed:
                        parts.setdefault(ledger_id, []).append(Part(file, packed))
            return Backlog(journals[-1].end, parts, rows.values(), unless_whole.pop_all())

    # ── what comes into memory ───────────────────────────────────────────────────────────────────────

    def _take(self, replayed: Replayed) -> None:
        batch = replayed.batch
        table = self._parts.slot.tables.active
        for ledger_id, first_id, records in batch.runs():
            table.insert(ledger_id, first_id, records)
        for _, record in batch.special:
            self._hear(record, table)
        self.records += len(batch.records)
        self.size += sum(map(len, batch.records))
        if not replayed.is_proven:
            self._carry(batch)
        elif batch.ends_group:
            # Only at the end of a group can a later replay begin; only what is proven may it pass over.
            table.covers_until = replayed.end
        # Of a group that nothing proves, all of it or nothing: until it is written again a power cut may
        # take the journal's copy, and what was checkpointed would be half of what was added at once.
        is_whole = replayed.is_proven or batch.ends_group or self._foreign_end is not None
        if is_whole and table.size >= self._parts.config.memtable_size_max:
            self._checkpoint()

    def _carry(self, batch: RecordBatch) -> None:
        # Behind a bookie's journal nothing of ours may stand that it does not end before: all of it goes
        # into the entry logs instead, and the mark behind it.
        if self._foreign_end is None:
            self.carried += batch.records
            said = (record for _, record in batch.special)
            self.carried += [encoded for record in said if (encoded := _encoded(record)) is not None]

    def _hear(self, record: Record, table: Memtable) -> None:
        revise = revision(record)
        if revise is not None:
            self._parts.registry.settle(record.ledger_id, revise, table)

    def _pass_by(self, foreign_end: JournalPosition) -> None:
        """A first seal of ours must not name a bookie's journal: the mark goes behind it before."""
        active = self._parts.slot.tables.active
        active.covers_until = max(active.covers_until, foreign_end)
        self._parts.journals.pass_by(foreign_end)
        self._checkpoint()

    def _checkpoint(self) -> None:
        if self._parts.slot.tables.frozen is not None:
            self._finish_checkpoint()
        tables = self._parts.slot.tables
        self._parts.slot.tables = Tables(Memtable(tables.active.covers_until), tables.active)
        self._finish_checkpoint()

    def _finish_checkpoint(self) -> None:
        self._parts.checkpointer.finish()
        check_finished(self._parts)


def _memory_of(journals: Iterable[ProvenJournal]) -> int:
    """What a table of it would take."""
    return sum(one.size + RECORD_OVERHEAD * one.records for one in journals)


def check_finished(parts: Parts) -> None:
    """Raises why a checkpoint was not made."""
    if parts.latch.failure is not None:
        raise parts.latch.failure
    if parts.slot.tables.frozen is not None:
        raise DiskFull(parts.path)


def _encoded(record: Record) -> bytes | None:
    """The record as it is written again; `None` for a key: each journal gets those it needs in front."""
    match record:
        case journal_codec.Fence(ledger_id):
            return journal_codec.encode_fence(ledger_id)
        case journal_codec.ExplicitLac(ledger_id, packet):
            return journal_codec.encode_explicit_lac(ledger_id, packet)
    return None


def revision(record: Record) -> Callable[[LedgerRow], LedgerRow] | None:
    """What a record makes of what is known of its ledger."""
    match record:
        case journal_codec.LedgerKey(_, key):
            return lambda row: _keyed(row, key)
        case journal_codec.Fence():
            return lambda row: replace(row, fenced=True)
        case journal_codec.ExplicitLac(_, packet):
            return lambda row: _confirmed(row, packet)
    return None


def _keyed(row: LedgerRow, key: bytes) -> LedgerRow:
    # A ledger's key never changes. No bytes, or zeros: a bookie whose own index was made again knew none.
    is_new = any(key) and row.master_key in (None, PLAIN_KEY)
    return replace(row, master_key=key) if is_new else row


def _confirmed(row: LedgerRow, packet: bytes) -> LedgerRow:
    # In a bookie's journal nothing verifies it but its own digest, if the ledger's is known.
    larger = larger_lac(row.explicit_lac, packet, row.ledger_id)
    return row if larger == row.explicit_lac else replace(row, explicit_lac=larger)
