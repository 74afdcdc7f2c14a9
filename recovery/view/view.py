"""The content of a store that is read without opening it, from index, entry logs and journals together."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING, TypeVar

from recovery.view.ledger import ViewLedger
from storage.commit.pending import confirmed_without_entries
from storage.entry import format as entry_format
from storage.entry.model import NO_ENTRY, RECORD_SIZE_MAX
from storage.entry.position import LENGTH_WORD_SIZE, EntryLocation
from storage.entry.read_result import MISSING, Damaged, Unreadable
from storage.read.points import unreadable
from storage.validation import access_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.entry.digest import Digester
    from storage.entry.format import Head
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.model import DigestType
    from storage.entrylog.open_logs import OpenEntryLogs
    from storage.index.port import Index
    from storage.index.visible import VisibleIndex
    from storage.ledgers.metadata import LedgerMetadata
    from storage.memtable.table import Slot
    from storage.open_report import IndexFound
    from storage.read.points import PointReader
    from storage.read.ranges import RangeReader

Answer = TypeVar("Answer")

_ALL = sys.maxsize
_PLACES = 4096
_CONSISTENT_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The places of an entry: in a journal, in an entry log, or in both."""

    journal_id: int | None
    location: EntryLocation | None


@dataclass(frozen=True, slots=True, eq=False)
class ViewSnapshot:
    """Everything that a view reads from. A refresh updates it or replaces it."""

    index_found: IndexFound
    findings: tuple[str, ...]
    index: Index
    visible: VisibleIndex
    """The index without the locations of ledgers that were deleted after its last change."""
    slot: Slot
    metadata: LedgerMetadata
    reader: PointReader
    range_reader: RangeReader
    open_logs: OpenEntryLogs
    newest: dict[int, tuple[int, int]]
    """For each ledger in the journals, its largest entry id there and the journal that contains it."""

    def close(self) -> None:
        self.open_logs.close()
        self.index.close()


