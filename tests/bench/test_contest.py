"""Who takes part, who is missing, who fails; in which order they take turns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import contest
import pytest
import raw
import toy_contenders
from contest import Scenario
from player import Contender, Failed, Player

if TYPE_CHECKING:
    from collections.abc import Iterator

    from result import Figures, Result

TOYS = {"PYTHONPATH": str(Path(toy_contenders.__file__).parent)}


def toy(name: str, package: str = "", one_cpu: str = "", cannot: str = "", **settings: object) -> Contender:
    return Contender(
        name=name,
        make="toy_contenders:Toy",
        settings=settings,
        package=package,
        one_cpu=one_cpu,
        cannot=cannot,
        environment=TOYS,
    )


def work(player: Player) -> Figures:
    figures: Figures = player.ask("work")
    return figures


def held(place: Path, *contenders: Contender, rounds: int = 1, warm_up: int = 0) -> Result:
    scenario = Scenario(
        name="one", title="One", contenders=contenders, turn=work, rounds=rounds, warm_up=warm_up
    )
    return contest.hold(scenario, place)


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    with Player(toy("toy"), tmp_path) as player:
        yield player


def test_a_round_for_warming_up_is_not_counted(tmp_path: Path) -> None:
    found = held(tmp_path, toy("one", rates=[9, 1, 2]), rounds=2, warm_up=1)
    assert found.rounds == [{"one": {"rate": 1}}, {"one": {"rate": 2}}]


def test_who_begins_changes_from_round_to_round(tmp_path: Path) -> None:
    held(tmp_path, toy("one"), toy("two"), toy("three"), rounds=3)
    assert (tmp_path / "order").read_text().split() == [
        *("one", "two", "three"),
        *("two", "three", "one"),
        *("three", "one", "two"),
    ]


def test_who_is_not_installed_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    found = held(tmp_path, toy("one"), toy("nobody", package="no-such-peer"))
    assert found.rounds == [{"one": {"rate": 1}}]
    assert found.notes == ["no-such-peer is not installed: pip install no-such-peer"]
    assert not found.flaws


def test_without_a_compiler_the_raw_limit_is_noted_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert raw.why_not() == raw.NO_COMPILER
    found = held(tmp_path, toy("one"), toy("raw", cannot=raw.why_not()))
    assert found.notes == [raw.NO_COMPILER]


def test_who_fails_is_a_flaw_and_takes_no_further_part(tmp_path: Path) -> None:
    found = held(tmp_path, toy("one"), toy("broken", fails_at=2), rounds=3)
    assert [sorted(said) for said in found.rounds] == [["broken", "one"], ["one"], ["one"]]
    [flaw] = found.flaws
    assert "the toy is broken" in flaw
    assert found.values("broken", "rate") == []


def test_where_a_process_cannot_be_kept_on_one_cpu_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    found = held(tmp_path, toy("one", one_cpu="the row is about that"))
    assert found.notes == ["not measured: this system cannot keep a process on one CPU"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot")
def test_a_process_is_kept_on_one_cpu_if_the_row_is_about_that(tmp_path: Path) -> None:
    with Player(toy("one", one_cpu="the row is about that"), tmp_path) as player:
        assert player.ask("cpus") == 1


def test_what_a_library_prints_is_no_answer(player: Player) -> None:
    assert player.ask("speak") == "understood"


def test_a_process_that_dies_has_failed_and_the_next_question_begins_another(player: Player) -> None:
    player.ask("work")
    with pytest.raises(Failed, match="its process has ended with 3"):
        player.ask("die")
    assert player.ask("turns") == 0


def test_a_player_that_is_stopped_closes_in_order_and_one_that_is_killed_does_not(player: Player) -> None:
    player.ask("turns")
    player.kill()
    assert not (player.place / "closed").exists()
    player.ask("turns")
    player.stop()
    assert (player.place / "closed").exists()


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    with Player(toy("one"), tmp_path) as player:
        process = player.start()
    assert process.poll() is not None
