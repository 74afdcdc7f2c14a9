"""Files damaged at random are read without a crash, a hang or a large allocation."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from mutations import campaign, campaign_apart

MEMORY_MAX = 64 << 20


def test_thousands_of_mutations_are_read_without_a_crash_or_a_large_allocation() -> None:
    tracemalloc.start()
    try:
        assert campaign(1_500, seed=1) > 1_400
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_MAX


@pytest.mark.slow(seconds=100)
def test_a_hundred_thousand_mutations() -> None:
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        answers = list(pool.map(campaign_apart, range(2, 12)))
    assert sum(distinct for distinct, _ in answers) > 100_000
    assert max(growth for _, growth in answers) < MEMORY_MAX
