"""`ledgerstore audit`: reports of many stores, --since, --resume, and the choice of the engine."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from shell_samples import run, verdict

from recovery import open_store
from recovery.shell import audit_engine
from storage.config import StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = StoreConfig(
    memtable_size_max=1 << 20,
    journal_size=1 << 18,
    group_size_max=1 << 16,
    entry_size_max=1 << 15,
    index_size_max=1 << 24,
    entry_log_size_max=1 << 16,
    checkpoint_interval_s=None,
)


def build(root: Path, ledger_id: int) -> Path:
    with open_store(root, CONFIG) as store:
        for number in range(4):
            store.ledger(ledger_id).append_many([b"%d" % number * 400 for _ in range(40)])
            store.checkpoint()
    return root


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two sound stores, each with several entry logs."""
    place = tmp_path_factory.mktemp("made")
    return build(place / "one", 7), build(place / "two", 8)


@pytest.fixture
def stores(made: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the stores, for tests that damage them."""
    return tuple(shutil.copytree(path, tmp_path / path.name) for path in made)  # type: ignore[return-value]


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)


def summary(place: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((place / "summary.json").read_text())
    return summary


def test_sound_stores_are_clean_and_a_report_is_written(made: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "report"
    done = run("audit", *made, "--out", out, "--engine", "local")
    assert done.exit_code == 0, done.output
    assert re.fullmatch(r"audit: sound, \d+ files of 2 stores \([\d.]+ \w+, [\d.]+ s\)", verdict(done))
    assert f"report: {out / 'report.html'}" in done.stderr.splitlines()
    written = {"findings.parquet", "runs.parquet", "parts.parquet", "summary.json", "report.html", "parts"}
    written |= {"history.ndjson", "metrics.prom", "junit.xml", "repairs.csv"}
    assert {path.name for path in out.iterdir()} == written
    assert summary(out)["sound"] is True
    assert summary(out)["argv"][0] == "ledgerstore"


def test_damage_is_in_the_table_the_report_and_the_exit_code(
    stores: tuple[Path, Path], tmp_path: Path
) -> None:
    log = stores[1] / "ledgers/current/0.log"
    flip(log, log.read_bytes().index(b"0" * 400) + 7)
    out = tmp_path / "report"
    done = run("audit", *stores, "--out", out)
    assert done.exit_code == 1
    assert re.match(r"audit: 1 error in \d+ files of 2 stores \(", verdict(done))
    [heading, line] = done.stdout.splitlines()
    assert heading.split()[0] == "store"
    assert str(stores[1]) in line
    rows = pq.read_table(out / "findings.parquet").to_pylist()
    assert [row["kind"] for row in rows if row["severity"] == "error"] == ["ELG-003"]
    assert "ELG-003" in (out / "report.html").read_text()


def test_json_prints_the_summary(made: tuple[Path, Path], tmp_path: Path) -> None:
    done = run("audit", made[0], "--out", tmp_path / "report", "--json")
    assert json.loads(done.stdout) == summary(tmp_path / "report")


def test_without_out_the_report_has_the_time_in_its_name(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("audit", made[0]).exit_code == 0
    [place] = tmp_path.iterdir()
    assert re.fullmatch(r"audit-\d{8}T\d{6}Z", place.name)


def test_a_directory_for_the_report_may_have_a_colon(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("audit", made[0], "--out", "gs:monday")
    assert done.exit_code == 0, done.output
    assert summary(tmp_path / "gs:monday")["sound"] is True


# ── --since and --resume ─────────────────────────────────────────────────────────────────────────────────


def test_since_reads_only_what_may_have_changed_and_says_so(made: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert run("audit", *made, "--out", first).exit_code == 0
    done = run("audit", *made, "--out", second, "--since", first)
    assert done.exit_code == 0, done.output
    assert "not read again: " in verdict(done)
    before, after = summary(first), summary(second)
    assert after["bytes_reused"] > 0
    assert after["bytes_read"] < before["bytes_read"]
    assert after["stores"][0]["coverage"] == before["stores"][0]["coverage"]
    assert pq.read_table(second / "runs.parquet").equals(pq.read_table(first / "runs.parquet"))
    assert "NOT READ AGAIN" in (second / "report.html").read_text()


def test_since_with_everything_reread_reads_everything(made: tuple[Path, Path], tmp_path: Path) -> None:
    assert run("audit", made[0], "--out", tmp_path / "first").exit_code == 0
    again = run(
        "audit", made[0], "--out", tmp_path / "second", "--since", tmp_path / "first", "--reread", 100
    )
    assert again.exit_code == 0
    assert summary(tmp_path / "second")["bytes_reused"] == 0


def test_an_interrupted_audit_says_how_to_resume_and_resumes(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "report"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("recovery.audit.report.writer.write", interrupt)
        done = run("audit", *made, "--out", out)
    assert done.exit_code == 130
    assert verdict(done) == f"audit: stopped before the end; continue with --resume --out {out}"
    assert not (out / "summary.json").exists()
    assert run("audit", *made, "--out", out, "--resume").exit_code == 0
    assert summary(out)["bytes_reused"] > 0


# ── engines ──────────────────────────────────────────────────────────────────────────────────────────────


def test_small_stores_need_no_java(made: tuple[Path, Path], tmp_path: Path) -> None:
    assert run("audit", made[0], "--out", tmp_path / "report").exit_code == 0
    assert not summary(tmp_path / "report")["engine"].startswith("Spark")


def test_without_java_spark_is_refused_in_one_line_that_names_the_local_engine(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    from recovery.audit.spark import launch
    from recovery.audit.spark.java import SparkUnavailable

    def none_found() -> None:
        raise SparkUnavailable("Java 17 or newer is needed by Spark, and none was found")

    monkeypatch.setattr(launch, "find_java", none_found)
    monkeypatch.setattr(launch, "is_launched", lambda: False)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    done = run("audit", made[0], "--out", tmp_path / "report", "--engine", "spark")
    assert (done.exit_code, done.stdout) == (3, "")
    assert verdict(done).startswith("ledgerstore: Java 17 or newer is needed by Spark")
    assert "--engine local" in verdict(done)
    assert not (tmp_path / "report").exists()


def test_large_inputs_use_spark_only_if_it_can_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit_engine, "find_spec", lambda _: None)
    with audit_engine.started_engine(audit_engine.EngineOptions(jobs=2), 1 << 40) as (engine, jobs):
        assert (engine.name, jobs) == ("local", 2)
    assert "Spark is not installed: the audit runs in processes on this machine" in capsys.readouterr().err


def test_a_rate_is_given_to_the_engine() -> None:
    with audit_engine.started_engine(audit_engine.EngineOptions("local", 3, rate_max=5e6), 0) as (
        engine,
        _,
    ):
        assert engine.rate_max == 5e6  # type: ignore[attr-defined]


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (".", "--engine", "abacus"),
        (".", "--resume"),
        (".", "--rate", "0"),
        (".", "--reread", "200"),
        ("--self-test", "a", "b"),
    ],
    ids=" ".join,
)
def test_bad_usage(arguments: tuple[str, ...]) -> None:
    assert run("audit", *arguments).exit_code == 2


@pytest.mark.parametrize("what", ["nowhere", "empty", "since", "out", "uri", "store", "replicas"])
def test_impossible_requests_end_with_3_and_one_line(
    made: tuple[Path, Path], tmp_path: Path, what: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("{}")
    out = ("--out", tmp_path / "report")
    calls: dict[str, tuple[object, ...]] = {
        "nowhere": (tmp_path / "nowhere", *out),
        "empty": (tmp_path / "empty", *out),
        "since": (made[0], *out, "--since", tmp_path / "empty"),
        "out": (made[0], "--out", tmp_path / "file" / "report"),
        "uri": (made[0], "--out", "s3a://bucket/report"),
        "store": (*made, "--out", made[1] / "report"),
        "replicas": ("--replicas", tmp_path / "file", *out),
    }
    done = run("audit", *calls[what])
    assert (done.exit_code, done.stdout) == (3, ""), done.output
    [line] = done.stderr.splitlines()
    assert line.startswith("ledgerstore: ")
    assert not (tmp_path / "report" / "summary.json").exists()


def test_without_pyarrow_one_line_says_what_to_install(
    made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recovery.shell.exit_codes.find_spec",
        lambda name: None if name == "pyarrow" else name,
    )
    assert (
        verdict(run("audit", made[0])) == "ledgerstore: audit needs pyarrow: pip install 'ledgerstore[audit]'"
    )


# ── self-test ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_self_test_plants_faults_and_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from recovery.audit.self_test import trials

    real = trials.Trials
    monkeypatch.setattr(trials, "Trials", lambda **words: real(**{"count": 12, **words}))
    done = run("audit", "--self-test")
    assert done.exit_code == 0, done.output
    assert verdict(done) == "self-test: 12 of 12 faults found at their exact place, no false alarm"
    heading, *lines = done.stdout.splitlines()
    assert heading.split() == ["fault", "planted", "found", "located", "missed"]
    assert len(lines) == 12


def test_a_pattern_and_a_uri_name_stores(stores: tuple[Path, Path], tmp_path: Path) -> None:
    done = run("audit", f"{stores[0].parent}/[ot]*", "--out", tmp_path / "report", "--jobs", "1")
    assert (done.exit_code, len(summary(tmp_path / "report")["stores"])) == (0, 2)
    done = run("audit", stores[0].as_uri(), "--out", tmp_path / "again", "--jobs", "1")
    assert [one["store"] for one in summary(tmp_path / "again")["stores"]] == [str(stores[0])]


def test_a_uri_of_an_object_store_is_refused_before_any_work(tmp_path: Path) -> None:
    done = run("audit", "s3a://bucket/bk1", "--out", tmp_path / "report")
    assert (done.exit_code, (tmp_path / "report").exists()) == (3, False)
    assert "only files of a file system can be read" in done.stderr


def test_the_history_of_reports_in_one_place_continues(stores: tuple[Path, Path], tmp_path: Path) -> None:
    place, whole = tmp_path / "report", next(iter(sorted((stores[0] / "ledgers/current").glob("*.log"))))
    data = whole.read_bytes()
    flip(whole, 5000)
    assert run("audit", stores[0], "--out", place, "--jobs", "1").exit_code == 1
    assert summary(place)["history"] == {"open": 1, "new": 1, "resolved": 0, "accepted": 0}
    shown = run("audit", "history", place, "--ndjson")
    assert (shown.exit_code, json.loads(shown.stdout)["kind"]) == (1, "ELG-003")
    baseline = tmp_path / "accepted"
    baseline.write_text(shown.stdout)
    done = run("audit", stores[0], "--out", place, "--jobs", "1", "--baseline", baseline)
    assert (done.exit_code, summary(place)["history"]["accepted"]) == (0, 1)
    assert "1 finding accepted by the baseline" in done.stderr
    whole.write_bytes(data)
    assert run("audit", stores[0], "--out", place, "--jobs", "1").exit_code == 0
    shown = run("audit", "history", place)
    assert (shown.exit_code, "0 open findings" in shown.stderr) == (0, True)
    (row,) = json.loads(run("audit", "history", place, "--all", "--json").stdout)
    assert row["resolved"] >= row["first_seen"]


def test_a_baseline_that_is_none_is_refused_before_any_work(
    stores: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "no").write_text("ELG-003\n")
    for name, words in (("no", "is no baseline: line 1"), ("missing", "No such file")):
        done = run("audit", stores[0], "--out", tmp_path / "report", "--baseline", tmp_path / name)
        assert (done.exit_code, words in done.stderr, (tmp_path / "report").exists()) == (3, True, False)


def test_a_directory_that_is_no_report_has_no_history(tmp_path: Path) -> None:
    done = run("audit", "history", tmp_path)
    assert (done.exit_code, "it has no history" in done.stderr) == (3, True)
