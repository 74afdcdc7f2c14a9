"""Audit the stores of `audit_demo` on one engine, and print the findings as JSON.

    python tests/support/audit_on_engine.py PLACE serial
    python tests/support/audit_on_engine.py PLACE spark://127.0.0.1:7077 --events DIR
    python tests/support/audit_on_engine.py PLACE spark://127.0.0.1:7077 --pause DIR
    python tests/support/audit_on_engine.py PLACE connect

Each engine has a process of its own, because a process has either a classic session of Spark or one of Spark
Connect. With --events, Spark records the run there, runs stay on the executors, and Spark executes the
queries of the checks, although the tables are small.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spark_tasks

from recovery.audit.engines.local import Serial
from recovery.audit.pipeline import ensemble_file
from recovery.audit.pipeline.password_check import run_audit_with_valid_passwords
from recovery.audit.pipeline.request import AuditRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.engines.task import TaskEngine, TaskResult

CONNECT, SERIAL = "connect", "serial"


@dataclass
class PausedEngine:
    """Adds a task to the first tasks that waits until its executor is killed."""

    inner: TaskEngine
    place: Path
    has_paused: bool = False

    @property
    def name(self) -> str:
        return self.inner.name

    def run(self, tasks: Sequence[Any], watch: Callable[[int], None]) -> Iterator[TaskResult[Any]]:
        added = [] if self.has_paused else [spark_tasks.PauseTask(str(self.place))]
        self.has_paused = True
        for done in self.inner.run([*tasks, *added], watch):
            if done.number < len(tasks):
                yield done

    def sql(self, rows: int) -> SqlEngine:
        return self.inner.sql(rows)


def engine_on(master: str, events: Path | None) -> tuple[TaskEngine, int]:
    if master == SERIAL:
        return Serial(), 1
    from pyspark.sql import SparkSession

    from recovery.audit.spark import engine
    from recovery.audit.spark.session import open_session

    if master == CONNECT:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        SparkSession.builder.remote("local[2]").getOrCreate()
    settings = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    if events is not None:
        engine.RESULT_ROWS_MAX = 0
        settings |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": f"file:{events}",
        }
    session = open_session(None if master == CONNECT else master, settings)
    session.addArtifacts(str(spark_tasks.__file__), pyfile=True)
    made = engine.SparkEngine(session)
    return made, made.jobs


def main() -> None:
    # Spark warns that it does not know the newest pandas yet.
    warnings.simplefilter("ignore", FutureWarning)
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("place", type=Path)
    arguments.add_argument("master")
    arguments.add_argument("--events", type=Path)
    arguments.add_argument("--pause", type=Path)
    options = arguments.parse_args()
    engine, jobs = engine_on(options.master, options.events)
    if options.pause is not None:
        engine = PausedEngine(engine, options.pause)
    replicas = ensemble_file.load(options.place / "ensembles.json")
    report = run_audit_with_valid_passwords(AuditRequest((), engine=engine, jobs=jobs, replicas=replicas))
    print(
        json.dumps(
            {"engine": report.engine, "findings": [asdict(one) for one in report.findings]}, default=str
        )
    )


if __name__ == "__main__":
    main()
