"""An event loop in a thread of its own, for objects that threads use.

Any thread may use it, and several at once. A call that a signal interrupts goes on in the other thread. A
fork has a copy of the loop and not the thread, so that a call there would wait for ever: it raises
`ForkedClient`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from storage.cluster.errors import ForkedClient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

_T = TypeVar("_T")


class LoopThread:
    """Runs coroutines on an event loop in another thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="ledgerstore-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine, and return its result."""
        if os.getpid() != self._process:
            work.close()
            raise ForkedClient
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function, and do not wait for it."""
        if os.getpid() != self._process:
            raise ForkedClient
        self.loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        if os.getpid() != self._process:
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def pass_on(result: Future[_T], added: asyncio.Future[_T]) -> None:
    """Give the outcome of a call to the thread that waits for it."""
    if added.cancelled() or not result.set_running_or_notify_cancel():
        return
    error = added.exception()
    if error is None:
        result.set_result(added.result())
    else:
        result.set_exception(error)


def shown_as(face: object, inner: object) -> str:
    """Return the representation of the object for coroutines, with the name of the one for threads."""
    return repr(inner).replace(type(inner).__name__, type(face).__name__, 1)
