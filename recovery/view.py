"""A store as it was at one moment, for who only looks: what index, logs and journals hold together."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING, TypeVar

from storage.codec import entry as entry_codec
from storage.entry import NO_ENTRY, RECORD_SIZE_MAX
from storage.outcome import Damaged
from storage.position import LENGTH_WORD_SIZE, EntryLocation
from storage.warden import confirmed_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.codec.digest import Digester
    from storage.codec.entry import Head
    from storage.index import Index
    from storage.log_shelf import LogShelf
    from storage.memtable import Slot
    from storage.reading import Reading
    from storage.registry import Registry
    from storage.report import IndexFound
    from storage.row import LedgerRow

Answer = TypeVar("Answer")

_ALL = sys.maxsize
_PLACES = 4096
_PATIENCE = 10


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where something of a ledger stands: in a journal, in an entry log, or in both."""

    journal_id: int | None
    location: EntryLocation | None


class View:
    """What a store held when it was looked at. Close it, or use `with`; for one thread.

    Takes no lock, writes nothing, and may stand beside the process that has the store open: what was
    acknowledged before it was made is there, and what that process moves into its index later is too. A
    ledger that is deleted later may go from it, or show in part.
    """

    def __init__(
        self,
        path: str,
        how: IndexFound,
        findings: tuple[str, ...],
        index: Index,
        slot: Slot,
        registry: Registry,
        reading: Reading,
        shelf: LogShelf,
        newest: dict[int, tuple[int, int]],
    ) -> None:
        self.path = path
        self.how = how
        """What its index is."""
        self.findings = findings
        """What is wrong and did not keep anybody from looking, each with its finding's id."""
        self._index = index
        self._slot = slot
        self._registry = registry
        self._reading = reading
        self._shelf = shelf
        self._newest = newest
        """For each ledger in the journals its largest id there, and the journal that has it."""

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._shelf.close()
        self._index.close()

    def steadily(self, ask: Callable[[], Answer]) -> Answer:
        """What `ask` finds out without a checkpoint in between: beside a live store the index goes on."""
        for _ in range(_PATIENCE):
            before = self._index.state().generation
            answer = ask()
            if self._index.state().generation == before:
                return answer
        return ask()

    # ── ledgers ──────────────────────────────────────────────────────────────────────────────────────

    def ledgers(self) -> list[int]:
        """Every ledger that exists, ascending, be it without entries."""
        return sorted({*self._reading.ledgers(), *self._registry.existing()})

    def exists(self, ledger_id: int) -> bool:
        """Whether there is such a ledger."""
        return self.last_id(ledger_id) is not None or self.facts(ledger_id).makes_a_ledger

    def may_lack(self, ledger_id: int) -> bool:
        """Whether what is not found of the ledger may have been here all the same."""
        return self._registry.may_lack(ledger_id)

    @property
    def is_whole(self) -> bool:
        """Whether no entry was lost when the index was made."""
        return self._index.state().is_whole

    def facts(self, ledger_id: int) -> LedgerRow:
        """What is known of the ledger beside its entries."""
        return self._registry.of(ledger_id)

    def digester(self, ledger_id: int) -> Digester | None:
        """What verifies its entries, a MAC without its key; `None` where nothing tells."""
        return self._registry.digester(ledger_id)

    # ── where its entries are ────────────────────────────────────────────────────────────────────────

    def ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """The ids of its entries from `first` to `last`, both included, ascending."""
        before = None
        for entry_id in merge(self.journaled_ids(ledger_id, first), self._placed_ids(ledger_id, first)):
            if last is not None and entry_id > last:
                return
            if entry_id != before:
                yield entry_id
            before = entry_id

    def journaled_ids(self, ledger_id: int, first: int = 0) -> list[int]:
        """Those from `first` on that stand in a journal behind the mark."""
        return self._slot.tables.active.ids_from(ledger_id, first, _ALL)

    def _placed_ids(self, ledger_id: int, first: int) -> Iterator[int]:
        return (entry_id for entry_id, _ in self.places(ledger_id, first))

    def places(self, ledger_id: int, first: int = 0) -> Iterator[tuple[int, EntryLocation]]:
        """The entries that lie in entry logs, ascending, each with its location."""
        while places := self._index.places(ledger_id, first, _PLACES):
            for entry_id, packed in places:
                yield entry_id, EntryLocation.unpack(packed)
            first = places[-1][0] + 1

    def count(self, ledger_id: int) -> int:
        """How many entries it has."""
        placed = self._index.last(ledger_id)
        last = NO_ENTRY if placed is None else placed[0]
        journaled = self.journaled_ids(ledger_id)
        # What a checkpoint has moved since the mark is in both.
        more = sum(1 for one in journaled if one > last or self._index.find(ledger_id, one) is None)
        return self._index.count(ledger_id) + more

    def first_id(self, ledger_id: int) -> int | None:
        """The smallest id of an entry; `None` if it has none."""
        return next(self.ids(ledger_id), None)

    def last_id(self, ledger_id: int) -> int | None:
        """The largest id of an entry; `None` if it has none."""
        return self._reading.last_id(ledger_id)

    def whereabouts(self, ledger_id: int) -> Whereabouts:
        """The newest journal and the last place with entries of the ledger."""
        journaled, placed = self._newest.get(ledger_id), self._index.last(ledger_id)
        return Whereabouts(
            None if journaled is None else journaled[1],
            None if placed is None else EntryLocation.unpack(placed[1]),
        )

    def whereabouts_of_last(self, ledger_id: int) -> Whereabouts:
        """Where the entry with the largest id stands."""
        last = self.last_id(ledger_id)
        found = self.whereabouts(ledger_id)
        is_journaled = last is not None and self._slot.tables.get(ledger_id, last) is not None
        placed = self._index.last(ledger_id)
        is_placed = placed is not None and placed[0] == last
        return Whereabouts(found.journal_id if is_journaled else None, found.location if is_placed else None)

    def location(self, ledger_id: int, entry_id: int) -> EntryLocation | None:
        """Where in an entry log the entry is read from; `None` where it is read from a journal."""
        if self._slot.tables.get(ledger_id, entry_id) is not None:
            return None
        packed = self._index.find(ledger_id, entry_id)
        return None if packed is None else EntryLocation.unpack(packed)

    def size_at(self, location: EntryLocation) -> int | None:
        """Bytes of the record there, its length word included; `None` where none can be read."""
        try:
            word = self._shelf.read(location.pack(), LENGTH_WORD_SIZE)
        except OSError:
            return None
        size = int.from_bytes(word, "big", signed=True)
        is_whole = len(word) == LENGTH_WORD_SIZE and 0 < size <= RECORD_SIZE_MAX
        return LENGTH_WORD_SIZE + size if is_whole else None

    # ── entries ──────────────────────────────────────────────────────────────────────────────────────

    def data(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The entry's bytes, its ids verified and its digest not; `None` if there is none.

        `EntryUnreadable` where what stands there is no such entry.
        """
        return self._reading.data(ledger_id, entry_id, None)

    def end(self, ledger_id: int) -> Head | None:
        """What its last entry says, digest verified where that takes no password; `None` if it has none.

        `EntryUnreadable` as for `data`.
        """
        last = self.last_id(ledger_id)
        if last is None:
            return None
        data = self._reading.data(ledger_id, last, self.digester(ledger_id))
        if data is None:
            return None
        head = entry_codec.decode_head(data)
        assert not isinstance(head, Damaged), "it was verified"
        return head

    def last_add_confirmed(self, ledger_id: int, end: Head | None) -> int:
        """The largest that its writer has said, with the last entry or explicitly; -1 if nothing."""
        return max(confirmed_by(self.facts(ledger_id)), NO_ENTRY if end is None else end.last_add_confirmed)
