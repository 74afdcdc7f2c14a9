"""Facts about the machine, because figures depend on them."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("crc32c", "lmdb", "plyvel", "rocksdict")


def machine() -> dict[str, object]:
    """Return the facts and the current load of the machine."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "sqlite": sqlite3.sqlite_version,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def busy() -> str:
    """Return a warning if other programs use the machine, otherwise an empty string."""
    return crowded(os.getloadavg()[0], os.cpu_count() or 1)


def crowded(load: float, cpus: int) -> str:
    """Return the warning for this load on this number of CPUs."""
    return f"busy: load {load:.1f} on {cpus} CPUs, only ratios are meaningful" if load > cpus / 2 else ""


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
