"""Wrong passwords: repeat the audit without them, because what they report is not damage.

A wrong password makes every entry of its ledger look damaged. A password is wrong if its master key is not
that of the ledger or, if the master key is unknown, if no entry verifies with it. The audit is then repeated
without it: the entries are unverified, and the wrong password is reported once instead of once per entry.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.checks.texts import text
from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.pipeline.run_audit import run_audit
from storage.entry.digest import master_key
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import AuditReport
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
    wrong = ledgers_with_wrong_password(report, policy)
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


def ledgers_with_wrong_password(report: AuditReport, policy: DigestPolicy) -> frozenset[int]:
    """Return the ledgers with MAC digests for which a wrong password was given.

    A password is compared with the master key in ledger metadata or a journal. Without a master key the
    entries decide.
    """
    stores = [store.facts for store in report.stores]
    given = ((ledger, policy.password_of(ledger)) for ledger in _protected(stores))
    keys = _keys(stores)
    wrong, unknown = set[int](), set[int]()
    for ledger, password in given:
        if password is not None and ledger not in keys:
            unknown.add(ledger)
        elif password is not None and master_key(password) not in keys[ledger]:
            wrong.add(ledger)
    return frozenset(wrong | _unreadable(report, unknown))


def _keys(stores: list[StoreFacts]) -> Mapping[int, set[bytes]]:
    """Return the master keys of each ledger that are in metadata or journals."""
    keys: defaultdict[int, set[bytes]] = defaultdict(set)
    for facts in stores:
        for row in facts.rows.values():
            if row.master_key is not None:
                keys[row.ledger_id].add(row.master_key)
        for fact in chain.from_iterable(journal.facts for journal in facts.journals):
            if fact.master_key is not None:
                keys[fact.ledger_id].add(fact.master_key)
    return keys


def _unreadable(report: AuditReport, ledgers: set[int]) -> set[int]:
    """Return those of the ledgers of which no entry verifies. Entries in sealed groups of a journal were not
    verified, so logs count first.
    """
    sql = next((store.tables.sql for store in report.stores if store.tables is not None), None)
    if not ledgers or sql is None:
        return set()
    sql.put_columns("asked_ledgers", {"ledger": np.array(sorted(ledgers), dtype=np.int64)})
    return {
        ledger
        for ledger, logged, in_logs, journaled, in_journals in sql.rows(text("readable"))
        if (in_logs == 0 if logged else journaled and in_journals == 0)
    }


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
