"""Following a ledger: its entries, and then each new one as it becomes durable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from storage.entry.model import ID_MAX
from storage.errors import EntryTruncated, ForkedStore, StoreClosed, StoreError
from storage.ledgers.waiters import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from storage.engine import Engine
    from storage.entry.batch import EntryBatch
    from storage.entry.model import Entry
    from storage.ledger import Ledger


class Follower:
    """An iterator over the entries of one ledger that waits for the next one; `Ledger.follow` makes it.

    One thread iterates; any thread may `stop` it. It belongs to the ledger that had the id when it was made,
    or to the first one that gets the id. When that ledger is deleted the follower ends, because a new ledger
    counts from 0.
    """

    __slots__ = (
        "_available",
        "_batches",
        "_deleted_at",
        "_engine",
        "_first_id",
        "_found",
        "_from_entry",
        "_has",
        "_idle_timeout_s",
        "_is_stopped",
        "_last",
        "_ledger",
        "_waiter",
        "_waiters",
    )

    def __init__(
        self,
        ledger: Ledger,
        available: Callable[[int], Iterator[EntryBatch]],
        engine: Engine,
        from_entry: int | None,
        idle_timeout_s: float | None,
    ) -> None:
        """`available` reads the ledger's entries from an id on, up to the first that is missing.

        Without `from_entry` it begins at the first entry that was not truncated.
        """
        self._ledger = ledger
        self._available = available
        self._engine = engine
        self._waiters = engine.committer.waiters
        self._has = engine.reader.has
        self._from_entry = from_entry
        self._first_id = engine.metadata.first_entry_id(ledger.id) if from_entry is None else from_entry
        self._last: Entry | None = None
        """The entry that was handed out last."""
        self._idle_timeout_s = idle_timeout_s
        self._deleted_at = engine.metadata.deleted_at(ledger.id)
        self._batches: Iterator[EntryBatch] = iter(())
        self._found: Iterator[Entry] = iter(())
        """Entries that were read and not handed out yet."""
        self._waiter = Waiter()
        self._is_stopped = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Entry:
        while not self._waiters.is_stopped:
            for entry in self._found:
                self._last = entry
                return entry
            if self._is_stopped:
                break
            self._read_on()
        self.stop()
        raise StopIteration

    def stop(self) -> None:
        """End the iteration now; a thread that waits for the next entry returns at once."""
        self._is_stopped = True
        self._found, self._batches = iter(()), iter(())
        self._waiter.wake()

    def close(self) -> None:
        """As `stop`: for `contextlib.closing`."""
        self.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.stop()

    def _read_on(self) -> None:
        """Read the next entries, and wait for them if there are none; stop where none will come."""
        found: EntryBatch | None = None
        try:
            found = next(self._batches, None)
            if found is None and self._wait():
                self._batches = self._available(self._next_id)
                found = next(self._batches, None)
        except (StoreClosed, ForkedStore):
            self.stop()
            return
        except EntryTruncated as error:
            if self._from_entry is not None or self._last is not None:
                raise
            self._first_id = error.first_entry_id  # it was truncated since the follower was made
            return
        except StoreError:
            # The error may be about a new ledger of this id, which may have another digest type or password.
            if not self._is_deleted:
                raise
        # Checked after the reading, because entries read before the delete are the followed ledger's.
        if self._is_deleted:
            self.stop()
        elif found is not None:
            self._found = found.entries()
            if self._is_stopped:  # by another thread while it read, so that `stop` found nothing to drop
                self.stop()

    @property
    def _next_id(self) -> int:
        return self._first_id if self._last is None else self._last.entry_id + 1

    def _wait(self) -> bool:
        """Wait for the next entry. Return whether it came, and stop if it did not."""
        with self._engine.store_state.reading():
            came = self._next_id <= ID_MAX and self._waiters.wait_for(
                self._ledger.id, self._may_go_on, self._idle_timeout_s, self._waiter
            )
        if not came or self._is_over:
            self.stop()
        return not self._is_stopped

    def _may_go_on(self) -> bool:
        if self._is_over:
            return True
        if self._engine.metadata.first_entry_id(self._ledger.id) > self._next_id:
            return True  # to raise
        # Both are checked: an entry is in a table shortly before the ledger's end includes it, and it can be
        # read only from then on.
        end = self._ledger.last_entry_id
        return end is not None and end >= self._next_id and self._has(self._ledger.id, self._next_id)

    @property
    def _is_over(self) -> bool:
        is_stopped = self._is_stopped or self._waiters.is_stopped
        return is_stopped or self._engine.store_state.is_closed or self._is_deleted

    @property
    def _is_deleted(self) -> bool:
        return self._engine.metadata.was_deleted(self._ledger.id, self._deleted_at)
