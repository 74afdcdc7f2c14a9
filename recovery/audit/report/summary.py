"""The audit as one JSON object, for monitoring programs: the verdict, the coverage, the worst findings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from recovery.audit.history.baseline import accepted_findings
from recovery.audit.history.finding_history import NO_HISTORY
from recovery.audit.report import commands, figures
from recovery.audit.report.figures import WORDS
from storage._version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.findings.finding import Finding
    from recovery.audit.history.finding_history import FindingHistory
    from recovery.audit.model.audit_report import AuditReport, ReplicaReport, StoreReport

SCHEMA_VERSION = 1
_WORST_MAX = 20


def summary(report: AuditReport, history: FindingHistory = NO_HISTORY) -> dict[str, Any]:
    """Return the summary. Every value is a text, a number, a list or an object.

    `history` already contains this report.
    """
    ledgers, entries = figures.unverified(report.findings)
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": f"ledgerstore {__version__}",
        "argv": list(report.argv),
        "engine": report.engine,
        "started": report.started,
        "ended": report.ended,
        "seconds": round(report.seconds, 3),
        "verdict": figures.verdict(report),
        "sound": figures.is_clean(report),
        "findings": _severities(report.findings) | {"by_kind": _kinds(report.findings)},
        "history": {
            "open": len(history.open),
            "new": len(history.new),
            "resolved": len(history.just_resolved),
            "accepted": len(accepted_findings(report)),
        },
        "unverified": {"ledgers": ledgers, "entries": entries},
        "misfits": list(report.wrong_password_ledgers),
        "bytes_read": report.bytes_read,
        "bytes_reused": report.bytes_reused,
        "bytes_per_second": round(report.bytes_read / report.seconds) if report.seconds else None,
        "stores": [_store(one) for one in report.stores],
        "replicas": _replicas(report.replicas) if report.replicas else None,
        "worst": _the_worst(report.findings),
    }


def _the_worst(found: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the gravest findings of all stores. Equally grave ones keep their order."""
    wrong = sorted((one for one in found if one.is_wrong), key=lambda one: one.severity)
    return [_worst(one) for one in wrong[:_WORST_MAX]]


def _severities(found: Iterable[Finding]) -> dict[str, Any]:
    tally = figures.tally(found)
    return {"errors": tally.errors, "warnings": tally.warnings, "information": tally.information}


def _kinds(found: Iterable[Finding]) -> dict[str, int]:
    return dict(sorted(Counter(one.kind for one in found).items()))


def _store(store: StoreReport) -> dict[str, Any]:
    covered = store.coverage
    return {
        "store": store.store,
        "host": store.identity.host,
        "bookie": store.identity.bookie_id,
        "instance": store.identity.instance_id,
        "owner": store.owner.value,
        "live": store.is_live,
        "findings": _severities(store.findings),
        "coverage": {
            name: getattr(covered, name)
            for name in ("files", "bytes", "entries", "index_rows", "journals", "logs")
        }
        | {"not_covered": list(covered.not_covered)},
        "checks": [
            {
                "id": check.id,
                "title": check.title,
                "status": check.status,
                "why": check.why,
                "findings": check.findings,
            }
            for check in store.checks
        ],
        "worst_files": _most(Counter(one.file for one in store.findings if one.is_wrong and one.file)),
        "worst_ledgers": _most(
            Counter(one.ledger_id for one in store.findings if one.is_wrong and one.ledger_id is not None)
        ),
    }


def _replicas(compared: ReplicaReport) -> dict[str, Any]:
    return {
        "stores": {name: share._asdict() for name, share in compared.stores.items()},
        "ledgers": [
            {"ledger": one.ledger_id, "open": one.is_open, "copies": list(one.copies)}
            for one in compared.ledgers
        ],
        "compared_entry_by_entry": list(compared.compared_by_entry),
        "not_covered": list(compared.not_covered),
    }


def _most(counts: Counter[Any]) -> list[dict[str, Any]]:
    return [{"name": name, "findings": count} for name, count in counts.most_common(_WORST_MAX)]


def _worst(one: Finding) -> dict[str, Any]:
    return {
        "severity": WORDS[one.severity],
        "kind": one.kind,
        "store": one.store,
        "place": one.place,
        "ledger": one.ledger_id,
        "first_entry": one.first_entry,
        "last_entry": one.last_entry,
        "count": one.count,
        "detail": one.detail,
        "look": commands.command(one),
    }
