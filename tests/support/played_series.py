"""A world of ledgers and one list for the series of topics, in which every order of events can be played.

Each effect of a series is a call under way. A schedule chooses which call is executed next, and what comes of
it: it is done, it is done and the answer is lost, or it is not done.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.cluster.errors import (
    MetadataUnavailable,
    NoSuchLedgerExistsOnMetadataServer,
    OutcomeUnknown,
    WriterFenced,
)
from storage.cluster.metadata.znodes import Conflict, Created, Exists, Gone, Node, NodeStat, Unknown, Written
from storage.cluster.topics.errors import MessageOutcomeUnknown
from storage.cluster.topics.ledgers_port import ClosedLedger, MissingLedger, OpenLedger
from storage.cluster.topics.list_change import ReadList, WriteList
from storage.cluster.topics.managed_ledger import (
    ManagedLedgerInfo,
    decode_managed_ledger,
    encode_managed_ledger,
)
from storage.cluster.topics.policies import MissingLedgers, RollOver
from storage.cluster.topics.series import TopicSeries
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from storage.cluster.errors import ClusterError
    from storage.cluster.topics.managed_ledger import LedgerInfo, Position
    from storage.cluster.topics.policies import Retention
    from storage.cluster.topics.series_effects import Effect

TOPIC = "persistent://public/default/played"


LOST = MetadataUnavailable("lost")


class ScheduleChoices:
    """The choices of one schedule: given ones first, and then always the first possibility."""

    def __init__(self, given: Iterable[int] = ()) -> None:
        self._given = list(given)
        self.made: list[int] = []
        self.counts: list[int] = []

    def choose(self, count: int) -> int:
        if count == 1:
            return 0
        at = len(self.made)
        chosen = self._given[at] % count if at < len(self._given) else 0
        self.made.append(chosen)
        self.counts.append(count)
        return chosen


def every_schedule(play: Callable[[ScheduleChoices], object], limit: int) -> int:
    """Play every schedule, the first choices varied last; return how many. Fail if there are too many."""
    given: list[int] | None = []
    played = 0
    while given is not None:
        choices = ScheduleChoices(given)
        play(choices)
        played += 1
        assert played <= limit, "more schedules than expected"
        given = _next(choices)
    return played


def _next(choices: ScheduleChoices) -> list[int] | None:
    made = choices.made
    for at in reversed(range(len(made))):
        if made[at] + 1 < choices.counts[at]:
            return [*made[:at], made[at] + 1]
    return None


@dataclass
class PlayedLedger:
    """One ledger: its entries, of which the first ones are acknowledged to the writer."""

    entries: list[bytes] = field(default_factory=list)
    acknowledged: int = 0
    is_broken: bool = False
    """Whether an entry has failed, so that its writer acknowledges none after it."""
    is_fenced: bool = False
    end: int | None = None

    @property
    def closed(self) -> ClosedLedger:
        assert self.end is not None
        return ClosedLedger(self.end, sum(map(len, self.entries[: self.end])))


class SeriesWorld:
    """The ledgers and the list. `faults` is how many calls may go wrong in a schedule."""

    def __init__(self, choices: ScheduleChoices, faults: int = 0) -> None:
        self.choices = choices
        self.faults = faults
        self.now_ms = 1_000_000
        self.data: bytes | None = None
        self.version = -1
        self.ledgers: dict[int, PlayedLedger] = {}
        self.deleted: set[int] = set()
        self.owners: list[PlayedOwner] = []
        self.refuses_entries = False
        """Whether no ledger takes an entry."""
        self._next_id = 10
        self._foreign = -1
        """The version of the list that no owner here has written."""

    def owner(
        self, roll_over: RollOver | None = None, missing: MissingLedgers = MissingLedgers.REFUSE
    ) -> PlayedOwner:
        made = PlayedOwner(self, TopicSeries(TOPIC, roll_over or RollOver(), missing))
        self.owners.append(made)
        return made

    def goes_wrong(self, ways: int) -> int:
        """Return 0 if a call goes well, or in which of so many ways it does not."""
        if not self.faults:
            return 0
        way = self.choices.choose(ways + 1)
        self.faults -= way > 0
        return way

    def new_ledger(self) -> int:
        self._next_id += 1
        self.ledgers[self._next_id] = PlayedLedger()
        return self._next_id

    def put_ledger(self, ledger_id: int, entries: list[bytes], end: int | None) -> None:
        """Let there be a ledger that an earlier owner has written."""
        self.ledgers[ledger_id] = PlayedLedger(entries, len(entries), end=end)

    def put_list(self, *ledgers: LedgerInfo) -> None:
        """Let the topic have these ledgers from an earlier owner, of which several may be open."""
        self.write(encode_managed_ledger(ManagedLedgerInfo(ledgers)), None)
        self._foreign = self.version

    def write(self, data: bytes, version: int | None) -> Written | Created | Conflict | Exists:
        if version is None:
            if self.data is not None:
                return Exists()
            self.data, self.version = data, 0
            return Created("")
        if version != self.version:
            return Conflict()
        self.data = data
        self.version += 1
        return Written(self.version)

    @property
    def content(self) -> ManagedLedgerInfo:
        """The list as it is written now."""
        return decode_managed_ledger(TOPIC, self.data or b"")

    def listed(self) -> list[int]:
        return [one.ledger_id for one in self.content.ledgers]

    def messages(self) -> list[bytes]:
        """Return the messages of the topic, in their order: those of closed ledgers, and what others have."""
        found: list[bytes] = []
        for ledger_id in self.listed():
            ledger = self.ledgers[ledger_id]
            found += ledger.entries[: ledger.end]
        return found

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Execute calls in the order that is chosen until none is left."""
        for _ in range(10_000):
            ready = [owner for owner in self.owners if owner.calls]
            if until():
                return
            if not ready:
                later = [one.series.due_ms for one in self.owners if one.is_retrying()]
                if not later:
                    return
                self.now_ms = min(due for due in later if due is not None)
                for one in self.owners:
                    one.check_time()
                continue
            ready[self.choices.choose(len(ready))].execute_one()
            self.check()
        raise AssertionError("it never ends")

    def check(self) -> None:
        """Fail if the list names a ledger that is gone, or if two ledgers take entries."""
        listed = self.listed()
        assert not self.deleted.intersection(listed), "the list names a deleted ledger"
        known = [(one, self.ledgers[one]) for one in listed if one in self.ledgers]
        writable = [one for one, ledger in known if not ledger.is_fenced and ledger.end is None]
        if self.version > self._foreign:
            assert writable in ([], listed[-1:]), "an older ledger still takes entries"

    def check_end(self) -> None:
        """Fail if what was told to the callers is not what is in the topic."""
        messages = self.messages()
        assert len(set(messages)) == len(messages), "a message is there twice"
        for owner in self.owners:
            for payload, (ledger_id, entry_id) in owner.acknowledged.items():
                if ledger_id in self.deleted:
                    continue
                assert self.ledgers[ledger_id].entries[entry_id] == payload, "another message is there"
                assert payload in messages, "an acknowledged message is lost"
            certain = [
                one for one, error in owner.failed.items() if not isinstance(error, MessageOutcomeUnknown)
            ]
            assert not set(certain).intersection(messages), "a refused message is there"
            told = set(owner.acknowledged) | set(owner.failed)
            assert told == set(owner.added) or owner.series.pending, "a call never ended"
            mine = [one for one in owner.added if one in messages]
            assert mine == [one for one in messages if one in owner.added], "the order is another one"


