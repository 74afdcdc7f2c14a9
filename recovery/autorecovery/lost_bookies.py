"""Which bookies are lost, and when their ledgers are marked. Pure: the time comes with each event.

A bookie is *known* when it has a cookie, or has been registered since this auditor was elected. It is lost
when it is known and registered in neither mode. A read-only bookie serves its entries, so it is not lost.

    nothing new is lost        no audit; one that was due is cancelled, because the bookie has returned
    one bookie is newly lost   an audit after `lostBookieRecoveryDelay` seconds
    several at the same time   an audit now: with each of them a copy fewer is left
    the delay is written       0, or the same value again: an audit now. Another value counts from the loss

A lost bookie is reported once. It is new again when it has been registered in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet


class LostBookies:
    """The bookies that are lost, and the time of the next audit."""

    def __init__(self, cookies: Iterable[str], delay_s: float, now: float) -> None:
        """An auditor begins with an audit, because the one before it may have ended in the middle of one.

        It takes place after the delay, too: the auditor's own bookie may be the one that is being restarted.
        """
        self._known = set(cookies)
        self._delay_s = delay_s
        self._lost_since: dict[str, float] = {}
        """The lost bookies whose ledgers no audit has marked yet, and when each was noticed."""
        self._audited: set[str] = set()
        """The lost bookies whose ledgers an audit has marked."""
        self._requested_at: float | None = now + delay_s
        """When to audit whatever is lost."""

    @property
    def due_at(self) -> float | None:
        """When to audit; `None` if there is nothing to audit for."""
        loss_at = None
        if len(self._lost_since) > 1:
            loss_at = max(self._lost_since.values())
        elif self._lost_since:
            [since] = self._lost_since.values()
            loss_at = since + self._delay_s
        return min((at for at in (loss_at, self._requested_at) if at is not None), default=None)

    @property
    def lost(self) -> frozenset[str]:
        """The lost bookies, audited or not."""
        return frozenset(self._audited | self._lost_since.keys())

    def registered(self, bookies: AbstractSet[str], now: float) -> None:
        """Take note of the bookies that are registered now, in both modes."""
        self._known |= bookies
        lost = self._known - bookies
        self._audited &= lost
        new = lost - self._audited
        self._lost_since = {bookie: self._lost_since.get(bookie, now) for bookie in new}

    def delay_written(self, delay_s: float, now: float) -> None:
        """Take note that the delay was written, perhaps with the value that it had."""
        if delay_s in (0, self._delay_s):
            self._requested_at = now
        self._delay_s = delay_s

    def audit_begins(self) -> None:
        """Take note that an audit begins. A request that comes from now on needs another one."""
        self._requested_at = None

    def audited(self, lost: AbstractSet[str]) -> None:
        """Take note of an audit that is complete, and of the bookies whose ledgers it has marked."""
        for bookie in lost & self._lost_since.keys():
            del self._lost_since[bookie]
            self._audited.add(bookie)

    def audit_failed(self, now: float, pause_s: float) -> None:
        """Take note of an audit that was cut short. Otherwise ledgers would stay unmarked for a day."""
        if self._requested_at is None:
            self._requested_at = now + pause_s
