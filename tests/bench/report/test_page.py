"""The page shows every row, contender and floor of a run, escapes all texts, and needs no other file."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import draw_page
import pytest
import store
from contenders import peers
from contest import contest
from contest.contender_process import Contender
from contest.provenance import commit
from contest.result import Bar, Figure, Result, Sense
from contest.run_size import FULL, QUICK, TINY
from report.page import UnknownFormat, curves, number, placed_bars, render
from report.plots import Point, look
from report.text_report import FORMAT, row

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOSTILE = '<script>alert("1")</script>&\'\u202e\x1b[31m\x00'
VOID = {"meta", "br"}
PEERS = {"plyvel": "LevelDB, synced", "lmdb": "no write map"}
RAW = Bar(label="÷ raw", against=("raw",), floor=0.8, aim=0.9)
PEER = Bar(label="÷ best peer", against=("plyvel", "lmdb"), floor=1.2)
MS = Figure("ms", "ms", Sense.LESS)
MB = Figure("mb_per_s", "MB/s")


MACHINE: dict[str, Any] = {
    "processor": "Abacus 7",
    "cpus": 4,
    "load": [0.5, 0.4, 0.3],
    "python": "3.11.7",
    "system": "Linux",
    "sqlite": "3.40.1",
    "packages": {"lmdb": "3.0.0"},
}


class Page(HTMLParser):
    """The elements, the attributes and the words of a page. Every element that is opened must be closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.open: list[str] = []
        self._words: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "script" not in self.open:
            self._words.append(data)

    @property
    def words(self) -> str:
        return " ".join("".join(f"{word} " for word in self._words).split())

    def of_class(self, *names: str) -> list[dict[str, str]]:
        return [found for _, found in self.elements if set(names) <= set(found.get("class", "").split())]


def scenario(name: str = "one", **points: float) -> contest.Scenario:
    return contest.Scenario(
        name=name,
        title=f"The row {name}",
        contenders=(),
        turn=lambda _: {},
        rounds=1,
        work={"size": 1024, "seed": 7},
        points=[contest.CurvePoint(curve, at) for curve, at in points.items()],
    )


def measured(
    one: contest.Scenario, *bars: Bar, figure: str = "rate", **values: tuple[float, ...]
) -> dict[str, Any]:
    """Return a scenario as the JSON has it: contenders, and the values of each in every round."""
    rounds = [
        {name: {figure: value} for name, value in zip(values, lap, strict=True)}
        for lap in zip(*values.values(), strict=True)
    ]
    contenders = [Contender(name=name, make="any:Any", settings={"size": 1024}) for name in values]
    result = Result(scenario=one.name, title=one.title, bars=bars, rounds=rounds)
    return row(result, replace(one, contenders=contenders))


def said(*rows: Mapping[str, Any], **more: object) -> dict[str, Any]:
    """Return the JSON of a run with these scenarios."""
    machine = MACHINE
    whole = {
        "format": FORMAT,
        "machine": machine,
        "effort": asdict(FULL),
        "peers": PEERS,
        "scenarios": rows,
        "date": "2024-11-18 22:10 UTC",
        "commit": "21a9818 and changes",
        **more,
    }
    found: dict[str, Any] = json.loads(json.dumps(whole))
    return found


def shown(*rows: Mapping[str, Any], **more: object) -> Page:
    return Page(render(said(*rows, **more)))


def missed() -> dict[str, Any]:
    return measured(scenario("missed"), RAW, ours=(50, 40, 60), raw=(100, 100, 100))


def met() -> dict[str, Any]:
    return measured(scenario("met"), RAW, ours=(85, 85, 85), raw=(100, 100, 100))


def writers(count: int, **values: Any) -> dict[str, Any]:
    return measured(scenario(f"add-{count}", concurrency=count), **values)


def points(file: dict[str, Any], axis: str, figure: str) -> dict[str, list[Point]]:
    results = {
        one["name"]: Result(scenario=one["name"], title="", rounds=one["rounds"], whole=one["whole"])
        for one in file["scenarios"]
    }
    return curves(file, results, axis, figure)


