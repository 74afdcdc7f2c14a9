"""Who leads, who waits, who is told: many callers share one write and one sync.

A caller puts what it has into the open turn. If nobody leads, it leads: it takes the turn, does the work for
everybody in it, and opens the gate. Meanwhile the next turn fills, and one of those who wait in it leads
next. No caller hands its work to another thread, which would cost more than a write.

The next turn begins when the last of those who were in this one has passed the gate. They pass it one by one,
and who has passed adds again before the next one is awake: so all of them share the next turn too, where
else the first to come back would go alone and the others after it, with twice as many syncs (docs/adr/0024).

    led:  take the turn → work → over ┬ nobody waits ──────────────────────────────┐
                                      └ gate open → one passes → … → the last one ─┴→ hand over

Where that takes long, `storage.patience` ends it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from storage.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Callable

Load = TypeVar("Load")


class Turn(Generic[Load]):
    """What is done at once, and everybody who waits for it."""

    __slots__ = (
        "error",
        "gate",
        "is_begun",
        "is_left",
        "is_over",
        "leader",
        "load",
        "needs_leader",
        "passed_at",
        "waiting",
    )

    def __init__(self, load: Load) -> None:
        self.load = load
        self.error: BaseException | None = None
        self.is_begun = False
        self.is_over = False
        self.passed_at = 0.0
        """When somebody has last passed the gate, or it was opened."""
        self.leader: int | None = None
        """The thread that has claimed it."""
        self.needs_leader = False
        self.waiting: set[int] = set()
        """The threads that stand before the gate. By name: who is interrupted may take itself out twice."""
        self.is_left = False
        """Whether the lead was handed over to the next turn."""
        self.gate = threading.Lock()
        self.gate.acquire()

    def let_one_through(self) -> None:
        # An interrupted caller can have let one through before: a gate that is open is open.
        try:
            self.gate.release()
        except RuntimeError:
            return


def _nothing(_load: object, _error: BaseException | None) -> None:
    """Nobody else has to be told."""


class Turnstile(Generic[Load]):
    """One turn open, at most one under way.

    `answer` is told how a turn has ended, when nobody waits for it any more; `interrupted` of a leader's
    Ctrl-C, which may have come before the work was begun, when nobody else leads yet.

    `lock` guards the open turn's load, and whatever else a caller decides while it puts something in.
    """

    def __init__(
        self,
        new_load: Callable[[], Load],
        work: Callable[[Load], None],
        answer: Callable[[Load, BaseException | None], None] = _nothing,
        interrupted: Callable[[Load, BaseException], None] = _nothing,
    ) -> None:
        self._new_load = new_load
        self._work = work
        self._answer = answer
        self._interrupted = interrupted
        self.lock = threading.Lock()
        self.open = Turn(new_load())
        self._patience = Patience()
        self.is_led = False
        """Whether somebody works. Needs the lock."""
        self._led: Turn[Load] | None = None
        """The turn that was taken last."""
        self.alone: int | None = None
        """The thread that works for itself only, in the place of a leader: set by itself, while nobody leads,
        together with `is_led`, and with no call in between. It must `end_alone`. Needs the lock."""

    def begin(self) -> Turn[Load] | None:
        """Takes the open turn, if that is free, for who does not wait in it and will `end` it."""
        with self.lock:
            turn = self.open
            return turn if self._take(turn) else None

    def _take(self, turn: Turn[Load]) -> bool:
        """Whether the caller leads the turn from now on. Needs the lock."""
        if turn is not self.open or (self.is_led and not turn.needs_leader):
            return False
        following, leader = Turn(self._new_load()), threading.get_ident()
        turn.waiting.discard(leader)
        # No call in between, so that no Ctrl-C comes in between either.
        self.open, self.is_led, self._led, turn.leader = following, True, turn, leader
        return True

    def end(self, turn: Turn[Load], error: BaseException | None = None) -> None:
        """Lets everybody in the turn go, and then one of those in the next one lead it."""
        if error is not None and not isinstance(error, Exception):
            self._interrupted(turn.load, error)
        with self.lock:
            # Once, however often an interrupted leader comes back: by then another may be leading.
            if not turn.is_over:
                turn.passed_at = self._patience.turn_over()
                turn.error = error
                turn.is_over = True
        self._pass(turn)
        self._answer(turn.load, turn.error)

    def _pass(self, turn: Turn[Load]) -> None:
        """The caller leaves a turn that is over. Behind the last, one of those in the next turn leads it."""
        now = self._patience.now()
        is_slow, turn.passed_at = self._patience.has_ended(now - turn.passed_at), now
        turn.waiting.discard(threading.get_ident())
        if turn.waiting and not is_slow:
            turn.let_one_through()
            return
        with self.lock:
            following = self.open
            has_more = bool(following.waiting)
            if not turn.is_left:
                # Once, and with no call in between: behind it another may be leading.
                turn.is_left = True
                following.needs_leader = self.is_led = has_more
        turn.let_one_through()
        if following.needs_leader:
            following.let_one_through()

    def end_alone(self) -> None:
        """One of those who have come meanwhile leads them. May be called again, if it was interrupted."""
        with self.lock:
            following = self.open
            has_more = bool(following.waiting)
            if self.alone == threading.get_ident():
                following.needs_leader = self.is_led = has_more
                self.alone = None
        if following.needs_leader:
            following.let_one_through()

    def go_through(self, turn: Turn[Load]) -> None:
        """Returns when the turn is over, having led it if it fell to the caller. Not under the lock."""
        try:
            if self._claim(turn):
                self._lead(turn)
            else:
                self._wait(turn)
        except BaseException:
            try:
                self._leave(turn)
            except BaseException:
                self._leave(turn)  # once more a Ctrl-C: nobody goes on before all have left
                raise
            raise

    def _claim(self, turn: Turn[Load]) -> bool:
        """Whether the caller leads the turn from now on; else it is one of those who wait for it."""
        with self.lock:
            if self._take(turn):
                return True
            if not turn.is_over:
                turn.waiting.add(threading.get_ident())
            led = self._led
        if led is not None and led is not turn:
            self._stand_no_longer_before(led)
        return False

    def _stand_no_longer_before(self, led: Turn[Load]) -> None:
        """A signal's handler has come here while its thread waits for that turn: it cannot pass meanwhile."""
        if threading.get_ident() in led.waiting:
            led.waiting.discard(threading.get_ident())
            if led.is_over:
                self._pass(led)

    def _wait(self, turn: Turn[Load]) -> None:
        while not turn.is_over:
            turn.gate.acquire()
            # A gate that opens before the turn is over lets its leader through; who comes too late waits on.
            if turn.leader is None and self._claim(turn):
                self._lead(turn)
                return
        self._pass(turn)

    def _lead(self, turn: Turn[Load]) -> None:
        error: BaseException | None = None
        try:
            turn.is_begun = True
            self._work(turn.load)
        except BaseException as raised:
            error = raised
        self.end(turn, error)
        if error is not None and not isinstance(error, Exception):
            raise error  # a Ctrl-C is for the caller, not for those it worked for

    def _leave(self, turn: Turn[Load]) -> None:
        """A caller was interrupted: if it leads the turn, or is to lead it, others depend on it."""
        if turn.leader == threading.get_ident():
            self._finish(turn)
            return
        with self.lock:
            turn.waiting.discard(threading.get_ident())
            is_alone = turn.needs_leader and turn is self.open and not turn.waiting
            leads = is_alone and self._take(turn)
        if leads:
            self._lead(turn)
        elif turn.is_over:
            self._pass(turn)
        else:
            turn.let_one_through()

    def _finish(self, turn: Turn[Load]) -> None:
        """Does what its interrupted leader has left undone; work is never begun twice."""
        if turn.is_begun:
            self.end(turn, KeyboardInterrupt())
        else:
            self._lead(turn)

    def lead_if_free(self) -> bool:
        """Does the open turn, unless another is under way; whether it did. Waits for nobody."""
        turn = self.open
        try:
            with self.lock:
                if not self._take(turn):
                    return False
            self._lead(turn)
        except BaseException:
            # Nobody else would do it: whoever is in the turn was not counted in by this caller.
            if turn.leader == threading.get_ident():
                try:
                    self._finish(turn)
                except BaseException:
                    self._finish(turn)  # once more a Ctrl-C
                    raise
            raise
        return True

    def flush(self) -> None:
        """Returns when everything that was put in before is done."""
        self.go_through(self.open)


class Signal:
    """Something has changed: whoever waits for it looks again. Costs nothing while nobody waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = 0
        self._listeners: tuple[Callable[[], None], ...] = ()

    def wait_for(self, is_there: Callable[[], bool], timeout: float | None = None) -> bool:
        """Whether it came to be so in time."""
        with self._changed:
            # Counted before it looks: whoever changes something after that sees that somebody waits.
            self._waiting += 1
            try:
                return self._changed.wait_for(is_there, timeout)
            finally:
                self._waiting -= 1

    def listen(self, hear: Callable[[], None]) -> None:
        """Has it called after each change, by whoever has made it; it must neither wait nor raise."""
        with self._changed:
            self._listeners = (*self._listeners, hear)

    def ignore(self, hear: Callable[[], None]) -> None:
        """Has it called no more."""
        with self._changed:
            self._listeners = tuple(one for one in self._listeners if one != hear)

    def notify(self) -> None:
        """To be called after the change."""
        for hear in self._listeners:
            hear()
        if self._waiting:
            with self._changed:
                self._changed.notify_all()


who_asks = threading.get_ident
"""The thread that calls, as a number."""


def new_lock() -> threading.Lock:
    """A lock for one thing that two pieces of work take in turns."""
    return threading.Lock()
