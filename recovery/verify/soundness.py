"""All rules over one store, in one order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.verify import journal_rules, ledger_rules, log_rules
from recovery.verify.finding import order

if TYPE_CHECKING:
    from recovery.verify.comparison import Compared
    from recovery.verify.facts import StoreFacts
    from recovery.verify.finding import Finding


def findings(facts: StoreFacts, compared: Compared) -> tuple[Finding, ...]:
    """Everything that is to be said of a store, in an order that only the files decide."""
    found = [
        *facts.complaints,
        *journal_rules.findings(facts),
        *log_rules.findings(facts),
        *compared.findings,
        *ledger_rules.findings(facts, compared.live),
    ]
    return tuple(sorted((replace(one, store=facts.store) for one in found), key=order))
