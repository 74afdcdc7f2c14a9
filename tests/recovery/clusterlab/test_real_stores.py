"""Schedules whose bookies are real stores on simulated disks find what a store may not do."""

from __future__ import annotations

import pytest
from real_store_schedules import RealStoreSchedule

from recovery.clusterlab.explorer import explore


def test_no_schedule_on_real_stores_violates_an_invariant() -> None:
    assert list(explore(range(6), RealStoreSchedule)) == []


@pytest.mark.slow(10)
def test_no_schedule_of_a_hundred_on_real_stores_violates_an_invariant() -> None:
    assert list(explore(range(1_000, 1_100), RealStoreSchedule)) == []
