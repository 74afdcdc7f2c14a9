"""The programs in docs/operations.md run without changes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from recovery import open_store
from recovery.shell.main import cli
from storage.config import StoreConfig

PAGE = Path(__file__).parent.parent.parent / "docs" / "operations.md"


def recipe(heading: str) -> str:
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return str(code)


@pytest.mark.slow
def test_the_collector_of_the_page_prints_metrics(tmp_path: Path) -> None:
    command = [sys.executable, "-c", recipe("Statistics")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    figures = dict(line.split() for line in done.stdout.splitlines() if line and line[0] != "#")
    assert figures["ledgerstore_adds_total"] == "1.0"
    assert figures["ledgerstore_failed"] == "0.0"
    alarms = re.findall(r"`((?:ledgerstore|bookie)_\w+)`", PAGE.read_text().partition("Raise an alarm")[2])
    assert set(alarms) >= {"ledgerstore_failed", "bookie_write_cache_size"}
    assert set(alarms) <= set(figures)


@pytest.mark.slow
def test_the_program_about_space_collects(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", recipe("Space")], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    first, *logs, space = done.stdout.splitlines()
    assert first == "complete 0 logs removed, 0 bytes"
    assert logs == ["0.log: active: checkpoints append to it"]
    assert space.startswith("LogSpace(count=1, ")


def test_the_shown_list_of_logs_is_that_of_such_a_store(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with open_store(path, StoreConfig(entry_log_size_max=1 << 20)) as store:
        for ledger_id in range(40):
            store.ledger(ledger_id).append_many([bytes(1000)] * 100)
        store.checkpoint()
        for ledger_id in (*range(10), 10, 11, 13, 14, 16, 17, 19, 25):
            store.ledger(ledger_id).delete()
    [shown] = re.findall(r"```console\n\$ ledgerstore gc data\n(.*?)```", PAGE.read_text(), re.DOTALL)
    result = CliRunner().invoke(cli, ["gc", str(path)])
    assert (result.stdout + result.stderr).split() == shown.split()
