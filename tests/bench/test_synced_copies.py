"""The study of synced copies measures adds to one copy and to three."""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies.synced_copies import ROWS, rounds_of

if TYPE_CHECKING:
    from pathlib import Path


def test_each_round_has_the_latencies_of_each_row(tmp_path: Path) -> None:
    found = rounds_of(tmp_path, rounds=2, adds=3)
    assert set(found) == set(ROWS)
    assert all(0 < one.p50 <= one.p99 for measured in found.values() for one in measured)
    assert {len(measured) for measured in found.values()} == {2}
