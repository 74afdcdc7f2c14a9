"""Adds: what is waiting goes into the journal as one group, and is answered when that is durable.

One turn, in the order that nothing may change:

    write the group → sync → into the active table → covers_until → visible, answered

A group is never written before the one before it is durable. After any error of a write or a sync the
outcome is unknown, so the latch falls: no answer is given any more. Between two turns, and only there, a
table is frozen: its `covers_until` is then exact.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from storage import grouping
from storage.codec import record as record_codec
from storage.entrance import Entrance
from storage.errors import DiskFull
from storage.grouping import Load
from storage.journal_writer import NOTHING, Group
from storage.registry import as_claimed
from storage.tail import EMPTY
from storage.turnstile import Signal, Turnstile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from storage.entrance import Limits
    from storage.grouping import Deletion, Step
    from storage.journal_writer import JournalWriter
    from storage.journals import Journals
    from storage.latch import Latch
    from storage.memtable import Memtable, Slot
    from storage.registry import Registry
    from storage.tail import Tail, Tails


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
    ) -> None:
        self.turnstile = Turnstile(Load, self._work, self._answer, self._interrupted)
        self.news = Signal()
        """After each turn, and when the store closes or fails: what readers and waiting adds look for."""
        self.entrance = Entrance(self.turnstile, self.news, slot, latch, limits)
        self.on_turn: Callable[[], None] = _nobody
        """Told after each turn, by whoever led it."""
        self._journals = journals
        self._slot = slot
        self._tails = tails
        self._registry = registry
        self._latch = latch
        self._limits = limits

    # ── between two turns ────────────────────────────────────────────────────────────────────────────

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
        self._slot.thaw()
        self.news.notify()

    def carry_over(self, records: Sequence[bytes]) -> None:
        """Makes durable what opening has read and cannot prove; it is in the active table already."""
        ledger_ids = {record_codec.ledger_id(record) for record in records}
        # Not from tails: what they look up of a ledger's end may be unreadable, and is not needed here.
        known = {ledger_id: self._registry.of(ledger_id).master_key for ledger_id in ledger_ids}
        keys = {ledger_id: key for ledger_id, key in known.items() if key is not None}
        group = Group(records, len(records), grouping.size_of(records))
        group = grouping.with_keys(group, keys)
        journal = self._journals.carry_over(group)
        journal.keyed.update(keys)
        self._slot.tables.active.covers_until = self._journals.durable_up_to

    # ── the turn ─────────────────────────────────────────────────────────────────────────────────────

    def _work(self, load: Load) -> None:
        for _ in self.stages(load):
            pass

    def stages(self, load: Load) -> Iterator[None]:
        """One turn in its order, stopping wherever another thread could come in between."""
        try:
            self._raise_if_failed()
            full = load.refused
            try:
                if load.decided and not full:
                    self._declare(load)
                for step in () if full else grouping.steps(load, self._limits.group_size_max):
                    self._write(step)
                    yield
                    self._journals.sync()
                    yield
                    self._insert(step)
                if load.deletions and not full:
                    self._erase(load.deletions)
            except DiskFull as error:
                full = error
            # On a full disk too: what the checkpoint trims may be the very space that is missing.
            if load.wants_seal and (unsure := self._journal_to_vouch_for()) is not None:
                unsure.write(NOTHING, self._journals.durable_up_to)
                yield
                self._journals.sync()
            if load.wants_freeze or self._slot.tables.active.size >= self._limits.memtable_size_max:
                self._slot.freeze()
            _raise_if(full)
        except BaseException as error:
            self._fail(load, error)
            raise

    def _raise_if_failed(self) -> None:
        """The failure itself: for who would write, not for who asks. A Ctrl-C was for another thread."""
        failure = self._latch.failure
        if failure is not None:
            raise failure if isinstance(failure, Exception) else self._latch.as_told(failure)

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

    def _write(self, step: Step) -> None:
        group, journal = step.group, self._journals.active
        missing = step.keys({} if journal is None else journal.keyed)
        if journal is None or not journal.has_room(group, grouping.key_records_size(missing)):
            # A new one needs them all.
            journal = self._journals.with_room(group, grouping.key_records_size(step.keys({})))
            missing = step.keys(journal.keyed)
        if missing:
            group = grouping.with_keys(group, missing)
        journal.write(group, self._journals.durable_up_to)
        # Before the sync, and right all the same: after one that fails nothing more is written there.
        journal.keyed.update(missing)

    def _insert(self, step: Step) -> None:
        active = self._slot.tables.active
        runs = grouping.joined(step.runs)
        for run in runs:
            active.insert_parts(run.tail.ledger_id, run.first_id, run.fronts, run.payloads, run.size)
        # Behind the insert: a mark must never cover what is not in the table.
        active.covers_until = self._journals.durable_up_to
        for run in runs:
            if run.tail.end == EMPTY:
                self._settle_claim(run.tail, active)
            run.tail.settle(run.last_id, run.length, run.confirmed)
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
            self._registry.erase(one.tail.ledger_id, self._journals.durable_up_to)
            if self._journals.active is not None:
                # The key that is logged here is the deleted ledger's: a replay passes over it.
                self._journals.active.keyed.pop(one.tail.ledger_id, None)
            one.tail.restart(self._registry.of(one.tail.ledger_id))
            one.is_done = True

    def _journal_to_vouch_for(self) -> JournalWriter | None:
        journal = self._journals.active
        has_to = journal is not None and journal.needs_vouching and journal.has_room(NOTHING)
        return journal if has_to else None

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
            if not deletion.is_answered:
                # Once, and with no call in between: a second Ctrl-C later another may hold the ledger.
                deletion.is_answered, deletion.tail.is_held = True, False
        self.news.notify()
        while load.pending:
            # Taken out when it is answered: a Ctrl-C in between must not lose it.
            future, run = load.pending[0]
            if not future.done():
                if error is None or run.is_durable:
                    future.set_result(run.first_id)
                else:
                    future.set_exception(self._latch.as_told(error))
            load.pending.popleft()
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
        return self._latch.as_told(error)


def _raise_if(error: BaseException | None) -> None:
    if error is not None:
        raise error


def _nobody() -> None:
    """Who is told while nobody wants to know."""
