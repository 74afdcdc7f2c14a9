"""What is durable in the journals and not yet in the entry logs, kept where it can be read.

One thread inserts; any number read meanwhile, without a lock. Beside the orders of `storage.entries` they
rely on these:

    a new ledger     is filled before the table has it
    a dropped ledger leaves the table in one step, and nothing of its entries changes: whoever has found them
                     goes on with them. It leaves the frozen table before the active one: the other way round
                     an older copy would come to light

Of several entries inserted at once a reader may see the first before the last. Which may be told of is for
others to say (`storage.tail`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.codec.record import FRONT_SIZE, HEAD_FRONT_SIZE
from storage.entries import RECORD_OVERHEAD, Entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from storage.codec.piece import Piece
    from storage.position import JournalPosition
    from storage.row import LedgerRow

LEDGER_OVERHEAD = 400
"""What a ledger costs, however few its entries."""

ROW_OVERHEAD = 400
"""What a row costs, whatever it says."""

_COPIED = 64


class Memtable:
    """Records by ledger and entry, and rows. One thread writes, until the table is frozen; any may read."""

    def __init__(self, covers_until: JournalPosition) -> None:
        self.covers_until = covers_until
        """Every record before it in the journals is here, or in the entry logs. Stands still once frozen."""
        self.size = 0
        """Bytes of memory that the table takes."""
        self.rows: dict[int, LedgerRow] = {}
        """The rows that changed while the table was active, by ledger: written down with its entries."""
        self._ledgers: dict[int, Entries] = {}
        self.find: Callable[[int], Entries | None] = self._ledgers.get
        """The entries of a ledger, if any is here: where every read begins."""
        self._is_frozen = False

    def __len__(self) -> int:
        """How many entries there are, between two inserts."""
        return sum(map(len, list(self._ledgers.values())))

    @property
    def has_content(self) -> bool:
        """Whether there is anything to write down."""
        return bool(self._ledgers or self.rows)

    # ── the writer's ─────────────────────────────────────────────────────────────────────────────────

    def insert(self, ledger_id: int, first_id: int, records: Sequence[bytes]) -> None:
        """Takes records with consecutive ids; of an id inserted again the newer copy stays."""
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
        """The same for records in two parts, which measure `size` together; keeps the payloads.

        All fronts of a call have one size. Is it not that of the run, each record is split anew.
        """
        assert not self._is_frozen, "a frozen table never changes"
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            self._begin(ledger_id, first_id, fronts, payloads, size)
        elif entries.first + len(entries.run) == first_id > entries.highest_stray and len(
            fronts
        ) == entries.front_size * len(payloads):
            # Not by `extend`: every add comes here, and a call is a sixth of what it costs.
            entries.fronts += fronts
            entries.run += payloads
            self.size += size + RECORD_OVERHEAD * len(payloads)
        else:
            width = len(fronts) // len(payloads)
            parts = [fronts[start : start + width] for start in range(0, len(fronts), width)]
            self._put(
                entries, first_id, [front + payload for front, payload in zip(parts, payloads, strict=True)]
            )

    def _put(self, entries: Entries, first_id: int, records: Sequence[bytes]) -> None:
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
            entries = Entries(first_id, front_size)
            entries.extend(fronts, payloads)
            self._ledgers[ledger_id] = entries
            self.size += size + RECORD_OVERHEAD * len(payloads) + LEDGER_OVERHEAD

    def put_row(self, row: LedgerRow) -> None:
        """Takes a ledger's row; of two the later one stays."""
        assert not self._is_frozen, "a frozen table never changes"
        known = self.rows.get(row.ledger_id)
        if known is None:
            self.size += ROW_OVERHEAD
        if known is None or known.change <= row.change:
            self.rows[row.ledger_id] = row

    def drop(self, ledger_id: int) -> None:
        """Forgets a ledger's entries, not its row. The writer's, between two inserts; of a frozen table too.

        A reader, or the checkpoint's walk, that is in the middle of them goes on: they leave the table in one
        step, and nothing of them changes. What is written of them after that is dead by their tombstone.
        """
        entries = self._ledgers.pop(ledger_id, None)
        if entries is not None:
            self.size -= entries.size + LEDGER_OVERHEAD

    def freeze(self) -> None:
        """Nothing is inserted from now on: whoever writes the table down sees all of it."""
        self._is_frozen = True

    def close(self) -> None:
        """Lets go of the files that it reads; a table in memory has none."""

    def remains(self) -> list[list[bytes]]:
        """What it takes long to let go of, when nobody looks into the table: a list for each ledger."""
        return [entries.run for entries in self._ledgers.values()]

    # ── the readers' ─────────────────────────────────────────────────────────────────────────────────

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The record of an entry, if it is here."""
        entries = self._ledgers.get(ledger_id)
        return None if entries is None else entries.get(entry_id)

    def parts(self, ledger_id: int, first: int, count: int, front_size: int) -> tuple[bytes, list[bytes]]:
        """The fronts, one behind the other, and the payloads of consecutive entries from `first` on.

        Up to `count`, and perhaps fewer than there are. A record shorter than a front ends them.
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
        """The largest id of a ledger, if any of its entries is here."""
        entries = self._ledgers.get(ledger_id)
        return None if entries is None else entries.last_id

    def ids_from(self, ledger_id: int, first: int, count: int) -> list[int]:
        """Ascending ids from `first` on of entries that are here, as many as there are up to `count`."""
        entries = self._ledgers.get(ledger_id)
        return [] if entries is None else entries.ids_from(first, count)

    def ledgers(self) -> list[int]:
        """The ledgers with an entry here, ascending."""
        return sorted(self._ledgers)

    def pieces(self, ledger_id: int) -> Iterator[Piece]:
        """The records of a ledger, ascending, each id once, some at a time. Of a frozen table."""
        entries = self._ledgers.get(ledger_id)
        return iter(()) if entries is None else entries.pieces(ledger_id)

    def runs(self, ledger_id: int) -> Iterator[tuple[Sequence[int], list[bytes]]]:
        """The same as ids and records."""
        return ((one.ids, one.records()) for one in self.pieces(ledger_id))