# ── safety ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_needs_no_other_file_and_no_network() -> None:
    page = shown(missed(), met(), writers(1, ours=(1,)))
    assert not {name for name, _ in page.elements} & {"link", "img", "iframe", "object", "base", "image"}
    assert not {name for _, found in page.elements for name in found if name.startswith("on")}
    references = [found[key] for _, found in page.elements for key in ("href", "src") if key in found]
    assert references
    assert all(reference.startswith("#") for reference in references)
    assert not re.search(r"https?:|url\((?!#)|@import|@font-face", page.source)
    assert "<script></script>" in page.source
    [policy] = [found for _, found in page.elements if found.get("http-equiv")]
    assert "default-src 'none'" in policy["content"]


def test_every_link_leads_to_an_element_and_every_id_is_unique() -> None:
    page = shown(missed(), met(), writers(1, ours=(1,), lmdb=(2,)), writers(8, ours=(1,), lmdb=(2,)))
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert len(ids) == len(set(ids))
    assert {found["href"][1:] for _, found in page.elements if "href" in found} <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", page.source)) <= set(ids)


def test_hostile_texts_are_escaped() -> None:
    bar = replace(RAW, label=HOSTILE, title=HOSTILE, figure=Figure("rate", HOSTILE))
    one = measured(replace(scenario(HOSTILE, concurrency=2, entries=3), title=HOSTILE), bar, ours=(1,))
    one["contenders"][HOSTILE] = {"make": HOSTILE, "settings": {HOSTILE: HOSTILE}, "one_cpu": True}
    one["rounds"][0][HOSTILE] = {"rate": 2.0, HOSTILE: 3.0}
    one["medians"][HOSTILE] = {"rate": 2.0, HOSTILE: 3.0}
    one |= {"work": {HOSTILE: HOSTILE}, "notes": [HOSTILE], "flaws": [HOSTILE]}
    machine = {**MACHINE, **dict.fromkeys(("processor", "system", "python", "sqlite"), HOSTILE)}
    page = shown(
        one,
        peers={HOSTILE: HOSTILE},
        date=HOSTILE,
        commit=HOSTILE,
        machine={**machine, "packages": {HOSTILE: HOSTILE}},
    )
    assert [name for name, _ in page.elements].count("script") == 1
    assert page.source.count("<script>") == 1
    assert '<script>alert("1")</script>' in page.words
    assert "\u202e" not in page.source
    assert "\x1b" not in page.source
    assert not {name for _, found in page.elements for name in found if "script" in name}


def test_the_same_file_gives_the_same_page() -> None:
    file = said(missed(), met(), writers(1, ours=(1,)))
    assert render(file) == render(file)


def test_a_run_without_rows_is_a_page() -> None:
    page = shown()
    assert "No bar of this run has a floor" in page.words
    assert page.of_class("verdict", "empty")


def test_a_file_of_another_format_is_refused() -> None:
    with pytest.raises(UnknownFormat, match=f"format {FORMAT + 1}"):
        render({**said(), "format": FORMAT + 1})


# ── the verdict ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_missed_floor_is_in_the_verdict_and_in_its_row() -> None:
    page = shown(missed(), met())
    assert "Missed: 1 of 2 floors" in page.words
    assert page.of_class("verdict", "broken")
    [line] = [found for name, found in page.elements if name == "tr" and found.get("class") == "missed"]
    assert line["id"] == "bar-0"
    for words in (
        "✗ missed",
        "✓ met",
        "1 /2 floors met",
        "Furthest from its floor: The row missed, ÷ raw , at 62 %",
    ):
        assert words in page.words


def test_the_bar_furthest_from_its_floor_is_named() -> None:
    near, far = (
        measured(scenario(name), RAW, ours=(value,), raw=(100,)) for name, value in (("near", 79), ("far", 8))
    )
    assert "Furthest from its floor: The row far, ÷ raw , at 10 % of it." in shown(near, far).words


def test_a_run_that_meets_every_floor_says_so() -> None:
    page = shown(met())
    assert "Met: all of 1 floor" in page.words
    assert page.of_class("verdict", "fine")
    assert not page.of_class("missed")


