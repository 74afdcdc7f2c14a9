"""The three formats, read through Spark and from SQL. `test_tables` checks the content of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import small_stores
import spark_session

from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = spark_session.MARKS

IN_ALL = len(small_stores.LEDGERS) * small_stores.ENTRIES


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_stores.make(tmp_path_factory.mktemp("sources") / "store")


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


@pytest.mark.parametrize("kind", ["entrylog", "journal", "ledgerindex"])
def test_every_entry_is_a_row(spark: SparkSession, store: Path, kind: str) -> None:
    frame = spark.read.format(kind).load(str(store))
    assert rows_of(frame.groupBy("ledger").count().orderBy("ledger")) == [
        (ledger, small_stores.ENTRIES) for ledger in small_stores.LEDGERS
    ]


def test_the_payload_of_an_entry_can_be_read(spark: SparkSession, store: Path) -> None:
    frame = spark.read.format("entrylog").option("payload", "true").load(str(store))
    chosen = frame.where("ledger = 8 and entry between 699 and 701").orderBy("entry")
    assert rows_of(chosen.select("log", "entry", "digest_status", "payload_size", "payload")) == [
        (0, 699, "ok", 9, b"entry 699"),
        (1, 700, "ok", 9, b"entry 700"),
        (1, 701, "ok", 9, b"entry 701"),
    ]


@pytest.mark.parametrize(
    ("condition", "logs"),
    [
        ("log = 1", [1]),
        ("log in (0, 2, 9)", [0, 2]),
        ("log > 0 and log <= 2", [1, 2]),
        ("log >= 1 and log < 2", [1]),
        ("log <=> 2", [2]),
        ("log = 1 or log = 2", [1, 2]),
        ("log + 1 = 2", [1]),
        ("log <> 1", [0, 2]),
        ("log = 99", []),
    ],
)
def test_pushed_down_filters_and_others_choose_the_same_rows(
    spark: SparkSession, store: Path, condition: str, logs: list[int]
) -> None:
    frame = spark.read.format("entrylog").option("rows", "runs").load(str(store))
    chosen = frame.where(condition).select("log").distinct().orderBy("log")
    assert rows_of(chosen) == [(log,) for log in logs]


def test_files_that_are_not_chosen_are_not_read(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes((store / "ledgers/current/0.log").read_bytes())
    # Opening this file would be an error.
    (tmp_path / "1.log").symlink_to("1.log")
    frame = spark.read.format("entrylog").option("unreadable", "fail").load(str(tmp_path))
    whole = spark.read.format("entrylog").load(str(store))
    chosen = "log = 0 and ledger = 7"
    assert frame.where(chosen).count() == whole.where(chosen).count() > 0
    with pytest.raises(Exception, match="Too many levels of symbolic links"):
        frame.where("ledger = 7").collect()


def test_ledgers_that_are_not_chosen_are_not_made_into_rows(store: Path) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.datasource import EqualTo, GreaterThan, In, Not

    from recovery.audit.spark.data_sources import EntryLogSource

    reader = EntryLogSource({"path": str(store)}).reader(None)  # type: ignore[arg-type]
    remaining = Not(EqualTo(("ledger",), 9))
    filters = [In(("ledger",), (8, 9)), GreaterThan(("log",), 0), remaining]
    assert list(reader.pushFilters(filters)) == [remaining]
    rows: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert {one for batch in rows for one in batch.column("log").to_pylist()} == {1, 2}
    assert {one for batch in rows for one in batch.column("ledger").to_pylist()} == {8, 9}


def test_filters_on_flaws_are_applied_by_spark_too(store: Path) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.datasource import EqualTo

    from recovery.audit.spark.data_sources import EntryLogSource

    filters = [EqualTo(("ledger",), 8), EqualTo(("log",), 1)]
    for rows, remaining in (("entries", []), ("flaws", filters)):
        reader = EntryLogSource({"path": str(store), "rows": rows}).reader(None)  # type: ignore[arg-type]
        assert list(reader.pushFilters(filters)) == remaining  # type: ignore[arg-type]
        assert len(reader.partitions()) == 1


def test_several_paths_and_patterns_are_told_by_the_column_store(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    for name in ("bk1", "bk2", "other"):
        (tmp_path / name).symlink_to(store)
    expected = {f"{tmp_path}/{name}": IN_ALL for name in ("bk1", "bk2")}
    pattern = f"{tmp_path}/bk*"
    for paths in (list(expected), pattern, [pattern, pattern]):
        counts = spark.read.format("entrylog").load(paths).groupBy("store").count().collect()
        assert dict(counts) == expected
    chosen = spark.read.format("entrylog").load(pattern).where(f"store = '{tmp_path / 'bk2'}' and ledger = 7")
    assert chosen.count() == small_stores.ENTRIES


def test_explain_shows_the_filters_that_choose_what_is_read(
    spark: SparkSession, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.read.format("entrylog").load(str(store))
    frame.where("ledger = 8 and log > 0 and entry < 5").explain("formatted")
    plan = capsys.readouterr().out
    assert "PushedFilters: [EqualTo(ledger,8), GreaterThan(log,0)]" in plan


def test_only_the_wanted_columns_are_made(spark: SparkSession, store: Path) -> None:
    frame = spark.read.format("entrylog").option("columns", "entry, payload,store").load(str(store))
    assert frame.columns == ["entry", "payload", "store"]
    (row,) = frame.where("entry = 700").limit(1).collect()
    assert tuple(row) == (700, b"entry 700", str(store))


def test_tables_are_joined_in_sql(spark: SparkSession, store: Path) -> None:
    for name, kind, rows in (
        ("in_logs", "entrylog", "entries"),
        ("in_index", "ledgerindex", "entries"),
        ("log_runs", "entrylog", "runs"),
        ("index_runs", "ledgerindex", "runs"),
    ):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {name} USING {kind} OPTIONS (path '{store}', rows '{rows}')"
        )
    by_row = "SELECT count(*) FROM in_logs JOIN in_index USING (ledger, entry, log, offset)"
    assert rows_of(spark.sql(by_row)) == [(IN_ALL,)]
    by_run = """
        SELECT ledger, log FROM
            (SELECT ledger, log, sum(entries) n, bit_xor(places) p FROM log_runs GROUP BY ledger, log)
        EXCEPT SELECT ledger, log FROM
            (SELECT ledger, log, sum(entries) n, bit_xor(places) p FROM index_runs GROUP BY ledger, log)
    """
    assert rows_of(spark.sql(by_run)) == []


def test_damage_is_visible_in_sql(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    data = bytearray((store / "ledgers/current/1.log").read_bytes())
    data[HEADER_SIZE + 3500] ^= 1
    (tmp_path / "1.log").write_bytes(data)
    for rows in ("entries", "flaws", "parts"):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW damaged_{rows} USING entrylog "
            f"OPTIONS (path '{tmp_path / '1.log'}', rows '{rows}')"
        )
    bad = rows_of(spark.sql("SELECT ledger, entry, offset FROM damaged_entries WHERE digest_status = 'bad'"))
    assert len(bad) == 1
    assert rows_of(spark.sql("SELECT ledger, entry, offset FROM damaged_flaws WHERE kind = 'DIGEST'")) == bad
    assert rows_of(spark.sql("SELECT bad, flaws, ending FROM damaged_parts")) == [(1, 1, "EndOfData")]


def test_passwords_are_not_in_plans(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("7=most secret\nfor the others\n")
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW kept_secret USING entrylog OPTIONS "
        f"(path '{store}', rows 'runs', passwordFile '{tmp_path / 'passwords'}', password 'very secret')"
    )
    plan = spark.sql("EXPLAIN EXTENDED SELECT * FROM kept_secret WHERE ledger = 7").collect()[0][0]
    assert "kept_secret" in plan
    assert "secret'" not in plan
    assert "most secret" not in plan
    assert "very" not in plan


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("entrylog", {"rows": "rows"}, "rows is one of entries, runs, flaws, parts, not 'rows'"),
        ("journal", {"payload": "perhaps"}, "payload is true or false"),
        ("entrylog", {"columns": "ledger,pages"}, "there is no column 'pages': columns are log, offset"),
        ("ledgerindex", {"columns": "payload"}, "there is no column 'payload'"),
        ("ledgerindex", {"payload": "true"}, "payload goes with the entries of logs and journals only"),
    ],
)
def test_an_invalid_option_is_refused_at_once(
    spark: SparkSession, store: Path, kind: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        spark.read.format(kind).options(**options).load(str(store))


def test_a_path_that_does_not_exist_is_an_error_and_not_empty(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("entrylog").load(str(tmp_path / "nowhere"))
    with pytest.raises(Exception, match="No such file or directory"):
        frame.collect()
    (tmp_path / "empty").mkdir()
    with pytest.raises(Exception, match="no entry log"):
        spark.read.format("entrylog").load(str(tmp_path / "empty")).collect()
