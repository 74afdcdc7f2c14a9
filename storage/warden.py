"""What is said of ledgers, and is durable when it is answered: fences, confirmations, deletes.

Each waits for the adds before it: when a fence is answered they can be read, when a delete is they are gone.
An add behind a fence is refused before it is journaled; one behind a delete waits, and makes a new ledger.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from storage.codec import entry as entry_codec
from storage.codec import journal as journal_codec
from storage.entry import NO_ENTRY
from storage.grouping import Deletion, Statement
from storage.registry import as_claimed
from storage.tail import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.access import Access
    from storage.commit import Committer
    from storage.latch import Latch
    from storage.registry import Registry
    from storage.row import LedgerRow
    from storage.tail import Tail, Tails


class Warden:
    """Speaks for ledgers through the turns of the committer. Any thread may call."""

    def __init__(self, committer: Committer, tails: Tails, registry: Registry, latch: Latch) -> None:
        self._entrance = committer.entrance
        self._turnstile = committer.turnstile
        self._latch = latch
        self._tails = tails
        self._registry = registry

    def fence(self, ledger_id: int, access: Access) -> None:
        """Returns when no crash can open the ledger again to its writer."""
        tail = self._tails.of(ledger_id)
        self._state(tail, lambda: fence_of(tail, access), lambda: self._registry.of(ledger_id).fenced)

    def confirm(self, ledger_id: int, access: Access, packet: bytes) -> None:
        """Returns when the explicit last add confirmed is durable; one that is not larger changes nothing."""
        tail = self._tails.of(ledger_id)
        confirmed = last_add_confirmed(packet)
        self._state(
            tail,
            lambda: confirmation_of(tail, access, packet),
            lambda: confirmed_by(self._registry.of(ledger_id)) >= confirmed,
        )

    def _state(self, tail: Tail, make: Callable[[], Statement | None], holds: Callable[[], bool]) -> None:
        while True:
            while (entered := self._entrance.enter_statement(tail, make)) is None:
                self._entrance.wait_while_held(tail)
            statement, turn = entered
            self._turnstile.go_through(turn)
            if (statement is not None and statement.is_durable) or (statement is None and holds()):
                return
            if turn.error is not None:
                raise self._latch.as_told(turn.error)
            # Somebody else had said it, and it was refused, or the ledger was deleted: it is for us to say.

    def delete(self, ledger_id: int, access: Access | None = None) -> bool:
        """Returns when no crash can bring the ledger back; whether there was one.

        Without an access whatever its key is: for who speaks for all its clients.
        """
        tail = self._tails.of(ledger_id)
        while (entered := self._entrance.enter_deletion(tail, lambda: deletion_of(tail, access))) is None:
            self._entrance.wait_while_held(tail)
        deletion, turn = entered
        self._turnstile.go_through(turn)
        if turn.error is not None and not (deletion is not None and deletion.is_done):
            raise self._latch.as_told(turn.error)
        return deletion is not None


def fence_of(tail: Tail, access: Access) -> Statement | None:
    """What fences the ledger; `None` if it is fenced, or about to be. Needs the turnstile's lock."""
    tail.admit_fence(access)
    if tail.facts.fenced:
        return None
    tail.fence()
    claim = tail.facts

    def revise(row: LedgerRow) -> LedgerRow:
        return replace(_as_begun(row, tail, claim), fenced=True)

    return Statement(tail, journal_codec.encode_fence(tail.ledger_id), revise)


def confirmation_of(tail: Tail, access: Access, packet: bytes) -> Statement | None:
    """What confirms more than was confirmed; `None` if it does not. Needs the turnstile's lock."""
    if tail.is_claimed:
        tail.admit_word(access)
    if last_add_confirmed(packet) <= confirmed_by(tail.facts):
        return None
    tail.admit_word(access)
    tail.confirm(packet)
    claim = tail.facts

    def revise(row: LedgerRow) -> LedgerRow:
        return replace(_as_begun(row, tail, claim), explicit_lac=packet)

    return Statement(tail, journal_codec.encode_explicit_lac(tail.ledger_id, packet), revise)


def _as_begun(row: LedgerRow, tail: Tail, claim: LedgerRow) -> LedgerRow:
    """The row with what the statement's caller has brought, unless entries have been durable before it."""
    # What the first entry has told of its digest is not to be taken back by who only presumed it.
    return as_claimed(row, claim) if tail.end == EMPTY else row


def deletion_of(tail: Tail, access: Access | None) -> Deletion | None:
    """What deletes the ledger; `None` if there is none. Needs the turnstile's lock."""
    if not tail.is_claimed:
        return None
    if access is not None:
        tail.admit_delete(access)
    return Deletion(tail)


def last_add_confirmed(packet: bytes) -> int:
    """What the packet confirms; nothing of it is verified."""
    _, confirmed = entry_codec.LAC_PACKET.unpack_from(packet)
    return int(confirmed)


def confirmed_by(row: LedgerRow) -> int:
    """The ledger's explicit last add confirmed; -1 where there is none."""
    return NO_ENTRY if row.explicit_lac is None else last_add_confirmed(row.explicit_lac)