def test_a_floor_that_was_not_measured_is_not_met() -> None:
    page = shown(met(), measured(scenario(), PEER, ours=(1,)))
    assert "Not measured: 1 of 2 floors" in page.words
    assert page.of_class("verdict", "empty")
    assert page.of_class("not_measured")
    assert "NOT MEASURED The row one : ÷ best peer" in page.words


def test_a_met_aim_is_counted_beside_the_floors() -> None:
    page = shown(measured(scenario(), RAW, ours=(95,), raw=(100,)), met())
    assert "Aims beyond the floors: 1 of 2 met." in page.words
    assert "Met: all of 2 floors" in page.words
    assert "★ aim met" in page.words


def test_the_page_says_when_where_and_how_it_was_measured() -> None:
    page = shown(met())
    facts = ("2024-11-18 22:10 UTC", "21a9818 and changes", "Abacus 7 × 4", "full, 7 rounds", "lmdb 3.0.0")  # noqa: RUF001
    for fact in facts:
        assert fact in page.words


def test_a_run_without_a_commit_has_no_such_fact() -> None:
    assert "commit" not in shown(met(), commit="").words


@pytest.mark.parametrize(("load", "is_warned"), [(3.0, True), (1.0, False)])
def test_the_page_warns_of_a_busy_machine(load: float, is_warned: bool) -> None:
    page = shown(met(), machine={**MACHINE, "load": [load, 0, 0]})
    assert ("load 3.0 on 4 CPUs" in page.words) is is_warned


@pytest.mark.parametrize(
    ("effort", "words"), [(QUICK, "a short run"), (TINY, "its figures mean nothing"), (FULL, "")]
)
def test_a_run_that_is_not_full_says_so(effort: Any, words: str) -> None:
    page = shown(met(), effort=asdict(effort))
    assert words in page.words
    assert bool(page.of_class("gaps")) is bool(words)


def test_flaws_and_notes_are_shown() -> None:
    flawed = {**missed(), "flaws": ["raw: broken"], "notes": ["plyvel is not installed"]}
    page = shown(flawed)
    assert "FLAW The row missed : raw: broken; no floor is met with it" in page.words
    assert "NOTE The row missed : plyvel is not installed" in page.words


# ── bars ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_bar_has_a_row_with_its_figures_its_floor_and_its_aim() -> None:
    page = shown(missed(), met())
    assert [found["id"] for name, found in page.elements if name == "tr" and "id" in found] == [
        "bar-0",
        "bar-1",
    ]
    assert "The row missed ÷ raw: ours 50.0/s ÷ raw 100/s 0.500 floor 0.8 aim 0.9 ✗ missed" in page.words


def test_every_bar_of_a_group_has_its_median_and_its_rounds_in_one_plot() -> None:
    page = shown(missed(), met())
    [plot] = [found for name, found in page.elements if name == "svg"]
    assert "The row missed, rounds 0.500, 0.400, 0.600" in plot["aria-label"]
    ids = [found.get("id") for _, found in page.elements]
    assert {"bars-0.median-0", "bars-0.median-1"} <= set(ids)


def test_better_than_the_floor_is_to_the_right_even_if_less_is_better() -> None:
    quick, slow = (
        measured(scenario(name), Bar(label="ms", figure=MS, floor=50), figure="ms", ours=(value,))
        for name, value in (("quick", 5.0), ("slow", 500.0))
    )
    found = placed_bars(said(quick, slow))
    assert [one.values for one in found] == [[10], [0.1]]
    assert [one.floor for one in found] == [1, 1]
    assert "ms 5.00 ms floor 50 ms" in shown(quick, slow).words


def test_a_figure_in_its_own_unit_is_a_multiple_of_its_floor() -> None:
    one = measured(scenario(), Bar(label="MB", figure=MB, floor=200, aim=300), figure="mb_per_s", ours=(500,))
    [found] = placed_bars(said(one))
    assert (found.values, found.aim) == ([2.5], 1.5)


