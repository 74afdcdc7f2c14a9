"""The table of entries that are durable in the journals and not yet in the entry logs.

One thread inserts, any number of threads read meanwhile without a lock. Readers rely on the orders of
`storage.memtable.ledger_entries`, and on these:

    a new ledger     is filled before it is put into the table a dropped ledger leaves the table in one step,
    and nothing in its entries changes, so that a reader that has
                     found them can go on. It leaves the frozen table before the active one, because otherwise
                     an older copy could be found

If several entries are inserted together, a reader may see the first before the last. `storage.ledgers.state`
decides which of them readers are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.entry.record_format import FRONT_SIZE, HEAD_FRONT_SIZE
from storage.memtable.ledger_entries import RECORD_OVERHEAD, LedgerEntries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.position import JournalPosition
    from storage.entry.record_chunk import RecordChunk

LEDGER_OVERHEAD = 400
"""Bytes of memory of a ledger, however few its entries."""

ROW_OVERHEAD = 400
"""Bytes of memory of a ledger's record, whatever it says."""

_COPIED = 64


class Memtable:
    """Records by ledger and entry, and the ledgers' own records.

    The writer is the thread that leads a commit, and an opening before there are other threads. It writes
    until the table is frozen. Readers take no lock; the module's docstring says which orders they rely on.
    """

    def __init__(self, covers_until: JournalPosition, floors: dict[int, int] | None = None) -> None:
        """`floors` are those of the table before, which the two share from now on."""
        # field                                     written by    under    read by
        self.covers_until = covers_until  #           the writer    no lock  the writer, checkpoints
        """Every record before this position in the journals is here, or in the entry logs. Fixed once
        frozen."""
        self.size = 0  #                              the writer    no lock  any thread
        """Bytes of memory that the table takes."""
        self.rows: dict[int, LedgerRecord] = {}  #    the writer    no lock  the writer, checkpoints
        """The ledger records that changed while the table was active. They are checkpointed with its
        entries."""
        self._ledgers: dict[int, LedgerEntries] = {}  # the writer  no lock  any thread
        self.find: Callable[[int], LedgerEntries | None] = self._ledgers.get
        """Return the entries of a ledger, if any is here. Every read begins with this."""
        self.floors = {} if floors is None else floors  # the writer  no lock  the writer
        """Ledger id → first entry that was not truncated, of the ledgers that were truncated."""
        self._is_frozen = False  #                    the writer    no lock  the writer
        self._dropped = 0  #                          the writer    no lock  any thread, for figures

    def __len__(self) -> int:
        """Return the number of entries. Between two inserts only."""
        return sum(map(len, list(self._ledgers.values())))

    @property
    def added(self) -> int:
        """Return how many entries were ever inserted, also into dropped ledgers. An id counts once."""
        return len(self) + self._dropped

    @property
    def has_content(self) -> bool:
        """Return whether there is anything to checkpoint."""
        return bool(self._ledgers or self.rows)

    # ── the writer's ─────────────────────────────────────────────────────────────────────────────────

    def insert(self, ledger_id: int, first_id: int, records: Sequence[bytes]) -> None:
        """Insert records with consecutive ids. If an id is inserted again, the newer copy stays."""
        entries = self._ledgers.get(ledger_id)
        front_size = _guessed_front_size(records) if entries is None else entries.front_size
        if entries is not None and min(map(len, records), default=0) < front_size:
            self._put(entries, first_id, records)
            return
        fronts = b"".join([record[:front_size] for record in records])
        payloads = [record[front_size:] for record in records]
        self.insert_parts(ledger_id, first_id, fronts, payloads, sum(map(len, records)))

    def insert_parts(
        self, ledger_id: int, first_id: int, fronts: bytes, payloads: Sequence[bytes], size: int
    ) -> None:
        """Insert records in two parts, which have `size` bytes together; keep the payloads.

        All fronts of a call have one size. If it is not that of the run, each record is split anew.
        """
        assert not self._is_frozen, "a frozen table never changes"
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            self._begin(ledger_id, first_id, fronts, payloads, size)
        elif entries.first + len(entries.run) == first_id > entries.highest_stray and len(
            fronts
        ) == entries.front_size * len(payloads):
            # Not by a call of `extend`, because every add comes here, and a call is a sixth of its cost.
            entries.fronts += fronts
            entries.run += payloads
            self.size += size + RECORD_OVERHEAD * len(payloads)
        else:
            width = len(fronts) // len(payloads)
            parts = [fronts[start : start + width] for start in range(0, len(fronts), width)]
            self._put(
                entries, first_id, [front + payload for front, payload in zip(parts, payloads, strict=True)]
            )

    def _put(self, entries: LedgerEntries, first_id: int, records: Sequence[bytes]) -> None:
        assert not self._is_frozen, "a frozen table never changes"
        for entry_id, record in enumerate(records, first_id):
            self.size += entries.put(entry_id, record)

    def _begin(
        self, ledger_id: int, first_id: int, fronts: bytes, payloads: Sequence[bytes], size: int
    ) -> None:
        if payloads:
            front_size, rest = divmod(len(fronts), len(payloads))
            assert front_size >= HEAD_FRONT_SIZE, "no record is shorter than its head"
            assert not rest, "the fronts of a call have one size"
            entries = LedgerEntries(first_id, front_size)
            entries.extend(fronts, payloads)
            if floor := self.floors.get(ledger_id):
                entries.truncate(floor)
            self._ledgers[ledger_id] = entries
            self.size += size + RECORD_OVERHEAD * len(payloads) + LEDGER_OVERHEAD

    def put_row(self, row: LedgerRecord) -> None:
        """Insert a ledger's record; of two the later one stays."""
        assert not self._is_frozen, "a frozen table never changes"
        known = self.rows.get(row.ledger_id)
        if known is None:
            self.size += ROW_OVERHEAD
        if known is None or known.change <= row.change:
            self.rows[row.ledger_id] = row

    def drop(self, ledger_id: int) -> None:
        """Forget a ledger's entries, but not its record.

        For the writer, between two inserts; also in a frozen table.

        A reader or a checkpoint that is reading them goes on: they leave the table in one step, and nothing
        in them changes. Entries that are written to a log after that are dead by their tombstone.
        """
        entries = self._ledgers.pop(ledger_id, None)
        self.floors.pop(ledger_id, None)
        if entries is not None:
            self.size -= entries.size + LEDGER_OVERHEAD
            self._dropped += len(entries)

    def truncate(self, ledger_id: int, first_id: int) -> None:
        """Let no reader find entries with smaller ids. For the writer, between two inserts; also in a frozen
        table, in which a checkpoint may write them to a log nevertheless."""
        self.floors[ledger_id] = first_id
        entries = self._ledgers.get(ledger_id)
        if entries is not None:
            entries.truncate(first_id)

    def freeze(self) -> None:
        """Freeze the table: nothing is inserted from now on, so that a checkpoint sees all of it."""
        self._is_frozen = True

    def close(self) -> None:
        """Close the files that the table reads; a table in memory has none."""

    def lists_to_free(self) -> list[list[bytes]]:
        """Return the lists that take long to free once no reader uses the table, one for each ledger."""
        return [entries.run for entries in self._ledgers.values()]

    # ── the readers' ─────────────────────────────────────────────────────────────────────────────────

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return the record of an entry, if it is here."""
        entries = self._ledgers.get(ledger_id)
        return None if entries is None else entries.get(entry_id)

    def parts(self, ledger_id: int, first: int, count: int, front_size: int) -> tuple[bytes, list[bytes]]:
        """Return the joined fronts and the payloads of consecutive entries from `first` on.

        At most `count`, and perhaps fewer than there are. A record shorter than a front ends them.
        """
        entries = self._ledgers.get(ledger_id)
        if entries is not None and (parts := entries.parts(first, count, front_size)) is not None:
            return parts
        fronts, payloads = [], []
        for entry_id in range(first, first + min(count, _COPIED)):
            record = self.get(ledger_id, entry_id)
            if record is None or len(record) < front_size:
                break
            fronts.append(record[:front_size])
            payloads.append(record[front_size:])
        return b"".join(fronts), payloads

    def last_id(self, ledger_id: int) -> int | None:
        """Return the largest id of a ledger, if any of its entries is here."""
        entries = self._ledgers.get(ledger_id)
        return None if entries is None or entries.last_id < entries.floor else entries.last_id

    def ids_from(self, ledger_id: int, first: int, count: int) -> list[int]:
        """Return ascending ids of entries that are here, from `first` on, at most `count`."""
        entries = self._ledgers.get(ledger_id)
        return [] if entries is None else entries.ids_from(first, count)

    def ledgers(self) -> list[int]:
        """Return the ledgers with an entry here, ascending."""
        return sorted(self._ledgers)

    def chunks(self, ledger_id: int) -> Iterator[RecordChunk]:
        """Return the records of a ledger in chunks, ascending, each id once. Only of a frozen table."""
        entries = self._ledgers.get(ledger_id)
        return iter(()) if entries is None else entries.chunks(ledger_id)


def _guessed_front_size(records: Sequence[bytes]) -> int:
    """Return the front size of CRC-32C, which nearly all ledgers have, unless a record is too short."""
    shortest = min(map(len, records), default=FRONT_SIZE)
    assert shortest >= HEAD_FRONT_SIZE, "no record is shorter than its head"
    return FRONT_SIZE if shortest >= FRONT_SIZE else HEAD_FRONT_SIZE


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that readers search.

    A reader loads them once, so that it finds each entry in one of them.
    """

    active: Memtable
    frozen: Memtable | None = None
    added_before: int = 0
    """How many entries were inserted into earlier tables."""
    both: tuple[Memtable, ...] = field(init=False)
    """The active one, and the frozen one if there is one."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "both", (self.active,) if self.frozen is None else (self.active, self.frozen)
        )
        # The frozen table is being written to an entry log. An inserted record would be trimmed with the
        # journals.
        if self.frozen is not None:
            self.frozen.freeze()

    @property
    def added(self) -> int:
        """Return how many entries were ever inserted, into these tables or into earlier ones."""
        return self.added_before + sum(table.added for table in self.both)

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return the newest record of an entry, if it is in either table."""
        record = self.active.get(ledger_id, entry_id)
        if record is None and self.frozen is not None:
            return self.frozen.get(ledger_id, entry_id)
        return record

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether the entry is in either table.

        Reads no disk, even if a table's entries are in journals.
        """
        for table in self.both:
            entries = table.find(ledger_id)
            if entries is not None and entries.has(entry_id):
                return True
        return False

    def last_id(self, ledger_id: int) -> int | None:
        """Return the largest id of a ledger in either table."""
        tables = (self.active, self.frozen)
        last_ids = [table.last_id(ledger_id) for table in tables if table is not None]
        return max((last_id for last_id in last_ids if last_id is not None), default=None)

    def truncate(self, ledger_id: int, first_id: int) -> None:
        """Let no reader find entries with smaller ids. For the writer, between two inserts."""
        # First in the frozen table, as below.
        if self.frozen is not None:
            self.frozen.truncate(ledger_id, first_id)
        self.active.truncate(ledger_id, first_id)

    def drop(self, ledger_id: int) -> None:
        """Forget a ledger's entries in both tables. For the writer, between two inserts."""
        # First in the frozen table, which has the older copies, because a reader must not take one for the
        # newest.
        if self.frozen is not None:
            self.frozen.drop(ledger_id)
        self.active.drop(ledger_id)


class Slot:
    """The holder of a store's tables. The writer replaces them as a whole, between two inserts."""

    def __init__(self, tables: Tables) -> None:
        # Written by the writer without a lock, and read by any thread, once for a search.
        self.tables = tables

    def freeze(self) -> None:
        """Freeze the active table, unless it is empty or another one is frozen already."""
        tables = self.tables
        if tables.frozen is None and tables.active.has_content:
            following = Memtable(tables.active.covers_until, tables.active.floors)
            self.tables = Tables(following, tables.active, tables.added_before)

    def thaw(self) -> None:
        """Release the frozen table. Readers do not search it any more."""
        tables = self.tables
        assert tables.frozen is not None, "a checkpoint has written it"
        self.tables = Tables(tables.active, None, tables.added_before + tables.frozen.added)

    def close(self) -> None:
        """Close the files that a table may read, when no reader uses them any more."""
        if self.tables.frozen is not None:
            self.tables.frozen.close()
