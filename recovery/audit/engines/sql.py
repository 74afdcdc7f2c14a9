"""The engines that execute SQL: what the checks need of them, and the one that is embedded in this process.

The text of a check is the same for all engines. Where DuckDB and Spark SQL have no common word, an engine
provides it: `div(a, b)` is the integer division.
"""

from __future__ import annotations

import atexit
import weakref
from functools import cache
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    import numpy as np
    import pyarrow as pa

    Columns = Mapping[str, np.ndarray[Any, Any]]


class SqlEngine(Protocol):
    """Holds tables by name and executes queries over them, until it is closed or no longer used."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def put(self, name: str, table: pa.Table) -> None:
        """Make the table known by this name. It replaces an earlier one."""

    def put_columns(self, name: str, columns: Columns) -> None:
        """Make arrays of numbers or words known as a table. They must not change afterwards."""

    def define(self, name: str, query: str) -> None:
        """Make the result of the query known by this name. It replaces an earlier one."""

    def view(self, name: str, query: str) -> None:
        """Make the query known by this name. It is executed where it is used. It replaces an earlier one."""

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the result of a query. It has to be small, because it comes to this process."""

    def arrays(self, query: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the result of a query as one array for each column."""


class DuckSql:
    """Executes queries with DuckDB in this process. Tables that exceed `memory_max` go to temporary files.

    All engines of a process with the same settings share a database, because starting one takes longer than
    the checks of a small store. Their tables are temporary, so that each engine sees only its own.
    """

    def __init__(self, threads: int | None = None, memory_max: str | None = None) -> None:
        self._open = [_database(threads, memory_max).cursor()]
        # A report keeps its engine. DuckDB complains about connections that live when the interpreter ends.
        weakref.finalize(self, _close, self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._open)

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return self._open[0]

    def put(self, name: str, table: pa.Table) -> None:
        self._connection.register(f"{name}_arrow", table)
        self.define(name, f"SELECT * FROM {name}_arrow")  # noqa: S608 - the names are our own
        self._connection.unregister(f"{name}_arrow")

    def put_columns(self, name: str, columns: Columns) -> None:
        # DuckDB reads the arrays where they are, so that the longest table of an audit is not copied.
        self._connection.register(name, dict(columns))

    def define(self, name: str, query: str) -> None:
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")

    def view(self, name: str, query: str) -> None:
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def arrays(self, query: str) -> dict[str, np.ndarray[Any, Any]]:
        return dict(self._connection.execute(query).fetchnumpy())


def _close(connections: list[duckdb.DuckDBPyConnection]) -> None:
    while connections:
        connections.pop().close()


@cache
def _database(threads: int | None, memory_max: str | None) -> duckdb.DuckDBPyConnection:
    """Return a database of this process, which lives until its end."""
    import duckdb

    files = TemporaryDirectory(prefix="ledgerstore-sql-")
    settings = {"threads": threads, "memory_limit": memory_max, "temp_directory": files.name}
    chosen: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    # Extensions would be fetched from the network.
    connection = duckdb.connect(
        config={**chosen, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    connection.execute("CREATE MACRO div(a, b) AS a // b")

    def close() -> None:
        _database.cache_clear()
        connection.close()
        files.cleanup()

    atexit.register(close)
    return connection
