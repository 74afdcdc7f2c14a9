"""The top of the page: how many floors are met, where and when, and what the run does not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from machine import crowded
from result import Verdict

from page import wording
from page.standing import Tone
from recovery.page.markup import NOTHING, Markup, joined, tag
from recovery.page.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from page.run import Run
    from page.standing import Score, Standing

SIGNS = {
    Verdict.AIM_MET: "★",
    Verdict.MET: "✓",
    Verdict.MISSED: "✗",
    Verdict.NOT_MEASURED: "?",
    Verdict.TOLD: "",
}
"""So that nobody has to tell red from green."""


def verdict(run: Run, score: Score) -> Markup:
    """The verdict, the conditions, the gaps."""
    return joined((_headline(score), _facts(run), _gaps(run, score)))


def css_class(one: Verdict) -> str:
    """Of an element that is about a bar with this verdict."""
    return one.name.lower().replace("_", "-")


def _headline(score: Score) -> Markup:
    asked = len(score.asked)
    return tag(
        "section",
        tag("div", str(score.met), tag("small", f"/{asked}"), tag("span", "floors met"), class_="number"),
        tag(
            "div",
            tag("h1", _sentence(score)),
            tag("p", _aims(score)),
            _furthest(score.furthest),
            tag("div", (_square(one) for one in score.asked), class_="squares") if asked else NOTHING,
        ),
        class_=f"verdict {score.tone.value}",
    )


def _sentence(score: Score) -> str:
    floors = counted(len(score.asked), "floor")
    missed, unmeasured = score.count(Verdict.MISSED), score.count(Verdict.NOT_MEASURED)
    match score.tone:
        case Tone.FINE:
            return f"Met: all of {floors}"
        case Tone.BROKEN:
            more = f", {unmeasured} not measured" if unmeasured else ""
            return f"Missed: {missed} of {floors}{more}"
        case Tone.EMPTY:
            return f"Not measured: {unmeasured} of {floors}" if unmeasured else "No floor was asked for"


def _aims(score: Score) -> str:
    return f"Aims beyond the floors: {score.count(Verdict.AIM_MET)} of {score.aims} met."


def _furthest(one: Standing | None) -> Markup:
    if one is None:
        return NOTHING
    where = f"{one.title}, {one.judged.bar.label}"
    link = tag("a", where, href=f"#bar-{one.number}")
    return tag("p", "Furthest from its floor: ", link, f", at {100 * one.distance:.0f} % of it.")


def _square(one: Standing) -> Markup:
    judged = one.judged
    said = f"{one.title}, {judged.bar.label}: {judged.verdict.value}"
    return tag(
        "a",
        SIGNS[judged.verdict],
        class_=css_class(judged.verdict),
        href=f"#bar-{one.number}",
        title=said,
        aria_label=said,
    )


# ── conditions ───────────────────────────────────────────────────────────────────────────────────────────


def _facts(run: Run) -> Markup:
    rows = (tag("div", tag("dt", name), tag("dd", value)) for name, value in _conditions(run) if value)
    return tag("dl", rows, class_="facts")


def _conditions(run: Run) -> Iterator[tuple[str, str]]:
    machine, effort = run.machine, run.effort
    yield "date", run.date
    yield "commit", run.commit
    yield "processor", f"{machine.get('processor', '')} × {machine.get('cpus', '?')}"
    yield "system", str(machine.get("system", ""))
    yield "load before", _load(machine)
    yield "Python", str(machine.get("python", ""))
    yield "effort", f"{effort.get('name', '')}, {counted(int(effort.get('rounds', 0)), 'round')}"
    yield "seed", str(effort.get("seed", ""))
    packages = {**machine.get("packages", {}), "sqlite": machine.get("sqlite", "")}
    yield "with", ", ".join(f"{name} {version}" for name, version in packages.items() if version)


def _load(machine: Mapping[str, Any]) -> str:
    return " ".join(f"{one:.2f}" for one in machine.get("load", ()))


# ── what it does not say ─────────────────────────────────────────────────────────────────────────────────


def _gaps(run: Run, score: Score) -> Markup:
    found = list(_found(run, score))
    if not found:
        return NOTHING
    rows = (
        tag("li", tag("span", label, class_="pill warn"), tag("span", tag("b", what), f": {why}"))
        for label, what, why in found
    )
    return tag("section", tag("h2", "To be known before reading on"), tag("ul", rows), class_="gaps loud")


def _found(run: Run, score: Score) -> Iterator[tuple[str, str, str]]:
    yield from _doubts(run)
    for row in run.rows:
        for flaw in row.result.flaws:
            yield "FLAW", row.result.title, f"{flaw.strip()}; no floor is met with it"
    for one in score.asked:
        if one.judged.verdict is Verdict.NOT_MEASURED:
            yield "NOT MEASURED", one.title, f"{one.judged.bar.label}, floor {wording.floor(one.judged.bar)}"
    yield from (("NOTE", ", ".join(names), note) for note, names in _notes(run).items())


def _doubts(run: Run) -> Iterator[tuple[str, str, str]]:
    load, cpus = next(iter(run.machine.get("load", ())), 0.0), run.machine.get("cpus") or 1
    if warning := crowded(load, cpus):
        yield "BUSY", "others used the machine", warning.removeprefix("busy: ")
    name = run.effort.get("name")
    if name == "tiny":
        yield "TINY", "a run to see that it works", "its figures say nothing"
    elif name == "quick":
        yield "QUICK", "a short run", "the floors are meant for a full one: `make bench`"


def _notes(run: Run) -> dict[str, list[str]]:
    noted: dict[str, list[str]] = {}
    for row in run.rows:
        for note in row.result.notes:
            noted.setdefault(note, []).append(row.result.scenario)
    return noted
