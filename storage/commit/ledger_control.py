"""Control of ledgers, durable when it is answered: fences, explicit last add confirmed, truncations, deletes.

Fences and deletes wait for the adds before them: when a fence is answered they can be read, when a delete is
they are gone. An add after a fence is refused before it is journaled; one after a delete waits, and makes a
new ledger. A truncation waits for no add, because it is only for entries that are durable already.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from storage.capacity.guard import Need
from storage.commit.pending import PendingFence, PendingLac, confirmed_by, last_add_confirmed
from storage.commit.pending_deletes import Erasure
from storage.errors import DiskFull, StoreClosed
from storage.runtime.worker import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from storage.capacity.guard import SpaceGuard
    from storage.commit.committer import Committer
    from storage.commit.pending import ControlRecord
    from storage.entry.credentials import Access
    from storage.entry.ledger_record import Truncation
    from storage.entry.position import JournalPosition
    from storage.ledgers.metadata import LedgerMetadata
    from storage.ledgers.state import LedgerStates


class LedgerControl:
    """Fences, truncates and deletes ledgers, and sets their explicit last add confirmed.

    Any thread may call.
    """

    def __init__(
        self, committer: Committer, states: LedgerStates, metadata: LedgerMetadata, space: SpaceGuard
    ) -> None:
        self._committer = committer
        self._states = states
        self._metadata = metadata
        self._space = space

    def fence(self, ledger_id: int, access: Access) -> None:
        """Return when no crash can open the ledger again to its writer."""
        state = self._states.of(ledger_id)
        self._commit(lambda: PendingFence(state, access), lambda: self._metadata.of(ledger_id).fenced)

    def set_explicit_lac(self, ledger_id: int, access: Access, packet: bytes) -> None:
        """Return when the explicit last add confirmed is durable; one that is not larger changes nothing."""
        state, confirmed = self._states.of(ledger_id), last_add_confirmed(packet)
        self._commit(
            lambda: PendingLac(state, access, packet),
            lambda: confirmed_by(self._metadata.of(ledger_id)) >= confirmed,
        )

    def _commit(self, new_record: Callable[[], ControlRecord], holds: Callable[[], bool]) -> None:
        trial = self._space.trial(Need.FINISHING)
        while True:
            record = new_record()
            try:
                self._committer.commit(record)
            except DiskFull as error:
                # Nothing was written. With adds in its group, only this record comes again.
                if not trial.may_repeat(error):
                    raise
                continue
            if not record.is_redundant or holds():
                return
            # The record of another caller, which made this one redundant, was refused, or the ledger was
            # deleted.

    def truncate(self, ledger_id: int, truncation: Truncation, deleted_at: JournalPosition | None) -> bool:
        """Return when no crash can bring the entries before the truncation back, and no reader finds them.

        False if the ledger was deleted since `deleted_at`, and nothing was truncated.
        """
        self._committer.check_not_inside()
        return uninterrupted(partial(self._truncate, ledger_id, truncation, deleted_at))

    def _truncate(self, ledger_id: int, truncation: Truncation, deleted_at: JournalPosition | None) -> bool:
        # 1. The row. Before the readers, because an entry that they have missed must never come back.
        try:
            if not self._metadata.persist_truncation(ledger_id, truncation, deleted_at):
                return False
        except (DiskFull, StoreClosed):
            raise
        except OSError as error:
            raise self._committer.fail(error) from error
        # 2. The readers. By the leader of a commit, because only it changes tables.
        self._committer.commit(Erasure(truncated=(ledger_id,)))
        return True

    def delete(self, ledger_id: int, access: Access | None = None) -> bool:
        """Return when no crash can bring the ledger back; False if there is none.

        Without credentials it is deleted whatever its key is.
        """
        return self._committer.deletes.delete(self._states.of(ledger_id), access)

    def delete_all(self, ledger_ids: Iterable[int], access: Access | None = None) -> int | None:
        """Delete several ledgers at once, and return when no crash can bring any of them back.

        If one does not exist, none is deleted, and the id of the first such ledger is returned.
        """
        states = [self._states.of(ledger_id) for ledger_id in dict.fromkeys(ledger_ids)]
        return self._committer.deletes.delete_all(states, access) if states else None
