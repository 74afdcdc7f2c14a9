"""The section about findings: one block for each kind, with its meaning, its remedy, and every place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.findings.finding import Severity
from recovery.audit.report import commands, figures
from recovery.audit.report.figures import WORDS
from recovery.report.formatting import grouped, plural
from recovery.report.formatting import size as sized
from recovery.report.markup import NOTHING, Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import AuditReport
    from recovery.audit.report.figures import FindingGroup

_OPEN_MAX, _FOLDED_MAX = 12, 300
_COLOURS = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFORMATION: "info"}
_HEADINGS = ("place", "to", "bytes", "ledger", "entries", "count", "detail", "look at it")
_NUMBERS = frozenset({"to", "bytes", "ledger", "entries", "count"})


def findings(report: AuditReport) -> Markup:
    """Return the blocks of all kinds, the most severe first."""
    groups = figures.groups(report.findings)
    if not groups:
        return joined((tag("h2", "Findings"), tag("p", "None, not even information.", class_="lead")))
    several = len(report.stores) > 1
    return joined(
        (
            tag("h2", "Findings"),
            tag(
                "p",
                "A block for each kind. A click on a command copies it: it shows the bytes, field by field, "
                "or the entries that a finding is about.",
                class_="lead",
            ),
            (_block(group, several=several) for group in groups),
        )
    )


def _block(group: FindingGroup, *, several: object) -> Markup:
    kind = group.kind
    return tag(
        "article",
        tag(
            "header",
            tag("span", WORDS[group.severity], class_=f"pill {_COLOURS[group.severity]}"),
            tag("h3", kind.title),
            tag("code", kind.id),
            tag("span", _counted(group)),
        ),
        tag(
            "div",
            tag("div", tag("h4", "What it means"), tag("p", _prose(kind.cause))),
            tag("div", tag("h4", "What to do"), tag("p", _prose(kind.remedy))),
            class_="why",
        ),
        _table(group.findings[:_OPEN_MAX], several),
        _folded(group, several),
        class_=f"kind k-{WORDS[group.severity]}",
        id=group.anchor,
    )


def _prose(text: str) -> list[Markup | str]:
    """Return the text, with parts between backticks as code."""
    parts = text.split("`")
    return [tag("code", part) if number % 2 else part for number, part in enumerate(parts)]


def _counted(group: FindingGroup) -> str:
    places = len(group.findings)
    noun = group.kind.counts
    where = f"{grouped(places)} {'place' if places == 1 else 'places'}"
    if noun == "bytes":
        return f"{sized(group.count)} in {where}"
    if noun == "files" and group.count == places:
        return where
    return f"{grouped(group.count)} {noun if group.count != 1 else _singular(noun)} in {where}"


def _singular(noun: str) -> str:
    return next((one for one in (noun[:-3] + "y", noun[:-1]) if plural(one) == noun), noun)


def _folded(group: FindingGroup, several: object) -> Markup:
    rest = group.findings[_OPEN_MAX:]
    if not rest:
        return NOTHING
    left_out = len(rest) - _FOLDED_MAX
    words = f"{grouped(left_out)} more are not on this page: all are in findings.parquet"
    return tag(
        "details",
        tag("summary", f"{grouped(min(len(rest), _FOLDED_MAX))} more"),
        _table(rest[:_FOLDED_MAX], several),
        tag("p", words, class_="more") if left_out > 0 else NOTHING,
    )


def _table(found: Sequence[Finding], several: object) -> Markup:
    names = [name for name in ("store", *_HEADINGS) if name != "store" or several]
    cells = [_cells(finding) for finding in found]
    names = [name for name in names if any(row[name] for row in cells)]
    if all(finding.count == 1 for finding in found):
        names.remove("count")
    heading = tag("tr", (tag("th", name, class_="n" if name in _NUMBERS else None) for name in names))
    rows = (tag("tr", (_cell(name, row[name]) for name in names)) for row in cells)
    return tag("div", tag("table", heading, rows), class_="scroll")


def _cell(name: str, value: Markup | str) -> Markup:
    colours = {"look at it": "look", "detail": "detail"}
    return tag("td", value, class_="n" if name in _NUMBERS else colours.get(name, "text"))


def _cells(finding: Finding) -> dict[str, Markup | str]:
    has_extent = finding.offset is not None and finding.end is not None
    return {
        "store": finding.store,
        "place": tag("code", finding.place) if finding.place else "",
        "to": "" if finding.end is None else str(finding.end),
        "bytes": grouped(finding.end - finding.offset) if has_extent else "",  # type: ignore[operator]
        "ledger": "" if finding.ledger_id is None else str(finding.ledger_id),
        "entries": _entries(finding),
        "count": grouped(finding.count),
        "detail": finding.detail,
        "look at it": tag("button", commands.command(finding), type="button", class_="copy"),
    }


def _entries(finding: Finding) -> str:
    if finding.first_entry is None:
        return ""
    if finding.last_entry in (None, finding.first_entry):
        return str(finding.first_entry)
    return f"{finding.first_entry}..{finding.last_entry}"
