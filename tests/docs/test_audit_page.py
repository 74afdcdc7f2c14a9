"""docs/audit.md documents every option and every column, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import audit_reports
import pytest

from recovery.audit.report import tables
from recovery.audit.report.summary import summary
from recovery.shell.commands.audit import command as audit
from recovery.shell.commands.verify import command as verify
from recovery.shell.listing.finding import finding_row

if TYPE_CHECKING:
    import pyarrow as pa

PAGE = (Path(__file__).parent.parent.parent / "docs" / "audit.md").read_text()
ONE, MANY, REPORT = (PAGE.partition(f"\n## {number}. ")[2].partition("\n## ")[0] for number in (1, 2, 3))
COMMON = {"--json", "--ndjson", "--password", "--password-file"}


def options(text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", text))


def test_every_option_of_both_commands_is_documented() -> None:
    known = {name for option in verify.params for name in option.opts if name.startswith("--")}
    assert known <= options(ONE)
    rows = "\n".join(re.findall(r"^\| `--.*", MANY, re.MULTILINE))
    known = {name for option in audit.params for name in option.opts if name.startswith("--")}
    assert {re.sub(r"[^a-z-]", "", name) for name in options(rows)} >= known
    assert set(re.findall(r"^\| `(--[a-z-]+)", MANY, re.MULTILINE)) <= known


@pytest.mark.parametrize(
    ("name", "schema"),
    [("findings", tables.FINDINGS), ("runs", tables.RUNS), ("parts", tables.PARTS)],
    ids=["findings", "runs", "parts"],
)
def test_every_column_of_a_table_is_documented_with_its_type(name: str, schema: pa.Schema) -> None:
    table = REPORT.partition(f"**`{name}.parquet`**")[2].partition("\n\n**")[0]
    rows = re.findall(r"^\| (`.*?) \| (\w+) \|", table, re.MULTILINE)
    told = [(column, kind) for columns, kind in rows for column in re.findall(r"`(\w+)`", columns)]
    assert told == [(field.name, str(field.type)) for field in schema]


def test_every_field_of_the_summary_is_documented() -> None:
    told = summary(audit_reports.replicated())
    paragraph = REPORT.partition("**`summary.json`**")[2].partition("\n\n")[0]
    words = set(re.findall(r"`(\w+)`", paragraph))
    store = told["stores"][0]
    inner = {
        *told["findings"],
        *told["unverified"],
        *told["history"],
        *store,
        *store["coverage"],
        *store["checks"][0],
    }
    assert {*told, *inner} == words


def test_every_key_of_a_row_is_documented() -> None:
    [finding, *_] = audit_reports.damaged().findings
    paragraph = ONE.partition("`--json` and `--ndjson`")[2].partition("\n\n")[0]
    assert set(finding_row(finding)) <= set(re.findall(r"`(\w+)`", paragraph))
