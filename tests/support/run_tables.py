"""The tables of an audit with made-up runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.checks.store_checks import StoreChecks
from recovery.audit.engines.sql import DuckSql
from recovery.audit.model.store_tables import StoreTables, put_parts, put_runs

if TYPE_CHECKING:
    from recovery.audit.checks.store_checks import StoreAnswers
    from recovery.audit.model.runs import Runs
    from recovery.audit.model.store_facts import StoreFacts

    Sourced = tuple[str, Runs]


def checks_of(facts: StoreFacts, *runs: Sourced) -> StoreChecks:
    sql = DuckSql(threads=1)
    put_runs(sql, dict(enumerate(some for _, some in runs)))
    put_parts(sql, ((part, 0, source) for part, (source, _) in enumerate(runs)))
    return StoreChecks(sql, [facts])


def answers_of(facts: StoreFacts, *runs: Sourced) -> StoreAnswers:
    """Return the answers of all queries about one store."""
    (answers,) = checks_of(facts, *runs).answers()
    return answers


def tables_of(facts: StoreFacts, *runs: Sourced) -> StoreTables:
    return StoreTables(checks_of(facts, *runs).sql, 0)
