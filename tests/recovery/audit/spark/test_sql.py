"""The checks give the same answers on Spark as in the embedded engine: one text, two engines."""

from __future__ import annotations

from importlib import resources
from random import Random
from typing import TYPE_CHECKING, Any

import spark_session
from replicated_ledgers import STORES, checks_of, embedded, random_world, together

from recovery.audit.checks import replica_copies, texts
from recovery.audit.checks.replica_copies import READ_COPIES
from recovery.audit.engines.sql import DuckSql

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession
    from replicated_ledgers import SimulatedCluster

    from recovery.audit.checks.replica_copies import ReplicaChecks
    from recovery.audit.engines.sql import SqlEngine

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


def test_every_check_has_the_same_answer_on_both_engines(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recovery.audit.spark.sql import SparkSql

    used = set[str]()

    def noted(name: str) -> str:
        used.add(name)
        return texts.text(name)

    monkeypatch.setattr(replica_copies, "text", noted)
    made = world()
    here = answers(made, embedded())
    every = {one.name.removesuffix(".sql") for one in resources.files("recovery.audit.checks.sql").iterdir()}
    assert used == every
    assert all(here.values())
    with SparkSql(spark) as sql:
        there = answers(made, sql)
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

    engine = SparkEngine(spark.sparkContext)
    with engine.sql(SQL_ROWS_MIN - 1) as sql:
        assert isinstance(sql, DuckSql)
    with engine.sql(SQL_ROWS_MIN) as sql:
        assert isinstance(sql, SparkSql)
        assert sql.rows("SELECT div(7, 2)") == [(3,)]
