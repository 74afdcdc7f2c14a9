"""The queue of a commit: many callers share one write and one sync.

    open     the group that work joins now
    leader   the caller that commits a group for all callers in it
    follower a caller that waits until the group of its work is over, or until the lead falls to it
    over     the group is durable, or has failed

A caller puts its work into the open group. If no group is being committed, it takes the open group and leads
it; meanwhile the next group fills. No caller hands its work to another thread, which would cost more than a
write.

A group that is over lets its followers go one after the other. When the last one has gone, the lead of the
next group is handed to one of its callers. A caller that has gone adds again before the next one is awake, so
that all of them share the next group too; otherwise the first to come back would commit alone and the others
after it, with twice as many syncs (docs/adr/0024).

    leader: take → commit → over ┬ no follower ──────────────────────────────┐
                                 └ one follower goes → … → the last one goes ─┴→ hand over

Waiting for the last one pays while each is awake within some ten microseconds. Beside a thread that computes
each waits for the interpreter for as long as `sys.getswitchinterval()`. So after a slow one some groups do
not wait for their followers, and if the next attempt is slow as well, twice as many.

Everything is decided by the state of the groups. A gate only wakes a caller, which then looks at the state;
so an additional wake-up, or a caller whose part another thread plays, does no harm.
"""

from __future__ import annotations

import threading
from time import perf_counter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

Gate = threading.Lock
"""Where callers of one group wait."""

this_thread = threading.get_ident
"""Return the number that names the calling thread."""

SLOW_S = 0.002
"""A follower is slow that takes longer to go after the one before it; usually it is ten microseconds."""

_HURRY_MIN = 8
_HURRY_MAX = 1024
_NONE: frozenset[int] = frozenset()


class Queued(Protocol):
    """The fields of a group that the queue needs; `PendingGroup` says which thread writes them."""

    is_over: bool
    leader: object
    may_lead: bool
    is_left: bool
    passed_at: float
    waiting: AbstractSet[int]
    gate: threading.Lock | None


G = TypeVar("G", bound=Queued)


class CommitQueue(Generic[G]):
    """One open group, and at most one that is being committed. Threads are named by `get_ident`."""

    def __init__(self, new_group: Callable[[], G], clock: Callable[[], float] = perf_counter) -> None:
        self._new_group = new_group
        self._clock = clock
        self.lock = threading.Lock()
        # field                       written by             under     read by
        self.open = new_group()  #    the leader of the next  `lock`   callers under it, figures without
        self.is_led = False  #        leaders, last to go     `lock`   callers, also without it
        self.leading: G | None = None  # leaders              `lock`   callers
        self.leader = 0  #            leaders                 `lock`   its own thread, without it
        self.admitting = 0  #         holder of the lock      `lock`   its own thread, without it
        self._hurry = 0  #            any caller              -        any caller: off by one does no harm
        self._next_hurry = _HURRY_MIN  # any caller           -        any caller
        # leader     the thread inside of a commit; 0 if none is
        # admitting  the thread that has taken the lock last to let work join
        # _hurry     groups that do not wait for their followers

    def take(self, group: G, caller: int, leader: object) -> bool:
        """Have the caller lead the group, if the lead is free or was handed to that group. Needs the lock.

        `leader` names the call that leads, also if another thread plays the part of the caller.
        """
        if group is not self.open or (self.is_led and not group.may_lead):
            return False
        following = self._new_group()
        if group.waiting:
            group.waiting -= {caller}
        # No call in between, so that no signal handler runs in between either.
        self.open, self.is_led, self.leading = following, True, group
        self.leader, group.leader = caller, leader
        return True

    def follow(self, group: G, caller: int, leader: object) -> bool:
        """Wait until the group is over, and return False; or return True when the caller is to lead it."""
        with self.lock:
            if self.take(group, caller, leader):
                return True
            if not group.is_over:
                if group.gate is None:
                    group.gate, group.waiting = _closed_gate(), set()
                group.waiting |= {caller}
            earlier, gate = self.leading, group.gate
        if earlier is not None and earlier is not group and caller in earlier.waiting:
            # A signal handler adds while its thread follows that group: the thread cannot go meanwhile.
            earlier.waiting -= {caller}
            if earlier.is_over:
                self.go(earlier, caller)
        while not group.is_over:
            assert gate is not None, "the group was not over"
            gate.acquire()
            if group.may_lead:
                with self.lock:
                    if self.take(group, caller, leader):
                        return True
        self.go(group, caller)
        return False

    def end(self, group: G) -> None:
        """Declare the group over, let its followers go, or hand over the lead. It can be repeated."""
        with self.lock:
            group.is_over = True
            if self.leading is group:
                self.leader = 0
            following = self.open
            # Once for each group, and without a call in between: afterwards another thread may be leading.
            if not group.waiting and not group.is_left:
                following.may_lead = self.is_led = following.waiting != _NONE
                group.is_left = True
        if group.waiting:
            if self._hurry:
                self._hurry -= 1
            else:
                self._next_hurry = max(_HURRY_MIN, self._next_hurry // 2)
            group.passed_at = self._clock()
            self.go(group, 0)
            return
        if group.gate is not None:  # nearly never: a call less for each add without concurrent ones
            # A thread may stand there that is no longer waited for, because its signal handler has added.
            _open(group.gate)
        if following.may_lead:
            _open(following.gate)

    def go(self, group: G, caller: int) -> None:
        """Let a caller go from a group that is over. After the last one the lead is handed over."""
        now = self._clock()
        is_slow, group.passed_at = self._is_slow(now - group.passed_at), now
        group.waiting -= {caller}
        if group.waiting and not is_slow:
            _open(group.gate)
            return
        with self.lock:
            following = self.open
            if not group.is_left:
                following.may_lead = self.is_led = following.waiting != _NONE
                group.is_left = True
        _open(group.gate)
        if following.may_lead:
            _open(following.gate)

    def _is_slow(self, seconds: float) -> bool:
        """Return whether the lead is handed over although followers have not gone."""
        if self._hurry:
            return True
        if seconds <= SLOW_S:
            return False
        self._hurry, self._next_hurry = self._next_hurry, min(4 * self._next_hurry, _HURRY_MAX)
        return True


def _closed_gate() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate


def _open(gate: threading.Lock | None) -> None:
    """Wake one caller at the gate, now or as soon as one comes; a gate that is open stays open."""
    if gate is not None:
        try:
            gate.release()
        except RuntimeError:
            return


def new_lock() -> threading.Lock:
    """Return a lock for something that two threads must not do at once."""
    return threading.Lock()
