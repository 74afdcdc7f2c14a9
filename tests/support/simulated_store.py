"""The real store on a simulated disk, run by one thread. A seed decides which part continues next, and what
fails.

Only the store's platform is replaced: workers are stepped, turns run stage by stage, and salts and ids come
from the seed. A step that would wait for another piece of work is not taken until that work is done, because
there is no other thread that could do it.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from file_index import FileIndexPlace
from store_internals import StoreInternals, used_bytes
from store_promises import PASSWORDS, StorePromises, look

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
    When,
)
from recovery.directory.layout import Layout
from recovery.opening.assembly import Platform
from recovery.opening.open_store import Opening
from recovery.proving.stepped_workers import ManualWorker
from storage.commit.pending import PendingEntries, PendingFence, PendingLac, ReplicaEntry
from storage.commit.pending_deletes import PendingDelete
from storage.config import StoreConfig
from storage.entry import format as entry_format
from storage.entry import record_format
from storage.entry.digest import Digester
from storage.entry.digest import digester as digester_of
from storage.entry.model import DigestType, Entry
from storage.entry.read_result import Damaged
from storage.errors import DiskFull, LedgerFenced, StoreError, StoreFailed
from storage.validation import access_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from store_promises import ObservedStore

    from recovery.crashlab import Fate, Fault
    from storage.commit.pending import ControlRecord, PendingGroup
    from storage.commit.pending_deletes import DeleteGroup
    from storage.entry.credentials import Access
    from storage.ledgers.state import LedgerState
    from storage.runtime.worker import Pause, Worker
    from storage.store import Store

STORE_ID = "00112233445566778899aabbccddeeff"
DELETED = (7, 20, 21)
"""The ledgers that are fenced, deleted and created again, perhaps with another digest type."""

LEDGERS = (1, 2, 3, *DELETED, 1 << 40)
REPLICA = 9
"""The ledger to which entries are added with given ids."""


class PromiseBroken(AssertionError):
    """A promise of the store does not hold."""


# ── platform ──────────────────────────────────────────────────────────────────────────────────────────


class SteppedWorker(ManualWorker):
    """A worker that the scheduler steps."""

    def play(self) -> None:
        """Run one step. A pause ends when the scheduler steps the worker again."""
        self.step()
        self.elapse()


@dataclass(frozen=True, slots=True)
class WorldShape:
    """The kind of disk and store of one seed."""

    sector_size: int
    tearing: Tearing
    config: StoreConfig


def world_shape(seed: int) -> WorldShape:
    """Choose mostly 4096 for all sizes. Groups share a sector only if sectors are not torn."""
    dice = Random(f"shape {seed}")
    sector_size, alignment = dice.choice([(4096, 4096)] * 6 + [(512, 4096)] * 2 + [(512, 512)] * 2)
    config = StoreConfig(
        memtable_size_max=dice.choice([3000, 6000, 12000]),
        entry_size_max=2048,
        group_size_max=dice.choice([800, 3000, 6000]),
        group_wait_s=0.001,
        journal_size=dice.choice([24, 40, 64]) << 10,
        journal_alignment=alignment,
        journal_max_backups=dice.choice([0, 1]),
        entry_log_size_max=dice.choice([8, 16, 32]) << 10,
        throttle_timeout_s=0,
        checkpoint_interval_s=dice.choice([None, 60.0]),
        idle_seal_s=dice.choice([None, 1.0]),
        space_reserve=0,
        space_min_free=0,
    )
    return WorldShape(sector_size, dice.choice(list(Tearing)), config)


@dataclass(frozen=True, slots=True)
class SteppedSession:
    """An open store with its workers."""

    store: Store
    workers: Sequence[SteppedWorker]


def _none(_: str) -> bool:
    """Expect no findings, because the simulated disk forgets and tears writes, but does not rot."""
    return False


def open_session(
    disk: SimulatedDisk, config: StoreConfig, dice: Random, is_expected: Callable[[str], bool] = _none
) -> SteppedSession:
    """Open the store on the disk, or create one."""
    workers: list[SteppedWorker] = []

    def new_worker(
        name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> Worker:
        workers.append(SteppedWorker(name, step, on_failure))
        return workers[-1]

    ticks = count()
    platform = Platform(
        new_worker, nullcontext, lambda: dice.getrandbits(64), lambda: STORE_ID, lambda: float(next(ticks))
    )
    layout = Layout(disk.root())
    # Every second opening has smaller tables than the run that filled the journals, so that the replay is
    # long.
    if len(disk.trace) % 2:
        config = replace(config, memtable_size_max=config.memtable_size_max // 3)
    store = Opening(layout, FileIndexPlace(layout.ledgers), config, platform).run()
    if not all(map(is_expected, store.opened.findings)) or store.opened.unknown:
        raise PromiseBroken(f"an opening without rot has findings: {store.opened}")
    return SteppedSession(store, workers)


# ── the world ─────────────────────────────────────────────────────────────────────────────────────────────


class Trouble(Enum):
    """The events in a world beside adds, checkpoints and closes."""

    REOPENINGS = "the process ends and begins again, between two steps"
    CRASHES = "kills and power cuts at any operation, in openings too"
    FAULTS = "crashes, and errors of the disk, and a disk that is full"


@dataclass(frozen=True, slots=True)
class _Said:
    """A fence, confirmation or delete that is not answered yet."""

    what: ControlRecord | PendingDelete
    answer: Callable[[], None]
    refuse: Callable[[], None] = lambda: None

    @property
    def is_on_its_way(self) -> bool:
        """Whether a delete that a commit has decided is not over: it goes through two more groups."""
        if not isinstance(self.what, PendingDelete) or self.what.delete_group is None or self.what.is_done:
            return False
        return self.what.delete_group.erasure is not None or not self.what.delete_group.is_over

    def hear(self, error: BaseException | None) -> None:
        if isinstance(self.what, PendingDelete) and self.what.delete_group is not None:
            error = self.what.delete_group.error
        is_durable = self.what.is_done if isinstance(self.what, PendingDelete) else self.what.is_durable
        if error is None or is_durable:
            self.answer()
        elif isinstance(error, DiskFull):
            self.refuse()


@dataclass(frozen=True, slots=True)
class _UnansweredRequest:
    """An unanswered run of entries, or another unanswered request."""

    turn: PendingGroup
    run: int = -1
    future: Future[int] | None = None
    said: _Said | None = None


@dataclass(slots=True)
class _Playing:
    """The turn in progress."""

    turn: PendingGroup
    go_on: Callable[[], bool]


@dataclass(slots=True)
class _Deleting:
    """The turn of deletes in progress, and the turn of adds that must end before it continues."""

    turn: DeleteGroup
    stages: Iterator[PendingGroup | None]
    awaited: PendingGroup | None = None


class SimulatedWorld:
    """The history of one seed. `promises` has what the caller may rely on, `happened` the events so far."""

    def __init__(self, seed: int, trouble: Trouble, fault: Fault | None = None) -> None:
        self.seed = seed
        self.shape = world_shape(seed)
        self.disk = SimulatedDisk(sector_size=self.shape.sector_size)
        self.promises = StorePromises()
        self.crashes = 0
        self.openings = 0
        self.happened: list[str] = []
        self._trouble = trouble
        self._fault = fault
        self._dice = Random(f"world {seed}")
        self._sitting: SteppedSession | None = None
        self._playing: _Playing | None = None
        self._deleting: _Deleting | None = None
        self._waiting: list[_UnansweredRequest] = []
        self._numbers = count()
        self._is_faulty = fault is not None
        self.founded = 0
        """The number of operations that created the store."""
        self.disk.watch(lambda _: self._hear())
        if fault is not None:
            self.disk.plant(fault)

    # ── the schedule ──────────────────────────────────────────────────────────────────────────────────

    def run(self, steps: int) -> None:
        """Run this number of steps, crash, and open once more. Raise `PromiseBroken` if a promise does not
        hold."""
        self.play(steps)
        self._note("end")
        self._crash()

    def play(self, steps: int) -> None:
        """Run this number of steps, and leave the store open."""
        self._begin()
        self.founded = len(self.disk.trace)
        for _ in range(steps):
            self.step()

    def _begin(self) -> None:
        try:
            self._open()
        except Stopped:
            self._crash()

    def step(self) -> None:
        """Run one random event."""
        if self._trouble is not Trouble.REOPENINGS:
            self._perhaps_trouble()
        try:
            self._choose()()
            self._hear()
        except Stopped as stopped:
            self._note(f"{stopped}")
            self._crash()

    def _choose(self) -> Callable[[], None]:
        if self._sitting is None:
            return self._open
        choices: list[tuple[Callable[[], None], int]] = [
            (self._append, 30),
            (self._submit, 6),
            (self._place, 8),
            (self._fence, 3),
            (self._confirm, 4),
            (self._delete, 5),
            (self._request_checkpoint, 2),
            (self._look, 2),
            (self._kill, 1),
        ]
        if self._playing is None:
            # A close waits for the deletes in progress, and no other thread could end them.
            choices += [(self._begin_turn, 30), (self._close, 0 if self._deleting else 1)]
        else:
            choices += [(self._stage, 40)]
        if self._deleting is not None:
            awaited = self._deleting.awaited
            choices += [(self._delete_stage, 25)] if awaited is None or awaited.is_over else []
        elif StoreInternals(self.store).waiting_deletes:
            choices += [(self._begin_deletes, 15)]
        choices += self._more_choices()
        choices += [(worker.play, 25) for worker in self._workers if self._may_play(worker)]
        weights = [weight for _, weight in choices]
        ((action, _),) = self._dice.choices(choices, weights)
        self._note(getattr(action, "__name__", "?").strip("_"))
        return action

    def _more_choices(self) -> list[tuple[Callable[[], None], int]]:
        """Return what a world of another kind may do beside that, with its weight."""
        return []

    def _may_play(self, worker: SteppedWorker) -> bool:
        """Return whether the step can run now. It cannot if it waits for the turn in progress, which this
        thread runs."""
        if not worker.is_awake:
            return False
        if self._playing is None:
            return True
        match worker.name:
            case "ledgerstore-checkpoint":
                return not StoreInternals(self.store).checkpoint_needs_turn
            case "ledgerstore-seal" | "ledgerstore-flush":
                return False
        return True

    @property
    def store(self) -> Store:
        assert self._sitting is not None
        return self._sitting.store

    @property
    def _workers(self) -> Sequence[SteppedWorker]:
        assert self._sitting is not None
        return self._sitting.workers

    def _note(self, what: str) -> None:
        self.happened.append(what)

    # ── adds ──────────────────────────────────────────────────────────────────────────────────────────

    def _payload(self) -> bytes:
        size = self._dice.choice([0, 9, 60, 60, 200, 700, 1500])
        return b"%d." % next(self._numbers) + self._dice.randbytes(size)

    def _append(self) -> None:
        payloads = [self._payload() for _ in range(self._dice.choice([1, 1, 1, 2, 3, 6]))]
        ledger_id = self._dice.choice(LEDGERS)
        self._enter(ledger_id, lambda state, access: PendingEntries(state, access, payloads))

    def _place(self) -> None:
        last = self.promises.last(REPLICA)
        entry_id = (0 if last is None else last.entry_id + 1) + self._dice.choice([0, 0, 0, 1, 3, -1, -2, -4])
        payload = self._payload()
        # A writer confirms more with each id, even if the entries arrive in another order.
        entry = Entry(REPLICA, max(0, entry_id), max(0, entry_id) - 1, 1000 + max(0, entry_id), payload)
        self._enter(REPLICA, lambda state, access: ReplicaEntry(state, access, entry))

    def _enter(self, ledger_id: int, make: Callable[[LedgerState, Access], PendingEntries]) -> None:
        access = self._access(ledger_id)
        with self._refusals(ledger_id):
            work = make(StoreInternals(self.store).tail(ledger_id), access)
            group = StoreInternals(self.store).join(work)
            if group is not None:
                self._waiting.append(_UnansweredRequest(group, self._invoke(work)))

    def _submit(self) -> None:
        engine, ledger_id = StoreInternals(self.store), self._dice.choice(LEDGERS)
        access = self._access(ledger_id)
        with self._refusals(ledger_id):
            work = PendingEntries(engine.tail(ledger_id), access, (self._payload(),))
            future = engine.promise(work)
            if future is not None and work.group is not None:
                self._waiting.append(_UnansweredRequest(work.group, self._invoke(work), future))
                engine.notice_submitted()

    def _access(self, ledger_id: int) -> Access:
        """Return the access for an add. The digest type of a new ledger is random."""
        digest_type = None
        if ledger_id in DELETED and not StoreInternals(self.store).tail(ledger_id).is_claimed:
            digest_type = self._dice.choice(list(DigestType))
        return access_of(PASSWORDS.get(ledger_id, b""), digest_type)

    @contextmanager
    def _refusals(self, ledger_id: int) -> Iterator[None]:
        """Return the errors that this add may raise, and check those that it must raise."""
        known = self.promises.facts.of(ledger_id)
        try:
            yield
        except (StoreFailed, DiskFull):
            return
        except LedgerFenced as error:
            if not known.fence_asked:
                raise self._broken(f"no fence was requested for ledger {ledger_id}") from error
            return

    # ── what is said of ledgers ───────────────────────────────────────────────────────────────────────

    def _fence(self) -> None:
        ledger_id = self._dice.choice(DELETED)
        access = self._access(ledger_id)
        self._state(
            ledger_id,
            lambda state: PendingFence(state, access),
            self.promises.facts.fence,
            lambda: self.promises.facts.fenced(ledger_id),
        )

    def _confirm(self) -> None:
        ledger_id = self._dice.choice([*DELETED, *LEDGERS])
        access, number = self._access(ledger_id), self._dice.randint(0, 40)
        tail = StoreInternals(self.store).tail(ledger_id)
        digest_type = tail.facts.digest_type if tail.is_claimed else access.digest_type
        digester = Digester(digest_type or DigestType.CRC32C, access.mac_key)
        packet = entry_format.encode_lac(ledger_id, number, digester)
        self._state(
            ledger_id,
            lambda state: PendingLac(state, access, packet),
            lambda one: self.promises.facts.confirm(one, number),
            lambda: self.promises.facts.confirmed(ledger_id, number),
        )

    def _state(
        self,
        ledger_id: int,
        make: Callable[[LedgerState], ControlRecord],
        ask: Callable[[int], None],
        answer: Callable[[], None],
    ) -> None:
        tail = StoreInternals(self.store).tail(ledger_id)
        with self._refusals(ledger_id):
            record = make(tail)
            group = StoreInternals(self.store).join(record)
            if group is not None and not record.is_redundant:
                self.promises.facts.made(ledger_id, tail.facts.digest_type)
                ask(ledger_id)
                self._waiting.append(_UnansweredRequest(group, said=_Said(record, answer)))

    def _delete(self) -> None:
        ledger_id = self._dice.choice(DELETED)
        tail, access = StoreInternals(self.store).tail(ledger_id), self._access(ledger_id)
        with self._refusals(ledger_id):
            deletion = PendingDelete(tail, access)
            group = StoreInternals(self.store).join(deletion)
            if group is not None and deletion.exists:
                self.promises.going.add(ledger_id)
                said = _Said(
                    deletion,
                    lambda: self.promises.erase(ledger_id),
                    lambda: self.promises.going.discard(ledger_id),
                )
                self._waiting.append(_UnansweredRequest(group, said=said))

    def _invoke(self, run: PendingEntries) -> int:
        ledger_id, digest_type = run.state.ledger_id, run.state.facts.digest_type
        if self.promises.facts.of(ledger_id).fence_answered:
            raise self._broken(f"an add to ledger {ledger_id} has passed its fence")
        self.promises.facts.made(ledger_id, digest_type)
        digester = digester_of(digest_type or DigestType.CRC32C, PASSWORDS.get(ledger_id, b""))
        entries = [_decoded(record, digester) for record in run.records]
        if entries[0].ledger_id != REPLICA:
            self._check_continues(entries)
        limit = self.shape.config.group_size_max
        return self.promises.invoke(entries, whole=len(entries) > 1 and run.size <= limit)

    def _check_continues(self, entries: Sequence[Entry]) -> None:
        last = self.promises.last(entries[0].ledger_id)
        entry_id, length = (-1, 0) if last is None else (last.entry_id, last.length)
        for entry in entries:
            entry_id, length = entry_id + 1, length + len(entry.payload)
            if (entry.entry_id, entry.length) != (entry_id, length):
                raise self._broken(
                    f"expected entry {entry_id} of length {length}, and was given {entry!r:.150}"
                )

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────

    def _begin_turn(self) -> None:
        engine = StoreInternals(self.store)
        turn = engine.begin_turn()
        if turn is not None:
            stages = engine.stages(turn)
            self._playing = _Playing(turn, lambda: next(stages, self) is not self)

    def _stage(self) -> None:
        playing = self._playing
        assert playing is not None
        error: Exception | None = None
        try:
            if playing.go_on():
                return
        except Exception as raised:
            error = raised
        self._playing = None
        StoreInternals(self.store).end_turn(playing.turn, error)

    def _begin_deletes(self) -> None:
        engine = StoreInternals(self.store)
        turn = engine.begin_deletes()
        assert turn is not None, "one thread plays them"
        self._deleting = _Deleting(turn, engine.delete_stages(turn))

    def _delete_stage(self) -> None:
        deleting = self._deleting
        assert deleting is not None
        error: Exception | None = None
        try:
            deleting.awaited = next(deleting.stages)
        except StopIteration:
            pass
        except Exception as raised:
            error = raised
        else:
            return
        self._deleting = None
        StoreInternals(self.store).end_deletes(deleting.turn, error)

    def _finish_turn(self) -> None:
        while self._playing is not None:
            self._stage()

    def _hear(self) -> None:
        """Answer the callers of finished adds before the next operation on the disk."""
        for one in [one for one in self._waiting if self._is_over(one)]:
            self._waiting.remove(one)
            error = one.turn.refused or one.turn.error or _told(one.future)
            if one.said is not None:
                one.said.hear(error)
            elif error is None:
                self.promises.acknowledge(one.run)
            elif isinstance(error, DiskFull):
                self._is_refused(one.run)

    def _is_over(self, one: _UnansweredRequest) -> bool:
        # The ids of a refused add are given out again before its callers are answered.
        if one.said is not None and one.said.is_on_its_way:
            return False
        is_refused = one.turn.refused is not None
        return is_refused or one.turn.is_over or (one.future is not None and one.future.done())

    def _is_refused(self, run: int) -> None:
        # The groups before the one that found no space are durable and readable.
        self.promises.refuse(run, look(self.store))

    # ── the rest of what a program does ───────────────────────────────────────────────────────────────

    def _request_checkpoint(self) -> None:
        StoreInternals(self.store).request_checkpoint()

    def _look(self) -> None:
        """Check that entries that were read once are still there."""
        seen = self._seen()
        self._check(seen)
        self.promises.keep(seen)

    def _seen(self) -> ObservedStore:
        try:
            return look(self.store)
        except (StoreError, OSError, AssertionError) as error:
            raise self._broken(f"cannot be read: {error!r}") from error

    def _check(self, seen: ObservedStore) -> None:
        wrong = self.promises.violations(seen)
        if wrong:
            raise self._broken("; ".join(wrong))

    def _broken(self, what: str) -> PromiseBroken:
        place = f"step {len(self.happened)}, operation {len(self.disk.trace)}"
        return PromiseBroken(
            f"SimulatedWorld({self.seed}, {self._trouble}, {self._fault}), {place}: {what}\n"
            f"  {self.shape}\n  … {' · '.join(self.happened[-40:])}"
        )

    def _kill(self) -> None:
        self._end()
        self.disk.kill()

    def _close(self) -> None:
        """Close the store cleanly if the disk allows it. Waiting callers are answered before."""
        store, self._playing = self.store, None
        with suppress(StoreError, OSError):
            store.close()
        self._hear_last()
        self._end()
        if self._dice.random() < 0.3:
            self.disk.kill()

    def _hear_last(self) -> None:
        # The closing store refuses reads, so it is unknown whether the entries are there.
        self._waiting = [one for one in self._waiting if not isinstance(one.turn.error, DiskFull)]
        self._hear()

    def _end(self) -> None:
        self._sitting = self._playing = self._deleting = None
        self._waiting = []

    # ── trouble ───────────────────────────────────────────────────────────────────────────────────────

    def _perhaps_trouble(self) -> None:
        chance = self._dice.random()
        if chance < 0.02:
            stop = self._dice.choice([self.disk.stop_before, self.disk.stop_within])
            stop(len(self.disk.trace) + self._dice.randint(1, 10))
        elif chance < 0.03:
            self._note("crash")
            self._crash()
        elif chance < 0.05 and self._trouble is Trouble.FAULTS:
            self._plant()
        elif chance < 0.07 and self._is_faulty:
            self._mend()

    def _plant(self) -> None:
        self._is_faulty = True
        if self._dice.random() < 0.3:
            room = self._dice.choice([0, 3000, 9000, 30000])
            self._note(f"limit to {room} more")
            self.disk.limit(self._used() + room)
        else:
            fault = random_fault(self._dice)
            self._note(f"{fault}")
            self.disk.plant(fault)

    def _used(self) -> int:
        return used_bytes(self.disk)

    def _mend(self) -> None:
        self._note("mend")
        self._is_faulty = False
        self.disk.mend()
        self.disk.limit(None)

    def _crash(self) -> None:
        """Kill or cut the power, then open until an opening succeeds."""
        while True:
            self._crash_once()
            try:
                self._open()
            except Stopped as stopped:
                self._note(f"{stopped}")
                continue
            if self._sitting is not None:
                return

    def _crash_once(self) -> None:
        self.crashes += 1
        self._end()
        if self._dice.random() < 0.3:
            self._note("killed")
            self.disk.kill()
        else:
            fate = self._fate()
            self._note(f"power cut, {fate}")
            self.disk.power_cut(fate)
        if self._trouble is not Trouble.REOPENINGS and self._dice.random() < 0.3:
            stop = self._dice.choice([self.disk.stop_before, self.disk.stop_within])
            stop(len(self.disk.trace) + self._dice.randint(1, 30))

    def _fate(self) -> Fate:
        some = RandomFate(self._dice.getrandbits(32), self.shape.tearing)
        fates: list[Fate] = [some, some, some, some, LoseAll(), KeepAll()]
        return self._dice.choice(fates)

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────

    def _open(self) -> None:
        """Open the store, compare its content with the promises, and promise this content from now on."""
        self.openings += 1
        try:
            self._sitting = open_session(self.disk, self.shape.config, self._dice)
        except (DiskFull, StoreFailed, OSError) as error:
            if not self._is_faulty:
                raise self._broken(f"refused: {error!r}") from error
            self._note(f"not opened: {error!r}")
            if self._dice.random() < 0.5:
                self._mend()
            return
        except (StoreError, AssertionError) as error:
            raise self._broken(f"refused: {error!r}") from error
        seen = self._seen()
        self._check(seen)
        self.promises.settle(seen)


def _told(future: Future[int] | None) -> BaseException | None:
    return future.exception() if future is not None and future.done() else None


def _decoded(record: bytes, digester: Digester) -> Entry:
    entry = entry_format.decode(record_format.entry_bytes(record), digester)
    assert not isinstance(entry, Damaged)
    return entry


def random_fault(dice: Random, when: When | None = None) -> Fault:
    """Return an error for that operation or a later one, which occurs once or until it is cleared."""
    if when is None:
        lasting = dice.choice([Lasting.ONCE] * 4 + [Lasting.UNTIL_MENDED])
        when = When(nth=dice.randint(1, 12), lasting=lasting)
    match dice.randrange(4):
        case 0:
            return Refused(when)
        case 1:
            return ShortWrite(when, accepted=dice.choice([None, 0, 1, 4096]))
        case _:
            return FailedSync(when, seed=dice.getrandbits(32), pages=dice.choice(list(Pages)))
