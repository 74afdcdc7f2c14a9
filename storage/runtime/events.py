"""The log messages of a running store: failures, a full disk, slow syncs. Nothing is logged for an add.

Every logger of the package is below `ledgerstore`; docs/operations.md lists what each of them says.
"""

from __future__ import annotations

import enum
import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = logging.getLogger("ledgerstore.store")

SLOW_SYNC_S = 1.0
"""A sync that takes longer is logged as slow."""

SLOW_SYNC_PAUSE_S = 60.0
"""The least time between two such messages of a store."""


class BlockedWork(enum.Enum):
    """The work that a full disk blocks, in the words of the message."""

    ADDS = "adds"
    CHECKPOINT = "the checkpoint"


class Events:
    """The log messages of one store. Any thread may call.

    Its fields are written and read by any thread without a lock: two threads may log the same message at the
    same moment, which does no harm.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._has_failed = False
        self._waiting: set[BlockedWork] = set()
        self._quiet_until = 0.0
        self._suppressed = 0
        """The number of slow syncs since the last message about one."""

    def failed(self, error: BaseException) -> None:
        """Log the error that has stopped the store from writing, once."""
        if not self._has_failed:
            self._has_failed = True
            LOG.error("%s: the store has stopped writing after %r; reads go on", self._path, error)

    def disk_is_full(self, waits: BlockedWork) -> None:
        """Log that something waits for space, once until `space_is_back`."""
        if waits not in self._waiting:
            self._waiting.add(waits)
            LOG.warning("%s: no space left on the device: it holds up %s", self._path, waits.value)

    def space_is_back(self, waits: BlockedWork) -> None:
        """Log that this work goes on, if it had to wait."""
        if waits in self._waiting:
            self._waiting.discard(waits)
            LOG.info("%s: space on the device again: it holds up %s no longer", self._path, waits.value)

    def adds_are_refused(self, reason: str) -> None:
        """Log that adds are refused for lack of space."""
        LOG.warning("%s: adds are refused: %s", self._path, reason)

    def adds_are_accepted(self) -> None:
        """Log that adds are accepted again."""
        LOG.info("%s: adds are accepted again", self._path)

    def synced(self, seconds: float) -> None:
        """Log a sync if it was slow and the last such message is `SLOW_SYNC_PAUSE_S` ago."""
        if seconds < SLOW_SYNC_S:
            return
        now = self._clock()
        if now < self._quiet_until:
            self._suppressed += 1
            return
        more = f" ({self._suppressed} more since the last such message)" if self._suppressed else ""
        self._quiet_until, self._suppressed = now + SLOW_SYNC_PAUSE_S, 0
        LOG.warning("%s: slow disk: a sync took %.1f s%s", self._path, seconds, more)
