"""The small background work of a store, as steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.commit import Committer
    from storage.journals import Journals
    from storage.worker import Hire, Pause


class Delayed:
    """Does something a while after it was first noticed that it will be due."""

    def __init__(
        self,
        name: str,
        delay_s: float | None,
        act: Callable[[], None],
        hire: Hire,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._delay_s = delay_s
        self._act = act
        self.rests = delay_s is not None
        """Whether it waits to be told. Without a delay it never comes to be due."""
        self._is_due = False
        self._worker = hire(name, self.step, on_failure)
        self.stop = self._worker.stop

    def notice(self) -> None:
        """Costs nothing while it is noticed already."""
        if self.rests:
            self.rests = False
            self._worker.wake()

    def step(self) -> Pause:
        if not self._is_due:
            self._is_due = True
            return self._delay_s
        self._is_due = False
        # Before it acts: what is noticed meanwhile wakes it again.
        self.rests = True
        self._act()
        return None


class Sealing:
    """Vouches for the last group when no other has followed it for a while."""

    def __init__(
        self,
        committer: Committer,
        journals: Journals,
        idle_s: float | None,
        hire: Hire,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._committer = committer
        self._journals = journals
        self._seen = journals.groups
        self.delayed = Delayed("ledgerstore-seal", idle_s, self._seal_if_idle, hire, on_failure)
        self.stop = self.delayed.stop

    def _seal_if_idle(self) -> None:
        if self._journals.groups != self._seen:
            self._seen = self._journals.groups
            self.delayed.notice()
            return
        self._committer.seal()
        self._seen = self._journals.groups


class Filling:
    """Fills the next journal while the active one is in use."""

    def __init__(self, journals: Journals, hire: Hire, on_failure: Callable[[BaseException], None]) -> None:
        self._journals = journals
        self._noticed = 0
        self._worker = hire("ledgerstore-fill", self.step, on_failure)
        self.stop = self._worker.stop

    def notice(self) -> None:
        """Looks whether the next journal will be needed."""
        active = self._journals.active
        if active is not None and active.end > active.half and active.journal_id != self._noticed:
            self._noticed = active.journal_id
            self._worker.wake()

    def step(self) -> Pause:
        return AT_ONCE if self._journals.fill_ahead() else None
