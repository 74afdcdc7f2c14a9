"""The report as one page of HTML that needs nothing else: no server, no network, no other file."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from recovery.crashlab.report.layers import layers
from recovery.crashlab.report.mutants import mutants
from recovery.crashlab.report.style import CSS, SCRIPT
from recovery.crashlab.report.summary import summary
from recovery.crashlab.report.timeline import places_of, timelines
from recovery.crashlab.report.violations import violations
from recovery.page.document import document
from recovery.page.markup import tag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.crashlab.numbers import LabNumbers

_NO_TRACES: Mapping[str, str] = MappingProxyType({})


def render(numbers: LabNumbers, traces: Mapping[str, str] = _NO_TRACES) -> str:
    """The page; traces by the violation's id. The same numbers give the same bytes."""
    title = f"{numbers.name}: crash report"
    body = tag(
        "main",
        tag("p", "Crash laboratory · ", tag("b", numbers.name), class_="kicker"),
        summary(numbers),
        violations(numbers, traces, places_of(numbers)),
        layers(numbers),
        timelines(numbers),
        mutants(numbers),
    )
    return document(title, CSS, SCRIPT, body)
