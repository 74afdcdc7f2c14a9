"""The index as readers see it: without the locations of deleted ledgers and of truncated entries.

A delete does not change the index. It hides the ledger here. The first checkpoint that freezes a table after
the delete removes the ledger's locations, and puts those of a new ledger of the same id, in one transaction
of the index. Then it unhides the ledger:

    delete        hides the ledger                                              hides it again
    checkpoint                      removes and puts ── commits ── unhides it
    reader        checks whether it is hidden, and then asks the index

A reader asks the index after the check. So it gets the locations that a checkpoint has left, or those of a
ledger that is being deleted at the same moment; a read that runs beside a delete may return those.

A truncation hides the locations before an entry in the same way. It is never taken back, so that it needs no
unhiding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from storage.entry.position import JournalPosition
    from storage.index.port import IndexReader


_AT_ONCE = 4096


class VisibleIndex:
    """An `IndexReader` in which hidden ledgers have no locations. Any thread may call."""

    def __init__(self, index: IndexReader, new_lock: Callable[[], AbstractContextManager[object]]) -> None:
        self._index = index
        self._hidden: dict[int, JournalPosition] = {}
        """Ledger id → position in the journals up to which the ledger's records are deleted.

        Written by deletes, checkpoints and the opening, under the lock; read by any thread without it.
        """
        self._first: dict[int, int] = {}
        """Ledger id → first entry that was not truncated; stays when a checkpoint has removed the locations.

        Written by truncations, deletes and the opening, under the lock; read by any thread without it.
        """
        self._lock = new_lock()

    # ── deletes and checkpoints ──────────────────────────────────────────────────────────────────────

    def hide(self, ledger_id: int, deleted_up_to: JournalPosition) -> None:
        """Hide the ledger, whose journal records up to that position are deleted."""
        with self._lock:
            self._hidden[ledger_id] = deleted_up_to
            self._first.pop(ledger_id, None)  # a new ledger of this id was not truncated

    def truncate(self, ledger_id: int, first_id: int) -> None:
        """Hide the locations of the ledger's entries with smaller ids."""
        with self._lock:
            self._first[ledger_id] = first_id

    def truncate_only(self, first_ids: Mapping[int, int]) -> None:
        """Hide the locations of the entries before these, and of no others."""
        with self._lock:
            self._first = dict(first_ids)

    def hide_only(self, deletes: Mapping[int, JournalPosition]) -> None:
        """Hide these ledgers and no others."""
        with self._lock:
            self._hidden = dict(deletes)

    def unhide(self, deletes: Mapping[int, JournalPosition]) -> None:
        """Unhide ledgers whose locations were removed from the index, unless they were deleted again."""
        with self._lock:
            for ledger_id, deleted_up_to in deletes.items():
                if self._hidden.get(ledger_id) == deleted_up_to:
                    del self._hidden[ledger_id]

    def is_hidden_by(self, ledger_id: int, deleted_up_to: JournalPosition) -> bool:
        """Return whether the ledger is hidden by this delete, and not by a later one."""
        return self._hidden.get(ledger_id) == deleted_up_to

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the packed location of an entry; `None` if it has none."""
        if ledger_id in self._hidden or entry_id < self._first.get(ledger_id, 0):
            return None
        return self._index.find(ledger_id, entry_id)

    def locations(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        """Return up to `count` pairs of entry id and packed location, ascending, from entry `first` on."""
        if ledger_id in self._hidden:
            return []
        return self._index.locations(ledger_id, max(first, self._first.get(ledger_id, 0)), count)

    def last(self, ledger_id: int) -> tuple[int, int] | None:
        """Return the pair with the largest entry id of a ledger; `None` if it has no location."""
        last = None if ledger_id in self._hidden else self._index.last(ledger_id)
        return None if last is None or last[0] < self._first.get(ledger_id, 0) else last

    def count(self, ledger_id: int) -> int:
        """Return how many entries of the ledger have a location."""
        if ledger_id in self._hidden:
            return 0
        first, count = self._first.get(ledger_id, 0), self._index.count(ledger_id)
        smallest = self._index.locations(ledger_id, 0, 1) if first else []
        if not smallest or smallest[0][0] >= first:
            return count
        last = self._index.last(ledger_id)
        if last is None or last[0] < first:
            return 0
        if count == last[0] + 1 - smallest[0][0]:
            return last[0] + 1 - first  # because no entry is missing between the smallest and the last
        # The next checkpoint removes the locations before the first, so that this does not last.
        count = 0
        while found := self._index.locations(ledger_id, first, _AT_ONCE):
            count, first = count + len(found), found[-1][0] + 1
        return count

    def ledgers(self) -> Iterator[int]:
        """Yield every ledger with a location, ascending; may see a part of a change committed meanwhile.

        Among them may be a ledger of which all entries were truncated.
        """
        return (one for one in self._index.ledgers() if one not in self._hidden)
