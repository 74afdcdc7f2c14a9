"""Ratios and verdicts of given rounds."""

from __future__ import annotations

import json

import pytest
from contest.contest import CurvePoint, Scenario
from contest.result import Bar, BarVerdict, Figure, Result, Sense
from report.text_report import remarks, row, table
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
    [judged] = measured(RAW, ours=(10, 100, 50), raw=(10, 100, 100)).bar_results()
    assert judged.values == [1, 1, 0.5]
    assert judged.median == 1
    assert (judged.ours, judged.theirs, judged.than) == (50, 100, "raw")


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (79.0, BarVerdict.MISSED),
        (80.0, BarVerdict.MET),
        (89.0, BarVerdict.MET),
        (90.0, BarVerdict.AIM_MET),
    ],
)
def test_a_floor_and_an_aim_are_met_by_the_median(ours: float, verdict: BarVerdict) -> None:
    [judged] = measured(RAW, ours=(1, ours, 1000), raw=(100, 100, 100)).bar_results()
    assert judged.verdict is verdict


def test_the_peer_with_the_best_median_is_compared_in_every_round() -> None:
    [judged] = measured(PEERS, ours=(12, 12, 12), slow=(5, 40, 5), fast=(10, 10, 8)).bar_results()
    assert judged.than == "fast"
    assert judged.values == [1.2, 1.2, 1.5]
    assert judged.verdict is BarVerdict.MET


def test_a_ratio_above_one_means_ours_is_better_even_if_less_is_better() -> None:
    bar = Bar(label="÷ best peer", figure=SECONDS, against=("slow", "fast"), floor=1.5)
    lap = {"ours": {"seconds": 1.0}, "slow": {"seconds": 9.0}, "fast": {"seconds": 2.0}}
    [judged] = Result(scenario="one", title="One", bars=[bar], rounds=[lap]).bar_results()
    assert (judged.than, judged.values, judged.verdict) == ("fast", [2.0], BarVerdict.MET)


@pytest.mark.parametrize(
    ("value", "verdict"), [(9.0, BarVerdict.MISSED), (8.0, BarVerdict.MET), (5.0, BarVerdict.AIM_MET)]
)
def test_a_figure_can_have_an_upper_limit(value: float, verdict: BarVerdict) -> None:
    bar = Bar(label="seconds", figure=SECONDS, floor=8, aim=5)
    [judged] = Result(
        scenario="one", title="One", bars=[bar], rounds=[{"ours": {"seconds": value}}]
    ).bar_results()
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
    assert one.bar_results()[0].values == [7]


def test_a_bar_without_a_floor_is_only_reported() -> None:
    [judged] = measured(Bar(label="÷ raw", against=("raw",)), ours=(1,), raw=(2,)).bar_results()
    assert judged.verdict is BarVerdict.TOLD
    assert not judged.verdict.fails


def test_a_floor_of_a_missing_figure_is_not_met() -> None:
    [judged] = measured(RAW, ours=(1,)).bar_results()
    assert judged.verdict is BarVerdict.NOT_MEASURED
    assert judged.verdict.fails
    assert "not measured" in shown(measured(RAW, ours=(1,)))


def test_a_ratio_needs_only_some_of_its_peers() -> None:
    [judged] = measured(PEERS, ours=(12,), slow=(10,)).bar_results()
    assert (judged.than, judged.verdict) == ("slow", BarVerdict.MET)


def test_no_floor_is_met_with_a_flaw() -> None:
    one = measured(RAW, ours=(100,), raw=(100,), flaws=("raw: broken",))
    assert one.bar_results()[0].verdict is BarVerdict.MISSED
    assert remarks([one]) == ["one: raw: broken"]


def test_a_bar_can_be_about_another_of_our_contenders() -> None:
    bar = Bar(label="÷ raw", subject="awaited", against=("raw",), floor=2)
    assert measured(bar, ours=(1,), awaited=(30,), raw=(10,)).bar_results()[0].values == [3]


def test_the_table_shows_the_best_peer_and_the_spread_of_the_rounds() -> None:
    text = shown(measured(PEERS, ours=(12_000, 12_000), slow=(5, 5), fast=(10_000, 8_000)))
    assert "One" in text
    assert "12,000/s" in text
    assert "fast" in text
    assert "1.2 … 1.5" in text
    assert "≥ 1.2" in text
    assert "met" in text


def test_the_same_remark_about_several_rows_is_printed_once() -> None:
    one = Result(scenario="one", title="One", notes=["plyvel is not installed"])
    two = Result(scenario="two", title="Two", notes=["plyvel is not installed"])
    assert remarks([one, two]) == ["plyvel is not installed (one, two)"]


def test_the_file_has_every_round_and_the_medians() -> None:
    scenario = Scenario(
        name="one", title="One", contenders=(), turn=lambda _: {}, rounds=3, points=(CurvePoint("c", 8),)
    )
    found = row(measured(RAW, ours=(10, 100, 50), raw=(10, 100, 100)), scenario)
    assert found["rounds"] == [
        {"ours": {"rate": 10}, "raw": {"rate": 10}},
        {"ours": {"rate": 100}, "raw": {"rate": 100}},
        {"ours": {"rate": 50}, "raw": {"rate": 100}},
    ]
    assert found["medians"] == {"ours": {"rate": 50}, "raw": {"rate": 100}}
    assert found["points"] == {"c": 8}
    assert json.dumps(found)
