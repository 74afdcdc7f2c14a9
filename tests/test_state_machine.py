"""Compare the real store with plain dicts during random calls, crashes and disk errors.

One thread runs everything: workers are stepped, and a turn may stop between two of its stages while other
calls are made. Calls that would wait for that turn are not made, because no other thread could continue it.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from ledger_model import LedgerModel
from sampling import many
from simulated_store import open_session, world_shape
from store_internals import StoreInternals, confirm, used_bytes
from store_promises import PASSWORDS, look

from recovery.crashlab import (
    FailedSync,
    KeepAll,
    Lasting,
    LoseAll,
    Pages,
    RandomFate,
    Refused,
    ShortWrite,
    SimulatedDisk,
    Stopped,
    Tearing,
    Verb,
    When,
)
from storage.entry.model import NO_ENTRY, DigestType, Entry
from storage.entry.record_format import front_size
from storage.errors import (
    DiskFull,
    EntryTooLarge,
    EntryTruncated,
    EntryUnreadable,
    InvalidEntry,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    Overloaded,
    StoreError,
    StoreFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from ledger_model import ModelRun
    from simulated_store import SteppedSession, SteppedWorker, WorldShape

    from recovery.crashlab import Fate, Fault
    from storage.commit.pending import PendingGroup
    from storage.ledger import Ledger
    from storage.store import Store

    Death = tuple[int, bool, Fate | None]

MORTAL = (2, 20, 21)
"""The ledgers that are fenced and deleted. One has a password, and one has a MAC digest too."""

LEDGERS = (1, *MORTAL, 1 << 40)
DIGESTS = {21: DigestType.MAC}
Item = TypeVar("Item")

TIMED = ("ledgerstore-timer", "ledgerstore-seal", "ledgerstore-collect")
"""Workers that repeat their step without an end, or wait for a time that may be a day away."""

NEVER = 0
"""No operation has this number."""

STEPS_MAX = 3000
"""A number of worker steps that is larger than any amount of work, so that workers must be in a loop."""

ledgers = st.sampled_from(LEDGERS)
mortals = st.sampled_from(MORTAL)
immortals = st.sampled_from([one for one in LEDGERS if one not in MORTAL])
sizes = st.sampled_from([0, 9, 60, 60, 200, 700, 1500])
cuts = st.one_of(
    st.none(),
    st.sampled_from([LoseAll(), KeepAll()]),
    st.builds(RandomFate, st.integers(0, 1 << 20), st.sampled_from(Tearing)),
)
"""How a run ends: by a kill, or by a power cut with this fate."""

deaths = st.one_of(
    st.none(), st.tuples(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 6, 9, 14]), st.booleans(), cuts)
)
"""Whether, when and how the run ends: after a number of operations, the last one perhaps half done."""

files = st.sampled_from(
    [
        "*.txn*",
        "*.txn.draft",
        "*.txn",
        "*.log",
        "index*",
        "lastMark*",
        "journal/current",
        "ledgers/current",
        "*",
    ]
)
whens = st.builds(
    When,
    name=files,
    nth=st.sampled_from([1, 1, 2, 3, 7]),
    lasting=st.sampled_from([Lasting.ONCE, Lasting.ONCE, Lasting.UNTIL_MENDED]),
)
faults = st.one_of(
    st.builds(FailedSync, whens, seed=st.integers(0, 1 << 20), pages=st.sampled_from(Pages)),
    st.builds(FailedSync, whens, seed=st.integers(0, 1 << 20), pages=st.sampled_from(Pages)),
    st.builds(ShortWrite, whens, accepted=st.sampled_from([None, 0, 1, 4096])),
    st.builds(Refused, whens),
)


class StoreMachine(RuleBasedStateMachine):
    """A store, its disk, and the model. Each rule leaves the store open."""

    model: LedgerModel
    disk: SimulatedDisk
    shape: WorldShape

    def __init__(self) -> None:
        super().__init__()
        self.is_faulty = False
        """Whether errors were planted since the store was last opened without any."""
        self.is_planted = False
        self._stop_fate: Fate | None = None
        self.openings_failed = 0
        self._numbers = 0
        self._turn: PendingGroup | None = None
        self._stages: Iterator[None] = iter(())
        self._stage = 0
        self._submitted: list[tuple[ModelRun, Future[int]]] = []

    @initialize(seed=st.integers(0, 200))
    def found(self, seed: int) -> None:
        self.shape = world_shape(seed)
        self.dice, self.samples = Random(seed), Random(seed)
        self.model = LedgerModel()
        self.disk = SimulatedDisk(sector_size=self.shape.sector_size)
        self._open()

    # ── adds ──────────────────────────────────────────────────────────────────────────────────────────

    @precondition(lambda self: self._turn is None)
    @rule(ledger_id=ledgers, sizes=st.lists(sizes, min_size=1, max_size=6))
    def append(self, ledger_id: int, sizes: list[int]) -> None:
        for size in sizes:
            with self._crashes():
                self._append(ledger_id, self._payload(size))

    @precondition(lambda self: self._turn is None)
    @rule(ledger_id=ledgers, sizes=st.lists(sizes, min_size=1, max_size=9), death=deaths)
    def append_many(self, ledger_id: int, sizes: list[int], death: Death | None) -> None:
        self._die_soon(death)
        payloads = [self._payload(size) for size in sizes]
        with self._crashes():
            self._add(
                lambda: self._appended(ledger_id, payloads),
                lambda: self._ledger(ledger_id).append_many(payloads),
            )

    @precondition(lambda self: self._turn is None)
    @rule(ledger_id=ledgers, offset=st.integers(-9, 3), size=sizes, is_behind=st.booleans())
    def add(self, ledger_id: int, offset: int, size: int, is_behind: bool) -> None:
        entry_id = max(0, self.model.next_free(ledger_id) + offset)
        if entry_id == self.model.first_id(ledger_id) - 1:
            entry_id += 1  # the length of the last entry, which is truncated, would change until an opening
        said = self.model.said(ledger_id, entry_id)
        is_last = entry_id >= self.model.next_free(ledger_id)
        # A writer's confirmations never go back, so a later entry confirms at least as much as an earlier
        # one.
        confirmed = said if is_behind or not is_last else entry_id - 1
        entry = Entry(ledger_id, entry_id, confirmed, 1000 * size + entry_id, self._payload(size))
        with self._crashes():
            self._add(
                lambda: self._made(self.model.added(entry)),
                lambda: self._store.add(entry, DIGESTS.get(ledger_id), PASSWORDS.get(ledger_id, b"")),
            )

    @rule(ledger_id=ledgers, sizes=st.lists(sizes, min_size=1, max_size=4))
    def submit(self, ledger_id: int, sizes: list[int]) -> None:
        for size in sizes:
            payload = self._payload(size)
            waits = StoreInternals(self._store).waiting_size + overhead(ledger_id) + len(payload)
            if waits >= self.shape.config.group_size_max:
                self._finish_turn()  # otherwise the submitting call would wait for it
            with self._crashes():
                self._submit(ledger_id, payload)

    @rule(ledger_id=ledgers)
    def add_too_much(self, ledger_id: int) -> None:
        with pytest.raises(EntryTooLarge):
            self._ledger(ledger_id).append_many([b"fits", bytes(self.shape.config.entry_size_max)])

    def _payload(self, size: int) -> bytes:
        self._numbers += 1
        return b"%d." % self._numbers + bytes([self._numbers % 251]) * size

    def _append(self, ledger_id: int, payload: bytes) -> None:
        self._add(
            lambda: self._appended(ledger_id, [payload]), lambda: self._ledger(ledger_id).append(payload)
        )

    def _appended(self, ledger_id: int, payloads: Sequence[bytes]) -> ModelRun:
        limit = self.shape.config.group_size_max
        return self._made(self.model.appended(ledger_id, payloads, limit, overhead(ledger_id)))

    def _made(self, run: ModelRun) -> ModelRun:
        ledger_id = run.entries[0].ledger_id
        self.model.facts.made(ledger_id, DIGESTS.get(ledger_id, DigestType.CRC32C))
        return run

    def _add(self, hand_over: Callable[[], ModelRun], call: Callable[[], object]) -> None:
        refusal = self._refusal()
        run = hand_over()
        try:
            answer = call()
        except (Overloaded, DiskFull, StoreFailed, EntryUnreadable, LedgerFenced) as error:
            self._hear()
            self._hear_error(run, error)
        else:
            self._hear()
            known = self.model.facts.of(run.entries[0].ledger_id)
            assert not known.fence_answered, "an add has passed a fence"
            self.model.answered(run)
            assert answer in (None, run.ids[0], range(run.ids[0], run.ids[-1] + 1)), answer
            assert refusal is None, f"added, and expected {refusal}"

    def _refusal(self) -> type[StoreError] | None:
        """Return the error that an add must raise, if it is known before the call."""
        if StoreInternals(self._store).failure is not None:
            return StoreFailed
        return None

    def _hear_error(self, run: ModelRun, error: BaseException) -> None:
        match error:
            case Overloaded():
                assert self._is_full(), "refused, and there is room"
                self.model.refused(run)
            case DiskFull():
                assert self.is_faulty, "refused, and there is space"
                self._refused(run)
            case LedgerFenced():
                assert self.model.facts.of(run.entries[0].ledger_id).fence_asked, "no fence was requested"
                self.model.refused(run)
            case EntryUnreadable():
                assert self.is_planted, "unreadable without an error of the disk"
                self.model.refused(run)
            case StoreFailed():
                assert StoreInternals(self._store).failure is not None
            case _:
                raise error

    def _is_full(self) -> bool:
        engine = StoreInternals(self._store)
        used = (
            engine.waiting_size
            if engine.frozen_table is None
            else engine.waiting_size + engine.table_sizes[0]
        )
        return used >= engine.config.memtable_size_max

    def _refused(self, run: ModelRun) -> None:
        """Check that only groups before the one that found no space were kept."""
        kept = [self._find(entry) == entry for entry in run.entries]
        assert kept == sorted(kept, reverse=True), f"kept with gaps: {run}"
        assert not run.is_whole or not any(kept), (
            f"the call reported that nothing was stored, but something was: {run}"
        )
        for entry, is_kept in zip(run.entries, kept, strict=True):
            if is_kept:
                self.model.shown(entry)
        self.model.refused(run)

    def _find(self, entry: Entry) -> Entry | None:
        try:
            return self._ledger(entry.ledger_id).read(entry.entry_id)
        except (NoSuchEntry, NoSuchLedger):
            return None

    def _submit(self, ledger_id: int, payload: bytes) -> None:
        self._look_at_end(ledger_id)
        run = self._appended(ledger_id, [payload])
        try:
            future = self._ledger(ledger_id).submit(payload)
        except (Overloaded, DiskFull, StoreFailed, EntryUnreadable, LedgerFenced) as error:
            self._hear_error(run, error)
            return
        self._submitted.append((run, future))
        self._hear()

    def _look_at_end(self, ledger_id: int) -> None:
        # Entries that a turn in progress has made durable are confirmed, although no call was answered yet.
        if not self._is_exact:
            for entry_id in self.model.may_show(ledger_id):
                self._check_entry(ledger_id, entry_id)

    def _hear(self) -> None:
        """Record the results of submitted entries, in order."""
        while self._submitted and self._submitted[0][1].done():
            run, future = self._submitted.pop(0)
            error = future.exception()
            if error is not None:
                self._hear_error(run, error)
            else:
                assert future.result() == run.ids[0]
                self.model.answered(run)

    # ── what is said of ledgers ───────────────────────────────────────────────────────────────────────

    @precondition(lambda self: self._turn is None)
    @rule(ledger_id=mortals, death=deaths)
    def fence(self, ledger_id: int, death: Death | None) -> None:
        self._die_soon(death)
        with self._crashes():
            self._say(ledger_id, lambda: self._fence(ledger_id))

    def _fence(self, ledger_id: int) -> None:
        self.model.facts.fence(ledger_id)
        last = self._ledger(ledger_id).fence()
        self._hear()
        self.model.facts.fenced(ledger_id)
        assert last == (None if self.model.last(ledger_id) == NO_ENTRY else self.model.last(ledger_id))

    @precondition(lambda self: self._turn is None)
    @rule(ledger_id=ledgers, number=st.integers(0, 60), death=deaths)
    def confirm(self, ledger_id: int, number: int, death: Death | None) -> None:
        self._die_soon(death)
        with self._crashes():
            self._say(ledger_id, lambda: self._confirm(ledger_id, number))

    def _confirm(self, ledger_id: int, number: int) -> None:
        self.model.facts.confirm(ledger_id, number)
        confirm(self._ledger(ledger_id), number)
        self._hear()
        self.model.facts.confirmed(ledger_id, number)

    def _say(self, ledger_id: int, say: Callable[[], None]) -> None:
        self.model.facts.made(ledger_id, DIGESTS.get(ledger_id, DigestType.CRC32C))
        try:
            say()
        except (DiskFull, StoreFailed, EntryUnreadable):
            self._hear()
            assert self.is_faulty or self.disk.has_stopped, "refused without an error of the disk"

    @precondition(lambda self: self._turn is None)
    @rule(ledger_id=mortals, death=deaths)
    def delete(self, ledger_id: int, death: Death | None) -> None:
        self._die_soon(death)
        with self._crashes():
            self.model.going.add(ledger_id)
            try:
                self._ledger(ledger_id).delete()
            except NoSuchLedger:
                self._hear()
                self.model.going.discard(ledger_id)
                assert ledger_id not in self.model.ledgers()
            except DiskFull:
                self._hear()
                self.model.going.discard(ledger_id)
                assert self.is_faulty, "refused, and there is space"
            except (StoreFailed, EntryUnreadable):
                self._hear()
                assert self.is_faulty or self.disk.has_stopped, "failed without an error of the disk"
            else:
                self._hear()
                self.model.erased(ledger_id)

    @precondition(lambda self: self._turn is None)
    @rule(ledger_ids=st.lists(mortals, min_size=1, unique=True), death=deaths)
    def delete_many(self, ledger_ids: list[int], death: Death | None) -> None:
        """Delete ledgers in one call: all of them, or none."""
        self._die_soon(death)
        # A ledger with an add in the same commit is there, also if a full disk refuses the commit.
        joining = {run.entries[0].ledger_id for run, future in self._submitted if not future.done()}
        with self._crashes():
            self.model.going.update(ledger_ids)
            self.model.going_together.append(frozenset(ledger_ids))
            try:
                self._store.bookie.delete_all(ledger_ids)
            except NoSuchLedger as error:
                self._hear()
                self._are_kept(ledger_ids)
                named = error.ledger_id
                if not self.disk.has_stopped:  # otherwise adds before it are there, and were not answered
                    there = joining.union(self.model.ledgers())
                    assert [named] == [one for one in ledger_ids if one not in there][:1]
            except DiskFull:
                self._hear()
                assert self.is_faulty, "refused, and there is space"
                self._are_kept(ledger_ids)
            except (StoreFailed, EntryUnreadable):
                self._hear()
                assert self.is_faulty or self.disk.has_stopped, "failed without an error of the disk"
            else:
                self._hear()
                self.model.going_together.pop()
                assert set(ledger_ids) <= set(self.model.ledgers()), "deleted, and one was missing"
                for ledger_id in ledger_ids:
                    self.model.erased(ledger_id)

    def _are_kept(self, ledger_ids: list[int]) -> None:
        self.model.going.difference_update(ledger_ids)
        self.model.going_together.pop()

    @precondition(lambda self: self._turn is None and self._is_exact)
    @rule(ledger_id=ledgers, kept=st.integers(-1, 12), death=deaths)
    def truncate(self, ledger_id: int, kept: int, death: Death | None) -> None:
        """Truncate to this number of ids, or after the end, which is refused."""
        before = max(0, self.model.last(ledger_id) + 1 - kept)
        self._die_soon(death)
        with self._crashes():
            self.model.cutting[ledger_id].add(before)
            try:
                self._ledger(ledger_id).truncate(before)
            except (NoSuchLedger, InvalidEntry) as error:
                self._hear()
                self.model.cutting[ledger_id].discard(before)
                is_missing, refusal = ledger_id not in self.model.ledgers(), type(error)
                assert refusal is (NoSuchLedger if is_missing else InvalidEntry)
                assert is_missing or kept < 0
            except DiskFull:
                self._hear()  # a crash may truncate it nevertheless
                assert self.is_faulty, "refused, and there is space"
            except (StoreFailed, EntryUnreadable):
                self._hear()
                assert self.is_faulty or self.disk.has_stopped, "failed without an error of the disk"
            else:
                self._hear()
                assert kept >= 0, "truncated after its end"
                self.model.truncated(ledger_id, before)

    # ── turns, workers, checkpoints ───────────────────────────────────────────────────────────────────

    @precondition(lambda self: self._turn is None)
    @rule(stages=st.integers(0, 3))
    def begin_turn(self, stages: int) -> None:
        engine = StoreInternals(self._store)
        self._turn = engine.begin_turn()
        assert self._turn is not None, "there is no leader, and there must be none"
        self._stages, self._stage = engine.stages(self._turn), 0
        for _ in range(stages):
            self._play_stage()

    @precondition(lambda self: self._turn is not None)
    @rule(stages=st.integers(1, 3))
    def play_turn(self, stages: int) -> None:
        for _ in range(stages):
            self._play_stage()

    def _play_stage(self) -> None:
        if self._turn is None:
            return
        error: Exception | None = None
        with self._crashes():
            try:
                self._stage += 1
                if next(self._stages, self) is None:
                    return
            except Exception as raised:
                error = raised
            turn, self._turn, self._stage = self._turn, None, 0
            StoreInternals(self._store).end_turn(turn, error)
            self._hear()

    def _finish_turn(self) -> None:
        while self._turn is not None:
            self._play_stage()

    @rule(which=st.integers(0, 4), steps=st.integers(1, 12))
    def work(self, which: int, steps: int) -> None:
        """Step a worker that has work."""
        for _ in range(steps):
            able = [one for one in self._sitting.workers if self._may_play(one)]
            if able:
                self._play(able[which % len(able)])

    @rule(steps=st.one_of(st.integers(1, 9), st.just(STEPS_MAX), st.just(STEPS_MAX)), death=deaths)
    def checkpoint(self, steps: int, death: Death | None) -> None:
        """Run a whole checkpoint or some of its steps."""
        self._die_soon(death)
        StoreInternals(self._store).request_checkpoint()
        self._play_checkpoint(steps)

    def _play_checkpoint(self, steps: int) -> None:
        worker = next(one for one in self._sitting.workers if one.name == "ledgerstore-checkpoint")
        store = self._store
        for _ in range(steps):
            if not self._may_play(worker) or StoreInternals(store).disk_full_error is not None:
                return
            self._play(worker)
            if store is not self._store:
                return  # the disk has crashed in the meantime
        assert steps < STEPS_MAX, "a checkpoint without an end"

    @precondition(lambda self: self._turn is None)
    @rule()
    def seal_when_idle(self) -> None:
        """Seal as the worker does, without its pause."""
        with self._crashes():
            StoreInternals(self._store).seal()
            self._hear()

    def _may_play(self, worker: SteppedWorker) -> bool:
        """Return whether the worker has work and would not wait for the turn in progress."""
        if not worker.is_awake or self._turn is None:
            return worker.is_awake
        if worker.name == "ledgerstore-checkpoint":
            return not StoreInternals(self._store).checkpoint_needs_turn
        return worker.name not in ("ledgerstore-seal", "ledgerstore-flush")

    def _play(self, worker: SteppedWorker) -> None:
        with self._crashes():
            worker.play()
            self._hear()

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────

    @rule(ledger_id=ledgers, entry_ids=st.lists(st.integers(0, 60), min_size=1, max_size=6))
    def read(self, ledger_id: int, entry_ids: list[int]) -> None:
        for entry_id in entry_ids:
            self._check_entry(ledger_id, entry_id)

    @precondition(lambda self: self._is_exact)
    @rule(ledger_id=ledgers, first=st.integers(0, 40), last=st.one_of(st.none(), st.integers(0, 60)))
    def scan(self, ledger_id: int, first: int, last: int | None) -> None:
        ledger = self._ledger(ledger_id)
        entries, error = _taken(ledger.entries(first, last))
        payloads, same_error = _taken(ledger.payloads(first, last))
        end = self.model.last(ledger_id) if last is None else last
        assert entries == self.model.in_a_row(ledger_id, first, end)
        assert payloads == [one.payload for one in entries]
        assert repr(error) == repr(same_error)
        if ledger_id not in self.model.ledgers():
            assert isinstance(error, NoSuchLedger)
        elif first + len(entries) <= end:
            assert isinstance(error, NoSuchEntry)
            assert error.entry_id == first + len(entries)
            assert isinstance(error, EntryTruncated) == (error.entry_id < self.model.first_id(ledger_id))
        else:
            assert error is None

    def _check_entry(self, ledger_id: int, entry_id: int) -> None:
        expected = self.model.there.get(ledger_id, {}).get(entry_id)
        found = self._find(Entry(ledger_id, entry_id, NO_ENTRY, 0, b""))
        if found is not None and not self._is_exact:
            self.model.shown(found)
            return
        if found is None and entry_id < max(self.model.cutting[ledger_id], default=0):
            return  # the store has failed while it was truncated
        assert found == expected, f"found {found}, and expected {expected}"

    @property
    def _is_exact(self) -> bool:
        """Return whether exactly the answered entries are visible: no turn is in progress and none has
        failed."""
        return self._stage < 2 and StoreInternals(self._store).failure is None

    # ── errors of the disk ────────────────────────────────────────────────────────────────────────────

    @rule(fault=faults)
    def plant(self, fault: Fault) -> None:
        self.is_faulty = self.is_planted = True
        self.disk.plant(fault)

    @precondition(lambda self: self._turn is None)
    @rule(room=st.sampled_from([0, 0, 3000, 9000]), ledger_id=ledgers, sizes=st.lists(sizes, max_size=9))
    def fill_the_disk(self, room: int, ledger_id: int, sizes: list[int]) -> None:
        """Fill the disk: adds succeed while there is room in journals, then they are refused."""
        self.is_faulty = self.is_planted = True
        self.disk.limit(used_bytes(self.disk) + room)
        self.append(ledger_id, sizes)

    @rule(ledger_id=immortals)
    def mend(self, ledger_id: int) -> None:
        """Give the disk space again: everything continues by itself, unless the store has failed."""
        self._mend()
        self._finish_turn()
        self._work_until_quiet()
        store = self._store
        if StoreInternals(store).failure is None:
            assert StoreInternals(store).frozen_table is None, "a checkpoint does not continue"
            self.is_faulty = False
            expected = self.model.next_free(ledger_id)
            self.append(ledger_id, [9])
            assert self.model.last(ledger_id) == expected or store is not self._store, "adds do not resume"

    def _mend(self) -> None:
        self.is_planted = False
        self.disk.mend()
        self.disk.limit(None)

    def _work_until_quiet(self) -> None:
        for _ in range(STEPS_MAX):
            able = [one for one in self._sitting.workers if self._may_play(one) and one.name not in TIMED]
            if not able:
                return
            self._play(able[0])
        raise AssertionError("workers without an end")

    @precondition(lambda self: not self.is_planted and self._is_exact and self._turn is None)
    @rule(
        ledger_id=ledgers,
        entry_ids=st.lists(st.integers(0, 40), min_size=1, max_size=4),
        verb=st.sampled_from([Verb.READ, Verb.OPEN]),
        lasting=st.sampled_from(Lasting),
    )
    def read_badly(self, ledger_id: int, entry_ids: list[int], verb: Verb, lasting: Lasting) -> None:
        """Read with a disk error: the call raises it, and returns neither a missing nor another entry."""
        self.disk.stop_before(NEVER)  # an opening would meet the error
        self.is_planted = True
        self.disk.plant(Refused(When(verb=verb, name="*.log", lasting=lasting)))
        for entry_id in entry_ids:
            with suppress(EntryUnreadable):
                self._check_entry(ledger_id, entry_id)
        self.append(ledger_id, [60])
        self._mend()

    # ── the end of a run, and the next one ────────────────────────────────────────────────────────────

    @rule(fate=st.one_of(st.just("open"), cuts), death=deaths)
    def close(self, fate: Fate | str | None, death: Death | None) -> None:
        """Close the store cleanly, if the disk allows it."""
        self._finish_turn()
        self._die_soon(death)
        store, is_fine = self._store, StoreInternals(self._store).failure is None and not self.is_faulty
        try:
            store.close()
        except Stopped:
            self._crash(self._stop_fate)
            return
        except (StoreError, OSError):
            if self.disk.has_stopped:
                self._crash(self._stop_fate)
                return
            assert self.is_faulty
        self._hear_last()
        if is_fine:
            assert not self.model.hanging, "closed, and somebody waits"
        if not isinstance(fate, str):
            self._cut(fate)
        self._open()
        opened = self._store.opened
        # Entries that were written again may be in a log already; they are replayed once more.
        if is_fine and not self.openings_failed and not store.opened.records_carried:
            assert opened.records_replayed == 0, f"closed cleanly, but work is left: {opened}"

    @rule(fate=cuts)
    def crash(self, fate: Fate | None) -> None:
        """Crash between two steps."""
        self._crash(fate)

    @rule(
        fate=cuts, stops=st.lists(st.tuples(st.integers(1, 40), st.booleans(), cuts), min_size=1, max_size=3)
    )
    def crash_in_openings(self, fate: Fate | None, stops: list[tuple[int, bool, Fate | None]]) -> None:
        """Crash, and crash again in the following openings."""
        self._hear_last()
        self._cut(fate)
        for operations, is_within, next_fate in stops:
            self._stop_in(operations, is_within)
            with suppress(Stopped, OSError, StoreFailed):
                open_session(self.disk, self.shape.config, self.dice)
            self._cut(next_fate)
        self._open()

    @precondition(lambda self: not self.is_planted)
    @rule(fate=cuts, name=files, nth=st.integers(1, 9))
    def open_with_a_read_error(self, fate: Fate | None, name: str, nth: int) -> None:
        """Open with a read error: the opening is refused or succeeds, and reports no damage."""
        self._hear_last()
        self._cut(fate)
        self.disk.plant(Refused(When(verb=Verb.READ, name=name, nth=nth)))
        with suppress(OSError):
            open_session(self.disk, self.shape.config, self.dice)
        self._mend()
        self._cut(None)
        self._open()

    def _die_soon(self, death: Death | None) -> None:
        """Let the disk crash within the next calls."""
        if death is not None:
            operations, is_within, self._stop_fate = death
            self._stop_in(operations, is_within)

    def _stop_in(self, operations: int, is_within: bool) -> None:
        stop = self.disk.stop_within if is_within else self.disk.stop_before
        stop(len(self.disk.trace) + operations)

    @contextmanager
    def _crashes(self) -> Iterator[None]:
        try:
            yield
        except Stopped:
            self._crash(self._stop_fate)
        else:
            # A call may have told its caller only that the store has failed.
            if self.disk.has_stopped:
                self._crash(self._stop_fate)

    def _crash(self, fate: Fate | None) -> None:
        self._hear_last()
        self._cut(fate)
        self._open()

    def _hear_last(self) -> None:
        """Record the calls that were answered before the end; the results of the others are unknown."""
        for run, future in self._submitted:
            if future.done() and future.exception() is None:
                self.model.answered(run)
        self._submitted = []

    def _cut(self, fate: Fate | None) -> None:
        if fate is None:
            self.disk.kill()
        else:
            self.disk.power_cut(fate)

    def _open(self) -> None:
        """Open the store, with crashes in between. Without a disk error an opening is never refused."""
        self._turn, self._stage, self.openings_failed = None, 0, 0
        while (sitting := self._try_to_open()) is None:
            self.openings_failed += 1
            if self.openings_failed == 2:
                self._mend()
        self._sitting = sitting
        self.is_faulty = self.is_planted
        self.model.opened(look(self._store))

    def _try_to_open(self) -> SteppedSession | None:
        try:
            return open_session(self.disk, self.shape.config, self.dice)
        except Stopped:
            self._cut(self._stop_fate)
        except (DiskFull, StoreFailed, OSError):
            if not self.is_planted:
                raise
        return None

    # ── always ────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def shows_what_the_model_says(self) -> None:
        if self._is_exact:
            assert self._store.ledgers() == self.model.ledgers()
        ledger_id = self.samples.choice(LEDGERS)
        self._check_end(ledger_id)
        some = sorted(self.model.may_show(ledger_id))
        for entry_id in {*self.samples.sample(some, min(3, len(some))), *some[-2:]}:
            self._check_entry(ledger_id, entry_id)

    def _check_end(self, ledger_id: int) -> None:
        ledger = self._ledger(ledger_id)
        last, confirmed = ledger.last_entry_id, ledger.last_add_confirmed
        if self._is_exact:
            assert ledger.first_entry_id == self.model.first_id(ledger_id)
            self.model.check_end(ledger_id, last, confirmed)
        else:
            first_ids = {self.model.first_id(ledger_id), *self.model.cutting[ledger_id]}
            before_first = {first_id - 1 for first_id in first_ids}
            assert last is None or last in {*before_first, *self.model.may_show(ledger_id)}
            self.model.check_not_gone_back(ledger_id, NO_ENTRY if last is None else last, confirmed)

    def teardown(self) -> None:
        """Check at the end that everything that was promised is there."""
        if hasattr(self, "_sitting"):
            self._crash(RandomFate(self._numbers, self.shape.tearing))

    @property
    def _store(self) -> Store:
        return self._sitting.store

    def _ledger(self, ledger_id: int) -> Ledger:
        return self._store.ledger(ledger_id, DIGESTS.get(ledger_id), PASSWORDS.get(ledger_id, b""))


def overhead(ledger_id: int) -> int:
    """Return the bytes of a record of the ledger beside its payload."""
    return front_size(DIGESTS.get(ledger_id, DigestType.CRC32C))


def _taken(items: Iterator[Item]) -> tuple[list[Item], Exception | None]:
    """Return the entries of an iterator, and the error that ends it."""
    taken: list[Item] = []
    try:
        taken.extend(items)
    except StoreError as error:
        return taken, error
    return taken, None


def _play(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.sampled
def test_a_store_behaves_like_plain_dicts() -> None:
    _play(examples=many(60, 6), steps=40)


@pytest.mark.slow(seconds=100)
def test_a_store_behaves_like_plain_dicts_in_long_runs() -> None:
    _play(examples=600, steps=80)
