"""The policy of collection: which entry logs it removes or compacts, and why every other log is still there.

`decide` is a pure function of the facts about each log and of the situation. The store's collector follows
it, and `ledgerstore gc` prints it. The facts may be estimates: before a log is removed, it is proved that it
has no live entry, so a wrong decision costs only work.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


class Standing(enum.Enum):
    """The standing of a log in the store, which may keep it from being collected."""

    ACTIVE = "active"
    """Checkpoints append to it."""
    LAST = "last"
    """The log that was written last. Without it, its id could be given out again."""
    COMMITTED = "committed"
    """Any other log of the store."""
    REMOVED = "removed"
    """A log that was removed from the store, and whose bytes are still on the disk."""


class ProblemKind(enum.Enum):
    DAMAGED = "damaged"
    """A record cannot be read, or its digest is wrong."""
    UNACCOUNTED = "unaccounted"
    """A record is neither live nor dead: the index has no location of it, and it was not deleted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a log can be neither compacted nor removed."""

    kind: ProblemKind
    finding: str
    """The id of the finding, such as `ELG-003`."""
    offset: int


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The facts about one log."""

    log_id: int
    standing: Standing
    bytes: int
    """The size of the file, which comes back when the log is removed."""
    recorded: int = 0
    """The bytes of all records of entries, dead ones included."""
    live: int | None = None
    """The bytes of the live records; `None` if that is not known."""
    problem: Problem | None = None
    waits_for_checkpoint: bool = False
    """Whether the index still has locations in it of ledgers that are deleted."""
    held_since: datetime | None = None
    """When an audit has linked a log that was removed from the store."""

    @property
    def share(self) -> float | None:
        """The live share of the recorded bytes; `None` if it is not known."""
        if self.live is None:
            return None
        return self.live / self.recorded if self.recorded else 0.0


class Scope(enum.Enum):
    """The actions that a collection may take, in ascending order."""

    NOTHING = "nothing"
    """Collection is paused."""
    REMOVALS = "removals"
    """Remove logs without live entries: compactions are outside of their time of day."""
    MINOR = "minor"
    """Also compact logs below the minor threshold."""
    MAJOR = "major"
    """Also compact logs below the major threshold."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The circumstances of a decision, the same for all logs."""

    now: datetime
    scope: Scope
    minor: float
    """Logs with a smaller share of live bytes are compacted by every collection."""
    major: float
    """Logs with a smaller share are compacted by a major collection."""
    room: int | None = None
    """The bytes that copies of live entries may take; `None` if that is not known."""
    next_minor: datetime | None = None
    """When logs below the minor threshold are compacted next; `None` if it is not known."""
    next_major: datetime | None = None


class LogAction(enum.Enum):
    KEEP = "keep"
    COMPACT = "compact"
    """Move the live entries to another log, and then remove the log."""
    REMOVE = "remove"
    """Remove the log, which has no live entry."""


class ReasonKind(enum.Enum):
    """The kinds of reasons why a log is still there."""

    ACTIVE = "active"
    LAST = "last"
    LIVE = "live"
    WAITS = "waits"
    CHECKPOINT = "checkpoint"
    DAMAGED = "damaged"
    UNACCOUNTED = "unaccounted"
    HELD = "held"
    UNLINKED = "unlinked"
    PAUSED = "paused"
    NO_ROOM = "no room"
    UNKNOWN = "unknown"
    NEXT = "next"
    """Nothing keeps it: the next collection takes it."""


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """The decision about one log, and the reason why it is still there."""

    log: PolicyFacts
    action: LogAction
    kind: ReasonKind
    reason: str

    @property
    def comes_back(self) -> int:
        """The bytes that the disk has more when a collection has taken the log, now or later."""
        match self.kind:
            case (
                ReasonKind.NEXT
                | ReasonKind.WAITS
                | ReasonKind.PAUSED
                | ReasonKind.NO_ROOM
                | ReasonKind.CHECKPOINT
            ):
                return max(0, self.log.bytes - (self.log.live or 0))
            case ReasonKind.HELD | ReasonKind.UNLINKED:
                return self.log.bytes
        return 0


