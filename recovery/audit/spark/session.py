"""A Spark that is ready: one that is active as it is, else a new one with everything set.

`spark-submit`, a notebook or a program of one's own decides where it runs. Without any of them it runs on all
processors of this machine, listens to nobody else, and leaves nothing behind.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext

from recovery.audit.spark import launch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

THIS_MACHINE = "local[*]"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_SOCKETS = "spark.python.unix.domain.socket"
_SOCKETS_PREFIX = "ledgerstore-"
_SOCKET_NAME_SIZE = 43
"""What Spark puts behind the directory's name: a slash, a dot, a UUID and `.sock`."""
_SOCKET_PATH_MAX = 103  # of macOS; 107 on Linux

_EVERYWHERE = {
    "spark.ui.showConsoleProgress": "false",
    PUSHDOWN: "true",
}
_HERE = {
    "spark.app.name": "ledgerstore",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.maxResultSize": "0",
    "spark.driver.memory": "2g",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "ERROR",
    # Whoever gives up waits so long for a worker to end by itself before it is killed.
    "spark.python.task.killTimeout": "100ms",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": f"file:{tempfile.gettempdir()}/ledgerstore-warehouse",
    "spark.ui.enabled": "false",
}
_NOTHING: Mapping[str, str] = MappingProxyType({})


def open_context(master: str | None = None, settings: Mapping[str, str] = _NOTHING) -> SparkContext:
    """The active context, whatever was asked for, or a new one; `SparkUnavailable` where none can be.

    Enough for the engine: a session takes another second.
    """
    active = SparkContext._active_spark_context  # noqa: SLF001 - asking must not make one
    return active or _new_context(master, settings)


def open_session(master: str | None = None, settings: Mapping[str, str] = _NOTHING) -> SparkSession:
    """The active session, whatever was asked for, or a new one: for data sources and SQL."""
    from pyspark.sql import SparkSession

    open_context(master, settings)
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    # Without it a query of a source that can filter fails, and an active session may not have it.
    session.conf.set(PUSHDOWN, "true")
    return session


def _new_context(master: str | None, settings: Mapping[str, str]) -> SparkContext:
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(_settings(master, settings).items()))
    gateway = None if launch.is_launched() else launch.launch(conf)
    with launch.environment(_python(conf)):
        return SparkContext(conf=conf, gateway=gateway)


def _settings(master: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """What was given counts more than what is set here; less is set where somebody else decides."""
    if master is None and _is_submitted():
        return {**_EVERYWHERE, **given}
    chosen = given.get("spark.master") or master or THIS_MACHINE
    if not chosen.startswith("local"):
        return {**_EVERYWHERE, "spark.app.name": "ledgerstore", **given, "spark.master": chosen}
    return {**_EVERYWHERE, **_HERE, **_sockets(), **given, "spark.master": chosen}


@cache
def _sockets() -> Mapping[str, str]:
    """Unix sockets between Java and Python: a task costs a seventh of what it does over TCP on the loopback.

    In a directory for this process, gone when it ends, because Spark leaves them where they are. Not on a
    cluster: there Java's own directory is used, whose path is often longer than a socket's may be.
    """
    base = sockets_base((tempfile.gettempdir(), "/tmp"))  # noqa: S108 - only a directory is made in it
    if base is None:
        return {}
    made = tempfile.TemporaryDirectory(prefix=_SOCKETS_PREFIX, dir=base, ignore_cleanup_errors=True)
    atexit.register(made.cleanup)
    return {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": made.name}


def sockets_base(candidates: Iterable[str]) -> str | None:
    """The first in which a directory with sockets can be made whose paths are not too long."""
    added = len(f"/{_SOCKETS_PREFIX}12345678") + _SOCKET_NAME_SIZE
    return next((base for base in candidates if len(base) + added <= _SOCKET_PATH_MAX), None)


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _python(conf: SparkConf) -> dict[str, str]:
    """The workers' Python is this one: another might not have the packages, or another version of them.

    On a cluster the path may not be the same, and whoever set it up has said it.
    """
    if "PYSPARK_PYTHON" in os.environ and not (conf.get("spark.master") or "").startswith("local"):
        return {}
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
