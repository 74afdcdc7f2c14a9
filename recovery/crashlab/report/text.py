"""The report as some forty lines of plain text, for a terminal and for logs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from recovery.crashlab.judge.run_figures import Status
from recovery.crashlab.report import figures
from recovery.crashlab.report.figures import VerdictTone
from recovery.report.formatting import counted, grouped, line, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.crashlab.judge.run_figures import LabNumbers, LayerNumbers, ViolationNumbers

_T = TypeVar("_T")
_VIOLATIONS, _GAPS, _TABLE, _MISSED = 4, 8, 5, 4


def render(numbers: LabNumbers) -> str:
    """Return the report. Long lists are cut, with the number of missing lines."""
    return "".join(f"{line(one)}\n" for one in _lines(numbers))


def _lines(numbers: LabNumbers) -> Iterator[str]:
    yield from _verdict(numbers)
    yield from _violations(numbers.violations)
    yield ""
    for layer in figures.layers(numbers):
        yield from _layer(layer)
    yield from _score(numbers)
    yield from _gaps(numbers)


def _verdict(numbers: LabNumbers) -> Iterator[str]:
    verdict = figures.verdict(numbers)
    if verdict.tone is VerdictTone.EMPTY:
        yield f"{numbers.name}: nothing was tried, so nothing is known"
    else:
        yield f"{numbers.name}: {grouped(verdict.number)} {verdict.noun} in {', '.join(verdict.tried)}"
    yield "  " + ", ".join(f"{name} {value}" for name, value in figures.facts(numbers))


def _violations(found: Sequence[ViolationNumbers]) -> Iterator[str]:
    for violation in found[:_VIOLATIONS]:
        profile = f", {violation.profile}" if violation.profile else ""
        lost = f"; lost: {', '.join(violation.lost)}" if violation.lost else ""
        yield f"! {violation.kind}  {figures.cause(violation)}"
        yield f"    {violation.layer}{profile}, {figures.times(violation.count)}{lost}"
        if violation.directory:
            yield f"    {figures.commands(violation)[0]}"
    yield from _more(found, _VIOLATIONS, "violation")


def _layer(layer: LayerNumbers) -> Iterator[str]:
    status = "" if layer.status is Status.COMPLETE else f"{layer.status.value.upper()}  "
    if layer.status is Status.NOT_RUN and not layer.counts:
        yield f"{layer.name:<8}{status}{layer.why}"
        return
    counts = ", ".join(f"{grouped(count)} {name}" for name, count in layer.counts.items())
    yield f"{layer.name:<8}{status}{counts}; {figures.speed(layer)}"
    for name, row in islice(layer.table.items(), _TABLE):
        yield f"          {name}: " + ", ".join(f"{grouped(count)} {column}" for column, count in row.items())
    yield from _more(layer.table, _TABLE, "row")


def _score(numbers: LabNumbers) -> Iterator[str]:
    score = figures.score(numbers)
    if not score.planted:
        return
    equivalent = f", {score.equivalent} proven to be none" if score.equivalent else ""
    yield f"planted {score.found} of {counted(score.planted, 'bug')} found{equivalent}"


def _gaps(numbers: LabNumbers) -> Iterator[str]:
    gaps = figures.gaps(numbers)
    if gaps:
        yield ""
        yield "Not covered by this run:"
    for gap in gaps[:_GAPS]:
        yield f"! {gap.label}  {gap.what}: {gap.why}"
    yield from _more(gaps, _GAPS, "gap")


def _more(every: Iterable[_T], shown: int, noun: str) -> Iterator[str]:
    rest = len(list(every)) - shown
    if rest > 0:
        yield f"    … and {rest} more {noun if rest == 1 else plural(noun)}"
