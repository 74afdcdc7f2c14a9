"""Which engine an audit runs on: processes of this machine, or Spark."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from recovery.shell.audit_needs import jobs_for
from recovery.shell.exits import CannotDo, Exit, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.task import Engine

AUTO, LOCAL, SPARK = ENGINES = ("auto", "local", "spark")

_SPARK_PAYS = 20 << 30
"""Below it the processes of one machine are done before Spark has begun."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was said of the engine."""

    engine: str = AUTO
    jobs: int | None = None
    master: str | None = None
    rate_max: float | None = None


@contextmanager
def started(wanted: Wanted, size: int) -> Iterator[tuple[Engine, int]]:
    """The engine for so many bytes, and how many tasks it runs at once."""
    if _is_spark(wanted, size):
        with _spark(wanted) as engine:
            yield engine
        return
    from recovery.audit.local import Pool

    jobs = jobs_for(size, wanted.jobs)
    yield Pool(jobs, wanted.rate_max), jobs


def _is_spark(wanted: Wanted, size: int) -> bool:
    if wanted.engine != AUTO:
        return wanted.engine == SPARK
    return wanted.master is not None or (size >= _SPARK_PAYS and _could_run())


def _could_run() -> bool:
    """Whether there is a Spark, and a Java for it; if not, that is said, and the audit goes on without."""
    if find_spec("pyspark") is None:
        say("Spark is not installed: on this machine's processes instead")
        return False
    from recovery.audit.spark.java import SparkUnavailable, find_java

    try:
        find_java()
    except SparkUnavailable as error:
        say(f"{error}; on this machine's processes instead")
        return False
    return True


@contextmanager
def _spark(wanted: Wanted) -> Iterator[tuple[Engine, int]]:
    if find_spec("pyspark") is None:
        raise CannotDo("--engine spark needs pyspark: pip install 'ledgerstore[audit]'")
    from recovery.audit.spark.engine import SparkEngine, SparkFailed
    from recovery.audit.spark.java import SparkUnavailable
    from recovery.audit.spark.session import open_context

    # What is interrupted while it talks to Java logs its trace; whoever interrupts knows that it does.
    logging.getLogger().addHandler(logging.NullHandler())
    master = wanted.master or (f"local[{wanted.jobs}]" if wanted.jobs else None)
    try:
        context = open_context(master)
    except SparkUnavailable as error:
        raise CannotDo(f"{error}; `--engine local` works without") from error
    try:
        yield SparkEngine(context, wanted.rate_max), context.defaultParallelism
    except SparkFailed as error:
        raise StoppedPartWay(str(error)) from error
    finally:
        context.stop()


class StoppedPartWay(CannotDo):
    """It was at work, and could not go on."""

    exit_code = Exit.PARTLY
