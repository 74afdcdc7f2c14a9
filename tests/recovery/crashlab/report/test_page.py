"""The report shows everything of a run, no name can break the page, and no gap is left out."""

from __future__ import annotations

import ast
import html
import re
import sys
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import lab_numbers
import pytest

from recovery.crashlab.judge.damage_verdict import DamageVerdict
from recovery.crashlab.judge.run_figures import (
    LabNumbers,
    LayerNumbers,
    MutantNumbers,
    Status,
    TimelineEvent,
    ViolationNumbers,
    WorkloadNumbers,
    load,
)
from recovery.crashlab.report import figures, lanes, page, text, timeline
from recovery.report import formatting

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTILE = '<script>alert("1")</script>&\'\u202e\x1b[31m\udcff\x00'
EMPTY = LabNumbers("empty", 0, "posix-strict")
VOID = {"meta"}


class Page(HTMLParser):
    """A page as a browser parses it: balanced elements, words, attributes."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self._words: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.elements: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"script", "style"}:
            self._words.append(data)

    @property
    def words(self) -> str:
        return "\n".join(self._words)

    def of_class(self, name: str) -> int:
        return sum(key == "class" and name in value.split() for key, value in self.attributes)


def shown(numbers: LabNumbers, **traces: str) -> Page:
    read = Page(page.render(numbers, traces))
    assert read.open == []
    return read


@cache
def large() -> Page:
    return shown(lab_numbers.large())


def hostile() -> LabNumbers:
    """Numbers in which every text is hostile."""
    events = [
        TimelineEvent(1, "create", HOSTILE, text=HOSTILE),
        TimelineEvent(2, "rename", HOSTILE, text=f"2, rename a -> {HOSTILE}"),
        TimelineEvent(2, "ack", "", text=HOSTILE),
        TimelineEvent(3, HOSTILE, f"{HOSTILE}/{HOSTILE}", 9),
    ]
    violation = ViolationNumbers(
        HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 2, HOSTILE, (HOSTILE,), HOSTILE, 3
    )
    table = {HOSTILE: {HOSTILE: 1}}
    return LabNumbers(
        HOSTILE,
        7,
        HOSTILE,
        host={HOSTILE: HOSTILE},
        layers=[LayerNumbers(HOSTILE, Status.CUT_SHORT, HOSTILE, 1.0, {HOSTILE: 5}, 1.0, table)],
        workloads=[WorkloadNumbers(HOSTILE, 3, uncovered=[HOSTILE], timeline=events)],
        violations=[violation],
        mutants=[MutantNumbers(HOSTILE, HOSTILE, HOSTILE), MutantNumbers(HOSTILE, HOSTILE, proof=HOSTILE)],
    )


# ── safety of the page ──────────────────────────────────────────────────────────────────────────────────────


def test_a_hostile_name_is_shown_as_text() -> None:
    read = shown(hostile(), **{HOSTILE: f"2, {HOSTILE}"})
    harmless = shown(replace(hostile(), name="mystore"))
    assert read.elements.count("script") == harmless.elements.count("script") == 1
    assert '<script>alert("1")</script>' in read.words
    assert not {name for name, _ in read.attributes if name.startswith("on")}


@pytest.mark.parametrize("render", [page.render, text.render], ids=["page", "text"])
def test_invisible_characters_of_a_name_are_escaped(render: object) -> None:
    rendered = render(hostile())  # type: ignore[operator]
    assert not set(rendered) & {"\u202e", "\x1b", "\udcff", "\x00"}
    assert "\\u202e\\x1b[31m\\udcff\\x00" in rendered
    rendered.encode()


def test_a_name_with_a_line_break_stays_on_its_line_in_a_terminal() -> None:
    clean = text.render(EMPTY).count("\n")
    assert text.render(replace(EMPTY, name="a\nb\nc")).count("\n") == clean


def test_a_class_comes_from_a_known_word_only() -> None:
    classes = [value for name, value in shown(hostile()).attributes if name == "class"]
    assert all(re.fullmatch(r"[a-z0-9 -]+", value, re.IGNORECASE) for value in classes)


@pytest.mark.parametrize(
    "numbers", [EMPTY, lab_numbers.small(), lab_numbers.large()], ids=lambda one: one.name
)
def test_a_page_fetches_nothing(numbers: LabNumbers) -> None:
    rendered = page.render(numbers)
    assert not [
        word for word in ("http://", "https://", "src=", "url(", "@import", "<link") if word in rendered
    ]
    for name, value in shown(numbers).attributes:
        assert name != "href" or value.startswith("#")


def test_every_reference_within_the_page_has_its_target() -> None:
    attributes = large().attributes
    names = [value for name, value in attributes if name == "id"]
    references = {value.removeprefix("#") for name, value in attributes if name == "href"}
    assert len(names) == len(set(names))
    assert references
    assert references <= set(names)


def test_the_same_numbers_give_the_same_page(tmp_path: Path) -> None:
    numbers = lab_numbers.large()
    numbers.write(tmp_path / "report.json")
    assert page.render(load(tmp_path / "report.json")) == page.render(numbers)
    assert text.render(load(tmp_path / "report.json")) == text.render(numbers)


# ── content of the page ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_everything_in_the_numbers_is_on_the_page() -> None:
    numbers = lab_numbers.large()
    rendered = html.unescape(page.render(numbers))
    missing = [word for word in expected(numbers) if word not in rendered]
    assert missing == []


def expected(numbers: LabNumbers) -> Iterator[str]:
    yield from (numbers.name, numbers.profile, str(numbers.seed), "9.5 min", "10.0 min")
    yield from (word for fact in numbers.host.items() for word in fact)
    for layer in numbers.layers:
        yield from (layer.name, layer.status, layer.why)
        yield from (f"<dt>{name}</dt>" for name in layer.counts if len(layer.counts) > 1)
        yield from (f"{count:,}<" for count in layer.counts.values())
        yield from (f'<th scope="row">{name}</th>' for name in layer.table)
        yield from (f">{count:,}</td>" for row in layer.table.values() for count in row.values())
        if layer.status is not Status.NOT_RUN:
            yield f"{formatting.duration(layer.seconds)} · {formatting.rate(layer.states_per_second)} states"
    for violation in numbers.violations:
        yield from (violation.id, violation.kind, violation.profile, figures.cause(violation))
        yield from (*violation.lost, f"seen in {violation.count} states")
        yield f"ledgerstore crash replay {violation.directory}"
        yield f"python {violation.directory}/repro.py"
    for mutant in numbers.mutants:
        yield from (mutant.name, mutant.rule, mutant.proof, f">{formatting.duration(mutant.seconds)}</td>")
        yield f">{mutant.found_by}</span>" if mutant.found_by else ""
    for workload in numbers.workloads:
        yield from (workload.name, f"{workload.calls:,} calls", f"{workload.syncs:,} syncs")
        yield from (f"{workload.operations:,} operations", *workload.uncovered)
        yield from (event.text for event in workload.timeline)


def test_the_verdict_counts_violations_and_says_among_what() -> None:
    broken, clean = large(), shown(lab_numbers.clean())
    assert broken.of_class("broken") == 1
    assert "violations in 41,203 distinct crash images" in broken.words
    assert "4,131 kills" in broken.words
    assert clean.of_class("fine") == 1
    assert clean.of_class("broken") == clean.of_class("violation") == clean.of_class("loud") == 0


def test_a_layer_is_represented_by_its_own_number_and_not_by_the_first() -> None:
    layer = LayerNumbers("kill", counts={"strayed kills": 1, "distinct images": 70, "kills": 90})
    assert figures.headline(layer) == (90, "kills")
    assert figures.headline(LayerNumbers("of-my-own", counts={"hits": 3})) == (3, "hits")


def test_a_run_that_tried_nothing_is_not_called_good() -> None:
    read = shown(EMPTY)
    assert read.of_class("empty") == 1
    assert read.of_class("fine") == 0
    assert "nothing is known" in read.words
    assert "nothing was tried" in text.render(EMPTY)


@pytest.mark.parametrize("status", [Status.NOT_RUN, Status.CUT_SHORT])
def test_an_incomplete_layer_is_emphasised_with_its_reason(status: Status) -> None:
    layers = [LayerNumbers(name) for name in figures.TITLES]
    layers[5] = LayerNumbers("cut", status, "no loop devices")
    numbers = replace(EMPTY, layers=layers)
    read = shown(numbers)
    assert read.of_class("stop") == 1
    assert read.of_class("gaps") == 1
    assert read.words.count(status.value.upper()) == 2
    assert read.words.count("no loop devices") == 2
    assert re.search(rf"^cut +{status.value.upper()}", text.render(numbers), re.MULTILINE)


def test_a_layer_without_numbers_counts_as_not_run() -> None:
    read = shown(replace(lab_numbers.small(), layers=[LayerNumbers("model", counts={"distinct images": 3})]))
    assert read.of_class("stop") == len(figures.TITLES) - 1


def test_every_gap_is_named_before_all_numbers() -> None:
    found = {gap.what for gap in figures.gaps(lab_numbers.large())}
    assert {"Workload one ledger", "Planted bug no-lock"} <= found
    complete = LayerNumbers("model", why="epoch 7 was not exhaustive")
    assert "epoch 7 was not exhaustive" in [
        gap.why for gap in figures.gaps(replace(EMPTY, layers=[complete]))
    ]


def test_silent_rot_is_an_alarm() -> None:
    assert large().of_class("alarm") == 1
    assert shown(lab_numbers.clean()).of_class("alarm") == 0


def of_rot(**outcomes: int) -> LabNumbers:
    layer = LayerNumbers("rot", counts={"rot mutants": 100}, table={"*.log": {"detected": 7, **outcomes}})
    return replace(EMPTY, layers=[layer])


@pytest.mark.parametrize("outcome", [one.value for one in DamageVerdict])
def test_every_outcome_of_rot_that_is_a_violation_is_an_alarm(outcome: str) -> None:
    read = shown(of_rot(**{outcome: 3}))
    is_violation = not DamageVerdict(outcome).is_good
    assert read.of_class("alarm") == is_violation
    assert read.of_class(f"o-{outcome}") > 0
    assert (outcome in figures.VIOLATIONS) == is_violation


def test_reported_losses_stand_in_the_verdict() -> None:
    assert "100 damaged stores" in text.render(of_rot())
    assert "reported" not in text.render(of_rot())
    assert "100 damaged stores (3 of them with a reported loss)" in text.render(of_rot(reported=3))


@pytest.mark.parametrize(
    ("layer", "profile", "answer"),
    [
        ("model", "ext4-ordered", "all, also ext4"),
        ("model", "posix-strict", "not ext4 as it is modelled"),
        ("model", "lying-disk", "only those with a lying disk"),
        ("kill", "", "a killed process is enough"),
        ("model", "of-my-own", "of-my-own is the most benign"),
    ],
)
def test_a_violation_says_on_which_systems_it_happens(layer: str, profile: str, answer: str) -> None:
    violation = ViolationNumbers("v", "LOST", "LOST 1", layer, "w", 1, profile)
    assert answer in shown(replace(EMPTY, violations=[violation])).words


def test_the_class_of_a_violation_is_not_repeated_in_its_cause() -> None:
    assert figures.cause(ViolationNumbers("v", "LOST", "LOST (1, 2) at 7", "", "", 0, "")) == "(1, 2) at 7"


def test_the_window_of_a_trace_is_around_the_crash() -> None:
    numbers = lab_numbers.large()
    trace = "\n".join(f"{number}, call of the trace" for number in range(1, 200))
    read = shown(numbers, **{"lost-1a2b": trace})
    calls = [int(number) for number in re.findall(r"^(\d+), call of the trace$", read.words, re.MULTILINE)]
    assert calls == list(range(61 - 13, 61 + 4 + 1))
    # two violations with a call, each in the text and in the drawing
    assert read.attributes.count(("class", "crash")) == 2 + 2


def test_the_crash_line_of_a_trace_marks_the_crash() -> None:
    rule = "――― crash ―――"
    read = page.render(lab_numbers.large(), {"signal-03": f"70, sync ledgers\n{rule}\n71, unlink a"})
    assert f'<span>70, sync ledgers</span><span class="crash">{rule}</span><span class="after">71' in read


def test_many_violations_are_all_there() -> None:
    one = lab_numbers.large().violations[0]
    many = [replace(one, id=f"v-{number}") for number in range(40)]
    read = shown(replace(lab_numbers.large(), violations=many))
    assert read.of_class("violation") == 40
    assert "details" in read.elements


def test_a_planted_bug_is_found_or_proven_none_or_missed() -> None:
    score = figures.score(lab_numbers.large())
    assert (score.planted, score.found, score.equivalent, score.missed) == (26, 24, 1, 1)
    read = large()
    assert "24 of 26 planted bugs found, 1 proven to be no bug, 1 NOT FOUND" in read.words
    rows = re.findall(r'<th scope="row"><code>([^<]*)</code></th>', page.render(lab_numbers.large()))
    assert sorted(rows) == sorted(mutant.name for mutant in lab_numbers.large().mutants)
    assert rows[0] == "no-lock"
    assert "24 of 26 bugs found" in text.render(lab_numbers.large())


def test_the_text_fits_a_terminal() -> None:
    one = lab_numbers.large().violations[0]
    numbers = replace(lab_numbers.large(), violations=[one] * 90)
    numbers.workloads[0].uncovered = ["a file"] * 90
    assert 20 < text.render(numbers).count("\n") <= 45
    assert "and 86 more violations" in text.render(numbers)


# ── the drawing ─────────────────────────────────────────────────────────────────────────────────────────────


def call(number: int, name: str, path: str, target: str = "", size: int = 0) -> TimelineEvent:
    arrow = f" -> {target}" if target else ""
    is_sync = name in {"sync", "datasync", "sync_all"}
    return TimelineEvent(number, name, path, size, is_sync, f"{number}, {name} {path}{arrow}")


def spans(found: list[lanes.TimeSpan]) -> set[tuple[str, float, float]]:
    return {(span.path, span.begin, span.end) for span in found}


def test_each_call_and_each_mark_is_drawn_once() -> None:
    workload = lab_numbers.recorded("adds", 200)
    drawn = shown(replace(EMPTY, workloads=[workload]))
    legend = shown(replace(EMPTY, workloads=[WorkloadNumbers("adds")]))

    def count(*names: str) -> int:
        return sum(event.call in names for event in workload.timeline)

    def shapes(*names: str) -> int:
        return sum(drawn.of_class(name) - legend.of_class(name) for name in names)

    heaps = len(
        re.findall(r'<rect class="w"[^>]*></rect>', page.render(replace(EMPTY, workloads=[workload])))
    )
    assert shapes("w") - (heaps - 1) == count("write")
    assert shapes("s") == count("sync", "datasync")
    assert shapes("c") == count("create", "mkdir")
    assert shapes("r") == count("rename")
    assert shapes("x") == count("unlink")
    assert shapes("a") == count("ack") > 0
    assert shapes("i") == count("invoke") > 0


@pytest.mark.slow
def test_a_crash_is_a_line_through_the_timeline_of_its_own_workload() -> None:
    numbers = lab_numbers.large()
    drawn = {name for name, _ in timeline.places_of(numbers)}
    assert drawn == {"adds and checkpoints", "one ledger"}
    assert shown(numbers).of_class("flag") - 1 == 2  # and once in the overview of the long timeline
    assert shown(replace(numbers, violations=[])).of_class("flag") == 0


def test_bytes_wait_from_the_first_write_to_the_sync() -> None:
    events = [call(1, "write", "a"), call(2, "write", "a"), call(3, "datasync", "a"), call(4, "write", "a")]
    assert spans(lanes.waits(events, lanes.moments(events))) == {("a", 1, 3), ("a", 4, 5)}


def test_a_durable_write_does_not_wait() -> None:
    durable = TimelineEvent(1, "write", "a", 8, is_sync=True)
    assert lanes.waits([durable], [1.0]) == []


def test_names_wait_for_the_sync_of_their_directory() -> None:
    events = [call(1, "create", "d/a"), call(2, "sync", "d/a"), call(3, "sync", "d"), call(4, "sync_all", "")]
    assert spans(lanes.waits(events, lanes.moments(events))) == {("d", 1, 3)}


def test_unsynced_bytes_still_wait_under_their_new_name() -> None:
    events = [
        call(1, "write", "a"),
        call(2, "rename", "a", "b"),
        call(3, "datasync", "b"),
        call(4, "sync", ""),
    ]
    assert spans(lanes.waits(events, lanes.moments(events))) == {("a", 1, 2), ("b", 2, 3), ("", 2, 4)}


def test_a_file_lives_until_it_is_removed_or_moved() -> None:
    events = [call(1, "create", "a"), call(2, "rename", "a", "b"), call(5, "unlink", "b")]
    assert spans(lanes.lives(events, lanes.moments(events))) == {("a", 1, 2), ("b", 2, 5)}


def test_marks_share_the_space_after_their_call() -> None:
    mark = TimelineEvent(1, "ack", "", text="ack add 1")
    assert lanes.moments([call(1, "sync", "a"), mark, mark, call(2, "sync", "a")]) == pytest.approx(
        [1, 4 / 3, 5 / 3, 2]
    )


def test_the_second_name_of_a_failed_rename_is_without_its_error() -> None:
    assert lanes.target_of(TimelineEvent(1, "rename", "a", text="1, rename a -> d/b, ENOSPC")) == "d/b"
    assert lanes.target_of(TimelineEvent(1, "write", "a", text="1, write a -> b")) is None


def test_files_stand_below_their_directory() -> None:
    events = [call(1, "create", "d/a"), call(2, "create", "b"), call(3, "create", "d/c")]
    plan = lanes.plan(events, lanes.moments(events), 5)
    assert [lane.label for lane in plan.lanes] == ["./", "b", "d/", "a", "c"]
    assert plan.row == {"": 0, "b": 1, "d": 2, "d/a": 3, "d/c": 4}


@pytest.mark.parametrize("apart", [2, 4, 20])
def test_many_files_that_follow_each_other_share_lanes_without_meeting(apart: int) -> None:
    events = [
        event
        for turn in range(0, 100 * apart, apart)
        for event in (call(turn + 1, "create", f"{turn}.txn"), call(turn + 2, "write", f"{turn}.txn"))
    ]
    plan = lanes.plan(events, lanes.moments(events), 7)
    assert len(plan.lanes) <= 7
    for row in range(1, len(plan.lanes)):
        shared = [span for span in plan.names if plan.row[span.path] == row]
        assert all(one.end + 7 <= next_one.begin for one, next_one in pairwise(shared))
    assert sum(plan.row[span.path] > 0 for span in plan.names) == 100


def test_files_that_share_a_lane_have_their_names_on_it() -> None:
    assert {"0000…001.txn", "0000…002.txn", "1.log", "2.log"} <= set(large().words.splitlines())


@pytest.mark.parametrize(
    "name", ["map", "exchange", "symlink", "msync", "sync_range", "sync_all", "link", "rmdir"]
)
def test_a_rare_call_is_drawn_too(name: str) -> None:
    workload = WorkloadNumbers("w", 1, timeline=[call(1, name, "d/a", "b" if name != "map" else "")])
    assert html.escape(workload.timeline[0].text) in page.render(replace(EMPTY, workloads=[workload]))


def test_the_report_imports_only_the_run_figures_and_what_pages_share() -> None:
    for module in Path(page.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                package = node.module.partition(".")[0]
                ours = node.module.startswith(
                    ("recovery.crashlab.report", "recovery.crashlab.judge.run_figures", "recovery.report")
                )
                assert ours or package in sys.stdlib_module_names, node.module
