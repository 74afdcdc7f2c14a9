"""Contests: missing and failing contenders, the order of turns, and the processes of contenders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import toy_contenders
from contenders import raw
from contest import contest
from contest.contender_process import Contender, ContenderFailed, ContenderProcess
from contest.contest import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contest.result import Figures, Result

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


def work(process: ContenderProcess) -> Figures:
    figures: Figures = process.ask("work")
    return figures


def held(place: Path, *contenders: Contender, rounds: int = 1, warm_up: int = 0) -> Result:
    scenario = Scenario(
        name="one", title="One", contenders=contenders, turn=work, rounds=rounds, warm_up=warm_up
    )
    return contest.run_scenario(scenario, place)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ContenderProcess]:
    with ContenderProcess(toy("toy"), tmp_path) as process:
        yield process


def test_a_round_for_warming_up_is_not_counted(tmp_path: Path) -> None:
    found = held(tmp_path, toy("one", rates=[9, 1, 2]), rounds=2, warm_up=1)
    assert found.rounds == [{"one": {"rate": 1}}, {"one": {"rate": 2}}]


def test_another_contender_begins_in_each_round(tmp_path: Path) -> None:
    held(tmp_path, toy("one"), toy("two"), toy("three"), rounds=3)
    assert (tmp_path / "order").read_text().split() == [
        *("one", "two", "three"),
        *("two", "three", "one"),
        *("three", "one", "two"),
    ]


def test_a_contender_that_is_not_installed_is_noted_and_the_others_run(tmp_path: Path) -> None:
    found = held(tmp_path, toy("one"), toy("missing", package="no-such-peer"))
    assert found.rounds == [{"one": {"rate": 1}}]
    assert found.notes == ["no-such-peer is not installed: pip install no-such-peer"]
    assert not found.flaws


def test_without_a_compiler_the_raw_limit_is_noted_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert raw.why_unavailable() == raw.NO_COMPILER
    found = held(tmp_path, toy("one"), toy("raw", cannot=raw.why_unavailable()))
    assert found.notes == [raw.NO_COMPILER]


def test_a_contender_that_fails_is_a_flaw_and_is_left_out_of_later_rounds(tmp_path: Path) -> None:
    found = held(tmp_path, toy("one"), toy("broken", fails_at=2), rounds=3)
    assert [sorted(lap) for lap in found.rounds] == [["broken", "one"], ["one"], ["one"]]
    [flaw] = found.flaws
    assert "the toy is broken" in flaw
    assert found.values("broken", "rate") == []


def test_a_system_that_cannot_keep_a_process_on_one_cpu_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    found = held(tmp_path, toy("one", one_cpu="the row is about that"))
    assert found.notes == ["not measured: this system cannot keep a process on one CPU"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot")
def test_a_process_is_kept_on_one_cpu_if_its_row_needs_that(tmp_path: Path) -> None:
    with ContenderProcess(toy("one", one_cpu="the row is about that"), tmp_path) as process:
        assert process.ask("cpus") == 1


def test_output_of_a_library_is_not_taken_for_an_answer(process: ContenderProcess) -> None:
    assert process.ask("speak") == "understood"


def test_a_process_that_dies_has_failed_and_the_next_request_starts_another(
    process: ContenderProcess,
) -> None:
    process.ask("work")
    with pytest.raises(ContenderFailed, match="its process ended with exit code 3"):
        process.ask("die")
    assert process.ask("turns") == 0


def test_a_stopped_process_closes_its_store_and_a_killed_one_does_not(
    process: ContenderProcess,
) -> None:
    process.ask("turns")
    process.kill()
    assert not (process.place / "closed").exists()
    process.ask("turns")
    process.stop()
    assert (process.place / "closed").exists()


def test_no_process_is_left_running(tmp_path: Path) -> None:
    with ContenderProcess(toy("one"), tmp_path) as process:
        started = process.start()
    assert started.poll() is not None
