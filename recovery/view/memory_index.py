"""An index in memory, with 16 bytes for each entry, for views of stores without a readable index."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Self

from storage.entry.ledger_record_table import table_of
from storage.index.port import NoIndex
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.read_result import Damaged
    from storage.index.port import Index


class _LedgerLocations:
    """The locations of one ledger's entries, ascending by entry id."""

    __slots__ = ("ids", "locations")

    def __init__(self) -> None:
        self.ids = array("q")
        self.locations = array("q")

    def put(self, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
        if not self.ids or entry_ids[0] > self.ids[-1]:
            self.ids.extend(entry_ids)
            self.locations.extend(locations)
            return
        known = dict(zip(self.ids, self.locations, strict=True)) | dict(
            zip(entry_ids, locations, strict=True)
        )
        self.ids = array("q", sorted(known))
        self.locations = array("q", [known[entry_id] for entry_id in self.ids])

    def remove_before(self, entry_id: int) -> None:
        start = bisect_left(self.ids, entry_id)
        del self.ids[:start]
        del self.locations[:start]

    def move(self, moves: Mapping[int, tuple[int, int]]) -> None:
        """Move the entries that still have the location before."""
        for at, entry_id in enumerate(self.ids):
            before, after = moves.get(entry_id, (None, 0))
            if self.locations[at] == before:
                self.locations[at] = after

    def pairs(self, first: int, count: int) -> list[tuple[int, int]]:
        start = bisect_left(self.ids, first)
        place = slice(start, start + count)
        return list(zip(self.ids[place], self.locations[place], strict=True))


class MemoryIndex:
    """An index without files. For one thread while it changes."""

    def __init__(self) -> None:
        self._state = IndexState()
        self._places: dict[int, _LedgerLocations] = {}
        self._rows: dict[int, LedgerRecord] = {}

    def state(self) -> IndexState:
        return self._state

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        found = self.locations(ledger_id, entry_id, 1)
        return found[0][1] if found and found[0][0] == entry_id else None

    def locations(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        places = self._places.get(ledger_id)
        return [] if places is None else places.pairs(first, count)

    def last(self, ledger_id: int) -> tuple[int, int] | None:
        places = self._places.get(ledger_id)
        return None if places is None else (places.ids[-1], places.locations[-1])

    def count(self, ledger_id: int) -> int:
        places = self._places.get(ledger_id)
        return 0 if places is None else len(places.ids)

    def ledgers(self) -> Iterator[int]:
        return iter(sorted(self._places))

    def count_by_log(self) -> Iterator[Mapping[int, int]]:
        for _, places in sorted(self._places.items()):
            yield Counter(location >> 32 for location in places.locations)

    def all_rows(self, _like: Mapping[int, LedgerRecord]) -> Mapping[int, LedgerRecord]:
        return table_of(self.rows())

    def rows(self) -> Iterator[LedgerRecord]:
        return iter([row for _, row in sorted(self._rows.items())])

    def used_bytes(self) -> int:
        return 0

    def change(self) -> MemoryChange:
        return MemoryChange(self)

    def apply(self, change: MemoryChange, state: IndexState | None) -> None:
        """Make the change visible to readers."""
        for ledger_id in change.removed:
            self._places.pop(ledger_id, None)
        for ledger_id, moves in change.moves:
            if (places := self._places.get(ledger_id)) is not None:
                places.move(moves)
        for ledger_id in change.removed_rows:
            self._rows.pop(ledger_id, None)
        for ledger_id, entry_ids, locations in change.runs:
            if entry_ids:
                self._places.setdefault(ledger_id, _LedgerLocations()).put(entry_ids, locations)
        for ledger_id, entry_id in change.truncated:
            places = self._places.get(ledger_id)
            if places is not None:
                places.remove_before(entry_id)
                if not places.ids:
                    del self._places[ledger_id]
        self._rows.update((row.ledger_id, row) for row in change.rows)
        self._state = self._state if state is None else state

    def sync(self) -> None:
        pass

    def publish(self) -> Index:
        return self

    def close(self) -> None:
        pass


class MemoryChange:
    """One change, until it is committed."""

    def __init__(self, index: MemoryIndex) -> None:
        self._index = index
        self.removed: set[int] = set()
        self.truncated: list[tuple[int, int]] = []
        self.runs: list[tuple[int, Sequence[int], Sequence[int]]] = []
        self.rows: list[LedgerRecord] = []
        self.moves: list[tuple[int, dict[int, tuple[int, int]]]] = []
        """Ledger id, and by entry id the locations before and after."""
        self.removed_rows: set[int] = set()

    def put(self, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
        self.runs.append((ledger_id, entry_ids, locations))

    def put_rows(self, rows: Iterable[LedgerRecord]) -> None:
        self.rows += rows

    def remove(self, ledger_ids: Iterable[int]) -> None:
        self.removed.update(ledger_ids)

    def remove_before(self, ledger_id: int, entry_id: int) -> None:
        self.truncated.append((ledger_id, entry_id))

    def move(
        self, ledger_id: int, entry_ids: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> None:
        pairs = zip(before, after, strict=True)
        self.moves.append((ledger_id, dict(zip(entry_ids, pairs, strict=True))))

    def remove_rows(self, ledger_ids: Iterable[int]) -> None:
        self.removed_rows.update(ledger_ids)

    def commit(self, state: IndexState | None) -> None:
        self._index.apply(self, state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass


class MemoryIndexDirectory:
    """An index directory whose drafts are in memory; `open_index` opens the existing index."""

    def __init__(self, open_index: Callable[[], Index | NoIndex | Damaged] = NoIndex) -> None:
        self._open_index = open_index

    def open(self) -> Index | NoIndex | Damaged:
        return self._open_index()

    def draft(self) -> MemoryIndex:
        return MemoryIndex()
