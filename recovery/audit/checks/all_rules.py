"""Apply all rules to one store, in one order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.audit.checks import bookie_index_rules, journal_rules, ledger_rules, log_rules
from recovery.audit.findings.finding import order

if TYPE_CHECKING:
    from recovery.audit.checks.entry_compare import CompareResult
    from recovery.audit.checks.store_checks import StoreAnswers
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.store_facts import StoreFacts


def findings(facts: StoreFacts, answers: StoreAnswers, compared: CompareResult) -> tuple[Finding, ...]:
    """Return all findings of a store, in an order that depends on the files only."""
    found = [
        *facts.inventory_findings,
        *journal_rules.findings(facts),
        *log_rules.findings(facts, answers),
        *compared.findings,
        *bookie_index_rules.findings(facts, answers),
        *ledger_rules.findings(facts, answers, compared.live),
    ]
    return tuple(sorted((replace(one, store=facts.store) for one in found), key=order))
