"""Decides which thread leads the commits of a loop: the loop itself while the disk is fast, else a thread.

Handing a commit to a thread and learning of its end costs as much as a sync of a good disk. So the loop leads
commits itself until it waits too long for them on average. Then a thread leads them, and the loop goes on
meanwhile.

Only the time in which nothing is computed counts, because the computation of a commit keeps the interpreter
from the loop in whichever thread it runs. The time that a commit waits in a thread says little, because other
threads that run Python keep the interpreter from it for up to a switch interval. So after a number of commits
that may have been fast the loop tries again; if that was wrong, it waits twice as long before the next try.
While a disk hangs, it does not try.
"""

from __future__ import annotations

import sys
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

INLINE_MAX_S = 0.001
"""How long the loop may wait for a commit on average. All other work of the loop waits as long."""

INLINE_SIZE_MAX = 1 << 20
"""The most bytes of a commit that the loop leads: as many as take about that time on the fastest disk."""


def waited_s() -> float:
    """Return for how many seconds this thread has waited, and computed nothing, since some moment."""
    return perf_counter() - thread_time()


_SHARE = 1 / 8
"""The weight of one commit in the average: a single slow commit does not make a slow disk."""

_RETRY_MIN = 8
_RETRY_MAX = 1024


class InlinePolicy:
    """Decides whether commits are fast enough for the loop to lead them."""

    def __init__(self, switch_interval_s: Callable[[], float] = sys.getswitchinterval) -> None:
        self._switch_interval_s = switch_interval_s
        self._mean_s = 0.0
        self._groups_in_thread = 0
        """How many more commits a thread leads before the loop tries again."""
        self._groups_before_retry = _RETRY_MIN

    @property
    def is_quick(self) -> bool:
        """Whether the loop may lead the next commit."""
        return not self._groups_in_thread

    def led_on_loop(self, seconds: float) -> None:
        """Note how long the loop has waited for a commit that it led."""
        self._mean_s += (seconds - self._mean_s) * _SHARE
        if self._mean_s > INLINE_MAX_S:
            self._groups_in_thread = self._groups_before_retry
            self._groups_before_retry = min(2 * self._groups_before_retry, _RETRY_MAX)
            self._mean_s = INLINE_MAX_S  # so that one slow commit is enough when the loop tries again
        elif self._mean_s < INLINE_MAX_S / 2:
            self._groups_before_retry = _RETRY_MIN

    def led_in_thread(self, seconds: float) -> None:
        """Note how long a commit has waited that a thread led. Called in that thread."""
        if self._groups_in_thread and seconds < INLINE_MAX_S + self._switch_interval_s():
            self._groups_in_thread -= 1