class PlayedOwner:
    """Drives one series in the world."""

    def __init__(self, world: SeriesWorld, series: TopicSeries) -> None:
        self.world = world
        self.series = series
        self.calls: deque[Effect] = deque()
        self.added: list[bytes] = []
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.failed: dict[bytes, ClusterError] = {}
        self.opened: list[int] = []
        self.trimmed: list[tuple[int, ...]] = []
        self.ended: list[ClusterError | None] = []
        self.is_dead = False

    def kill(self) -> None:
        """End the process: its calls under way are executed or not, and nothing is answered."""
        self.is_dead = True
        self.calls.clear()

    def open(self) -> None:
        self.perform(self.series.open())

    def add(self, payload: bytes) -> None:
        self.added.append(payload)
        self.perform(self.series.add(PendingEntry(payload), self.world.now_ms))

    def trim(self, retention: Retention, cursors: Iterable[Position] = ()) -> None:
        self.perform(self.series.trim(cursors, retention, self.world.now_ms))

    def close(self) -> None:
        self.perform(self.series.close(self.world.now_ms))

    def check_time(self) -> None:
        self.perform(self.series.check_time(self.world.now_ms))

    def is_retrying(self) -> bool:
        return not self.is_dead and self.series.due_ms is not None and self.series.is_retrying

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Acknowledged(entry, ledger_id, entry_id):
                    assert entry.payload not in self.acknowledged, "acknowledged twice"
                    self.acknowledged[entry.payload] = ledger_id, entry_id
                case Failed(entry, error):
                    assert entry.payload not in self.acknowledged, "failed after its acknowledgement"
                    self.failed[entry.payload] = error
                case Opened(ledger_id):
                    self.opened.append(ledger_id)
                case Trimmed(ledger_ids):
                    self.trimmed.append(ledger_ids)
                case Ended(error):
                    self.ended.append(error)
                case call:
                    self.calls.append(call)

    def execute_one(self) -> None:
        """Execute the first call, or one after it that does not depend on it."""
        self.perform(self._execute(self.calls.popleft()))

    def _execute(self, call: Effect) -> list[Effect]:  # noqa: C901 - one branch for each call
        world, series, now_ms = self.world, self.series, self.world.now_ms
        match call:
            case ReadList():
                if world.goes_wrong(1):
                    return series.list_read(Unknown("lost"), now_ms)
                return series.list_read(self._node(), now_ms)
            case WriteList(data, version):
                way = world.goes_wrong(2)
                if way == 2:
                    return series.list_written(Unknown("lost"), now_ms)
                answer = world.write(data, version)
                return series.list_written(Unknown("lost") if way else answer, now_ms)
            case ReadStates(ledger_ids):
                return series.states_read([self._state(one) for one in ledger_ids])
            case Recover(ledger_id):
                return self._recover(ledger_id)
            case CreateLedger():
                if world.goes_wrong(1):
                    return series.created(MetadataUnavailable("lost"), now_ms)
                return series.created(world.new_ledger(), now_ms)
            case Append(ledger_id, payload):
                return self._append(ledger_id, payload)
            case CloseLedger(ledger_id):
                return self._close(ledger_id)
            case DeleteLedger(ledger_id):
                world.deleted.add(ledger_id)
                world.ledgers.pop(ledger_id, None)
                return []
        raise AssertionError(call)

    def _node(self) -> Node | Gone:
        if self.world.data is None:
            return Gone()
        return Node(self.world.data, NodeStat(0, 0, 0, 0, self.world.version, 0, 0, 0, 0, 0, 0))

    def _state(self, ledger_id: int) -> ClosedLedger | OpenLedger | MissingLedger:
        ledger = self.world.ledgers.get(ledger_id)
        if ledger is None:
            return MissingLedger()
        return OpenLedger() if ledger.end is None else ledger.closed

    def _recover(self, ledger_id: int) -> list[Effect]:
        world = self.world
        ledger = world.ledgers.get(ledger_id)
        if ledger is None:
            error = NoSuchLedgerExistsOnMetadataServer(ledger_id)
            return self.series.recovered(ledger_id, error, world.now_ms)
        if world.goes_wrong(1):
            ledger.is_fenced = True
            return self.series.recovered(ledger_id, MetadataUnavailable("lost"), world.now_ms)
        ledger.is_fenced = True
        if ledger.end is None:
            # A recovery keeps what it finds, and it may not find what was not acknowledged.
            kept = len(ledger.entries) - world.choices.choose(len(ledger.entries) - ledger.acknowledged + 1)
            ledger.end = kept
        return self.series.recovered(ledger_id, ledger.closed, world.now_ms)

    def _append(self, ledger_id: int, payload: bytes) -> list[Effect]:
        ledger = self.world.ledgers.get(ledger_id)
        if ledger is None or ledger.is_fenced or ledger.end is not None:
            return self.series.append_failed(ledger_id, LOST)
        if ledger.is_broken or self.world.refuses_entries:
            ledger.is_broken = True
            return self.series.append_failed(
                ledger_id, LOST
            )  # a writer acknowledges nothing after a failed entry
        way = self.world.goes_wrong(2)
        if way < 2:
            ledger.entries.append(payload)
        if way:
            ledger.is_broken = True
            return self.series.append_failed(ledger_id, LOST)
        ledger.acknowledged += 1
        return self.series.appended(ledger_id, ledger.acknowledged - 1)

    def _close(self, ledger_id: int) -> list[Effect]:
        world = self.world
        # The writer waits for its adds.
        for call in [one for one in self.calls if isinstance(one, Append) and one.ledger_id == ledger_id]:
            self.calls.remove(call)
            self.perform(self._append(ledger_id, call.payload))
        ledger = world.ledgers.get(ledger_id)
        if ledger is None:
            error = NoSuchLedgerExistsOnMetadataServer(ledger_id)
            return self.series.closed(ledger_id, error, world.now_ms)
        if ledger.is_fenced or ledger.end not in (None, ledger.acknowledged):
            return self.series.closed(ledger_id, WriterFenced(ledger_id), world.now_ms)
        if world.goes_wrong(1):
            return self.series.closed(ledger_id, OutcomeUnknown(TOPIC, "lost"), world.now_ms)
        ledger.end = ledger.acknowledged
        return self.series.closed(ledger_id, ledger.closed, world.now_ms)
