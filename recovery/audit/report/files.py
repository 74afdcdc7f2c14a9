"""The section about files: every file as a strip drawn to scale, with marks where something was found."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from recovery.audit.report.figures import WORDS
from recovery.audit.report.strips import strips
from recovery.report.formatting import counted, grouped
from recovery.report.markup import NOTHING, Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.audit.model.audit_report import AuditReport, StoreReport
    from recovery.audit.report.strips import Strip, StripMark

_ROWS_MAX = 60
"""The number of strips. If there are more files, those with findings come first, and the others become
squares.
"""
_SQUARES_MAX = 4000
_STORES_MAX = 40

_TITLES = {"journal": "Journals", "entry log": "Entry logs", "index": "Index", "other": "Other files"}


def files(report: AuditReport) -> Markup:
    """Return a panel for each store."""
    return joined(
        (
            tag("h2", "Files, and where something is wrong in them"),
            tag(
                "p",
                "Each strip is a file, and its length shows the size among files of its kind. The index is "
                "drawn by rows, ledger after ledger. Marks are drawn to scale, but wide enough to be seen. "
                "Point at a mark to read it; click it to go to its finding.",
                class_="lead",
            ),
            _key(),
            map(_panel, report.stores[:_STORES_MAX]),
            _more(len(report.stores) - _STORES_MAX),
        )
    )


def _more(count: int) -> Markup:
    words = f"and {counted(count, 'more store')}: their findings are below, and in findings.parquet"
    return tag("p", words, class_="more") if count > 0 else NOTHING


def _key() -> Markup:
    colours = (
        ("s-journal", "journal"),
        ("s-entry-log", "entry log"),
        ("s-index", "index"),
        ("m-error", "error"),
        ("m-warning", "warning"),
        ("m-information", "information"),
    )
    entries = (tag("span", joined(tag("i", class_=colour)), name) for colour, name in colours)
    before = tag("span", joined(tag("i", class_="s-before")), "before the mark: not replayed any more")
    return tag("div", entries, before, class_="key")


def _panel(store: StoreReport) -> Markup:
    every = strips(store)
    clean = sum(strip.severity is None for strip in every)
    whose = store.owner.value + (", in use" if store.is_live else "")
    return tag(
        "section",
        tag(
            "header",
            tag("h3", store.store),
            tag("span", whose),
            tag("span", f"{counted(len(every), 'file')}, {grouped(clean)} of them without a finding"),
        ),
        tag(
            "div",
            (_kind(sort, list(those)) for sort, those in groupby(every, lambda strip: strip.sort)),
            class_="strips",
        ),
        class_="panel",
    )


def _kind(sort: str, those: Sequence[Strip]) -> Markup:
    shown, squares = _divided(those)
    longest = max((strip.extent for strip in those), default=0)
    return joined(
        (
            tag("h4", f"{_TITLES[sort]} ({grouped(len(those))})"),
            (_strip(strip, longest) for strip in shown),
            _mosaic(squares),
        )
    )


def _divided(those: Sequence[Strip]) -> tuple[Sequence[Strip], Sequence[Strip]]:
    if len(those) <= _ROWS_MAX:
        return those, ()
    gravest = sorted(
        (strip for strip in those if strip.severity is not None), key=lambda strip: strip.severity or 0
    )
    shown = {id(strip) for strip in gravest[:_ROWS_MAX]}
    return (
        [strip for strip in those if id(strip) in shown],
        [strip for strip in those if id(strip) not in shown],
    )


def _strip(strip: Strip, longest: int) -> Iterator[Markup]:
    yield tag("code", strip.name, title=strip.name)
    width = 100 * strip.extent / longest if longest else 100
    at = NOTHING
    if strip.replayed_from is not None:
        at = tag("span", class_="at", style=f"width:{100 * strip.replayed_from:.3f}%")
    yield tag(
        "div",
        tag(
            "div",
            at,
            map(_mark, strip.marks),
            class_=f"strip s-{strip.sort.replace(' ', '-')}",
            style=f"width:max(14px,{width:.2f}%)",
            title=f"{strip.name}: {strip.words}" if strip.words else strip.name,
            role="group",
            aria_label=f"{strip.name}: {counted(len(strip.marks), 'mark')}",
        ),
    )
    yield tag("span", strip.words, f", {strip.state}" if strip.state else "")


def _mark(mark: StripMark) -> Markup:
    grade = WORDS[mark.severity]
    if (mark.left, mark.right) == (0.0, 1.0):
        words = {"title": mark.words, "aria_label": mark.words}
        return tag("a", class_=f"whole m-{grade}", href=_href(mark), style="left:0;right:0", **words)
    # A mark at the last byte of a file must be visible too.
    left, width = 100 * mark.left, 100 * (mark.right - mark.left)
    place = f"left:min({left:.3f}%,100% - 3px);width:{width:.3f}%"
    label = mark.words
    return tag("a", class_=f"m-{grade}", href=_href(mark), title=label, aria_label=label, style=place)


def _href(mark: StripMark) -> str:
    return f"#{mark.kinds[0]}-{WORDS[mark.severity]}"


def _mosaic(squares: Sequence[Strip]) -> Markup:
    if not squares:
        return NOTHING
    shown = (
        tag("i", class_=_colour(strip), title=f"{strip.name}: {strip.words}")
        for strip in squares[:_SQUARES_MAX]
    )
    rest = len(squares) - _SQUARES_MAX
    more = tag("p", f"and {grouped(rest)} more files", class_="more") if rest > 0 else NOTHING
    return joined((tag("div", shown, class_="mosaic"), more))


def _colour(strip: Strip) -> str:
    return f"s-{strip.sort.replace(' ', '-')}" if strip.severity is None else f"m-{WORDS[strip.severity]}"
