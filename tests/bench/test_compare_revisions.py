"""Two revisions are compared: when a row counts as slower, and that both revisions can measure a row."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import compare_revisions
import pytest
from compare_revisions import FigureComparison

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


def compared(ratios: Sequence[float]) -> FigureComparison:
    return FigureComparison(row="r", contender="ours", figure="rate", unit="/s", old=1, new=1, ratios=ratios)


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((0.98, 1.0, 0.9), ""),
        ((0.97, 0.97, 0.97), ""),
        ((0.9, 0.96, 0.95, 0.8, 1.2), "SLOWER"),
        ((0.9, 0.96, 0.95, 0.99, 1.2), "within the noise"),
        ((0.5,), "SLOWER"),
    ],
)
def test_a_row_is_slower_if_its_median_and_most_of_its_rounds_are_below_the_floor(
    ratios: Sequence[float], verdict: str
) -> None:
    assert compared(ratios).verdict == verdict


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="NOT RUN: no repository")
def test_a_row_is_measured_in_both_revisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "versus.json"
    arguments = ["HEAD", "--tiny", "--rounds", "1", "--only", "read-newest", "--json", str(report)]
    assert compare_revisions.main(arguments) == 0, capsys.readouterr().out
    rows = json.loads(report.read_text())["rows"]
    assert {(row["row"], row["contender"]) for row in rows} == {("read-newest", "ours")}
    assert all(len(row["ratios"]) == 1 and row["median"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == [report]
