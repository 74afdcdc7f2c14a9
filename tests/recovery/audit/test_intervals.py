"""Covers of runs, compared with sets of ids."""

from __future__ import annotations

from itertools import groupby
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from recovery.audit.model.intervals import NOTHING, Cover, covers, striped
from recovery.audit.model.runs import RUN

if TYPE_CHECKING:
    from recovery.audit.model.runs import Runs


def runs(*rows: tuple[int, int, int], step: int = 1) -> Runs:
    """Runs from (ledger, first, last)."""
    made = np.zeros(len(rows), dtype=RUN)
    made["step"] = step
    for number, (ledger_id, first, last) in enumerate(rows):
        made[number]["ledger"], made[number]["first"], made[number]["last"] = ledger_id, first, last
    return made


def ids(cover: Cover) -> set[int]:
    pairs = zip(cover.firsts.tolist(), cover.lasts.tolist(), strict=True)
    return {one for first, last in pairs for one in range(first, last + 1)}


@pytest.mark.parametrize("seed", range(200))
def test_a_cover_is_the_union_of_its_runs(seed: int) -> None:
    dice = Random(seed)
    rows = []
    for _ in range(dice.randrange(1, 12)):
        first = dice.randrange(30)
        rows.append((dice.randrange(3), first, first + dice.randrange(8)))
    cut = dice.randrange(len(rows) + 1)
    found = {cover.ledger_id: cover for cover in covers([runs(*rows[:cut]), runs(*rows[cut:])])}

    assert found.keys() == {ledger_id for ledger_id, _, _ in rows}
    for ledger_id, cover in found.items():
        held = {one for its, first, last in rows if its == ledger_id for one in range(first, last + 1)}
        assert ids(cover) == held
        # Disjoint, ascending, and as few as possible.
        assert all(cover.firsts[1:] > cover.lasts[:-1] + 1)
        absent = [one for one in range(min(held), max(held)) if one not in held]
        assert list(cover.gaps()) == _ranges(absent)
        first, last = sorted((dice.randrange(45), dice.randrange(45)))
        assert list(cover.missing(first, last)) == _ranges(
            [one for one in range(first, last + 1) if one not in held]
        )


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    grouped = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    together = [[number for _, number in group] for _, group in grouped]
    return [(one[0], one[-1]) for one in together]


def test_without_runs_everything_is_missing() -> None:
    assert list(Cover(1, NOTHING, NOTHING).missing(3, 9)) == [(3, 9)]
    assert list(covers([])) == []


def test_the_largest_ids_do_not_overflow() -> None:
    most = 2**63 - 1
    (cover,) = covers([runs((most, 0, 5), (most, most - 1, most), (most, most, most))])
    assert list(cover.gaps()) == [(6, most - 2)]


def test_striped_ledgers_are_listed_and_not_covered() -> None:
    some = [runs((7, 0, 9)), runs((8, 0, 8), step=2)]
    assert striped(some) == {8}
    assert [cover.ledger_id for cover in covers(some)] == [7]
