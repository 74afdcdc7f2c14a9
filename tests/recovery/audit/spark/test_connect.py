"""The data sources and whole audits in a session of Spark Connect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import small_stores
import spark_session

from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from storage.entrylog.format import HEADER_SIZE

pytestmark = [*spark_session.MARKS, pytest.mark.slow(30)]

PROGRAM = Path(__file__).parents[3] / "support/run_on_connect.py"


def test_a_session_of_spark_connect_reads_the_tables_and_runs_an_audit(tmp_path: Path) -> None:
    spark_session.need_spark()
    for module in ("grpc", "grpc_status", "pandas"):
        pytest.importorskip(module)
    store = small_stores.make(tmp_path / "store")
    log = store / "ledgers/current/1.log"
    data = bytearray(log.read_bytes())
    data[HEADER_SIZE + 3500] ^= 1
    log.write_bytes(data)
    expected = [f"{one.kind} {one.place}" for one in run_audit(AuditRequest((str(store),))).findings]
    assert [one.partition(" ")[0] for one in expected] == ["ELG-003"]
    done = subprocess.run(
        [sys.executable, PROGRAM, store], capture_output=True, text=True, timeout=300, check=False
    )
    lines = done.stdout.splitlines()
    assert lines[-1] == "Spark Connect 1", done.stderr[-2000:]
    assert lines[-2:-1] == expected
    bad = [line for line in lines[:-2] if " bad " in line]
    assert [line.split()[1:] for line in bad] == [["bad", "1"]]
    assert (
        sum(int(line.split()[2]) for line in lines[:-2]) == len(small_stores.LEDGERS) * small_stores.ENTRIES
    )
