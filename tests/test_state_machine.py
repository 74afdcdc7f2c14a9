"""The real store against plain dicts, while whatever may happen to a store happens.

One thread plays everything: workers are stepped, and a turn may stand between two of its stages while other
things go on. Nothing that would wait for that turn is asked for meanwhile: nobody could go on with it.
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
from promises import PASSWORDS, look
from simulated_store import shape_of, sit_down

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
from storage.codec.record import front_size
from storage.entry import NO_ENTRY, DigestType, Entry
from storage.errors import (
    DiskFull,
    EntryTooLarge,
    EntryUnreadable,
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

    from ledger_model import Run
    from simulated_store import Shape, Sitting, SteppedWorker

    from recovery.crashlab import Fate, Fault
    from storage.grouping import Load
    from storage.ledger import Ledger
    from storage.store import Store
    from storage.turnstile import Turn

    Death = tuple[int, bool, Fate | None]

MORTAL = (2, 20, 21)
"""The ledgers that are fenced and deleted; one has a password, and one digests with a key besides."""

LEDGERS = (1, *MORTAL, 1 << 40)
DIGESTS = {21: DigestType.MAC}
Item = TypeVar("Item")

TIMED = ("ledgerstore-timer", "ledgerstore-seal")
"""Workers that come back again and again."""

NEVER = 0
"""No operation has this number."""

STEPS_MAX = 3000
"""More steps of workers than there can be work for: they go round in circles."""

ledgers = st.sampled_from(LEDGERS)
mortals = st.sampled_from(MORTAL)
immortals = st.sampled_from([one for one in LEDGERS if one not in MORTAL])
sizes = st.sampled_from([0, 9, 60, 60, 200, 700, 1500])
cuts = st.one_of(
    st.none(),
    st.sampled_from([LoseAll(), KeepAll()]),
    st.builds(RandomFate, st.integers(0, 1 << 20), st.sampled_from(Tearing)),
)
"""What ends a run: a kill, or a power cut and what it leaves."""

deaths = st.one_of(
    st.none(), st.tuples(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 6, 9, 14]), st.booleans(), cuts)
)
"""Whether the run ends in so many operations, the last one half done perhaps, and how."""

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
    """A store, its disk, and the model; each rule leaves the store open."""

    model: LedgerModel
    disk: SimulatedDisk
    shape: Shape

    def __init__(self) -> None:
        super().__init__()
        self.is_faulty = False
        """Whether the disk has been told to make errors since the store was opened without any."""
        self.is_planted = False
        self._stop_fate: Fate | None = None
        self.openings_failed = 0
        self._numbers = 0
        self._turn: Turn[Load] | None = None
        self._stages: Iterator[None] = iter(())
        self._stage = 0
        self._submitted: list[tuple[Run, Future[int]]] = []

    @initialize(seed=st.integers(0, 200))
    def found(self, seed: int) -> None:
        self.shape = shape_of(seed)
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
        said = self.model.said(ledger_id, entry_id)
        is_last = entry_id >= self.model.next_free(ledger_id)
        # A writer never takes back what it has confirmed: later entries say as much as earlier ones or more.
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
            waits = self._store._committer.turnstile.open.load.size + overhead(ledger_id) + len(payload)
            if waits >= self.shape.config.group_size_max:
                self._finish_turn()  # or who submits would wait for it
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

    def _appended(self, ledger_id: int, payloads: Sequence[bytes]) -> Run:
        limit = self.shape.config.group_size_max
        return self._made(self.model.appended(ledger_id, payloads, limit, overhead(ledger_id)))

    def _made(self, run: Run) -> Run:
        ledger_id = run.entries[0].ledger_id
        self.model.facts.made(ledger_id, DIGESTS.get(ledger_id, DigestType.CRC32C))
        return run

    def _add(self, hand_over: Callable[[], Run], call: Callable[[], object]) -> None:
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
        """Why nothing can be added, if that is known beforehand."""
        if self._store._latch.failure is not None:
            return StoreFailed
        return None

    def _hear_error(self, run: Run, error: BaseException) -> None:
        match error:
            case Overloaded():
                assert self._is_full(), "refused, and there is room"
                self.model.refused(run)
            case DiskFull():
                assert self.is_faulty, "refused, and there is space"
                self._refused(run)
            case LedgerFenced():
                assert self.model.facts.of(run.entries[0].ledger_id).fence_asked, "nobody has fenced it"
                self.model.refused(run)
            case EntryUnreadable():
                assert self.is_planted, "unreadable without an error of the disk"
                self.model.refused(run)
            case StoreFailed():
                assert self._store._latch.failure is not None
            case _:
                raise error

    def _is_full(self) -> bool:
        tables, waiting = self._store._parts.slot.tables, self._store._committer.turnstile.open.load.size
        used = waiting if tables.frozen is None else waiting + tables.active.size
        return used >= self._store._parts.config.memtable_size_max

    def _refused(self, run: Run) -> None:
        """Only groups in front of the one that found no space may have been kept."""
        kept = [self._find(entry) == entry for entry in run.entries]
        assert kept == sorted(kept, reverse=True), f"kept with gaps: {run}"
        assert not run.is_whole or not any(kept), f"told that nothing was stored, and it was: {run}"
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
        # What a turn under way has made durable is confirmed, although nobody was answered yet.
        if not self._is_exact:
            for entry_id in self.model.may_show(ledger_id):
                self._check_entry(ledger_id, entry_id)

    def _hear(self) -> None:
        """Whoever has submitted hears what became of it, in order."""
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
        self._ledger(ledger_id).set_explicit_lac(number)
        self._hear()
        self.model.facts.confirmed(ledger_id, number)

    def _say(self, ledger_id: int, say: Callable[[], None]) -> None:
        self.model.facts.made(ledger_id, DIGESTS.get(ledger_id, DigestType.CRC32C))
        try:
            say()
        except (DiskFull, StoreFailed, EntryUnreadable):
            self._hear()
            assert self.is_faulty, "refused without an error of the disk"

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
                assert self.is_faulty, "failed without an error of the disk"
            else:
                self._hear()
                self.model.erased(ledger_id)

    # ── turns, workers, checkpoints ───────────────────────────────────────────────────────────────────

    @precondition(lambda self: self._turn is None)
    @rule(stages=st.integers(0, 3))
    def begin_turn(self, stages: int) -> None:
        committer = self._store._committer
        self._turn = committer.turnstile.begin()
        assert self._turn is not None, "nobody leads, and nobody may"
        self._stages, self._stage = committer.stages(self._turn.load), 0
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
            self._store._committer.turnstile.end(turn, error)
            self._hear()

    def _finish_turn(self) -> None:
        while self._turn is not None:
            self._play_stage()

    @rule(which=st.integers(0, 4), steps=st.integers(1, 12))
    def work(self, which: int, steps: int) -> None:
        """Any worker that has something to do does a little of it."""
        for _ in range(steps):
            able = [one for one in self._sitting.workers if self._may_play(one)]
            if able:
                self._play(able[which % len(able)])

    @rule(steps=st.one_of(st.integers(1, 9), st.just(STEPS_MAX), st.just(STEPS_MAX)), death=deaths)
    def checkpoint(self, steps: int, death: Death | None) -> None:
        """All of one or some of its steps."""
        self._die_soon(death)
        self._store._request_checkpoint()
        self._play_checkpoint(steps)

    def _play_checkpoint(self, steps: int) -> None:
        worker = next(one for one in self._sitting.workers if one.name == "ledgerstore-checkpoint")
        checkpointer, store = self._store._parts.checkpointer, self._store
        for _ in range(steps):
            if not self._may_play(worker) or checkpointer.hindrance is not None:
                return
            self._play(worker)
            if store is not self._store:
                return  # it has crashed meanwhile
        assert steps < STEPS_MAX, "a checkpoint without an end"

    @precondition(lambda self: self._turn is None)
    @rule()
    def seal_when_idle(self) -> None:
        """As the worker does it, without its waiting."""
        with self._crashes():
            self._store._committer.seal()
            self._hear()

    def _may_play(self, worker: SteppedWorker) -> bool:
        """Whether it has something to do, and would not wait for the turn under way."""
        if not worker.is_awake or self._turn is None:
            return worker.is_awake
        if worker.name == "ledgerstore-checkpoint":
            return not self._store._parts.checkpointer.needs_turn
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
        else:
            assert error is None

    def _check_entry(self, ledger_id: int, entry_id: int) -> None:
        expected = self.model.there.get(ledger_id, {}).get(entry_id)
        found = self._find(Entry(ledger_id, entry_id, NO_ENTRY, 0, b""))
        if found is not None and not self._is_exact:
            self.model.shown(found)
            return
        assert found == expected, f"found {found}, and expected {expected}"

    @property
    def _is_exact(self) -> bool:
        """Nothing is shown but what was answered: no group of a turn under way, or of one that failed."""
        return self._stage < 2 and self._store._latch.failure is None

    # ── errors of the disk ────────────────────────────────────────────────────────────────────────────

    @rule(fault=faults)
    def plant(self, fault: Fault) -> None:
        self.is_faulty = self.is_planted = True
        self.disk.plant(fault)

    @precondition(lambda self: self._turn is None)
    @rule(room=st.sampled_from([0, 0, 3000, 9000]), ledger_id=ledgers, sizes=st.lists(sizes, max_size=9))
    def fill_the_disk(self, room: int, ledger_id: int, sizes: list[int]) -> None:
        """Adds go on while there is room, and are refused until there is some again."""
        self.is_faulty = self.is_planted = True
        self.disk.limit(self.disk._machine.platter.used() + room)
        self.append(ledger_id, sizes)

    @rule(ledger_id=immortals)
    def mend(self, ledger_id: int) -> None:
        """Space is back: everything goes on by itself, unless the store has failed."""
        self._mend()
        self._finish_turn()
        self._work_until_quiet()
        store = self._store
        if store._latch.failure is None:
            assert store._parts.slot.tables.frozen is None, "a checkpoint does not go on"
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
        """An error of the disk is one of reading: never a missing entry, and never another one."""
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
        """In order, as far as the disk lets it."""
        self._finish_turn()
        self._die_soon(death)
        store, is_fine = self._store, self._store._latch.failure is None and not self.is_faulty
        try:
            store.close()
        except Stopped:
            self._crash(self._stop_fate)
            return
        except (StoreError, OSError):
            assert self.is_faulty
        self._hear_last()
        if is_fine:
            assert not self.model.hanging, "closed, and somebody waits"
        if not isinstance(fate, str):
            self._cut(fate)
        self._open()
        opened = self._store.opened
        # What was written again may have gone into a log before: it is replayed once more.
        if is_fine and not self.openings_failed and not store.opened.records_carried:
            assert opened.records_replayed == 0, f"closed in order, and there is work: {opened}"

    @rule(fate=cuts)
    def crash(self, fate: Fate | None) -> None:
        """Between two steps of anything."""
        self._crash(fate)

    @rule(
        fate=cuts, stops=st.lists(st.tuples(st.integers(1, 40), st.booleans(), cuts), min_size=1, max_size=3)
    )
    def crash_in_openings(self, fate: Fate | None, stops: list[tuple[int, bool, Fate | None]]) -> None:
        """The openings behind a crash end in crashes themselves."""
        self._hear_last()
        self._cut(fate)
        for operations, is_within, next_fate in stops:
            self._stop_in(operations, is_within)
            with suppress(Stopped, OSError, StoreFailed):
                sit_down(self.disk, self.shape.config, self.dice)
            self._cut(next_fate)
        self._open()

    @precondition(lambda self: not self.is_planted)
    @rule(fate=cuts, name=files, nth=st.integers(1, 9))
    def open_with_a_read_error(self, fate: Fate | None, name: str, nth: int) -> None:
        """It is refused, or does not matter; nothing is taken for damage."""
        self._hear_last()
        self._cut(fate)
        self.disk.plant(Refused(When(verb=Verb.READ, name=name, nth=nth)))
        with suppress(OSError):
            sit_down(self.disk, self.shape.config, self.dice)
        self._mend()
        self._cut(None)
        self._open()

    def _die_soon(self, death: Death | None) -> None:
        """A crash in the middle of whatever comes next."""
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

    def _crash(self, fate: Fate | None) -> None:
        self._hear_last()
        self._cut(fate)
        self._open()

    def _hear_last(self) -> None:
        """Who was answered before the end was answered; of the others nothing is known."""
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
        """However it goes in between: without an error of the disk it is never refused."""
        self._turn, self._stage, self.openings_failed = None, 0, 0
        while (sitting := self._try_to_open()) is None:
            self.openings_failed += 1
            if self.openings_failed == 2:
                self._mend()
        self._sitting = sitting
        self.is_faulty = self.is_planted
        self.model.opened(look(self._store))

    def _try_to_open(self) -> Sitting | None:
        try:
            return sit_down(self.disk, self.shape.config, self.dice)
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
            self.model.check_end(ledger_id, last, confirmed)
        else:
            assert last is None or last in self.model.may_show(ledger_id)
            self.model.check_not_gone_back(ledger_id, NO_ENTRY if last is None else last, confirmed)

    def teardown(self) -> None:
        """Whatever has happened, all that was promised is there in the end."""
        if hasattr(self, "_sitting"):
            self._crash(RandomFate(self._numbers, self.shape.tearing))

    @property
    def _store(self) -> Store:
        return self._sitting.store

    def _ledger(self, ledger_id: int) -> Ledger:
        return self._store.ledger(ledger_id, DIGESTS.get(ledger_id), PASSWORDS.get(ledger_id, b""))


def overhead(ledger_id: int) -> int:
    """What a record of the ledger takes beside its payload."""
    return front_size(DIGESTS.get(ledger_id, DigestType.CRC32C))


def _taken(items: Iterator[Item]) -> tuple[list[Item], Exception | None]:
    """What comes, and the error that ends it."""
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


def test_a_store_is_what_plain_dicts_say() -> None:
    _play(examples=60, steps=40)


@pytest.mark.slow(seconds=100)
def test_a_store_is_what_plain_dicts_say_at_length() -> None:
    _play(examples=600, steps=80)
