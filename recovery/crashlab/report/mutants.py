"""The bugs that were planted on purpose: whether finding none means anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.crashlab.report import figures
from recovery.crashlab.report.style import hue
from recovery.page.markup import NOTHING, Markup, joined, tag
from recovery.page.wording import counted, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.crashlab.numbers import LabNumbers, MutantNumbers

_FOLDED_FROM = 16


def mutants(numbers: LabNumbers) -> Markup:
    """The score and the list, those that nobody found on top."""
    if not numbers.mutants:
        return NOTHING
    ordered = sorted(numbers.mutants, key=_urgency)
    return joined(
        (
            tag("h2", "Bugs planted on purpose"),
            tag(
                "p",
                "Each breaks one rule of the store. A laboratory that misses them proves little.",
                class_="lead",
            ),
            tag("section", _score(numbers, ordered), _tables(ordered), class_="panel listed"),
        )
    )


def _urgency(mutant: MutantNumbers) -> int:
    return 0 if figures.is_missed(mutant) else 1 if figures.is_equivalent(mutant) else 2


def _score(numbers: LabNumbers, ordered: Sequence[MutantNumbers]) -> Markup:
    score = figures.score(numbers)
    said = [f"{score.found} of {counted(score.planted, 'planted bug')} found"]
    if score.equivalent:
        said.append(f"{score.equivalent} proven to be no bug")
    if score.missed:
        said.append(f"{score.missed} NOT FOUND")
    return tag(
        "div",
        tag("div", score.found, tag("small", f" / {score.planted}"), class_="big"),
        tag("div", tag("b", ", ".join(said)), tag("div", map(_square, ordered), class_="squares")),
        class_="score",
    )


def _square(mutant: MutantNumbers) -> Markup:
    colour = {0: "missed", 1: "equivalent", 2: hue(mutant.found_by)}[_urgency(mutant)]
    return tag("i", class_=colour, title=f"{mutant.name}: {mutant.found_by or mutant.proof or 'not found'}")


def _tables(ordered: Sequence[MutantNumbers]) -> Markup:
    """Long lists are folded, but never what was not found nor what is claimed to be no bug."""
    if len(ordered) <= _FOLDED_FROM:
        return _table(ordered)
    open_ones = [mutant for mutant in ordered if _urgency(mutant) < 2]
    found = ordered[len(open_ones) :]
    folded = tag("details", tag("summary", f"The {len(found)} that were found"), _table(found))
    return joined((_table(open_ones) if open_ones else NOTHING, folded))


def _table(ordered: Sequence[MutantNumbers]) -> Markup:
    titles = tag(
        "tr", (tag("th", name) for name in ("planted bug", "the rule it breaks", "found by")), _right("after")
    )
    return tag("table", titles, map(_row, ordered))


def _row(mutant: MutantNumbers) -> Markup:
    return tag(
        "tr",
        tag("th", tag("code", mutant.name), scope="row"),
        tag("td", mutant.rule),
        tag("td", _finder(mutant)),
        tag("td", duration(mutant.seconds), class_="n"),
        class_="missed" if figures.is_missed(mutant) else None,
    )


def _right(name: str) -> Markup:
    return tag("th", name, class_="n")


def _finder(mutant: MutantNumbers) -> Markup:
    if mutant.found_by:
        badge = tag("span", mutant.found_by, class_=f"pill tint {hue(mutant.found_by)}")
        return joined((badge, tag("div", mutant.proof, class_="proof") if mutant.proof else NOTHING))
    if mutant.proof:
        return joined((tag("b", "no bug: "), tag("span", mutant.proof, class_="proof")))
    return Markup("NOT FOUND")
