"""Query a store through a session of Spark Connect, and print what it answers.

    python tests/support/run_on_connect.py STORE

A process of its own, because a process has either a classic session or one of Spark Connect.
"""

from __future__ import annotations

import os
import sys
import warnings

from pyspark.sql import SparkSession

from recovery.audit.spark.data_sources import register


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
    spark.stop()


if __name__ == "__main__":
    main()