def test_a_cost_of_zero_is_shown() -> None:
    page = shown(measured(scenario(), Bar(label="ms", figure=MS, floor=50), figure="ms", ours=(0.0,)))
    assert "ms 0 ms floor 50 ms ✓ met" in page.words


def test_of_bars_without_a_floor_only_ratios_are_on_the_chart() -> None:
    bars = Bar(label="÷ raw", against=("raw",)), Bar(label="adds")
    page = shown(measured(scenario(), *bars, ours=(1,), raw=(2,)))
    assert [found["id"] for found in page.of_class("told")] == ["bar-0"]


@pytest.mark.parametrize(
    ("against", "group"),
    [
        (("raw",), "raw"),
        (("raw, futex",), "raw"),
        (("plyvel", "lmdb"), "peer"),
        (("plyvel", "lmdb without a map"), "peer"),
        (("lmdb",), "other"),
        (("plyvel, batches",), "other"),
        (("ours without checkpoints",), "other"),
    ],
)
def test_bars_are_grouped_by_what_they_are_compared_with(against: tuple[str, ...], group: str) -> None:
    theirs: dict[str, Any] = dict.fromkeys(against, (2,))
    one = measured(scenario(), Bar(label="÷", against=against), ours=(1,), **theirs)
    assert [found.group for found in placed_bars(said(one))] == [group]


def test_a_bar_in_its_own_unit_has_a_group_of_its_own() -> None:
    one = measured(scenario(), Bar(label="adds", floor=1), ours=(1,))
    assert [found.group for found in placed_bars(said(one))] == ["own"]


def test_a_group_without_rows_says_that_it_was_not_measured() -> None:
    assert "÷ best peer Not measured in this run." in shown(missed()).words


# ── plots ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_point_of_a_curve_is_the_median_with_the_middle_half_of_the_rounds() -> None:
    file = said(writers(8, ours=(1, 2, 3, 4, 100)), writers(1, ours=(5,)), missed())
    assert points(file, "concurrency", "rate") == {"ours": [Point(1, 5, 5, 5), Point(8, 3, 2, 4)]}


def test_a_contender_with_one_point_has_no_curve_beside_longer_ones() -> None:
    rows = writers(1, ours=(5,)), writers(8, ours=(5,), batches=(7,))
    assert list(points(said(*rows), "concurrency", "rate")) == ["ours"]
    assert list(points(said(rows[1]), "concurrency", "rate")) == ["ours", "batches"]


def test_throughput_and_latencies_are_plotted_by_the_number_of_writers() -> None:
    values: dict[str, Any] = {"ours": (5.0,), "ours, asynchronous": (6.0,), "lmdb": (7.0,)}
    rows = [
        measured(scenario(f"{count}-{figure}", concurrency=count), figure=figure, **values)
        for count in (1, 8)
        for figure in ("rate", "p50", "p99", "p999")
    ]
    page = shown(*rows)
    for title in ("Throughput", "Latency, p50", "Latency, p99", "Latency, p99.9"):
        assert title in page.words
    drawn = [found["aria-label"] for name, found in page.elements if name == "svg"]
    assert len(drawn) == 4
    assert drawn[0] == "At 8 writers at once: lmdb 7, ours, asynchronous 6, ours 5"
    assert drawn[1] == "At 8 writers at once: lmdb 7 µs, ours, asynchronous 6 µs, ours 5 µs"
    assert len(re.findall(r'id="[^"]*\.curve-\d', page.source)) == 12
    for name in values:
        assert page.source.count(f">{name}</text>") == 4


def test_the_cost_of_a_growing_store_is_plotted_with_its_change() -> None:
    rows = [
        measured(scenario(f"{figure}-{count}", entries=count), figure=figure, ours=(cost,))
        for figure in ("us_per_add", "us_per_read", "open_ms")
        for count, cost in ((100_000, 10.0), (10_000_000, 11.0))
    ]
    page = shown(*rows)
    assert len([name for name, _ in page.elements if name == "svg"]) == 3
    assert "ours: +10 % from 100k to 10M" in page.words
    assert "entries in the store" in page.words
    assert "More writers at once Not measured in this run" in page.words


