"""The files of a report: tables with documented schemas, a summary, each file complete or missing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import audit_reports
import pyarrow.parquet as pq
import pytest

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.model.store_facts import DirectoryOwner, StoreIdentity
from recovery.audit.report import commands, tables, writer
from recovery.audit.report.summary import SCHEMA_VERSION, summary

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

FILES = [
    "findings.parquet",
    "history.ndjson",
    "junit.xml",
    "metrics.prom",
    "parts.parquet",
    "repairs.csv",
    "report.html",
    "runs.parquet",
    "summary.json",
]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    writer.write(audit_reports.several(), tmp_path / "out")
    return tmp_path / "out"


def test_all_files_and_no_draft_are_left(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == FILES


@pytest.mark.parametrize(
    ("name", "schema"),
    [("findings", tables.FINDINGS), ("runs", tables.RUNS), ("parts", tables.PARTS)],
    ids=["findings", "runs", "parts"],
)
def test_tables_have_their_schema_even_when_they_are_empty(
    written: Path, tmp_path: Path, name: str, schema: pa.Schema
) -> None:
    assert pq.read_schema(written / f"{name}.parquet").equals(schema)
    writer.write(audit_reports.report(), tmp_path / "empty")
    empty = pq.read_table(tmp_path / "empty" / f"{name}.parquet")
    assert (empty.schema.equals(schema), len(empty)) == (True, 0)


def test_each_finding_is_a_row_in_the_report_s_order(written: Path) -> None:
    report = audit_reports.several()
    rows = pq.read_table(written / "findings.parquet").to_pylist()
    assert [row["kind"] for row in rows] == [one.kind for one in report.findings]
    first, found = rows[0], report.findings[0]
    assert first == {
        "severity": "error",
        "kind": found.kind,
        "title": KINDS[found.kind].title,
        "store": found.store,
        "host": "",
        "bookie": "",
        "instance": "",
        "file": found.file,
        "offset": found.offset,
        "end_offset": found.end,
        "ledger": found.ledger_id,
        "first_entry": found.first_entry,
        "last_entry": found.last_entry,
        "count": found.count,
        "detail": found.detail,
        "look": commands.command(found),
    }


def test_runs_keep_the_bits_of_their_fingerprints(tmp_path: Path) -> None:
    log = audit_reports.log(3, 900, [(7, 500)])
    log.runs["digests"] = 2**64 - 5
    writer.write(audit_reports.report(audit_reports.store("/s", [log], journals=0)), tmp_path)
    rows = pq.read_table(tmp_path / "runs.parquet").to_pylist()
    assert [row["side"] for row in rows] == ["log", "index"]
    assert rows[0] == {
        "store": "/s",
        "host": "",
        "bookie": "",
        "instance": "",
        "side": "log",
        "file": 3,
        "ledger": 7,
        "step": 1,
        "first_entry": 300,
        "last_entry": 399,
        "entries": 100,
        "size": 500,
        "places": 1,
        "digests": -5,
        "bad": 0,
    }


def test_each_file_that_was_read_is_a_part(written: Path) -> None:
    rows = pq.read_table(written / "parts.parquet").to_pylist()
    mine = [row for row in rows if row["store"] == "/data/one"]
    assert [row["name"] for row in mine if row["side"] == "log"] == [f"{number}.log" for number in range(7)]
    assert [row["side"] for row in mine].count("journal") == 2
    [log] = [row for row in mine if row["name"] == "0.log"]
    assert (log["bad"], log["unverified"], log["entries"]) == (1, 600, 6000)
    assert [row["side"] for row in rows if row["store"] == "/data/bookie two"].count("index") == 0


def test_the_summary_contains_what_was_covered_and_what_was_not(written: Path) -> None:
    content = json.loads((written / "summary.json").read_text())
    assert content["schema_version"] == SCHEMA_VERSION
    assert content["sound"] is False
    assert content["argv"][:2] == ["ledgerstore", "audit"]
    assert (content["findings"]["errors"], content["findings"]["warnings"]) == (12, 2)
    assert content["findings"]["by_kind"]["ELG-003"] == 2
    assert content["unverified"] == {"ledgers": 2, "entries": 1200}
    one = content["stores"][0]
    assert one["coverage"]["logs"] == 7
    assert one["coverage"]["not_covered"] == ["6.log after byte 4,812,032: it was being written"]
    assert {check["status"] for check in one["checks"]} == {"passed", "failed", "not run"}
    assert [item["severity"] for item in content["worst"]] == ["error"] * 12 + ["warning"] * 2
    assert content["verdict"].startswith("12 errors, 2 warnings in 38 files of 3 stores (")
    assert "UNVERIFIED: 1,200 entries of 2 ledgers" in content["verdict"]


def test_the_worst_findings_are_those_of_all_stores_the_most_severe_first() -> None:
    first = audit_reports.store(
        "/a",
        [audit_reports.log(0, 9, [(1, 5)])],
        [KINDS["DIR-001"].at(store="/a", file=f"{number}.txt") for number in range(25)]
        + [KINDS["LGR-004"].at(store="/a", ledger_id=number) for number in range(25)],
    )
    error = KINDS["ELG-003"].at(store="/b", file="0.log", offset=4096)
    second = audit_reports.store("/b", [audit_reports.log(0, 9, [(1, 5)])], [error])
    content = summary(audit_reports.report(first, second))
    assert (content["findings"]["errors"], content["findings"]["warnings"]) == (1, 25)
    assert [(item["store"], item["severity"]) for item in content["worst"][:2]] == [
        ("/b", "error"),
        ("/a", "warning"),
    ]
    assert len(content["worst"]) == 20


def test_a_sound_store_s_verdict_says_so() -> None:
    verdict = summary(audit_reports.sound())["verdict"]
    assert verdict == "sound, 12 files (512.0 MiB, 3.4 s)"


def test_an_interrupted_report_is_not_taken_for_one(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    before = (written / "report.html").read_bytes()
    monkeypatch.setattr("recovery.audit.report.page.render", interrupt)
    with pytest.raises(KeyboardInterrupt):
        writer.write(audit_reports.sound(), written)
    assert not (written / "summary.json").exists()
    assert (written / "report.html").read_bytes() == before
    assert not list(written.glob(".*"))


def test_a_path_that_is_not_utf_8_is_written(tmp_path: Path) -> None:
    found = [KINDS["DIR-001"].at(store="/data/\udcff", file="\udcfe")]
    store = audit_reports.store("/data/\udcff", [audit_reports.log(0, 9, [(1, 5)])], found)
    writer.write(audit_reports.report(store), tmp_path)
    [row] = pq.read_table(tmp_path / "findings.parquet").to_pylist()
    assert (row["store"], row["file"]) == ("/data/\\udcff", "\\udcfe")
    assert json.loads((tmp_path / "summary.json").read_text())["stores"][0]["store"] == "/data/\udcff"


# ── the command that shows a finding ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "where", "command"),
    [
        (
            "ELG-003",
            {"file": "1f.log", "offset": 70, "ledger_id": 3},
            "explain 1f.log@70 '/data/my store'",
        ),
        ("JRN-003", {"file": "1a.txn", "offset": 512}, "explain 1a.txn@512 '/data/my store'"),
        ("MRK-001", {"file": "lastMark"}, "explain lastMark '/data/my store'"),
        ("LGR-002", {"file": "ledgers.rows", "offset": 9}, "explain ledgers.rows@9 '/data/my store'"),
        ("MRK-002", {"file": "1a.txn"}, "files '/data/my store'"),
        ("ELG-005", {"file": "1f.log"}, "files '/data/my store'"),
        ("CKE-001", {"file": "journal/VERSION", "offset": 3}, "files '/data/my store'"),
        ("IDX-004", {"file": "index"}, "files '/data/my store'"),
        ("LGR-005", {"ledger_id": 4}, "ledger 4 '/data/my store'"),
        (
            "IDX-002",
            {"file": "index", "ledger_id": 4, "first_entry": 7, "last_entry": 9},
            "read 4 '/data/my store' --from 7 --to 9",
        ),
        ("RPL-001", {"ledger_id": 4, "first_entry": 7}, "read 4 '/data/my store' --from 7 --to 7"),
    ],
)
def test_a_finding_has_a_command_that_shows_it(kind: str, where: dict[str, object], command: str) -> None:
    assert commands.command(KINDS[kind].at(store="/data/my store", **where)) == f"ledgerstore {command}"


def test_without_an_index_there_is_no_row_for_one(tmp_path: Path) -> None:
    log = audit_reports.log(0, 900, [(7, 500)])
    writer.write(
        audit_reports.report(audit_reports.store(logs=[log], owner=DirectoryOwner.BOOKIE, journals=0)),
        tmp_path,
    )
    assert {row["side"] for row in pq.read_table(tmp_path / "runs.parquet").to_pylist()} == {"log"}


def test_stores_with_the_same_path_on_two_machines_are_told_apart(tmp_path: Path) -> None:
    shared = audit_reports.store("/data/bookie", [audit_reports.log(0, 9, [(1, 5)])], journals=0)
    for host in ("one", "two"):
        known = StoreIdentity(host=host, bookie_id=f"{host}:3181", instance_id="cluster")
        found = KINDS["DIR-001"].at(store="/data/bookie", file="x")
        store = replace(shared, identity=known, findings=(found,))
        writer.write(audit_reports.report(store), tmp_path / host)
    for name in ("findings", "runs", "parts"):
        rows = [
            row
            for host in ("one", "two")
            for row in pq.read_table(tmp_path / host / f"{name}.parquet").to_pylist()
        ]
        told = {(row["host"], row["store"], row["bookie"], row["instance"]) for row in rows}
        assert told == {
            ("one", "/data/bookie", "one:3181", "cluster"),
            ("two", "/data/bookie", "two:3181", "cluster"),
        }


def test_a_wrong_password_is_not_sound_in_the_summary_either() -> None:
    content = summary(replace(audit_reports.sound(), wrong_password_ledgers=(12,)))
    assert content["sound"] is False
    assert not content["verdict"].startswith("sound")
    assert "WRONG PASSWORD" in content["verdict"]
