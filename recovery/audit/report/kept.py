"""Writes a report into a directory: tables, summary and page, each whole or not at all."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from recovery.audit.report import page, tables
from recovery.audit.report.summary import summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from recovery.audit.inspected import AuditReport

PAGE, SUMMARY = "report.html", "summary.json"
FINDINGS, RUNS, PARTS = "findings.parquet", "runs.parquet", "parts.parquet"


def write(report: AuditReport, directory: Path) -> Path:
    """Writes all of it, the summary last: where that is, the others are. Answers with the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    # An earlier report's: whoever reads it meanwhile would take its tables for the new ones.
    (directory / SUMMARY).unlink(missing_ok=True)
    _table(tables.findings(report), directory / FINDINGS)
    _table(tables.runs(report), directory / RUNS)
    _table(tables.parts(report), directory / PARTS)
    _text(page.render(report), directory / PAGE)
    _text(json.dumps(summary(report), indent=1, ensure_ascii=True) + "\n", directory / SUMMARY)
    return directory / PAGE


def _table(table: pa.Table, path: Path) -> None:
    with _whole(path) as draft:
        pq.write_table(table, draft, compression="zstd")


def _text(text: str, path: Path) -> None:
    with _whole(path) as draft:
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A draft beside the file that takes its name when all of it is there."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
