"""Start Spark's Java process with all settings, and without output on the user's terminal.

The output of Java, and of the Python processes below it, goes to a temporary file: messages about native
libraries, incubating modules and loopback addresses, and traces of workers that end while a process still
listens to them. A user who audits files can do nothing about those. If Java does not start, the last line is
given as the reason.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from recovery.audit.spark import archive
from recovery.audit.spark.java import SparkUnavailable, find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark import SparkConf

    from recovery.audit.spark.java import Java

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SWIFT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Python does the work, so that the gain of Java's second compiler is smaller than its cost."""


def is_launched() -> bool:
    """Return whether a Java process exists already, or `spark-submit` has started one."""
    from pyspark import SparkContext

    running = SparkContext._gateway  # noqa: SLF001 - there is no other way to ask
    return running is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def launch(conf: SparkConf) -> Any:
    """Start a Java process with these settings and return its gateway. Raise `SparkUnavailable`
    if it ends.
    """
    java = find_java()
    if (conf.get("spark.master") or "").startswith("local"):
        swift = (*_SWIFT, *archive.options(java, Path(_find_spark_home()), archive.cache_directory()))
        conf.set(_JAVA_OPTIONS, " ".join((*swift, conf.get(_JAVA_OPTIONS) or "")).strip())
    with tempfile.TemporaryFile() as said, environment(_surroundings(java, conf)), _undisturbed():
        try:
            return launch_gateway(conf, {"stdout": said, "stderr": said})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise SparkUnavailable(f"Spark did not start: {_last_words(said)}") from error


def _surroundings(java: Java, conf: SparkConf) -> dict[str, str]:
    """Return the environment of the Java process, which the Python workers inherit."""
    found = {"JAVA_HOME": str(java.home)}
    if (conf.get("spark.master") or "").startswith("local"):
        # Workers can import what can be imported here, and nothing that happens to be in their directory.
        found["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in sys.path)
        found["PYTHONSAFEPATH"] = "1"
        found["SPARK_LOCAL_IP"] = "127.0.0.1"
    return found


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Delay signals to the end of the `with`, because a Java process whose start is aborted would stay.

    A Java process that has started ends with this process in any case.
    """
    waiting: list[int] = []
    before = {}
    with suppress(ValueError):  # outside the main thread no signal is handled
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before[number] = signal.signal(number, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for arrived in waiting:
            signal.raise_signal(arrived)


def _last_words(said: IO[bytes]) -> str:
    said.seek(0)
    lines = [line.strip() for line in said.read().decode(errors="replace").splitlines()]
    wanted = [line for line in lines if line and not line.startswith("at ")]
    return wanted[-1] if wanted else "its Java process ended without a message"
