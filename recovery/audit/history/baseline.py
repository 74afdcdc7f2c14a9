"""A baseline: findings that an operator has looked at and accepted.

They stay in the report, as information, and no longer decide its verdict and the exit code. The file has a
line of JSON for each, as `history.ndjson` has them, so that lines of a history can be copied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.audit.findings.finding import Severity
from recovery.audit.history.finding_history import ACCEPTED, StoreKeys, identity_of, is_accepted
from recovery.audit.pipeline.check_results import NOT_RUN, checks

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from recovery.audit.findings.finding import Finding
    from recovery.audit.history.finding_history import Identity
    from recovery.audit.model.audit_report import AuditReport, StoreReport


def accept(report: AuditReport, accepted: AbstractSet[Identity]) -> AuditReport:
    """Return the report with the accepted findings as information."""
    if not accepted:
        return report
    baseline = _Baseline(accepted, StoreKeys(report))
    replicas = report.replicas
    if replicas is not None:
        replicas = replace(replicas, findings=baseline.graded(replicas.findings))
    return replace(
        report,
        stores=tuple(baseline.of_store(store) for store in report.stores),
        findings=baseline.graded(report.findings),
        replicas=replicas,
    )


def accepted_findings(report: AuditReport) -> tuple[Finding, ...]:
    """Return the findings that were accepted."""
    return tuple(one for one in report.findings if is_accepted(one))


class _Baseline:
    """The accepted findings, for the stores of one report."""

    def __init__(self, accepted: AbstractSet[Identity], keys: StoreKeys) -> None:
        self._accepted = accepted
        self._keys = keys

    def of_store(self, store: StoreReport) -> StoreReport:
        findings = self.graded(store.findings)
        if findings == store.findings:
            return store
        before = {check.id: check for check in store.checks}
        again = {check.id: check for check in checks(store.facts, findings)}
        # A check that was not run has no answer, because its files could not be read.
        answers = (one if one.status == NOT_RUN else again[name] for name, one in before.items())
        return replace(store, findings=findings, checks=tuple(answers))

    def graded(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(
            replace(one, severity=Severity.INFORMATION, detail=one.detail + ACCEPTED)
            if one.is_wrong and self._has(one)
            else one
            for one in findings
        )

    def _has(self, finding: Finding) -> bool:
        names = (finding.store, *self._keys.keys(finding.store))
        return any(identity_of(replace(finding, store=name)) in self._accepted for name in names)
