"""The thread that repeats steps."""

from __future__ import annotations

import threading
import weakref
from itertools import pairwise
from typing import TYPE_CHECKING

from store_internals import idle_threads

from storage.runtime import worker as worker_module
from storage.runtime.worker import AT_ONCE, Pause, ThreadPool, ThreadWorker, begin_thread, yield_gil

if TYPE_CHECKING:
    import pytest


class Steps:
    """Steps that return given pauses, and can be waited for."""

    def __init__(self, *pauses: Pause) -> None:
        self._pauses = list(pauses)
        self.taken = threading.Semaphore(0)
        self.failures: list[BaseException] = []
        self.failed = threading.Event()
        self.worker = ThreadWorker("steps", self.step, self.fail)

    def step(self) -> Pause:
        self.taken.release()
        if not self._pauses:
            raise OSError("nothing left to do")
        return self._pauses.pop(0)

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)
        self.failed.set()

    def wait_for(self, count: int) -> bool:
        return all(self.taken.acquire(timeout=10) for _ in range(count))


def test_a_worker_does_nothing_before_it_is_woken() -> None:
    steps = Steps(None)
    steps.worker.stop()
    assert not steps.taken.acquire(blocking=False)


def test_a_step_that_returns_at_once_is_repeated_at_once() -> None:
    steps = Steps(AT_ONCE, AT_ONCE, None)
    steps.worker.wake()
    assert steps.wait_for(3)
    steps.worker.stop()
    assert not steps.taken.acquire(blocking=False)
    assert steps.failures == []


def test_a_pause_ends_after_its_time() -> None:
    steps = Steps(0.001, None)
    steps.worker.wake()
    assert steps.wait_for(2)
    steps.worker.stop()


def test_waking_ends_any_pause() -> None:
    steps = Steps(3600.0, None, None)
    steps.worker.wake()
    assert steps.wait_for(1)
    steps.worker.wake()
    assert steps.wait_for(1)
    steps.worker.wake()
    assert steps.wait_for(1)
    steps.worker.stop()


def test_a_step_that_raises_is_reported_and_is_the_last() -> None:
    steps = Steps()
    steps.worker.wake()
    assert steps.failed.wait(10)
    assert [type(error) for error in steps.failures] == [OSError]
    steps.worker.wake()
    steps.worker.stop()
    assert steps.wait_for(1)
    assert not steps.taken.acquire(blocking=False)


def test_after_stop_no_step_runs_and_none_will() -> None:
    steps = Steps(AT_ONCE, 3600.0, AT_ONCE)
    steps.worker.wake()
    assert steps.wait_for(2)
    steps.worker.stop()
    steps.worker.wake()
    assert not steps.taken.acquire(blocking=False)


def test_a_worker_may_stop_itself() -> None:
    stopped = threading.Event()

    def step() -> Pause:
        worker.stop()
        stopped.set()
        return None

    worker = ThreadWorker("stops itself", step, lambda _: None)
    worker.wake()
    assert stopped.wait(10)
    worker.stop()


class Busy:
    """A call that ends when the test lets it, and can be waited for."""

    def __init__(self) -> None:
        self.may_end, self.begun, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> None:
        self.thread = threading.current_thread()
        self.begun.set()
        assert self.may_end.wait(10)
        self.ended.set()


def test_as_many_waiting_calls_run_at_once_as_there_may_be_threads() -> None:
    threads, calls = ThreadPool("test", 2), [Busy() for _ in range(3)]
    assert all(threads.do(call) for call in calls)
    assert calls[0].begun.wait(10)
    assert calls[1].begun.wait(10)
    assert not calls[2].begun.is_set()
    calls[0].may_end.set()
    assert calls[2].begun.wait(10)
    assert calls[2].thread is calls[0].thread
    for call in calls:
        call.may_end.set()
    threads.stop()
    assert all(call.ended.wait(10) for call in calls)


def test_an_idle_thread_takes_the_next_call() -> None:
    threads, made = ThreadPool("test", 5), set()
    for _ in range(20):
        call = Busy()
        call.may_end.set()
        assert threads.do(call)
        assert call.ended.wait(10)
        assert call.thread is not None
        made.add(call.thread)
        while idle_threads(threads) == 0:
            assert call.thread.is_alive(), "it waits for the next call"
    threads.stop()
    assert len(made) == 1


def test_after_a_stop_only_submitted_calls_are_made() -> None:
    threads, first, second = ThreadPool("test", 1), Busy(), Busy()
    assert threads.do(first)
    assert threads.do(second)
    threads.stop()
    threads.stop()
    assert not threads.do(Busy())
    first.may_end.set()
    second.may_end.set()
    assert second.ended.wait(10)
    assert second.thread is not None
    second.thread.join(10)
    assert not second.thread.is_alive()


def test_a_finished_call_is_not_kept_alive() -> None:
    class Held:
        """An object that allows weak references."""

        def use(self) -> None:
            """Return a call that keeps the object."""

    threads, held, done = ThreadPool("test", 1), Held(), threading.Event()
    gone = weakref.ref(held, lambda _: done.set())
    assert threads.do(held.use)
    del held
    assert done.wait(10)
    assert gone() is None
    threads.stop()


def test_begin_thread_makes_one_call_in_a_thread_of_its_own() -> None:
    call = Busy()
    assert begin_thread("alone", call)
    assert call.begun.wait(10)
    assert call.thread is not None
    assert (call.thread.name, call.thread.daemon) == ("alone", True)
    call.may_end.set()
    call.thread.join(10)
    assert not call.thread.is_alive()


def test_background_work_lets_other_threads_run_once_in_each_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept_at = [1e6], list[float]()
    monkeypatch.setattr(worker_module, "perf_counter", lambda: now[0])
    monkeypatch.setattr(worker_module, "sleep", lambda _: slept_at.append(now[0]))
    began = now[0]
    for _ in range(1000):  # a millisecond of small pieces
        yield_gil()
        now[0] += 1e-6
    pauses = [round((one - began) * 1e6) for one in slept_at]
    assert pauses[0] == 0
    assert all(100 <= later - one <= 200 for one, later in pairwise(pauses))
    assert 5 <= len(pauses) <= 10
