"""Covers of runs with any steps, compared with sets of ids."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from recovery.audit.model.intervals import IdRange, covers, missing, overlaps
from recovery.audit.model.runs import RUN, no_runs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.model.runs import Runs

Spec = tuple[int, int, int, int]


def runs(*rows: Spec, file: int = 0) -> Runs:
    """Runs from (ledger, first, number of entries, step)."""
    made = np.zeros(len(rows), dtype=RUN)
    made["file"] = file
    for run, (ledger_id, first, count, step) in zip(made, rows, strict=True):
        run["ledger"], run["first"], run["step"], run["count"] = ledger_id, first, step, count
        run["last"] = first + (count - 1) * step
    return made


def ids(rows: Iterable[Spec]) -> set[tuple[int, int]]:
    return {(ledger, first + number * step) for ledger, first, count, step in rows for number in range(count)}


def spelled_out(ranges: Iterable[IdRange]) -> list[tuple[int, int]]:
    return [(one.ledger_id, entry) for one in ranges for entry in range(one.first, one.last + 1, one.step)]


def some_runs(dice: Random) -> list[Spec]:
    return [
        (dice.randrange(3), dice.randrange(30), dice.randrange(1, 9), dice.choice([1, 1, 2, 3, 6]))
        for _ in range(dice.randrange(1, 12))
    ]


@pytest.mark.parametrize("seed", range(100))
def test_a_cover_is_the_union_of_its_runs(seed: int) -> None:
    dice = Random(seed)
    rows = some_runs(dice)
    cut = dice.randrange(len(rows) + 1)
    found = {cover.ledger_id: cover for cover in covers([runs(*rows[:cut]), runs(*rows[cut:])])}
    held = ids(rows)
    assert found.keys() == {ledger_id for ledger_id, _ in held}
    for ledger_id, cover in found.items():
        mine = {entry for its, entry in held if its == ledger_id}
        assert cover.entries == len(mine)
        assert cover.ends == (min(mine), max(mine))
        step = int(cover.intervals["step"][0])
        gaps = cover.gaps()
        absent = spelled_out(gaps)
        assert len(absent) == len(set(absent)) == sum(one.entries for one in gaps)
        for residue in range(step):
            there = {entry for entry in mine if entry % step == residue}
            between = set(range(min(there), max(there), step)) if there else set()
            assert {entry for _, entry in absent if entry % step == residue} == between - there


@pytest.mark.parametrize("seed", range(100))
def test_what_is_missing_is_the_difference_of_sets(seed: int) -> None:
    dice = Random(seed)
    wanted, there = some_runs(dice), some_runs(dice)
    cut = dice.randrange(len(there) + 1)
    found = missing(runs(*wanted), [runs(*there[:cut]), runs(*there[cut:])])
    absent = spelled_out(found)
    assert len(absent) == len(set(absent)) == sum(one.entries for one in found)
    assert set(absent) == ids(wanted) - ids(there)
    assert found == sorted(found)


def test_without_runs_everything_is_missing() -> None:
    assert missing(runs((1, 3, 7, 1)), []) == [IdRange(1, 3, 9, 1)]
    assert missing(no_runs(), [runs((1, 3, 7, 1))]) == []
    assert list(covers([])) == []


def test_the_largest_ids_do_not_overflow() -> None:
    most = 2**63 - 1
    (cover,) = covers([runs((most, 0, 6, 1), (most, most - 1, 2, 1), (most, most, 1, 1))])
    assert cover.gaps() == [IdRange(most, 6, most - 2, 1)]
    assert missing(runs((most, most - 1, 2, 1)), [runs((most, most - 1, 1, 1))]) == [
        IdRange(most, most, most, 1)
    ]


def test_a_residue_without_entries_is_no_gap() -> None:
    (cover,) = covers([runs((7, 0, 4, 3), (7, 15, 2, 3), (7, 1, 7, 3))])
    assert cover.gaps() == [IdRange(7, 12, 12, 3)]


def test_entries_in_two_files_are_found_whatever_their_steps_are() -> None:
    some = [runs((7, 0, 9, 1), file=1), runs((7, 6, 3, 3), (7, 40, 1, 1), file=2)]
    assert list(overlaps(some)) == [(2, IdRange(7, 6, 6, 3))]
    assert list(overlaps([runs((7, 0, 9, 3), file=1), runs((7, 1, 9, 3), file=2)])) == []
