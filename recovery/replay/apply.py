"""Applies the records of the journals to the tables and to the ledger metadata."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from recovery.replay.durable_extents import durable_extents
from recovery.replay.journal_backed_table import ExtentsInJournal, JournalBackedTable
from recovery.replay.journal_metadata import larger_lac
from storage.entry.position import START
from storage.errors import DiskFull
from storage.journal import format as journal_format
from storage.ledgers.metadata import PLAIN_KEY
from storage.memtable.ledger_entries import RECORD_OVERHEAD
from storage.memtable.table import Memtable, Tables
from storage.open_report import ReplayProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from recovery.replay.durable_extents import DurableExtents
    from recovery.replay.journals import Replay, ReplayBatch
    from storage.engine import Engine
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.position import JournalPosition
    from storage.journal.format import Record
    from storage.journal.record_batches import RecordBatch


TABLES_WAITING_MAX = 4
"""Entries of so many full tables may be left in the journals of an open store: a second or two of work."""

JOURNALS_WAITING_MAX = 8
"""Entries are left in at most this many journals, so that crash loops do not pile them up."""


IN_MEMORY_MAX = 8 << 20
"""Entries that take no more than this, and fit into a table, are read into it in hundredths of a second."""


class JournalApplier:
    """Fills the table with the content of the journals, and makes a checkpoint whenever it is full.

    A large amount of plain entries is left in the journals: see `recovery.replay.journal_backed_table`.
    """

    def __init__(self, replay: Replay, engine: Engine, progress: Callable[[ReplayProgress], None]) -> None:
        self.records = 0
        self.size = 0
        self.carried: list[bytes] = []
        """Records that are not proven durable."""
        self._replay = replay
        self._engine = engine
        self._progress = progress
        self._foreign_end = replay.foreign_end
        self._total = replay.size

    def run(self) -> None:
        start = self._leave_in_journals() if self._foreign_end is None else START
        for replayed in self._replay.batches(start):
            self._apply(replayed)
            self._report_progress()
        # The last record may be followed by empty groups, which need no replay either.
        active = self._engine.slot.tables.active
        active.covers_until = max(active.covers_until, self._replay.durable_up_to)
        if self._foreign_end is not None:
            self._checkpoint_foreign(self._foreign_end)

    def _report_progress(self) -> None:
        total = self._total
        self._progress(ReplayProgress(min(self.size, total), total, self.records))

    # ── entries that stay in the journals ────────────────────────────────────────────────────────────────

    def _leave_in_journals(self) -> JournalPosition:
        """Leave what is proven durable in the journals, if it is much; return where the rest begins."""
        journals = durable_extents(self._replay)
        table_size = self._engine.config.memtable_size_max
        if not journals or _memory_of(journals) <= min(table_size, IN_MEMORY_MAX):
            return START
        while len(journals) > JOURNALS_WAITING_MAX or _memory_of(journals) > TABLES_WAITING_MAX * table_size:
            self._freeze(journals[:1])
            self._finish_checkpoint()
            del journals[0]
        if journals:
            self._freeze(journals)
        return self._replay.durable_up_to

    def _freeze(self, journals: Sequence[DurableExtents]) -> None:
        """Make these journals the frozen table, with the ledger metadata of the active one."""
        slot = self._engine.slot
        # Each record once, because every journal repeats the keys of its ledgers.
        for record in dict.fromkeys(chain.from_iterable(one.special for one in journals)):
            self._apply_metadata(record, slot.tables.active)
        for one in journals:
            self.records += one.records
            self.size += one.size
            self._report_progress()
        slot.tables = Tables(
            Memtable(journals[-1].end), self._journal_backed_table(journals, slot.tables.active.rows)
        )
        self._engine.metadata.hide_all_truncated()

    def _journal_backed_table(
        self, journals: Sequence[DurableExtents], rows: Mapping[int, LedgerRecord]
    ) -> JournalBackedTable:
        parts: dict[int, list[ExtentsInJournal]] = {}
        with ExitStack() as unless_whole:
            for one in journals:
                file = unless_whole.enter_context(self._replay.open(one.end.journal_id))
                for ledger_id, packed in one.packed.items():
                    if packed:
                        parts.setdefault(ledger_id, []).append(ExtentsInJournal(file, packed))
            return JournalBackedTable(journals[-1].end, parts, rows.values(), unless_whole.pop_all())

    # ── entries that are read into memory ────────────────────────────────────────────────────────────────

    def _apply(self, replayed: ReplayBatch) -> None:
        batch = replayed.batch
        table = self._engine.slot.tables.active
        for ledger_id, first_id, records in batch.runs():
            table.insert(ledger_id, first_id, records)
        for _, record in batch.special:
            self._apply_metadata(record, table)
        self.records += len(batch.records)
        self.size += sum(map(len, batch.records))
        if not replayed.is_proven:
            self._carry_over(batch)
        elif batch.ends_group:
            # A later replay can begin only at the end of a group, and may skip only what is proven durable.
            table.covers_until = replayed.end
        # Entries that are not proven durable, a group or two, are written again before they are
        # checkpointed. Until then a power cut may take a part of the journal's copy, and the rest of that
        # copy would lie before the checkpointed position.
        may_be_moved = replayed.is_proven or self._foreign_end is not None
        if may_be_moved and table.size >= self._engine.config.memtable_size_max:
            self._checkpoint()

    def _carry_over(self, batch: RecordBatch) -> None:
        # After a bookie's journal everything is checkpointed instead, and the mark moves after it, because a
        # first seal of ours must not name a bookie's journal.
        if self._foreign_end is None:
            self.carried += batch.records
            said = (record for _, record in batch.special)
            self.carried += [encoded for record in said if (encoded := _encoded(record)) is not None]

    def _apply_metadata(self, record: Record, table: Memtable) -> None:
        revise = revision(record)
        assert revise is not None, "a record of an unknown kind is refused before"
        self._engine.metadata.apply_journaled(record.ledger_id, revise, table)

    def _checkpoint_foreign(self, foreign_end: JournalPosition) -> None:
        """Checkpoint everything, so that the mark is after the bookie's journals before our first seal."""
        active = self._engine.slot.tables.active
        active.covers_until = max(active.covers_until, foreign_end)
        self._engine.journals.note_durable(foreign_end)
        self._checkpoint()

    def _checkpoint(self) -> None:
        if self._engine.slot.tables.frozen is not None:
            self._finish_checkpoint()
        tables = self._engine.slot.tables
        self._engine.slot.tables = Tables(
            Memtable(tables.active.covers_until, tables.active.floors), tables.active
        )
        self._finish_checkpoint()

    def _finish_checkpoint(self) -> None:
        self._engine.checkpointer.finish()
        check_finished(self._engine)


