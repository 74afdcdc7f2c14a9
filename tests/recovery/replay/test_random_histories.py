"""Thousands of random histories: no crash loses an entry, and rot in durable groups is refused."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from journal_histories import JournalHistory, rot
from sampling import many


def play(seeds: range) -> Counter[str]:
    """Count how the histories of these seeds ended, and how often they crashed."""
    endings: Counter[str] = Counter()
    for seed in seeds:
        history = JournalHistory(seed)
        history.run(steps=10 + seed % 20)
        endings["crashes"] += history.crashes
        if history.files():
            endings[rot(history)] += 1
    return endings


@pytest.mark.sampled
def test_hundreds_of_histories() -> None:
    endings = play(range(many(300, 40)))
    assert endings["crashes"] > many(500, 30)
    assert endings["refused"] > many(20, 1)
    assert endings["served"] > many(20, 1)


@pytest.mark.slow(seconds=55)
def test_ten_thousand_histories() -> None:
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("fork")) as pool:
        endings = sum(
            pool.map(play, [range(at, at + 500) for at in range(1000, 11_000, 500)]), Counter[str]()
        )
    assert endings["crashes"] > 20_000
    assert endings["refused"] > 1_000
