"""Files as Spark data sources: `spark.read.format("entrylog").load(path)`, after `register(spark)`.

    entrylog, journal    rows = entries, runs, flaws or parts; payload = true
    ledgerindex          rows = entries, runs, flaws or parts

A path is that of a store or of a bookie's directory, of a directory in it, or of one file. Each file is read
by one task, where the task runs: only its path is sent there. Filters on ledgers and on file ids reduce what
is read; Spark applies them again.
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

from recovery.audit.spark import source_options, source_paths, tables
from recovery.audit.spark.index_tables import IndexTables
from recovery.audit.spark.journal_tables import JournalTables
from recovery.audit.spark.log_tables import LogTables
from recovery.audit.spark.pushdown import EVERYTHING
from recovery.audit.spark.source_options import UnreadableFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from recovery.audit.spark.pushdown import IdFilter
    from recovery.audit.spark.source_options import SourceOptions

    _Tables = LogTables | JournalTables | IndexTables
    _List = Callable[[SourceOptions, IdFilter, IdFilter], Iterator[_Tables]]


def register(session: SparkSession) -> None:
    """Register the three formats in the session, and send the code to its executors.

    The session may be one of Spark Connect.
    """
    from recovery.audit.spark.session import PUSHDOWN, is_of_connect
    from recovery.audit.spark.shipping import ship, ship_over_connect

    if is_of_connect(session):
        ship_over_connect(session)
    else:
        ship(session.sparkContext)
    # Without it, a query of a source with filters fails.
    session.conf.set(PUSHDOWN, "true")
    for source in (EntryLogSource, JournalSource, LedgerIndexSource):
        session.dataSource.register(source)


# ── what is read, and by which reader
# ──────────────────────────────────────────────────────────────────────────


class FilePartition(InputPartition):
    """One file for one task."""

    def __init__(self, found: _Tables, parsed: SourceOptions) -> None:
        self._tables = found
        self._rows = parsed.rows
        self._options = {"payload": True} if parsed.payload else {}
        self._unreadable = parsed.unreadable

    def __repr__(self) -> str:
        # The default text contains the passwords, and it may appear in a message.
        return f"Part({self._tables.path!r}, {self._rows})"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file. One that the system refuses to read is told by flaws and parts."""
        try:
            yield from getattr(self._tables, self._rows)(**self._options)
        except OSError as error:
            if self._unreadable is UnreadableFiles.FAIL:
                raise
            yield from self._tables.unreadable(self._rows, error)


class _FileReader(DataSourceReader):
    """Reads files of one kind, restricted to ids by pushed filters."""

    def __init__(self, parsed: SourceOptions, list_parts: _List, file_column: str) -> None:
        self._parsed = parsed
        self._list = list_parts
        self._file_column = file_column
        self._chosen: dict[str, IdFilter] = {"ledger": EVERYTHING, file_column: EVERYTHING}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for one in filters:
            self._push(one)
        # All filters are returned, because skipping rows here only saves time and Spark filters again.
        return filters

    def _push(self, one: Any) -> None:
        narrowed = _NARROWED.get(type(one))
        column, value = ".".join(getattr(one, "attribute", ())), getattr(one, "value", None)
        numbers = value if isinstance(value, tuple) else (value,)
        if narrowed and column in self._chosen and all(type(number) is int for number in numbers):
            self._chosen[column] = narrowed(self._chosen[column], value)

    def partitions(self) -> list[InputPartition]:
        files = self._list(self._parsed, self._chosen["ledger"], self._chosen[self._file_column])
        return [FilePartition(found, self._parsed) for found in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If nothing is to be read, Spark passes an empty partition.
        return partition.batches() if isinstance(partition, FilePartition) else iter(())


_NARROWED: dict[type, Callable[[IdFilter, Any], IdFilter]] = {
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
        parsed = source_options.parse(self.options, tables.LOG)
        return source_options.table(parsed, tables.LOG).ddl

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return _FileReader(source_options.parse(self.options, tables.LOG), _logs, "log")


class JournalSource(DataSource):
    """`journal`."""

    @classmethod
    def name(cls) -> str:
        return "journal"

    def schema(self) -> str:
        parsed = source_options.parse(self.options, tables.JOURNAL)
        return source_options.table(parsed, tables.JOURNAL).ddl

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return _FileReader(source_options.parse(self.options, tables.JOURNAL), _journals, "journal")


class LedgerIndexSource(DataSource):
    """`ledgerindex`."""

    @classmethod
    def name(cls) -> str:
        return "ledgerindex"

    def schema(self) -> str:
        parsed = source_options.parse(self.options, tables.INDEX)
        return source_options.table(parsed, tables.INDEX).ddl

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return _FileReader(source_options.parse(self.options, tables.INDEX), _index, "log")


def _logs(parsed: SourceOptions, ledgers: IdFilter, logs: IdFilter) -> Iterator[LogTables]:
    policy = source_paths.known(parsed.path, parsed.policy).policy
    for one in source_paths.logs(parsed.path):
        if one.file_id in logs:
            yield LogTables(one.path, one.file_id, policy, ledgers)


def _journals(parsed: SourceOptions, ledgers: IdFilter, journals: IdFilter) -> Iterator[JournalTables]:
    known = source_paths.known(parsed.path, parsed.policy)
    for one in source_paths.journals(parsed.path):
        if one.file_id in journals:
            yield JournalTables(one.path, one.file_id, known.policy, known.rows, ledgers)


def _index(parsed: SourceOptions, ledgers: IdFilter, logs: IdFilter) -> Iterator[IndexTables]:
    yield IndexTables(source_paths.index(parsed.path), ledgers, logs)
