"""One schedule: a topic, its owners, readers and trims, and what goes wrong."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from recovery.clusterlab.oracles import InvariantViolated
from recovery.clusterlab.topics.consumers import ConsumerProcess
from recovery.clusterlab.topics.cursor_oracle import CursorOracle
from recovery.clusterlab.topics.ledgers import LedgerEvents, ListNode, ModelLedgers
from recovery.clusterlab.topics.oracles import TopicOracles
from recovery.clusterlab.topics.processes import Application, ModelTopicReader, OwnerProcess
from recovery.clusterlab.virtual_loop import VirtualLoop
from recovery.clusterlab.workload import HORIZON, Schedule
from recovery.clusterlab.world import EventKind
from storage.cluster.topics.managed_ledger import Position
from storage.cluster.topics.policies import NO_LIMIT, Retention, RollOver
from storage.cluster.topics.series import SeriesState

if TYPE_CHECKING:
    from recovery.clusterlab.clients import ModelProcess
    from recovery.clusterlab.world import World

_LOG = logging.getLogger("ledgerstore.topics")

_BEFORE_ALL = Position(-1, -1)
_LONG = 4 * 3600.0
_ROLL_OVERS = (
    RollOver(entries=3, age_s=_LONG),
    RollOver(entries=1, age_s=_LONG),
    RollOver(entries=1000, size=40, age_s=_LONG),
    RollOver(entries=1000, age_s=60.0),
    RollOver(entries=2, age_s=90.0, age_min_s=40.0),
)
_RETENTIONS = (Retention(), Retention(0, 0), Retention(60.0, NO_LIMIT), Retention(NO_LIMIT, 30))
_LOSSES = (0.0, 0.0, 0.05, 0.2)
_CURSORS = ("first", "second")

_MENDED = 700.0
"""The time after which nothing goes wrong."""

_TAKEN_OVER = 1_500.0
"""The time at which another owner opens the topic. Openings that began before have ended by then."""

_ATTEMPTS = 20
"""How often it may try, because an owner that rolls over at the same moment wins."""

_END = 3_000.0


class CursorNode(ListNode):
    """The node of a cursor."""

    def __init__(self, world: World, oracle: CursorOracle) -> None:
        super().__init__(world, oracle.written)
        self._oracle = oracle

    def delete(self) -> None:
        super().delete()
        self._oracle.forgotten()


class TopicSchedule(Schedule):
    """One schedule, as far as it has been played."""

    def _set_up(self) -> None:
        world, pick = self.world, self._choices.pick
        self._roll_over = _ROLL_OVERS[pick(len(_ROLL_OVERS))]
        self._retention = _RETENTIONS[pick(len(_RETENTIONS))]
        self.topic = TopicOracles(world, self._retention)
        self.ledgers = ModelLedgers(world, self.topic)
        self.topic.ledgers = self.ledgers
        self.node = ListNode(world, self.topic.list_written)
        self.ledgers.loss, self.node.loss = (_LOSSES[pick(len(_LOSSES))] for _ in range(2))
        self._is_quiet = not self.ledgers.loss and not self.node.loss
        self._application = Application(world, self.topic)
        self._owners = [self._owner(f"owner{number}", 1 + pick(3)) for number in range(2 + pick(2))]
        for number, owner in enumerate(self._owners):
            world.after(number and pick(HORIZON), owner.deliver, owner.open)
        self.topic_readers = [
            ModelTopicReader(f"reader{number}", world, self.ledgers, self.node) for number in range(pick(3))
        ]
        for reader in self.topic_readers:
            world.after(pick(HORIZON), reader.deliver, reader.poll, _END + 100)
        if pick(3) == 0:
            self.topic.cursors = dict.fromkeys(_CURSORS[: 1 + pick(2)], _BEFORE_ALL)
        self._set_up_consumers()
        for _ in range(4 + pick(12)):
            producer = ("numbered", "plain")[pick(2)]
            world.after(10 + pick(3 * HORIZON), self._application.send, producer)
        for _ in range(pick(8)):
            world.after(pick(3 * HORIZON), self._do_something)
        for _ in range(pick(4)):
            world.after(pick(2 * HORIZON), self._go_wrong)
        world.after(_MENDED, self._mend)

    def _set_up_consumers(self) -> None:
        """Let some consumers take a subscription over from each other, in one of six schedules."""
        world, pick = self.world, self._choices.pick
        self.consumers: list[ConsumerProcess] = []
        if pick(6):
            return
        self._loop = VirtualLoop(world)  # type: ignore[abstract]  # it has what coroutines need
        self.cursor_oracle = CursorOracle(self.topic)
        self.cursor_ledgers = ModelLedgers(world, LedgerEvents())
        self.cursor_node = CursorNode(world, self.cursor_oracle)
        self.cursor_ledgers.loss, self.cursor_node.loss = self.ledgers.loss, self.node.loss
        for _ in range(1 + pick(2)):
            consumer = self._consumer(1 + pick(2))
            self.consumers.append(consumer)
            world.after(20 + pick(HORIZON), consumer.deliver, consumer.open)
        for _ in range(pick(3)):
            world.after(pick(3 * HORIZON), self._disturb_consumer)

    def _consumer(self, lives: int) -> ConsumerProcess:
        return ConsumerProcess(
            f"consumer{len(self.consumers)}",
            self.world,
            self._loop,
            self.ledgers,
            self.cursor_ledgers,
            (self.node, self.cursor_node),
            self.cursor_oracle,
            lives,
        )

    def _disturb_consumer(self) -> None:
        """Pause or kill a consumer and begin another one, or delete the subscription."""
        pick = self._choices.pick
        consumer = self.consumers[pick(len(self.consumers))]
        match pick(4):
            case 0:
                consumer.forget()
            case 1:
                consumer.is_alive = False
            case _:
                self._pause(consumer, 50 + pick(200))
        self.world.note(EventKind.FAULT, consumer.name, "is disturbed")
        another = self._consumer(1)
        self.consumers.append(another)
        another.open()

    def _owner(self, name: str, lives: int) -> OwnerProcess:
        return OwnerProcess(
            name,
            self.world,
            self.ledgers,
            self.node,
            self.topic,
            self._application,
            self._roll_over,
            lives,
        )

    def _do_something(self) -> None:
        """Let an owner trim, roll over or close, or move a cursor."""
        pick = self._choices.pick
        owner = self._owners[pick(len(self._owners))]
        match pick(8):
            case 0 | 1 | 2:
                owner.deliver(owner.trim, self._retention)
            case 3:
                owner.deliver(owner.roll_over)
            case 4:
                owner.deliver(owner.close)
            case _:
                self._move_cursor()

    def _move_cursor(self) -> None:
        pick = self._choices.pick
        passed = sorted(self.topic.acknowledged.values())
        if self.topic.cursors and passed:
            names = [*self.topic.cursors]
            name = names[pick(len(names))]
            position = passed[-1 - pick(len(passed))]
            self.topic.cursors[name] = max(self.topic.cursors[name], position)

    def _go_wrong(self) -> None:
        """Pause or kill an owner, or let another one begin."""
        pick = self._choices.pick
        owner = self._owners[pick(len(self._owners))]
        match pick(4):
            case 0 | 1:
                self._pause(owner, 10 + pick(200))
            case 2:
                owner.is_alive = False
                self._is_quiet = False
                self.world.note(EventKind.FAULT, owner.name, "is killed")
            case _:
                another = self._owner(f"owner{len(self._owners)}", 1)
                self._owners.append(another)
                another.open()

    def _pause(self, process: ModelProcess, lasts: int) -> None:
        """Pause a process, unless it is paused: what was kept for the end of a pause must not come later.

        Otherwise it would come after events that the longer pause has kept from the beginning.
        """
        if self.world.now > process.paused_until:
            process.paused_until = self.world.now + lasts
            self.world.note(EventKind.FAULT, process.name, f"is paused until {process.paused_until:.0f}")

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def _mend(self) -> None:
        """Repair everything, and let one more owner open the topic."""
        world = self.world
        self.ledgers.loss = self.node.loss = 0.0
        if self.consumers:
            self.cursor_ledgers.loss = self.cursor_node.loss = 0.0
            last = self._consumer(1)
            self.consumers.append(last)
            world.after(_TAKEN_OVER + 200 - world.now, last.open)
        for owner in self._owners:
            owner.lives = 0  # it opens the topic no more
        self._final_owner = self._owner("last", _ATTEMPTS)
        world.after(_TAKEN_OVER - world.now, self._final_owner.open)
        world.after(_END - world.now - 200, self._application.send, "numbered")
        world.after(_END - world.now - 100, self._final_owner.trim, self._retention)
        world.after(_END - world.now, self._final_owner.close)

    def _check(self) -> None:
        for owner in (*self._owners, self._final_owner):
            for series in owner.all_series if owner.is_alive else ():
                if series.pending or series.state not in (SeriesState.OPEN, SeriesState.ENDED):
                    told = f"{series.state.name.lower()} with {len(series.pending)} messages"
                    raise InvariantViolated("O8", f"{owner.name} waits for ever: {told}")
        final = self._final_owner.all_series[-1]
        if final.state is not SeriesState.ENDED or final.error is not None:
            raise InvariantViolated("O8", f"the last owner has failed: {final.error!r}")
        if self._application.unanswered:
            raise InvariantViolated("O8", f"never acknowledged: {self._application.unanswered}")
        self.topic.check_end()
        for reader in self.topic_readers:
            self.topic.check_shown(reader.name, reader.shown)
        for consumer in self.consumers:
            for life, shown in consumer.shown.items():
                self.topic.check_shown(life, shown)
        if self._is_quiet:
            self.topic.check_leftovers()

    def play(self) -> None:
        level = _LOG.level
        _LOG.setLevel(logging.ERROR)  # oracles check what consumers find, so that warnings are not shown
        try:
            super().play()
        finally:
            _LOG.setLevel(level)
            # Coroutines of processes that were killed wait for an answer.
            for task in [task for consumer in self.consumers for task in consumer.tasks]:
                task.cancel()
            if self.consumers:
                self._loop.finish()
