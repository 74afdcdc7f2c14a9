"""The checks give the same answers on Spark as in the embedded engine: one text, two engines."""

from __future__ import annotations

from dataclasses import fields, replace
from importlib import resources
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import spark_session
from replicated_ledgers import STORES, checks_of, embedded, random_world, together

from recovery.audit.checks import replica_copies, store_checks, texts
from recovery.audit.checks.replica_copies import READ_COPIES
from recovery.audit.engines.sql import DuckSql
from recovery.audit.model.runs import RUN
from recovery.audit.model.scan_results import MAPPED, RowFlaw
from recovery.audit.model.store_facts import (
    BookieIndexFacts,
    DirectoryOwner,
    IndexFacts,
    IndexNotRead,
    LogFacts,
    StoreFacts,
)
from recovery.audit.model.store_tables import (
    BEFORE_MARK,
    BOOKIE_INDEX,
    INDEX,
    JOURNAL,
    LEFTOVER,
    LOG,
    put_mapped,
    put_parts,
    put_runs,
)
from recovery.audit.model.windows import sums_of
from storage.checkpoint.mark import NoMark
from storage.entry.ledger_record import LedgerRecord, Tombstone
from storage.entry.position import JournalPosition, LogPosition
from storage.entrylog.format import LogHeader
from storage.index.state import IndexState

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession
    from replicated_ledgers import SimulatedCluster

    from recovery.audit.checks.replica_copies import ReplicaChecks
    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.model.runs import Runs
    from recovery.audit.model.windows import Sums

pytestmark = spark_session.MARKS


def world() -> SimulatedCluster:
    random = Random(24)
    made = together(random_world(random).moved(100 * number) for number in range(30))
    for shelf in made.shelves.values():
        for key in shelf.entries:
            shelf.entries[key] += random.random() < 0.02
    return made


def copies(made: SimulatedCluster) -> list[tuple[object, ...]]:
    keys = [(store, *key) for store in STORES for key in sorted(made.shelves[store].entries)]
    return [
        (number, ledger, entry, store, made.shelves[store].entries[ledger, entry], 50)
        for number, (store, ledger, entry) in enumerate(keys)
    ]


def answers(made: SimulatedCluster, sql: SqlEngine) -> dict[str, Any]:
    """Return the answer of every check, before and after entries have been read."""
    checks = checks_of(made.ensembles, made.held(Random(1)), made.progress, sql)
    suspects = checks.suspect_ledgers()
    found: dict[str, Any] = {
        "suspects": suspects,
        "unsettled": checks.unsettled_ledgers(),
        "unnamed": checks.unnamed_ledgers(),
        "differing": checks.differing_copies(READ_COPIES.whole(copies(made))),
    }
    found |= results(checks, "by runs")
    checks.take_entries(suspects, {"bk1": made.held(Random(2))[0].served})
    checks.take_progress(made.progress)
    return found | results(checks, "by entries")


def results(checks: ReplicaChecks, when: str) -> dict[str, Any]:
    return {
        f"findings {when}": list(checks.findings()),
        f"coverage {when}": checks.coverage(),
        f"stores {when}": checks.stores(),
    }


def stores() -> tuple[list[StoreFacts], dict[int, Runs], list[tuple[int, int, str]]]:
    """Return a store of ours and two bookies, one with an index, with random runs of each source."""
    random = Random(27)
    logs = tuple(LogFacts(log_id=one, file_size=0, header=LogHeader(), unverified={2: 9}) for one in (0, 1))
    tombstone = Tombstone(JournalPosition(1, 0), LogPosition(0, 1 << 20))
    dead = LedgerRecord(1, 1, tombstone=tombstone)
    index = IndexFacts(IndexState(), flaws=(RowFlaw(9, 1, 0, ""),))
    ours = StoreFacts(
        store="/ours",
        owner=DirectoryOwner.OURS,
        mark=NoMark(),
        logs=tuple(replace(one, header=mapped_header()) for one in logs),
        rows={1: dead},
        index=index,
        truncated_before={0: 5},
        void_in_index=frozenset({3}),
    )
    bookie = replace(ours, owner=DirectoryOwner.BOOKIE, logs=logs, index=IndexNotRead())
    indexed = replace(bookie, bookie_index=BookieIndexFacts())
    rows: dict[int, Runs] = {}
    parts: list[tuple[int, int, str]] = []
    sources_of = SOURCES_OF_OURS, SOURCES_OF_BOOKIES, (*SOURCES_OF_BOOKIES, BOOKIE_INDEX)
    for store, sources in enumerate(sources_of):
        for source in sources:
            for file in (0, 1):
                parts.append((2 * len(parts) + 2, store, source))
                rows[parts[-1][0]] = some_runs(random, file)
    return [ours, bookie, indexed], rows, parts


