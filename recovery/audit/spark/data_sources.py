"""Files as Spark data sources: `spark.read.format("entrylog").load(path)`, after `register(spark)`.

    entrylog, journal    rows = entries, runs, flaws or parts; payload = true
    ledgerindex          rows = entries, runs, flaws or parts

A path is that of a store or of a bookie's directory, of a directory in it, or of one file; there may be
several, and patterns. Each file is read by one task, where the task runs: only its path is sent there.
Filters on stores, ledgers and file ids reduce what is read, and `explain("formatted")` shows those that Spark
need not apply again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

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

from recovery.audit.model.tables import constant_column
from recovery.audit.spark import source_options, source_paths, tables
from recovery.audit.spark.index_tables import IndexTables
from recovery.audit.spark.journal_tables import JournalTables
from recovery.audit.spark.log_tables import LogTables
from recovery.audit.spark.pushdown import EVERYTHING
from recovery.audit.spark.source_options import UnreadableFiles
from recovery.audit.spark.tables import STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.model.tables import Table
    from recovery.audit.spark.pushdown import IdFilter
    from recovery.audit.spark.source_options import SourceOptions

    _Tables = LogTables | JournalTables | IndexTables
    _List = Callable[[str, DigestPolicy, IdFilter, IdFilter], Iterator[_Tables]]


def register(session: SparkSession) -> None:
    """Register the three formats in the session, and send the code to its executors.

    The session may be one of Spark Connect.
    """
    from recovery.audit.spark.session import PUSHDOWN, ship

    ship(session)
    # A query of a source with filters fails without this setting.
    session.conf.set(PUSHDOWN, "true")
    for source in (EntryLogSource, JournalSource, LedgerIndexSource):
        session.dataSource.register(source)


# ── what is read, and by which reader
# ──────────────────────────────────────────────────────────────────────────


class FilePartition(InputPartition):
    """One file for one task."""

    def __init__(self, found: _Tables, parsed: SourceOptions, store: str) -> None:
        self._tables = found
        self._rows = parsed.rows
        self._table = parsed.table
        self._options = {"payload": True} if parsed.payload else {}
        self._unreadable = parsed.unreadable
        self._store = store

    def __repr__(self) -> str:
        # The default text contains the passwords, and it may appear in a message.
        return f"Part({self._tables.path!r}, {self._rows})"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file with the wanted columns. A file that the system refuses to read is
        reported as flaws and parts.
        """
        try:
            for batch in getattr(self._tables, self._rows)(**self._options):
                yield self._selected(batch)
        except OSError as error:
            if self._unreadable is UnreadableFiles.FAIL:
                raise
            yield from map(self._selected, self._tables.unreadable(self._rows, error))

    def _selected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        store = constant_column(self._store, len(batch))
        return self._table.batch(
            {name: store if name == STORE[0] else batch.column(name) for name, _ in self._table.columns}
        )


_RESTRICTED = ("entries", "runs")
"""The tables that yield only rows of the chosen ids. The others leave out whole files, and no single rows."""


class _FileReader(DataSourceReader):
    """Reads files of one kind, restricted by pushed filters to stores and to ids."""

    def __init__(self, parsed: SourceOptions, list_parts: _List, file_column: str) -> None:
        self._parsed = parsed
        self._list = list_parts
        self._file_column = file_column
        self._chosen: dict[str, IdFilter] = {"ledger": EVERYTHING, file_column: EVERYTHING}
        self._stores = parsed.paths

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take filters, and return those that Spark has to apply nevertheless."""
        return [one for one in filters if not self._push(one)]

    def _push(self, one: Any) -> bool:
        """Take what can be taken of a filter, and return whether all rows that are made fulfil it."""
        narrowed = _NARROWED.get(type(one))
        column, value = ".".join(getattr(one, "attribute", ())), getattr(one, "value", None)
        values = value if isinstance(value, tuple) else (value,)
        if column == STORE[0] and isinstance(one, EqualTo | EqualNullSafe | In):
            self._stores = tuple(store for store in self._stores if store in values)
            return True
        if narrowed and column in self._chosen and all(type(number) is int for number in values):
            self._chosen[column] = narrowed(self._chosen[column], value)
            return self._parsed.rows in _RESTRICTED
        return False

    def partitions(self) -> list[InputPartition]:
        ledgers, files = self._chosen["ledger"], self._chosen[self._file_column]
        return [
            FilePartition(found, self._parsed, store)
            for store in self._stores
            for found in self._list(store, self._parsed.policy, ledgers, files)
        ]

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


class _FileSource(DataSource):
    """The tables of one kind of file."""

    kind: ClassVar[str]
    of_kind: ClassVar[Mapping[str, Table]]
    file_column = "log"

    @classmethod
    def name(cls) -> str:
        return cls.kind

    def _parsed(self) -> SourceOptions:
        return source_options.parse(self.options, self.of_kind)

    def schema(self) -> str:
        return self._parsed().table.ddl

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return _FileReader(self._parsed(), self.files, self.file_column)

    @staticmethod
    def files(path: str, given: DigestPolicy, ledgers: IdFilter, files: IdFilter) -> Iterator[_Tables]:
        """Yield the files below the path."""
        raise NotImplementedError


class EntryLogSource(_FileSource):
    """`entrylog`."""

    kind, of_kind = "entrylog", tables.LOG

    @staticmethod
    def files(path: str, given: DigestPolicy, ledgers: IdFilter, files: IdFilter) -> Iterator[_Tables]:
        policy = source_paths.known(path, given).policy
        for one in source_paths.logs(path):
            if one.file_id in files:
                yield LogTables(one.path, one.file_id, policy, ledgers)


class JournalSource(_FileSource):
    """`journal`."""

    kind, of_kind, file_column = "journal", tables.JOURNAL, "journal"

    @staticmethod
    def files(path: str, given: DigestPolicy, ledgers: IdFilter, files: IdFilter) -> Iterator[_Tables]:
        known = source_paths.known(path, given)
        for one in source_paths.journals(path):
            if one.file_id in files:
                yield JournalTables(one.path, one.file_id, known.policy, known.rows, ledgers)


class LedgerIndexSource(_FileSource):
    """`ledgerindex`."""

    kind, of_kind = "ledgerindex", tables.INDEX

    @staticmethod
    def files(
        path: str,
        given: DigestPolicy,  # noqa: ARG004 - an index has no digests
        ledgers: IdFilter,
        files: IdFilter,
    ) -> Iterator[_Tables]:
        yield IndexTables(source_paths.index(path), ledgers, files)
