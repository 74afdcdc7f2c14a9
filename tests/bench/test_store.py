"""The benchmark runs, and reports what it measured. The figures mean nothing in a test."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import store
from contest.contender_process import Contender
from contest.contest import Scenario, why_unavailable
from contest.result import Bar
from contest.run_size import FULL, QUICK, TINY, RunSize

if TYPE_CHECKING:
    from pathlib import Path

    from contest.contender_process import ContenderProcess
    from contest.result import Figures

CONTENDER = Contender(name="ours", make="contenders.reopening_contender:ReopeningContender")
ROWS = {scenario.name: scenario for scenario in store.scenarios(TINY)}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.bench
@pytest.mark.parametrize("name", ROWS)
def test_every_row_measures_all_available_contenders_and_leaves_no_files(place: Path, name: str) -> None:
    assert store.main(["--tiny", "--only", name, "--json", "run.json"]) == 0
    run = json.loads((place / "run.json").read_text())
    [found] = run["scenarios"]
    assert found["flaws"] == []
    assert found["rounds"]
    present = [one.name for one in ROWS[name].contenders if not why_unavailable(one)]
    for lap in found["rounds"]:
        assert sorted(lap) == sorted(present)
    assert all(judged["ours"] for judged in found["bars"] if judged["subject"] == "ours")
    assert [path.name for path in place.iterdir()] == ["run.json"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["add-1k", "batch-64-1k", "sustained"])
def test_a_row_of_our_store_only_measures_and_leaves_no_files(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ours = [one for one in ROWS[name].contenders if one.name == "ours"]
    monkeypatch.setattr(store, "ROWS", [lambda _: [replace(ROWS[name], contenders=ours, bars=[])]])
    assert store.main(["--tiny", "--json", "run.json"]) == 0
    [found] = json.loads((place / "run.json").read_text())["scenarios"]
    assert (found["flaws"], [[*lap] for lap in found["rounds"]]) == ([], [["ours"]])
    assert [path.name for path in place.iterdir()] == ["run.json"]


@pytest.mark.bench
def test_the_json_names_the_machine_and_the_settings(place: Path) -> None:
    store.main(["--tiny", "--only", "reopen", "--json", "kept/run.json", "--seed", "7"])
    run = json.loads((place / "kept" / "run.json").read_text())
    assert run["effort"]["seed"] == 7
    assert sorted(run["peers"]) == ["lmdb", "plyvel", "rocksdict", "sqlite3"]
    assert run["machine"]["cpus"] > 0


@pytest.mark.parametrize("run_size", [FULL, QUICK], ids=lambda run_size: run_size.name)
def test_every_run_size_has_the_same_floors(run_size: RunSize) -> None:
    def floors(of: RunSize) -> set[tuple[str, str, float]]:
        bars = [(one.name, bar) for one in store.scenarios(of) for bar in one.bars]
        return {(name, bar.label, bar.floor) for name, bar in bars if bar.floor is not None}

    assert floors(run_size) == floors(TINY)
    assert len(floors(run_size)) >= 20


def test_bars_are_about_contenders_that_take_part() -> None:
    for scenario in store.scenarios(FULL):
        names = {one.name for one in scenario.contenders}
        for bar in scenario.bars:
            assert {bar.subject, *bar.against} <= names


def test_a_full_run_has_five_rounds_for_every_floor() -> None:
    # Sizes in bytes need one round only, because they have no spread.
    asked = [one for one in store.scenarios(FULL) if any(bar.floor for bar in one.bars)]
    assert {one.name for one in asked if one.rounds < 5} == {"memory", "index-size", "memtable-size"}


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_a_missed_floor_is_shown_and_fails_only_a_strict_run(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
) -> None:
    missed = Scenario(
        name="one",
        title="One",
        contenders=[CONTENDER],
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
        [*store.scenarios(FULL), *store.optional_scenarios(FULL)]
    )


def test_the_files_of_a_row_are_gone_before_the_next_one_begins(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def look(_: ContenderProcess) -> Figures:
        [scratch] = place.iterdir()
        found.extend(path.name for path in scratch.iterdir())
        return {"rate": 1.0}

    rows = [
        Scenario(name=name, title=name, contenders=[CONTENDER], turn=look, rounds=1)
        for name in ("one", "two")
    ]
    monkeypatch.setattr(store, "ROWS", [lambda _: rows])
    assert store.main([]) == 0
    assert found == ["one", "one", "two", "two"]  # each once for warming up
