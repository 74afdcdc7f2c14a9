"""The real store on a simulated disk, played by one thread: a seed says who goes on next, and what breaks.

Nothing of the store is replaced but its surroundings: workers are stepped, turns are played stage by stage,
salts and ids come from the seed. A step that would wait for another piece of work is not taken before that
is done, for nobody could do it meanwhile.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from file_index import FileIndexPlace
from promises import PASSWORDS, Promises, look

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
from recovery.founding import Layout
from recovery.opening import Opening, Surroundings
from recovery.proving.crew import Hand
from storage.codec import entry as entry_codec
from storage.codec import record as record_codec
from storage.codec.digest import Digester
from storage.codec.digest import digester as digester_of
from storage.config import StoreConfig
from storage.entry import DigestType, Entry
from storage.errors import DiskFull, LedgerFenced, StoreError, StoreFailed
from storage.grouping import Deletion
from storage.outcome import Damaged
from storage.request import access_of
from storage.warden import confirmation_of, deletion_of, fence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from promises import Seen

    from recovery.crashlab import Fate, Fault
    from storage.access import Access
    from storage.grouping import Load, Statement
    from storage.store import Store
    from storage.tail import Run, Tail
    from storage.turnstile import Turn
    from storage.worker import Pause, Worker

STORE_ID = "00112233445566778899aabbccddeeff"
DELETED = (7, 20, 21)
"""The ledgers that are fenced and deleted, and made again, each time perhaps with another digest."""

LEDGERS = (1, 2, 3, *DELETED, 1 << 40)
REPLICA = 9
"""The ledger whose entries come with ids of their own."""


class Broken(AssertionError):
    """What the store promises does not hold."""


# ── surroundings ──────────────────────────────────────────────────────────────────────────────────────────


class SteppedWorker(Hand):
    """A worker that goes on when the scheduler says so."""

    def play(self) -> None:
        """One step. A pause is over whenever the scheduler comes back."""
        self.step()
        self.elapse()


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of disk and store a seed plays with."""

    sector_size: int
    tearing: Tearing
    config: StoreConfig


def shape_of(seed: int) -> Shape:
    """Mostly 4096 throughout; groups that share a sector only where no sector is torn in two."""
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
    )
    return Shape(sector_size, dice.choice(list(Tearing)), config)


@dataclass(frozen=True, slots=True)
class Sitting:
    """A store, open, with its workers."""

    store: Store
    workers: Sequence[SteppedWorker]


def _none(_: str) -> bool:
    """No finding is expected of a disk that forgets and tears and does not rot."""
    return False