QUERIES = ("evidence", "known_ledgers", "readable", "ledgers_of_files", "runs")
"""What is asked of the runs beside the checks."""
SOURCES_OF_BOOKIES = (LOG, JOURNAL, BEFORE_MARK)
SOURCES_OF_OURS = (*SOURCES_OF_BOOKIES, INDEX, LEFTOVER)


def mapped_header() -> LogHeader:
    return LogHeader(1, 4096, 2)


def window_sums() -> list[tuple[int, bool, Sums]]:
    """Return the sums of windows of logs, and the same of an index except in one window."""
    ledgers, entries = np.repeat(np.arange(4), 3), np.tile(np.array([0, 20_000, 40_000]), 4)
    logs = sums_of(ledgers, entries, 64 * np.arange(12), size=np.arange(12))
    index = logs.copy()
    index["places"][5] ^= np.uint64(1)
    return [(0, False, logs), (0, True, index)]


def some_runs(random: Random, file: int) -> Runs:
    found = []
    for _ in range(40):
        step, first, count = random.choice((1, 1, 2, 3)), random.randrange(300), random.randrange(1, 12)
        ids = (file, random.randrange(5), step, first, first + (count - 1) * step, count)
        found.append((*ids, 100 * count, random.randrange(4), random.randrange(4), random.randrange(2)))
    return np.array(found, dtype=RUN)


def store_answers(sql: SqlEngine) -> dict[str, Any]:
    """Return the answer of every check of stores, and of what else is asked of their runs."""
    facts, rows, parts = stores()
    put_runs(sql, rows)
    mapped = [(4096 + 64 * record, 0, ledger, 1000 * ledger) for record in (0, 1) for ledger in range(4)]
    put_mapped(sql, {parts[0][0]: np.array(mapped, dtype=MAPPED)})
    put_parts(sql, parts)
    checks = store_checks.StoreChecks(sql, facts)
    found: dict[str, Any] = {
        "mismatched": checks.mismatched(),
        "logs": checks.mismatched_logs(),
        "sizes": checks.log_sizes(),
        "void": checks.void_rows(),
    }
    windows = checks.compare_windows(window_sums())
    found["windows"] = [(one.same, one.differing.tolist()) for one in windows]
    for one in checks.answers():
        for field in fields(one):
            value = getattr(one, field.name)
            found.setdefault(field.name, []).append(sorted(value) if isinstance(value, list) else value)
    sql.put_columns("asked_ledgers", {"ledger": np.array([1, 2])})
    sql.put_columns("asked_parts", {"part": np.array([2, 4])})
    names = {"number": np.array([0, 2]), "store": np.array(["bk1", "bk2"], dtype=object)}
    sql.put_columns("compared_stores", names)
    for name in QUERIES:
        found[name] = sorted(sql.rows(texts.text(name)))
    return found


def test_every_check_has_the_same_answer_on_both_engines(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recovery.audit.spark.sql import SparkSql

    used = set(QUERIES)

    def noted(name: str) -> str:
        used.add(name)
        return texts.text(name)

    monkeypatch.setattr(replica_copies, "text", noted)
    monkeypatch.setattr(store_checks, "text", noted)
    made = world()
    here = answers(made, embedded()) | store_answers(embedded())
    every = {one.name.removesuffix(".sql") for one in resources.files("recovery.audit.checks.sql").iterdir()}
    assert used == every
    assert all(here.values())
    with SparkSql(spark) as sql:
        there = answers(made, sql) | store_answers(sql)
    assert there == here


def test_views_of_the_user_stay_as_they_are(spark: SparkSession) -> None:
    from recovery.audit.spark.sql import SparkSql

    spark.range(3).createOrReplaceTempView("runs")
    with SparkSql(spark) as sql:
        checks_of([], [], sql=sql)
        assert sql.rows("SELECT count(*) FROM runs") == [(0,)]
    assert spark.table("runs").count() == 3
    spark.catalog.dropTempView("runs")


def test_only_large_tables_go_to_spark(spark: SparkSession) -> None:
    from recovery.audit.spark.engine import SQL_ROWS_MIN, SparkEngine
    from recovery.audit.spark.sql import SparkSql

    engine = SparkEngine(spark)
    with engine.sql(SQL_ROWS_MIN - 1) as sql:
        assert isinstance(sql, DuckSql)
    with engine.sql(SQL_ROWS_MIN) as sql:
        assert isinstance(sql, SparkSql)
        assert sql.rows("SELECT div(7, 2)") == [(3,)]
