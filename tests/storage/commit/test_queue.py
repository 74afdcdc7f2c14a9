"""The queue of a commit: which caller leads, which ones follow, and when the lead is handed over."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

import pytest

from storage.commit.queue import SLOW_S, CommitQueue
from storage.runtime.worker import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

NEVER = -1
"""A caller that never goes."""


class Numbers:
    """A group of numbers."""

    is_over = False
    leader: object = None
    may_lead = False
    is_left = False
    passed_at = 0.0
    waiting: AbstractSet[int] = frozenset()
    gate: threading.Lock | None = None

    def __init__(self) -> None:
        self.numbers: list[int] = []


class Committing:
    """Commits groups of numbers, and can be held up in the middle of one."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.queue = CommitQueue(Numbers) if clock is None else CommitQueue(Numbers, clock)
        self.groups: list[list[int]] = []
        self.entered = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._inside = 0

    def put(self, *numbers: int) -> Numbers:
        """Put numbers into the open group, and return when it is over."""
        with self.queue.lock:
            group = self.queue.open
            group.numbers += numbers
        self.go_through(group)
        return group

    def go_through(self, group: Numbers) -> None:
        if self.queue.follow(group, threading.get_ident(), self):
            self.lead(group)
        assert group.is_over

    def lead(self, group: Numbers) -> None:
        self._inside += 1
        assert self._inside == 1, "one group at a time"
        self.entered.set()
        assert self.may_go_on.wait(10)
        self.groups.append(group.numbers)
        self._inside -= 1
        self.queue.end(group)

    def take(self) -> Numbers:
        """Take the lead of the open group for the test."""
        with self.queue.lock:
            group = self.queue.open
            assert self.queue.take(group, threading.get_ident(), self)
        return group


def patient() -> Committing:
    """One for which no follower is slow, however long a test holds it up."""
    return Committing(lambda: 0.0)


def wait_for(is_so: Callable[[], bool], *unless_done: object) -> None:
    while not is_so():
        assert not any(one.done() for one in unless_done), "it did not wait"  # type: ignore[attr-defined]


def test_a_caller_alone_leads_at_once() -> None:
    committing = Committing()
    committing.put(7)
    assert committing.groups == [[7]]


def test_callers_that_come_during_a_commit_share_the_next_group() -> None:
    committing = Committing()
    committing.may_go_on.clear()
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(committing.put, 0)
        assert committing.entered.wait(10)
        others = [pool.submit(committing.put, number) for number in range(1, 9)]
        wait_for(lambda: len(committing.queue.open.waiting) == len(others), *others)
        committing.may_go_on.set()
        for call in (first, *others):
            call.result(10)
    assert [sorted(group) for group in committing.groups] == [[0], [1, 2, 3, 4, 5, 6, 7, 8]]


@pytest.mark.parametrize("threads", [2, 16])
def test_every_number_is_committed_once_whichever_thread_leads(threads: int) -> None:
    committing = Committing()
    numbers = range(400)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(committing.put, numbers))
    assert sorted(number for group in committing.groups for number in group) == list(numbers)


def test_the_next_group_is_led_when_the_last_follower_has_gone() -> None:
    committing = patient()
    taken = committing.take()
    with ThreadPoolExecutor(3) as pool:
        followers = [pool.submit(committing.go_through, taken) for _ in range(2)]
        wait_for(lambda: len(taken.waiting) == 2, *followers)
        behind = pool.submit(committing.put, 1)
        wait_for(lambda: bool(committing.queue.open.waiting), behind)
        # As if the group had one more follower, which is slow to wake up.
        taken.waiting |= {NEVER}
        committing.queue.end(taken)
        for one in followers:
            one.result(10)
        assert (taken.waiting, committing.groups) == ({NEVER}, [])
        committing.queue.go(taken, NEVER)
        behind.result(10)
    assert committing.groups == [[1]]


def test_a_follower_that_has_gone_shares_the_next_group_with_the_others() -> None:
    committing = patient()
    taken = committing.take()

    def add_again(number: int) -> None:
        committing.go_through(taken)
        committing.put(number)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(add_again, 1)
        wait_for(lambda: bool(taken.waiting), first)
        taken.waiting |= {NEVER}
        committing.queue.end(taken)
        wait_for(lambda: bool(committing.queue.open.waiting), first)
        with committing.queue.lock:
            committing.queue.open.numbers.append(2)
        committing.queue.go(taken, NEVER)
        first.result(10)
    assert committing.groups == [[1, 2]]