def sit_down(
    disk: SimulatedDisk, config: StoreConfig, dice: Random, is_expected: Callable[[str], bool] = _none
) -> Sitting:
    """Opens the store that is on the disk, or makes one."""
    workers: list[SteppedWorker] = []

    def hire(name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]) -> Worker:
        workers.append(SteppedWorker(name, step, on_failure))
        return workers[-1]

    ticks = count()
    surroundings = Surroundings(
        hire, nullcontext, lambda: dice.getrandbits(64), lambda: STORE_ID, lambda: float(next(ticks))
    )
    layout = Layout(disk.root())
    # Every other time with smaller tables than those that have filled the journals: a long replay.
    if len(disk.trace) % 2:
        config = replace(config, memtable_size_max=config.memtable_size_max // 3)
    store = Opening(layout, FileIndexPlace(layout.ledgers), config, surroundings).run()
    if not all(map(is_expected, store.opened.findings)) or store.opened.unknown:
        raise Broken(f"an opening without rot has findings: {store.opened}")
    return Sitting(store, workers)


# ── the world ─────────────────────────────────────────────────────────────────────────────────────────────


class Trouble(Enum):
    """What may happen to a world beside adds, checkpoints and closes."""

    REOPENINGS = "the process ends and begins again, between two steps"
    CRASHES = "kills and power cuts at any operation, in openings too"
    FAULTS = "crashes, and errors of the disk, and a disk that is full"


@dataclass(frozen=True, slots=True)
class _Said:
    """Something about a ledger on its way."""

    what: Statement | Deletion
    answer: Callable[[], None]
    refuse: Callable[[], None] = lambda: None

    def hear(self, error: BaseException | None) -> None:
        is_durable = self.what.is_done if isinstance(self.what, Deletion) else self.what.is_durable
        if error is None or is_durable:
            self.answer()
        elif isinstance(error, DiskFull):
            self.refuse()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A run on its way, or something else."""

    turn: Turn[Load]
    run: int = -1
    future: Future[int] | None = None
    said: _Said | None = None


@dataclass(slots=True)
class _Playing:
    """The turn under way."""

    turn: Turn[Load]
    go_on: Callable[[], bool]


class World:
    """One seed's history. `promises` is what the caller may rely on, `happened` what led to it."""

    def __init__(self, seed: int, trouble: Trouble, fault: Fault | None = None) -> None:
        self.seed = seed
        self.shape = shape_of(seed)
        self.disk = SimulatedDisk(sector_size=self.shape.sector_size)
        self.promises = Promises()
        self.crashes = 0
        self.openings = 0
        self.happened: list[str] = []
        self._trouble = trouble
        self._fault = fault
        self._dice = Random(f"world {seed}")
        self._sitting: Sitting | None = None
        self._playing: _Playing | None = None
        self._waiting: list[_Waiting] = []
        self._numbers = count()
        self._is_faulty = fault is not None
        self.founded = 0
        """How many operations it took to make the store."""
        self.disk.watch(lambda _: self._hear())
        if fault is not None:
            self.disk.plant(fault)

    # ── the schedule ──────────────────────────────────────────────────────────────────────────────────

    def run(self, steps: int) -> None:
        """Plays so many steps, crashes, and opens once more; `Broken` says what does not hold."""
        self.play(steps)
        self._note("end")
        self._crash()

    def play(self, steps: int) -> None:
        """Plays so many steps, and leaves the store as it is then."""
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
        """One thing that happens, whatever the dice say."""
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
            choices += [(self._begin_turn, 30), (self._close, 1)]
        else:
            choices += [(self._stage, 40)]
        choices += [(worker.play, 25) for worker in self._sitting.workers if self._may_play(worker)]
        weights = [weight for _, weight in choices]
        ((action, _),) = self._dice.choices(choices, weights)
        self._note(getattr(action, "__name__", "?").strip("_"))
        return action

    def _may_play(self, worker: SteppedWorker) -> bool:
        """Whether the step would not wait for the turn under way: nobody could go on with it."""
        if not worker.is_awake:
            return False
        if self._playing is None:
            return True
        match worker.name:
            case "ledgerstore-checkpoint":
                return not self._store._parts.checkpointer.needs_turn
            case "ledgerstore-seal" | "ledgerstore-flush":
                return False
        return True

    @property
    def _store(self) -> Store:
        assert self._sitting is not None
        return self._sitting.store

    def _note(self, what: str) -> None:
        self.happened.append(what)

    # ── adds ──────────────────────────────────────────────────────────────────────────────────────────

    def _payload(self) -> bytes:
        size = self._dice.choice([0, 9, 60, 60, 200, 700, 1500])
        return b"%d." % next(self._numbers) + self._dice.randbytes(size)

    def _append(self) -> None:
        payloads = [self._payload() for _ in range(self._dice.choice([1, 1, 1, 2, 3, 6]))]
        ledger_id = self._dice.choice(LEDGERS)
        self._enter(ledger_id, lambda tail, access: tail.append(payloads, access))

    def _place(self) -> None:
        last = self.promises.last(REPLICA)
        entry_id = (0 if last is None else last.entry_id + 1) + self._dice.choice([0, 0, 0, 1, 3, -1, -2, -4])
        payload = self._payload()
        # A writer's own: what it confirms grows with the ids, also where they come in another order.
        entry = Entry(REPLICA, max(0, entry_id), max(0, entry_id) - 1, 1000 + max(0, entry_id), payload)
        self._enter(REPLICA, lambda tail, access: tail.place(entry, access))

    def _enter(self, ledger_id: int, make: Callable[[Tail, Access], Run]) -> None:
        entrance, access = self._store._committer.entrance, self._access(ledger_id)
        with self._refusals(ledger_id):
            tail = self._store._parts.tails.of(ledger_id)
            entered = entrance.enter(tail, access, lambda tail: make(tail, access))
            if entered is not None:
                run, turn = entered
                self._waiting.append(_Waiting(turn, self._invoke(run)))

    def _submit(self) -> None:
        committer, ledger_id = self._store._committer, self._dice.choice(LEDGERS)
        access = self._access(ledger_id)
        with self._refusals(ledger_id):
            tail = self._store._parts.tails.of(ledger_id)
            turn, entrance = committer.turnstile.open, committer.entrance
            entered = entrance.enter_promised(
                tail, access, lambda tail: tail.append((self._payload(),), access)
            )
            if entered is not None:
                self._waiting.append(_Waiting(turn, self._invoke(turn.load.runs[-1]), entered[0]))
                self._store._flushing.notice()

    def _access(self, ledger_id: int) -> Access:
        """What the ledger is made with, or added to: of a new one the dice decide about the digest."""
        digest_type = None
        if ledger_id in DELETED and not self._store._parts.tails.of(ledger_id).is_claimed:
            digest_type = self._dice.choice(list(DigestType))
        return access_of(PASSWORDS.get(ledger_id, b""), digest_type)

    @contextmanager
    def _refusals(self, ledger_id: int) -> Iterator[None]:
        """What a caller may be told; what it must be told is checked."""
        known = self.promises.facts.of(ledger_id)
        try:
            yield
        except (StoreFailed, DiskFull):
            return
        except LedgerFenced as error:
            if not known.fence_asked:
                raise self._broken(f"nobody has fenced ledger {ledger_id}") from error
            return

    # ── what is said of ledgers ───────────────────────────────────────────────────────────────────────

    def _fence(self) -> None:
        ledger_id = self._dice.choice(DELETED)
        access = self._access(ledger_id)
        self._state(
            ledger_id,
            lambda tail: fence_of(tail, access),
            self.promises.facts.fence,
            lambda: self.promises.facts.fenced(ledger_id),
        )

    def _confirm(self) -> None:
        ledger_id = self._dice.choice([*DELETED, *LEDGERS])
        access, number = self._access(ledger_id), self._dice.randint(0, 40)
        tail = self._store._parts.tails.of(ledger_id)
        digest_type = tail.facts.digest_type if tail.is_claimed else access.digest_type
        digester = Digester(digest_type or DigestType.CRC32C, access.mac_key)
        packet = entry_codec.encode_lac(ledger_id, number, digester)
        self._state(
            ledger_id,
            lambda tail: confirmation_of(tail, access, packet),
            lambda one: self.promises.facts.confirm(one, number),
            lambda: self.promises.facts.confirmed(ledger_id, number),
        )

    def _state(
        self,
        ledger_id: int,
        make: Callable[[Tail], Statement | None],
        ask: Callable[[int], None],
        answer: Callable[[], None],
    ) -> None:
        tail = self._store._parts.tails.of(ledger_id)
        with self._refusals(ledger_id):
            entered = self._store._committer.entrance.enter_statement(tail, lambda: make(tail))
            statement, turn = entered or (None, None)
            if statement is not None and turn is not None:
                self.promises.facts.made(ledger_id, tail.facts.digest_type)
                ask(ledger_id)
                self._waiting.append(_Waiting(turn, said=_Said(statement, answer)))

    def _delete(self) -> None:
        ledger_id = self._dice.choice(DELETED)
        tail, access = self._store._parts.tails.of(ledger_id), self._access(ledger_id)
        with self._refusals(ledger_id):
            entered = self._store._committer.entrance.enter_deletion(tail, lambda: deletion_of(tail, access))
            deletion, turn = entered or (None, None)
            if deletion is not None and turn is not None:
                self.promises.going.add(ledger_id)
                said = _Said(
                    deletion,
                    lambda: self.promises.erase(ledger_id),
                    lambda: self.promises.going.discard(ledger_id),
                )
                self._waiting.append(_Waiting(turn, said=said))

    def _invoke(self, run: Run) -> int:
        ledger_id, digest_type = run.tail.ledger_id, run.tail.facts.digest_type
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
        committer = self._store._committer
        turn = committer.turnstile.begin()
        if turn is not None:
            stages = committer.stages(turn.load)
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
        self._store._committer.turnstile.end(playing.turn, error)

    def _finish_turn(self) -> None:
        while self._playing is not None:
            self._stage()

    def _hear(self) -> None:
        """Callers hear what became of their adds: before anything else happens to the disk."""
        for one in [one for one in self._waiting if self._is_over(one)]:
            self._waiting.remove(one)
            error = one.turn.load.refused or one.turn.error or _told(one.future)
            if one.said is not None:
                one.said.hear(error)
            elif error is None:
                self.promises.acknowledge(one.run)
            elif isinstance(error, DiskFull):
                self._is_refused(one.run)

    def _is_over(self, one: _Waiting) -> bool:
        # What is refused will not be done, and its ids are handed out again, before its callers hear of it.
        is_refused = one.turn.load.refused is not None
        return is_refused or one.turn.is_over or (one.future is not None and one.future.done())

    def _is_refused(self, run: int) -> None:
        # The groups in front of the one that found no space are durable, and readable.
        self.promises.refuse(run, look(self._store))

    # ── the rest of what a program does ───────────────────────────────────────────────────────────────

    def _request_checkpoint(self) -> None:
        self._store._request_checkpoint()

    def _look(self) -> None:
        """What was read once must stay."""
        seen = self._seen()
        self._check(seen)
        self.promises.keep(seen)

    def _seen(self) -> Seen:
        try:
            return look(self._store)
        except (StoreError, OSError, AssertionError) as error:
            raise self._broken(f"cannot be read: {error!r}") from error

    def _check(self, seen: Seen) -> None:
        wrong = self.promises.violations(seen)
        if wrong:
            raise self._broken("; ".join(wrong))

    def _broken(self, what: str) -> Broken:
        place = f"step {len(self.happened)}, operation {len(self.disk.trace)}"
        return Broken(
            f"World({self.seed}, {self._trouble}, {self._fault}), {place}: {what}\n"
            f"  {self.shape}\n  … {' · '.join(self.happened[-40:])}"
        )

    def _kill(self) -> None:
        self._end()
        self.disk.kill()

    def _close(self) -> None:
        """In order, if the disk lets it. The callers who wait hear before the store is gone."""
        store, self._playing = self._store, None
        with suppress(StoreError, OSError):
            store.close()
        self._hear_last()
        self._end()
        if self._dice.random() < 0.3:
            self.disk.kill()

    def _hear_last(self) -> None:
        # Refused when the store is closing: nothing can be read any more, and nothing is known of it.
        self._waiting = [one for one in self._waiting if not isinstance(one.turn.error, DiskFull)]
        self._hear()

    def _end(self) -> None:
        self._sitting = self._playing = None
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
        return self.disk._machine.platter.used()

    def _mend(self) -> None:
        self._note("mend")
        self._is_faulty = False
        self.disk.mend()
        self.disk.limit(None)

    def _crash(self) -> None:
        """A kill or a power cut, and then openings until one comes through."""
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
        """What an opening shows is held against the promises, and is from then on promised itself."""
        self.openings += 1
        try:
            self._sitting = sit_down(self.disk, self.shape.config, self._dice)
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
    entry = entry_codec.decode(record_codec.entry_bytes(record), digester)
    assert not isinstance(entry, Damaged)
    return entry


def random_fault(dice: Random, when: When | None = None) -> Fault:
    """An error of that operation, or of one of the next, once or until it is mended."""
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
