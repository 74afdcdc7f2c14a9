"""The benchmark runs: what it says is for an idle machine, not for a test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import store
from result import Bar, Result, Sense

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("scenario", store.SCENARIOS)
def test_every_scenario_measures_something_and_leaves_nothing(place: Path, scenario: str) -> None:
    assert store.main(["--tiny", "--only", scenario, "--json", "said.json"]) == 0
    said = json.loads((place / "said.json").read_text())
    [result] = said["results"]
    assert min(result["ours"]) > 0
    assert result["flaws"] == []
    assert [path.name for path in place.iterdir()] == ["said.json"]


def measured(*ours: float, raw: tuple[float, ...] = (), bar: Bar | None = None) -> Result:
    return Result(scenario="one", unit="adds/s", ours=ours, raw=raw, bar=bar)


@pytest.mark.parametrize(
    ("result", "is_met"),
    [
        (measured(80, raw=(100,), bar=Bar(Sense.AT_LEAST, 0.8)), True),
        (measured(79, raw=(100,), bar=Bar(Sense.AT_LEAST, 0.8)), False),
        (measured(200, bar=Bar(Sense.AT_LEAST, 200)), True),
        (measured(50, bar=Bar(Sense.BELOW, 50)), False),
        (measured(1, 49, 99, bar=Bar(Sense.BELOW, 50)), True),
        (measured(50), None),
    ],
)
def test_the_median_of_what_the_bar_is_about_meets_it_or_not(result: Result, is_met: bool | None) -> None:
    assert result.is_met is is_met


def test_each_round_is_compared_with_the_raw_disk_of_the_same_round() -> None:
    slow_and_fast = measured(10, 100, 50, raw=(10, 100, 100), bar=Bar(Sense.AT_LEAST, 0.9))
    assert slow_and_fast.ratios == [1, 1, 0.5]
    assert slow_and_fast.is_met


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_a_missed_bar_is_told_and_fails_the_run_only_if_asked(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
) -> None:
    missed = measured(1, bar=Bar(Sense.AT_LEAST, 2))
    monkeypatch.setattr(store, "SCENARIOS", {"append": lambda _place, _sizes: missed})
    assert store.main(options) == code
    assert "missed" in capsys.readouterr().out
