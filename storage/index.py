"""What we ask of an index: where each entry lies, what is known of its ledger, and up to where that is true.

Two adapters stand behind this port: `storage.lmdb_index`, and a stand-in of the tests that lives on a
simulated disk. A change is seen whole or not at all, by readers and after a crash. Reading needs no lock
and sees the last change that was committed. Every verb raises `OSError` when the system refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from storage.index_state import IndexState
    from storage.outcome import Damaged
    from storage.row import LedgerRow


class IndexChange(Protocol):
    """One change, owned by a `with`: left without `commit` it never happened. For one thread."""

    def put(self, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
        """Places (packed locations) for these ascending entries; an entry placed before is placed anew."""

    def put_rows(self, rows: Iterable[LedgerRow]) -> None:
        """These rows, each in the place of the one that its ledger had."""

    def remove(self, ledger_ids: Iterable[int]) -> None:
        """No entry of these ledgers has a place any more, but for those that this change puts."""

    def commit(self, state: IndexState | None) -> None:
        """When it returns, the change is durable and readers see it; `None` leaves the state as it is."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Index(Protocol):
    """An open index. Threads may share it; one change at a time."""

    def state(self) -> IndexState:
        """What the last committed change said."""

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        """The packed location of an entry; `None` if it has none."""

    def places(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        """Up to `count` pairs of entry id and packed location, ascending, from entry `first` on."""

    def last(self, ledger_id: int) -> tuple[int, int] | None:
        """The pair with the largest entry id of a ledger; `None` if it has none."""

    def count(self, ledger_id: int) -> int:
        """How many entries of the ledger have a place."""

    def ledgers(self) -> Iterator[int]:
        """Every ledger with a place, ascending; of a change committed meanwhile, some may show."""

    def rows(self) -> Iterator[LedgerRow]:
        """Every row, by ascending ledger; of a change committed meanwhile, some may show.

        `OSError` when one is damaged.
        """

    def change(self) -> IndexChange:
        """Begins a change."""

    def sync(self) -> None:
        """When it returns, what readers see is durable, name included: a killed writer may have left it."""

    def close(self) -> None:
        """Ends it for every thread: from here on each verb raises `OSError`. Nothing is made durable."""


class IndexDraft(Protocol):
    """An index under construction, invisible until it is published."""

    def change(self) -> IndexChange:
        """Begins a change of the draft."""

    def publish(self) -> Index:
        """Gives it the index's name, in one step and durably, and opens it. What had it is kept aside."""

    def close(self) -> None:
        """Gives it up; what there is of it is removed by the next draft."""


@dataclass(frozen=True, slots=True)
class NoIndex:
    """There is none: a store that is being made, or one that has lost it."""


class IndexPlace(Protocol):
    """Where a store keeps its index."""

    def open(self) -> Index | NoIndex | Damaged:
        """The index that is there, if its file is whole enough to be touched."""

    def draft(self) -> IndexDraft:
        """A new, empty index; an unfinished draft of an earlier process is replaced."""