def _guessed_front_size(records: Sequence[bytes]) -> int:
    """That of CRC-32C, which nearly every ledger has, unless a record is too short for it."""
    shortest = min(map(len, records), default=FRONT_SIZE)
    assert shortest >= HEAD_FRONT_SIZE, "no record is shorter than its head"
    return FRONT_SIZE if shortest >= FRONT_SIZE else HEAD_FRONT_SIZE


@dataclass(frozen=True, slots=True)
class Tables:
    """What a reader looks in: loaded once, so that no entry is on its way from one to the other."""

    active: Memtable
    frozen: Memtable | None = None
    both: tuple[Memtable, ...] = field(init=False)
    """The active one, and the frozen one if there is one."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "both", (self.active,) if self.frozen is None else (self.active, self.frozen)
        )
        # What stands here is being written to an entry log: an insert would be trimmed with the journals.
        if self.frozen is not None:
            self.frozen.freeze()

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The newest record of an entry, if it is in either."""
        record = self.active.get(ledger_id, entry_id)
        if record is None and self.frozen is not None:
            return self.frozen.get(ledger_id, entry_id)
        return record

    def last_id(self, ledger_id: int) -> int | None:
        """The largest id of a ledger in either."""
        tables = (self.active, self.frozen)
        last_ids = [table.last_id(ledger_id) for table in tables if table is not None]
        return max((last_id for last_id in last_ids if last_id is not None), default=None)

    def drop(self, ledger_id: int) -> None:
        """Forgets a ledger's entries in both. The writer's, between two inserts."""
        # First where the older copies are: a reader in between must not take one for the newest.
        if self.frozen is not None:
            self.frozen.drop(ledger_id)
        self.active.drop(ledger_id)


class Slot:
    """Where the tables of a store are found; replaced whole by the one who writes, between two inserts."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def freeze(self) -> None:
        """Freezes the active table, unless it is empty or one is frozen already."""
        tables = self.tables
        if tables.frozen is None and tables.active.has_content:
            self.tables = Tables(Memtable(tables.active.covers_until), tables.active)

    def thaw(self) -> None:
        """Readers look no more into the frozen table."""
        self.tables = Tables(self.tables.active, None)

    def close(self) -> None:
        """Lets go of the files that a table may read. When nobody reads any more."""
        if self.tables.frozen is not None:
            self.tables.frozen.close()
