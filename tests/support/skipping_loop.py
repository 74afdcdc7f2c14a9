"""An event loop that does not wait: its time jumps to the next timer when nothing else can happen.

For tests of time-outs in which every peer is on the same loop. What a machine takes to compute costs no time.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

_T = TypeVar("_T")

_ARRIVAL_S = 0.001
"""So long a peer's bytes may be on their way through the loopback interface."""


class _SkippingSelector(selectors.DefaultSelector):
    """Adds up the time for which the loop would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        ready = super().select(_ARRIVAL_S)
        if not ready:
            assert timeout is not None, "nothing can happen any more"
            self.skipped_s += timeout
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """The loop. Its time begins at 0."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped_s


def run_skipping(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on such a loop."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(work)
