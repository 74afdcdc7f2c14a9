"""`ledgerstore stats`: the figures of a store from its files, also while another process writes to it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import fixtures
from shell_samples import rows, run, verdict

from recovery import open_store

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-c", "from recovery.shell.main import main; main()"]


def sizes(root: Path, pattern: str) -> list[int]:
    return [path.stat().st_size for path in root.glob(pattern)]


def test_the_figures_of_a_closed_store_are_those_of_its_files(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        for ledger_id in (1, 2, 3):
            store.ledger(ledger_id).append_many([b"x" * 100] * 10)
        store.ledger(2).delete()
    [row] = rows("stats", root)
    assert row == {
        "directory": str(root),
        "in_use": False,
        "ledgers": 2,
        "tombstones": 1,
        "entries": 20,
        "journaled_entries": 0,
        "journals": len(sizes(root, "journal/current/*.txn")),
        "journal_bytes": sum(sizes(root, "journal/current/*.txn")),
        "entry_logs": 1,
        "entry_log_bytes": sum(sizes(root, "ledgers/current/*.log")),
        "index_bytes": sum(sizes(root, "ledgers/current/index/[!l]*")),
    }
    done = run("stats", root)
    assert done.exit_code == 0
    assert verdict(done) == "stats: 2 ledgers, not in use"


def test_entries_that_only_the_journals_of_a_running_writer_hold_are_counted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.ledger(1).append_many([b"x"] * 10)
        store.checkpoint()
        store.ledger(1).append_many([b"y"] * 5)
        done = subprocess.run(
            [*COMMAND, "stats", str(root), "--json"], capture_output=True, text=True, check=True
        )
        [row] = json.loads(done.stdout)
        assert (row["in_use"], row["entries"], row["journaled_entries"]) == (True, 15, 5)
        assert row["ledgers"] == store.stats().ledgers
        assert row["entry_log_bytes"] == store.stats().entry_logs.bytes
        assert row["index_bytes"] == store.stats().index_bytes


def test_a_bookie_s_directory_has_figures_too() -> None:
    [row] = rows("stats", fixtures.bookie("03a_crash_after_checkpoint") / "bookie")
    assert row["in_use"] is False
    assert row["ledgers"] > 0
    assert row["entries"] > 0


def test_a_directory_without_a_store_has_no_figures(tmp_path: Path) -> None:
    assert run("stats", tmp_path).exit_code == 3
