"""Write a report into a directory: tables, summary and page, each file completely or not at all."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from recovery.audit.history.finding_history import FILE, NO_HISTORY, continued, encode
from recovery.audit.report import exports, page, tables
from recovery.audit.report.impact import as_csv, impact
from recovery.audit.report.summary import summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from recovery.audit.history.finding_history import FindingHistory
    from recovery.audit.model.audit_report import AuditReport

PAGE, SUMMARY = "report.html", "summary.json"
METRICS, JUNIT, REPAIRS = "metrics.prom", "junit.xml", "repairs.csv"
FINDINGS, RUNS, PARTS = "findings.parquet", "runs.parquet", "parts.parquet"


def write(report: AuditReport, directory: Path, before: FindingHistory = NO_HISTORY) -> Path:
    """Write all files, the summary last, so that it proves the others. Return the path of the page.

    `before` is the history of findings, which this report continues.
    """
    history, seen = continued(before, report), impact(report)
    directory.mkdir(parents=True, exist_ok=True)
    # A summary of an earlier report would make a reader take old tables for new ones.
    (directory / SUMMARY).unlink(missing_ok=True)
    _table(tables.findings(report), directory / FINDINGS)
    _table(tables.runs(report), directory / RUNS)
    _table(tables.parts(report), directory / PARTS)
    _text(page.render(report, history, seen), directory / PAGE)
    _text(as_csv(seen), directory / REPAIRS)
    _text(exports.prometheus(report, history), directory / METRICS)
    _text(exports.junit(report), directory / JUNIT)
    _text(encode(history), directory / FILE)
    _text(json.dumps(summary(report, history), indent=1, ensure_ascii=True) + "\n", directory / SUMMARY)
    return directory / PAGE


def _table(table: pa.Table, path: Path) -> None:
    with _draft_of(path) as draft:
        pq.write_table(table, draft.absolute(), compression="zstd")


def _text(text: str, path: Path) -> None:
    with _draft_of(path) as draft:
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """Yield the path of a draft, which is renamed when it is complete."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