class View:
    """The content of a store when the view was opened or last refreshed. Close it, or use `with`.

    For one thread. A view takes no lock, writes nothing, and works beside the process that has the store
    open. It shows everything that was acknowledged before, also if that process moves it into its index
    later. A ledger that is deleted later may disappear from the view, or show in part.
    """

    def __init__(
        self, path: str, snapshot: ViewSnapshot, refresh_snapshot: Callable[[], ViewSnapshot]
    ) -> None:
        """`refresh_snapshot` updates the snapshot and returns it, or closes it and returns another one."""
        self.path = path
        self.snapshot = snapshot
        self._refresh_snapshot = refresh_snapshot
        self._is_open = True
        self._warns = False

    @property
    def index_found(self) -> IndexFound:
        """How the index was found: good, rebuilt in memory, or made from a bookie's files."""
        return self.snapshot.index_found

    @property
    def findings(self) -> tuple[str, ...]:
        """Damage of the store that does not prevent reading, each with the id of its finding."""
        return self.snapshot.findings

    def refresh(self) -> None:
        """Move on to the content that is durable now; iterators that were begun before go on.

        It reads the groups that were added to the journals since the last time, or, after a checkpoint, a
        delete or a fence, the journals from the mark on. If a bookie has written there, or the index was lost
        or made again, it reads everything anew, as `open_view` does; if that raises, the view is closed.
        """
        self._is_open = False  # unless it can go on
        self.snapshot = self._refresh_snapshot()
        self._is_open = True

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if self._warns and self._is_open:
            try:
                _warn(f"unclosed view {self.path}", ResourceWarning, source=self, stacklevel=2)
            finally:
                self.close()

    def warn_if_unclosed(self) -> None:
        """Warn when it is collected before it was closed. Views of simulated disks need not be closed."""
        self._warns = True

    def close(self) -> None:
        """Close its files."""
        self._is_open = False
        self.snapshot.close()

    def consistently(self, ask: Callable[[], Answer]) -> Answer:
        """Return the answer of `ask`, repeated if a live store has made a checkpoint in between."""
        for _ in range(_CONSISTENT_ATTEMPTS):
            before = self.snapshot.index.state().generation
            answer = ask()
            if self.snapshot.index.state().generation == before:
                return answer
        return ask()

    # ── ledgers ──────────────────────────────────────────────────────────────────────────────────────

    def ledger(self, ledger_id: int, digest: DigestType | None = None, password: bytes = b"") -> ViewLedger:
        """Return the ledger of that id, to read it; it need not exist.

        `digest` is only needed if the digest type is unknown, and `password` only for a MAC.
        """
        return ViewLedger(ledger_id, access_of(password, digest), self)

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers that exist, ascending."""
        return sorted({*self.snapshot.reader.ledgers(), *self.snapshot.metadata.existing_ledgers()})

    def exists(self, ledger_id: int) -> bool:
        """Whether the ledger exists: it has an entry, is fenced, or has an explicit last add confirmed."""
        return self.last_id(ledger_id) is not None or self.metadata(ledger_id).makes_a_ledger

    def may_have_lost_entries(self, ledger_id: int) -> bool:
        """Return whether an entry of the ledger that is not found may have been lost."""
        return self.snapshot.metadata.may_have_lost_entries(ledger_id)

    @property
    def is_whole(self) -> bool:
        """Whether no entry was lost when the index was made."""
        return self.snapshot.index.state().is_whole

    def metadata(self, ledger_id: int) -> LedgerRecord:
        """Return the ledger's metadata."""
        return self.snapshot.metadata.of(ledger_id)

    def digester(self, ledger_id: int) -> Digester | None:
        """Return the verifier of its entries, a MAC without its key; `None` if the digest type is unknown."""
        return self.snapshot.metadata.digester(ledger_id)

    @property
    def journaled_entries(self) -> int:
        """How many entries are in the journals from the mark on, which an opening would replay."""
        return len(self.snapshot.slot.tables.active)

    @property
    def tombstones(self) -> int:
        """How many tombstones of deleted ledgers the store still needs."""
        return self.snapshot.metadata.count_tombstones()

    # ── the places of entries ────────────────────────────────────────────────────────────────────────

    def ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of its entries from `first` to `last`, both included, ascending."""
        before = None
        for entry_id in merge(self.journaled_ids(ledger_id, first), self._placed_ids(ledger_id, first)):
            if last is not None and entry_id > last:
                return
            if entry_id != before:
                yield entry_id
            before = entry_id

    def journaled_ids(self, ledger_id: int, first: int = 0) -> list[int]:
        """Return the ids from `first` on of entries in a journal after the mark."""
        return self.snapshot.slot.tables.active.ids_from(ledger_id, first, _ALL)

    def _placed_ids(self, ledger_id: int, first: int) -> Iterator[int]:
        return (entry_id for entry_id, _ in self.places(ledger_id, first))

    def places(self, ledger_id: int, first: int = 0) -> Iterator[tuple[int, EntryLocation]]:
        """Yield the ids of entries in entry logs, ascending, each with its location."""
        while places := self.snapshot.visible.locations(ledger_id, first, _PLACES):
            for entry_id, packed in places:
                yield entry_id, EntryLocation.unpack(packed)
            first = places[-1][0] + 1

    def count(self, ledger_id: int) -> int:
        """Return how many entries it has."""
        placed = self.snapshot.visible.last(ledger_id)
        last = NO_ENTRY if placed is None else placed[0]
        journaled = self.journaled_ids(ledger_id)
        # Entries that a checkpoint has moved since the mark are in both.
        more = sum(1 for one in journaled if one > last or self.snapshot.visible.find(ledger_id, one) is None)
        return self.snapshot.visible.count(ledger_id) + more

    def first_id(self, ledger_id: int) -> int | None:
        """Return the smallest id of an entry; `None` if it has none."""
        return next(self.ids(ledger_id), None)

    def last_id(self, ledger_id: int) -> int | None:
        """Return the id of its last entry, even if it was truncated; `None` if it never had one."""
        found, first_entry_id = self.snapshot.reader.last_id(ledger_id), self.first_entry_id(ledger_id)
        return first_entry_id - 1 if first_entry_id and found is None else found

    def first_entry_id(self, ledger_id: int) -> int:
        """Return the first id that was not truncated."""
        return self.metadata(ledger_id).first_entry_id

    def whereabouts(self, ledger_id: int) -> Whereabouts:
        """Return the newest journal and the last location with entries of the ledger."""
        journaled, placed = self.snapshot.newest.get(ledger_id), self.snapshot.visible.last(ledger_id)
        if journaled is not None and journaled[0] < self.first_entry_id(ledger_id):
            journaled = None  # truncated since
        return Whereabouts(
            None if journaled is None else journaled[1],
            None if placed is None else EntryLocation.unpack(placed[1]),
        )

    def whereabouts_of_last(self, ledger_id: int) -> Whereabouts:
        """Return the places of the entry with the largest id."""
        last = self.last_id(ledger_id)
        found = self.whereabouts(ledger_id)
        is_journaled = last is not None and self.snapshot.slot.tables.get(ledger_id, last) is not None
        placed = self.snapshot.visible.last(ledger_id)
        is_placed = placed is not None and placed[0] == last
        return Whereabouts(found.journal_id if is_journaled else None, found.location if is_placed else None)

    def location(self, ledger_id: int, entry_id: int) -> EntryLocation | None:
        """Return the location of the entry; `None` if it is read from a journal or is missing."""
        if self.snapshot.slot.tables.get(ledger_id, entry_id) is not None:
            return None
        packed = self.snapshot.visible.find(ledger_id, entry_id)
        return None if packed is None else EntryLocation.unpack(packed)

    def size_at(self, location: EntryLocation) -> int | None:
        """Return the size of the record there, with its length word; `None` if it cannot be read."""
        try:
            word = self.snapshot.open_logs.read(location.pack(), LENGTH_WORD_SIZE)
        except OSError:
            return None
        size = int.from_bytes(word, "big", signed=True)
        is_whole = len(word) == LENGTH_WORD_SIZE and 0 < size <= RECORD_SIZE_MAX
        return LENGTH_WORD_SIZE + size if is_whole else None

    # ── entries ──────────────────────────────────────────────────────────────────────────────────────

    def data(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return the entry's bytes, its ids verified and its digest not; `None` if there is none.

        `EntryUnreadable` if another record is at its place.
        """
        return self._data(ledger_id, entry_id, None)

    def _data(self, ledger_id: int, entry_id: int, digester: Digester | None) -> bytes | None:
        data = self.snapshot.reader.data(ledger_id, entry_id, digester)
        if isinstance(data, Unreadable):
            raise unreadable(ledger_id, entry_id, data)
        return None if data is MISSING else data

    def end(self, ledger_id: int) -> Head | None:
        """Return the header of its last entry; `None` if it has none. A MAC is not verified.

        `EntryUnreadable` as for `data`.
        """
        last = self.last_id(ledger_id)
        if last is None:
            return None
        data = self._data(ledger_id, last, self.digester(ledger_id))
        if data is None:
            return None
        head = entry_format.decode_head(data)
        assert not isinstance(head, Damaged), "it was verified"
        return head

    def last_add_confirmed(self, ledger_id: int, end: Head | None) -> int:
        """Return the larger of the last entry's and the explicit last add confirmed; -1 if there is none."""
        return max(
            confirmed_without_entries(self.metadata(ledger_id)),
            NO_ENTRY if end is None else end.last_add_confirmed,
        )
