"""All rules over one store, in one order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.verify import index_rules, journal_rules, ledger_rules, log_rules
from recovery.verify.finding import order

if TYPE_CHECKING:
    from recovery.verify.facts import StoreFacts
    from recovery.verify.finding import Finding
    from recovery.verify.index_rules import Drilled


def findings(facts: StoreFacts, drilled: Drilled) -> tuple[Finding, ...]:
    """Everything that is to be said of a store, in an order that only the files decide."""
    live = index_rules.live_sizes(facts, drilled)
    found = [
        *facts.complaints,
        *journal_rules.findings(facts),
        *log_rules.findings(facts),
        *index_rules.findings(facts, drilled),
        *ledger_rules.findings(facts, live),
    ]
    return tuple(sorted((replace(one, store=facts.store) for one in found), key=order))
