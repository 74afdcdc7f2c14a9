"""The study of the bookie's add measures both adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies.bookie_add import rounds_of

if TYPE_CHECKING:
    from pathlib import Path


def test_each_round_has_the_time_of_an_append_and_of_a_bookie_s_add(tmp_path: Path) -> None:
    found = list(rounds_of(str(tmp_path / "store"), rounds=2, adds=3))
    assert len(found) == 2
    assert all(append > 0 and bookie_add > 0 for append, bookie_add in found)
