"""Findings do not depend on the engine: one process, several processes, or Spark."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import audited_stores
import spark_session
from fault_trials import faults_of

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.local import Pool, Serial
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.audit.self_test.trials import plant

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from recovery.audit.engines.task import TaskEngine
    from recovery.audit.findings.finding import Finding

pytestmark = spark_session.MARKS

_FAULTS_OF_EACH = 6


def damaged(place: Path) -> tuple[list[str], dict[int, bytes]]:
    """Stores of many shapes with several faults each, and all their passwords."""
    paths, passwords = [], dict[int, bytes]()
    for name in audited_stores.NAMES:
        dice = Random(name)
        faults = dice.sample(faults_of(name), min(_FAULTS_OF_EACH, len(faults_of(name))))
        for number, fault in enumerate(faults):
            root = place / f"{name} {number}"
            if plant(audited_stores.content(name), fault, number, root) is not None:
                paths.append(str(root))
        passwords |= audited_stores.passwords(name)
    return paths, passwords


def findings(engine: TaskEngine, paths: list[str], passwords: dict[int, bytes]) -> tuple[Finding, ...]:
    policy = DigestPolicy(passwords=passwords)
    return run_audit(AuditRequest(tuple(paths), policy, engine, jobs=2)).findings


def test_three_engines_have_equal_findings_in_damaged_stores(spark: SparkSession, tmp_path: Path) -> None:
    from recovery.audit.spark.engine import SparkEngine

    paths, passwords = damaged(tmp_path)
    alone = findings(Serial(), paths, passwords)
    assert len({one.kind for one in alone}) > 12
    assert findings(Pool(2), paths, passwords) == alone
    assert findings(SparkEngine(spark), paths, passwords) == alone
