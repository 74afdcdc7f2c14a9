"""The classes of Spark's Java process as an archive (AppCDS): loaded and verified once, for all later runs.

Half of Spark's start time is spent on loading the same twenty thousand classes. The first run writes them to
an archive when it ends, and later runs map it. Java ignores an archive that does not fit and goes on without
it. So everything that Java checks (its own build, the paths of the jars, their times) is part of the file
name: for another Java or Spark another archive is made.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.spark.java import Java

_KEPT = 2
"""The number of archives of other builds that are kept: each takes fifty megabytes."""

_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory for files of this user that can be made again."""
    base = environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "ledgerstore"


def options(java: Java, spark_home: Path, directory: Path) -> tuple[str, ...]:
    """Return the options that make Java use the archive, or write it when it ends, or no options if neither
    works.
    """
    archive = directory / f"spark-{_fingerprint(java, spark_home)}.jsa"
    if " " in str(archive):
        return ()  # Java splits its options at blanks
    if _is_whole(archive):
        return (f"-XX:SharedArchiveFile={archive}", *_QUIET)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ()
    _tidy(directory)
    return (f"-XX:ArchiveClassesAtExit={archive}", *_QUIET)


def _fingerprint(java: Java, spark_home: Path) -> str:
    jars = spark_home / "jars"
    made = jars.stat().st_mtime_ns if jars.exists() else 0
    told = "\n".join((str(java.home), java.build, str(jars), str(made)))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _is_whole(archive: Path) -> bool:
    """Return whether the archive is complete: Java writes the header last, and before that there
    are zeros.
    """
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except OSError:
        return False


def _tidy(directory: Path) -> None:
    """Remove the oldest archives. A Java process that has mapped one keeps it."""
    with suppress(OSError):
        found = sorted(directory.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
        for path in found[: -_KEPT or None]:
            path.unlink()
