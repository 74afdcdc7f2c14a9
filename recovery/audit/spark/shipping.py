"""This package on the executors of a cluster: its own files in a zip, which Spark copies to each of them."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkFiles

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from pyspark import SparkContext

_PACKAGES = ("recovery", "storage")
_NAME = "ledgerstore.zip"


def ship(context: SparkContext) -> None:
    """Makes the code importable wherever this context's tasks run. The packages it needs have to be there.

    On this machine the workers import what is imported here; what came in a zip itself (`--py-files`)
    is everywhere already.
    """
    is_there = any(uri.endswith(f"/{_NAME}") for uri in context.listFiles)
    if is_there or is_here(context.master) or not all(root.is_dir() for root in _roots()):
        return
    # Executors fetch it when their first task comes: it has to stay as long as the context.
    directory = Path(SparkFiles.getRootDirectory()) / "sent"
    directory.mkdir(exist_ok=True)
    pack(directory / _NAME)
    context.addPyFile(str(directory / _NAME))


def is_here(master: str | None) -> bool:
    """Whether tasks run on this machine, by processes that have this one's files."""
    return master is not None and (master == "local" or master.startswith("local["))


def pack(archive: str | os.PathLike[str]) -> None:
    """Makes a zip of this code: what `--py-files` takes."""
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
