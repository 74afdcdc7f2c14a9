"""The benchmark of space reclamation: a small run measures every row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import space
from space import SpaceSizes

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
TINY = SpaceSizes(
    total=8 * MIB,
    part=4 * MIB,
    log=MIB,
    memtable=MIB,
    ledgers=40,
    waves=3,
    turns=1,
    turn_s=0.1,
    tombstones=40,
)


@pytest.mark.slow
def test_a_small_run_measures_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(space, "QUICK", TINY)
    assert space.main(["--quick", "--json", "space.json"]) == 0
    rows = {row["title"]: row for row in json.loads((tmp_path / "space.json").read_text())["rows"]}
    assert {row["name"] for row in rows.values()} == set(space.ROWS)
    assert all(row["values"] for row in rows.values())
    [purged] = [row for title, row in rows.items() if title.startswith("the same when they were purged")]
    # The tombstone with the largest change number stays, because the numbers go on from it.
    assert "(39)" in purged["title"]


@pytest.mark.slow
def test_the_logs_of_the_waves_stay_within_their_bars(tmp_path: Path) -> None:
    found = {one.title.partition(": ")[2]: one for one in space.waves(TINY, tmp_path)}
    assert found["logs in the end less 2 logs ÷ live"].is_met
    assert found["logs at the worst moment less 4 logs ÷ live"].is_met