def test_plots_have_the_colours_of_the_style_sheet() -> None:
    page = shown(writers(1, ours=(1,), lmdb=(2,)))
    assert "stroke: var(--ours)" in page.source
    assert "stroke: var(--lmdb)" in page.source
    assert not re.search("#0000[0-9a-f]{2}", page.source)


def test_every_contender_has_a_colour_and_a_marker_of_its_own() -> None:
    names = ("ours", "ours, asynchronous", "raw", "raw, futex", *peers.SETTINGS)
    assert len({look(name)[0] for name in names}) == len(names)
    assert len({look(name)[1] for name in names}) == len(names)


def test_a_variant_looks_like_the_contender_it_is_named_after() -> None:
    assert look("plyvel, batches") == look("plyvel")
    assert look("raw, futex, twice") == look("raw, futex")
    assert look("unknown")[0] == "other"


# ── figures and settings ─────────────────────────────────────────────────────────────────────────────────


def test_every_scenario_has_a_table_and_every_contender_a_line_with_its_figures() -> None:
    page = shown(missed(), measured(scenario("two"), ours=(11_000, 12_000, 16_000), rocksdict=(3, 3, 3)))
    for words in ("The row missed", "The row two", "ours 12,000 11,000…16,000", "rocksdict 3.00"):
        assert words in page.words
    # The bar has a row in the chart, too.
    assert len([found for _, found in page.elements if found.get("scope") == "row"]) == 5


def test_a_contender_that_was_not_measured_has_a_line_that_says_so() -> None:
    one = met()
    one["contenders"]["plyvel"] = {"make": "contenders.peers:LevelDb", "settings": {}, "one_cpu": False}
    assert "plyvel – not measured" in shown(one).words  # noqa: RUF001


def test_an_unknown_figure_is_shown_under_its_own_name() -> None:
    bar = Bar(label="bytes", figure=Figure("index_bytes", "B/entry", Sense.LESS), floor=20)
    page = shown(measured(scenario(), bar, figure="index_bytes", ours=(17.5,)))
    assert "index bytes B/entry" in page.words
    assert "17.5" in page.words


def test_the_settings_of_peers_and_contenders_are_shown() -> None:
    one = met()
    one["contenders"]["ours"]["settings"] = {"size": 1024, "seed": 7, "journal_size": 4096}
    one["contenders"]["ours"]["one_cpu"] = True
    page = shown(one)
    for name, words in PEERS.items():
        assert f"{name} {words}" in page.words
    assert "ours journal_size 4096 in met" in page.words
    assert "ours on one CPU in met" in page.words


def test_the_page_says_how_to_run_it_again() -> None:
    page = shown(met())
    assert "make bench" in page.words
    assert "python bench/store.py --only met" in page.words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_234_567.8, "1,234,568"),
        (99.96, "100"),
        (12, "12.0"),
        (0.3, "0.300"),
        (0, "0"),
        (0.00012345, "0.000123"),
    ],
)
def test_a_number_has_commas_or_three_digits(value: float, text: str) -> None:
    assert number(value) == text


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_writes_its_page_and_the_same_page_can_be_drawn_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    contender = Contender(name="ours", make="contenders.reopening_contender:ReopeningContender")
    one = contest.Scenario(
        name="one", title="One", contenders=[contender], turn=lambda _: {"rate": 1.0}, rounds=2
    )
    monkeypatch.setattr(store, "ROWS", [lambda _: [one]])
    assert store.main(["--json", "kept/run.json", "--html", "kept/run.html"]) == 0
    assert "kept/run.html" in capsys.readouterr().out
    assert draw_page.main(["kept/run.json", "again/run.html"]) == 0
    page = (tmp_path / "kept" / "run.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "again" / "run.html").read_text(encoding="utf-8")
    assert "One" in Page(page).words
    assert json.loads((tmp_path / "kept" / "run.json").read_text())["date"] in Page(page).words


def test_outside_of_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit(tmp_path) == ""
    monkeypatch.setenv("PATH", "")
    assert commit(tmp_path) == ""
