"""The page: all that a run says is on it, nothing on it can break it, and it needs no other file."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import draw
import peers
import pytest
import store
from contest import Point, Scenario
from effort import FULL, QUICK, TINY
from origin import commit
from page.curves import Spot, curves
from page.document import render
from page.looks import look
from page.run import UnknownFormat, load
from page.standing import Group, Score, Tone, standings
from player import Contender
from report import FORMAT, row
from result import Bar, Figure, Result, Sense

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HOSTILE = '<script>alert("1")</script>&\'\u202e\x1b[31m\x00'
VOID = {"meta", "wbr"}
PEERS = {"plyvel": "LevelDB, synced", "lmdb": "no write map"}
RAW = Bar(label="÷ raw", against=("raw",), floor=0.8, aim=0.9)
PEER = Bar(label="÷ best peer", against=("plyvel", "lmdb"), floor=1.2)
MS = Figure("ms", "ms", Sense.LESS)
MB = Figure("mb_per_s", "MB/s")


class Page(HTMLParser):
    """A page as a browser would take it: its elements in balance, its words, its attributes."""

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
        if self.open[-1:] != ["style"]:
            self._words.append(data)

    @property
    def words(self) -> str:
        return " ".join("".join(f"{word} " for word in self._words).split())

    def of_class(self, *names: str) -> list[dict[str, str]]:
        return [found for _, found in self.elements if set(names) <= set(found.get("class", "").split())]


def scenario(name: str = "one", **points: float) -> Scenario:
    return Scenario(
        name=name,
        title=f"The row {name}",
        contenders=(),
        turn=lambda _: {},
        rounds=1,
        work={"size": 1024, "seed": 7},
        points=[Point(curve, at) for curve, at in points.items()],
    )


def measured(one: Scenario, *bars: Bar, figure: str = "rate", **values: tuple[float, ...]) -> dict[str, Any]:
    """A scenario as the file says it: contenders, and what each has said in every round."""
    rounds = [
        {name: {figure: value} for name, value in zip(values, lap, strict=True)}
        for lap in zip(*values.values(), strict=True)
    ]
    contenders = [Contender(name=name, make="any:Any", settings={"size": 1024}) for name in values]
    result = Result(scenario=one.name, title=one.title, bars=bars, rounds=rounds)
    return row(result, replace(one, contenders=contenders))


def said(*rows: Mapping[str, Any], **more: object) -> dict[str, Any]:
    """A file with those scenarios."""
    machine = {"processor": "Abacus 7", "cpus": 4, "load": [0.5, 0.4, 0.3], "python": "3.11.7"}
    whole = {
        "format": FORMAT,
        "machine": machine,
        "effort": asdict(FULL),
        "peers": PEERS,
        "scenarios": rows,
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


# ── what cannot happen to the page ───────────────────────────────────────────────────────────────────────


def test_the_page_needs_nothing_else() -> None:
    page = shown(missed(), met())
    assert not {name for name, _ in page.elements} & {"script", "link", "img", "iframe", "object", "base"}
    assert not {name for _, found in page.elements for name in found if name.startswith("on")}
    references = [found[key] for _, found in page.elements for key in ("href", "src") if key in found]
    assert references
    assert all(reference.startswith("#") for reference in references)
    assert not re.search(r"https?:|url\(|@import|@font-face", page.source)
    [policy] = [found for _, found in page.elements if found.get("http-equiv")]
    assert "default-src 'none'" in policy["content"]


def test_every_link_leads_to_an_element_and_no_id_is_there_twice() -> None:
    page = shown(missed(), met())
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert len(ids) == len(set(ids))
    assert {found["href"][1:] for _, found in page.elements if "href" in found} <= set(ids)


def test_a_hostile_name_is_words_and_nothing_else() -> None:
    bar = replace(RAW, label=HOSTILE, title=HOSTILE, figure=Figure("rate", HOSTILE))
    one = measured(replace(scenario(HOSTILE, concurrency=2, entries=3), title=HOSTILE), bar, ours=(1,))
    one["contenders"][HOSTILE] = {"make": HOSTILE, "settings": {HOSTILE: HOSTILE}, "one_cpu": True}
    one["rounds"][0][HOSTILE] = {"rate": 2.0, HOSTILE: 3.0}
    one |= {"work": {HOSTILE: HOSTILE}, "notes": [HOSTILE], "flaws": [HOSTILE]}
    machine = dict.fromkeys(("processor", "system", "python", "sqlite"), HOSTILE)
    page = shown(
        one,
        peers={HOSTILE: HOSTILE},
        date=HOSTILE,
        commit=HOSTILE,
        machine={**machine, "packages": {HOSTILE: HOSTILE}},
    )
    assert "script" not in {name for name, _ in page.elements}
    assert '<script>alert("1")</script>' in page.words
    assert "\u202e" not in page.source
    assert "\x1b" not in page.source
    assert not {name for _, found in page.elements for name in found if "script" in name}


def test_the_same_file_gives_the_same_page() -> None:
    assert render(said(missed(), met())) == render(said(missed(), met()))


def test_a_run_without_a_row_is_a_page_too() -> None:
    page = shown()
    assert "No floor was asked for" in page.words
    assert page.of_class("verdict", "empty")


def test_a_file_of_another_format_is_refused() -> None:
    with pytest.raises(UnknownFormat, match=f"format {FORMAT + 1}"):
        load({**said(), "format": FORMAT + 1})


# ── the verdict ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_missed_floor_is_seen_as_missed() -> None:
    page = shown(missed(), met())
    assert "Missed: 1 of 2 floors" in page.words
    assert page.of_class("verdict", "broken")
    [line] = page.of_class("row", "missed")
    [square] = [found for found in page.of_class("missed") if "href" in found]
    assert square["href"] == f"#{line['id']}"
    assert "The row missed, ÷ raw: missed" in square["title"]
    assert "✗ missed" in page.words
    assert "✓ met" in page.words
    assert "Furthest from its floor: The row missed, ÷ raw , at 62 % of it." in page.words


def test_the_one_furthest_from_its_floor_is_named() -> None:
    near, far = (
        measured(scenario(name), RAW, ours=(value,), raw=(100,)) for name, value in (("near", 79), ("far", 8))
    )
    assert "Furthest from its floor: The row far, ÷ raw , at 10 % of it." in shown(near, far).words


def test_where_every_floor_is_met_the_page_says_so() -> None:
    page = shown(met())
    assert "Met: all of 1 floor" in page.words
    assert page.of_class("verdict", "fine")
    assert not page.of_class("missed")


def test_what_was_not_measured_is_not_met() -> None:
    page = shown(met(), measured(scenario(), PEER, ours=(1,)))
    assert "Not measured: 1 of 2 floors" in page.words
    assert not page.of_class("verdict", "fine")
    assert page.of_class("row", "not-measured")
    assert "NOT MEASURED The row one : ÷ best peer, floor ≥ 1.2" in page.words


def test_a_met_aim_is_counted_beside_the_floors() -> None:
    page = shown(measured(scenario(), RAW, ours=(95,), raw=(100,)), met())
    assert "Aims beyond the floors: 1 of 2 met." in page.words
    assert "Met: all of 2 floors" in page.words
    assert "★ aim met" in page.words


def test_the_page_says_when_where_and_of_what_it_is() -> None:
    page = shown(met(), date="2024-11-18 22:10 UTC", commit="21a9818 and changes")
    facts = ("2024-11-18 22:10 UTC", "21a9818 and changes", "Abacus 7 × 4", "full, 7 rounds")  # noqa: RUF001
    for fact in facts:
        assert fact in page.words


def test_a_run_without_a_commit_does_not_speak_of_one() -> None:
    assert "commit" not in shown(met()).words


@pytest.mark.parametrize(("load", "warned"), [(3.0, True), (1.0, False)])
def test_a_busy_machine_is_warned_of(load: float, warned: bool) -> None:
    page = shown(met(), machine={"processor": "", "cpus": 4, "load": [load, 0, 0]})
    assert ("load 3.0 on 4 CPUs" in page.words) is warned


@pytest.mark.parametrize(
    ("effort", "words"), [(QUICK, "a short run"), (TINY, "its figures say nothing"), (FULL, "")]
)
def test_a_run_that_is_not_a_whole_one_says_so(effort: Any, words: str) -> None:
    page = shown(met(), effort=asdict(effort))
    assert words in page.words
    assert bool(page.of_class("gaps")) is bool(words)


def test_flaws_and_notes_are_told() -> None:
    flawed = {**missed(), "flaws": ["raw: broken"], "notes": ["plyvel is not installed"]}
    page = shown(flawed, {**met(), "notes": ["plyvel is not installed"]})
    assert "FLAW The row missed : raw: broken" in page.words
    assert "NOTE missed, met : plyvel is not installed" in page.words


# ── bars ─────────────────────────────────────────────────────────────────────────────────────────────────


def places(page: Page, name: str, *classes: str) -> list[float]:
    return [float(found[name].removesuffix("%")) for found in page.of_class(*classes)]


def test_every_round_is_a_dot_and_the_median_a_mark_in_order_on_the_axis() -> None:
    page = shown(missed())
    dots = places(page, "cx", "round")
    assert len(dots) == 3
    median, low, high = dots
    assert low < median < high
    [spread] = page.of_class("spread")
    assert {spread["x1"], spread["x2"]} == {f"{low:.2f}%", f"{high:.2f}%"}
    assert median in places(page, "x", "mark", "hue-ours")
    [floor], [aim] = places(page, "x1", "floor")[1:], places(page, "x1", "aim")[1:]
    assert high < floor < aim


def test_more_than_the_floor_is_to_the_right_even_where_less_is_better() -> None:
    quick, slow = (
        measured(scenario(name), Bar(label="ms", figure=MS, floor=50), figure="ms", ours=(value,))
        for name, value in (("quick", 5.0), ("slow", 500.0))
    )
    found = standings(load(said(quick, slow)))
    assert [one.values for one in found] == [[10], [0.1]]
    assert [one.floor for one in found] == [1, 1]
    page = shown(quick, slow)
    left, right = sorted(places(page, "cx", "round"))
    assert left < places(page, "x1", "floor")[1] < right


def test_a_figure_of_which_more_is_better_is_a_multiple_of_its_floor() -> None:
    one = measured(scenario(), Bar(label="MB", figure=MB, floor=200, aim=300), figure="mb_per_s", ours=(500,))
    [found] = standings(load(said(one)))
    assert (found.values, found.aim) == ([2.5], 1.5)


def test_a_figure_of_nothing_is_as_good_as_can_be() -> None:
    page = shown(measured(scenario(), Bar(label="ms", figure=MS, floor=50), figure="ms", ours=(0.0,)))
    assert places(page, "cx", "round") == [100]


def test_what_has_no_floor_is_drawn_as_a_ratio_only() -> None:
    bars = Bar(label="÷ raw", against=("raw",)), Bar(label="adds")
    page = shown(measured(scenario(), *bars, ours=(1,), raw=(2,)))
    assert [found["id"] for found in page.of_class("row", "told")] == ["bar-0"]


@pytest.mark.parametrize(
    ("against", "group"),
    [
        (("raw",), Group.RAW),
        (("raw, futex",), Group.RAW),
        (("plyvel", "lmdb"), Group.PEER),
        (("plyvel", "lmdb without a map"), Group.PEER),
        (("lmdb",), Group.OTHER),
        (("plyvel, batches",), Group.OTHER),
        (("ours without checkpoints",), Group.OTHER),
        ((), Group.OWN),
    ],
)
def test_bars_stand_beside_those_of_their_kind(against: tuple[str, ...], group: Group) -> None:
    theirs: dict[str, Any] = dict.fromkeys(against, (2,))
    one = measured(scenario(), Bar(label="÷", against=against), ours=(1,), **theirs)
    assert [found.group for found in standings(load(said(one)))] == [group]


def test_a_group_without_a_row_says_that_it_was_not_measured() -> None:
    assert "÷ best peer not measured in this run" in shown(missed()).words


@pytest.mark.parametrize(
    ("rows", "tone"),
    [([], Tone.EMPTY), ([met], Tone.FINE), ([missed], Tone.BROKEN), ([met, missed], Tone.BROKEN)],
)
def test_one_missed_floor_is_enough_to_break_a_run(rows: Sequence[Any], tone: Tone) -> None:
    assert Score(standings(load(said(*(make() for make in rows))))).tone is tone


# ── plots ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_curve_goes_along_its_axis_with_medians_and_the_middle_half() -> None:
    run = load(said(writers(8, ours=(1, 2, 3, 4, 100)), writers(1, ours=(5,)), missed()))
    [curve] = curves(run, "concurrency", "rate")
    assert curve.spots == [Spot(1, 5, 5, 5), Spot(8, 3, 2, 4)]


def test_who_took_part_at_one_place_only_has_no_curve_among_others() -> None:
    rows = writers(1, ours=(5,)), writers(8, ours=(5,), batches=(7,))
    assert [curve.contender for curve in curves(load(said(*rows)), "concurrency", "rate")] == ["ours"]
    found = curves(load(said(rows[1])), "concurrency", "rate")
    assert [curve.contender for curve in found] == ["ours", "batches"]


def test_throughput_and_latencies_are_drawn_by_the_number_of_writers() -> None:
    values: dict[str, Any] = {"ours": (5.0,), "ours, asynchronous": (6.0,), "lmdb": (7.0,)}
    rows = [
        measured(scenario(f"{count}-{figure}", concurrency=count), figure=figure, **values)
        for count in (1, 8)
        for figure in ("rate", "p50", "p99", "p999")
    ]
    page = shown(*rows)
    for title in ("Throughput", "Latency, p50", "Latency, p99", "Latency, p99.9"):
        assert title in page.words
    assert len(page.of_class("panel")) == 4
    assert len(page.of_class("curve")) == 12
    assert page.words.count("ours, threads") >= 4
    assert "As the store grows Not measured in this run" in page.words


def test_more_is_higher_up_and_the_names_stand_in_the_order_in_which_the_curves_end() -> None:
    rows = writers(1, ours=(900,), raw=(500,)), writers(8, ours=(600,), raw=(700,))
    page = shown(*rows)
    # For each contender its marks along the curve; then, drawn last, the one beside its name.
    [[ours_1, ours_8, ours_named], [raw_1, raw_8, raw_named]] = (
        [float(found["y"]) for found in page.of_class("mark", f"hue-{name}") if "." in found["y"]]
        for name in ("ours", "raw")
    )
    assert ours_1 < raw_8 < ours_8 < raw_1
    assert raw_named < ours_named


def test_the_cost_of_a_growing_store_is_drawn_and_its_change_told() -> None:
    rows = [
        measured(scenario(f"grown-{count}", entries=count), figure=figure, ours=(cost,))
        for figure in ("us_per_add", "us_per_read", "open_ms")
        for count, cost in ((100_000, 10.0), (10_000_000, 11.0))
    ]
    page = shown(*rows)
    assert len(page.of_class("panel")) == 3
    assert "ours: +10 % from 100k to 10M" in page.words
    assert "entries in the store" in page.words
    assert "More writers at once Not measured in this run" in page.words


def test_a_contender_looks_the_same_wherever_it_is() -> None:
    values: dict[str, Any] = {"ours": (5.0, 6.0), "raw": (7.0, 8.0), "plyvel": (3.0, 4.0)}
    rows = [measured(scenario(f"{n}", concurrency=n), RAW, PEER, **values) for n in (1, 8)]
    page = shown(*rows)
    for name in values:
        drawn = page.of_class("mark", f"hue-{name}")
        assert len(drawn) > 3


def test_every_contender_has_a_colour_and_a_shape_of_its_own() -> None:
    names = ("ours", "ours, asynchronous", "raw", "raw, futex", *peers.SETTINGS)
    assert len({look(name).hue for name in names}) == len(names)
    assert len({look(name).shape for name in names}) == len(names)


def test_a_variant_has_the_colour_of_its_family_and_is_hollow() -> None:
    assert look("plyvel, batches").hue == "plyvel"
    assert look("plyvel, batches").is_hollow
    assert look("raw, futex").hue == "futex"
    assert look("raw, futex, twice").hue == "futex"
    assert look("somebody").hue == "other"


# ── figures and settings ─────────────────────────────────────────────────────────────────────────────────


def test_every_scenario_and_every_contender_of_it_has_a_line_with_its_figures() -> None:
    page = shown(missed(), measured(scenario("two"), ours=(11_000, 12_000, 16_000), rocksdict=(3, 3, 3)))
    for words in ("The row missed", "The row two", "ours 12,000 11,000… 16,000", "rocksdict 3.00"):
        assert words in page.words
    assert len([found for _, found in page.elements if found.get("scope") == "row"]) == 4


def test_a_contender_that_is_missing_has_a_line_that_says_so() -> None:
    one = met()
    one["contenders"]["plyvel"] = {"make": "peers:LevelDb", "settings": {}, "one_cpu": False}
    assert "plyvel not measured" in shown(one).words


def test_a_figure_that_is_not_known_here_is_shown_under_its_own_name() -> None:
    bar = Bar(label="bytes", figure=Figure("index_bytes", "B/entry", Sense.LESS), floor=20)
    page = shown(measured(scenario(), bar, figure="index_bytes", ours=(17.5,)))
    assert "index bytes B/entry" in page.words
    assert "17.5" in page.words


def test_the_settings_of_every_peer_and_of_who_has_some_beyond_the_work_are_told() -> None:
    one = met()
    one["contenders"]["ours"]["settings"] = {"size": 1024, "seed": 7, "journal_size": 4096}
    one["contenders"]["ours"]["one_cpu"] = True
    page = shown(one)
    for name, words in PEERS.items():
        assert f"{name} {words}" in page.words
    assert "ours journal_size 4,096, on one CPU met" in page.words


def test_the_page_says_how_to_run_it_again() -> None:
    page = shown(met())
    assert "make bench" in page.words
    assert "python bench/store.py --only met" in page.words


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_writes_its_page_which_can_be_drawn_again_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    nobody = Contender(name="ours", make="opener:Opener")
    one = Scenario(name="one", title="One", contenders=[nobody], turn=lambda _: {"rate": 1.0}, rounds=2)
    monkeypatch.setattr(store, "ROWS", [lambda _: [one]])
    assert store.main(["--json", "kept/run.json", "--html", "kept/run.html"]) == 0
    assert "kept/run.html" in capsys.readouterr().out
    assert draw.main(["kept/run.json", "again/run.html"]) == 0
    page = (tmp_path / "kept" / "run.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "again" / "run.html").read_text(encoding="utf-8")
    assert "One" in Page(page).words
    assert json.loads((tmp_path / "kept" / "run.json").read_text())["date"] in Page(page).words


def test_outside_of_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit(tmp_path) == ""
    monkeypatch.setenv("PATH", "")
    assert commit(tmp_path) == ""
