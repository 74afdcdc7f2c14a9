"""The thread that repeats steps."""

from __future__ import annotations

import threading

from storage.worker import AT_ONCE, Pause, ThreadWorker


class Steps:
    """Steps that say what they are told to say, and can be waited for."""

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


def test_nothing_is_done_before_it_is_woken() -> None:
    steps = Steps(None)
    steps.worker.stop()
    assert not steps.taken.acquire(blocking=False)


def test_a_step_that_asks_for_it_is_repeated_at_once() -> None:
    steps = Steps(AT_ONCE, AT_ONCE, None)
    steps.worker.wake()
    assert steps.wait_for(3)
    steps.worker.stop()
    assert not steps.taken.acquire(blocking=False)
    assert steps.failures == []


def test_a_pause_ends_when_it_is_over() -> None:
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


def test_a_step_that_raises_is_heard_of_and_is_the_last() -> None:
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
