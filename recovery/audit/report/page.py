"""The audit as one HTML page that needs no server, no network and no other file.

What an operator has to know stands first: what has happened to data, what went wrong, what can be repaired
from where, and what the audit does not cover. The findings, the files and the space follow.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.history.baseline import accepted_findings
from recovery.audit.history.finding_history import NO_HISTORY, identity_of
from recovery.audit.report import figures, top
from recovery.audit.report.causes import causes
from recovery.audit.report.commands import command
from recovery.audit.report.files import files
from recovery.audit.report.impact import impact
from recovery.report.formatting import counted, grouped, plural
from recovery.report.formatting import size as sized
from recovery.report.render import render as render_template
from storage._version import __version__

if TYPE_CHECKING:
    from recovery.audit.findings.finding import Finding
    from recovery.audit.history.finding_history import FindingHistory
    from recovery.audit.model.audit_report import AuditReport, CopyCounts, StoreReport
    from recovery.audit.report.figures import FindingGroup
    from recovery.audit.report.impact import Impact

_COLOURS = MappingProxyType({Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFORMATION: "info"})
_LIMITS = MappingProxyType(
    {
        "causes": 30,
        "repairs": 60,
        "sources": 12,
        "open": 12,
        "folded": 300,
        "files": 60,
        "file_stores": 40,
        "ledgers": 12,
        "logs": 60,
        "space_stores": 20,
        "copies": 60,
    }
)
"""How many rows of each kind the page shows. All of them are in the tables."""

_STATUS = ("failed", "not run", "passed")


def render(report: AuditReport, history: FindingHistory = NO_HISTORY, seen: Impact | None = None) -> str:
    """Return the page. The same report gives the same bytes. `history` already contains the report, and
    `seen` is its impact, if that is known.
    """
    known = history.by_identity()
    seen = impact(report) if seen is None else seen
    gaps = top.gaps(report)
    groups = figures.groups(report.findings)

    def first_seen(finding: Finding) -> str:
        record = known.get(identity_of(finding))
        if record is None or record.first_seen == history.updated:
            return "now"
        return record.first_seen[:10]

    about = _about(report)
    return render_template(
        Path(__file__).with_name("page.html.j2"),
        title=f"{about}: audit",
        about=about,
        report=report,
        history=history,
        accepted=accepted_findings(report),
        top=top.headline(report),
        gap_count=sum(max(1, len(gap.stores)) for gap in gaps),
        gaps=gaps[: top.GAPS_MAX],
        gaps_left_out=max(0, len(gaps) - top.GAPS_MAX),
        impact=seen,
        sources=list(seen.sources.items()),
        repairs_shown=sorted(seen.repairs, key=lambda one: len(one.sources))[: _LIMITS["repairs"]],
        causes=causes(report.findings),
        limits=_LIMITS,
        wrong=sum(one.is_wrong for one in report.findings),
        first_seen=first_seen,
        first_sentence=_first_sentence,
        groups=groups,
        group_words=_group_words,
        command=command,
        anchors={group.kind.id: group.anchor for group in reversed(groups)},
        kinds=KINDS,
        words=figures.WORDS,
        colours=_COLOURS,
        facts=top.facts(report),
        several=len(report.stores) > 1,
        stores=top.stores(report),
        files=[files(store) for store in report.stores[: _LIMITS["file_stores"]]],
        copies=_copies(report),
        space=[_space(store) for store in report.stores[: _LIMITS["space_stores"]]],
        checks=_checks(report),
        footer=_footer(report),
    )


def _group_words(group: FindingGroup) -> str:
    """Return how much the findings of one kind are, in words."""
    noun, places = group.kind.counts, len(group.findings)
    where = f"{grouped(places)} {'place' if places == 1 else 'places'}"
    if noun == "bytes":
        return f"{sized(group.count)} in {where}"
    if noun == "files" and group.count == places:
        return where
    singular = next((one for one in (noun[:-3] + "y", noun[:-1]) if plural(one) == noun), noun)
    return f"{grouped(group.count)} {singular if group.count == 1 else noun} in {where}"


# ── copies, space and checks, as the template shows them ─────────────────────────────────────────────────


def _lacking(one: CopyCounts) -> int:
    return sum(one.copies[:-1])


def _copies(report: AuditReport) -> list[CopyCounts]:
    """Return the ledgers of replicas: those that lack most first, the others by id."""
    if report.replicas is None:
        return []
    return sorted(report.replicas.ledgers, key=lambda one: (-_lacking(one), one.ledger_id))


@dataclass(frozen=True, slots=True)
class _SpaceOfStore:
    """Where the space of one store goes."""

    store: StoreReport
    ledgers: list[figures.LedgerSpace]
    gone: list[int]
    """Ledgers that have lost entries and of which nothing is left in a log."""
    logs: list[figures.LogContent]

    @property
    def size(self) -> int:
        return sum(one.size for one in self.ledgers)

    @property
    def is_known(self) -> bool:
        return any(one.dead is not None for one in self.logs)

    @property
    def dead(self) -> int:
        return sum(one.dead or 0 for one in self.logs)

    @property
    def log_size(self) -> int:
        return sum(one.size for one in self.logs)


def _space(store: StoreReport) -> _SpaceOfStore:
    found, logs = figures.by_ledger(store), figures.by_log(store)
    if len(logs) > _LIMITS["logs"]:
        # Logs with the most dead bytes come first, because they can be freed.
        logs = sorted(logs, key=lambda log: (-(log.dead or 0), log.file))
    gone = [one.ledger_id for one in found if not one.size and one.bad]
    return _SpaceOfStore(store, [one for one in found if one.size], gone, logs)


@dataclass(frozen=True, slots=True)
class _CheckRow:
    """One check, over all stores."""

    title: str
    counts: list[tuple[str, int]]
    """How many stores have each status."""
    why: str
    findings: int


def _checks(report: AuditReport) -> list[_CheckRow]:
    every: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number, store in enumerate(report.stores):
        for check in store.checks:
            every[check.id, check.title].append(number)
    rows = []
    for (name, title), numbers in every.items():
        those = [
            (report.stores[number].store, check)
            for number in numbers
            for check in report.stores[number].checks
            if check.id == name
        ]
        whys: defaultdict[str, list[str]] = defaultdict(list)
        for store_name, check in those:
            if check.why:
                whys[check.why].append(store_name)
        is_one = len(report.stores) == 1
        why = "; ".join(one if is_one else f"{one} ({', '.join(names)})" for one, names in whys.items())
        counts = [(status, sum(check.status == status for _, check in those)) for status in _STATUS]
        found = sum(check.findings for _, check in those)
        rows.append(_CheckRow(title, [one for one in counts if one[1]], why, found))
    return rows


def _about(report: AuditReport) -> str:
    [first, *rest] = [store.store for store in report.stores] or ["nothing"]
    return f"{first} and {counted(len(rest), 'other store')}" if rest else first


def _first_sentence(text: str) -> str:
    return text.replace("`", "").partition(". ")[0].rstrip(".")


def _footer(report: AuditReport) -> str:
    command = " · " + shlex.join(report.argv) if report.argv else ""
    return (
        f"ledgerstore {__version__} · {report.started} to {report.ended}{command}. The same in tables: "
        "findings.parquet, runs.parquet, parts.parquet; in one JSON object: summary.json."
    )
