"""How long the next turn waits for those of the last one to pass: see `storage.turnstile`.

It pays while each of them is awake within some ten microseconds. Beside a thread that computes, each waits
for the interpreter for as long as `sys.getswitchinterval()`, and whoever waits for all of them waits in vain.
So after a slow passing some turns wait for nobody; is the next attempt slow as well, twice as many.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLOW_S = 0.002
"""Who takes longer to follow the one before is slow; on a machine at rest it is some ten microseconds."""

_HURRY_MIN = 8
_HURRY_MAX = 1024


class Patience:
    """Whether a turn waits for those before it.

    Any thread may ask, with or without the turnstile's lock: a count that is off by one ends the waiting a
    turn earlier or later, and nothing depends on that.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.now = clock
        self._hurry = 0
        """Turns that are still to wait for nobody."""
        self._next_hurry = _HURRY_MIN

    def turn_over(self) -> float:
        """A turn is over, and those who were in it begin to pass; when that was."""
        if self._hurry:
            self._hurry -= 1
        else:
            self._next_hurry = max(_HURRY_MIN, self._next_hurry // 2)
        return self.now()

    def has_ended(self, seconds: float) -> bool:
        """Whether nobody is waited for any longer, when the next one has taken that long to pass."""
        if self._hurry:
            return True
        if seconds <= SLOW_S:
            return False
        self._hurry, self._next_hurry = self._next_hurry, min(4 * self._next_hurry, _HURRY_MAX)
        return True
