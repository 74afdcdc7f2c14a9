"""One process, several, and Spark: whoever reads, the findings are the same."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import audited_stores
import sparks
from fault_trials import faults_of

from recovery.audit.asked import Asked
from recovery.audit.faults.planting import plant
from recovery.audit.inspect import inspect
from recovery.audit.local import Pool, Serial
from recovery.audit.ways import Ways

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from recovery.audit.task import Engine
    from recovery.verify.finding import Finding

pytestmark = sparks.MARKS

_FAULTS_OF_EACH = 6


def damaged(place: Path) -> tuple[list[str], dict[int, bytes]]:
    """Stores of every shape, with several faults in turn, and the passwords of all."""
    paths, passwords = [], dict[int, bytes]()
    for name in audited_stores.NAMES:
        dice = Random(name)
        faults = dice.sample(faults_of(name), min(_FAULTS_OF_EACH, len(faults_of(name))))
        for number, fault in enumerate(faults):
            root = place / f"{name} {number}"
            if plant(audited_stores.chart(name), fault, number, root) is not None:
                paths.append(str(root))
        passwords |= audited_stores.passwords(name)
    return paths, passwords


def findings(engine: Engine, paths: list[str], passwords: dict[int, bytes]) -> tuple[Finding, ...]:
    ways = Ways(passwords=passwords)
    return inspect(Asked(tuple(paths), ways, engine, jobs=2)).findings


def test_three_engines_find_the_same_in_damaged_stores(spark: SparkSession, tmp_path: Path) -> None:
    from recovery.audit.spark.engine import SparkEngine

    paths, passwords = damaged(tmp_path)
    alone = findings(Serial(), paths, passwords)
    assert len({one.kind for one in alone}) > 12
    assert findings(Pool(2), paths, passwords) == alone
    assert findings(SparkEngine(spark.sparkContext), paths, passwords) == alone
