"""Adding, as callers ask for it: to be waited for, as a future, or left to be forced.

What goes into one turn with others is `storage.entrance`, what goes alone `storage.alone`; the order in which
it becomes durable is `storage.commit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from storage.access import Access
    from storage.alone import Alone
    from storage.codec.entry import Head
    from storage.commit import Committer
    from storage.entry import Entry
    from storage.latch import Latch
    from storage.tail import Run, Tail, Tails


class Adding:
    """Adds entries to ledgers. Any thread may call."""

    def __init__(
        self, committer: Committer, alone: Alone, tails: Tails, latch: Latch, group_size_max: int
    ) -> None:
        self._committer = committer
        self._turnstile = committer.turnstile
        self._entrance = committer.entrance
        self.alone = alone
        """To be asked first: who meets nobody need not wait for a turn."""
        self._tails = tails
        self._latch = latch
        self._group_size_max = group_size_max

    def append(self, tail: Tail, access: Access, payloads: Sequence[bytes]) -> int:
        """Puts the payloads behind the ledger's last entry, in a turn; the first id, when all are durable."""
        return self._wait_through(tail, access, lambda tail: tail.append(payloads, access)).first_id

    def place(self, access: Access, entry: Entry) -> None:
        """Returns when a crash can no longer lose the entry, whose id the caller has chosen."""
        tail = self._tails.of(entry.ledger_id)
        self._wait_through(tail, access, lambda tail: tail.place(entry, access))

    def place_bytes(self, access: Access, head: Head, data: bytes) -> None:
        """The same for an entry as its writer has made it."""
        tail = self._tails.of(head.ledger_id)
        self._wait_through(tail, access, lambda tail: tail.place_bytes(head, data))

    def _wait_through(self, tail: Tail, access: Access, make: Callable[[Tail], Run]) -> Run:
        while (entered := self._entrance.enter(tail, access, make)) is None:
            self._entrance.wait_for_room(tail)
        run, turn = entered
        self._turnstile.go_through(turn)
        if turn.error is not None and not run.is_durable:
            raise self._latch.as_told(turn.error)
        return run

    def submit(self, ledger_id: int, access: Access, payload: bytes) -> Future[int]:
        """The id as a future; goes with the next turn, whoever leads it."""
        tail = self._tails.of(ledger_id)
        return self._promised(tail, access, lambda tail: tail.append((payload,), access))

    def submit_bytes(self, access: Access, head: Head, data: bytes) -> Future[int]:
        """The same for an entry as its writer has made it."""
        tail = self._tails.of(head.ledger_id)
        return self._promised(tail, access, lambda tail: tail.place_bytes(head, data))

    def _promised(self, tail: Tail, access: Access, make: Callable[[Tail], Run]) -> Future[int]:
        while (entered := self._entrance.enter_promised(tail, access, make)) is None:
            self._entrance.wait_for_room(tail)
        future, waiting = entered
        self._perhaps_flush(waiting)
        return future

    def defer(self, access: Access, head: Head, data: bytes) -> None:
        """Hands the entry over and does not wait: durable when `force` returns, or by itself before."""
        tail, entrance = self._tails.of(head.ledger_id), self._entrance
        while (
            waiting := entrance.enter_unawaited(tail, access, lambda tail: tail.place_bytes(head, data))
        ) is None:
            entrance.wait_for_room(tail)
        self._perhaps_flush(waiting)

    def _perhaps_flush(self, waiting: int) -> None:
        if waiting >= self._group_size_max:
            self._turnstile.flush()

    def force(self, ledger_id: int) -> None:
        """Returns when all that was added to the ledger before is durable; raises if any of it is not."""
        tail = self._tails.of(ledger_id)
        self._turnstile.flush()
        self._latch.check_writes()
        with self._turnstile.lock:
            lost, tail.lost = tail.lost, None
        if lost is not None:
            raise self._latch.as_told(lost)
