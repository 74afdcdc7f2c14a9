"""What tests on Spark need: a session for all of them, or the reason why there is none."""

from __future__ import annotations

import importlib.util
import os

import pytest

# One process runs them all under `--dist loadgroup`, and pays for one session. Spark's sockets are closed
# by the collector of garbage, which warns of each.
MARKS = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::ResourceWarning")]


def need_spark() -> None:
    """Ends the test where Spark cannot run: skipped, or failed where REQUIRE_SPARK=1 says that it must."""
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
