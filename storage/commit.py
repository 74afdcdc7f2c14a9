"""Adds: what is waiting goes into the journal as one group, and is answered when that is durable.

One turn, in the order that nothing may change:

    write the group → sync → into the active table → covers_until → visible, answered

A group is never written before the one before it is durable. After any error of a write or a sync the
outcome is unknown, so the latch falls: no answer is given any more. Between two turns, and only there, a
table is frozen: its `covers_until` is then exact.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from storage import grouping
from storage.codec import record as record_codec
from storage.errors import DiskFull, Overloaded, StoreFailed
from storage.grouping import Load
from storage.journal_writer import NOTHING, Group
from storage.memtable import Memtable, Tables
from storage.registry import as_claimed
from storage.tail import EMPTY
from storage.turnstile import Signal, Turnstile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from storage.access import Access
    from storage.codec.entry import Head
    from storage.entry import Entry
    from storage.grouping import Deletion, Statement, Step
    from storage.journal_writer import JournalWriter
    from storage.journals import Journals
    from storage.latch import Latch
    from storage.memtable import Slot
    from storage.position import JournalPosition
    from storage.registry import Registry
    from storage.tail import Run, Tail, Tails
    from storage.turnstile import Turn


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


class Committer:
    """Turns adds into durable groups. Any thread may call; one at a time leads."""

    def __init__(
        self,
        journals: Journals,
        slot: Slot,
        tails: Tails,
        registry: Registry,
        latch: Latch,
        limits: Limits,
        durable_up_to: JournalPosition,
    ) -> None:
        self.turnstile = Turnstile(Load, self._work, self._answer, self._interrupted)
        self.news = Signal()
        """After each turn, and when the store closes or fails: what readers and waiting adds look for."""
        self.groups = 0
        """How many groups this process has made durable."""
        self._journals = journals
        self._slot = slot
        self._tails = tails
        self._registry = registry
        self._latch = latch
        self._limits = limits
        self._durable_up_to = durable_up_to
        self.on_turn: Callable[[], None] = _nobody
        """Told after each turn, by whoever led it."""

    @property
    def durable_up_to(self) -> JournalPosition:
        """Everything in the journals before this is known to be durable."""
        return self._durable_up_to

    # ── what callers ask for ─────────────────────────────────────────────────────────────────────────

    def append(self, ledger_id: int, access: Access, payloads: Sequence[bytes]) -> Run:
        """The payloads with ids behind the ledger's last entry, when a crash can no longer lose them."""
        run = self._go_alone(self._tails.of(ledger_id), access, payloads)
        if run is not None:
            return run
        return self._wait_through(lambda tail: tail.append(payloads, access), ledger_id, access)

    def place(self, access: Access, entry: Entry) -> None:
        """Returns when a crash can no longer lose the entry, whose id the caller has chosen."""
        self._wait_through(lambda tail: tail.place(entry, access), entry.ledger_id, access)

    def place_bytes(self, access: Access, head: Head, data: bytes) -> None:
        """The same for an entry as its writer has made it."""
        self._wait_through(lambda tail: tail.place_bytes(head, data), head.ledger_id, access)

    def _wait_through(self, make: Callable[[Tail], Run], ledger_id: int, access: Access) -> Run:
        tail = self._tails.of(ledger_id)
        while (entered := self.enter(tail, access, make)) is None:
            self._wait_for_room(tail)
        run, turn = entered
        self.turnstile.go_through(turn)
        if turn.error is not None and not run.is_durable:
            raise self.as_told(turn.error)
        return run

    def enter(self, tail: Tail, access: Access, make: Callable[[Tail], Run]) -> tuple[Run, Turn[Load]] | None:
        """The run and the turn it goes with; `None` while there is no room, or the ledger is held."""
        turnstile = self.turnstile
        with turnstile.lock:
            if not self._lets_in(tail):
                return None
            return self._take_along(tail, access, make), turnstile.enter()

    def join(self, wishes: Iterable[Wish], told: Callable[[BaseException | None], None]) -> Load | None:
        """Takes the wishes along; answers with their load, if any is in it. `told` hears how its turn ended.

        Each has its run now, or its error; or neither, if there is no room or its ledger is held.
        """
        with self.turnstile.lock:
            load = self.turnstile.open.load
            count = len(load.runs)
            # First: interrupted from here on, whoever is on the way hears of the end all the same.
            load.watchers.append(told)
            for wish in wishes:
                self._grant(wish, load)
            return load if len(load.runs) > count else None

    def _grant(self, wish: Wish, load: Load) -> None:
        count = len(load.runs)
        try:
            if self._lets_in(wish.tail):
                self._take_along(wish.tail, wish.access, wish.make)
        except BaseException as error:
            if len(load.runs) == count:
                wish.run = None
            if not isinstance(error, Exception):
                raise
            wish.error = error

    def submit(self, ledger_id: int, access: Access, payload: bytes) -> Future[int]:
        """The id as a future; goes with the next turn, whoever leads it."""
        return self._submitted(lambda tail: tail.append((payload,), access), ledger_id, access)

    def submit_bytes(self, access: Access, head: Head, data: bytes) -> Future[int]:
        """The same for an entry as its writer has made it."""
        return self._submitted(lambda tail: tail.place_bytes(head, data), head.ledger_id, access)

    def _submitted(self, make: Callable[[Tail], Run], ledger_id: int, access: Access) -> Future[int]:
        tail = self._tails.of(ledger_id)
        while (put := self.put(tail, access, make)) is None:
            self._wait_for_room(tail)
        future, waiting = put
        self._perhaps_flush(waiting)
        return future

    def put(self, tail: Tail, access: Access, make: Callable[[Tail], Run]) -> tuple[Future[int], int] | None:
        """The future of an entry, and how much waits with it; `None` as in `enter`."""
        with self.turnstile.lock:
            if not self._lets_in(tail):
                return None
            load, future = self.turnstile.open.load, Future[int]()
            # Too late to cancel from the start: the entry is on its way with everybody else's.
            future.set_running_or_notify_cancel()
            load.pending.append((future, self._take_along(tail, access, make)))
            return future, load.size

    def defer(self, access: Access, head: Head, data: bytes) -> None:
        """Hands the entry over and does not wait: durable when `force` returns, or by itself before."""
        tail = self._tails.of(head.ledger_id)
        while (waiting := self._put_aside(tail, access, head, data)) is None:
            self._wait_for_room(tail)
        self._perhaps_flush(waiting)

    def _put_aside(self, tail: Tail, access: Access, head: Head, data: bytes) -> int | None:
        with self.turnstile.lock:
            if not self._lets_in(tail):
                return None
            load = self.turnstile.open.load
            run = self._take_along(tail, access, lambda tail: tail.place_bytes(head, data))
            load.unawaited.append(run)
            return load.size

    def _perhaps_flush(self, waiting: int) -> None:
        if waiting >= self._limits.group_size_max:
            self.turnstile.flush()

    def force(self, ledger_id: int) -> None:
        """Returns when all that was added to the ledger before is durable; raises if any of it is not."""
        tail = self._tails.of(ledger_id)
        self.turnstile.flush()
        self._latch.check_writes()
        with self.turnstile.lock:
            lost, tail.lost = tail.lost, None
        if lost is not None:
            raise self.as_told(lost)

    # ── what is said of a ledger: see `storage.warden` ───────────────────────────────────────────────

    def enter_statement(
        self, tail: Tail, make: Callable[[], Statement | None]
    ) -> tuple[Statement | None, Turn[Load]] | None:
        """The statement, if it says anything new, and its turn; `None` while the ledger is held."""
        with self.turnstile.lock:
            self._check_open()
            if tail.is_held:
                return None
            statements, before = self.turnstile.open.load.statements, tail.handed_out
            count = len(statements)
            try:
                statement = make()
                if statement is not None:
                    statements.append(statement)
                if tail.has_news:
                    self.turnstile.open.load.decided.append(tail)
            except BaseException:
                # A Ctrl-C in between: a fence that nobody writes would refuse every add.
                if len(statements) == count:
                    tail.take_back(before)
                raise
            return statement, self.turnstile.enter()

    def enter_deletion(
        self, tail: Tail, make: Callable[[], Deletion | None]
    ) -> tuple[Deletion | None, Turn[Load]] | None:
        """The deletion, if there is a ledger, and its turn; `None` while another is under way."""
        with self.turnstile.lock:
            self._check_open()
            if tail.is_held:
                return None
            deletion, deletions = make(), self.turnstile.open.load.deletions
            if deletion is not None:
                try:
                    # Before it is on its way: what comes behind it must not go with it.
                    tail.is_held = True
                    deletions.append(deletion)
                except BaseException:
                    tail.is_held = deletion in deletions
                    raise
            return deletion, self.turnstile.enter()

    def wait_while_held(self, tail: Tail) -> None:
        """Returns when no delete of the ledger is under way, or none will end."""

        def is_free() -> bool:
            return not tail.is_held or self._latch.has_ended

        if not self.news.wait_for(is_free, 0):
            # Who has asked for the delete may have been interrupted before anybody led its turn.
            self.turnstile.flush()
            self.news.wait_for(is_free)

    # ── room ─────────────────────────────────────────────────────────────────────────────────────────

    def _take_along(self, tail: Tail, access: Access, make: Callable[[Tail], Run]) -> Run:
        """The run, which goes with the open turn. Needs the lock."""
        load, handed_out = self.turnstile.open.load, tail.handed_out
        count = len(load.runs)
        try:
            if access is not tail.admitted:
                self._admit(tail, access, load)
            run = make(tail)
            load.size += run.size  # first: what counts too much wastes room, what counts too little has none
            load.runs.append(run)
        except BaseException:
            # A Ctrl-C in between: ids that were handed out and that no run has would be missing for ever.
            if len(load.runs) == count:
                tail.take_back(handed_out)
            raise
        return run

    @staticmethod
    def _admit(tail: Tail, access: Access, load: Load) -> None:
        tail.admit(access)
        if tail.has_news:
            load.decided.append(tail)

    def _lets_in(self, tail: Tail) -> bool:
        """Whether it takes something for the ledger now: there is room, nobody holds it. Needs the lock."""
        load, tables = self.turnstile.open.load, self._slot.tables
        if not self._latch.is_open or load.refused is not None:
            self._check_open()
        if tables.frozen is None and load.size < self._limits.memtable_size_max:
            return not tail.is_held  # looked at first, as it is nearly always so
        return not tail.is_held and not self._is_full()

    def _check_open(self) -> None:
        self._latch.check_writes()
        refused = self.turnstile.open.load.refused
        if refused is not None:
            raise self.as_told(refused)

    def _is_full(self) -> bool:
        """Whether what waits already is all that the tables can take."""
        waiting, tables = self.turnstile.open.load.size, self._slot.tables
        if tables.frozen is None:
            return waiting >= self._limits.memtable_size_max
        return tables.active.size + waiting >= self._limits.memtable_size_max

    def _wait_for_room(self, tail: Tail) -> None:
        self.wait_while_held(tail)
        timeout = self._limits.throttle_timeout_s
        if not self.news.wait_for(lambda: not self._is_full() or self._latch.has_ended, timeout):
            raise Overloaded(timeout)

    def seal(self) -> None:
        """Vouches for the last group by an empty one behind it, unless there is nothing to vouch for."""
        with self.turnstile.lock:
            self.turnstile.open.load.wants_seal = True
        self.turnstile.flush()

    def freeze(self) -> None:
        """Freezes the active table between two turns, unless it is empty or one is frozen already."""
        with self.turnstile.lock:
            self.turnstile.open.load.wants_freeze = True
        self.turnstile.flush()

    def thaw(self) -> None:
        """The frozen table is in entry log and index: readers look there from now on."""
        self._slot.tables = Tables(self._slot.tables.active, None)
        self.news.notify()

    def carry_over(self, records: Sequence[bytes]) -> None:
        """Makes durable what opening has read and cannot prove; it is in the active table already."""
        ledger_ids = {record_codec.ledger_id(record) for record in records}
        # Not from tails: what they look up of a ledger's end may be unreadable, and is not needed here.
        known = {ledger_id: self._registry.of(ledger_id).master_key for ledger_id in ledger_ids}
        keys = {ledger_id: key for ledger_id, key in known.items() if key is not None}
        group = Group(records, len(records), grouping.size_of(records))
        group = grouping.with_keys(group, keys)
        self._durable_up_to = self._journals.carry_over(group, self._durable_up_to)
        assert self._journals.active is not None
        self._journals.active.keyed.update(keys)
        self._slot.tables.active.covers_until = self._durable_up_to

    def pass_by(self, position: JournalPosition) -> None:
        """What stands before is about to be in the entry logs, all of it, whoever wrote it."""
        self._durable_up_to = max(self._durable_up_to, position)

    # ── without a turn ───────────────────────────────────────────────────────────────────────────────

    def _go_alone(self, tail: Tail, access: Access, payloads: Sequence[bytes]) -> Run | None:
        """The run, durable, if nobody else adds just now; otherwise `None`, and nothing has happened.

        What is spared is all that many callers need to share a turn. It is worth an order of its own: behind
        a sync every line of code comes from far away, and that is most of what an add costs beside it.
        """
        turnstile = self.turnstile
        run: Run | None = None
        error: Exception | None = None
        try:
            with turnstile.lock:
                run = self._begin_alone(tail, access, payloads)
            if run is None:
                return None
            self._do_alone(run)
        except BaseException as raised:
            error = self._failed_alone(run, raised)
        finally:
            if run is not None or turnstile.is_alone:
                self._end_alone()
        assert run is not None, "else it has returned, or raised"
        if error is None:
            self.on_turn()
        elif not run.is_durable:
            raise self.as_told(error)
        return run

    def _failed_alone(self, run: Run | None, error: BaseException) -> Exception:
        """The error, if it is to be told; raises it as it is if it is not of the disk."""
        is_done = run is not None and run.is_durable and not isinstance(error, Exception)
        if self.turnstile.is_alone and not is_done:
            # A Ctrl-C too: an id was handed out, and is perhaps not written.
            self._latch.fail(error)
        if run is None or not isinstance(error, Exception):
            raise error
        return error

    def _end_alone(self) -> None:
        try:
            self.turnstile.end_alone()
        except BaseException:
            self.turnstile.end_alone()  # a Ctrl-C: whoever has come meanwhile must not wait for ever
            raise
        self.news.notify()

    def _begin_alone(self, tail: Tail, access: Access, payloads: Sequence[bytes]) -> Run | None:
        """The run, if everything is as it mostly is, and the caller is to write it now. Needs the lock."""
        turnstile, journal = self.turnstile, self._journals.active
        if access is not tail.admitted or journal is None or not self._latch.is_open:
            return None
        # What waits already has ids before these, and is written first.
        if not turnstile.is_idle or turnstile.open.load.has_content or not self._lets_in(tail):
            return None
        if journal.keyed.get(tail.ledger_id) != tail.facts.master_key:
            return None
        before = tail.handed_out
        try:
            run = tail.append(payloads, access)
            if run.size <= self._limits.group_size_max and journal.has_room_for(run.size):
                turnstile.begin_alone()
                return run
            tail.take_back(before)
        except BaseException:
            tail.take_back(before)
            raise
        return None

    def _do_alone(self, run: Run) -> None:
        """The order of `stages`, for one run."""
        journal, active = self._journals.active, self._slot.tables.active
        assert journal is not None, "looked at before"
        assert run.tail.end != EMPTY, "nobody is admitted before the first add, which has more to say"
        journal.write(grouping.group_of(run), self._durable_up_to)
        self._sync(journal)
        active.insert_parts(run.tail.ledger_id, run.first_id, run.fronts, run.payloads, run.size)
        active.covers_until = self._durable_up_to
        run.tail.settle(run)
        run.is_durable = True
        if active.size >= self._limits.memtable_size_max:
            self._freeze()

    # ── the turn ─────────────────────────────────────────────────────────────────────────────────────

    def _work(self, load: Load) -> None:
        for _ in self.stages(load):
            pass

    def stages(self, load: Load) -> Iterator[None]:
        """One turn in its order, stopping wherever another thread could come in between."""
        try:
            _raise_if(self._latch.failure)  # itself: for who would write, not for who asks
            full = load.refused
            try:
                if load.decided and not full:
                    self._declare(load)
                for step in () if full else grouping.steps(load, self._limits.group_size_max):
                    journal = self._write(step)
                    yield
                    self._sync(journal)
                    yield
                    self._insert(step)
                if load.deletions and not full:
                    self._erase(load.deletions)
            except DiskFull as error:
                full = error
            # On a full disk too: what the checkpoint trims may be the very space that is missing.
            if load.wants_seal and (unsure := self._journal_to_vouch_for()) is not None:
                unsure.write(NOTHING, self._durable_up_to)
                yield
                self._sync(unsure)
            if load.wants_freeze or self._slot.tables.active.size >= self._limits.memtable_size_max:
                self._freeze()
            _raise_if(full)
        except BaseException as error:
            self._fail(load, error)
            raise

    def _declare(self, load: Load) -> None:
        """Whoever reads an entry behind a crash must know its digest type: rows before the first entry."""
        revisions = {}
        for tail in load.decided:
            # Before it is compared: what another decides from here on the next turn compares.
            tail.has_news = False
            if self._registry.contradicts(tail.facts):
                revisions[tail.ledger_id] = partial(as_claimed, claim=tail.facts)
        if revisions:
            self._registry.declare(revisions)

    def _write(self, step: Step) -> JournalWriter:
        group, journal = step.group, self._journals.active
        missing = step.keys({} if journal is None else journal.keyed)
        if journal is None or not journal.has_room(group, grouping.key_records_size(missing)):
            # A new one needs them all.
            journal = self._journals.with_room(group, grouping.key_records_size(step.keys({})))
            missing = step.keys(journal.keyed)
        if missing:
            group = grouping.with_keys(group, missing)
        journal.write(group, self._durable_up_to)
        # Before the sync, and right all the same: after one that fails nothing more is written there.
        journal.keyed.update(missing)
        return journal

    def _sync(self, journal: JournalWriter) -> None:
        self._durable_up_to = journal.sync()
        self.groups += 1

    def _insert(self, step: Step) -> None:
        active = self._slot.tables.active
        runs = grouping.joined(step.runs)
        for run in runs:
            active.insert_parts(run.tail.ledger_id, run.first_id, run.fronts, run.payloads, run.size)
        # Behind the insert: a mark must never cover what is not in the table.
        active.covers_until = self._durable_up_to
        for run in runs:
            if run.tail.end == EMPTY:
                self._settle_claim(run.tail, active)
            run.tail.settle(run)
        for run in step.runs:
            run.is_durable = True
            if run.whole is not None:
                run.whole.is_durable = run.last_id == run.whole.last_id
        # Behind the entries: who sees a fence must see all that it has let pass.
        for statement in step.statements:
            self._registry.settle(statement.tail.ledger_id, statement.revise, active)
            statement.is_durable = True

    def _settle_claim(self, tail: Tail, active: Memtable) -> None:
        # Its key is in the journal now; when that goes, only the row knows it.
        self._registry.settle(tail.ledger_id, lambda row: as_claimed(row, tail.facts), active)

    def _erase(self, deletions: Sequence[Deletion]) -> None:
        for one in deletions:
            # Everything written so far is synced: this is the end of the last group.
            self._registry.erase(one.tail.ledger_id, self._durable_up_to)
            if self._journals.active is not None:
                # The key that is logged here is the deleted ledger's: a replay passes over it.
                self._journals.active.keyed.pop(one.tail.ledger_id, None)
            one.tail.restart(self._registry.of(one.tail.ledger_id))
            one.is_done = True

    def _journal_to_vouch_for(self) -> JournalWriter | None:
        journal = self._journals.active
        has_to = journal is not None and journal.needs_vouching and journal.has_room(NOTHING)
        return journal if has_to else None

    def _freeze(self) -> None:
        tables = self._slot.tables
        if tables.frozen is None and tables.active.has_content:
            self._slot.tables = Tables(Memtable(tables.active.covers_until), tables.active)

    def _fail(self, load: Load, error: BaseException) -> None:
        if not isinstance(error, DiskFull):
            self._latch.fail(error)
            return
        for run in load.unawaited:
            if not run.is_durable:
                # Before the turn is over: who forces may be let go before anybody is answered.
                run.tail.lost = error
        if load.refused is None:
            self._refuse_open(error)

    def _answer(self, load: Load, error: BaseException | None) -> None:
        """When nobody waits for the turn any more: who hears of a future may well add again, and lead."""
        # Before any future: who hears of one may add to the very ledger that was deleted.
        for deletion in load.deletions:
            deletion.tail.is_held = False
        self.news.notify()
        while load.pending:
            future, run = load.pending.popleft()
            if error is None or run.is_durable:
                future.set_result(run.first_id)
            else:
                future.set_exception(self.as_told(error))
        for told in load.watchers:
            told(error)
        if self._latch.failure is None:
            self.on_turn()

    def _interrupted(self, load: Load, error: BaseException) -> None:
        """Ids that are not written must not be passed over by the next turn."""
        if not load.is_done:
            self._latch.fail(error)

    def _refuse_open(self, error: DiskFull) -> None:
        """What waits for the next turn has ids behind those that are handed back: it is refused with them."""
        with self.turnstile.lock:
            load = self.turnstile.open.load
            if load.has_content:
                load.refused = error
            self._tails.hand_back()

    def fail(self, error: BaseException) -> BaseException:
        """From here on nothing is written: an error outside of a turn. What its caller is told."""
        self._latch.fail(error)
        self.news.notify()
        return self.as_told(error)

    def as_told(self, error: BaseException) -> BaseException:
        """An error of its own for each caller: one that many threads raise collects all their tracebacks."""
        told = DiskFull(error.path) if isinstance(error, DiskFull) else StoreFailed(self._latch.path)
        told.__cause__ = error
        return told

    # ── for the scheduler of a simulation, and for workers ───────────────────────────────────────────

    def begin(self) -> Turn[Load] | None:
        """Takes the open turn, to be played stage by stage; `None` while another is under way."""
        return self.turnstile.begin()


def _raise_if(error: BaseException | None) -> None:
    if error is not None:
        raise error


def _nobody() -> None:
    """Who is told while nobody wants to know."""
