"""The classes of Spark's Java process as an archive (AppCDS): loaded and verified once, for all later runs.

Half of what a start of Spark takes is loading the same twenty thousand classes again. The first run leaves
them behind when it ends; later ones map them. Java ignores an archive that does not fit and goes on without,
so everything it looks at (itself, the paths of the jars, their times) is in the name: what does not fit is
another file, and made anew.
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
"""Archives of other builds that stay: each takes fifty megabytes."""

_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user keeps what can be made again."""
    base = environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "ledgerstore"


def options(java: Java, spark_home: Path, directory: Path) -> tuple[str, ...]:
    """What tells Java to use the archive, or to make it when it ends; nothing where that cannot be."""
    archive = directory / f"spark-{_fingerprint(java, spark_home)}.jsa"
    if " " in str(archive):
        return ()  # Java's options are cut at blanks
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
    """Java writes the header last: until then, and after a kill in the middle, zeros stand there."""
    try:
        with archive.open("rb") as file:
            return any(file.read(4))
    except OSError:
        return False


def _tidy(directory: Path) -> None:
    """Removes the oldest; a Java that has one mapped keeps it."""
    with suppress(OSError):
        found = sorted(directory.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
        for path in found[: -_KEPT or None]:
            path.unlink()
