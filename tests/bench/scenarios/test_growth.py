"""One store grows from row to row, and a measurement does not change it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from contenders.growth_contender import GrowthContender, ends
from contest import contest
from contest.run_size import TINY
from contest.workload import Work, WrongAnswer
from scenarios import growth
from store_internals import StoreInternals, store_of

from recovery import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from contest.contest import Scenario

ROWS = growth.scenarios(TINY)
WORK = Work(size=100, batch=1000, ledgers=100)


def ours(row: Scenario) -> Scenario:
    return replace(row, contenders=[one for one in row.contenders if one.name == "ours"])


def size(path: Path) -> int:
    with open_store(path) as store:
        return sum(ends(store).values())


@pytest.mark.bench
def test_a_store_grows_from_row_to_row_and_is_removed_after_the_last(tmp_path: Path) -> None:
    first, last = map(ours, ROWS)
    for number, (row, entries) in enumerate([(first, 1000), (replace(last, end=first.end), 3000), (last, 0)]):
        place = tmp_path / str(number)
        place.mkdir()
        assert contest.run_scenario(row, place).flaws == []
        assert [path.name for path in (place / "ours").iterdir()] == []
        found = size(tmp_path / "grown") if (tmp_path / "grown").exists() else 0
        assert found == entries


@pytest.mark.bench
def test_a_row_alone_grows_its_store_from_nothing(tmp_path: Path) -> None:
    place = tmp_path / "row"
    place.mkdir()
    contest.run_scenario(replace(ours(ROWS[-1]), end=ROWS[0].end), place)
    assert size(tmp_path / "grown") == 3000


def test_every_row_is_a_point_of_one_curve() -> None:
    assert [(point.curve, point.at) for row in ROWS for point in row.points] == [
        ("entries", 1000),
        ("entries", 3000),
    ]
    assert [row.name for row in ROWS] == ["growth-1000", "growth"]


def test_the_cost_of_adds_includes_their_checkpoints(tmp_path: Path) -> None:
    one = GrowthContender(tmp_path, 2000, **WORK.settings())
    one.grow(str(tmp_path / "grown"))
    one.open("grown")
    found = one.add(2000)
    assert store_of(one) is not None
    assert StoreInternals(store_of(one)).active_table.size == 0
    assert found["us_per_add"] > found["us_acknowledged"] > 0
    assert ends(store_of(one)) == {1: 1000, 2: 1000, 3: 1000, 4: 1000}
    one.close()


def test_an_answer_of_another_length_is_an_error(tmp_path: Path) -> None:
    one = GrowthContender(tmp_path, 1000, **WORK.settings())
    one.grow(str(tmp_path / "grown"))
    other = GrowthContender(tmp_path, 1000, **replace(WORK, size=99).settings())
    with pytest.raises(WrongAnswer):
        other.open("grown")
    other.close()
