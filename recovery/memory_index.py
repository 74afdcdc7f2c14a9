"""An index in memory, 16 bytes an entry: for looking at files whose own index is missing or unreadable."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Self

from storage.index import NoIndex
from storage.index_state import IndexState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from storage.index import Index
    from storage.outcome import Damaged
    from storage.row import LedgerRow


class _Places:
    """Those of one ledger, ascending."""

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

    def pairs(self, first: int, count: int) -> list[tuple[int, int]]:
        start = bisect_left(self.ids, first)
        place = slice(start, start + count)
        return list(zip(self.ids[place], self.locations[place], strict=True))


class MemoryIndex:
    """An index that nobody else has. For one thread while it changes."""

    def __init__(self) -> None:
        self._state = IndexState()
        self._places: dict[int, _Places] = {}
        self._rows: dict[int, LedgerRow] = {}

    def state(self) -> IndexState:
        return self._state

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        found = self.places(ledger_id, entry_id, 1)
        return found[0][1] if found and found[0][0] == entry_id else None

    def places(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
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

    def rows(self) -> Iterator[LedgerRow]:
        return iter([row for _, row in sorted(self._rows.items())])

    def change(self) -> MemoryChange:
        return MemoryChange(self)

    def apply(self, change: MemoryChange, state: IndexState | None) -> None:
        """Makes the change what readers see."""
        for ledger_id in change.removed:
            self._places.pop(ledger_id, None)
        for ledger_id, entry_ids, locations in change.runs:
            if entry_ids:
                self._places.setdefault(ledger_id, _Places()).put(entry_ids, locations)
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
        self.runs: list[tuple[int, Sequence[int], Sequence[int]]] = []
        self.rows: list[LedgerRow] = []

    def put(self, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
        self.runs.append((ledger_id, entry_ids, locations))

    def put_rows(self, rows: Iterable[LedgerRow]) -> None:
        self.rows += rows

    def remove(self, ledger_ids: Iterable[int]) -> None:
        self.removed.update(ledger_ids)

    def commit(self, state: IndexState | None) -> None:
        self._index.apply(self, state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass


class MemoryPlace:
    """Where an index is made in memory, beside the one that `look` finds."""

    def __init__(self, look: Callable[[], Index | NoIndex | Damaged] = NoIndex) -> None:
        self._look = look

    def open(self) -> Index | NoIndex | Damaged:
        return self._look()

    def draft(self) -> MemoryIndex:
        return MemoryIndex()
