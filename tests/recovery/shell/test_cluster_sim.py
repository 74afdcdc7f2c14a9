"""`ledgerstore cluster-sim` plays schedules, reports violations and plays them again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from recovery.clusterlab.bookies import ModelBookie
from recovery.shell.main import cli

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["cluster-sim", *map(str, words)], standalone_mode=True)


@pytest.fixture
def forgetful_bookies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a crash lose what is durable."""
    crash = ModelBookie.crash

    def changed(self: ModelBookie) -> None:
        crash(self)
        self.ledgers.clear()

    monkeypatch.setattr(ModelBookie, "crash", changed)


def test_a_run_without_a_violation_ends_with_0_and_writes_a_page(tmp_path: Path) -> None:
    done = run("run", "--schedules", 20, "--jobs", 1, "--out", tmp_path)

    assert done.exit_code == 0
    assert "20 schedules" in done.stderr
    assert "0 violations" in done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["schedules"] == 20
    assert "<svg" not in (tmp_path / "report.html").read_text()


@pytest.mark.slow(4)
@pytest.mark.usefixtures("forgetful_bookies")
def test_a_violation_is_drawn_and_is_played_again_by_its_report(tmp_path: Path) -> None:
    first = run("run", "--schedules", 30, "--jobs", 1, "--out", tmp_path)
    assert first.exit_code == 1
    seed, _, text = first.stdout.splitlines()[0].removeprefix("seed ").partition(": ")
    page = (tmp_path / "report.html").read_text()
    assert text in page
    assert f'id="head-{seed}"' in page

    again = run("replay", tmp_path / "report.json", "--out", tmp_path / "again.html")

    assert again.exit_code == 1
    assert again.stdout.splitlines()[-1].endswith(text)
    assert text in (tmp_path / "again.html").read_text()


def test_a_schedule_that_violates_nothing_is_said_so() -> None:
    done = run("replay", 1)

    assert done.exit_code == 0
    assert done.stderr == "replay: schedule 1 violates nothing\n"


def test_a_file_that_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")

    assert run("replay", tmp_path / "other.json").exit_code == 3