def test_after_a_slow_follower_some_groups_wait_for_none() -> None:
    hours = count()
    committing = Committing(lambda: float(next(hours)))
    for number in range(9):
        taken = committing.take()
        taken.waiting = {NEVER}
        committing.queue.end(taken)
        if number == 0:
            committing.queue.go(taken, 0)  # an hour later
        committing.put(number)
    assert committing.groups == [[number] for number in range(9)]


class Clock:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Backoff:
    """Plays groups with one follower that takes so long to go."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._committing = Committing(self.clock)

    def waits(self, seconds: float) -> bool:
        """Whether the next group waits for a follower that takes that long."""
        queue = self._committing.queue
        taken = self._committing.take()
        taken.gate, taken.waiting = threading.Lock(), {NEVER, NEVER - 1}
        queue.end(taken)
        is_waited_for = not taken.is_left
        self.clock.now += seconds
        queue.go(taken, NEVER)
        is_waited_for = is_waited_for and not taken.is_left
        queue.go(taken, NEVER - 1)
        return is_waited_for


def test_followers_that_go_quickly_are_waited_for() -> None:
    backoff = Backoff()
    assert all(backoff.waits(SLOW_S / 2) for _ in range(100))


def test_after_a_slow_follower_eight_groups_wait_for_none() -> None:
    backoff = Backoff()
    assert not backoff.waits(2 * SLOW_S)
    assert [backoff.waits(0) for _ in range(9)] == [False] * 7 + [True] * 2


def test_where_all_followers_are_slow_groups_wait_ever_more_rarely() -> None:
    backoff = Backoff()
    committing = backoff._committing
    waited = 0
    for _ in range(10_000):
        taken = committing.take()
        taken.gate, taken.waiting = threading.Lock(), {NEVER, NEVER - 1}
        committing.queue.end(taken)
        waited += not taken.is_left
        backoff.clock.now += 2 * SLOW_S
        committing.queue.go(taken, NEVER)
        committing.queue.go(taken, NEVER - 1)
    assert 5 < waited < 25


def test_one_slow_follower_now_and_then_does_not_end_the_waiting() -> None:
    backoff = Backoff()
    for _ in range(20):
        backoff.waits(2 * SLOW_S)
        assert sum(backoff.waits(0) for _ in range(100)) == 93


def test_a_caller_that_comes_when_a_group_is_over_holds_up_no_later_one() -> None:
    committing = Committing()
    group = committing.put(1)
    committing.go_through(group)
    assert not group.waiting
    committing.put(2)
    assert committing.groups == [[1], [2]]


def test_a_group_is_ended_once_however_often_its_end_is_repeated() -> None:
    committing = Committing()
    taken = committing.take()
    committing.queue.end(taken)
    following = committing.take()
    committing.queue.end(taken)  # by a thread that resumes what a signal handler has interrupted
    assert committing.queue.is_led
    assert committing.queue.leader == threading.get_ident()
    committing.queue.end(following)
    committing.put(1)


@pytest.mark.parametrize("is_over_before", [False, True], ids=["during the commit", "when it is over"])
def test_a_signal_handler_that_adds_while_its_thread_follows_gets_through(is_over_before: bool) -> None:
    committing = Committing()
    taken = committing.take()

    def handle() -> None:
        if is_over_before:
            committing.queue.end(taken)
        else:
            threading.Timer(0.05, committing.queue.end, (taken,)).start()
        committing.put(5)

    taken.gate, taken.waiting = Interrupted(handle), set()  # type: ignore[assignment]
    thread = threading.Thread(target=committing.go_through, args=(taken,), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert committing.groups == [[5]]


class Interrupted:
    """A gate at which a signal handler is called before the first wait."""

    def __init__(self, handle: Callable[[], None]) -> None:
        self._handle: Callable[[], None] | None = handle
        self._gate = threading.Lock()
        self._gate.acquire()

    def acquire(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle()
        self._gate.acquire()

    def release(self) -> None:
        self._gate.release()


# ── calls that no signal handler interrupts ──────────────────────────────────────────────────────────────


def test_a_call_of_the_main_thread_is_made_in_another_one_and_answered() -> None:
    assert uninterrupted(threading.current_thread) is not threading.current_thread()
    with pytest.raises(KeyError):
        uninterrupted({}.popitem)


def test_a_call_of_another_thread_is_made_there() -> None:
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(uninterrupted, threading.get_ident).result()
        assert called == pool.submit(threading.get_ident).result()


def test_a_call_is_made_here_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr("storage.runtime.worker._thread.start_new_thread", refuse)
    assert uninterrupted(threading.current_thread) is threading.current_thread()
