"""An event loop on the world's time, for coroutines that run in a schedule.

Auto-recovery's machines are driven by coroutines: they lock, list, wait and give up. This loop runs the same
coroutines as in production. Its callbacks are events of the world, so that a schedule stays a matter of its
choices. It has no files, sockets or threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context

    from recovery.clusterlab.world import World

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

UNITS_PER_SECOND = 10.0
"""A message takes 1 to 44 units of the world's time. So a second is a round trip or two, and the pauses of
auto-recovery, which are seconds, are long enough for several calls."""

_PASSES_MAX = 10_000


class VirtualLoop(asyncio.AbstractEventLoop):
    """The parts of a loop that coroutines need: callbacks, timers, futures and tasks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ready: deque[asyncio.Handle] = deque()
        self._is_planned = False
        self._error: BaseException | None = None

    # ── what asyncio calls ────────────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self._world.now / UNITS_PER_SECOND

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_planned:
            self._is_planned = True
            self._world.after(0.0, self._run_ready)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._world.after(max(0.0, when * UNITS_PER_SECOND - self._world.now), self._fire, timer)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[_T]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note an error of a callback. Errors of tasks whose result was never read are ignored."""
        if "handle" in context and self._error is None:
            self._error = context.get("exception")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: the event of a timer that was cancelled has no effect."""

    # ── what the world calls ──────────────────────────────────────────────────────────────────────────

    def finish(self) -> None:
        """Run callbacks until there are none, without the world. For tasks that were cancelled at the end."""
        for _ in range(_PASSES_MAX):
            if not self._ready:
                return
            with suppress(Exception):
                self._run_ready()

    def _fire(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled():
            self._run([timer])

    def _run_ready(self) -> None:
        self._is_planned = False
        # Callbacks that these add are run by another event, as in another pass of a real loop.
        self._run([self._ready.popleft() for _ in range(len(self._ready))])

    def _run(self, handles: list[Any]) -> None:
        asyncio._set_running_loop(self)  # noqa: SLF001 - meant for authors of event loops
        try:
            for handle in handles:
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001 - every loop calls it
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001
        if self._error is not None:
            error, self._error = self._error, None
            raise error
