"""Spark SQL as an engine of the checks: kept results are tables that executors write, each query is a job.

A kept result is written and not only cached, because Spark would plan all queries that lead to it again for
each query that uses it, and because a cached one is lost with its executor. The tables are managed by the
session's catalog: they are below `spark.sql.warehouse.dir`, in the session's default format.
"""

from __future__ import annotations

import uuid
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from recovery.audit.spark.session import frame_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from pyspark.sql import SparkSession

    from recovery.audit.engines.sql import Columns
    from recovery.audit.model.tables import Table

_PARTITION_ROWS = 500_000
"""The number of rows of the largest table for which a partition is made in a shuffle."""

_NOTHING: Mapping[str, tuple[Sequence[str], Table]] = MappingProxyType({})
_SETTINGS = {
    # A join by ledger, residue and store uses rows that are shuffled by ledger and residue already.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}


class SparkSql:
    """Executes queries in Spark. It has a session of its own, so that its views hide none of the user's."""

    def __init__(
        self,
        session: SparkSession,
        rows: int = 0,
        written: Mapping[str, tuple[Sequence[str], Table]] = _NOTHING,
    ) -> None:
        """`rows` is the number of rows of the largest table. `written` names tables that executors have
        written, with the columns to be used: their rows belong to the table of that name, too.
        """
        self._rows_written = written
        self._users = session
        self._session = session.newSession()
        self._prefix = f"ledgerstore_{uuid.uuid4().hex}"
        self._written: list[str] = []
        partitions = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
        settings = _SETTINGS | {
            # Spark puts partitions together that turn out to be small.
            "spark.sql.shuffle.partitions": str(max(partitions, rows // _PARTITION_ROWS))
        }
        for name, value in settings.items():
            self._session.conf.set(name, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the kept results."""
        for name in self._written:
            self._session.sql(f"DROP TABLE IF EXISTS {name}")

    def put(self, name: str, table: pa.Table) -> None:
        frame_of(table, self._session, self._users).createOrReplaceTempView(name)

    def put_columns(self, name: str, columns: Columns) -> None:
        frame = frame_of(pa.table(dict(columns)), self._session, self._users)
        names, table = self._rows_written.get(name, ((), None))
        if table is not None:
            chosen = [column for column, _ in table.columns]
            frame = frame.select(*chosen)
            for one in names:
                frame = frame.unionAll(self._session.table(one).where("part IS NOT NULL").select(*chosen))
        frame.createOrReplaceTempView(name)

    def define(self, name: str, query: str) -> None:
        table = f"{self._prefix}_{len(self._written)}_{name}"
        self._written.append(table)
        self._session.sql(query).write.saveAsTable(table)
        self._session.table(table).createOrReplaceTempView(name)

    def view(self, name: str, query: str) -> None:
        self._session.sql(query).createOrReplaceTempView(name)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._session.sql(query).collect()]

    def arrays(self, query: str) -> dict[str, np.ndarray[Any, Any]]:
        table = self._session.sql(query).toArrow()
        return {name: table[name].to_numpy() for name in table.column_names}
