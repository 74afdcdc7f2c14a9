"""Thousands of histories: no crash loses anything, and rot in what is vouched for is refused."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from histories import History, rot


def play(seeds: range) -> Counter[str]:
    """How the histories of these seeds ended, and how often they crashed on the way."""
    endings: Counter[str] = Counter()
    for seed in seeds:
        history = History(seed)
        history.run(steps=10 + seed % 20)
        endings["crashes"] += history.crashes
        if history.files():
            endings[rot(history)] += 1
    return endings


def test_hundreds_of_histories() -> None:
    endings = play(range(300))
    assert endings["crashes"] > 500
    assert endings["refused"] > 20
    assert endings["served"] > 20


@pytest.mark.slow(seconds=55)
def test_ten_thousand_histories() -> None:
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("fork")) as pool:
        endings = sum(
            pool.map(play, [range(at, at + 500) for at in range(1000, 11_000, 500)]), Counter[str]()
        )
    assert endings["crashes"] > 20_000
    assert endings["refused"] > 1_000
