"""Ratios of made-up rounds, and what they come to."""

from __future__ import annotations

import json

import pytest
from contest import Point, Scenario
from report import remarks, row, table
from result import Bar, Figure, Result, Sense, Verdict
from rich.console import Console

SECONDS = Figure("seconds", "s", Sense.LESS)
RAW = Bar(label="÷ raw", against=("raw",), floor=0.8, aim=0.9)
PEERS = Bar(label="÷ best peer", against=("slow", "fast"), floor=1.2)


def measured(*bars: Bar, flaws: tuple[str, ...] = (), **rates: tuple[float, ...]) -> Result:
    rounds = [
        {name: {"rate": rate} for name, rate in zip(rates, lap, strict=True)}
        for lap in zip(*rates.values(), strict=True)
    ]
    return Result(scenario="one", title="One", bars=bars, rounds=rounds, flaws=flaws)


def shown(*results: Result) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        console.print(table(results))
    return captured.get()


def test_each_round_is_compared_with_the_same_round() -> None:
    [judged] = measured(RAW, ours=(10, 100, 50), raw=(10, 100, 100)).judge()
    assert judged.values == [1, 1, 0.5]
    assert judged.median == 1
    assert (judged.ours, judged.theirs, judged.than) == (50, 100, "raw")


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (79.0, Verdict.MISSED),
        (80.0, Verdict.MET),
        (89.0, Verdict.MET),
        (90.0, Verdict.AIM_MET),
    ],
)
def test_a_floor_and_an_aim_are_met_by_the_median(ours: float, verdict: Verdict) -> None:
    [judged] = measured(RAW, ours=(1, ours, 1000), raw=(100, 100, 100)).judge()
    assert judged.verdict is verdict


def test_the_best_peer_has_the_best_median_and_stays_so_in_every_round() -> None:
    [judged] = measured(PEERS, ours=(12, 12, 12), slow=(5, 40, 5), fast=(10, 10, 8)).judge()
    assert judged.than == "fast"
    assert judged.values == [1.2, 1.2, 1.5]
    assert judged.verdict is Verdict.MET


def test_where_less_is_better_a_ratio_above_one_is_still_ours_being_better() -> None:
    bar = Bar(label="÷ best peer", figure=SECONDS, against=("slow", "fast"), floor=1.5)
    lap = {"ours": {"seconds": 1.0}, "slow": {"seconds": 9.0}, "fast": {"seconds": 2.0}}
    [judged] = Result(scenario="one", title="One", bars=[bar], rounds=[lap]).judge()
    assert (judged.than, judged.values, judged.verdict) == ("fast", [2.0], Verdict.MET)


@pytest.mark.parametrize(
    ("value", "verdict"), [(9.0, Verdict.MISSED), (8.0, Verdict.MET), (5.0, Verdict.AIM_MET)]
)
def test_a_figure_itself_may_have_to_stay_below_something(value: float, verdict: Verdict) -> None:
    bar = Bar(label="seconds", figure=SECONDS, floor=8, aim=5)
    [judged] = Result(scenario="one", title="One", bars=[bar], rounds=[{"ours": {"seconds": value}}]).judge()
    assert judged.verdict is verdict


def test_a_figure_of_all_rounds_together_counts_once() -> None:
    bar = Bar(label="seconds", figure=SECONDS, floor=8)
    one = Result(
        scenario="one",
        title="One",
        bars=[bar],
        rounds=[{"ours": {"rate": 1.0}}] * 3,
        whole={"ours": {"seconds": 7}},
    )
    assert one.judge()[0].values == [7]


def test_a_bar_without_a_floor_is_only_told() -> None:
    [judged] = measured(Bar(label="÷ raw", against=("raw",)), ours=(1,), raw=(2,)).judge()
    assert judged.verdict is Verdict.TOLD
    assert not judged.verdict.fails


def test_what_was_not_measured_is_not_met() -> None:
    [judged] = measured(RAW, ours=(1,)).judge()
    assert judged.verdict is Verdict.NOT_MEASURED
    assert judged.verdict.fails
    assert "not measured" in shown(measured(RAW, ours=(1,)))


def test_the_peers_that_are_there_are_enough_for_a_ratio() -> None:
    [judged] = measured(PEERS, ours=(12,), slow=(10,)).judge()
    assert (judged.than, judged.verdict) == ("slow", Verdict.MET)


def test_with_a_flaw_no_floor_is_met() -> None:
    one = measured(RAW, ours=(100,), raw=(100,), flaws=("raw: broken",))
    assert one.judge()[0].verdict is Verdict.MISSED
    assert remarks([one]) == ["one: raw: broken"]


def test_a_bar_may_be_about_another_of_our_contenders() -> None:
    bar = Bar(label="÷ raw", subject="awaited", against=("raw",), floor=2)
    assert measured(bar, ours=(1,), awaited=(30,), raw=(10,)).judge()[0].values == [3]


def test_the_table_says_who_was_best_and_how_far_apart_the_rounds_are() -> None:
    said = shown(measured(PEERS, ours=(12_000, 12_000), slow=(5, 5), fast=(10_000, 8_000)))
    assert "One" in said
    assert "12,000/s" in said
    assert "fast" in said
    assert "1.2 … 1.5" in said
    assert "≥ 1.2" in said
    assert "met" in said


def test_the_same_remark_about_several_rows_is_made_once() -> None:
    one = Result(scenario="one", title="One", notes=["plyvel is not installed"])
    two = Result(scenario="two", title="Two", notes=["plyvel is not installed"])
    assert remarks([one, two]) == ["plyvel is not installed (one, two)"]


def test_the_file_has_every_round_and_the_medians() -> None:
    scenario = Scenario(
        name="one", title="One", contenders=(), turn=lambda _: {}, rounds=3, points=(Point("c", 8),)
    )
    said = row(measured(RAW, ours=(10, 100, 50), raw=(10, 100, 100)), scenario)
    assert said["rounds"] == [
        {"ours": {"rate": 10}, "raw": {"rate": 10}},
        {"ours": {"rate": 100}, "raw": {"rate": 100}},
        {"ours": {"rate": 50}, "raw": {"rate": 100}},
    ]
    assert said["medians"] == {"ours": {"rate": 50}, "raw": {"rate": 100}}
    assert said["points"] == {"c": 8}
    assert json.dumps(said)
