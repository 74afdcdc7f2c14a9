"""The section about replicas: how many entries of each ledger have all copies, and what each store lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.report.formatting import counted, grouped
from recovery.report.markup import NOTHING, Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.audit.model.audit_report import AuditReport, CopyCounts, StoreShare

_LEDGERS_MAX = 60


def copies(report: AuditReport) -> Markup:
    """Return both panels, if replicas were compared."""
    replicas = report.replicas
    if replicas is None:
        return NOTHING
    compared = len(replicas.compared_by_entry)
    lead = f"{counted(len(replicas.ledgers), 'ledger')} on {counted(len(replicas.stores), 'store')}. "
    lead += "Copies were compared by fingerprints over their digests"
    lead += f", those of {counted(compared, 'ledger')} entry by entry too." if compared else "."
    return joined(
        (
            tag("h2", "Replicas"),
            tag("p", lead, class_="lead"),
            _stores(replicas.stores, replicas.paths),
            _ledgers(replicas.ledgers),
        )
    )


# ── by store ─────────────────────────────────────────────────────────────────────────────────────────────


def _stores(shares: Mapping[str, StoreShare], paths: Mapping[str, str]) -> Markup:
    most = max((share.should for share in shares.values()), default=0)
    return tag(
        "section",
        tag("header", tag("h3", "What each store should hold")),
        _key(("b-live", "it holds"), ("b-few", "it lacks")),
        tag(
            "div",
            (_store(name, paths.get(name, ""), *one, most) for name, one in shares.items()),
            class_="bars",
        ),
        class_="panel",
    )


def _key(*colours: tuple[str, str]) -> Markup:
    return tag(
        "div", (tag("span", joined(tag("i", class_=colour)), name) for colour, name in colours), class_="key"
    )


def _store(name: str, path: str, should: int, held: int, beside: int, most: int) -> Iterator[Markup]:
    lacking = should - held
    yield tag("code", name, title=path)
    yield _stack([("b-live", held, "held"), ("b-few", lacking, "lacking")], most)
    words = f"{grouped(held)} of {counted(should, 'entry')}"
    words += f", {grouped(lacking)} lacking" if lacking else ""
    yield tag("span", words, f", {grouped(beside)} beside" if beside else "")


def _stack(parts: Sequence[tuple[str, int, str]], whole: int) -> Markup:
    shown = (
        tag(
            "i",
            class_=colour,
            style=f"width:max(3px,{100 * count / whole:.3f}%)",
            title=f"{words}: {grouped(count)}",
        )
        for colour, count, words in parts
        if count and whole
    )
    return tag("div", shown, class_="stack")


# ── by ledger ────────────────────────────────────────────────────────────────────────────────────────────


def _ledgers(every: Sequence[CopyCounts]) -> Markup:
    if not every:
        return NOTHING
    # Ledgers that lack most come first, the others by id.
    shown = sorted(every, key=lambda one: (-_lacking(one), one.ledger_id))[:_LEDGERS_MAX]
    whole = sum(_lacking(one) == 0 for one in every)
    rest = len(every) - len(shown)
    return tag(
        "section",
        tag(
            "header",
            tag("h3", "How many copies there are"),
            tag("span", f"{grouped(whole)} of {counted(len(every), 'ledger')} with all of them"),
        ),
        _key(("b-live", "all copies"), ("b-dead", "some are missing"), ("b-few", "no copy at all")),
        tag("div", map(_ledger, shown), class_="bars"),
        tag("p", f"and {grouped(rest)} more", class_="more") if rest > 0 else NOTHING,
        class_="panel",
    )


def _lacking(one: CopyCounts) -> int:
    return sum(one.copies[:-1])


def _ledger(one: CopyCounts) -> Iterator[Markup]:
    quorum = len(one.copies) - 1
    parts = [("b-live", one.copies[-1], f"with all {quorum} copies")]
    parts += [("b-dead", count, f"with {number} of {quorum} copies") for number, count in _some(one)]
    parts += [("b-few", one.copies[0], "without any copy")] if quorum else []
    yield tag("code", f"ledger {one.ledger_id}")
    yield _stack(parts, one.entries)
    details = [f"{grouped(count)} {words}" for _, count, words in parts[1:] if count]
    open_ = ", open" if one.is_open else ""
    yield tag("span", counted(one.entries, "entry"), open_, "".join(f", {words}" for words in details))


def _some(one: CopyCounts) -> list[tuple[int, int]]:
    """Return the numbers of copies between none and all, the largest first."""
    return [(number, one.copies[number]) for number in range(len(one.copies) - 2, 0, -1)]
