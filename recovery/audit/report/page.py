"""The audit as one HTML page that needs no server, no network and no other file.

What an operator has to know stands first: what has happened to data, what went wrong, what can be repaired
from where, and what the audit does not cover. The findings, the files and the space follow.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.history.baseline import accepted_findings
from recovery.audit.history.finding_history import NO_HISTORY, identity_of
from recovery.audit.report import figures, top
from recovery.audit.report.causes import causes
from recovery.audit.report.checks import checks
from recovery.audit.report.copies import copies
from recovery.audit.report.files import files
from recovery.audit.report.findings import findings
from recovery.audit.report.impact import impact
from recovery.audit.report.space import space
from recovery.report.formatting import counted
from recovery.report.markup import joined
from recovery.report.render import render as render_template
from storage._version import __version__

if TYPE_CHECKING:
    from recovery.audit.findings.finding import Finding
    from recovery.audit.history.finding_history import FindingHistory
    from recovery.audit.model.audit_report import AuditReport
    from recovery.audit.report.impact import Impact

_CAUSES_MAX, _REPAIRS_MAX, _SOURCES_MAX = 30, 60, 12
_COLOURS = MappingProxyType({Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.INFORMATION: "info"})


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
        repairs_shown=sorted(seen.repairs, key=lambda one: len(one.sources))[:_REPAIRS_MAX],
        sources_max=_SOURCES_MAX,
        causes=causes(report.findings),
        causes_max=_CAUSES_MAX,
        wrong=sum(one.is_wrong for one in report.findings),
        first_seen=first_seen,
        first_sentence=_first_sentence,
        groups=groups,
        anchors={group.kind.id: group.anchor for group in reversed(groups)},
        kinds=KINDS,
        words=figures.WORDS,
        colours=_COLOURS,
        facts=top.facts(report),
        several=len(report.stores) > 1,
        stores=top.stores(report),
        sections=joined((findings(report), files(report), copies(report), space(report), checks(report))),
        footer=_footer(report),
    )


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
