"""When a marked ledger is tried again after its repair has failed. Pure.

A repair that was postponed is tried again after a pause, which doubles five times from a 32nd of the longest.
Each ledger has a pause of its own: one that cannot be repaired does not slow down the others.

A ledger with entries that no registered bookie has is not tried again by time. Only two things can help: one
of its bookies comes back, or its mark is renewed, which an audit does that finds something new or was asked
for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from collections.abc import Set as AbstractSet

_DOUBLINGS = 5


@dataclass(slots=True)
class _Failure:
    """The last failed repair of a ledger."""

    mark_version: int
    count: int
    """Repairs of this mark that were postponed, one after the other."""
    not_before: float
    """The next one begins at this time; infinite if time does not help."""
    absent: frozenset[str]
    """Bookies whose return lets the ledger be tried again."""
    reason: str
    pause_s: float | None = None
    """The pause before the next attempt; `None` if time does not help."""


class RepairAttempts:
    """The failed repairs of one worker, and when each ledger may be tried again."""

    def __init__(self, pause_max_s: float) -> None:
        self._pause_max_s = pause_max_s
        self._failures: dict[int, _Failure] = {}

    @property
    def failed(self) -> Collection[int]:
        """The ledgers whose last repair has failed."""
        return self._failures.keys()

    @property
    def given_up(self) -> frozenset[int]:
        """The ledgers that are not tried again by time."""
        return frozenset(id_ for id_, one in self._failures.items() if one.not_before == float("inf"))

    def reasons(self) -> list[tuple[int, str, float | None]]:
        """Return why each repair has failed, by ascending ledger id.

        The third value is the pause before the next attempt; `None` if time does not help.
        """
        return [(id_, one.reason, one.pause_s) for id_, one in sorted(self._failures.items())]

    def may_try(self, ledger_id: int, mark_version: int, registered: AbstractSet[str], now: float) -> bool:
        """Return whether a ledger with this mark should be tried now."""
        last = self._failures.get(ledger_id)
        return (
            last is None
            or last.mark_version != mark_version
            or now >= last.not_before
            or not last.absent.isdisjoint(registered)
        )

    def note_postponed(self, ledger_id: int, mark_version: int, reason: str, now: float) -> float:
        """Note that a repair was postponed. Return the pause in seconds."""
        last = self._failures.get(ledger_id)
        count = 1 + (last.count if last is not None and last.mark_version == mark_version else 0)
        pause_s: float = self._pause_max_s / 2 ** max(0, _DOUBLINGS + 1 - count)
        failure = _Failure(mark_version, count, now + pause_s, frozenset(), reason, pause_s)
        self._failures[ledger_id] = failure
        return pause_s

    def note_waiting(
        self, ledger_id: int, mark_version: int, reason: str, until: float, pause_s: float
    ) -> None:
        """Note that a ledger is to be looked at again at this time, which is not a failure."""
        self._failures[ledger_id] = _Failure(mark_version, 0, until, frozenset(), reason, pause_s)

    def note_unrepairable(
        self, ledger_id: int, mark_version: int, reason: str, absent: frozenset[str]
    ) -> bool:
        """Note that time does not help. Return whether this is news, so that it is reported once."""
        last = self._failures.get(ledger_id)
        self._failures[ledger_id] = _Failure(mark_version, 0, float("inf"), absent, reason)
        return last is None or last.reason != reason

    def note_repaired(self, ledger_id: int) -> None:
        self._failures.pop(ledger_id, None)

    def keep_only(self, marked: AbstractSet[int]) -> None:
        """Forget the ledgers that are not marked any more."""
        for ledger_id in self._failures.keys() - marked:
            del self._failures[ledger_id]
