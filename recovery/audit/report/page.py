"""The audit as one HTML page that needs no server, no network and no other file."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from recovery.audit.report.checks import checks
from recovery.audit.report.copies import copies
from recovery.audit.report.files import files
from recovery.audit.report.findings import findings
from recovery.audit.report.space import space
from recovery.audit.report.style import CSS, SCRIPT
from recovery.audit.report.top import top
from recovery.report.document import document
from recovery.report.formatting import counted
from recovery.report.markup import Markup, tag
from storage._version import __version__

if TYPE_CHECKING:
    from recovery.audit.model.audit_report import AuditReport


def render(report: AuditReport) -> str:
    """Return the page. The same report gives the same bytes."""
    about = _about(report)
    body = tag(
        "main",
        tag("p", "Audit · ", tag("b", about), class_="kicker"),
        top(report),
        files(report),
        findings(report),
        copies(report),
        space(report),
        checks(report),
        _footer(report),
    )
    return document(f"{about}: audit", CSS, SCRIPT, body)


def _about(report: AuditReport) -> str:
    [first, *rest] = [store.store for store in report.stores] or ["nothing"]
    return f"{first} and {counted(len(rest), 'other store')}" if rest else first


def _footer(report: AuditReport) -> Markup:
    command = " · " + shlex.join(report.argv) if report.argv else ""
    return tag(
        "footer",
        f"ledgerstore {__version__} · {report.started} to {report.ended}{command}. The same in tables: "
        "findings.parquet, runs.parquet, parts.parquet; in one JSON object: summary.json.",
    )
