"""A disk that brings back an older `ledgers.rows`: no deleted ledger comes back unnoticed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import ledgerstore
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit

if TYPE_CHECKING:
    from pathlib import Path

ROWS = "ledgers/current/ledgers.rows"
QUIET = ledgerstore.StoreConfig(checkpoint_interval_s=None, idle_seal_s=None, journal_size=8 << 20)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A store as a killed process leaves it, with the metadata log that it had before its last delete."""
    with ledgerstore.open(tmp_path / "data", QUIET) as store:
        for ledger_id in (1, 2, 3):
            store.ledger(ledger_id).append(b"entry of an earlier ledger")
        store.ledger(1).delete()
        older = (tmp_path / "data" / ROWS).read_bytes()
        store.ledger(2).delete()
        store.ledger(3).append(b"the group that witnesses the delete")
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    (tmp_path / "copy" / ROWS).write_bytes(older)
    return tmp_path / "copy"


def test_an_opening_refuses_an_older_metadata_log(copy: Path) -> None:
    with pytest.raises(ledgerstore.CorruptionError, match=r"ledgers\.rows.*was durable"):
        ledgerstore.open(copy, QUIET)


def test_an_opening_refuses_a_store_whose_metadata_log_is_gone(copy: Path) -> None:
    (copy / ROWS).unlink()
    with pytest.raises(ledgerstore.CorruptionError, match=r"ledgers\.rows.*was durable"):
        ledgerstore.open(copy, QUIET)


def test_a_refused_store_stays_as_it_was(copy: Path) -> None:
    before = {
        path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.name != "lock.mdb"
    }
    for _ in range(2):
        with pytest.raises(ledgerstore.CorruptionError):
            ledgerstore.open(copy, QUIET)
    assert {
        path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.name != "lock.mdb"
    } == before


def test_a_view_refuses_an_older_metadata_log(copy: Path) -> None:
    with pytest.raises(ledgerstore.CorruptionError):
        ledgerstore.open_view(copy)


def test_an_audit_finds_an_older_metadata_log(copy: Path) -> None:
    report = run_audit(AuditRequest((str(copy),)))
    assert "LGR-002" in {finding.kind for finding in report.findings}
