"""The section about space: by ledger, and the live and dead bytes of each entry log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.report import figures
from recovery.audit.report.treemap import Box, squarified
from recovery.report.formatting import counted, grouped
from recovery.report.formatting import size as sized
from recovery.report.markup import NOTHING, Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.audit.model.audit_report import AuditReport, StoreReport
    from recovery.audit.report.figures import LedgerSpace, LogContent

_LEDGERS_MAX, _LOGS_MAX, _STORES_MAX = 60, 60, 20
_WIDTH, _HEIGHT = 1140, 300
_LETTER = 8.2


def space(report: AuditReport) -> Markup:
    """Return both panels for each store."""
    stores = report.stores[:_STORES_MAX]
    drawn = [panel for store in stores for panel in (_ledgers(store), _logs(store)) if panel]
    rest = len(report.stores) - len(stores)
    more = (
        tag("p", f"and {counted(rest, 'more store')}: see runs.parquet", class_="more") if rest else NOTHING
    )
    return joined((tag("h2", "Where the space goes"), drawn, more)) if drawn else NOTHING


# ── by ledger ────────────────────────────────────────────────────────────────────────────────────────────


def _ledgers(store: StoreReport) -> Markup:
    found = figures.by_ledger(store)
    every = [ledger for ledger in found if ledger.size]
    if not every:
        return NOTHING
    total = sum(ledger.size for ledger in every)
    return tag(
        "section",
        tag(
            "header",
            tag("h3", "Ledgers in the entry logs"),
            tag("span", store.store),
            tag("span", f"{counted(len(every), 'ledger')}, {sized(total)}"),
        ),
        _legend(every),
        _map(every),
        _gone([ledger for ledger in found if not ledger.size and ledger.bad]),
        class_="panel",
    )


def _gone(ledgers: Sequence[LedgerSpace]) -> Markup:
    """Name the ledgers that cannot be drawn because nothing of them is left in a log."""
    if not ledgers:
        return NOTHING
    ids = ", ".join(str(one.ledger_id) for one in ledgers[:_LEDGERS_MAX])
    rest = len(ledgers) - _LEDGERS_MAX
    ids += f" and {grouped(rest)} more" if rest > 0 else ""
    return tag("p", f"Nothing is left in the logs of {counted(len(ledgers), 'ledger')}: {ids}", class_="more")


def _legend(every: Sequence[LedgerSpace]) -> Markup:
    colours = (
        ("b-cell", "verified", any(_class(one) == "cell" for one in every[:_LEDGERS_MAX])),
        ("b-unverified", "has unverified entries", any(one.unverified for one in every)),
        ("b-bad", "has damaged entries", any(one.bad for one in every)),
        ("b-others", "all smaller ledgers", len(every) > _LEDGERS_MAX),
    )
    return tag(
        "div",
        (
            tag("span", joined(tag("i", class_=colour)), name)
            for colour, name, is_there in colours
            if is_there
        ),
        class_="key",
    )


def _class(ledger: LedgerSpace) -> str:
    return "cell bad" if ledger.bad else "cell unverified" if ledger.unverified else "cell"


def _map(every: Sequence[LedgerSpace]) -> Markup:
    named = [(_class(one), f"ledger {one.ledger_id}", one.size, _words(one)) for one in every[:_LEDGERS_MAX]]
    rest = every[_LEDGERS_MAX:]
    if rest:
        size = sum(one.size for one in rest)
        words = f"{counted(len(rest), 'smaller ledger')}: {sized(size)}"
        named.append(("cell others", f"{grouped(len(rest))} more", size, words))
    named.sort(key=lambda one: -one[2])
    boxes = squarified([size for _, _, size, _ in named], Box(0, 0, _WIDTH, _HEIGHT))
    cells = (
        _cell(box, colour, name, size, words)
        for box, (colour, name, size, words) in zip(boxes, named, strict=True)
    )
    return tag("svg", cells, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img")


def _words(one: LedgerSpace) -> str:
    bad = f", {grouped(one.bad)} damaged" if one.bad else ""
    unverified = f", {grouped(one.unverified)} unverified" if one.unverified else ""
    return f"ledger {one.ledger_id}: {sized(one.size)}, {counted(one.entries, 'entry')}{bad}{unverified}"


def _cell(box: Box, colour: str, name: str, size: int, words: str) -> Markup:
    return joined(
        (
            tag(
                "rect",
                x=box.left,
                y=box.top,
                width=box.width,
                height=box.height,
                rx=4,
                class_=colour,
                data_tip=words,
            ),
            _label(box, name, size),
        )
    )


def _label(box: Box, name: str, size: int) -> Iterator[Markup]:
    if box.width < len(name) * _LETTER + 12 or box.height < 22:
        return
    yield tag("text", name, x=box.left + 8, y=box.top + 18)
    if box.height >= 40:
        yield tag("text", sized(size), x=box.left + 8, y=box.top + 34, class_="small")


# ── live and dead ────────────────────────────────────────────────────────────────────────────────────────


def _logs(store: StoreReport) -> Markup:
    every = figures.by_log(store)
    if not every:
        return NOTHING
    is_known = any(log.dead is not None for log in every)
    # Logs with the most dead bytes come first, because they can be freed.
    shown = sorted(every, key=lambda log: (-(log.dead or 0), log.file)) if len(every) > _LOGS_MAX else every
    largest = max(log.file_size for log in every)
    return tag(
        "section",
        tag(
            "header",
            tag("h3", "Live and dead bytes of each log"),
            tag("span", store.store),
            _sum(every),
        ),
        _log_legend() if is_known else _unknown(),
        tag("div", (_log(log, largest) for log in shown[:_LOGS_MAX]), class_="bars"),
        _more(len(every) - _LOGS_MAX),
        class_="panel",
    )


def _sum(every: Sequence[LogContent]) -> Markup:
    size, dead = sum(log.size for log in every), sum(log.dead or 0 for log in every)
    if not any(log.dead is not None for log in every):
        return NOTHING
    share = 100 * dead / size if size else 0
    return tag("span", f"{sized(dead)} of {sized(size)} dead ({share:.1f} %)")


def _log_legend() -> Markup:
    colours = (
        ("b-live", "live"),
        ("b-dead", "dead: a collection frees it"),
        ("b-rest", "headers, maps, padding"),
    )
    return tag(
        "div", (tag("span", joined(tag("i", class_=colour)), name) for colour, name in colours), class_="key"
    )


def _unknown() -> Markup:
    words = "How much of it is live is not known, because a bookie's index is not read."
    return tag(
        "div",
        tag("span", joined(tag("i", class_="b-unknown")), f"entries. {words}"),
        tag("span", joined(tag("i", class_="b-rest")), "headers, maps, padding"),
        class_="key",
    )


def _log(log: LogContent, largest: int) -> Iterator[Markup]:
    yield tag("code", log.file)
    rest = max(log.file_size - log.size, 0)
    parts = [("b-rest", rest, "headers, maps, padding")]
    if log.dead is None:
        parts.insert(0, ("b-unknown", log.size, "entries"))
    else:
        parts[:0] = [("b-live", log.live, "live"), ("b-dead", log.dead, "dead")]
    shown = (
        tag("i", class_=colour, style=f"width:{100 * size / largest:.3f}%", title=f"{words}: {sized(size)}")
        for colour, size, words in parts
        if size and largest
    )
    yield tag("div", shown, class_="stack")
    dead = "" if log.dead is None else f", {100 * log.dead / log.size if log.size else 0:.0f} % dead"
    yield tag("span", f"{sized(log.file_size)}{dead}")


def _more(count: int) -> Markup:
    return tag("p", f"and {grouped(count)} more, with less to free", class_="more") if count > 0 else NOTHING
