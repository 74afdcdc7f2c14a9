"""The study of the bookie's processor time measures adds and reads of both versions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from studies.bookie_calls import rounds_of

if TYPE_CHECKING:
    from pathlib import Path


def test_each_round_has_the_time_of_adds_and_of_reads(tmp_path: Path) -> None:
    found = asyncio.run(rounds_of(str(tmp_path / "store"), rounds=2, adds={1: 2, 64: 128}))
    rows = {
        name
        for version in ("v2", "v3")
        for name in (f"{version}, adds, 1 at once", f"{version}, reads of logs, 64 at once")
    }
    assert rows <= set(found)
    assert all(len(figures) == 2 and min(figures) > 0 for figures in found.values())
