"""The small background tasks of a store, as steps that a worker repeats."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.capacity.guard import SpaceGuard
    from storage.commit.committer import Committer
    from storage.journal.journal_set import Journals
    from storage.runtime.worker import Pause, WorkerFactory


FILL_DELAY_S = 1.0
"""How long after its first commit a store begins to fill its reserve."""


class DebouncedTask:
    """Calls a function some time after the first of several notices."""

    def __init__(
        self,
        name: str,
        delay_s: float | None,
        act: Callable[[], None],
        new_worker: WorkerFactory,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._delay_s = delay_s
        self._act = act
        self.is_waiting = delay_s is not None
        """Whether the task waits for a notice. Without a delay it never runs, and ignores notices.

        Written by any thread that gives notice and by the worker, without a lock: two notices at once only
        wake the worker twice.
        """
        self._is_due = False
        self._worker = new_worker(name, self.step, on_failure)
        self.stop = self._worker.stop

    def notice(self) -> None:
        """Let the call be due after the delay, unless it is due already."""
        if self.is_waiting:
            # First, because the worker sets it again before it acts.
            self.is_waiting = False
            try:
                self._worker.wake()
            except BaseException:
                self.is_waiting = True  # the next notice wakes it
                raise

    def step(self) -> Pause:
        if not self._is_due:
            self._is_due = True
            return self._delay_s
        self._is_due = False
        # Before the call, so that a notice during the call makes it due again.
        self.is_waiting = True
        self._act()
        return None


class IdleSealer:
    """Seals the last group of an idle store, so that damage to it is not taken for a torn write."""

    def __init__(
        self,
        committer: Committer,
        journals: Journals,
        idle_s: float | None,
        synced: Callable[[float], None],
        new_worker: WorkerFactory,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._committer = committer
        self._journals = journals
        self._synced = synced
        self._seen = journals.groups
        self.delayed = DebouncedTask("ledgerstore-seal", idle_s, self._seal_if_idle, new_worker, on_failure)
        self.stop = self.delayed.stop

    def _seal_if_idle(self) -> None:
        if self._journals.groups != self._seen:
            self._seen = self._journals.groups
            self.delayed.notice()
            return
        # Timed here and not in adds, because reading the clock in each add takes too long. A store whose disk
        # hangs looks idle; then the seal waits for the add that hangs, and is logged as slow.
        started = monotonic()
        self._committer.seal()
        self._synced(monotonic() - started)
        self._seen = self._journals.groups


class JournalPreallocator:
    """Fills the next journal with zeros while the active one is in use."""

    def __init__(
        self,
        journals: Journals,
        space: SpaceGuard,
        new_worker: WorkerFactory,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._journals = journals
        self._space = space
        self._noticed = 0
        self._worker = new_worker("ledgerstore-fill", self.step, on_failure)
        self.stop = self._worker.stop

    def notice(self) -> None:
        """Wake the worker if the active journal is more than half full. Called after each commit."""
        active = self._journals.active
        if active is not None and active.end > active.half and active.journal_id != self._noticed:
            self._worker.wake()
            self._noticed = active.journal_id

    def step(self) -> Pause:
        if self._space.is_refusing:
            # The next journal is for adds, and the space that is left is not. A leader that needs a journal
            # for a fence fills a small one.
            self._noticed = 0
            return None
        return AT_ONCE if self._journals.prepare() else None


class SpaceKeeper:
    """Fills the reserve, and accepts adds again when there is space."""

    def __init__(
        self, space: SpaceGuard, new_worker: WorkerFactory, on_failure: Callable[[BaseException], None]
    ) -> None:
        self._space = space
        self.is_waiting = space.needs_step
        """Whether a notice has something to begin. Written by any thread without a lock: two notices at once
        only wake the worker twice."""
        self._is_due = False
        self._worker = new_worker("ledgerstore-space", self.step, on_failure)
        self.stop = self._worker.stop
        space.wake = self._worker.wake
        if space.is_refusing:
            self.notice()

    def notice(self) -> None:
        """Begin after a second. Called after the first commit.

        A store that is only read must stay as it is, and one that is open for a moment must not take longer.
        """
        self.is_waiting = False
        self._worker.wake()

    def step(self) -> Pause:
        if not self._is_due:
            self._is_due = True
            return FILL_DELAY_S
        return self._space.step()
