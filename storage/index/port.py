"""The interface of an index: the location of each entry, the metadata of its ledger, and the checkpoint's
state.

It has two implementations: `storage.index.lmdb.index`, and an index of the tests on a simulated disk. A
change is atomic, for readers and after a crash. Readers need no lock and see the last committed change. Every
method raises `OSError` for an error of the system.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.read_result import Damaged
    from storage.index.state import IndexState


class IndexChange(Protocol):
    """One change, used in a `with`, by one thread. Leaving it without `commit` drops the change."""

    def put(self, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
        """Set the packed locations of these ascending entries; they replace earlier ones."""

    def put_rows(self, rows: Iterable[LedgerRecord]) -> None:
        """Set the rows of their ledgers; they replace earlier ones."""

    def remove(self, ledger_ids: Iterable[int]) -> None:
        """Remove all locations of these ledgers, except those that this change puts."""

    def remove_before(self, ledger_id: int, entry_id: int) -> None:
        """Remove the locations of the ledger's entries before that one, also those that this change puts."""

    def move(
        self, ledger_id: int, entry_ids: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> None:
        """Set the packed locations of these ascending entries to `after` where they are `before`.

        They are compared and set by the commit: an entry that has another location then, or none, is left
        alone.
        """

    def remove_rows(self, ledger_ids: Iterable[int]) -> None:
        """Remove the rows of these ledgers, except those that this change puts."""

    def commit(self, state: IndexState | None) -> None:
        """Make the change durable and visible, in one step. `None` keeps the state as it is."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class IndexReader(Protocol):
    """Finds the locations of entries. Threads may share it."""

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the packed location of an entry; `None` if it has none."""

    def locations(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        """Return up to `count` pairs of entry id and packed location, ascending, from entry `first` on."""

    def last(self, ledger_id: int) -> tuple[int, int] | None:
        """Return the pair with the largest entry id of a ledger; `None` if it has no location."""

    def count(self, ledger_id: int) -> int:
        """Return how many entries of the ledger have a location."""

    def ledgers(self) -> Iterator[int]:
        """Yield every ledger with a location, ascending; may see a part of a change committed meanwhile."""


class Index(IndexReader, Protocol):
    """An open index. Threads may share it; one change at a time."""

    def state(self) -> IndexState:
        """Return the state that the last change committed."""

    def rows(self) -> Iterator[LedgerRecord]:
        """Yield every row, by ascending ledger; may see a part of a change committed meanwhile.

        `OSError` if a row is damaged.
        """

    def all_rows(self, like: Mapping[int, LedgerRecord]) -> Mapping[int, LedgerRecord]:
        """Return all rows as a table. Faster than `rows`, above all if most rows are equal to `like`'s."""

    def count_by_log(self) -> Iterator[Mapping[int, int]]:
        """Yield how many locations are in each log, for one part of the index after the other.

        Each part takes bounded memory and a short time; a caller adds them up. A change that is committed
        meanwhile may be seen in part: a location that no change adds or removes is counted exactly once.
        """

    def used_bytes(self) -> int:
        """Return how many bytes of its file are in use; later changes fill the others before it grows."""

    def change(self) -> IndexChange:
        """Begin a change."""

    def sync(self) -> None:
        """Make what readers see durable, file names included; a killed writer may not have done it."""

    def close(self) -> None:
        """Close the index: from now on each method raises `OSError` in every thread. Syncs nothing."""


class IndexDraft(Protocol):
    """An index under construction. No reader sees it before `publish`."""

    def change(self) -> IndexChange:
        """Begin a change of the draft."""

    def publish(self) -> Index:
        """Give the draft the name of the index, atomically and durably, and open it. Keep the old index
        aside."""

    def close(self) -> None:
        """Give the draft up; the next draft removes its files."""


@dataclass(frozen=True, slots=True)
class NoIndex:
    """There is no index: the store is being created, or has lost it."""


class IndexDirectory(Protocol):
    """The place where a store keeps its index."""

    def open(self) -> Index | NoIndex | Damaged:
        """Open the index. `Damaged` if its file is not safe to read."""

    def draft(self) -> IndexDraft:
        """Begin a new, empty index, in place of an unfinished draft of an earlier process."""
