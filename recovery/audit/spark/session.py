"""A Spark session that is ready: the active one, one of Spark Connect, or a new one with all settings.

`spark-submit`, a notebook or the user's program decides where it runs. Without any of them it runs on all
processors of this machine, accepts no connections from other machines, and leaves nothing behind.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import tempfile
import warnings
import zipfile
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from recovery.audit.spark import launch
from recovery.audit.spark.java import SparkUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

THIS_MACHINE = "local[*]"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
WAREHOUSE = "spark.sql.warehouse.dir"
_CONNECT = "sc://"
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
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "ERROR",
    # The time that a worker has to end by itself before it is killed when a job is cancelled.
    "spark.python.task.killTimeout": "100ms",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
_NOTHING: Mapping[str, str] = MappingProxyType({})
_PACKAGES = ("recovery", "storage")

# Spark warns that it does not know the newest pandas yet. `mapInArrow` asks for pandas and does not use it.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def open_session(master: str | None = None, settings: Mapping[str, str] = _NOTHING) -> SparkSession:
    """Return the active session, whatever the arguments are, or a new one. Raise `SparkUnavailable` if none
    can be made.

    A `master` that begins with `sc://` is the address of a server of Spark Connect.
    """
    session = SparkSession.getActiveSession() or _new_session(master, settings)
    # A query of a source with filters fails without this setting, which an active session may lack.
    session.conf.set(PUSHDOWN, "true")
    return session


def frame_of(rows: pa.Table, session: SparkSession, users: SparkSession) -> DataFrame:
    """Return the rows as a frame of a session that was made from the user's one.

    `createDataFrame` makes its session the active one of the program. So the user's session makes a frame,
    too: otherwise the user's program would go on with a session in which its views and settings are missing.
    """
    frame = session.createDataFrame(rows)
    if not is_of_connect(users):
        users.createDataFrame([], "nothing int")
    return frame


def _new_session(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    if master is not None and master.startswith(_CONNECT):
        return _connected(master, settings)
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - asking must not make one
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(_settings(master, settings).items()))
        gateway = None if launch.is_launched() else launch.launch(conf)
        with launch.environment(_python(conf)):
            SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.getOrCreate()


def _connected(address: str, settings: Mapping[str, str]) -> SparkSession:
    try:
        session = SparkSession.builder.remote(address).getOrCreate()
        for name, value in settings.items():
            session.conf.set(name, value)
        session.range(0).count()  # the first call connects
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise SparkUnavailable(f"no session of Spark Connect at {address}: {lines[0]}") from error
    return session


def _settings(master: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """Merge the settings. The given ones have priority, and fewer are set if another program chose the
    master.
    """
    if master is None and _is_submitted():
        return {**EVERYWHERE, **given}
    chosen = given.get("spark.master") or master or THIS_MACHINE
    if not chosen.startswith("local"):
        return {**EVERYWHERE, "spark.app.name": "ledgerstore", **given, "spark.master": chosen}
    # The tables of an audit are in it, also those of one that was interrupted.
    warehouse = {WAREHOUSE: f"file:{_scratch()}"}
    return {**EVERYWHERE, **HERE, **warehouse, **_sockets(), **given, "spark.master": chosen}


@cache
def _sockets() -> Mapping[str, str]:
    """Settings for Unix sockets between Java and Python: a task costs a seventh of what it costs over TCP.

    The sockets are in a directory of this process, which is removed when it ends because Spark does not
    remove them. On a cluster they are not used: there Java's own directory would hold them, and its path is
    often longer than a socket's path may be.
    """
    base = sockets_base((tempfile.gettempdir(), "/tmp"))  # noqa: S108 - only a directory is made in it
    return {} if base is None else {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": _scratch(base)}


def sockets_base(candidates: Iterable[str]) -> str | None:
    """Return the first directory in which the paths of sockets are not too long."""
    added = len(f"/{_SOCKETS_PREFIX}12345678") + _SOCKET_NAME_SIZE
    return next((base for base in candidates if len(base) + added <= _SOCKET_PATH_MAX), None)


def _scratch(base: str | None = None) -> str:
    """Make a directory that is removed when this process ends."""
    made = tempfile.TemporaryDirectory(prefix=_SOCKETS_PREFIX, dir=base, ignore_cleanup_errors=True)
    atexit.register(made.cleanup)
    return made.name


def is_of_connect(session: SparkSession) -> bool:
    """Return whether the session is a client of Spark Connect, which has no context of its own."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def master_of(session: SparkSession) -> str:
    """Return the master of the session, or of its server."""
    return session.conf.get("spark.master") or "an unknown master"


def is_here(session: SparkSession) -> bool:
    """Return whether tasks run on this machine, in processes that see its files."""
    master = master_of(session)
    return not is_of_connect(session) and (master == "local" or master.startswith("local["))


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _python(conf: SparkConf) -> dict[str, str]:
    """Make this Python the one of the workers, because another might lack packages or have other versions.

    On a cluster the path may be different, and the administrator has set it.
    """
    if "PYSPARK_PYTHON" in os.environ and not (conf.get("spark.master") or "").startswith("local"):
        return {}
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


# ── the code of this package on the executors ────────────────────────────────────────────────────────────


def ship(session: SparkSession) -> None:
    """Make the code importable wherever the session's tasks run. Its dependencies have to be installed there.

    On this machine the workers import what is imported here. If the code itself came in a zip (`--py-files`),
    it is everywhere already.
    """
    if not is_here(session) and all(root.is_dir() for root in _roots()):
        session.addArtifacts(_packed(), pyfile=True)


@cache
def _packed() -> str:
    """Pack the code once. Executors fetch the file when their first task comes, so that it stays until this
    process ends.
    """
    archive = Path(_scratch()) / "ledgerstore.zip"
    pack(archive)
    return str(archive)


def pack(archive: str | os.PathLike[str]) -> None:
    """Write a zip of this code, for `--py-files`."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for root in _roots():
            for path in sorted(root.rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    packed.write(path, path.relative_to(root.parent))


def _roots() -> Iterator[Path]:
    for name in _PACKAGES:
        found = importlib.import_module(name).__file__
        assert found is not None, "a package with an __init__"
        yield Path(found).parent
