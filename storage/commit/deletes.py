"""Deletes: a commit decides, the deleting thread writes the tombstone, a later commit hides the ledger.

    commit             holds the ledger, writes the adds before the delete, and decides up to which position
                       in the journals the ledger is dead
    WRITE_TOMBSTONES   writes the tombstones and syncs, writes an empty group after them and syncs
    HAND_BACK          puts the deletes into the open group of the commits
    ERASE              waits for that commit, which hides the ledgers from readers and releases them
    checkpoint         removes the ledger's locations from the index

Only WRITE_TOMBSTONES waits for the disk because of the delete, and adds to other ledgers go on meanwhile.
Threads that delete at the same moment share it, because deletes have a queue of their own. The delete is
answered after ERASE, because then no crash can bring the ledger back and no reader finds it.

A thread that no signal handler interrupts makes the whole delete, so that each delete that has begun ends.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from storage.capacity.guard import Need
from storage.commit.pending import ERASE, ERASED, HAND_BACK, WRITE_TOMBSTONES
from storage.commit.pending_deletes import DeleteGroup, Erasure, PendingDelete, PendingDeletes
from storage.commit.queue import CommitQueue, this_thread
from storage.errors import DiskFull
from storage.runtime.worker import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.capacity.guard import SpaceGuard
    from storage.commit.committer import Committer
    from storage.entry.credentials import Access
    from storage.ledgers.metadata import LedgerMetadata
    from storage.ledgers.state import LedgerState
    from storage.runtime.store_state import StoreState

_Work = TypeVar("_Work", PendingDelete, PendingDeletes)


def _all_of(states: Sequence[LedgerState], access: Access | None) -> PendingDeletes:
    return PendingDeletes([PendingDelete(state, access) for state in states])


class Deletes:
    """Deletes ledgers, several at once. Any thread may call; one at a time leads."""

    def __init__(
        self, committer: Committer, metadata: LedgerMetadata, store_state: StoreState, space: SpaceGuard
    ) -> None:
        self.queue: CommitQueue[DeleteGroup] = CommitQueue(DeleteGroup)
        self._committer = committer
        self._metadata = metadata
        self._store_state = store_state
        self._space = space

    def delete(self, state: LedgerState, access: Access | None) -> bool:
        """Return when no crash can bring the ledger back; False if there is none.

        `DiskFull` if the ledger is there as before.
        """
        self._committer.check_not_inside()
        work = uninterrupted(partial(self._delete, partial(PendingDelete, state, access)))
        return work.delete_group is not None

    def delete_all(self, states: Sequence[LedgerState], access: Access | None) -> int | None:
        """Return when no crash can bring any of the ledgers back.

        If one does not exist, none is deleted, and the id of the first such ledger is returned. `DiskFull` if
        all are there as before.
        """
        self._committer.check_not_inside()
        work = uninterrupted(partial(self._delete, partial(_all_of, states, access)))
        return None if work.missing is None else work.missing.ledger_id

    def _delete(self, new_work: Callable[[], _Work]) -> _Work:
        """Make one delete, or many at once, and return it when it is over."""
        while True:
            rounds, work = self._space.rounds, new_work()
            try:
                self._committer.commit(work)
                break
            except DiskFull as error:
                # Adds of the same group have met the full disk. Without the delete there may never be space.
                if not self._space.may_repeat(error, Need.FINISHING, rounds):
                    raise
        # One commit has decided all deletes of the work, so that they are in one group of tombstones.
        last = work.last if isinstance(work, PendingDeletes) else work  # type: ignore[redundant-expr]
        if (delete_group := last.delete_group) is None:
            return work
        if self.queue.follow(delete_group, this_thread(), work):
            self._lead(delete_group)
        if not last.is_done:
            raise self._store_state.as_told(
                self._store_state.failure or delete_group.error or AssertionError("not done")
            )
        return work

    def take(self, deletes: Sequence[PendingDelete]) -> None:
        """Take over what a commit has decided."""
        with self.queue.lock:
            delete_group = self.queue.open
            new = [one for one in deletes if one.delete_group is None]
            # No signal handler runs in a thread that commits deletes, so that nothing comes in between.
            delete_group.deletes = (*delete_group.deletes, *new)
            for one in new:
                one.delete_group = delete_group

    def flush(self) -> None:
        """Return when everything that was decided before is done, or has failed."""
        if self.queue.is_led or self.queue.open.deletes:
            uninterrupted(self._flush)

    def _flush(self) -> None:
        delete_group = self.queue.open
        if self.queue.follow(delete_group, this_thread(), self):
            self._lead(delete_group)

    def _lead(self, delete_group: DeleteGroup) -> None:
        try:
            self.proceed(delete_group)
        except BaseException as error:
            self.fail(delete_group, error)
        self.end(delete_group)

    def proceed(self, delete_group: DeleteGroup, through: int = ERASED) -> None:
        """Take the steps in their order; with `through`, return after a step of that number."""
        deletes = delete_group.deletes
        if delete_group.step == WRITE_TOMBSTONES:
            self._store_state.check_not_failed()
            if not deletes:
                delete_group.step = ERASED
                return
            # The tombstones come first, because the ledgers exist until their tombstones are durable.
            rows = self._metadata.persist_tombstones({one.state.ledger_id: one.upto for one in deletes})
            delete_group.rows = rows
            for one, row in zip(deletes, rows, strict=True):
                one.row = row
            delete_group.step = HAND_BACK
            if through == WRITE_TOMBSTONES:
                return
        if delete_group.step == HAND_BACK:
            # In a commit, because only its leader changes tables.
            delete_group.erasure = Erasure(deletes, delete_group.rows)
            self._committer.enqueue(delete_group.erasure)
            delete_group.step = ERASE
            if through == HAND_BACK:
                return
        if delete_group.step == ERASE:
            assert delete_group.erasure is not None, "it was handed back"
            group = delete_group.erasure.group
            assert group is not None, "it has joined a group"
            if not group.is_over:
                self._committer.commit(delete_group.erasure)
            if group.error is not None and not all(one.is_done for one in deletes):
                raise group.error
            delete_group.step = ERASED

    def fail(self, delete_group: DeleteGroup, error: BaseException) -> None:
        """Have deletes fail; only a full disk, which nothing was written to, does not stop the store."""
        delete_group.error = error
        if not isinstance(error, DiskFull):
            self._store_state.fail(error)

    def end(self, delete_group: DeleteGroup) -> None:
        """Answer the callers."""
        if delete_group.erasure is None:
            for one in delete_group.deletes:
                one.release()
        self.queue.end(delete_group)
        waiters = self._committer.waiters
        if self._store_state.failure is not None:
            waiters.wake_all()
        for one in delete_group.deletes:
            waiters.wake(one.state.ledger_id)
