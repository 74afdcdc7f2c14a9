"""The repair of one ledger of two segments, disturbed at every step: the laboratory plays all of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from recovery.autorecovery.config import AutoRecoveryConfig
from recovery.clusterlab.autorecovery import AutoRecoverySchedule
from recovery.clusterlab.world import Choices
from storage.cluster.client.distribution import Quorums
from storage.cluster.metadata.ledger import LedgerSegment

if TYPE_CHECKING:
    from collections.abc import Callable

LEDGER = 7
SEGMENTS = (LedgerSegment(0, ("b1", "b2", "b3")), LedgerSegment(3, ("b4", "b1", "b2")))
COUNT = 6
DELAYS = 12
"""The laboratory chooses a delay among so many."""


class SteadyChoices(Choices):
    """Chance, but for delays: a call takes one unit each way, so that a repair has few steps."""

    def pick(self, count: int) -> int:
        return 0 if count == DELAYS else super().pick(count)


class OneLedger(AutoRecoverySchedule):
    """A closed ledger of two segments. A bookie that both name is lost for good, which a process repairs."""

    def __init__(self, seed: int, at: float, fault: Callable[[OneLedger], None]) -> None:
        super().__init__(SteadyChoices(seed))
        self._at = at
        self._fault = fault
        self.repaired_at = 0.0
        """When the ledger named the lost bookie no longer, and mark and lock were gone."""

    def _set_up(self) -> None:
        random.seed(1)
        self._is_checked = False
        self._config = AutoRecoveryConfig(
            open_ledger_grace_s=0.0, pause_max_s=1.0, check_interval_s=0.0, repairs_at_once=1
        )
        self._build(Quorums(3, 2, 2), 5, [3.0], hosts=1)
        ledger = self._new_ledger(LEDGER)
        self._close_with(ledger, SEGMENTS, COUNT)
        lost = self._bookies["b1"]
        lost.is_lost, lost.is_up = True, False
        self._unregister(lost)
        self._destroy(lost)
        self._start_host(self._hosts[0])
        self.world.after(self._at, self._fault, self)
        self.world.after(self._at + 60.0, self._mend)
        self.world.after(1.0, self._note_end)

    def _note_end(self) -> None:
        if self._what_is_left():
            self.world.after(1.0, self._note_end)
        else:
            self.repaired_at = self.world.now

    # ── faults ────────────────────────────────────────────────────────────────────────────────────────

    def nothing(self) -> None:
        """Disturb nothing."""

    def expire(self) -> None:
        """End the session, as the process learns at once."""
        for session in self._hosts[0].sessions:
            session.expire(0.0)

    def expire_unnoticed(self) -> None:
        """End the session, and let the process go on for a while with what needs no metadata."""
        for session in self._hosts[0].sessions:
            session.expire(12.0)

    def kill(self) -> None:
        """Kill the process, and start it again."""
        self._hosts[0].kill()
        self.world.after(5.0, self._start_host, self._hosts[0])

    def disconnect(self) -> None:
        """Lose every call to the metadata for a while: it takes place, takes place later, or never does."""
        self.ensemble.loss = 1.0
        self.world.after(8.0, setattr, self.ensemble, "loss", 0.0)

    def disable(self) -> None:
        """Disable auto-recovery. It is enabled when everything is mended."""
        super()._disable()


FAULTS = (
    OneLedger.expire,
    OneLedger.expire_unnoticed,
    OneLedger.kill,
    OneLedger.disconnect,
    OneLedger.disable,
)


def play(seed: int, at: float, fault: Callable[[OneLedger], None]) -> float:
    """Play the repair with this fault at this time. Return when it was over."""
    schedule = OneLedger(seed, at, fault)
    schedule.play()
    assert schedule.repaired_at > 0, (seed, at, fault)
    return schedule.repaired_at


def every_step(seed: int, fault: Callable[[OneLedger], None]) -> int:
    """Play the repair once for each moment between two of its steps. Return how many there are.

    All delays are whole numbers, so that nothing happens at the half of one.
    """
    end = int(play(seed, 0.5, OneLedger.nothing))
    for step in range(end):
        play(seed, step + 0.5, fault)
    return end


def test_a_fault_at_some_step_leaves_what_the_next_attempt_completes() -> None:
    for number, fault in enumerate(FAULTS):
        for at in range(8 + number, 300, 60):
            play(1, at + 0.5, fault)


@pytest.mark.slow(120)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_at_every_step_leaves_what_the_next_attempt_completes(
    fault: Callable[[OneLedger], None],
) -> None:
    assert every_step(1, fault) > 100
