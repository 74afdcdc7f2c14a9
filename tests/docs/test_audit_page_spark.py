"""docs/audit.md on Spark: its programs and SQL statements run, and its tables list the real columns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import small_stores
import spark_session

from recovery.audit.spark import tables
from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recovery.audit.model.tables import Table

PAGE = (Path(__file__).parent.parent.parent / "docs" / "audit.md").read_text()
TABLES, CLUSTERS = (PAGE.partition(f"\n## {number}. ")[2].partition("\n## ")[0] for number in (4, 5))
SOUND = "-- nothing, if all is well"

pytestmark = spark_session.MARKS


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def statements() -> list[str]:
    """Return every SQL statement of the page with the comment before it."""
    return [one.strip() for block in blocks("sql", TABLES) for one in block.split(";\n") if one.strip()]


VIEWS = [one for one in statements() if one.startswith("CREATE")]
QUERIES = [one for one in statements() if not one.startswith("CREATE")]


def first_line(text: str) -> str:
    return text.partition("\n")[0].removeprefix("-- ")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_stores.make(tmp_path_factory.mktemp("page") / "store")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with a damaged entry, an unreadable one, and a gap in a ledger."""
    store = small_stores.make(tmp_path_factory.mktemp("page") / "damaged")
    small_stores.add_behind_a_gap(store)
    path = store / "ledgers/current/1.log"
    data = bytearray(path.read_bytes())
    data[HEADER_SIZE + 3500] ^= 1
    payload = data.index(b"entry 1000")
    data[payload] ^= 1
    data[payload - 4 - 32 - 4] ^= 0x40  # its length word
    path.write_bytes(data)
    return store


def run(program: str, *arguments: str) -> None:
    program = program.replace("import sys\n", f"import sys\n\nsys.argv = ['', *{arguments!r}]\n")
    # The session is shared with all tests.
    exec(program.replace("spark.stop()\n", ""), {})


def test_the_first_program_counts_and_shows(
    spark: SparkSession, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    (program,) = blocks("python", TABLES)
    run(program.replace("/data/bk1", str(store)))
    shown = capsys.readouterr().out
    assert "|     7|           ok| 2100|" in shown
    assert shown.endswith("0 7 b'entry 0'\n1 7 b'entry 1'\n2 7 b'entry 2'\n")


def test_there_are_queries_of_both_kinds() -> None:
    assert len(VIEWS) == 5
    assert sum(query.startswith(SOUND) for query in QUERIES) == 4
    assert len(QUERIES) == 7


@pytest.mark.parametrize("query", QUERIES, ids=first_line)
def test_each_query_returns_the_shown_rows(
    spark: SparkSession, store: Path, damaged: Path, query: str
) -> None:
    counts = {}
    for path in (store, damaged):
        for view in VIEWS:
            spark.sql(view.replace("CREATE", "CREATE OR REPLACE").replace("/data/bk1", str(path)))
        counts[path] = len(spark.sql(query).collect())
    assert counts[damaged] > 0
    assert (counts[store] == 0) is query.startswith(SOUND)


def test_the_program_for_a_cluster_prints_a_line_for_each_ledger(
    spark: SparkSession, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    (program,) = (block for block in blocks("python", CLUSTERS) if block.startswith("# job.py"))
    run(program, str(store))
    assert capsys.readouterr().out == "7 2100 0\n8 2100 0\n9 2100 0\n"


def test_reports_of_several_stores_are_one_table(
    spark: SparkSession, store: Path, damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from recovery.audit.pipeline.request import AuditRequest
    from recovery.audit.pipeline.run_audit import run_audit
    from recovery.audit.report import writer

    assert spark is not None
    for path in (store, damaged):
        writer.write(run_audit(AuditRequest((str(path),))), tmp_path / path.name)
    (program,) = (block for block in blocks("python", CLUSTERS) if block.startswith("# gathered.py"))
    run(program, str(tmp_path))
    shown = capsys.readouterr().out
    assert re.search(r"\| +error\|ELG-003\| +1\|", shown)
    assert "|     8|     2|  2100|2101|" in shown


# ── the reference ───────────────────────────────────────────────────────────────────────────────────────────


def told_columns(rows: str, formats: str, kind: str) -> list[tuple[str, str]]:
    """Return the columns of a table as the page lists them."""
    table = TABLES.partition(f"**`{rows}`** of {formats}\n")[2].partition("\n\n**")[0]
    found = re.findall(r"^\| (`.*?) \| (\w+) \|", table, re.MULTILINE)
    pairs = [(name, sql) for names, sql in found for name in re.findall(r"`(\w+)`", names)]
    return [(name, sql) for name, sql in pairs if name not in {"log", "journal"} - {kind}]


BOTH = "`entrylog` and `journal`"


@pytest.mark.parametrize(
    ("rows", "formats", "kind", "table"),
    [
        ("entries", BOTH, "log", tables.with_payload(tables.LOG["entries"])),
        ("entries", BOTH, "journal", tables.with_payload(tables.JOURNAL["entries"])),
        *((rows, BOTH, "log", tables.LOG[rows]) for rows in ("runs", "flaws")),
        *((rows, BOTH, "journal", tables.JOURNAL[rows]) for rows in ("runs", "flaws")),
        ("parts", "`entrylog`", "log", tables.LOG["parts"]),
        ("parts", "`journal`", "journal", tables.JOURNAL["parts"]),
        *((rows, "`ledgerindex`", "log", table) for rows, table in tables.INDEX.items()),
    ],
)
def test_every_column_is_documented_with_its_type(rows: str, formats: str, kind: str, table: Table) -> None:
    assert told_columns(rows, formats, kind) == list(table.columns)


def test_every_format_documents_its_rows() -> None:
    told = {
        name: tuple(re.findall(r"`(\w+)`", rows))
        for name, rows in re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \|", TABLES, re.MULTILINE)
    }
    assert told == {
        "entrylog": tuple(tables.LOG),
        "journal": tuple(tables.JOURNAL),
        "ledgerindex": tuple(tables.INDEX),
    }


def test_every_setting_is_documented() -> None:
    pytest.importorskip("pyspark")
    from recovery.audit.spark import session

    told = set(re.findall(r"`(spark\.[\w.]+)`", CLUSTERS))
    assert {*session.EVERYWHERE, *session.HERE, session.WAREHOUSE} <= told
