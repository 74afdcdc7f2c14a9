"""A Spark context or session that is ready: the active one, or a new one with all settings.

`spark-submit`, a notebook or the user's program decides where it runs. Without any of them it runs on all
processors of this machine, accepts no connections from other machines, and leaves nothing behind.
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
"""The size of what Spark appends to the directory's name: a slash, a dot, a UUID and `.sock`."""
_SOCKET_PATH_MAX = 103  # on macOS; 107 on Linux

EVERYWHERE = {
    "spark.ui.showConsoleProgress": "false",
    PUSHDOWN: "true",
}
HERE = {
    "spark.app.name": "ledgerstore",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.maxResultSize": "0",
    "spark.driver.memory": "2g",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "ERROR",
    # The time that a worker has to end by itself before it is killed when a job is cancelled.
    "spark.python.task.killTimeout": "100ms",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": f"file:{tempfile.gettempdir()}/ledgerstore-warehouse",
    "spark.ui.enabled": "false",
}
_NOTHING: Mapping[str, str] = MappingProxyType({})


def open_context(master: str | None = None, settings: Mapping[str, str] = _NOTHING) -> SparkContext:
    """Return the active context, whatever the arguments are, or a new one. Raise `SparkUnavailable` if none
    can be made.

    A context is enough for the engine: a session takes another second.
    """
    active = SparkContext._active_spark_context  # noqa: SLF001 - asking must not make one
    return active or _new_context(master, settings)


def open_session(master: str | None = None, settings: Mapping[str, str] = _NOTHING) -> SparkSession:
    """Return the active session, whatever the arguments are, or a new one, for data sources and SQL."""
    from pyspark.sql import SparkSession

    open_context(master, settings)
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    # Without it, a query of a source with filters fails, and an active session may not have it.
    session.conf.set(PUSHDOWN, "true")
    return session


def _new_context(master: str | None, settings: Mapping[str, str]) -> SparkContext:
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(_settings(master, settings).items()))
    gateway = None if launch.is_launched() else launch.launch(conf)
    with launch.environment(_python(conf)):
        return SparkContext(conf=conf, gateway=gateway)


def _settings(master: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """Merge the settings. The given ones have priority, and fewer are set if another program chose the
    master.
    """
    if master is None and _is_submitted():
        return {**EVERYWHERE, **given}
    chosen = given.get("spark.master") or master or THIS_MACHINE
    if not chosen.startswith("local"):
        return {**EVERYWHERE, "spark.app.name": "ledgerstore", **given, "spark.master": chosen}
    return {**EVERYWHERE, **HERE, **_sockets(), **given, "spark.master": chosen}


@cache
def _sockets() -> Mapping[str, str]:
    """Settings for Unix sockets between Java and Python: a task costs a seventh of what it costs over TCP.

    The sockets are in a directory of this process, which is removed when it ends because Spark does not
    remove them. On a cluster they are not used: there Java's own directory would hold them, and its path is
    often longer than a socket's path may be.
    """
    base = sockets_base((tempfile.gettempdir(), "/tmp"))  # noqa: S108 - only a directory is made in it
    if base is None:
        return {}
    made = tempfile.TemporaryDirectory(prefix=_SOCKETS_PREFIX, dir=base, ignore_cleanup_errors=True)
    atexit.register(made.cleanup)
    return {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": made.name}


def sockets_base(candidates: Iterable[str]) -> str | None:
    """Return the first directory in which the paths of sockets are not too long."""
    added = len(f"/{_SOCKETS_PREFIX}12345678") + _SOCKET_NAME_SIZE
    return next((base for base in candidates if len(base) + added <= _SOCKET_PATH_MAX), None)


def is_of_connect(session: SparkSession) -> bool:
    """Return whether the session is a client of Spark Connect, which has no context of its own."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _python(conf: SparkConf) -> dict[str, str]:
    """Make this Python the one of the workers, because another might lack packages or have other versions.

    On a cluster the path may be different, and the administrator has set it.
    """
    if "PYSPARK_PYTHON" in os.environ and not (conf.get("spark.master") or "").startswith("local"):
        return {}
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
