"""Reads of consecutive entries, begun before their results are asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from storage.cluster.client.driver import settle
from storage.entry.model import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.effects import BookieAnswer, Send, Token
    from storage.cluster.client.reader import EntryRead, NotThere
    from storage.cluster.errors import ClusterError

SPECULATIVE_READ_S = 2.0
"""After this time without an answer another bookie is asked, too."""
_BYTES_AHEAD = 1 << 20
_READS_AHEAD_MIN, _READS_AHEAD_MAX = 4, 256
"""The number of reads under way: so many that they bring `_BYTES_AHEAD` if all entries are as large as the
last one, and within these limits."""


class ReadsAhead:
    """Reads entries in the order of their ids. It belongs to one caller."""

    def __init__(self, cluster: AsyncCluster, new_read: Callable[[int], EntryRead], ids: range) -> None:
        self._cluster = cluster
        self._new_read = new_read
        self._ids = iter(ids)
        """The entries that are not asked for yet."""
        self._reads: deque[EntryRead] = deque()
        """The reads whose results were not taken, in their order."""
        self._ahead = _READS_AHEAD_MIN
        self._loop = asyncio.get_running_loop()
        self._first_is_done: asyncio.Future[None] | None = None
        """Done when the first read has its result; `None` while the caller does not wait."""

    async def next(self) -> Entry | NotThere | ClusterError:
        """Return the result of the next read."""
        while len(self._reads) < self._ahead and (entry_id := next(self._ids, None)) is not None:
            read = self._new_read(entry_id)
            self._reads.append(read)
            self._perform(read, read.begin())
        first = self._reads[0]
        while first.result is None:
            await self._wait()
        self._reads.popleft()
        if isinstance(first.result, Entry):
            fitting = _BYTES_AHEAD // (len(first.result.payload) + 1)
            self._ahead = min(max(fitting, _READS_AHEAD_MIN), _READS_AHEAD_MAX)
        return first.result

    async def _wait(self) -> None:
        """Wait for the first read. If that takes long, ask other bookies for all that are under way."""
        self._first_is_done = self._loop.create_future()
        asking_others = self._loop.call_later(SPECULATIVE_READ_S, self._ask_others)
        try:
            await self._first_is_done
        finally:
            asking_others.cancel()
            self._first_is_done = None

    def _ask_others(self) -> None:
        for read in self._reads:
            self._perform(read, read.waited())
        if self._first_is_done is not None:
            settle(self._first_is_done, None)

    def _perform(self, read: EntryRead, sends: Sequence[Send]) -> None:
        for send in sends:
            self._cluster.call(send, partial(self._answered, read, send.token))

    def _answered(self, read: EntryRead, token: Token, answer: BookieAnswer) -> None:
        self._perform(read, read.answered(token, answer))
        if read.result is not None and self._first_is_done is not None and read is self._reads[0]:
            settle(self._first_is_done, None)