def _memory_of(journals: Iterable[DurableExtents]) -> int:
    """Return the bytes that a table with these entries would take."""
    return sum(one.size + RECORD_OVERHEAD * one.records for one in journals)


def check_finished(engine: Engine) -> None:
    """Raise the reason if the checkpoint was not made."""
    if engine.store_state.failure is not None:
        raise engine.store_state.failure
    if engine.slot.tables.frozen is not None:
        raise DiskFull(engine.path)


def _encoded(record: Record) -> bytes | None:
    """Return the record to write again; `None` for a key, because each journal gets the keys it needs."""
    match record:
        case journal_format.Fence(ledger_id):
            return journal_format.encode_fence(ledger_id)
        case journal_format.ExplicitLac(ledger_id, packet):
            return journal_format.encode_explicit_lac(ledger_id, packet)
    return None


def revision(record: Record) -> Callable[[LedgerRecord], LedgerRecord] | None:
    """Return how the record changes the metadata of its ledger; `None` if it does not."""
    match record:
        case journal_format.LedgerKey(_, key):
            return lambda row: _keyed(row, key)
        case journal_format.Fence():
            return lambda row: replace(row, fenced=True)
        case journal_format.ExplicitLac(_, packet):
            return lambda row: _confirmed(row, packet)
    return None


def _keyed(row: LedgerRecord, key: bytes) -> LedgerRecord:
    # A ledger's key never changes. A bookie whose index was made again writes no bytes or zeros.
    is_new = any(key) and row.master_key in (None, PLAIN_KEY)
    return replace(row, master_key=key) if is_new else row


def _confirmed(row: LedgerRecord, packet: bytes) -> LedgerRecord:
    # In a bookie's journal only its own digest verifies it, if the digest type of the ledger is known.
    larger = larger_lac(row.explicit_lac, packet, row.ledger_id)
    return row if larger == row.explicit_lac else replace(row, explicit_lac=larger)
