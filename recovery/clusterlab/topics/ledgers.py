"""Model ledgers, and the node of the list that names them.

The faults, each by chance:

    a create                  fails; perhaps the ledger is there nevertheless
    an add                    fails, with all that follow it, because too few bookies take it
    a close of the writer     has no answer; it takes place now, later, or never
    a recovery                fails, before or after it has fenced the ledger
    a write of the list       has no answer; it takes place now, later, or never
    a read                    has no answer
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from recovery.clusterlab.world import EventKind
from storage.cluster.errors import (
    LedgerClosed,
    MetadataUnavailable,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    RecoveryIncomplete,
    WriterFenced,
)
from storage.cluster.metadata.znodes import (
    Conflict,
    Created,
    Exists,
    Gone,
    Node,
    NodeStat,
    Unknown,
    Written,
)
from storage.cluster.topics.ledgers_port import ClosedLedger, MissingLedger, OpenLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.clusterlab.clients import ModelProcess
    from recovery.clusterlab.world import World
    from storage.cluster.topics.ledgers_port import LedgerState
    from storage.cluster.topics.list_change import ListRead, ListWritten
    from storage.errors import StoreError

    EndAnswered = Callable[[ClosedLedger | StoreError], None]

_LATE = 80.0
"""A write without an answer may take place so much later, when its client has given up."""


class ModelLedger:
    """One ledger, as bookies and metadata have it together."""

    def __init__(self, ledger_id: int, creator: str) -> None:
        self.id = ledger_id
        self.creator = creator
        self.payloads: list[bytes] = []
        """The entries that were sent to it."""
        self.acknowledged = 0
        """The entries that a recovery keeps in any case."""
        self.end: int | None = None
        """The number of its entries, once it is closed."""
        self.closed_at = 0.0
        self.is_in_recovery = False
        self.is_fenced = False
        self.is_failing = False
        """Whether its writer gets no more copies."""
        self.is_deleted = False
        self.stored: set[int] = set()
        self.waiting: list[Callable[[], None]] = []
        """The actions for the moment when no add is under way."""

    @property
    def takes_adds(self) -> bool:
        return self.end is None and not self.is_fenced and not self.is_failing

    @property
    def has_adds_under_way(self) -> bool:
        return self.takes_adds and self.acknowledged < len(self.payloads)

    @property
    def entries(self) -> list[bytes]:
        """The entries that a reader finds: all of a closed ledger, the acknowledged ones of an open one."""
        return self.payloads[: self.acknowledged if self.end is None else self.end]

    @property
    def closed(self) -> ClosedLedger:
        assert self.end is not None
        return ClosedLedger(self.end, sum(map(len, self.entries)))


class LedgerEvents:
    """What takes place with ledgers, for an oracle."""

    def ledger_recovered(self, owner: str) -> None:
        """Note that a process recovers a ledger."""

    def ledger_deleted(self, process: str, ledger_id: int) -> None:
        """Note that a ledger is gone."""


class ModelLedgers:
    """All model ledgers of a topic, or of a cursor."""

    def __init__(self, world: World, events: LedgerEvents) -> None:
        self._world = world
        self._events = events
        self.by_id: dict[int, ModelLedger] = {}
        self.loss = 0.0
        """The probability that something goes wrong with a call."""

    def _goes_wrong(self, probability: float) -> bool:
        # Without a probability no choice is made, so that other choices played again cannot mean this one.
        return probability > 0 and self._world.choices.happens(probability)

    def _answer(self, process: ModelProcess, answered: Callable[..., None], *answer: object) -> None:
        if self._world.trace is not None:
            self._world.note(EventKind.ANSWER, "ledgers", " ".join(map(str, answer)), process.name)
        self._world.after(self._world.delay(), process.deliver, answered, *answer)

    # ── create and add ────────────────────────────────────────────────────────────────────────────────

    def create(self, process: ModelProcess, answered: Callable[[int | StoreError], None]) -> None:
        self._world.after(self._world.delay(), self._create, process, answered)

    def _create(self, process: ModelProcess, answered: Callable[[int | StoreError], None]) -> None:
        choices = self._world.choices
        outcome = choices.pick(2) + 1 if self._goes_wrong(self.loss) else 0
        if outcome == 1:
            self._answer(process, answered, NotEnoughBookies(3, 2, {}))
            return
        ledger = ModelLedger(len(self.by_id) + 1, process.name)
        self.by_id[ledger.id] = ledger
        if outcome:
            self._answer(process, answered, MetadataUnavailable("the connection was lost"))
        else:
            self._answer(process, answered, ledger.id)

    def append(
        self,
        process: ModelProcess,
        ledger_id: int,
        payload: bytes,
        acknowledged: Callable[[int, int], None],
        failed: Callable[[int, StoreError], None],
    ) -> None:
        """Add an entry. Calls to one ledger are acknowledged in their order."""
        ledger = self.by_id[ledger_id]
        number = len(ledger.payloads)
        ledger.payloads.append(payload)
        if self._goes_wrong(self.loss / 4):
            ledger.is_failing = True
        self._world.after(self._world.delay(), self._store, process, ledger, number, acknowledged, failed)

    def _store(
        self,
        process: ModelProcess,
        ledger: ModelLedger,
        number: int,
        acknowledged: Callable[[int, int], None],
        failed: Callable[[int, StoreError], None],
    ) -> None:
        if not ledger.takes_adds:
            error = NotEnoughBookies(3, 2, {}) if ledger.is_failing else WriterFenced(ledger.id)
            process.deliver(failed, ledger.id, error)
        else:
            ledger.stored.add(number)
            while ledger.acknowledged in ledger.stored:
                ledger.acknowledged += 1
                process.deliver(acknowledged, ledger.id, ledger.acknowledged - 1)
        self._wake(ledger)

    def _wake(self, ledger: ModelLedger) -> None:
        if not ledger.has_adds_under_way:
            waiting, ledger.waiting = ledger.waiting, []
            for one in waiting:
                one()

    # ── close and recover ─────────────────────────────────────────────────────────────────────────────

    def close(self, process: ModelProcess, ledger_id: int, answered: EndAnswered) -> None:
        """Close a ledger for its writer, when all its adds are answered."""
        ledger = self.by_id[ledger_id]
        ledger.waiting.append(partial(self._begin_close, process, ledger, answered))
        self._wake(ledger)

    def _begin_close(
        self,
        process: ModelProcess,
        ledger: ModelLedger,
        answered: EndAnswered,
    ) -> None:
        world, choices = self._world, self._world.choices
        if not self._goes_wrong(self.loss):
            world.after(world.delay(), self._close_and_answer, process, ledger, answered)
            return
        kind = choices.pick(3)
        if kind:
            world.after(world.delay() + (kind - 1) * _LATE, self._close, ledger)
        world.after(_LATE / 2, process.deliver, answered, MetadataUnavailable("the connection was lost"))

    def _close_and_answer(
        self,
        process: ModelProcess,
        ledger: ModelLedger,
        answered: EndAnswered,
    ) -> None:
        self._answer(process, answered, self._close(ledger))

    def _close(self, ledger: ModelLedger) -> ClosedLedger | StoreError:
        if ledger.is_deleted:
            return NoSuchLedgerExistsOnMetadataServer(ledger.id)
        if ledger.is_in_recovery:
            return WriterFenced(ledger.id)
        if ledger.end is not None:
            return LedgerClosed(ledger.id)
        self._end(ledger, ledger.acknowledged)
        return ledger.closed

    def _end(self, ledger: ModelLedger, end: int) -> None:
        ledger.end, ledger.closed_at = end, self._world.now
        if self._world.trace is not None:
            self._world.note(EventKind.REQUEST, "ledgers", f"ledger {ledger.id} is closed with {end} entries")
        self._wake(ledger)

    def recover(self, process: ModelProcess, ledger_id: int, answered: EndAnswered) -> None:
        """Take a ledger over: set it in recovery, fence it, close it."""
        world = self._world
        fails_at = world.choices.pick(3) + 1 if self._goes_wrong(self.loss / 2) else 0
        steps = (self._set_in_recovery, self._fence, self._close_recovered)
        self._recovery_step(process, self.by_id[ledger_id], answered, list(steps), fails_at)

    def _recovery_step(
        self,
        process: ModelProcess,
        ledger: ModelLedger,
        answered: EndAnswered,
        steps: list[Callable[[ModelLedger], None]],
        fails_at: int,
    ) -> None:
        if not process.is_alive:
            return
        if ledger.is_deleted:
            self._answer(process, answered, NoSuchLedgerExistsOnMetadataServer(ledger.id))
        elif ledger.end is not None:
            self._answer(process, answered, ledger.closed)
        elif fails_at == len(steps):
            self._answer(process, answered, RecoveryIncomplete(ledger.id, "too few answers", ()))
        else:
            self._events.ledger_recovered(process.name)
            steps[0](ledger)
            # The process takes part in each step, so that a pause delays the next one.
            step = (self._recovery_step, process, ledger, answered, steps[1:], fails_at)
            self._world.after(self._world.delay(), process.deliver, *step)

    def _set_in_recovery(self, ledger: ModelLedger) -> None:
        ledger.is_in_recovery = True

    def _fence(self, ledger: ModelLedger) -> None:
        ledger.is_fenced = True
        self._wake(ledger)

    def _close_recovered(self, ledger: ModelLedger) -> None:
        # An entry with fewer copies than an acknowledged one may be found or not. The first that is not found
        # ends the ledger.
        found = self._world.choices.pick(len(ledger.payloads) - ledger.acknowledged + 1)
        self._end(ledger, ledger.acknowledged + found)

    # ── look and delete ───────────────────────────────────────────────────────────────────────────────

    def read_states(
        self,
        process: ModelProcess,
        ledger_ids: Sequence[int],
        read: Callable[[list[LedgerState]], None],
        not_read: Callable[[StoreError], None],
    ) -> None:
        self._world.after(self._world.delay(), self._read_states, process, ledger_ids, read, not_read)

    def _read_states(
        self,
        process: ModelProcess,
        ledger_ids: Sequence[int],
        read: Callable[[list[LedgerState]], None],
        not_read: Callable[[StoreError], None],
    ) -> None:
        if self._goes_wrong(self.loss / 4):
            self._answer(process, not_read, MetadataUnavailable("the connection was lost"))
        else:
            self._answer(process, read, [self._state(self.by_id[one]) for one in ledger_ids])

    def _state(self, ledger: ModelLedger) -> LedgerState:
        if ledger.is_deleted:
            return MissingLedger()
        return OpenLedger() if ledger.end is None else ledger.closed

    def delete(self, process: ModelProcess, ledger_id: int) -> None:
        self._world.after(self._world.delay(), self._delete, process, ledger_id)

    def _delete(self, process: ModelProcess, ledger_id: int) -> None:
        if self._goes_wrong(self.loss / 4):
            return  # a sweep finds it
        self.by_id[ledger_id].is_deleted = True
        if self._world.trace is not None:
            self._world.note(EventKind.REQUEST, process.name, f"deletes ledger {ledger_id}", "ledgers")
        self._events.ledger_deleted(process.name, ledger_id)


class ListNode:
    """A node, of a topic or a cursor. Every write is compare-and-set; reads show what is true now."""

    def __init__(self, world: World, written: Callable[[str, bytes], None]) -> None:
        """`written` is called with the process and the data of each write."""
        self._world = world
        self._written = written
        self.data: bytes | None = None
        self.version = -1
        self._creations = 0
        self.loss = 0.0
        """The probability that something goes wrong with a call."""

    def _goes_wrong(self, probability: float) -> bool:
        return probability > 0 and self._world.choices.happens(probability)

    def read(self, process: ModelProcess, answered: Callable[[ListRead], None]) -> None:
        self._world.after(self._world.delay(), self._read, process, answered)

    def _read(self, process: ModelProcess, answered: Callable[[ListRead], None]) -> None:
        answer: ListRead = self.shown
        if self._goes_wrong(self.loss / 4):
            answer = Unknown("the connection was lost")
        self._world.after(self._world.delay(), process.deliver, answered, answer)

    @property
    def shown(self) -> Node | Gone:
        if self.data is None:
            return Gone()
        version = self.version
        created = self._creations
        return Node(self.data, NodeStat(created, version, 0, 0, version, 0, 0, 0, len(self.data), 0, 0))

    def delete(self) -> None:
        """Delete it now. If it is created again, its versions begin anew."""
        self.data, self.version = None, -1

    def write(
        self,
        process: ModelProcess,
        data: bytes,
        version: int | None,
        answered: Callable[[ListWritten], None],
    ) -> None:
        """Write the list if it has this version; create it if the version is `None`."""
        world, choices = self._world, self._world.choices
        if not self._goes_wrong(self.loss):
            world.after(world.delay(), self._write_and_answer, process, data, version, answered)
            return
        kind = choices.pick(3)
        if kind:
            world.after(world.delay() + (kind - 1) * _LATE, self._write, process, data, version)
        world.after(_LATE / 2, process.deliver, answered, Unknown("the connection was lost"))

    def _write_and_answer(
        self,
        process: ModelProcess,
        data: bytes,
        version: int | None,
        answered: Callable[[ListWritten], None],
    ) -> None:
        answer = self._write(process, data, version)
        self._world.after(self._world.delay(), process.deliver, answered, answer)

    def _write(self, process: ModelProcess, data: bytes, version: int | None) -> ListWritten:
        if version is None and self.data is not None:
            return Exists()
        if version is not None and self.data is None:
            return Gone()
        if version is not None and version != self.version:
            return Conflict()
        self._creations += self.data is None
        self.data = data
        self.version += 1
        self._written(process.name, data)
        return Written(self.version) if version is not None else Created("")
