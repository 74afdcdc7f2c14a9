"""An audit has no complaint about stores whose writer was killed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from killed_stores import kill_and_audit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow(10)
def test_an_audit_and_a_view_agree_with_an_opening_after_each_kill(tmp_path: Path) -> None:
    report = kill_and_audit(tmp_path / "store", 40, Random(11))
    assert report.complaints == []
    assert report.kills == 40
