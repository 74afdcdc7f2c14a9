"""The commands on a store from which entry logs were removed, and on its lineage file."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from recovery.opening.open_store import open_store
from recovery.shell.exit_codes import Exit
from recovery.shell.main import cli
from storage.config import StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

LINEAGE = "ledgers/current/lineage"


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store from which the first log was removed."""
    root = tmp_path_factory.mktemp("collected") / "store"
    config = StoreConfig(entry_log_size_max=128 << 10, entry_size_max=64 << 10, collection_interval_s=None)
    with open_store(root, config) as store:
        for ledger_id in (1, 2, 3):
            store.ledger(ledger_id).append_many([bytes(1000)] * 100)
            store.checkpoint()
        store.ledger(1).delete()
        store.checkpoint()
        assert store.collect().removed == (0,)
    return root


@pytest.fixture
def store(collected: Path, tmp_path: Path) -> Path:
    return shutil.copytree(collected, tmp_path / "store")


def run(*arguments: str | Path) -> tuple[int, list[dict[str, Any]], str]:
    """Return the exit code, the rows, and what was said."""
    result = CliRunner().invoke(cli, [*map(str, arguments), "--ndjson"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def damage(store: Path) -> None:
    data = bytearray((store / LINEAGE).read_bytes())
    data[30] ^= 1
    (store / LINEAGE).write_bytes(data)


def kinds(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["kind"], row["severity"]) for row in rows if row["severity"] != "information"]


def test_a_collected_store_is_sound_as_a_whole_and_its_lineage_alone(store: Path) -> None:
    for path in (store, store / LINEAGE):
        code, rows, _ = run("verify", path)
        assert (code, kinds(rows)) == (Exit.CLEAN, [])


def test_a_damaged_lineage_is_a_finding_and_an_opening_mends_it(store: Path) -> None:
    damage(store)
    for path in (store, store / LINEAGE):
        code, rows, _ = run("verify", path)
        assert (code, kinds(rows)) == (Exit.FINDINGS, [("ELG-008", "warning")])
    with open_store(store) as opened:
        assert [one[:16] for one in opened.opened.findings] == ["ELG-008 lineage@"]
    code, rows, _ = run("verify", store)
    assert (code, kinds(rows)) == (Exit.CLEAN, [])


def test_files_lists_the_lineage_with_what_it_says(store: Path) -> None:
    _, rows, _ = run("files", store)
    [row] = [row for row in rows if row["kind"] == "lineage"]
    assert (row["path"], row["owner"], row["flaw"]) == (LINEAGE, "ours", None)
    assert "entry logs in generation" in row["detail"]
    damage(store)
    code, rows, _ = run("files", store)
    [row] = [row for row in rows if row["kind"] == "lineage"]
    assert (code, row["flaw"]) == (Exit.FINDINGS, "CHECKSUM")


def test_explain_shows_the_fields_of_the_lineage(store: Path) -> None:
    code, rows, said = run("explain", store / LINEAGE)
    assert code == Exit.CLEAN
    assert [row["name"] for row in rows[:6]] == ["magic", "version", "store id", "generation", "kept", "gone"]
    assert "logs counted in generation" in said
    damage(store)
    code, _, said = run("explain", store / LINEAGE)
    assert code == Exit.FINDINGS
    assert "not valid" in said


def test_explain_tells_what_its_finding_means() -> None:
    code, [row], _ = run("explain", "ELG-008")
    assert code == Exit.CLEAN
    assert "names the remaining entry logs" in row["cause"]
