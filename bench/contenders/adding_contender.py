"""The base of all contenders that add: `prepare`, `add`, `finish` and `close`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contest import timing
from contest.resource_usage import written
from contest.timing import Limit
from contest.workload import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from contest.result import Figures
    from contest.timing import Timed


class AddingContender:
    """Adds entries according to its `Work`. Each call is durable when it returns."""

    def __init__(self, **work: int) -> None:
        self.work = Work(**work)
        self.added = 0
        """Bytes of payload in all rounds together."""
        self._is_closed = False
        self._writers: list[Callable[[], object]] = []

    def prepare(self, size: int) -> None:
        """Make room for `size` bytes. Called before each turn, and not timed."""

    def writer(self, number: int) -> Callable[[], object]:
        """Return a function that adds one entry or one batch of this writer."""
        raise NotImplementedError

    def shut(self) -> None:
        """Close the store."""
        raise NotImplementedError

    def add(self, seconds: float, calls: int) -> Figures:
        """Add for `seconds`, with at most `calls` calls of all writers together."""
        timed = self.run(Limit(seconds, -(-calls // self.work.writers)))
        figures = timed.figures(self.work.batch)
        self.added += len(timed.latencies) * self.work.batch * self.work.size
        return {**figures, "p999_by_p50": figures["p999"] / figures["p50"]}

    def run(self, limit: Limit) -> Timed:
        self._writers = self._writers or [self.writer(number) for number in range(self.work.writers)]
        if self.work.writers == 1:
            return timing.in_this_thread(self._writers[0], limit)
        return timing.in_threads(self._writers, limit)

    def finish(self) -> Figures:
        """Close the store.

        Return the bytes written for each byte of payload, since the directory was empty.
        """
        self.close()
        whole = written()
        return {"written_by_added": whole / self.added} if whole else {}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.shut()
