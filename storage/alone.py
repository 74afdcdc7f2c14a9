"""The add that meets nobody: the order of a turn, without one.

What is spared is all that many callers need to share a turn. It is worth an order of its own: behind a sync
every line of code comes from far away, and that is most of what an add costs beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage import grouping
from storage.tail import EMPTY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.access import Access
    from storage.commit import Committer
    from storage.entrance import Limits
    from storage.journals import Journals
    from storage.latch import Latch
    from storage.memtable import Slot
    from storage.tail import Run, Tail


class Alone:
    """Adds without a turn, while nobody else adds. Any thread may call."""

    def __init__(
        self, committer: Committer, journals: Journals, slot: Slot, latch: Latch, limits: Limits
    ) -> None:
        self._turnstile = committer.turnstile
        self._news = committer.news
        self._journals = journals
        self._slot = slot
        self._latch = latch
        self._limits = limits

    def append(self, tail: Tail, access: Access, payloads: Sequence[bytes]) -> Run | None:
        """The run, durable, if nobody else adds just now; otherwise `None`, and nothing has happened."""
        turnstile = self._turnstile
        run: Run | None = None
        error: Exception | None = None
        try:
            with turnstile.lock:
                run = self._begin(tail, access, payloads)
            if run is None:
                return None
            self._do(run)
        except BaseException as raised:
            latch = self._latch
            if run is not None and not run.is_durable:
                # Not by `fail`: a second Ctrl-C as that begins must not leave a gap in the ids.
                latch.failure, latch.is_open = latch.failure or raised, False
            error = self._failed(run, raised)
        finally:
            if run is not None or turnstile.is_alone:
                try:
                    self._end()
                except BaseException:
                    self._end()  # a Ctrl-C: whoever has come meanwhile must not wait for ever
                    raise
        assert run is not None, "else it has returned, or raised"
        if error is not None and not run.is_durable:
            raise self._latch.as_told(error)
        return run

    def _begin(self, tail: Tail, access: Access, payloads: Sequence[bytes]) -> Run | None:
        """The run, if everything is as it mostly is, and the caller is to write it now. Needs the lock."""
        turnstile, journal = self._turnstile, self._journals.active
        if access is not tail.admitted or journal is None or not self._latch.is_open:
            return None
        # What waits already has ids before these, and is written first.
        others, load = turnstile.open.waiting, turnstile.open.load
        if turnstile.is_led or others or load.runs or load.statements or load.deletions:
            return None
        if tail.is_held or self._slot.tables.active.size >= self._limits.memtable_size_max:
            return None
        if journal.keyed.get(tail.ledger_id) != tail.facts.master_key:
            return None
        before = tail.next_id, tail.next_length
        try:
            run = tail.append(payloads, access)
            if run.size <= self._limits.group_size_max and journal.end + run.size <= journal.ample_until:
                turnstile.begin_alone()
                return run
        except BaseException:
            tail.next_id, tail.next_length = before
            raise
        tail.next_id, tail.next_length = before
        return None

    def _do(self, run: Run) -> None:
        """The order of `Committer.stages`, for one run."""
        journals, active = self._journals, self._slot.tables.active
        journal = journals.active
        assert journal is not None, "looked at before"
        assert run.tail.end != EMPTY, "nobody is admitted before the first add, which has more to say"
        journal.write(grouping.group_of(run), journals.durable_up_to)
        journals.sync()
        active.insert_parts(run.tail.ledger_id, run.first_id, run.fronts, run.payloads, run.size)
        active.covers_until = journals.durable_up_to
        run.tail.settle(run)
        run.is_durable = True
        if active.size >= self._limits.memtable_size_max:
            self._slot.freeze()

    def _failed(self, run: Run | None, error: BaseException) -> Exception:
        """The error, if it is to be told; raises it as it is if it is not of the disk."""
        is_done = run is not None and run.is_durable and not isinstance(error, Exception)
        if self._turnstile.is_alone and not is_done:
            # A Ctrl-C too: an id was handed out, and is perhaps not written.
            self._latch.fail(error)
        if run is None or not isinstance(error, Exception):
            raise error
        return error

    def _end(self) -> None:
        self._turnstile.end_alone()
        self._news.notify()
