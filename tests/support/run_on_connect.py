"""Query a store through a session of Spark Connect, audit it, and print what it answers and what is found.

    python tests/support/run_on_connect.py STORE

It is a process of its own, because a process has either a classic session or one of Spark Connect.
"""

from __future__ import annotations

import os
import sys
import warnings

from pyspark.sql import SparkSession

from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.audit.spark.data_sources import register
from recovery.audit.spark.engine import SparkEngine


def main() -> None:
    # Spark warns that it does not know the newest pandas yet.
    warnings.simplefilter("ignore", FutureWarning)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    register(spark)
    register(spark)  # a second time changes nothing
    entries = spark.read.format("entrylog").load(sys.argv[1])
    for row in entries.groupBy("ledger", "digest_status").count().orderBy("ledger").collect():
        print(*row)
    engine = SparkEngine(spark)
    for finding in run_audit(AuditRequest((sys.argv[1],), engine=engine, jobs=engine.jobs)).findings:
        print(finding.kind, finding.place)
    print(engine.name.partition(" on ")[0].rpartition(" ")[0], engine.jobs)
    spark.stop()


if __name__ == "__main__":
    main()
