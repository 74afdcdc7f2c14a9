"""One Spark session for all tests, or the reason why Spark cannot run."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

# `make test-spark` runs them in one process, so that they share one session. The garbage collector closes
# Spark's sockets, and warns of each. Spark warns that it does not know the newest pandas yet.
MARKS = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def own_home(place: Path) -> Path:
    """Make an installation of Spark whose executors work in a directory below `place`."""
    import pyspark

    home = place / "spark"
    home.mkdir()
    for one in Path(str(pyspark.__file__)).parent.iterdir():
        if one.name != "work":
            (home / one.name).symlink_to(one)
    return home


def need_spark() -> None:
    """Skip the test if Spark cannot run, or fail it if REQUIRE_SPARK=1 is set."""
    reason = _why_not()
    if reason is None:
        return
    if os.environ.get("REQUIRE_SPARK") == "1":
        pytest.fail(reason)
    pytest.skip(f"NOT RUN: {reason}")


def _why_not() -> str | None:
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        return f"no {' and no '.join(missing)}"
    from recovery.audit.spark.java import SparkUnavailable, find_java

    try:
        find_java()
    except SparkUnavailable as why:
        return str(why)
    return None
