"""The engine of an audit: processes on this machine, or Spark."""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from recovery.shell.exit_codes import CannotDo, Exit, NotInstalled, say
from recovery.shell.options import worker_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.engines.task import TaskEngine

AUTO, LOCAL, SPARK = ENGINES = ("auto", "local", "spark")

_SPARK_PAYS = 20 << 30
"""For fewer bytes, processes on one machine end before Spark has started."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options that choose the engine."""

    engine: str = AUTO
    jobs: int | None = None
    master: str | None = None
    rate_max: float | None = None


@contextmanager
def started_engine(engine_options: EngineOptions, size: int) -> Iterator[tuple[TaskEngine, int]]:
    """Yield the engine for an input of `size` bytes, and the number of tasks that it runs at once."""
    if _runs_on_spark(engine_options, size):
        with _spark_engine(engine_options) as engine:
            yield engine
        return
    from recovery.audit.engines.local import Pool

    jobs = worker_count(size, engine_options.jobs)
    yield Pool(jobs, engine_options.rate_max), jobs


def _runs_on_spark(engine_options: EngineOptions, size: int) -> bool:
    if engine_options.engine != AUTO:
        return engine_options.engine == SPARK
    return engine_options.master is not None or (size >= _SPARK_PAYS and _has_spark())


def _has_spark() -> bool:
    """Return whether Spark and a Java for it are installed.

    If not, say so: the audit then runs without Spark.
    """
    if find_spec("pyspark") is None:
        say("Spark is not installed: the audit runs in processes on this machine")
        return False
    from recovery.audit.spark.java import SparkUnavailable, find_java

    try:
        find_java()
    except SparkUnavailable as error:
        say(f"{error}; the audit runs in processes on this machine")
        return False
    return True


@contextmanager
def _spark_engine(engine_options: EngineOptions) -> Iterator[tuple[TaskEngine, int]]:
    if find_spec("pyspark") is None:
        raise NotInstalled("--engine spark needs pyspark: pip install 'ledgerstore[audit]'")
    from recovery.audit.spark.engine import SparkEngine, SparkFailed
    from recovery.audit.spark.java import SparkUnavailable
    from recovery.audit.spark.session import open_session

    # An interrupt while py4j talks to Java makes it log a traceback. The user knows of the interrupt, so drop
    # it.
    logging.getLogger().addHandler(logging.NullHandler())
    master = engine_options.master or (f"local[{engine_options.jobs}]" if engine_options.jobs else None)
    try:
        session = open_session(master)
    except SparkUnavailable as error:
        raise CannotDo(f"{error}; `--engine local` works without it") from error
    engine = SparkEngine(session, engine_options.rate_max)
    try:
        yield engine, engine.jobs
    except SparkFailed as error:
        raise StoppedEarly(str(error)) from error
    finally:
        with suppress(Exception):  # a cluster that is gone
            engine.close()
        session.stop()


class StoppedEarly(CannotDo):
    """The audit had begun, and could not continue."""

    exit_code = Exit.PARTLY
