"""In `make test` and in CI only a sample of some tables and of the longest tests runs, which names decide."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import sampling


def rows(test: str, count: int, mark: str = "", **arguments: int) -> list[Any]:
    """Return the items of one test with so many rows, and with this mark."""
    marks = {mark: SimpleNamespace(kwargs=arguments)}
    return [
        SimpleNamespace(nodeid=f"tests/test_one.py::{test}[{number}]", get_closest_marker=marks.get)
        for number in range(count)
    ]


def left(items: list[Any]) -> list[str]:
    """Return the names of those that run."""
    out = {one.nodeid for one in sampling.left_out(cast("list[pytest.Item]", items))}
    return [one.nodeid for one in items if one.nodeid not in out]


@pytest.fixture(autouse=True)
def samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw samples, whatever this run does."""
    monkeypatch.setattr(sampling, "IS_WHOLE", False)
    for name in ("WHOLE_ROWS", "SINGLE_ROWS", "LONG_TESTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("count", "one_of", "run"), [(150, 10, 15), (7, 3, 3), (2, 6, 1), (1, 6, 1)])
def test_the_share_of_a_table_runs_and_at_least_one_row(count: int, one_of: int, run: int) -> None:
    assert len(left(rows("test_a_sweep", count, "sampled", one_of=one_of))) == run


def test_the_sample_depends_on_the_names_and_not_on_their_order() -> None:
    items = [*rows("test_a_sweep", 40, "sampled", one_of=4), *rows("test_other", 40, "sampled", one_of=4)]
    assert sorted(left(items)) == sorted(left(items[::-1]))
    drawn = [one.partition("[")[2] for one in left(items)]
    assert drawn[:10] != drawn[10:]


def test_other_tests_and_whole_tables_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(left([*rows("test_a_table", 40), *rows("test_a_sweep", 9, "sampled")])) == 49
    monkeypatch.setenv("WHOLE_ROWS", "1")
    assert len(left(rows("test_a_sweep", 40, "sampled", one_of=4))) == 40


def test_one_row_of_each_table_is_enough_on_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGLE_ROWS", "1")
    items = [*rows("test_a_table", 40), *rows("test_a_sweep", 40, "sampled", one_of=4), *rows("test_one", 1)]
    assert [one.partition("[")[0].partition("::")[2] for one in left(items)] == [
        "test_a_table",
        "test_a_sweep",
        "test_one",
    ]


def test_a_seed_decides_which_of_the_longest_tests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [*rows("test_long", 30, "slow", seconds=60), *rows("test_slow", 30, "slow")]
    runs = []
    for seed in ("abc", "abd"):
        monkeypatch.setenv("LONG_TESTS", f"3:{seed}")
        runs.append(left(items))
    assert [len(one) for one in runs] == [40, 40]
    assert runs[0] != runs[1]
    assert set(runs[0][-30:]) == {one.nodeid for one in rows("test_slow", 30)}
