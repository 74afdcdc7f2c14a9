"""The section about checks: every question, its answer, and the questions that were not asked."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from recovery.report.formatting import counted, grouped
from recovery.report.markup import NOTHING, Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.audit.model.audit_report import AuditReport, Check

_COLOURS = {"passed": "good", "failed": "bad", "not run": "warn"}
_ORDER = ("failed", "not run", "passed")


def checks(report: AuditReport) -> Markup:
    """Return a row for each check. With several stores it shows how many passed."""
    every: defaultdict[tuple[str, str], list[tuple[str, Check]]] = defaultdict(list)
    for store in report.stores:
        for check in store.checks:
            every[check.id, check.title].append((store.store, check))
    if not every:
        return NOTHING
    rows = [_row(title, those, len(report.stores)) for (_, title), those in every.items()]
    return joined(
        (
            tag("h2", "What was checked"),
            tag("section", tag("table", rows), class_="panel scroll"),
        )
    )


def _row(title: str, those: Sequence[tuple[str, Check]], stores: int) -> Markup:
    return tag(
        "tr",
        tag("td", _pills([check for _, check in those], stores)),
        tag("td", title),
        tag("td", _why(those, stores), class_="detail"),
        tag("td", _found([check for _, check in those]), class_="n"),
    )


def _pills(those: Sequence[Check], stores: int) -> list[Markup]:
    counts = [(status, sum(check.status == status for check in those)) for status in _ORDER]
    return [
        tag(
            "span", status if stores == 1 else f"{grouped(count)} {status}", class_=f"pill {_COLOURS[status]}"
        )
        for status, count in counts
        if count
    ]


def _why(those: Sequence[tuple[str, Check]], stores: int) -> str:
    whys: defaultdict[str, list[str]] = defaultdict(list)
    for store, check in those:
        if check.why:
            whys[check.why].append(store)
    if stores == 1 or not whys:
        return "; ".join(whys)
    return "; ".join(f"{why} ({', '.join(names)})" for why, names in whys.items())


def _found(those: Sequence[Check]) -> str:
    count = sum(check.findings for check in those)
    return counted(count, "finding") if count else ""
