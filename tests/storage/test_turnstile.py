"""Who leads, who waits, who is told."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

import pytest
from ctrl_c import interrupted

from storage import patience as patience_module
from storage import turnstile as turnstile_module
from storage.patience import Patience
from storage.turnstile import Signal, Turn, Turnstile

if TYPE_CHECKING:
    from collections.abc import Callable


class Work:
    """Does turns, and can be held up in the middle of one."""

    def __init__(self) -> None:
        self.turns: list[list[int]] = []
        self.entered = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.inside = 0

    def __call__(self, load: list[int]) -> None:
        self.inside += 1
        assert self.inside == 1, "one turn at a time"
        self.entered.set()
        assert self.may_go_on.wait(10)
        self.turns.append(load)
        self.inside -= 1
        if -1 in load:
            raise OSError("the disk is gone")


def put(turnstile: Turnstile[list[int]], number: int) -> BaseException | None:
    with turnstile.lock:
        turn = turnstile.open
        turn.load.append(number)
    turnstile.go_through(turn)
    assert turn.is_over
    return turn.error


def test_a_caller_alone_leads_at_once() -> None:
    work = Work()
    turnstile = Turnstile(list, work)
    assert put(turnstile, 7) is None
    assert work.turns == [[7]]


def test_whoever_comes_during_a_turn_shares_the_next_one() -> None:
    work = Work()
    turnstile = Turnstile(list, work)
    work.may_go_on.clear()
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(put, turnstile, 0)
        assert work.entered.wait(10)
        others = [pool.submit(put, turnstile, number) for number in range(1, 9)]
        while len(turnstile.open.waiting) < len(others):
            assert not any(other.done() for other in others), "nobody passes before its turn"
        work.may_go_on.set()
        assert {call.result(10) for call in (first, *others)} == {None}
    assert [sorted(turn) for turn in work.turns] == [[0], [1, 2, 3, 4, 5, 6, 7, 8]]


def test_an_error_is_told_to_everybody_in_the_turn_and_to_nobody_else() -> None:
    work = Work()
    turnstile = Turnstile(list, work)
    work.may_go_on.clear()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(put, turnstile, 0)
        assert work.entered.wait(10)
        bad = [pool.submit(put, turnstile, number) for number in (-1, 1)]
        while len(turnstile.open.waiting) < 2:
            assert not first.done()
        work.may_go_on.set()
        assert first.result(10) is None
        assert [type(call.result(10)) for call in bad] == [OSError, OSError]
    assert put(turnstile, 2) is None


@pytest.mark.parametrize("threads", [2, 16])
def test_every_load_is_done_once_whoever_leads(threads: int) -> None:
    work = Work()
    turnstile = Turnstile(list, work)
    numbers = range(400)
    with ThreadPoolExecutor(threads) as pool:
        assert set(pool.map(lambda number: put(turnstile, number), numbers)) == {None}
    assert sorted(number for turn in work.turns for number in turn) == list(numbers)


def test_a_load_without_anybody_who_waits_is_done_by_a_flush() -> None:
    work = Work()
    turnstile = Turnstile(list, work)
    with turnstile.lock:
        turnstile.open.load.append(5)
    turnstile.flush()
    assert work.turns == [[5]]


def test_a_caller_that_is_interrupted_while_it_waits_leaves_the_others_a_leader() -> None:
    work = Work()
    turnstile = Turnstile(list, work)
    taken = turnstile.begin()
    assert taken is not None
    with turnstile.lock:
        interrupted = turnstile.open
        interrupted.load.append(1)
    # As a Ctrl-C would end `go_through`: the caller stops waiting, and the turn it was in still comes.
    interrupted.gate = _Interrupting()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        turnstile.go_through(interrupted)
    turnstile.end(taken)
    assert put(turnstile, 2) is None
    assert work.turns == [[1, 2]]


def test_a_caller_that_is_interrupted_when_it_is_to_lead_still_leads() -> None:
    work = Work()
    turnstile = Turnstile(list, work)
    taken = turnstile.begin()
    assert taken is not None
    with turnstile.lock:
        turn = turnstile.open
        turn.load.append(1)
    turn.gate = _Interrupting(lambda: turnstile.end(taken))  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        turnstile.go_through(turn)
    assert work.turns == [[1]]
    assert put(turnstile, 2) is None


def patient(work: Work) -> Turnstile[list[int]]:
    """One for which no passing is slow, however long a test holds it up."""
    turnstile = Turnstile(list, work)
    turnstile._patience = Patience(lambda: 0.0)
    return turnstile


def test_the_next_turn_begins_when_the_last_of_this_one_has_passed() -> None:
    work = Work()
    turnstile = patient(work)
    taken = turnstile.begin()
    assert taken is not None
    with ThreadPoolExecutor(3) as pool:
        passing = [pool.submit(turnstile.go_through, taken) for _ in range(2)]
        while len(taken.waiting) < 2:
            assert not any(one.done() for one in passing)
        behind = pool.submit(put, turnstile, 1)
        while not turnstile.open.waiting:
            assert not behind.done()
        # As if the turn had one more, who is slow to wake up.
        taken.waiting.add(-1)
        threading.Thread(target=turnstile.end, args=(taken,)).start()
        for one in passing:
            one.result(10)
        assert taken.is_over
        assert (taken.waiting, work.turns) == ({-1}, [])
        taken.waiting.discard(-1)
        turnstile.end(taken)
        assert behind.result(10) is None
    assert work.turns == [[1]]


def test_who_has_passed_goes_with_all_the_others_again() -> None:
    work = Work()
    turnstile = patient(work)
    taken = turnstile.begin()
    assert taken is not None

    def add_again(number: int) -> None:
        turnstile.go_through(taken)
        put(turnstile, number)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(add_again, 1)
        while not taken.waiting:
            assert not first.done()
        taken.waiting.add(-1)
        turnstile.end(taken)
        while not turnstile.open.waiting:
            assert not first.done(), "it goes alone, and the one behind it has to wait for that"
        with turnstile.lock:
            turnstile.open.load.append(2)
        taken.waiting.discard(-1)
        turnstile.end(taken)
        first.result(10)
    assert work.turns == [[1, 2]]


def test_where_passing_takes_long_the_next_turn_waits_no_longer() -> None:
    work = Work()
    turnstile: Turnstile[list[int]] = Turnstile(list, work)
    turnstile._patience = Patience(lambda: next(hours))
    hours = count()
    taken = turnstile.begin()
    assert taken is not None
    taken.waiting.add(-1)
    turnstile.end(taken)
    assert put(turnstile, 1) is None
    assert work.turns == [[1]]


def test_a_ctrl_c_anywhere_on_the_way_through_leaves_the_next_caller_one() -> None:
    for number in count(1):
        done: list[int] = []
        passage: Turnstile[list[int]] = Turnstile(list, done.extend)
        turn, leader = passage.open, ThreadPoolExecutor(1)
        with leader:
            assert leader.submit(passage.begin).result(10) is turn
            turn.gate = _Ending(lambda: leader.submit(passage.end, turn).result(10))  # type: ignore[assignment] # noqa: B023 - called at once
            if not interrupted(lambda: passage.go_through(turn), number, turnstile_module, patience_module):  # noqa: B023 - the same
                break
            leader.submit(passage.end, turn).result(10)
        passage.open.load.append(1)
        thread = threading.Thread(target=passage.flush, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), f"interrupted at place {number}"
        assert done == [1], f"interrupted at place {number}"
    assert number > 5


@pytest.mark.parametrize("is_over_before", [False, True], ids=["while the turn is led", "when it is over"])
def test_a_signals_handler_that_adds_while_its_thread_waits_goes_through(is_over_before: bool) -> None:
    work = Work()
    turnstile = Turnstile(list, work)
    turn = turnstile.open
    with ThreadPoolExecutor(1) as leader:
        assert leader.submit(turnstile.begin).result(10) is turn

        def handle() -> None:
            ending = leader.submit(turnstile.end, turn)
            if is_over_before:
                ending.result(10)
            assert put(turnstile, 5) is None
            ending.result(10)

        turn.gate = _Ending(handle)  # type: ignore[assignment]
        thread = threading.Thread(target=turnstile.go_through, args=(turn,), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    assert work.turns == [[5]]


def test_two_ctrl_c_in_a_lead_without_waiting_leave_the_next_caller_a_way_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int] = []
    turnstile: Turnstile[list[int]] = Turnstile(list, done.extend)
    turnstile.open.load.append(1)
    finish, strikes = turnstile._finish, iter([True, False])

    def struck(*_: object) -> None:
        raise KeyboardInterrupt

    def struck_once(turn: Turn[list[int]]) -> None:
        if next(strikes):
            raise KeyboardInterrupt
        monkeypatch.undo()
        finish(turn)

    monkeypatch.setattr(turnstile, "_lead", struck)
    monkeypatch.setattr(turnstile, "_finish", struck_once)
    with pytest.raises(KeyboardInterrupt):
        turnstile.lead_if_free()
    assert put(turnstile, 2) is None
    assert done == [1, 2]


class _Ending:
    """A gate whose first waiting is interrupted: by a turn's end, or by a signal."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end: Callable[[], object] | None = end
        self._gate = threading.Lock()
        self._gate.acquire()

    def acquire(self) -> None:
        if self._end is not None:
            end, self._end = self._end, None
            end()
        self._gate.acquire()

    def release(self) -> None:
        self._gate.release()


