"""The top of the page: the verdict, the conditions, the limits by reason, and the stores."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.model.store_facts import BookieIndexFacts, DirectoryOwner
from recovery.audit.report import figures
from recovery.report.formatting import counted, grouped
from recovery.report.formatting import size as sized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import AuditReport, StoreReport
    from recovery.audit.report.figures import FindingCounts

GAPS_MAX = 40


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict in large letters."""

    tone: str
    number: int
    heading: str
    meaning: str


def headline(report: AuditReport) -> Headline:
    """Return the verdict: the number of errors or, without errors, of warnings."""
    found = figures.tally(report.findings)
    tone = "broken" if found.errors else "doubt" if found.warnings else "fine"
    return Headline(tone, found.errors or found.warnings, _heading(report, found), _meaning(report, found))


def _heading(report: AuditReport, found: FindingCounts) -> str:
    where = counted(figures.total(report, "files"), "file")
    if len(report.stores) > 1:
        where += f" of {counted(len(report.stores), 'store')}"
    if found.errors:
        noun = "error" if found.errors == 1 else "errors"
        also = f" and {counted(found.warnings, 'warning')}" if found.warnings else ""
        return f"{noun}{also} in {where}"
    if found.warnings:
        return f"{'warning' if found.warnings == 1 else 'warnings'} and no error in {where}"
    return f"errors in {where}"


def _meaning(report: AuditReport, found: FindingCounts) -> str:
    if found.errors:
        return "Acknowledged data is damaged, lost or unreachable."
    unknown = [store for store in report.stores if _may_lack_logs(store)]
    if unknown and report.replicas is None:
        return (
            "What was read is as it was written. Whether a log is missing is not known of "
            f"{counted(len(unknown), 'bookie')}, because neither an index nor replicas were read."
        )
    if found.warnings:
        return "No acknowledged data is lost, but something is wrong that may lose some."
    return "Everything that could be verified is as it was written, and where it should be."


def _may_lack_logs(store: StoreReport) -> bool:
    is_bookie = store.owner is DirectoryOwner.BOOKIE
    return is_bookie and not isinstance(store.facts.bookie_index, BookieIndexFacts)


def facts(report: AuditReport) -> list[tuple[str, str]]:
    """Return the conditions of the audit, by name."""
    return [(name, value) for name, value in _named_facts(report) if value != "-"]


def _named_facts(report: AuditReport) -> Iterator[tuple[str, str]]:
    yield "read", sized(report.bytes_read)
    if report.bytes_reused:
        yield "known from an earlier audit", sized(report.bytes_reused)
    yield "entries", grouped(figures.total(report, "entries"))
    yield "index rows", grouped(figures.total(report, "index_rows"))
    yield "entry logs", grouped(figures.total(report, "logs"))
    yield "journals", grouped(figures.total(report, "journals"))
    hosts = sorted({store.identity.host for store in report.stores if store.identity.host})
    yield ("host" if len(hosts) == 1 else "hosts"), ", ".join(hosts) or "-"
    yield "took", figures.seconds(report.seconds)
    yield "speed", figures.speed(report.bytes_read, report.seconds)
    yield "engine", report.engine
    yield "started", report.started.replace("T", " ").replace("+00:00", " UTC")
    live = sum(store.is_live for store in report.stores)
    yield "in use during the audit", counted(live, "store") if live else "-"


# ── limits of the audit ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Gap:
    """A limit of the audit, and the stores that it is about; no store if it is about all of them."""

    label: str
    words: str
    stores: tuple[str, ...] = ()


def gaps(report: AuditReport) -> list[Gap]:
    """Return the limits, those with the same reason as one."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for label, store, words in _every_gap(report):
        stores = found[label, words]
        if store and store not in stores:
            stores.append(store)
    return [Gap(label, words, tuple(stores)) for (label, words), stores in found.items()]


def _every_gap(report: AuditReport) -> Iterator[tuple[str, str, str]]:
    """Yield label, store and text of each limit."""
    ledgers, entries = figures.unverified(report.findings)
    if ledgers:
        words = (
            f"{counted(entries, 'entry')} of {counted(ledgers, 'ledger')}: without a digest, "
            "or with one that only a password verifies, so that they may be good or bad"
        )
        yield "UNVERIFIED", "", words
    for ledger in report.wrong_password_ledgers:
        yield "PASSWORD", "", f"the password of ledger {ledger} is wrong: its entries stay unverified"
    if report.bytes_reused:
        words = (
            f"{sized(report.bytes_reused)} of entry logs: an earlier audit found them sound, and no "
            "process has written to them since; bit rot since then was not looked for"
        )
        yield "NOT READ AGAIN", "", words
    for store, what in figures.not_covered(report):
        yield ("REPLICAS" if store == "replicas" else "NOT COVERED"), store, what
    for one in report.stores:
        for check in one.checks:
            if check.status == "not run":
                yield "NOT RUN", one.store, f"{check.title}: {check.why}"


# ── several stores ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StoreRow:
    """A store, and its findings, including those of the comparison of replicas."""

    store: StoreReport
    found: FindingCounts


def stores(report: AuditReport) -> list[StoreRow]:
    """Return the stores, those with most errors first."""
    by_store: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        by_store[finding.store].append(finding)
    rows = [StoreRow(store, figures.tally(by_store[store.store])) for store in report.stores]
    return sorted(rows, key=lambda row: (-row.found.errors, -row.found.warnings))
