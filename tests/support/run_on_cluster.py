"""Run the audit's Spark engine and a data source on the given master, and print the results as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import spark_tasks

from recovery.audit.spark.data_sources import register
from recovery.audit.spark.engine import SparkEngine
from recovery.audit.spark.session import open_session


def main(master: str | None, store: str) -> None:
    import recovery

    spark = open_session(master)
    spark.addArtifacts(str(spark_tasks.__file__), pyfile=True)
    register(spark)
    engine = SparkEngine(spark)
    tasks: list[Any] = [spark_tasks.ReportTask(str(number), 1 << 30) for number in range(4)]
    told = [done.part for done in engine.run([*tasks, spark_tasks.Stay("stays")], lambda _: None)]
    runs = spark.read.format("entrylog").option("rows", "runs").load(store)
    rows = runs.where("ledger > 7").groupBy("ledger").sum("entries").orderBy("ledger").collect()
    print(
        json.dumps(
            {
                "engine": engine.name,
                "code": sorted({part.code for part in told if part.name != "stays"}),
                "processes": len({part.process for part in told if part.name != "stays"}),
                "stays": [part.code for part in told if part.name == "stays"] == [recovery.__file__],
                "driver": Path(str(recovery.__file__)).parent.parent.name,
                "rows": [list(row) for row in rows],
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[2] if len(sys.argv) > 2 else None, sys.argv[1])
