"""The data sources in a session of Spark Connect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import small_stores
import spark_session

pytestmark = [*spark_session.MARKS, pytest.mark.slow(30)]

PROGRAM = Path(__file__).parents[3] / "support/run_on_connect.py"


def test_a_session_of_spark_connect_reads_the_tables(tmp_path: Path) -> None:
    spark_session.need_spark()
    for module in ("grpc", "grpc_status", "pandas"):
        pytest.importorskip(module)
    store = small_stores.make(tmp_path / "store")
    done = subprocess.run(
        [sys.executable, PROGRAM, store], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "".join(f"{one} ok {small_stores.ENTRIES}\n" for one in small_stores.LEDGERS), (
        done.stderr[-2000:]
    )
