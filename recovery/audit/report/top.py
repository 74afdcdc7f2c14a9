"""The top of the page: the verdict, the conditions, the limits, and the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.report import figures
from recovery.report.formatting import counted, grouped
from recovery.report.formatting import size as sized
from recovery.report.markup import NOTHING, Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.model.audit_report import AuditReport, StoreReport
    from recovery.audit.report.figures import FindingCounts

_GAPS_MAX = 40


def top(report: AuditReport) -> Markup:
    """Return the verdict, the conditions and the limits, and with several stores a row for each."""
    return joined((_verdict(report), _kinds(report), _facts(report), _gaps(report), _stores(report)))


def _verdict(report: AuditReport) -> Markup:
    found = figures.tally(report.findings)
    number = found.errors or found.warnings
    gaps = len(_all_gaps(report))
    but = f"But see below: {counted(gaps, 'gap')} in what was verified." if gaps else ""
    return tag(
        "section",
        tag("div", grouped(number), class_="number"),
        tag(
            "div",
            tag("h1", _heading(report, found)),
            tag("p", _meaning(found), " ", tag("b", but)),
        ),
        class_=f"verdict {_tone(found)}",
    )


def _tone(found: FindingCounts) -> str:
    return "broken" if found.errors else "doubt" if found.warnings else "fine"


def _heading(report: AuditReport, found: FindingCounts) -> str:
    where = counted(figures.total(report, "files"), "file")
    where += f" of {counted(len(report.stores), 'store')}" if len(report.stores) > 1 else ""
    if found.errors:
        noun = "error" if found.errors == 1 else "errors"
        also = f" and {counted(found.warnings, 'warning')}" if found.warnings else ""
        return f"{noun}{also} in {where}"
    if found.warnings:
        return f"{'warning' if found.warnings == 1 else 'warnings'} and no error in {where}"
    return f"errors in {where}"


def _meaning(found: FindingCounts) -> str:
    if found.errors:
        return "Acknowledged data is damaged, lost or unreachable."
    if found.warnings:
        return "No acknowledged data is lost, but something is wrong that may lose some."
    return "Everything that could be verified is as it was written, and where it should be."


def _kinds(report: AuditReport) -> Markup:
    chips = (
        tag(
            "a",
            tag("code", group.kind.id),
            group.kind.title,
            tag("b", grouped(len(group.findings))),
            href=f"#{group.anchor}",
            class_=f"k-{figures.WORDS[group.severity]}",
        )
        for group in figures.groups(report.findings)
    )
    return tag("nav", chips, class_="chips")


def _facts(report: AuditReport) -> Markup:
    rows = (
        tag("div", tag("dt", name), tag("dd", value)) for name, value in _named_facts(report) if value != "-"
    )
    return tag("dl", rows, class_="facts")


def _named_facts(report: AuditReport) -> Iterator[tuple[str, str]]:
    yield "read", sized(report.bytes_read)
    if report.bytes_reused:
        yield "known from an earlier audit", sized(report.bytes_reused)
    yield "entries", grouped(figures.total(report, "entries"))
    yield "index rows", grouped(figures.total(report, "index_rows"))
    yield "entry logs", grouped(figures.total(report, "logs"))
    yield "journals", grouped(figures.total(report, "journals"))
    yield "took", figures.seconds(report.seconds)
    yield "speed", figures.speed(report.bytes_read, report.seconds)
    yield "engine", report.engine
    yield "started", report.started.replace("T", " ").replace("+00:00", " UTC")
    live = sum(store.is_live for store in report.stores)
    yield "in use during the audit", counted(live, "store") if live else "-"


# ── limits of the audit ──────────────────────────────────────────────────────────────────────────────────


def _all_gaps(report: AuditReport) -> list[tuple[str, str, str]]:
    """Return label, store and text of each limit."""
    ledgers, entries = figures.unverified(report.findings)
    gaps = []
    if ledgers:
        words = (
            f"{counted(entries, 'entry')} of {counted(ledgers, 'ledger')}: without a digest, "
            "or with one that only a password verifies, so that they may be good or bad"
        )
        gaps.append(("UNVERIFIED", "", words))
    gaps += [
        ("PASSWORD", "", f"the password of ledger {ledger} is wrong: its entries stay unverified")
        for ledger in report.wrong_password_ledgers
    ]
    if report.bytes_reused:
        words = (
            f"{sized(report.bytes_reused)} of entry logs: an earlier audit found them sound, and no "
            "process has written to them since; bit rot since then was not looked for"
        )
        gaps.append(("NOT READ AGAIN", "", words))
    gaps += [("NOT COVERED", store, what) for store, what in figures.not_covered(report)]
    for store in report.stores:
        gaps += [
            ("NOT RUN", store.store, f"{check.title}: {check.why}")
            for check in store.checks
            if check.status == "not run"
        ]
    return gaps


def _gaps(report: AuditReport) -> Markup:
    gaps = _all_gaps(report)
    if not gaps:
        return NOTHING
    several = len(report.stores) > 1
    rows = (
        tag(
            "li",
            tag("span", label, class_="pill warn"),
            tag(
                "span",
                tag("b", f"{store}: ") if (several or store == "replicas") and store else NOTHING,
                words,
            ),
        )
        for label, store, words in gaps[:_GAPS_MAX]
    )
    rest = len(gaps) - _GAPS_MAX
    more = tag("p", f"and {grouped(rest)} more: see summary.json", class_="more") if rest > 0 else NOTHING
    return tag(
        "section", tag("h2", "What this audit does not cover"), tag("ul", rows), more, class_="gaps loud"
    )


# ── several stores ───────────────────────────────────────────────────────────────────────────────────────

_COLUMNS = ("errors", "warnings", "entry logs", "journals", "bytes", "entries")


def _stores(report: AuditReport) -> Markup:
    if len(report.stores) < 2:
        return NOTHING
    heading = tag(
        "tr", tag("th", "store"), tag("th", "owner"), (tag("th", name, class_="n") for name in _COLUMNS)
    )
    return joined(
        (
            tag("h2", "Stores"),
            tag(
                "section",
                tag("table", heading, (_store(store, _found_in(report, store)) for store in report.stores)),
                class_="panel scroll",
            ),
        )
    )


def _found_in(report: AuditReport, store: StoreReport) -> FindingCounts:
    """Count the findings of a store, including those of the comparison of replicas."""
    return figures.tally(one for one in report.findings if one.store == store.store)


def _store(store: StoreReport, found: FindingCounts) -> Markup:
    covered = store.coverage
    cells = (covered.logs, covered.journals, sized(covered.bytes), covered.entries)
    whose = store.owner.value + (", in use" if store.is_live else "")
    return tag(
        "tr",
        tag("td", tag("code", store.store), class_="text"),
        tag("td", whose),
        tag("td", _count(found.errors, "bad"), class_="n"),
        tag("td", _count(found.warnings, "warn"), class_="n"),
        (tag("td", grouped(one) if isinstance(one, int) else one, class_="n") for one in cells),
    )


def _count(number: int, colour: str) -> Markup:
    return tag("span", grouped(number), class_=f"pill {colour if number else 'good'}")
