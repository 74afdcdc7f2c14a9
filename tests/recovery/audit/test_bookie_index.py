"""A bookie's own index, as its rows were in RocksDB, against its entry logs."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING

import bookie_indexes
import fixtures
import pytest
from fault_trials import audited

from recovery.audit.findings.finding import Severity
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.bookkeeper import rocksdb_index
from recovery.bookkeeper.rocksdb_index import RocksdbIndexCopy, TableFiles, UnreadIndex

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from recovery.audit.findings.finding import Finding

SET = "01_clean"


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    return bookie_indexes.bookie_with_index(SET, tmp_path / "bookie")


def placed(name: str) -> Mapping[int, set[tuple[int, int]]]:
    """Return for each log the entries that the index has in it."""
    found: dict[int, set[tuple[int, int]]] = {}
    for key, value in bookie_indexes.rows(name, "locations"):
        ids = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")
        found.setdefault(int.from_bytes(value, "big") >> 32, set()).add(ids)
    return found


def told(findings: tuple[Finding, ...], kind: str) -> Counter[tuple[int | None, int]]:
    """Return the entries that findings of a kind are about."""
    return Counter(
        (one.ledger_id, entry)
        for one in findings
        if one.kind == kind and one.first_entry is not None and one.last_entry is not None
        for entry in range(one.first_entry, one.last_entry + 1)
    )


@pytest.mark.parametrize("name", bookie_indexes.SETS)
def test_every_row_of_a_sound_bookie_leads_to_its_entry(name: str, tmp_path: Path) -> None:
    path = bookie_indexes.bookie_with_index(name, tmp_path / "bookie")
    report = run_audit(AuditRequest((str(path),)))
    assert [one for one in report.findings if one.is_wrong] == []
    (store,) = report.stores
    assert store.coverage.index_rows == len(bookie_indexes.rows(name, "locations"))
    answers = {check.id: check.status for check in store.checks}
    assert (answers["index"], answers["index-to-log"], answers["log-to-index"]) == (
        "passed",
        "passed",
        "not run",
    )


@pytest.mark.parametrize("log_id", [0, 3, 7])
def test_a_bookie_that_lost_a_log_misses_exactly_its_entries(bookie: Path, log_id: int) -> None:
    (bookie / f"ledgers/current/{log_id}.log").unlink()
    findings = audited(bookie, {})
    assert [one.file for one in findings if one.kind == "ELG-005"] == [f"{log_id}.log"]
    assert told(findings, "IDX-001") == Counter(placed(SET)[log_id])
    assert sum(one.count for one in findings if one.kind == "IDX-001") == len(placed(SET)[log_id])


def test_a_log_of_which_the_end_is_gone_misses_the_entries_there(bookie: Path) -> None:
    log = bookie / "ledgers/current/3.log"
    log.write_bytes(log.read_bytes()[:100_000])
    findings = audited(bookie, {})
    lost = told(findings, "ELG-007") + told(findings, "IDX-001")
    assert lost
    assert set(lost) < placed(SET)[3]


def test_an_emptied_log_misses_all_entries(bookie: Path) -> None:
    (bookie / "ledgers/current/3.log").write_bytes(b"")
    findings = audited(bookie, {})
    assert set(told(findings, "ELG-007") + told(findings, "IDX-001")) == placed(SET)[3]


def test_the_rows_of_a_deleted_ledger_lead_nowhere_without_damage(bookie: Path) -> None:
    (some,) = (one for one in bookie_indexes.rows(SET, "ledgers")[:1])
    gone = int.from_bytes(some[0][:8], "big")
    shutil.rmtree(bookie / "ledgers/current/ledgers")
    bookie_indexes.make(bookie / "ledgers/current/ledgers", bookie_indexes.rows(SET, "ledgers")[1:])
    only_its = [log for log, ids in placed(SET).items() if {ledger for ledger, _ in ids} == {gone}]
    for log_id in only_its:
        (bookie / f"ledgers/current/{log_id}.log").unlink()
    assert only_its
    assert [one for one in audited(bookie, {}) if one.is_wrong] == []


def test_rows_that_lead_to_other_places_of_the_same_entries_are_found(bookie: Path) -> None:
    rows = bookie_indexes.rows(SET, "locations")
    (first, second), rest = rows[:2], rows[2:]
    shutil.rmtree(bookie / "ledgers/current/locations")
    swapped = [(first[0], second[1]), (second[0], first[1]), *rest]
    bookie_indexes.make(bookie / "ledgers/current/locations", swapped)
    wrong = [one for one in audited(bookie, {}) if one.is_wrong]
    assert [(one.kind, one.ledger_id) for one in wrong] == [("IDX-002", int.from_bytes(first[0][:8], "big"))]


def test_a_damaged_index_is_a_finding_and_the_logs_are_verified(bookie: Path) -> None:
    for manifest in (bookie / "ledgers/current/locations").glob("MANIFEST-*"):
        manifest.write_bytes(b"nothing of RocksDB")
    report = run_audit(AuditRequest((str(bookie),)))
    wrong = [one for one in report.findings if one.is_wrong]
    assert [(one.kind, one.file, one.severity) for one in wrong] == [("IDX-004", "locations", Severity.ERROR)]
    assert report.stores[0].coverage.entries > 300


def test_nothing_is_written_into_the_bookie_s_directory(bookie: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        paths = (bookie, *bookie.rglob("*"))
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}

    before = state()
    audited(bookie, {})
    assert state() == before


def test_a_copy_beside_a_running_bookie_has_its_own_tables(bookie: Path, tmp_path: Path) -> None:
    ledgers = bookie / "ledgers/current"
    (tmp_path / "copy").mkdir()
    copied = rocksdb_index.copy(ledgers, tmp_path / "copy", TableFiles.COPIES)
    assert isinstance(copied, RocksdbIndexCopy)
    shutil.rmtree(ledgers / "locations")
    rows = list(rocksdb_index.location_rows(copied.locations))
    assert sum(len(keys) for keys, _ in rows) == 16 * len(bookie_indexes.rows(SET, "locations"))


def test_a_table_that_is_gone_is_no_damage_while_a_bookie_runs(bookie: Path, tmp_path: Path) -> None:
    ledgers = bookie / "ledgers/current"
    next((ledgers / "locations").glob("*.sst")).unlink()
    (tmp_path / "copy").mkdir()
    copied = rocksdb_index.copy(ledgers, tmp_path / "copy", TableFiles.COPIES)
    assert isinstance(copied, UnreadIndex)
    assert not copied.is_damaged


def test_a_bookie_without_rocksdb_says_that_its_index_was_not_read() -> None:
    report = run_audit(AuditRequest((str(fixtures.bookie("06a_sorted_clean") / "bookie"),)))
    assert any("in RocksDB" in one for one in report.stores[0].coverage.not_covered)
