"""Results as a table for people, and as JSON for comparisons."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from result import Result

_MET = {None: "", True: "met", False: "[bold red]missed[/]"}


def table(results: Sequence[Result], caption: str = "") -> Table:
    """One row for each scenario. The spread is that of whatever the bar is about."""
    made = Table(box=None, header_style="bold", caption=caption or None, caption_justify="left")
    made.add_column("scenario, entries of 1 KB", no_wrap=True)
    for name in ("ours", "raw", "ratio", "spread", "bar", ""):
        made.add_column(name, justify="right", no_wrap=True)
    for one in results:
        made.add_row(*_row(one))
        for flaw in one.flaws:
            made.add_row(f"  {flaw}")
    return made


def _row(one: Result) -> list[str]:
    return [
        one.scenario,
        f"{_number(statistics.median(one.ours))} {one.unit}",
        _number(statistics.median(one.raw)) if one.raw else "",
        f"{statistics.median(one.ratios):.2f}" if one.ratios else "",
        f"{_number(min(one.judged))} … {_number(max(one.judged))}" if len(one.judged) > 1 else "",
        str(one.bar or ""),
        _MET[one.is_met],
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def row(one: Result) -> dict[str, object]:
    """A result as JSON: every round of it."""
    return {
        "scenario": one.scenario,
        "unit": one.unit,
        "ours": list(one.ours),
        "raw": list(one.raw),
        "ratios": one.ratios,
        "bar": str(one.bar) if one.bar else None,
        "met": one.is_met,
        "flaws": list(one.flaws),
    }
