"""Learning ahead of the listing: digest types and passwords, from entries that are listed later.

The type of a ledger's digest follows from many entries together, so a damaged entry must not be judged by
what was seen before it alone. Looking ahead a bounded stretch gives the first rows at once, whatever the size
of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STRETCH = 64 << 20


class Lookahead:
    """Walks through a file's records at least half a stretch before the listing."""

    def __init__(
        self,
        bodies: Callable[[int], Iterator[tuple[int, memoryview]]],
        learn: Callable[[int, memoryview], None],
    ) -> None:
        self._bodies = bodies
        self._learn = learn
        self._walk: Iterator[tuple[int, memoryview]] = iter(())
        self._seen_to = 0

    def restart(self, offset: int) -> None:
        """From a record's place on, behind damage or behind what is skipped."""
        if offset >= self._seen_to:
            self._walk = self._bodies(offset)
            self._seen_to = offset

    def reach(self, offset: int) -> None:
        """Called before the record at `offset` is judged."""
        if self._seen_to - offset >= STRETCH // 2:
            return
        # Far at a time, not record by record: neighbours prove a digest's width only when seen in a row.
        for seen, body in self._walk:
            self._learn(seen, body)
            self._seen_to = seen
            if seen - offset >= STRETCH:
                return
