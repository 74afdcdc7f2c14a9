"""The tables of an audit with made-up runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.checks.store_checks import StoreChecks
from recovery.audit.engines.sql import DuckSql
from recovery.audit.model.scan_results import MAPPED
from recovery.audit.model.store_tables import StoreTables, put_mapped, put_parts, put_runs
from storage.entry.read_result import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.checks.store_checks import StoreAnswers
    from recovery.audit.model.runs import Runs
    from recovery.audit.model.store_facts import StoreFacts

    Sourced = tuple[str, Runs]


def checks_of(facts: StoreFacts, *runs: Sourced) -> StoreChecks:
    sql = DuckSql(threads=1)
    put_runs(sql, dict(enumerate(some for _, some in runs)))
    put_mapped(sql, dict(enumerate(_mapped(facts))))
    put_parts(sql, ((part, 0, source) for part, (source, _) in enumerate(runs)))
    return StoreChecks(sql, [facts])


def _mapped(facts: StoreFacts) -> Iterator[Any]:
    """Yield the ledgers maps of made-up logs. They count with the first part."""
    for log in facts.logs:
        pairs = ((one.offset, one.pairs) for one in log.maps if not isinstance(one.pairs, Damaged))
        rows = [(offset, log.log_id, *pair) for offset, some in pairs for pair in some]
        yield np.array(rows, dtype=MAPPED)


def answers_of(facts: StoreFacts, *runs: Sourced) -> StoreAnswers:
    """Return the answers of all queries about one store."""
    (answers,) = checks_of(facts, *runs).answers()
    return answers


def tables_of(facts: StoreFacts, *runs: Sourced) -> StoreTables:
    return StoreTables(checks_of(facts, *runs).sql, 0)
