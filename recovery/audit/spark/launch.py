"""Spark's Java process, started with everything in place, and without a word to the user's terminal.

What it and the Python processes below it print goes to a file without a name: the lines about native
libraries, incubating modules and loopback addresses, the traces of workers that end while somebody still
listens to them. Nobody who audits files can do anything about those. Where it does not start, its last words
are the reason that is given.
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
"""Python does the work: what Java's second compiler would gain later is more than what it costs at once."""


def is_launched() -> bool:
    """Whether there is a Java process already, or `spark-submit` has one waiting."""
    from pyspark import SparkContext

    running = SparkContext._gateway  # noqa: SLF001 - there is no other way to ask
    return running is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def launch(conf: SparkConf) -> Any:
    """The gateway to a Java process with these settings; `SparkUnavailable` with the reason if it ends."""
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
    """The environment of the Java process, which the workers' Pythons have from it."""
    found = {"JAVA_HOME": str(java.home)}
    if (conf.get("spark.master") or "").startswith("local"):
        # What can be imported here can be there, and nothing else: nothing that a directory holds by chance.
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
    """Signals wait until it is done: a Java whose starting was given up hears nothing of that, and stays.

    One that has started ends with this process, however that does.
    """
    waiting: list[int] = []
    before = {}
    with suppress(ValueError):  # outside the main thread, where no signal is handled
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
    return wanted[-1] if wanted else "its Java process ended without a word"
