"""The ledgers of one topic, as its owner changes them. Pure: events and the time come in, effects go out.

    open        read the list; look at every ledger in it; recover those that are not closed; create the next
                ledger; write the list with the ends of the old ledgers, without the empty ones, and with the
                new one
    add         send to the current ledger, or queue while there is none
    roll over   close the current ledger when its adds are answered; create the next; write the list
    trim        write the list without the oldest ledgers; then delete these ledgers
    close       close the current ledger, write the list

The owner is the process that has written the list last: each write names the version that the owner knows, so
that a second owner makes the writes of the first one fail. That the first one adds no more to its ledger is
the fence of the ledger, which the second owner sets before it creates its own. So there is never more than
one ledger that takes entries, and it is the last one in the list.

What became of entries without an acknowledgement follows from the end of their ledger, which says how many of
the entries sent are in it. Those are acknowledged then, and the others are sent to the next ledger, in their
order. If the end cannot be known, because another owner has taken over, they fail with
`MessageOutcomeUnknown`.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.errors import (
    ClientClosed,
    ClusterError,
    LedgerClosed,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedgerExistsOnMetadataServer,
)
from storage.cluster.metadata.znodes import Gone, Unknown
from storage.cluster.topics import managed_ledger
from storage.cluster.topics.errors import (
    LedgerMissing,
    MessageOutcomeUnknown,
    TopicClosed,
    TopicFenced,
    TopicTerminated,
)
from storage.cluster.topics.ledgers_port import ClosedLedger, MissingLedger, OpenLedger
from storage.cluster.topics.list_change import ListChange, ReadList
from storage.cluster.topics.managed_ledger import LedgerInfo, ManagedLedgerInfo
from storage.cluster.topics.policies import MissingLedgers, ledgers_to_trim
from storage.cluster.topics.series_effects import (
    Acknowledged,
    Append,
    CloseLedger,
    CreateLedger,
    DeleteLedger,
    Ended,
    Failed,
    Opened,
    ReadStates,
    Recover,
    Trimmed,
)
from storage.errors import LedgerFenced, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.cluster.topics.ledgers_port import LedgerState
    from storage.cluster.topics.list_change import ListRead, ListWritten
    from storage.cluster.topics.managed_ledger import Position
    from storage.cluster.topics.policies import Retention, RollOver
    from storage.cluster.topics.series_effects import Effect, PendingEntry

_TAKEN_OVER = (LedgerFenced, LedgerClosed, MetadataConflict, NoSuchLedgerExistsOnMetadataServer)
"""What the close of a ledger raises if another client has fenced, closed or deleted it."""

_ATTEMPTS_MAX = 8
_RETRY_MIN_MS = 100
_RETRY_MAX_MS = 10_000


class SeriesState(enum.Enum):
    NEW = "not opened"
    READING = "the list, and the states of its ledgers, are being read"
    RECOVERING = "ledgers are being recovered"
    CREATING = "the next ledger is being created"
    LISTING = "the list with the next ledger is being written"
    OPEN = "messages are sent"
    CLOSING = "the current ledger is being closed"
    RESTING = "the list is being written for the last time"
    ENDED = "closed, fenced or failed"


class _Trim(NamedTuple):
    """A trim: where the cursors are, and what stays nevertheless."""

    cursors: tuple[Position, ...]
    retention: Retention


class _Touch(NamedTuple):
    """A write of the list as it is."""


class TopicSeries:
    """The ledgers of one topic. For one thread; `now_ms` is the time of the wall clock in milliseconds."""

    def __init__(
        self, topic: str, roll_over: RollOver, missing: MissingLedgers = MissingLedgers.REFUSE
    ) -> None:
        self.topic = topic
        self.roll_over = roll_over
        self.state = SeriesState.NEW
        self.list = ManagedLedgerInfo()
        """The list as this owner has read or written it."""
        self.current: int | None = None
        """The ledger that takes entries."""
        self.error: ClusterError | None = None
        """Why the series has ended."""
        self.due_ms: int | None = None
        """When `check_time` has something to do; `None` for never."""
        self.pending: deque[PendingEntry] = deque()
        """The entries without an acknowledgement, in their order; those that were sent come first."""
        self.last: tuple[int, int] | None = None
        """Ledger and id of the last acknowledged entry."""
        self._version: int | None = None
        self._data = b""
        """The list of this version, as it was read or written."""
        self._missing = missing
        self._missing_at: int | None = -1
        """The version of the list in which ledgers were missing."""
        self._ends: dict[int, ClosedLedger] = {}
        """The ends of ledgers that were not in the list as closed."""
        self._recovering: set[int] = set()
        self._change: ListChange | None = None
        self._wanted = self.list
        """The list that is being written."""
        self._created: int | None = None
        """The ledger that the list being written names first."""
        self._deleted: tuple[int, ...] = ()
        """The ledgers that the list being written lacks."""
        self._sent = self._acknowledged = self._size = 0
        """Entries that were sent to the current ledger, those of them that were acknowledged, their bytes."""
        self._first_ms = 0
        """When the first entry was sent to the current ledger."""
        self._is_closing = False
        """Whether the series ends when the current ledger is closed."""
        self._trim: _Trim | _Touch | None = None
        """What waits until the list can be written."""
        self._failure: StoreError | None = None
        """The first error of an entry of the current ledger."""
        self._barren = 0
        """The ledgers one after the other that have failed before they had an entry."""
        self._openings = 0
        """How many times the opening has begun anew."""
        self._attempts = 0
        self._retry: CreateLedger | Recover | None = None

    @property
    def current_entries(self) -> int:
        """The acknowledged entries of the current ledger."""
        return self._acknowledged

    @property
    def is_retrying(self) -> bool:
        """Whether something has failed that is tried again when `due_ms` comes."""
        return self._retry is not None

    @property
    def current_size(self) -> int:
        """The bytes that were sent to the current ledger."""
        return self._size

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> list[Effect]:
        assert self.state is SeriesState.NEW
        self.state = SeriesState.READING
        return [ReadList()]

    def list_read(self, answer: ListRead, now_ms: int) -> list[Effect]:
        """Take the answer to `ReadList`."""
        if self._change is not None:
            return self._proceed([*self._change.read(answer)], now_ms)
        if self.state is not SeriesState.READING:
            return []
        if isinstance(answer, Unknown):
            return self._end(MetadataUnavailable(answer.reason))
        if isinstance(answer, Gone):
            self._version, self.list = None, ManagedLedgerInfo()
            return self._create()
        self._version, self._data = answer.stat.version, answer.data
        try:
            self.list = managed_ledger.decode_managed_ledger(self.topic, answer.data)
        except ClusterError as error:
            return self._end(error)
        if self.list.terminated is not None:
            return self._end(TopicTerminated(self.topic, *self.list.terminated))
        ids = tuple(one.ledger_id for one in self.list.ledgers)
        return [ReadStates(ids)] if ids else self._create()

    def states_read(self, states: Sequence[LedgerState]) -> list[Effect]:
        """Take the states of all ledgers in the list, in its order."""
        if self.state is not SeriesState.READING:
            return []
        known = [(one.ledger_id, state) for one, state in zip(self.list.ledgers, states, strict=True)]
        self._ends = {ledger_id: end for ledger_id, end in known if isinstance(end, ClosedLedger)}
        missing = [ledger_id for ledger_id, state in known if isinstance(state, MissingLedger)]
        not_closed = [ledger_id for ledger_id, state in known if isinstance(state, OpenLedger)]
        if missing:
            # A trim of another owner may have come between the two reads; then the list is another one.
            if self._missing_at != self._version:
                self._missing_at = self._version
                return [ReadList()]
            if self._missing is MissingLedgers.REFUSE:
                return self._end(LedgerMissing(self.topic, missing[0]))
            kept = tuple(one for one in self.list.ledgers if one.ledger_id not in missing)
            self.list = replace(self.list, ledgers=kept)
        if not not_closed:
            return self._create_first()
        self.state = SeriesState.RECOVERING
        self._recovering = set(not_closed)
        return [Recover(ledger_id) for ledger_id in not_closed]

    def states_not_read(self, error: StoreError) -> list[Effect]:
        """Take the error of `ReadStates`."""
        return self._end(_cluster_error(error)) if self.state is SeriesState.READING else []

    def recovered(self, ledger_id: int, end: ClosedLedger | StoreError, now_ms: int) -> list[Effect]:
        """Take the outcome of `Recover`."""
        if self.state is not SeriesState.RECOVERING or ledger_id not in self._recovering:
            return []
        if ledger_id == self.current:
            return self._recovered_current(end, now_ms)
        if isinstance(end, NoSuchLedgerExistsOnMetadataServer):
            self.state = SeriesState.READING
            return [ReadList()]  # it was deleted since its state was read
        if isinstance(end, StoreError):
            return self._end(_cluster_error(end))
        self._ends[ledger_id] = end
        self._recovering.discard(ledger_id)
        return [] if self._recovering else self._create_first()

    def _create_first(self) -> list[Effect]:
        """Create the ledger for the first messages, unless a ledger in the list has lost all of its own."""
        lost = [one.ledger_id for one in self.list.ledgers if one.entries and not self._has_entries(one)]
        if lost and self._missing is MissingLedgers.REFUSE:
            return self._end(LedgerMissing(self.topic, lost[0]))
        return self._create()

    def _has_entries(self, ledger: LedgerInfo) -> bool:
        end = self._ends.get(ledger.ledger_id)
        return end is None or end.entries > 0

    def _may_read_again(self, result: ClusterError) -> bool:
        """Return whether an opening begins anew, because the owner was between two ledgers.

        The next attempt finds and fences the ledger that the owner has begun, which ends the owner.
        """
        is_opening = self.current is None and not self._is_closing
        return is_opening and isinstance(result, TopicFenced) and self._openings < _ATTEMPTS_MAX

    def _read_again(self) -> list[Effect]:
        self._openings += 1
        self.state = SeriesState.READING
        return [ReadList()]

    def _create(self) -> list[Effect]:
        self.state = SeriesState.CREATING
        self._attempts = 0
        return [CreateLedger()]

    def created(self, made: int | StoreError, now_ms: int) -> list[Effect]:
        """Take the outcome of `CreateLedger`."""
        if self.state is not SeriesState.CREATING:
            return [] if isinstance(made, StoreError) else [DeleteLedger(made)]
        if isinstance(made, StoreError):
            is_opening = self.current is None
            return self._end(_cluster_error(made)) if is_opening else self._retry_later(made, now_ms)
        if self._is_closing:
            return [DeleteLedger(made), *self._rest(now_ms)]
        self.state = SeriesState.LISTING
        self._created = made
        return self._write(self._closed_ledgers(now_ms, (LedgerInfo(made, timestamp_ms=0),)), now_ms)

    # ── adding ────────────────────────────────────────────────────────────────────────────────────────

    def add(self, entry: PendingEntry, now_ms: int) -> list[Effect]:
        """Add an entry: send it, or queue it while no ledger takes entries. Raise if the series has ended."""
        if self.state is SeriesState.ENDED or self._is_closing:
            error = self.error or TopicClosed(self.topic)
            raise type(error)(*error.args)
        self.pending.append(entry)
        if self.state is not SeriesState.OPEN:
            return []
        effects: list[Effect] = []
        self._send(entry, effects, now_ms)
        return effects

    def _send(self, entry: PendingEntry, effects: list[Effect], now_ms: int) -> None:
        assert self.current is not None
        if not self._sent:
            self._first_ms = now_ms
        self._sent += 1
        self._size += len(entry.payload)
        effects.append(Append(self.current, entry.payload))
        age_ms = now_ms - self._first_ms
        if self.roll_over.is_full(self._sent, self._size, age_ms):
            self.state = SeriesState.CLOSING
            effects.append(CloseLedger(self.current))
        elif self._sent == 1 or self._sent == self.roll_over.entries or self._size >= self.roll_over.size:
            self._set_due()

    def appended(self, ledger_id: int, entry_id: int) -> list[Effect]:
        """Take the acknowledgement of an entry, in the order of the ids."""
        if ledger_id != self.current or self.state not in (SeriesState.OPEN, SeriesState.CLOSING):
            return []  # the entry was acknowledged when its ledger ended
        assert entry_id == self._acknowledged, "acknowledged in order"
        return [self._acknowledge()]

    def _acknowledge(self) -> Acknowledged:
        assert self.current is not None
        done = Acknowledged(self.pending.popleft(), self.current, self._acknowledged)
        self.last = done.ledger_id, done.entry_id
        self._acknowledged += 1
        return done

    def append_failed(self, ledger_id: int, error: StoreError) -> list[Effect]:
        """Note that an entry of the current ledger has failed. Its end tells what became of the entry."""
        if ledger_id != self.current or self.state not in (SeriesState.OPEN, SeriesState.CLOSING):
            return []
        self._failure = self._failure or error
        return self._close_current() if self.state is SeriesState.OPEN else []

    def _close_current(self) -> list[Effect]:
        assert self.current is not None
        self.state = SeriesState.CLOSING
        self.due_ms = None
        return [CloseLedger(self.current)]

    # ── from one ledger to the next ───────────────────────────────────────────────────────────────────

    def start_roll_over(self) -> list[Effect]:
        """Close the current ledger, unless it is empty, and begin the next one."""
        if self.state is not SeriesState.OPEN or not self._sent:
            return []
        return self._close_current()

    def closed(self, ledger_id: int, end: ClosedLedger | StoreError, now_ms: int) -> list[Effect]:
        """Take the outcome of `CloseLedger`."""
        if ledger_id != self.current or self.state is not SeriesState.CLOSING:
            return []
        if isinstance(end, _TAKEN_OVER):
            return self._end(TopicFenced(self.topic))
        if isinstance(end, ClientClosed):
            return self._end(end)
        if isinstance(end, StoreError):
            self.state = SeriesState.RECOVERING
            self._recovering = {ledger_id}
            self._attempts = 0
            return [Recover(ledger_id)]
        return self._ended_ledger(end, now_ms)

    def _recovered_current(self, end: ClosedLedger | StoreError, now_ms: int) -> list[Effect]:
        if isinstance(end, NoSuchLedgerExistsOnMetadataServer):
            return self._end(TopicFenced(self.topic))
        if isinstance(end, StoreError):
            return self._retry_later(end, now_ms)
        return self._ended_ledger(end, now_ms)

    def _ended_ledger(self, end: ClosedLedger, now_ms: int) -> list[Effect]:
        """Acknowledge the entries that are in the ledger; the others are sent to the next one."""
        assert self.current is not None
        if not self._acknowledged <= end.entries <= self._sent:
            return self._end(
                MetadataConflict(
                    self.topic,
                    f"ledger {self.current} ends with {end.entries} entries, but {self._acknowledged} of "
                    f"{self._sent} were acknowledged",
                )
            )
        effects: list[Effect] = [self._acknowledge() for _ in range(end.entries - self._acknowledged)]
        self._ends[self.current] = end
        self._barren = self._barren + 1 if self._failure is not None and not end.entries else 0
        self._sent = self._acknowledged = self._size = 0
        self._recovering = set()
        if self._change is not None:
            return effects  # the list is being written for a trim; the next write follows it
        return effects + self._after_ledger(now_ms)

    def _after_ledger(self, now_ms: int) -> list[Effect]:
        failure, self._failure = self._failure, None
        if self._is_closing:
            return self._rest(now_ms)
        if failure is None or not self._barren:
            return self._create()
        # An entry that no ledger takes must not be tried for ever.
        self.state = SeriesState.CREATING
        self._attempts = self._barren - 1
        return self._retry_later(failure, now_ms)

    def _closed_ledgers(self, now_ms: int, new: tuple[LedgerInfo, ...]) -> ManagedLedgerInfo:
        """Return the list with the ends that are known, without empty ledgers, and with the new ones."""
        kept, empty = [], []
        for one in self.list.ledgers:
            end = self._ends.get(one.ledger_id)
            if end is None:
                kept.append(one)
            elif not end.entries:
                empty.append(one.ledger_id)
            else:
                stamp = one.timestamp_ms or now_ms
                kept.append(replace(one, entries=end.entries, size=end.size, timestamp_ms=stamp))
        self._deleted = tuple(empty)
        return replace(self.list, ledgers=(*kept, *new))

    # ── trimming, closing ─────────────────────────────────────────────────────────────────────────────

    def trim(self, cursors: Iterable[Position], retention: Retention, now_ms: int) -> list[Effect]:
        """Take out of the list what retention lets go. `Trimmed` follows, perhaps after a roll-over."""
        self._trim = _Trim(tuple(cursors), retention)
        return self._begin_trim(now_ms)

    def touch(self, now_ms: int) -> list[Effect]:
        """Write the list as it is, so that no other owner can name a ledger that it has created before.

        `Trimmed` follows, perhaps after a roll-over.
        """
        self._trim = _Touch()
        return self._begin_trim(now_ms)

    def _begin_trim(self, now_ms: int) -> list[Effect]:
        if self._trim is None or self._change is not None or self.state is not SeriesState.OPEN:
            return []
        wanted, self._trim = self._trim, None
        if isinstance(wanted, _Touch):
            return self._write(self.list, now_ms)
        known = [
            replace(one, size=self._size) if one.ledger_id == self.current else one
            for one in self.list.ledgers
        ]
        gone = {one.ledger_id for one in ledgers_to_trim(known, self.current, *wanted, now_ms)}
        if not gone:
            return [Trimmed(())]
        self._deleted = tuple(sorted(gone))
        kept = tuple(one for one in self.list.ledgers if one.ledger_id not in gone)
        return self._write(replace(self.list, ledgers=kept), now_ms)

    def close(self, now_ms: int) -> list[Effect]:
        """Close the current ledger, and end. Entries that were not sent fail."""
        if self._is_closing or self.state is SeriesState.ENDED:
            return []
        self._is_closing = True
        if self.state is SeriesState.OPEN:
            return self._close_current()
        if self.state in (SeriesState.NEW, SeriesState.READING) or (
            self.state is SeriesState.RECOVERING and self.current is None
        ):
            return self._end(None)
        if self._retry is not None:
            return self._end(self.error)
        del now_ms
        return []

    def abandon(self) -> list[Effect]:
        """End without closing anything, because the client is closed."""
        return [] if self.state is SeriesState.ENDED else self._end(ClientClosed())

    def _rest(self, now_ms: int) -> list[Effect]:
        """Write the list for the last time, so that the next opening knows all ends."""
        self.state = SeriesState.RESTING
        return self._write(self._closed_ledgers(now_ms, ()), now_ms)

    # ── writing the list ──────────────────────────────────────────────────────────────────────────────

    def _write(self, wanted: ManagedLedgerInfo, now_ms: int) -> list[Effect]:
        self._wanted = wanted
        data = managed_ledger.encode_managed_ledger(wanted)
        self._change = ListChange(self.topic, data, self._version, self._data)
        return self._proceed([*self._change.begin()], now_ms)

    def list_written(self, answer: ListWritten, now_ms: int) -> list[Effect]:
        """Take the answer to `WriteList`."""
        if self._change is None:
            return []
        return self._proceed([*self._change.written(answer)], now_ms)

    def _proceed(self, effects: list[Effect], now_ms: int) -> list[Effect]:
        assert self._change is not None
        result, data = self._change.result, self._change.data
        if result is None:
            return effects
        self._change = None
        if self.state is SeriesState.ENDED:
            # The list may have been written although the series ended meanwhile.
            gone = () if isinstance(result, ClusterError) else self._deleted
            return effects + [DeleteLedger(ledger_id) for ledger_id in gone]
        created, self._created = self._created, None
        if isinstance(result, ClusterError):
            # After a conflict the ledger is in no list. If the outcome is not known it may be in one.
            unlisted: list[Effect] = []
            if created is not None and isinstance(result, TopicFenced):
                unlisted.append(DeleteLedger(created))
            return unlisted + (self._read_again() if self._may_read_again(result) else self._end(result))
        self.list, self._version, self._data = self._wanted, result, data
        deleted, self._deleted = self._deleted, ()
        # Only now, because a list must not name a ledger that is gone.
        effects += [DeleteLedger(ledger_id) for ledger_id in deleted]
        match self.state:
            case SeriesState.LISTING:
                assert created is not None
                return effects + self._begin_ledger(created, now_ms)
            case SeriesState.RESTING:
                return effects + self._end(None)
            case _:
                effects.append(Trimmed(deleted))
                if self.current in self._ends:
                    return effects + self._after_ledger(now_ms)
                return effects + self._begin_trim(now_ms)

    def _begin_ledger(self, created: int, now_ms: int) -> list[Effect]:
        self._ends = {}
        self.current = created
        self.state = SeriesState.OPEN
        effects: list[Effect] = [Opened(created)]
        for entry in self.pending:
            if self.state is not SeriesState.OPEN:
                break  # this ledger is full: the others go to the next
            self._send(entry, effects, now_ms)
        if self._is_closing and self.state is SeriesState.OPEN:
            effects += self._close_current()
        return effects + self._begin_trim(now_ms)

    # ── time, and the end ─────────────────────────────────────────────────────────────────────────────

    def check_time(self, now_ms: int) -> list[Effect]:
        """Do what is due: close a ledger because of its age, or try again what has failed."""
        if self.due_ms is None or now_ms < self.due_ms:
            return []
        self.due_ms = None
        if self._retry is not None:
            again, self._retry = self._retry, None
            return [again]
        if self.state is not SeriesState.OPEN:
            return []
        if self.roll_over.is_full(self._sent, self._size, now_ms - self._first_ms):
            return self._close_current()
        self._set_due()
        return []

    def _set_due(self) -> None:
        after_ms = self.roll_over.full_after_ms(self._sent, self._size)
        self.due_ms = None if after_ms is None else self._first_ms + after_ms

    def _retry_later(self, error: StoreError, now_ms: int) -> list[Effect]:
        self._attempts += 1
        if self._attempts >= _ATTEMPTS_MAX or self._is_closing or isinstance(error, ClientClosed):
            return self._end(_cluster_error(error))
        assert self.current is not None
        self._retry = CreateLedger() if self.state is SeriesState.CREATING else Recover(self.current)
        self.due_ms = now_ms + min(_RETRY_MIN_MS << (self._attempts - 1), _RETRY_MAX_MS)
        return []

    def _end(self, error: ClusterError | None) -> list[Effect]:
        """End. Entries that were sent may be in the ledger, unless its end is known."""
        self.state = SeriesState.ENDED
        self.error = error
        self.due_ms = self._trim = self._retry = None
        effects: list[Effect] = []
        reason = error or TopicClosed(self.topic)
        unknown = self._sent - self._acknowledged
        for number, entry in enumerate(self.pending):
            is_unknown = number < unknown
            cause = (
                MessageOutcomeUnknown(self.topic, str(reason)) if is_unknown else type(reason)(*reason.args)
            )
            effects.append(Failed(entry, cause))
        self.pending.clear()
        return [*effects, Ended(error)]


def _cluster_error(error: StoreError) -> ClusterError:
    return error if isinstance(error, ClusterError) else MetadataUnavailable(str(error))
