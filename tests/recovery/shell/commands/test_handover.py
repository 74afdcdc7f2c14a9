"""`ledgerstore handover`: its figures, the next steps that it prints, and what is refused."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import fixtures
import pytest
from shell_samples import rows, run, verdict

from recovery import open_store
from storage import StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

REBUILDS = [
    "  bookkeeper shell rebuild-db-ledgers-index",
    "  bookkeeper shell rebuild-db-ledger-locations-index",
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store", StoreConfig(journal_size=16 << 20)) as opened:
        opened.ledger(1).append_many([b"one", b"two"])
        opened.ledger(1).set_explicit_lac(0)
        opened.ledger(2, password=b"secret").append(b"three")
        opened.ledger(2, password=b"secret").fence()
        opened.ledger(3).append(b"four")
        opened.checkpoint()
        opened.ledger(3).delete()
    return tmp_path / "store"


def test_the_result_of_a_handover_is_one_row(store: Path) -> None:
    [row] = rows("handover", store, "--bookie-id", "10.0.0.1:3181", "--instance-id", "cluster")
    journals = [path.name for path in (store / "journal/current").glob("*.txn")]
    assert row == {
        "directory": str(store),
        "bookie_id": "10.0.0.1:3181",
        "instance_id": "cluster",
        "mark": f"{journals[0]}@0",
        "last_log": "0",
        "ledgers": 2,
        "keys": 2,
        "fences": 1,
        "explicit_lacs": 1,
        "complete": True,
        "logs_written": 1,
        "blanked": 1,
        "trimmed": 1,
        "quarantined": 0,
        "unproven": 0,
        "deleted": 0,
        "limbo": 0,
        "findings": 0,
    }


def test_the_table_has_a_line_for_each_figure(store: Path) -> None:
    result = run("handover", store)
    figures = [line.split()[:2] for line in result.stdout.splitlines()]
    assert figures[:5] == [
        ["figure", "value"],
        ["ledgers", "2"],
        ["keys", "2"],
        ["fences", "1"],
        ["explicit_lacs", "1"],
    ]
    assert result.exit_code == 0


def test_the_next_steps_are_printed_in_order(store: Path) -> None:
    result = run("handover", store, "--bookie-id", "10.0.0.1:3181")
    current = store / "ledgers/current"
    commands = [line for line in result.stderr.splitlines() if line.startswith("  ")]
    assert commands == [
        *REBUILDS,
        f"  rm -r {current}/ledgers",
        f"  bookkeeper shell cookie_create -cf {current}/VERSION 10.0.0.1:3181",
        "  bookkeeper bookie",
    ]
    assert verdict(result).startswith("handover: 2 ledgers ready for 10.0.0.1:3181, replayed from ")


def test_a_store_without_a_bookie_id_asks_for_one(store: Path) -> None:
    message = "ledgerstore:0 is not the id of a bookie: run handover again with --bookie-id"
    assert message in run("handover", store).stderr
    named = run("handover", store, "--bookie-id", "10.0.0.1:3181")
    assert "is not the id of a bookie" not in named.stderr


def test_with_an_unknown_key_the_ledgers_index_is_not_removed(tmp_path: Path) -> None:
    shutil.copytree(fixtures.bookie("04a_fence_lac_crash") / "bookie", tmp_path / "bookie")
    run("rebuild-index", tmp_path / "bookie")
    result = run("handover", tmp_path / "bookie")
    lines = result.stderr.splitlines()
    commands = [line.split()[0] for line in lines if line.startswith("  ")]
    assert commands == ["bookkeeper"] * 4
    assert "started for the second time, because not every key is known" in lines
    assert any(line.startswith("the key is not known of ledger") for line in lines)
    assert verdict(result).endswith("keys and explicit LACs for the first run of the bookie only")


def test_quarantined_bytes_are_named(store: Path) -> None:
    (journal,) = (store / "journal/current").glob("*.txn")
    data = journal.read_bytes()
    end = len(data.rstrip(b"\0")) + 4095 & ~4095
    journal.write_bytes(data[:end] + b"torn" + data[end + 4 :])
    result = run("handover", store)
    assert f"quarantined: {journal.name}@{end}, 4 bytes, saved as quarantine/" in result.stderr


def test_findings_are_printed_and_set_the_exit_code(store: Path) -> None:
    log = store / "ledgers/current/0.log"
    data = bytearray(log.read_bytes())
    data[4096:4100] = b"\x7f\xff\xff\xff"
    log.write_bytes(data)
    result = run("handover", store)
    assert result.exit_code == 1
    assert "finding: ELG-004 0.log@4096" in result.stderr
    assert "a bookie may list deleted entries again, of ledger 3" in result.stderr


def test_a_store_that_is_open_is_refused(store: Path) -> None:
    with open_store(store):
        result = run("handover", store)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith("ledgerstore: ")


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    assert run("handover", tmp_path).exit_code == 3
    assert run("handover", tmp_path / "nowhere").exit_code == 3
    assert [*tmp_path.iterdir()] == []


def test_a_path_that_a_cookie_cannot_hold_is_refused(store: Path) -> None:
    result = run("handover", store, "--journal-dir", "/a,/b")
    assert result.exit_code == 3
    assert "comma" in result.stderr
