"""The scale benchmark: a figure is compared with its bar, and a small run measures every row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import scale
from scale import ScaleResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize(
    ("values", "least", "most", "is_met"),
    [
        ((1.2, 1.3, 9.0), None, 1.3, True),
        ((1.2, 1.31, 9.0), None, 1.3, False),
        ((0.6, 0.1, 0.7), 0.6, None, True),
        ((0.5, 0.1, 0.7), 0.6, None, False),
        ((7.0,), None, None, True),
    ],
)
def test_the_median_of_the_rounds_is_compared_with_the_bar(
    values: tuple[float, ...], least: float | None, most: float | None, is_met: bool
) -> None:
    assert ScaleResult("row", "title", "s", values, least=least, most=most).is_met is is_met


@pytest.mark.parametrize(("value", "code"), [(1.0, 0), (2.0, 1)])
def test_a_strict_run_ends_with_1_if_a_bar_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, code: int
) -> None:
    def row(_sizes: scale.ScaleSizes, _place: Path) -> Iterator[ScaleResult]:
        yield ScaleResult("row", "an add", "s", [value], most=1.3)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scale, "ROWS", {"row": row})
    assert scale.main(["--strict", "--json", "scale.json"]) == code
    assert scale.main([]) == 0
    (written,) = json.loads((tmp_path / "scale.json").read_text())["rows"]
    assert (written["median"], written["met"]) == (value, code == 0)


@pytest.mark.slow
def test_a_small_run_measures_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert scale.main(["--quick", "--rounds", "1", "--json", "scale.json"]) == 0
    rows = json.loads((tmp_path / "scale.json").read_text())["rows"]
    assert {row["name"] for row in rows} == set(scale.ROWS)
    assert all(row["values"] for row in rows)
