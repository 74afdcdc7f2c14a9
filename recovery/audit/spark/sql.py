"""Spark SQL as an engine of the checks: each table is a view of a DataFrame, each query a job on the
executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    from pyspark.sql import DataFrame, SparkSession

    from recovery.audit.engines.sql import Columns


class SparkSql:
    """Executes queries in Spark. It has a session of its own, so that its views hide none of the user's."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session.newSession()
        self._frames: dict[str, DataFrame] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._frames):
            self._frames.pop(name).unpersist()
            self._session.catalog.dropTempView(name)

    def put(self, name: str, table: pa.Table) -> None:
        self._replace(name, self._session.createDataFrame(table))

    def put_columns(self, name: str, columns: Columns) -> None:
        self.put(name, pa.table(dict(columns)))

    def define(self, name: str, query: str) -> None:
        self._replace(name, self._session.sql(query))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._session.sql(query).collect()]

    def arrays(self, query: str) -> dict[str, np.ndarray[Any, Any]]:
        table = self._session.sql(query).toArrow()
        return {name: table[name].to_numpy() for name in table.column_names}

    def _replace(self, name: str, frame: DataFrame) -> None:
        before = self._frames.pop(name, None)
        # Without this, Spark would execute the query again for each other one that uses its result.
        self._frames[name] = frame.persist()
        frame.createOrReplaceTempView(name)
        if before is not None:
            before.unpersist()
