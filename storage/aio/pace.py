"""Where turns are led: on the loop while the disk is quick, in a thread while it is slow.

Handing a turn to a thread and hearing of it again costs as much as a sync of a good disk. So the loop leads
itself, until it waits too long for them on average; then a thread does, and the loop goes on meanwhile.

Only the time counts in which nothing is computed: what a turn computes keeps the interpreter from the loop
wherever it is done. How long a turn waits in a thread says little: whoever runs Python then keeps the
interpreter from it for up to a switch interval. So after a number of turns that may have been quick the loop
tries again, and if it was wrong, waits twice as long before the next time. While a disk is stuck there is no
trying.
"""

from __future__ import annotations

import sys
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

INLINE_MAX_S = 0.001
"""How long the loop may wait for a turn on average. Everything else on the loop waits as long."""

INLINE_SIZE_MAX = 1 << 20
"""Bytes that a turn on the loop may have: about as many as take that time, however quick the disk."""


def waited_s() -> float:
    """Seconds in which this thread has not computed anything, since some moment."""
    return perf_counter() - thread_time()


_SHARE = 1 / 8
"""What one turn counts in the average: a single slow one is not a slow disk."""

_ABSENCE_MIN = 8
_ABSENCE_MAX = 1024


class Pace:
    """Whether turns are quick enough to lead them on the loop."""

    def __init__(self, switch_interval_s: Callable[[], float] = sys.getswitchinterval) -> None:
        self._switch_interval_s = switch_interval_s
        self._mean_s = 0.0
        self._away = 0
        """Turns to be led elsewhere, before the loop tries again."""
        self._absence = _ABSENCE_MIN

    @property
    def is_quick(self) -> bool:
        return not self._away

    def led_on_loop(self, seconds: float) -> None:
        """Notes how long the loop has waited for a turn."""
        self._mean_s += (seconds - self._mean_s) * _SHARE
        if self._mean_s > INLINE_MAX_S:
            self._away, self._absence = self._absence, min(2 * self._absence, _ABSENCE_MAX)
            self._mean_s = INLINE_MAX_S  # when it tries again, one slow turn is enough
        elif self._mean_s < INLINE_MAX_S / 2:
            self._absence = _ABSENCE_MIN

    def led_in_thread(self, seconds: float) -> None:
        """The same of a turn that a thread has led; from that thread."""
        if self._away and seconds < INLINE_MAX_S + self._switch_interval_s():
            self._away -= 1
