"""Wrong passwords: repeat the audit without them, because what they report is not damage.

A wrong password makes every entry of its ledger look damaged. A password is wrong if its master key is not
that of the ledger or, if the master key is unknown, if no entry verifies with it. The audit is then repeated
without it: the entries are unverified, and the wrong password is reported once instead of once per entry.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.model.runs import no_runs
from recovery.audit.pipeline.run_audit import run_audit
from storage.entry.digest import master_key
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import AuditReport
    from recovery.audit.model.runs import Runs
    from recovery.audit.model.store_facts import StoreFacts
    from recovery.audit.pipeline.request import AuditRequest


def run_audit_with_valid_passwords(request: AuditRequest) -> AuditReport:
    """Run an audit. In `wrong_password_ledgers` the report lists ledgers whose password is wrong."""

    def audit_with(policy: DigestPolicy) -> AuditReport:
        # Parts kept with a wrong password are not sound, and no later audit uses them.
        return run_audit(request if policy is request.policy else replace(request, policy=policy, keep=None))

    return repeat_without_wrong_passwords(audit_with, request.policy)


def repeat_without_wrong_passwords(
    audit_with: Callable[[DigestPolicy], AuditReport], policy: DigestPolicy
) -> AuditReport:
    """Call `audit_with`, and a second time without the wrong passwords if there are any."""
    report = audit_with(policy)
    wrong = ledgers_with_wrong_password([store.facts for store in report.stores], policy)
    if not wrong:
        return report
    again = _with_the_reason(audit_with(_without(report, policy, wrong)), wrong)
    return replace(
        again,
        bytes_read=report.bytes_read + again.bytes_read,
        wrong_password_ledgers=tuple(sorted(wrong)),
    )


def _with_the_reason(report: AuditReport, wrong: frozenset[int]) -> AuditReport:
    """Say of unverified entries that their password is wrong, because one was given."""

    def corrected(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(
            replace(one, detail="its digests are MACs, and the password that was given is wrong")
            if one.kind == "LGR-005" and one.ledger_id in wrong
            else one
            for one in findings
        )

    stores = tuple(replace(store, findings=corrected(store.findings)) for store in report.stores)
    return replace(report, stores=stores, findings=corrected(report.findings))


def ledgers_with_wrong_password(stores: list[StoreFacts], policy: DigestPolicy) -> frozenset[int]:
    """Return the ledgers with MAC digests for which a wrong password was given."""
    given = ((ledger, policy.password_of(ledger)) for ledger in _protected(stores))
    return frozenset(
        ledger for ledger, password in given if password is not None and not _fits(stores, ledger, password)
    )


def _fits(stores: list[StoreFacts], ledger: int, password: bytes) -> bool:
    """Compare with the master key in ledger metadata or a journal. Without a master key the entries
    decide.
    """
    keys = set(_keys(stores, ledger))
    return master_key(password) in keys if keys else _verifies_any(stores, ledger)


def _keys(stores: list[StoreFacts], ledger: int) -> Iterator[bytes]:
    for facts in stores:
        row = facts.rows.get(ledger)
        if row is not None and row.master_key is not None:
            yield row.master_key
        about_ledger = (
            fact for journal in facts.journals for fact in journal.facts if fact.ledger_id == ledger
        )
        yield from (fact.master_key for fact in about_ledger if fact.master_key is not None)


def _verifies_any(stores: list[StoreFacts], ledger: int) -> bool:
    """Return whether an entry verifies. Entries in sealed groups of a journal were not verified, so logs
    count first.
    """
    logs = [_of(log.runs, ledger) for facts in stores for log in facts.logs]
    journals = [_of(journal.before_mark, ledger) for facts in stores for journal in facts.journals]
    journals += [_of(journal.after_mark, ledger) for facts in stores for journal in facts.journals]
    runs = np.concatenate(logs) if any(len(one) for one in logs) else np.concatenate([no_runs(), *journals])
    return not len(runs) or bool((runs["count"] > runs["bad"]).any())


def _of(runs: Runs, ledger: int) -> Runs:
    some: Runs = runs[runs["ledger"] == ledger]
    return some


def _protected(stores: list[StoreFacts]) -> frozenset[int]:
    every = (row for facts in stores for row in facts.rows.values())
    rows = (row.ledger_id for row in every if row.digest_type is DigestType.MAC)
    types = [part.types for facts in stores for part in facts.logs]
    types += [part.types for facts in stores for part in facts.journals]
    ledgers_with_macs = (ledger for some in types for ledger, kind in some.items() if kind is DigestType.MAC)
    return frozenset((*rows, *ledgers_with_macs))


def _without(report: AuditReport, policy: DigestPolicy, wrong: frozenset[int]) -> DigestPolicy:
    """Return a policy with each password by itself, because a default would reach the ledgers it is wrong
    for.
    """
    protected = _protected([store.facts for store in report.stores]) | policy.passwords.keys()
    given = {ledger: policy.password_of(ledger) for ledger in protected - wrong}
    return DigestPolicy(passwords={ledger: one for ledger, one in given.items() if one is not None})
