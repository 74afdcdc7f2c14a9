"""The way into the open turn: who is let in, what goes along, and how the others wait.

There is no room while what waits already is all that the tables can take: whoever adds faster than the disk
waits here, and is told so when it takes too long. Nor is a ledger let in while a delete of it is under way.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from storage.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from storage.access import Access
    from storage.grouping import Deletion, Load, Statement
    from storage.latch import Latch
    from storage.memtable import Slot
    from storage.tail import Run, Tail
    from storage.turnstile import Signal, Turn, Turnstile

    Make = Callable[[Tail], Run]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a turn, a table and a caller's patience are bounded by."""

    group_size_max: int
    memtable_size_max: int
    throttle_timeout_s: float


class Wish(Protocol):
    """What somebody wants to add who waits in no thread, and what has become of it."""

    @property
    def tail(self) -> Tail: ...

    @property
    def access(self) -> Access: ...

    run: Run | None
    """On its way."""
    error: Exception | None
    """Why it is not."""

    def make(self, tail: Tail) -> Run:
        """The run, which is kept."""


class Entrance:
    """Puts what callers bring into the open turn. Any thread may call."""

    def __init__(
        self, turnstile: Turnstile[Load], news: Signal, slot: Slot, latch: Latch, limits: Limits
    ) -> None:
        self._turnstile = turnstile
        self._news = news
        self._slot = slot
        self._latch = latch
        self._limits = limits

    # ── adds ─────────────────────────────────────────────────────────────────────────────────────────

    def enter(self, tail: Tail, access: Access, make: Make) -> tuple[Run, Turn[Load]] | None:
        """The run and the turn it goes with; `None` while there is no room, or the ledger is held."""
        turnstile = self._turnstile
        with turnstile.lock:
            if not self.lets_in(tail):
                return None
            return self._take_along(tail, access, make), turnstile.open

    def enter_promised(self, tail: Tail, access: Access, make: Make) -> tuple[Future[int], int] | None:
        """The future of an entry, and how much waits with it; `None` as in `enter`."""
        with self._turnstile.lock:
            if not self.lets_in(tail):
                return None
            load, future = self._turnstile.open.load, Future[int]()
            # Too late to cancel from the start: the entry is on its way with everybody else's.
            future.set_running_or_notify_cancel()
            load.pending.append((future, self._take_along(tail, access, make)))
            return future, load.size

    def enter_unawaited(self, tail: Tail, access: Access, make: Make) -> int | None:
        """How much waits with an entry for which nobody does; `None` as in `enter`."""
        with self._turnstile.lock:
            if not self.lets_in(tail):
                return None
            load = self._turnstile.open.load
            load.unawaited.append(self._take_along(tail, access, make))
            return load.size

    def join(self, wishes: Iterable[Wish], told: Callable[[BaseException | None], None]) -> Load | None:
        """Takes the wishes along; answers with their load, if any is in it. `told` hears how its turn ended.

        Each has its run now, or its error; or neither, if there is no room or its ledger is held.
        """
        with self._turnstile.lock:
            load = self._turnstile.open.load
            count = len(load.runs)
            # First: interrupted from here on, whoever is on the way hears of the end all the same.
            load.watchers.append(told)
            for wish in wishes:
                self._grant(wish, load)
            return load if len(load.runs) > count else None

    def _grant(self, wish: Wish, load: Load) -> None:
        tail, runs, before = wish.tail, load.runs, None
        try:
            if self.lets_in(tail):
                if wish.access is tail.admitted:
                    # As `_take_along` where nothing has to be decided, in fewer calls: most come here.
                    before = tail.next_id, tail.next_length
                    run = wish.make(tail)
                    load.size += run.size
                    runs.append(run)
                else:
                    self._take_along(tail, wish.access, wish.make)
        except BaseException as error:
            if not runs or runs[-1] is not wish.run:
                if before is not None:
                    tail.next_id, tail.next_length = before
                wish.run = None
            if not isinstance(error, Exception):
                raise
            wish.error = error

    def _take_along(self, tail: Tail, access: Access, make: Make) -> Run:
        """The run, which goes with the open turn. Needs the lock."""
        load, run = self._turnstile.open.load, None
        runs, before = load.runs, (tail.next_id, tail.next_length, tail.facts, tail.is_claimed)
        try:
            if access is not tail.admitted:
                self._admit(tail, access, load)
            run = make(tail)
            load.size += run.size  # first: what counts too much wastes room, what counts too little has none
            runs.append(run)
        except BaseException:
            # A Ctrl-C in between: ids that were handed out and that no run has would be missing for ever.
            # With no call before they are back, or a second one could come there.
            if not runs or runs[-1] is not run:
                tail.next_id, tail.next_length, tail.facts, tail.is_claimed = before
                tail.admitted = None
            raise
        return run

    @staticmethod
    def _admit(tail: Tail, access: Access, load: Load) -> None:
        tail.admit(access)
        if tail.has_news:
            load.decided.append(tail)

    # ── what is said of a ledger: see `storage.warden` ───────────────────────────────────────────────

    def enter_statement(
        self, tail: Tail, make: Callable[[], Statement | None]
    ) -> tuple[Statement | None, Turn[Load]] | None:
        """The statement, if it says anything new, and its turn; `None` while the ledger is held."""
        with self._turnstile.lock:
            self._check_open()
            if tail.is_held:
                return None
            statements, statement = self._turnstile.open.load.statements, None
            before = tail.next_id, tail.next_length, tail.facts, tail.is_claimed
            try:
                statement = make()
                if statement is not None:
                    statements.append(statement)
                if tail.has_news:
                    self._turnstile.open.load.decided.append(tail)
            except BaseException:
                # A Ctrl-C in between: a fence that nobody writes would refuse every add. No call here either.
                if statement is None or not statements or statements[-1] is not statement:
                    tail.next_id, tail.next_length, tail.facts, tail.is_claimed = before
                    tail.admitted = None
                raise
            return statement, self._turnstile.open

    def enter_deletion(
        self, tail: Tail, make: Callable[[], Deletion | None]
    ) -> tuple[Deletion | None, Turn[Load]] | None:
        """The deletion, if there is a ledger, and its turn; `None` while another is under way."""
        with self._turnstile.lock:
            self._check_open()
            if tail.is_held:
                return None
            deletion, deletions = make(), self._turnstile.open.load.deletions
            if deletion is not None:
                try:
                    # Before it is on its way: what comes behind it must not go with it.
                    tail.is_held = True
                    deletions.append(deletion)
                except BaseException:
                    tail.is_held = deletion in deletions
                    raise
            return deletion, self._turnstile.open

    # ── room ─────────────────────────────────────────────────────────────────────────────────────────

    def lets_in(self, tail: Tail) -> bool:
        """Whether it takes something for the ledger now: there is room, nobody holds it. Needs the lock."""
        load, tables = self._turnstile.open.load, self._slot.tables
        if not self._latch.is_open or load.refused is not None:
            self._check_open()
        if tables.frozen is None and load.size < self._limits.memtable_size_max:
            return not tail.is_held  # looked at first, as it is nearly always so
        return not tail.is_held and not self.is_full

    def _check_open(self) -> None:
        self._latch.check_writes()
        refused = self._turnstile.open.load.refused
        if refused is not None:
            raise self._latch.as_told(refused)

    @property
    def is_full(self) -> bool:
        """Whether what waits already is all that the tables can take."""
        waiting, tables = self._turnstile.open.load.size, self._slot.tables
        if tables.frozen is None:
            return waiting >= self._limits.memtable_size_max
        return tables.active.size + waiting >= self._limits.memtable_size_max

    def wait_for_room(self, tail: Tail) -> None:
        """Returns when there is room, and nobody holds the ledger; `Overloaded` when that takes too long."""
        self.wait_while_held(tail)
        timeout = self._limits.throttle_timeout_s
        if not self._news.wait_for(lambda: not self.is_full or self._latch.has_ended, timeout):
            raise Overloaded(timeout)

    def wait_while_held(self, tail: Tail) -> None:
        """Returns when no delete of the ledger is under way, or none will end."""

        def is_free() -> bool:
            return not tail.is_held or self._latch.has_ended

        if not self._news.wait_for(is_free, 0):
            # Who has asked for the delete may have been interrupted before anybody led its turn.
            self._turnstile.flush()
            self._news.wait_for(is_free)
