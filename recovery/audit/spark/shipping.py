"""Send this package to the executors of a cluster: a zip of its own files, which Spark copies to each of
them.
"""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pyspark import SparkFiles

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_PACKAGES = ("recovery", "storage")
_NAME = "ledgerstore.zip"


def ship(context: SparkContext) -> None:
    """Make the code importable wherever this context's tasks run. Its dependencies have to be installed
    there.

    On this machine the workers import what is imported here. If the code itself came in a zip (`--py-files`),
    it is everywhere already.
    """
    is_there = any(uri.endswith(f"/{_NAME}") for uri in context.listFiles)
    if is_there or is_here(context.master) or not all(root.is_dir() for root in _roots()):
        return
    # Executors fetch the file when their first task comes, so that it has to exist as long as the context.
    directory = Path(SparkFiles.getRootDirectory()) / "sent"
    directory.mkdir(exist_ok=True)
    pack(directory / _NAME)
    context.addPyFile(str(directory / _NAME))


def ship_over_connect(session: SparkSession) -> None:
    """Make the code importable where the tasks of a session of Spark Connect run."""
    with TemporaryDirectory(prefix="ledgerstore-sent-") as directory:
        archive = Path(directory) / _NAME
        pack(archive)
        session.addArtifacts(str(archive), pyfile=True)


def is_here(master: str | None) -> bool:
    """Return whether tasks run on this machine, in processes that see its files."""
    return master is not None and (master == "local" or master.startswith("local["))


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
