"""What is said of ledgers: entries that nothing verifies, and gaps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import audit_reports
import pytest
from fault_trials import audited
from fixtures import bookie, manifest
from run_tables import answers_of

from recovery.audit.checks.ledger_rules import findings
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.model.store_facts import DirectoryOwner
from recovery.audit.pipeline.check_results import checks

if TYPE_CHECKING:
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.store_facts import StoreFacts


def _facts(ledgers: int, owner: DirectoryOwner) -> StoreFacts:
    """Return the facts about a store in which each ledger has a gap of nine entries."""
    parts = [(0, one, first, first, 10) for one in range(ledgers) for first in (0, 10)]
    log = replace(audit_reports.log(0, 1 << 20, []), runs=audit_reports.runs(parts))
    return audit_reports.store(logs=[log], owner=owner, journals=0).facts


def _gaps(ledgers: int, owner: DirectoryOwner) -> list[Finding]:
    facts = _facts(ledgers, owner)
    answers = answers_of(facts, *audit_reports.runs_of(facts))
    return [one for one in findings(facts, answers, None) if one.kind == "LGR-001"]


def test_copies_of_an_unverified_entry_are_counted_once() -> None:
    ledgers = {one["ledger"]: len(one["entries"]) for one in manifest("08_digests")["ledgers"]}
    told = [one for one in audited(bookie("08_digests") / "bookie", {}) if one.kind == "LGR-005"]
    assert told
    assert {one.ledger_id: one.count for one in told} == {
        one.ledger_id: ledgers[one.ledger_id] for one in told
    }


def test_a_few_ledgers_with_gaps_are_named() -> None:
    assert [(one.ledger_id, one.count) for one in _gaps(3, DirectoryOwner.BOOKIE)] == [(0, 9), (1, 9), (2, 9)]


def test_the_gaps_of_a_bookie_that_shares_all_its_ledgers_are_one_finding() -> None:
    (told,) = _gaps(500, DirectoryOwner.BOOKIE)
    assert (told.ledger_id, told.count) == (None, 4500)
    assert "500 ledgers" in told.detail


def test_each_ledger_with_a_gap_in_a_store_of_ours_is_named() -> None:
    assert len(_gaps(30, DirectoryOwner.OURS)) == 30


_WRONG = [
    kind.id
    for kind in KINDS.values()
    if kind.severity is not Severity.INFORMATION and not kind.id.startswith("RPL-")
]
"""The kinds that a check of one store may be about."""


@pytest.mark.parametrize("kind", _WRONG)
def test_no_check_has_passed_beside_a_finding_against_it(kind: str) -> None:
    against = KINDS[kind].at(store="/s", file="0.log")
    answers = checks(_facts(1, DirectoryOwner.OURS), [against])
    assert [one.status for one in answers].count("failed") == 1
