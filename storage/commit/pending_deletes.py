"""Deletes of ledgers that wait for a commit, and the groups in which their tombstones become durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.commit.pending import WRITE_TOMBSTONES, Pending
from storage.entry.position import START

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from storage.commit.pending import PendingGroup
    from storage.commit.queue import Gate
    from storage.entry.credentials import Access
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.position import JournalPosition
    from storage.ledgers.state import LedgerState


class PendingDelete(Pending):
    """Holds a ledger and decides up to which position in the journals it is dead.

    It is over when the ledger was erased, or when that has failed.
    """

    state: LedgerState
    upto: JournalPosition = START
    row: LedgerRecord | None = None
    """The tombstone, once it is durable."""
    exists = False
    """Whether there is such a ledger."""
    whole: PendingDeletes | None = None
    """The deletes of many ledgers at once of which it is one."""
    delete_group: DeleteGroup | None = None
    """The group of deletes in which its tombstone becomes durable, once `upto` is decided."""
    is_done = False
    """Whether no reader finds the ledger any more."""
    is_released = False

    def __init__(self, state: LedgerState, access: Access | None) -> None:
        """Without credentials any caller may delete: it speaks for all clients of the ledger."""
        self.state = state
        self.access = access

    def join(self, group: PendingGroup) -> None:
        state = self.state
        if not state.is_claimed:
            self.is_durable, self.group = True, group
            return
        if self.access is not None:
            state.check_key(self.access)
        # No function is called from here on, for the reason that `PendingEntries.join` gives. The ledger is
        # held, so that later adds do not go with this group.
        self.exists = state.is_held = True
        group.deletes = (*group.deletes, self)
        self.group = group

    def release(self) -> None:
        """Let other work join groups of the ledger again."""
        # The ledger is released only once, because after that another delete may hold it.
        if not self.is_released:
            self.is_released, self.state.is_held = True, False


class PendingDeletes(Pending):
    """Deletes of several ledgers at once: all of them join one group, or none does."""

    missing: LedgerState | None = None
    """The first of the ledgers that does not exist; then none is deleted."""

    def __init__(self, deletes: Sequence[PendingDelete]) -> None:
        self.deletes = deletes
        self.last = deletes[-1]
        for one in deletes:
            one.whole = self

    @property
    def state(self) -> LedgerState:  # type: ignore[override]
        """A ledger that another delete holds, for which all of them wait; else the first one."""
        return next((one.state for one in self.deletes if one.state.is_held), self.deletes[0].state)

    def join(self, group: PendingGroup) -> None:
        self.missing = next((one.state for one in self.deletes if not one.state.is_claimed), None)
        if self.missing is not None:
            self.is_durable, self.group = True, group
            return
        for one in self.deletes:
            if one.access is not None:
                one.state.check_key(one.access)
        # No signal handler runs in the thread that makes deletes, so that nothing interrupts these steps.
        for one in self.deletes:
            one.exists = one.state.is_held = True
            one.group = group
        group.deletes = (*group.deletes, *self.deletes)
        self.group = group


class DeleteGroup:
    """Deletes whose tombstones become durable together."""

    # field                                    written by               under
    step = WRITE_TOMBSTONES  #                             its leader               -
    deletes: Sequence[PendingDelete] = ()  #          leader of a commit       lock of the queue of deletes
    rows: Sequence[LedgerRecord] = ()  #       its leader               -
    erasure: Erasure | None = None  #          its leader               -
    error: BaseException | None = None  #      its leader               -
    # The rest as in `PendingGroup`.
    is_over = False
    leader: object = None
    may_lead = False
    is_left = False
    passed_at = 0.0
    waiting: AbstractSet[int] = frozenset()
    gate: Gate | None = None


class Erasure(Pending):
    """Hides from readers what is durably gone: deleted ledgers, which it releases, and truncated entries."""

    def __init__(
        self,
        deletes: Sequence[PendingDelete] = (),
        rows: Sequence[LedgerRecord] = (),
        truncated: Sequence[int] = (),
    ) -> None:
        self.deletes = deletes
        self.rows = rows
        """The tombstones of the deletes."""
        self.truncated = truncated
        """The ledgers whose truncations are durable."""
        self.is_durable = not truncated
        """Whether the commit has nothing to tell its caller. The caller of a truncation gets the error of the
        group if the entries were not hidden; a delete looks for that by itself."""

    def join(self, group: PendingGroup) -> None:
        group.erasures = (*group.erasures, self)
        self.group = group
