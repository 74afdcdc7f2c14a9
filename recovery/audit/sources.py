"""Files as Spark's data sources: `spark.read.format("entrylog").load(path)`, after `register(spark)`.

    entrylog, journal    rows = entries, runs, flaws or parts; payload = true
    ledgerindex          rows = entries, runs, flaws or parts

A path is that of a store or of a bookie's directory, of a directory in it, or of one file. Each file is read
by one task, where the task runs: only its path is sent there. Filters on ledgers and on the ids of files are
used to read and to make less; Spark applies them once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from recovery.audit import locating, source_options, tables
from recovery.audit.choice import EVERYTHING
from recovery.audit.index_tables import IndexTables
from recovery.audit.journal_tables import JournalTables
from recovery.audit.log_tables import LogTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from recovery.audit.choice import Choice
    from recovery.audit.source_options import SourceOptions

    _Tables = LogTables | JournalTables | IndexTables
    _List = Callable[[SourceOptions, Choice, Choice], Iterator[_Tables]]


def register(session: SparkSession) -> None:
    """Makes the three formats known to the session, and everything they need to its executors."""
    from recovery.audit.spark.session import PUSHDOWN
    from recovery.audit.spark.shipping import ship

    ship(session.sparkContext)
    # A query of a source that can filter fails without it.
    session.conf.set(PUSHDOWN, "true")
    for source in (EntryLogSource, JournalSource, LedgerIndexSource):
        session.dataSource.register(source)


# ── what is to be read, and who reads it ────────────────────────────────────────────────────────────────────


class Part(InputPartition):
    """One file for one task."""

    def __init__(self, found: _Tables, asked: SourceOptions) -> None:
        self._tables = found
        self._rows = asked.rows
        self._options = {"payload": True} if asked.payload else {}

    def __repr__(self) -> str:
        # As it is, passwords and all, it might come to stand in a message.
        return f"Part({self._tables.path!r}, {self._rows})"

    def batches(self) -> Iterator[pa.RecordBatch]:
        found: Iterator[pa.RecordBatch] = getattr(self._tables, self._rows)(**self._options)
        return found


class _Reader(DataSourceReader):
    """Reads files of one kind: those that are wanted, and of those what is, as far as filters say it."""

    def __init__(self, asked: SourceOptions, list_parts: _List, file_column: str) -> None:
        self._asked = asked
        self._list = list_parts
        self._file_column = file_column
        self._chosen: dict[str, Choice] = {"ledger": EVERYTHING, file_column: EVERYTHING}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for one in filters:
            self._push(one)
        # All of them back: what is left out here saves time, and nothing depends on it.
        return filters

    def _push(self, one: Any) -> None:
        narrowed = _NARROWED.get(type(one))
        column, value = ".".join(getattr(one, "attribute", ())), getattr(one, "value", None)
        numbers = value if isinstance(value, tuple) else (value,)
        if narrowed and column in self._chosen and all(type(number) is int for number in numbers):
            self._chosen[column] = narrowed(self._chosen[column], value)

    def partitions(self) -> list[InputPartition]:
        files = self._list(self._asked, self._chosen["ledger"], self._chosen[self._file_column])
        return [Part(found, self._asked) for found in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where nothing is to be read Spark hands out one that says nothing.
        return partition.batches() if isinstance(partition, Part) else iter(())


_NARROWED: dict[type, Callable[[Choice, Any], Choice]] = {
    EqualTo: lambda choice, value: choice.one_of((value,)),
    EqualNullSafe: lambda choice, value: choice.one_of((value,)),
    In: lambda choice, values: choice.one_of(values),
    GreaterThan: lambda choice, value: choice.at_least(value + 1),
    GreaterThanOrEqual: lambda choice, value: choice.at_least(value),
    LessThan: lambda choice, value: choice.at_most(value - 1),
    LessThanOrEqual: lambda choice, value: choice.at_most(value),
}


class EntryLogSource(DataSource):
    """`entrylog`."""

    @classmethod
    def name(cls) -> str:
        return "entrylog"

    def schema(self) -> str:
        asked = source_options.parse(self.options, tables.LOG)
        return source_options.table(asked, tables.LOG).ddl

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return _Reader(source_options.parse(self.options, tables.LOG), _logs, "log")


class JournalSource(DataSource):
    """`journal`."""

    @classmethod
    def name(cls) -> str:
        return "journal"

    def schema(self) -> str:
        asked = source_options.parse(self.options, tables.JOURNAL)
        return source_options.table(asked, tables.JOURNAL).ddl

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return _Reader(source_options.parse(self.options, tables.JOURNAL), _journals, "journal")


class LedgerIndexSource(DataSource):
    """`ledgerindex`."""

    @classmethod
    def name(cls) -> str:
        return "ledgerindex"

    def schema(self) -> str:
        asked = source_options.parse(self.options, tables.INDEX)
        return source_options.table(asked, tables.INDEX).ddl

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return _Reader(source_options.parse(self.options, tables.INDEX), _index, "log")


def _logs(asked: SourceOptions, ledgers: Choice, logs: Choice) -> Iterator[LogTables]:
    ways = locating.known(asked.path, asked.ways).ways
    for one in locating.logs(asked.path):
        if one.file_id in logs:
            yield LogTables(one.path, one.file_id, ways, ledgers)


def _journals(asked: SourceOptions, ledgers: Choice, journals: Choice) -> Iterator[JournalTables]:
    known = locating.known(asked.path, asked.ways)
    for one in locating.journals(asked.path):
        if one.file_id in journals:
            yield JournalTables(one.path, one.file_id, known.ways, known.rows, ledgers)


def _index(asked: SourceOptions, ledgers: Choice, logs: Choice) -> Iterator[IndexTables]:
    yield IndexTables(locating.index(asked.path), ledgers, logs)
