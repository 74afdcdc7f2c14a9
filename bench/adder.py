"""What every contender that adds has in common: `prepare`, `add`, `finish` and `close`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import timing
from spending import written
from timing import Limit
from work import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from result import Figures
    from timing import Timed


class Adder:
    """Adds what its work says, each call durable when it returns."""

    def __init__(self, **work: int) -> None:
        self.work = Work(**work)
        self.added = 0
        """Bytes of payload, all rounds together."""
        self._is_closed = False
        self._writers: list[Callable[[], object]] = []

    def prepare(self, size: int) -> None:
        """Before each turn, not timed: there is room for so many bytes."""

    def writer(self, number: int) -> Callable[[], object]:
        """One add, or one batch, of that writer with each call."""
        raise NotImplementedError

    def shut(self) -> None:
        """Closes what is open, in order."""
        raise NotImplementedError

    def add(self, seconds: float, calls: int) -> Figures:
        """Adds for so long, with so many calls at most, of all writers together."""
        timed = self.run(Limit(seconds, -(-calls // self.work.writers)))
        figures = timed.figures(self.work.batch)
        self.added += len(timed.latencies) * self.work.batch * self.work.size
        return {**figures, "p999_by_p50": figures["p999"] / figures["p50"]}

    def run(self, limit: Limit) -> Timed:
        self._writers = self._writers or [self.writer(number) for number in range(self.work.writers)]
        if self.work.writers == 1:
            return timing.alone(self._writers[0], limit)
        return timing.together(self._writers, limit)

    def finish(self) -> Figures:
        """Closes in order; what was written from the empty directory on, for each byte of payload."""
        self.close()
        whole = written()
        return {"written_by_added": whole / self.added} if whole else {}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.shut()
