"""Background work: steps, and the thread that repeats them.

A step does a little and says when to go on. What a step does is tested by calling it; the thread only
repeats, so there is nothing in it that a test would have to wait for.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

Pause = float | None
"""Until the next step: seconds, or `None` until woken. Waking ends any pause."""

AT_ONCE = 0.0

_BREATH_S = 1e-5
_BREATHLESS_S = 2e-4


def breathe() -> None:
    """Lets whoever waits for the interpreter have it: every fraction of a millisecond of background work.

    A call that only lets go of it does not do: it would have it back before the other one is awake, and that
    would then wait for `sys.getswitchinterval()`, which is forty times as long as a sync.
    """
    sleep(_BREATH_S)


class Worker(Protocol):
    """Whoever repeats the steps of one piece of background work."""

    def wake(self) -> None:
        """There is something to do."""

    def stop(self) -> None:
        """Returns when no step runs and none will."""


class Hire(Protocol):
    """Finds a worker for a piece of background work; `on_failure` hears of a step that raised."""

    def __call__(
        self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> Worker: ...


class ThreadWorker:
    """A worker with a thread of its own, which is started when it is first woken."""

    def __init__(
        self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> None:
        self._step = step
        self._on_failure = on_failure
        self._woken = threading.Event()
        self._stopped = False
        self._start = threading.Lock()
        # A daemon: a program that forgets to close a store must still end, and no crash can hurt the store.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def wake(self) -> None:
        self._woken.set()
        if not self._thread.is_alive():
            self._start_once()

    def _start_once(self) -> None:
        with self._start:
            if self._thread.ident is None and not self._stopped:
                self._thread.start()

    def stop(self) -> None:
        with self._start:
            self._stopped = True
        self._woken.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        breathed = perf_counter()
        try:
            while True:
                # Cleared before the step: what wakes it while it works is not forgotten.
                self._woken.clear()
                # Looked at behind the clear: or a stop that has just woken it would be cleared away with its
                # waking, and whoever stops it would wait for ever.
                if self._stopped:
                    return
                pause = self._step()
                if pause != AT_ONCE:
                    self._woken.wait(pause)
                elif perf_counter() - breathed > _BREATHLESS_S:
                    breathe()
                    breathed = perf_counter()
        except BaseException as error:
            self._on_failure(error)


class Threads:
    """Threads for calls that may wait: begun when they are needed, and kept for the next call.

    Daemons, as a worker's. A call must not raise. Any thread may hand one over.
    """

    def __init__(self, name: str, count_max: int) -> None:
        self._name = name
        self._count_max = count_max
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._idle = 0
        """Threads that no call is meant for, of those that are waiting for one."""
        self._is_stopped = False

    def do(self, call: Callable[[], None]) -> bool:
        """Whether the call will be made: it will not be behind a `stop`."""
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
        """Takes no more calls; those that were handed over are still made. Waits for none of them."""
        with self._lock:
            self._is_stopped = True
            for _ in range(self._count):
                self._calls.put(None)
            self._count = 0

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # or it would be kept, with all that it holds, until the next one
            with self._lock:
                self._idle += 1


def begin_thread(name: str, call: Callable[[], None]) -> bool:
    """Makes one call in a thread of its own, a daemon; as `Threads.do`."""
    threading.Thread(target=call, name=name, daemon=True).start()
    return True