def decide(logs: Iterable[PolicyFacts], situation: Situation) -> list[LogVerdict]:
    """Return a verdict on each log: first those with an action, in the order of work, then the others.

    Dead logs come first, because they give space and take none. Then the logs with the smallest share of
    live bytes, because moving few bytes gives much space back, as long as there is room for the copies.
    """
    # The ids decide between equal shares, so that the order does not depend on that of the argument.
    ordered = sorted(logs, key=lambda log: (1.0 if log.share is None else log.share, log.log_id))
    verdicts = []
    room = situation.room
    for log in ordered:
        verdict = _decide_one(log, situation, room)
        if verdict.action is LogAction.COMPACT and room is not None:
            room -= log.live or 0
        verdicts.append(verdict)
    return sorted(verdicts, key=lambda verdict: verdict.action is LogAction.KEEP)


def _decide_one(log: PolicyFacts, situation: Situation, room: int | None) -> LogVerdict:
    """Return the verdict; the first rule that fits decides, and each later one may rely on it."""
    kept = _keep_for_standing(log, situation.now) or _keep_for_problem(log)
    if kept is not None:
        return kept
    share = log.share
    if share is None:
        return _keep(log, ReasonKind.UNKNOWN, "live bytes unknown: it was not scanned yet")
    if log.waits_for_checkpoint:
        words = "waits for the checkpoint that takes deleted ledgers out of the index"
        return _keep(log, ReasonKind.CHECKPOINT, words)
    threshold = max(situation.minor, situation.major)
    if share > 0 and share >= threshold:
        return _keep(log, ReasonKind.LIVE, f"{percent(share)} live, threshold {percent(threshold)}")
    if situation.scope is Scope.NOTHING:
        return _keep(log, ReasonKind.PAUSED, "collection is paused")
    if share == 0:
        return LogVerdict(log, LogAction.REMOVE, ReasonKind.NEXT, "dead: the next collection removes it")
    is_minor = share < situation.minor
    if situation.scope is Scope.REMOVALS or (situation.scope is Scope.MINOR and not is_minor):
        until = situation.next_minor if is_minor else situation.next_major
        return _keep(log, ReasonKind.WAITS, _waiting(until, situation.now))
    if room is not None and log.live is not None and log.live > room:
        words = f"no room: its live entries take {log.live:,} bytes, {max(room, 0):,} are free"
        return _keep(log, ReasonKind.NO_ROOM, words)
    words = f"{percent(share)} live: the next collection compacts it"
    return LogVerdict(log, LogAction.COMPACT, ReasonKind.NEXT, words)


def _keep_for_standing(log: PolicyFacts, now: datetime) -> LogVerdict | None:
    match log.standing:
        case Standing.ACTIVE:
            return _keep(log, ReasonKind.ACTIVE, "active: checkpoints append to it")
        case Standing.LAST:
            return _keep(log, ReasonKind.LAST, "last: its id would be given out again")
        case Standing.REMOVED if log.held_since is not None:
            return _keep(log, ReasonKind.HELD, f"held by an audit since {_moment(log.held_since, now)}")
        case Standing.REMOVED:
            return _keep(log, ReasonKind.UNLINKED, "removed: the next opening unlinks it")
    return None


def _keep_for_problem(log: PolicyFacts) -> LogVerdict | None:
    problem = log.problem
    match problem:
        case None:
            return None
        case Problem(kind=ProblemKind.DAMAGED):
            return _keep(log, ReasonKind.DAMAGED, f"damaged, {problem.finding} at {problem.offset}")
    words = f"unaccounted record at {problem.offset}, {problem.finding}"
    return _keep(log, ReasonKind.UNACCOUNTED, words)


def _keep(log: PolicyFacts, kind: ReasonKind, reason: str) -> LogVerdict:
    return LogVerdict(log, LogAction.KEEP, kind, reason)


def _waiting(until: datetime | None, now: datetime) -> str:
    return "waits for the next compaction" if until is None else f"waits until {_moment(until, now)}"


def _moment(when: datetime, now: datetime) -> str:
    return f"{when:%H:%M}" if when.date() == now.date() else f"{when:%Y-%m-%d %H:%M}"


def percent(share: float) -> str:
    """Return a share as text, rounded down, so that it never seems to reach a threshold that it is below."""
    if 0 < share < 0.01:
        return "under 1 %"
    # Rounded before, because 0.29 * 100 is 28.999999999999996.
    return f"{int(round(share * 100, 6))} %"
