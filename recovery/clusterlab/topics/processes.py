"""Processes: owners, which drive the real state machine, the application that uses them, and readers.

An owner is one *life*: when its series has ended, the process opens the topic again under another name.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from recovery.clusterlab.clients import ModelProcess
from recovery.clusterlab.topics.oracles import TOPIC, SentMessage
from recovery.clusterlab.world import EventKind
from storage.cluster.metadata.znodes import Node
from storage.cluster.topics.errors import MessageOutcomeUnknown, TopicFenced
from storage.cluster.topics.list_change import ReadList, WriteList
from storage.cluster.topics.managed_ledger import Position, decode_managed_ledger
from storage.cluster.topics.series import SeriesState, TopicSeries
from storage.cluster.topics.series_effects import (
    Acknowledged,
    Append,
    CloseLedger,
    CreateLedger,
    DeleteLedger,
    Ended,
    Failed,
    Opened,
    PendingEntry,
    ReadStates,
    Recover,
    Trimmed,
)
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.clusterlab.topics.ledgers import ListNode, ModelLedgers
    from recovery.clusterlab.topics.oracles import TopicOracles
    from recovery.clusterlab.world import World
    from storage.cluster.topics.policies import Retention, RollOver
    from storage.cluster.topics.series_effects import Effect, Work

_REOPEN = 30.0
_POLL = 15.0


class MessageEntry(PendingEntry):
    """An entry with one message."""

    __slots__ = ("message",)

    def __init__(self, message: SentMessage) -> None:
        super().__init__(message.payload)
        self.message = message

    def __repr__(self) -> str:
        return f"{self.message.producer} {self.message.number}"


class OwnerProcess(ModelProcess):
    """A process that opens the topic, as often as it may."""

    def __init__(
        self,
        name: str,
        world: World,
        ledgers: ModelLedgers,
        node: ListNode,
        oracles: TopicOracles,
        application: Application,
        roll_over: RollOver,
        lives: int,
    ) -> None:
        super().__init__(name, world)
        self._process = name
        self._ledgers = ledgers
        self._node = node
        self._oracles = oracles
        self._application = application
        self._roll_over = roll_over
        self.lives = lives
        """How often it may open the topic."""
        self._life = 0
        self._is_to_close = False
        self.all_series: list[TopicSeries] = []

    @property
    def series(self) -> TopicSeries | None:
        return self.all_series[-1] if self.all_series else None

    @property
    def _now_ms(self) -> int:
        # The time 0 would stand for a ledger without a stamp.
        return int(self.world.now * 1000) + 1

    def open(self) -> None:
        if self._life >= self.lives:
            return
        self._life += 1
        self.name = f"{self._process}.{self._life}"
        self._begun = self._oracles.changes_by_others(self.name)
        self._was_open = False
        self._due_ms: int | None = None
        series = TopicSeries(TOPIC, self._roll_over)
        self.all_series.append(series)
        self._perform(series, series.open())

    def add(self, message: SentMessage) -> None:
        series = self.series
        assert series is not None
        try:
            effects = series.add(MessageEntry(message), self._now_ms)
        except StoreError:
            self._application.failed(self, message)
        else:
            self._perform(series, effects)

    def trim(self, retention: Retention) -> None:
        if (series := self.series) is not None:
            cursors = tuple(self._oracles.cursors.values())
            self._perform(series, series.trim(cursors, retention, self._now_ms))

    def roll_over(self) -> None:
        if (series := self.series) is not None:
            self._perform(series, series.start_roll_over())

    def close(self) -> None:
        """Close the topic, and do not open it again."""
        self._is_to_close = True
        if (series := self.series) is not None:
            self._perform(series, series.close(self._now_ms))

    # ── effects ───────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, series: TopicSeries, effects: Sequence[Effect]) -> None:
        """Do what the machine asks for, in its order."""
        for effect in effects:
            if self.world.trace is not None:
                self.world.note(EventKind.REPORT, self.name, str(effect))
            if isinstance(effect, Opened | Acknowledged | Failed | Trimmed | Ended):
                self._report(series, effect)
            else:
                self._do(series, effect)
        if series.due_ms is not None and series.due_ms != self._due_ms:
            self._due_ms = series.due_ms
            wait = max(0.0, (series.due_ms - self._now_ms) / 1000)
            self.world.after(wait + 0.001, self.deliver, self._check_time, series)

    def _do(self, series: TopicSeries, effect: Work | Append) -> None:
        match effect:
            case ReadList():
                self._node.read(self, self._timed(series, series.list_read))
            case WriteList(data, version):
                self._node.write(self, data, version, self._timed(series, series.list_written))
            case ReadStates(ledger_ids):
                read = self._event(series, series.states_read)
                not_read = self._event(series, series.states_not_read)
                self._ledgers.read_states(self, ledger_ids, read, not_read)
            case Recover(ledger_id):
                recovered = self._timed(series, partial(series.recovered, ledger_id))
                self._ledgers.recover(self, ledger_id, recovered)
            case CreateLedger():
                self._ledgers.create(self, self._timed(series, series.created))
            case Append(ledger_id, payload):
                appended = self._event(series, series.appended)
                failed = self._event(series, series.append_failed)
                self._ledgers.append(self, ledger_id, payload, appended, failed)
            case CloseLedger(ledger_id):
                closed = self._timed(series, partial(series.closed, ledger_id))
                self._ledgers.close(self, ledger_id, closed)
            case DeleteLedger(ledger_id):
                self._ledgers.delete(self, ledger_id)

    def _check_time(self, series: TopicSeries) -> None:
        self._due_ms = None
        self._perform(series, series.check_time(self._now_ms))

    def _event(self, series: TopicSeries, event: Callable[..., list[Effect]]) -> Callable[..., None]:
        return lambda *answer: self._perform(series, event(*answer))

    def _timed(self, series: TopicSeries, event: Callable[..., list[Effect]]) -> Callable[..., None]:
        return lambda *answer: self._perform(series, event(*answer, self._now_ms))

    def _report(self, series: TopicSeries, effect: Opened | Acknowledged | Failed | Trimmed | Ended) -> None:
        match effect:
            case Opened():
                if not self._was_open:
                    self._was_open = True
                    # Not now, because the effects that follow this one come first.
                    self.world.after(0, self.deliver, self._application.moved_to, self)
            case Acknowledged(MessageEntry(message=message), ledger_id, entry_id):
                self._oracles.message_acknowledged(self.name, message, Position(ledger_id, entry_id))
                self._application.acknowledged(message)
            case Failed(MessageEntry(message=message), MessageOutcomeUnknown()):
                self._application.unknown(message)
            case Failed(MessageEntry(message=message)):
                self._application.failed(self, message)
            case Trimmed():
                pass
            case Ended(error):
                if isinstance(error, TopicFenced):
                    self._oracles.owner_fenced(self.name, self._begun)
                assert series.state is SeriesState.ENDED
                if not self._is_to_close:
                    self.world.after(_REOPEN, self.deliver, self.open)
            case _:
                raise AssertionError(effect)


class Application:
    """Sends messages through the owner that has opened the topic last.

    The producer `numbered` has sequence numbers: it sends messages without an acknowledgement again to the
    next owner, unless the topic has them already. The other producer reports what is unknown, and goes on.
    """

    def __init__(self, world: World, oracles: TopicOracles) -> None:
        self._world = world
        self._oracles = oracles
        self._owner: OwnerProcess | None = None
        self._life = ""
        """The life of the owner in which it has opened the topic."""
        self._sent = {"numbered": 0, "plain": 0}
        self._unanswered: dict[SentMessage, None] = {}
        """The messages of `numbered` that are not acknowledged, in their order."""
        self._carriers: dict[SentMessage, set[str]] = {}
        """The lives of owners that have a message, or do not know what became of it."""

    def send(self, producer: str) -> None:
        owner = self._owner
        if owner is None or not owner.is_alive or self._world.now < owner.paused_until:
            return
        if owner.name != self._life:
            return  # it opens the topic again, and will say so
        message = SentMessage(producer, self._sent[producer])
        self._sent[producer] += 1
        if producer == "numbered":
            self._unanswered[message] = None
        self._give(owner, message)

    def moved_to(self, owner: OwnerProcess) -> None:
        """Use this owner from now on."""
        self._owner, self._life = owner, owner.name
        last = self._oracles.last_numbers().get("numbered", -1)
        for message in list(self._unanswered):
            if message.number <= last:
                del self._unanswered[message]
            else:
                self._give(owner, message)

    def _give(self, owner: OwnerProcess, message: SentMessage) -> None:
        self._carriers.setdefault(message, set()).add(owner.name)
        self._oracles.message_sent(message)
        owner.add(message)

    def acknowledged(self, message: SentMessage) -> None:
        self._unanswered.pop(message, None)

    def unknown(self, message: SentMessage) -> None:
        """Leave a message to the next owner, or report it."""

    def failed(self, owner: OwnerProcess, message: SentMessage) -> None:
        """Take the failure of a message, which is certain unless another owner has the message too."""
        self._carriers[message].discard(owner.name)
        if not self._carriers[message]:
            self._oracles.message_failed(message)

    @property
    def unanswered(self) -> list[SentMessage]:
        return [*self._unanswered]


class ModelTopicReader(ModelProcess):
    """Follows the topic from what is its beginning when it starts, with lists that may be old."""

    def __init__(self, name: str, world: World, ledgers: ModelLedgers, node: ListNode) -> None:
        super().__init__(name, world)
        self._ledgers = ledgers
        self._node = node
        self._list: list[int] = []
        self._at = Position(-1, -1)
        self.shown: list[Position] = []

    def poll(self, until: float) -> None:
        """Read what is there, with the list that it knows. Sometimes read the list again, and go on."""
        if not self._list or self._world_picks_new_list():
            self._read_list()
        self._read()
        if self.world.now < until:
            self.world.after(_POLL, self.deliver, self.poll, until)

    def _world_picks_new_list(self) -> bool:
        return self.world.choices.pick(3) != 1

    def _read_list(self) -> None:
        shown = self._node.shown
        if isinstance(shown, Node):
            self._list = [one.ledger_id for one in decode_managed_ledger(TOPIC, shown.data).ledgers]

    def _read(self) -> None:
        for ledger_id in self._list:
            ledger = self._ledgers.by_id[ledger_id]
            if ledger_id < self._at.ledger_id:
                continue
            if ledger.is_deleted:
                return  # the next list will not name it
            first = self._at.entry_id + 1 if ledger_id == self._at.ledger_id else 0
            for entry_id in range(first, len(ledger.entries)):
                self._at = Position(ledger_id, entry_id)
                self.shown.append(self._at)
            if ledger.end is None:
                return
