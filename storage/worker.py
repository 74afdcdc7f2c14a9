"""Background work: steps, and the thread that repeats them.

A step does a little and says when to go on. What a step does is tested by calling it; the thread only
repeats, so there is nothing in it that a test would have to wait for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

Pause = float | None
"""Until the next step: seconds, or `None` until woken. Waking ends any pause."""

AT_ONCE = 0.0


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
        except BaseException as error:
            self._on_failure(error)
