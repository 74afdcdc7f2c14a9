"""The background task that reclaims space: it decides when, how fast and in which order, in steps.

A collection looks at all committed logs (`storage.gc.usage`), decides what to do with each
(`storage.gc.policy`), and then takes one log after the other: the live entries are moved, every other
record is proved dead, and a log without live records is removed. A log that cannot be read to its end is
reported and passed over.

It begins by itself some time after a delete or a truncation, at once when space is low, and when it is
requested. It
can end after each log and each few megabytes, because every move and every removal is complete by itself.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeVar

from storage.daily_window import DailyWindow
from storage.entrylog.format import HEADER_SIZE
from storage.errors import NO_SPACE, StoreClosed, StoreFailed
from storage.gc.exact import problem_of
from storage.gc.log_walk import BLOCK_SIZE
from storage.gc.policy import (
    LogAction,
    PolicyFacts,
    Problem,
    ProblemKind,
    ReasonKind,
    Scope,
    Situation,
    Standing,
    decide,
)
from storage.gc.proof import KeptBecause
from storage.gc.report import CollectionEnd, CollectionProgress, CollectionReport, CollectionStats
from storage.ledgers.waiters import CHECKPOINT, COLLECTION
from storage.runtime.events import LOG
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from storage.config import StoreConfig
    from storage.gc.compactor import Compactor
    from storage.gc.policy import LogVerdict
    from storage.gc.proof import Kept
    from storage.gc.usage import LogUsage, UsageSurvey
    from storage.ledgers.waiters import LedgerWaiters
    from storage.runtime.store_state import StoreState
    from storage.runtime.worker import Pause

T = TypeVar("T")

LOW_SPACE_PAUSE_S = 10.0
"""The least time between two collections that begin because space is low."""

_RETRY_S = 60.0
"""The time after which a collection that ended early is repeated, and the least time between two if nothing
was deleted since the first."""

_SHOW_S = 0.02
"""The least time between two calls that show the progress, each of which wakes a thread."""

_CATCH_UP_S = 0.25
"""How much of its rate a compaction may make up for after it was delayed."""


class Checkpoints(Protocol):
    """The checkpoints of a store."""

    disk_full_error: OSError | None
    """Why the checkpoint under way waits."""
    wake: Callable[[], None]
    """Makes their worker step."""

    def request(self) -> int:
        """Request a checkpoint of everything added so far. Return its number."""

    def is_answered(self, number: int) -> bool:
        """Return whether that checkpoint is done."""


class Room(Protocol):
    """The space of a file system."""

    is_low: bool
    """Whether what can be freed should be freed now."""

    def free(self) -> int:
        """Return how many bytes are free."""


class Trigger(enum.Enum):
    """Why a collection begins."""

    REQUEST = "a request"
    LOW_SPACE = "low space"
    INTERVAL = "the interval"


@dataclass(slots=True)
class _Collection:
    """One collection under way."""

    trigger: Trigger
    scope: Scope
    began: float
    answers: int
    """The last request that it answers."""
    end: CollectionEnd | None = None
    """Why it ends early."""
    emptied: list[int] = field(default_factory=list)
    """Logs of which the live entries were moved, and that are not removed yet."""
    removed: list[int] = field(default_factory=list)
    moved_entries: int = 0
    moved_bytes: int = 0
    unremoved_bytes: int = 0
    """Bytes that were moved since the last removal."""
    tombstones: int = 0
    sizes: dict[int, int] = field(default_factory=dict)
    """The size of each log."""


@dataclass(frozen=True, slots=True)
class _Pacing:
    """The pace of an operation of the compactor, and when it is given up."""

    rate: int | None
    """Bytes a second; `None` for no limit."""
    must_end: Callable[[], bool]
    """Whether the operation is given up after the present step."""
    show_progress: Callable[[], None]


class Collector:
    """Collects in steps, one collection at a time. Only its own worker calls `step`."""

    def __init__(
        self,
        config: StoreConfig,
        compactor: Compactor,
        survey: Callable[[], UsageSurvey],
        active_log: Callable[[], int | None],
        checkpoints: Checkpoints,
        room: Room,
        waiters: LedgerWaiters,
        store_state: StoreState,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
    ) -> None:
        # The shared fields; none has a lock:
        #                      written by                      read by
        # _requested           any thread; two requests at     `step`
        #                      once may become one number,
        #                      which one collection answers
        # is_paused            any thread                      `step`
        # _has_new_dead            any thread                      `step`
        # _answered, report,   `step`                          any thread
        #   progress, _totals
        # Everything else belongs to `step`.
        self.is_paused = False
        """Whether no collection may begin, and one under way ends."""
        self.report: CollectionReport | None = None
        """The report of the last collection that has ended."""
        self.progress: CollectionProgress | None = None
        """How far the collection under way is; `None` if there is none."""
        self._totals = CollectionStats(0, is_paused=False)
        """The figures of all collections that have ended."""
        self.wake: Callable[[], None] = _wake_nothing
        """Makes the worker step."""
        self._requested = 0
        self._answered = 0
        self._has_new_dead = False
        """Whether entries may have been deleted since the last collection began."""
        self._config = config
        self._window = (
            None if config.compaction_window is None else DailyWindow.parse(config.compaction_window)
        )
        self._compactor = compactor
        self._survey = survey
        self._active_log = active_log
        self._checkpoints = checkpoints
        self._room = room
        self._waiters = waiters
        self._store_state = store_state
        self._clock = clock
        self._now = now
        self._running: Iterator[Pause] | None = None
        self._problems: dict[int, Problem] = {}
        """The logs that were passed over, so that no collection by itself reads them again."""
        self._due_at: float | None = None
        """When the next collection begins by itself."""
        self._next_major = clock()
        """When logs below the major threshold are compacted next. At first with the first collection, because
        it is not known when an earlier process has done it."""
        self._low_space_at = clock()
        """The time from which low space makes a collection begin."""
        self._is_all_collected = False
        """Whether the last collection has left no space that a next one could free."""
        self._show_at = clock()
        """When a caller that watches the progress is woken next."""
        self._rate_at = clock()
        """The time until which the bytes read so far use up the rate."""

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────

    def notice(self) -> None:
        """Let a collection begin after the interval, because entries may have been deleted."""
        if not self._has_new_dead:
            self._has_new_dead = True
            self.wake()

    def request(self) -> int:
        """Request a collection of everything that is dead now. Return the number to pass to `wait_for`."""
        self._requested += 1
        self.wake()
        return self._requested

    def wait_for(self, number: int, watch: Callable[[CollectionProgress], None] | None = None) -> None:
        """Return when that collection has ended, or the store has. `watch` is called with the progress."""

        def is_over() -> bool:
            progress = self.progress
            if watch is not None and progress is not None:
                watch(progress)
            return self._answered >= number or self._store_state.has_ended

        self._waiters.wait_for(COLLECTION, is_over)

    def pause(self) -> None:
        """Let no collection begin, and the one under way end after a few megabytes."""
        self.is_paused = True
        self.wake()

    def resume(self) -> None:
        """Let collections begin again."""
        self.is_paused = False
        self.wake()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def stats(self) -> CollectionStats:
        """The figures of all collections that have ended."""
        return replace(self._totals, is_paused=self.is_paused)

    @property
    def count(self) -> int:
        """How many collections have ended."""
        return self._totals.count

    @property
    def is_collecting(self) -> bool:
        """Whether a collection is under way."""
        return self._running is not None

    def step(self) -> Pause:
        """Do a part of the work. Return the pause until the next step."""
        if self._running is None:
            trigger = self._trigger()
            if trigger is None:
                return self._pause()
            self._begin(trigger)
        assert self._running is not None
        try:
            return next(self._running)
        except StopIteration:
            self._running = None
            return AT_ONCE
        except (StoreClosed, StoreFailed):
            self._running = None
            self._waiters.wake(COLLECTION)
            return None

    def _trigger(self) -> Trigger | None:
        """Return why a collection begins now; `None` if none does."""
        now = self._clock()
        if self._has_new_dead and self._due_at is None and self._config.collection_interval_s is not None:
            self._due_at = now + self._config.collection_interval_s
        if self._store_state.has_ended:
            self._waiters.wake(COLLECTION)
            return None
        if self._requested > self._answered:
            return Trigger.REQUEST
        if self.is_paused:
            return None
        if self._is_space_wanted and now >= self._low_space_at:
            return Trigger.LOW_SPACE
        return Trigger.INTERVAL if self._due_at is not None and now >= self._due_at else None

    @property
    def _is_space_wanted(self) -> bool:
        """Whether space is low, and a collection may help."""
        return self._room.is_low and (self._has_new_dead or not self._is_all_collected)

    def _pause(self) -> Pause:
        if self.is_paused or self._store_state.has_ended:
            return None
        times = [self._due_at, self._low_space_at if self._is_space_wanted else None]
        known = [one for one in times if one is not None]
        return max(0.001, min(known) - self._clock()) if known else None

    def _begin(self, trigger: Trigger) -> None:
        now = self._clock()
        if trigger is Trigger.REQUEST:
            self._problems.clear()  # a file may have been restored since
        self._has_new_dead, self._due_at = False, None
        self._rate_at = self._show_at = now
        self._running = self._collect(_Collection(trigger, self._scope(trigger), now, self._requested))

    def _scope(self, trigger: Trigger) -> Scope:
        if self.is_paused:
            return Scope.NOTHING
        if trigger is not Trigger.INTERVAL:
            return Scope.MAJOR
        if not self._is_in_window():
            return Scope.REMOVALS
        return Scope.MAJOR if self._clock() >= self._next_major else Scope.MINOR

    # ── the order ────────────────────────────────────────────────────────────────────────────────────

    def _collect(self, collection: _Collection) -> Iterator[Pause]:
        # 1. A checkpoint, because the index still points at the records of ledgers that were just deleted.
        yield from self._checkpoint(collection)
        # 2. Decide which logs are collected, and in which order. The last log is ended if it is mostly dead.
        last = yield from self._roll(collection)
        verdicts = yield from self._verdicts(collection)
        chosen = [one for one in verdicts if one.action is not LogAction.KEEP]
        size = sum(one.log.bytes for one in chosen) + (0 if last is None else collection.sizes.get(last, 0))
        self.progress = CollectionProgress(0, size)
        # 3. The logs in which nothing seems to live, together, because each removal reads the whole index.
        dead = [one.log.log_id for one in chosen if one.action is LogAction.REMOVE]
        alive = yield from self._remove(collection, dead, self._show_progress)
        # 4. The others, the emptiest first. An emptied log is removed before the copies take much more space.
        #    The maps were wrong about dead logs with live records, so these are compacted too.
        if collection.scope is Scope.REMOVALS:
            alive = []
        for log_id in (*alive, *(one.log.log_id for one in chosen if one.action is LogAction.COMPACT)):
            if self._must_end(collection):
                break
            yield from self._move(collection, log_id)
            if collection.unremoved_bytes >= self._config.entry_log_size_max or self._room.is_low:
                yield from self._remove(collection, collection.emptied, _show_nothing)
        # The log that was the last one is moved last, because the copies of the others may have begun a later
        # one by then.
        if last is not None and not self._must_end(collection):
            yield from self._move(collection, last)
        yield from self._remove(collection, collection.emptied, _show_nothing)
        # 5. The tombstones, because some of them were only needed for records that are gone.
        if not self._must_end(collection):
            purged = yield from self._compactor.purge_tombstones()
            collection.tombstones = purged.tombstones_purged
            self._note_error(collection, purged.error)
        # 6. The report. All logs are looked at again, because a collection moves bytes between logs.
        left = yield from self._verdicts(collection)
        self._end(collection, tuple(left))

    def _checkpoint(self, collection: _Collection) -> Iterator[Pause]:
        # Registered before the first check, so that no wake-up is lost.
        self._waiters.register(CHECKPOINT, self.wake)
        try:
            number = self._checkpoints.request()
            self._checkpoints.wake()
            while not self._checkpoints.is_answered(number) and self._checkpoints.disk_full_error is None:
                if self._must_end(collection):
                    return
                yield None
        finally:
            self._waiters.forget(CHECKPOINT, self.wake)

    def _roll(self, collection: _Collection) -> Generator[Pause, None, int | None]:
        """End the last log on a request if it is mostly dead. Return it if its live entries can be moved.

        A collection by itself does not, because it would read the log each time, and the log fills up anyway.
        """
        survey = self._survey()
        log_id = survey.last_log
        if collection.trigger is not Trigger.REQUEST or collection.scope is not Scope.MAJOR:
            return None
        if log_id is None or log_id not in survey.log_ends or self._must_end(collection):
            return None
        try:
            usage = yield from survey.usage_of(log_id)
        except OSError as error:
            LOG.warning("entry log %x was not collected: %s", log_id, error)
            return None
        facts = facts_of(usage, Standing.COMMITTED, None)
        if facts.problem is not None or facts.share is None or facts.share >= self._config.compaction_major:
            return None
        if log_id == self._active_log():
            yield from self._compactor.roll()
        # A dead log has nothing to move, so that no later log begins, and its id must not be given out again.
        return log_id if 0 < usage.live <= self._room.free() else None

    def _verdicts(self, collection: _Collection) -> Generator[Pause, None, list[LogVerdict]]:
        survey = self._survey()
        facts = []
        for log_id in survey.log_ends:
            found = yield from self._facts(survey, log_id)
            if found is not None:
                facts.append(found)
                collection.sizes[log_id] = found.bytes
        return decide(facts, self._situation(collection))

    def _facts(self, survey: UsageSurvey, log_id: int) -> Generator[Pause, None, PolicyFacts | None]:
        """Return what is known of a log; `None` if it was removed meanwhile."""
        standing = Standing.COMMITTED
        if log_id == self._active_log():
            standing = Standing.ACTIVE
        elif log_id == survey.last_log:
            standing = Standing.LAST
        try:
            # The log that is written is not walked. It has no map yet, and it stays whatever is in it.
            if standing is Standing.COMMITTED:
                usage: LogUsage | None = yield from survey.usage_of(log_id)
            else:
                usage = survey.known_usage_of(log_id)
            size = survey.size_of(log_id) if usage is None else usage.size
        except OSError as error:
            LOG.warning("entry log %x was not collected: %s", log_id, error)
            problem = Problem(ProblemKind.DAMAGED, "ELG-004", 0)
            return PolicyFacts(log_id, standing, 0, problem=problem)
        if usage is None:
            return PolicyFacts(log_id, standing, size)
        return facts_of(usage, standing, self._problems.get(log_id))

    def _situation(self, collection: _Collection) -> Situation:
        now = self._now()
        config = self._config
        next_minor = next_major = now
        if self._window is not None:
            next_minor = now + timedelta(seconds=self._window.seconds_until_start(now.time()))
        if collection.scope is Scope.MINOR:
            next_major = now + timedelta(seconds=max(0.0, self._next_major - self._clock()))
        next_major = max(next_major, next_minor)
        return Situation(
            now,
            collection.scope,
            config.compaction_minor,
            config.compaction_major,
            self._room.free(),
            next_minor,
            next_major,
        )

    def _move(self, collection: _Collection, log_id: int) -> Iterator[Pause]:
        """Move the live entries of a log, at the rate of the configuration."""
        move = self._compactor.move(log_id)
        pacing = _Pacing(
            self._config.compaction_rate, lambda: self._must_end(collection), self._show_progress
        )
        moved = yield from self._driven(move, pacing)
        if moved is None:
            return
        collection.moved_entries += moved.entries_moved
        collection.moved_bytes += moved.bytes_moved
        collection.unremoved_bytes += moved.bytes_moved
        self._note_error(collection, moved.error)
        if moved.why_kept is None:
            collection.emptied.append(log_id)
        else:
            self._note_kept(moved.why_kept)

    def _remove(
        self, collection: _Collection, log_ids: list[int], show_progress: Callable[[], None]
    ) -> Generator[Pause, None, list[int]]:
        """Remove those of the logs that are dead. Return those with live records."""
        collection.unremoved_bytes = 0
        if not log_ids:
            return []
        # The removal has no rate, because a dead log is only read, and gives space. It goes on when the
        # collection ends early, because live entries take their space twice until then.
        pacing = _Pacing(None, self._must_end_removal, show_progress)
        removed = yield from self._driven(self._compactor.remove(log_ids), pacing)
        collection.emptied = []
        if removed is None:
            return []
        collection.removed += removed.logs_removed
        self._note_error(collection, removed.error)
        for kept in removed.why_kept:
            self._note_kept(kept)
        return [kept.log_id for kept in removed.why_kept if kept.because is KeptBecause.LIVE]

    def _driven(
        self, operation: Generator[Pause, None, T], pacing: _Pacing
    ) -> Generator[Pause, None, T | None]:
        """Take all steps of an operation. Return its result; `None` if it was given up before its end."""
        while True:
            try:
                pause = next(operation)
            except StopIteration as done:
                result: T = done.value
                return result
            if pause is None:
                yield None  # the runner of checkpoints has the work now, which cannot be taken back
                continue
            if pacing.must_end():
                operation.close()
                yield from self._compactor.settle()
                return None
            pacing.show_progress()
            yield self._pause_for(BLOCK_SIZE, pacing.rate)

    def _show_progress(self) -> None:
        progress = self.progress
        if progress is not None:
            self.progress = replace(progress, read=min(progress.total, progress.read + BLOCK_SIZE))
            now = self._clock()
            if now >= self._show_at:
                self._show_at = now + _SHOW_S
                self._waiters.wake(COLLECTION)

    def _note_kept(self, kept: Kept) -> None:
        problem = problem_of(kept)
        if problem is not None:
            self._problems[kept.log_id] = problem
            LOG.warning("not collected: %s", kept)

    def _note_error(self, collection: _Collection, error: OSError | None) -> None:
        """Let the collection end early if an operation has met an error of the disk."""
        if error is not None:
            collection.end = CollectionEnd.NO_SPACE if error.errno in NO_SPACE else CollectionEnd.FAILED
            LOG.warning("a collection ends early: %s", error)

    def _pause_for(self, size: int, rate: int | None) -> Pause:
        """Return how long to wait after reading so many bytes."""
        if rate is None or self._room.is_low:
            return AT_ONCE
        now = self._clock()
        self._rate_at = max(self._rate_at, now - _CATCH_UP_S) + size / rate
        return max(AT_ONCE, self._rate_at - now)

    def _must_end(self, collection: _Collection) -> bool:
        """Return whether the collection ends now, before it is complete."""
        if collection.end is None:
            if self.is_paused:
                collection.end = CollectionEnd.PAUSED
            elif self._checkpoints.disk_full_error is not None:
                collection.end = CollectionEnd.NO_SPACE  # dead logs are removed, and nothing is moved
            elif (
                collection.trigger is Trigger.INTERVAL
                and collection.scope is not Scope.REMOVALS
                and not self._is_in_window()
            ):
                collection.end = CollectionEnd.WINDOW
        return collection.end is not None or self._store_state.has_ended

    def _must_end_removal(self) -> bool:
        """Return whether a removal is given up too, which goes on when a collection ends early."""
        return self.is_paused or self._store_state.has_ended

    def _is_in_window(self) -> bool:
        return self._window is None or self._window.includes(self._now().time())

    def _end(self, collection: _Collection, left: tuple[LogVerdict, ...]) -> None:
        now = self._clock()
        self.report = CollectionReport(
            end=collection.end or CollectionEnd.COMPLETE,
            seconds=now - collection.began,
            removed=tuple(collection.removed),
            freed=sum(collection.sizes[one] for one in collection.removed),
            moved_entries=collection.moved_entries,
            moved_bytes=collection.moved_bytes,
            tombstones=collection.tombstones,
            logs=left,
        )
        self.progress = None
        self._totals = self._totals.with_report(self.report)
        if collection.end is None and collection.scope is Scope.MAJOR:
            self._next_major = now + self._config.compaction_interval_s
        self._low_space_at = now + LOW_SPACE_PAUSE_S
        self._is_all_collected = (
            collection.end is None and collection.scope is Scope.MAJOR and not collection.removed
        )
        self._due_at = self._next_begin(collection, left)
        self._answered = collection.answers
        self._waiters.wake(COLLECTION)

    def _next_begin(self, collection: _Collection, left: Sequence[LogVerdict]) -> float | None:
        """Return when a collection begins even if nothing is deleted until then; `None` if none does."""
        if self._config.collection_interval_s is None:
            return None
        if collection.end is not None:
            return self._clock() + _RETRY_S
        if all(one.kind is not ReasonKind.WAITS for one in left):
            return None
        in_window = 0.0 if self._window is None else self._window.seconds_until_start(self._now().time())
        now = self._clock()
        is_minor = any(
            one.log.share is not None and one.log.share < self._config.compaction_minor
            for one in left
            if one.kind is ReasonKind.WAITS
        )
        return max(now + in_window, now if is_minor else self._next_major, now + _RETRY_S)


def facts_of(usage: LogUsage, standing: Standing, problem: Problem | None) -> PolicyFacts:
    """Return the facts about a log with this usage. `problem` is what an earlier collection has found."""
    if usage.damage is not None:
        finding = "ELG-001" if usage.damage.offset < HEADER_SIZE else "ELG-004"
        problem = Problem(ProblemKind.DAMAGED, finding, usage.damage.offset)
    waits = usage.deleted_ledgers > 0 and usage.live == 0
    return PolicyFacts(usage.log_id, standing, usage.size, usage.recorded, usage.live, problem, waits)


def _show_nothing() -> None:
    """Show no progress, because the log was read and counted before."""


def _wake_nothing() -> None:
    """Wake nothing: the default while there is no worker."""
