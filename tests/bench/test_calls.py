"""An operation calls no more functions than the study of the bench allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies.calls import BOUNDS, figures

if TYPE_CHECKING:
    from pathlib import Path


def test_no_operation_calls_more_functions_than_its_bound(tmp_path: Path) -> None:
    found = {name: len(calls) for name, calls in figures(tmp_path / "store").items()}
    assert {name: count for name, count in found.items() if count > BOUNDS[name]} == {}
