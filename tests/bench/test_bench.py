"""The benchmark runs: what it says is for an idle machine, not for a test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import store
from contest import Scenario, why_not
from effort import FULL, QUICK, TINY, Effort
from player import Contender
from result import Bar

if TYPE_CHECKING:
    from pathlib import Path

    from player import Player
    from result import Figures

NOBODY = Contender(name="ours", make="opener:Opener")
ROWS = {scenario.name: scenario for scenario in store.scenarios(TINY)}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ROWS)
def test_every_row_measures_all_who_are_there_and_leaves_nothing(place: Path, name: str) -> None:
    assert store.main(["--tiny", "--only", name, "--json", "said.json"]) == 0
    said = json.loads((place / "said.json").read_text())
    [found] = said["scenarios"]
    assert found["flaws"] == []
    assert found["rounds"]
    present = [one.name for one in ROWS[name].contenders if not why_not(one)]
    for lap in found["rounds"]:
        assert sorted(lap) == sorted(present)
    assert all(judged["ours"] for judged in found["bars"] if judged["subject"] == "ours")
    assert [path.name for path in place.iterdir()] == ["said.json"]


def test_the_file_says_on_what_machine_with_which_settings(place: Path) -> None:
    store.main(["--tiny", "--only", "reopen", "--json", "kept/said.json", "--seed", "7"])
    said = json.loads((place / "kept" / "said.json").read_text())
    assert said["effort"]["seed"] == 7
    assert sorted(said["peers"]) == ["lmdb", "plyvel", "rocksdict", "sqlite3"]
    assert said["machine"]["cpus"] > 0


@pytest.mark.parametrize("effort", [FULL, QUICK], ids=lambda effort: effort.name)
def test_every_floor_is_asked_in_every_effort(effort: Effort) -> None:
    def asked(of: Effort) -> set[tuple[str, str, float]]:
        bars = [(one.name, bar) for one in store.scenarios(of) for bar in one.bars]
        return {(name, bar.label, bar.floor) for name, bar in bars if bar.floor is not None}

    assert asked(effort) == asked(TINY)
    assert len(asked(effort)) >= 20


def test_bars_are_about_contenders_that_take_part() -> None:
    for scenario in store.scenarios(FULL):
        names = {one.name for one in scenario.contenders}
        for bar in scenario.bars:
            assert {bar.subject, *bar.against} <= names


def test_a_whole_run_has_five_rounds_for_every_floor() -> None:
    # But for bytes, which have no spread.
    asked = [one for one in store.scenarios(FULL) if any(bar.floor for bar in one.bars)]
    assert {one.name for one in asked if one.rounds < 5} == {"memory", "index-size", "memtable-size"}


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_a_missed_floor_is_told_and_fails_the_run_only_if_asked(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
) -> None:
    missed = Scenario(
        name="one",
        title="One",
        contenders=[NOBODY],
        turn=lambda _: {"rate": 1.0},
        bars=[Bar(label="rate", floor=2)],
        rounds=1,
    )
    monkeypatch.setattr(store, "ROWS", [lambda _: [missed]])
    assert store.main(options) == code
    assert "missed" in capsys.readouterr().out
    assert list(place.iterdir()) == []


def test_a_row_that_does_not_exist_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        store.main(["--only", "add-1k", "nonsense"])
    assert "no such row: nonsense" in capsys.readouterr().err
    assert list(place.iterdir()) == []


def test_the_rows_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert store.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(
        [*store.scenarios(FULL), *store.asked_scenarios(FULL)]
    )


def test_the_files_of_a_row_are_gone_before_the_next_one_begins(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def look(_: Player) -> Figures:
        [scratch] = place.iterdir()
        found.extend(path.name for path in scratch.iterdir())
        return {"rate": 1.0}

    rows = [
        Scenario(name=name, title=name, contenders=[NOBODY], turn=look, rounds=1) for name in ("one", "two")
    ]
    monkeypatch.setattr(store, "ROWS", [lambda _: rows])
    assert store.main([]) == 0
    assert found == ["one", "one", "two", "two"]  # each once for warming up
