"""Background work: steps, and the thread that repeats them.

A step does a part of the work and returns the pause until the next step. Tests call steps directly, so they
need not wait for a thread.
"""

from __future__ import annotations

import _thread
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

Pause = float | None
"""The time until the next step in seconds; `None` means until woken. Waking ends any pause."""

AT_ONCE = 0.0

_YIELD_S = 1e-5
_BETWEEN_YIELDS_S = 1.5e-4


class _LastYield(threading.local):
    """When the thread has let other threads run last."""

    at = 0.0


_last_yield = _LastYield()


def yield_gil() -> None:
    """Let other threads run, if this one has not for a fraction of a millisecond.

    Background work calls it between any two small pieces. An add that comes back from its sync needs the GIL,
    so it waits for the rest of such a stretch.

    Releasing the GIL for a moment is not enough, because this thread would take it back before another thread
    is awake. That thread would then wait for `sys.getswitchinterval()`, which is forty times as long as a
    sync.
    """
    if perf_counter() - _last_yield.at > _BETWEEN_YIELDS_S:
        sleep(_YIELD_S)
        _last_yield.at = perf_counter()


class Worker(Protocol):
    """Repeats the steps of one background task."""

    def wake(self) -> None:
        """Make the next step run now."""

    def stop(self) -> None:
        """Return when no step runs; none will run afterwards."""


class WorkerFactory(Protocol):
    """Creates a worker for a background task. `on_failure` is called with the error of a step that raised."""

    def __call__(
        self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> Worker: ...


class _WakeUp:
    """Wakes one thread; a wake-up that comes before the thread waits is kept.

    Not `threading.Event`: a signal handler that raises inside of `set` may leave the lock of an event taken.
    """

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def set(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:
            return  # woken already

    def clear(self) -> None:
        self._asleep.acquire(blocking=False)

    def wait(self, timeout_s: float | None) -> None:
        self._asleep.acquire(timeout=-1 if timeout_s is None else timeout_s)


class ThreadWorker:
    """A worker with a thread of its own, which starts when it is first woken."""

    def __init__(
        self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> None:
        self._step = step
        self._on_failure = on_failure
        self._woken: threading.Event | _WakeUp = _WakeUp()
        self._stopped = False
        self._is_started = False
        self._start = threading.Lock()
        self._name = name
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        self._woken.set()
        if not self._is_started:
            # A start that a signal handler interrupts leaves a thread that never runs.
            uninterrupted(self._start_once)

    def _start_once(self) -> None:
        with self._start:
            if not self._is_started and not self._stopped:
                # A daemon, because a program that forgets to close a store must still end. The store survives
                # that like any crash.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
                self._is_started = True

    def stop(self) -> None:
        with self._start:
            self._stopped = True
        self._woken.set()
        thread = self._thread
        if thread is not None and thread.ident is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        try:
            while True:
                # Cleared before the step, so that a wake-up during the step is not lost.
                self._woken.clear()
                # Checked after the clear. Otherwise the wake-up of a concurrent `stop` could be cleared, and
                # `stop` would wait for ever.
                if self._stopped:
                    return
                pause = self._step()
                if pause != AT_ONCE:
                    self._woken.wait(pause)
                else:
                    yield_gil()
        except BaseException as error:
            self._on_failure(error)


class ThreadPool:
    """Threads for calls that may wait. They start when they are needed, and are kept for later calls.

    They are daemons, like a worker's. A call must not raise. Any thread may submit a call.
    """

    def __init__(self, name: str, count_max: int) -> None:
        self._name = name
        self._count_max = count_max
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._idle = 0
        """Waiting threads for which no call is queued. Read and written under the lock, like `_count`."""
        self._is_stopped = False

    def do(self, call: Callable[[], None]) -> bool:
        """Submit a call. Return whether it will be made, which is not the case after `stop`."""
        with self._lock:
            if self._is_stopped:
                return False
            if self._idle:
                self._idle -= 1
            elif self._count < self._count_max:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._count += 1
            self._calls.put(call)
            return True

    def stop(self) -> None:
        """Accept no more calls. Calls submitted before are still made; this method does not wait for them."""
        with self._lock:
            self._is_stopped = True
            for _ in range(self._count):
                self._calls.put(None)
            self._count = 0

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # otherwise the call and its arguments would stay alive until the next call
            with self._lock:
                self._idle += 1


def begin_thread(name: str, call: Callable[[], None]) -> bool:
    """Make one call in a daemon thread of its own. Return `True`, like `ThreadPool.do`."""
    threading.Thread(target=call, name=name, daemon=True).start()
    return True


def begin_in_finalizer(call: Callable[[], None]) -> None:
    """Make one call in a thread of its own, from a finalizer. Do nothing while the interpreter ends.

    The finalizing thread may hold locks that `threading` needs, so another thread starts the thread of the
    call.
    """
    if not sys.is_finalizing():
        with suppress(RuntimeError):  # the interpreter starts no more threads
            _thread.start_new_thread(begin_thread, ("ledgerstore-close", call))


# ── signal handlers ───────────────────────────────────────────────────────────────────────────────────────


def runs_signal_handlers() -> bool:
    """Return whether this thread is the one in which Python calls signal handlers."""
    return threading.get_ident() == threading.main_thread().ident


def uninterrupted(act: Callable[[], T]) -> T:
    """Make a call that no signal handler interrupts, and return its result.

    In the main thread a thread of its own makes the call. An exception that a signal handler raises meanwhile
    is raised when the call is over.
    """
    if not runs_signal_handlers():
        return act()
    call = _ThreadCall(act)
    interruption: BaseException | None = None
    while not call.is_over:
        try:
            # A handler may raise when the thread is started. A second thread finds that the call has begun.
            if not call.is_begun:
                _thread.start_new_thread(call.make, ())
            call.ended.acquire()
        except RuntimeError:
            call.make()  # the interpreter ends, and starts no thread any more
        except BaseException as error:
            interruption = interruption or error
    if interruption is not None:
        raise interruption
    if call.error is not None:
        raise call.error
    return call.results[0]


class _ThreadCall(Generic[T]):
    """A call on its way in another thread."""

    def __init__(self, act: Callable[[], T]) -> None:
        self._act = act
        self.results: list[T] = []
        self.error: BaseException | None = None
        self.ended = threading.Lock()
        self.ended.acquire()
        self.is_begun = False
        self.is_over = False
        self._may_begin = threading.Lock()

    def make(self) -> None:
        if not self._may_begin.acquire(blocking=False):
            return
        self.is_begun = True
        try:
            self.results.append(self._act())
        except BaseException as error:
            self.error = error
        self.is_over = True
        self.ended.release()