class _Interrupting:
    """A gate whose waiting ends in a Ctrl-C."""

    def __init__(self, before: object = None) -> None:
        self._before = before

    def acquire(self) -> None:
        if callable(self._before):
            self._before()
        raise KeyboardInterrupt

    def release(self) -> None:
        """Nobody waits for it any more."""


def test_a_signal_reaches_who_waits_and_who_comes_late_sees_for_itself() -> None:
    signal, there = Signal(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(signal.wait_for, there.is_set, 10)
        there.set()
        signal.notify()
        assert waiting.result(10)
    assert signal.wait_for(there.is_set, 0)
    assert not signal.wait_for(lambda: False, 0)


def test_who_must_not_wait_leads_what_is_open_or_is_told_that_another_does() -> None:
    work = Work()
    turnstile = Turnstile(list, work)
    turnstile.open.load.append(1)
    assert turnstile.lead_if_free()
    assert work.turns == [[1]]
    work.may_go_on.clear()
    work.entered.clear()
    with ThreadPoolExecutor(1) as pool:
        leading = pool.submit(put, turnstile, 2)
        assert work.entered.wait(10)
        turnstile.open.load.append(3)
        assert not turnstile.lead_if_free()
        work.may_go_on.set()
        assert leading.result(10) is None
    assert work.turns == [[1], [2]]
    assert turnstile.lead_if_free()
    assert work.turns == [[1], [2], [3]]


def test_who_leads_without_waiting_lets_one_of_those_lead_who_have_come_meanwhile() -> None:
    work = Work()
    turnstile = Turnstile(list, work)
    work.may_go_on.clear()
    with ThreadPoolExecutor(2) as pool:
        leading = pool.submit(turnstile.lead_if_free)
        assert work.entered.wait(10)
        behind = pool.submit(put, turnstile, 1)
        while len(turnstile.open.waiting) < 1:
            assert not behind.done()
        work.may_go_on.set()
        assert leading.result(10)
        assert behind.result(10) is None
    assert work.turns == [[], [1]]


def test_an_error_of_a_turn_is_no_matter_of_who_led_it_without_waiting() -> None:
    told: list[BaseException | None] = []
    turnstile = Turnstile(list, Work(), lambda _, error: told.append(error))
    turnstile.open.load.append(-1)
    assert turnstile.lead_if_free()
    assert [type(error) for error in told] == [OSError]


def test_a_ctrl_c_anywhere_in_a_lead_without_waiting_leaves_the_next_caller_a_way_through() -> None:
    for number in count(1):
        done: list[int] = []
        passage: Turnstile[list[int]] = Turnstile(list, done.extend)
        passage.open.load.append(1)
        if not interrupted(passage.lead_if_free, number, turnstile_module, patience_module):
            break
        thread = threading.Thread(target=passage.flush, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), f"interrupted at place {number}"
        assert done in ([1], []), f"interrupted at place {number}"
    assert number > 5


def test_who_listens_is_called_after_each_change_until_it_listens_no_more() -> None:
    signal = Signal()
    heard: list[str] = []

    class Listener:
        def __init__(self, name: str) -> None:
            self.name = name

        def hear(self) -> None:
            heard.append(self.name)

    first, second = Listener("first"), Listener("second")
    signal.listen(first.hear)
    signal.listen(second.hear)
    signal.notify()
    signal.ignore(first.hear)
    signal.notify()
    signal.ignore(second.hear)
    signal.notify()
    assert heard == ["first", "second", "second"]
