"""`ledgerstore du`: what takes the space of a store, by kind of file and by ledger."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import fixtures
from shell_samples import rows, run, verdict
from stepped_store import JOURNAL, LEDGERS, SMALL

from recovery import open_store

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-c", "from recovery.shell.main import main; main()"]
RECORD = 1000 + 4 + 32 + 4  # payload, length word, head, digest
CONFIG = replace(SMALL, entry_log_size_max=64 << 10)


def make(path: Path) -> Path:
    """Make a closed store with three ledgers, one of which is deleted."""
    with open_store(path, CONFIG) as store:
        for ledger_id in (1, 2, 3):
            store.ledger(ledger_id).append_many([bytes(1000)] * 20)
        store.checkpoint()
        store.ledger(2).delete()
    return path


def size(path: Path, pattern: str) -> int:
    return sum(one.stat().st_size for one in path.glob(pattern) if one.is_file())


def test_the_rows_are_the_sizes_of_the_files_and_add_up(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    found = {row["what"]: row for row in rows("du", path)}
    assert found["journals"]["bytes"] == size(path, f"{JOURNAL}/*.txn")
    assert found["entry logs"]["bytes"] == size(path, f"{LEDGERS}/*.log")
    assert found["index"]["bytes"] == size(path, f"{LEDGERS}/index/[!l]*")
    assert found["ledger metadata"]["bytes"] == size(path, f"{LEDGERS}/ledgers.rows")
    assert found["ledger metadata"]["detail"] == "1 tombstone of a deleted ledger"
    assert found["live"]["bytes"] == 40 * RECORD
    for whole in ("entry logs", "index"):
        parts = [row["bytes"] for row in found.values() if row["part_of"] == whole]
        assert sum(parts) == found[whole]["bytes"]
    wholes = [row["bytes"] for row in found.values() if row["part_of"] is None and row["what"] != "total"]
    assert sum(wholes) == found["total"]["bytes"]
    done = run("du", path)
    assert done.exit_code == 0
    share = 100 * found["live"]["bytes"] // found["entry logs"]["bytes"]
    assert verdict(done) == f"du: {found['total']['bytes']:,} bytes, {share} % of the entry logs are live"


def test_one_row_for_each_ledger(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    assert rows("du", "--ledgers", path) == [
        {
            "ledger": ledger_id,
            "state": state,
            "bytes": 20 * RECORD,
            "live": live,
            "dead": 20 * RECORD - live,
            "logs": 1,
        }
        for ledger_id, state, live in (
            (1, "exists", 20 * RECORD),
            (2, "deleted", 0),
            (3, "exists", 20 * RECORD),
        )
    ]


def test_put_aside_and_held_files_have_rows_of_their_own(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    (path / "quarantine").mkdir()
    (path / "quarantine" / "1.txn@0").write_bytes(bytes(100))
    (path / LEDGERS / "index.damaged").mkdir()
    (path / LEDGERS / "index.damaged" / "data.mdb").write_bytes(bytes(200))
    audit = path / "audit.links" / "audit-0123456789abcdef"
    audit.mkdir(parents=True)
    (audit / "0.log").hardlink_to(path / LEDGERS / "0.log")
    (audit / "ff.log").write_bytes(bytes(300))
    found = {row["what"]: row for row in rows("du", path)}
    assert (found["quarantine"]["files"], found["quarantine"]["bytes"]) == (2, 300)
    assert (found["audit links"]["files"], found["audit links"]["bytes"]) == (1, 300)


def test_beside_a_writer_the_log_that_is_written_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path, CONFIG) as store:
        store.ledger(1).append_many([bytes(1000)] * 20)
        store.checkpoint()
        done = subprocess.run(
            [*COMMAND, "du", str(path), "--json"], capture_output=True, text=True, check=True
        )
        found = {row["what"]: row["bytes"] for row in json.loads(done.stdout)}
        assert found["unknown"] == found["entry logs"] == size(path, f"{LEDGERS}/*.log")
        assert found["live"] == found["dead"] == 0


def test_a_bookie_s_directory_has_rows_too() -> None:
    found = {row["what"]: row for row in rows("du", fixtures.bookie("03a_crash_after_checkpoint") / "bookie")}
    assert found["entry logs"]["bytes"] > 0
    assert found["total"]["bytes"] > found["journals"]["bytes"] > 0


def test_a_directory_without_a_store_has_none(tmp_path: Path) -> None:
    assert run("du", tmp_path).exit_code == 3
