"""Every planted bug can still be planted; `make mutants` asks who finds it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from planted import PLANTED, Planted

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(not (ROOT / "storage").is_dir(), reason="the sources are not here")


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.name)
def test_a_planted_bug_changes_code_that_still_compiles(planted: Planted, tmp_path: Path) -> None:
    for file in {change.file for change in planted.changes}:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    for change in planted.changes:
        change.apply(tmp_path)
    for file in {change.file for change in planted.changes}:
        changed = (tmp_path / file).read_text()
        assert changed != (ROOT / file).read_text()
        compile(changed, file, "exec")


def test_there_are_at_least_twenty_and_no_two_share_a_name() -> None:
    assert len({one.name for one in PLANTED}) == len(PLANTED) >= 20


def test_the_tests_that_are_named_exist() -> None:
    assert all((ROOT / test).is_file() for one in PLANTED for test in one.tests)
