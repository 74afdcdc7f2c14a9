"""Files damaged at random are read without a crash, a hang or a large allocation."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from random_damage import campaign, campaign_apart
from sampling import many

MEMORY_MAX = 64 << 20


@pytest.mark.sampled
def test_thousands_of_mutations_are_read_without_a_crash_or_a_large_allocation() -> None:
    tracemalloc.start()
    try:
        count = many(1_500, 40)
        assert campaign(count, seed=1) > 0.93 * count
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
