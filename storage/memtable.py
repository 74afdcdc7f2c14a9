"""What is durable in the journals and not yet in the entry logs, kept where it can be read.

One thread inserts; any number read meanwhile, without a lock. What they rely on is that the interpreter does
one operation on a list or a dict at a time, and on these orders:

    a new ledger     is filled before the table has it
    the run          of a ledger only grows and never moves: a place in it belongs to the same entry for ever
    a stray          that the run has reached is appended to the run, and only then leaves the strays: whoever
                     looks among the strays first, and then in the run, finds it in one of them
    the largest id   is raised when its record can be found

An entry is one record, put in its place as a whole; of several entries inserted at once a reader may see the
first before the last. Which entries may be told of is for others to say (`storage.tail`).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.entry import NO_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.position import JournalPosition

RECORD_OVERHEAD = 49
"""Bytes of memory beside a record's own: the object's head, its slot in a list, what allocators round up."""

STRAY_OVERHEAD = 90
"""What it costs beyond that while it is a stray: the id as an object, and a share of a dict."""

LEDGER_OVERHEAD = 400
"""What a ledger costs, however few its entries."""


class _Entries:
    """The entries of one ledger: a run without a gap, and strays before and behind it."""

    __slots__ = ("_changes", "_ordered", "first", "highest_stray", "run", "strays")

    def __init__(self, first_id: int, records: Sequence[bytes]) -> None:
        self.first = first_id
        self.run = list(records)
        self.strays: dict[int, bytes] = {}
        self.highest_stray = NO_ENTRY
        """The largest id that ever was a stray; above the run's end as long as one lies behind it."""
        self._changes = 0
        self._ordered: tuple[int, list[int]] = (0, [])

    @property
    def end(self) -> int:
        """The id behind the run."""
        return self.first + len(self.run)

    @property
    def last_id(self) -> int:
        return max(self.end - 1, self.highest_stray)

    # ── the writer's ─────────────────────────────────────────────────────────────────────────────────

    def put(self, entry_id: int, record: bytes) -> int:
        """Takes an entry with any id; answers with the bytes of memory that it adds."""
        at = entry_id - self.first
        if 0 <= at < len(self.run):
            added = len(record) - len(self.run[at])
            self.run[at] = record
            return added
        if at == len(self.run):
            self.run.append(record)
            return len(record) + RECORD_OVERHEAD + self._join_strays()
        return self._put_stray(entry_id, record)

    def _put_stray(self, entry_id: int, record: bytes) -> int:
        replaced = self.strays.get(entry_id)
        self.strays[entry_id] = record
        if replaced is not None:
            return len(record) - len(replaced)
        self._changes += 1
        self.highest_stray = max(self.highest_stray, entry_id)
        return len(record) + RECORD_OVERHEAD + STRAY_OVERHEAD

    def _join_strays(self) -> int:
        """Moves the strays that follow the run into it; answers with the bytes it adds, none or fewer."""
        added = 0
        while (record := self.strays.get(entry_id := self.end)) is not None:
            # Before it leaves the strays: a reader in between must find it in one of them.
            self.run.append(record)
            del self.strays[entry_id]
            self._changes += 1
            added -= STRAY_OVERHEAD
        return added

    # ── the readers' ─────────────────────────────────────────────────────────────────────────────────

    def ids_from(self, first: int, count: int) -> list[int]:
        strays = self._ordered_strays()  # before the run's end is read: what left them since is in the run
        run = range(self.first, self.end)
        start, below = bisect_left(strays, first), bisect_left(strays, run.start)
        behind = bisect_left(strays, max(first, run.stop))
        ids = strays[start : min(below, start + count)]
        ids += run[max(0, first - run.start) :][: count - len(ids)]
        ids += strays[behind : behind + count - len(ids)]
        return ids

    def runs(self) -> Iterator[tuple[list[int] | range, list[bytes]]]:
        strays = self._ordered_strays()
        split = bisect_left(strays, self.first)
        if split:
            yield strays[:split], [self.strays[entry_id] for entry_id in strays[:split]]
        yield range(self.first, self.end), self.run
        if split < len(strays):
            yield strays[split:], [self.strays[entry_id] for entry_id in strays[split:]]

    def _ordered_strays(self) -> list[int]:
        # The number of changes is read first, and raised by the writer behind each change: what was sorted
        # too early carries too small a number, and is sorted again.
        changes = self._changes
        sorted_at, ordered = self._ordered
        if sorted_at != changes:
            ordered = sorted(self.strays)
            self._ordered = changes, ordered
        return ordered


class Memtable:
    """Records by ledger and entry. One thread writes, until the table is frozen; any may read."""

    def __init__(self, covers_until: JournalPosition) -> None:
        self.covers_until = covers_until
        """Every record before it in the journals is here, or in the entry logs. Stands still once frozen."""
        self.size = 0
        """Bytes of memory that the table takes."""
        self._ledgers: dict[int, _Entries] = {}
        self._is_frozen = False

    def __len__(self) -> int:
        """How many entries there are, between two inserts."""
        return sum(len(entries.run) + len(entries.strays) for entries in list(self._ledgers.values()))

    # ── the writer's ─────────────────────────────────────────────────────────────────────────────────

    def insert(
        self, ledger_id: int, first_id: int, records: Sequence[bytes], size: int | None = None
    ) -> None:
        """Takes records with consecutive ids; of an id inserted again the newer copy stays.

        `size` is what the records measure together, if the caller has counted it.
        """
        assert not self._is_frozen, "a frozen table never changes"
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            self._begin(ledger_id, first_id, records)
            return
        run = entries.run
        if first_id != entries.first + len(run) or first_id <= entries.highest_stray:
            self._put_each(entries, first_id, records)
            return
        run += records
        count = len(records)
        if size is None:
            size = len(records[0]) if count == 1 else sum(map(len, records))
        self.size += size + RECORD_OVERHEAD * count

    def _begin(self, ledger_id: int, first_id: int, records: Sequence[bytes]) -> None:
        if records:
            self._ledgers[ledger_id] = _Entries(first_id, records)
            self.size += sum(map(len, records)) + RECORD_OVERHEAD * len(records) + LEDGER_OVERHEAD

    def _put_each(self, entries: _Entries, first_id: int, records: Sequence[bytes]) -> None:
        for entry_id, record in enumerate(records, first_id):
            self.size += entries.put(entry_id, record)

    def freeze(self) -> None:
        """Nothing is inserted from now on: whoever writes the table down sees all of it."""
        self._is_frozen = True

    # ── the readers' ─────────────────────────────────────────────────────────────────────────────────

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The record of an entry, if it is here."""
        entries = self._ledgers.get(ledger_id)
        if entries is None:
            return None
        # The strays first, see above. Hardly a ledger has any.
        if entries.strays and (record := entries.strays.get(entry_id)) is not None:
            return record
        run, at = entries.run, entry_id - entries.first
        return run[at] if 0 <= at < len(run) else None

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

    def runs(self, ledger_id: int) -> Iterator[tuple[list[int] | range, list[bytes]]]:
        """Ids and records of a ledger, ascending, each id once. Of a frozen table; the lists are its own."""
        entries = self._ledgers.get(ledger_id)
        return iter(()) if entries is None else entries.runs()


@dataclass(frozen=True, slots=True)
class Tables:
    """What a reader looks in: loaded once, so that no entry is on its way from one to the other."""

    active: Memtable
    frozen: Memtable | None = None

    def __post_init__(self) -> None:
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


class Slot:
    """Where the tables of a store are found; replaced whole by the one who writes, between two inserts."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
