"""Tables: the columns of each, and rows as Arrow batches.

Every number is a `bigint`. Spark has no unsigned numbers, so that digests and fingerprints are stored with
the same bits. Offsets are those of length words, also in the index, so that tables can be joined by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_TYPES = {"bigint": pa.int64(), "string": pa.string(), "double": pa.float64(), "binary": pa.binary()}


@dataclass(frozen=True)
class Table:
    """One table: its columns in order, each with its SQL type."""

    columns: tuple[tuple[str, str], ...]

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.columns)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, _TYPES[kind]) for name, kind in self.columns])

    def batch(self, values: Mapping[str, Any]) -> pa.RecordBatch:
        """Return a batch of these columns: arrays of numbers, Arrow arrays, or lists."""
        schema = self.schema
        arrays = [_array(values[field.name], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def rows(self, rows: Iterable[Sequence[object]]) -> Iterator[pa.RecordBatch]:
        """Yield one batch of rows, or none if there are no rows. For tables that are never long."""
        some = list(rows)
        if some:
            names = (name for name, _ in self.columns)
            yield self.batch(dict(zip(names, zip(*some, strict=True), strict=True)))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray):
        numbers = values.view(np.int64) if values.dtype == np.uint64 else values
        return pa.array(np.ascontiguousarray(numbers), type=kind)
    return pa.array(values, type=kind)


def dictionary_column(words: Sequence[str | None], codes: Any) -> pa.Array:
    """Return the word for each code."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(words, pa.string())).cast(
        pa.string()
    )


def _table(*columns: str) -> Table:
    pairs = (column.partition(":") for column in columns)
    return Table(tuple((name, kind or "bigint") for name, _, kind in pairs))


def _of_entries(file: str) -> Table:
    return _table(
        file,
        "offset",
        "size",
        "ledger",
        "entry",
        "last_add_confirmed",
        "length",
        "digest_type:string",
        "digest_status:string",
        "digest",
        "payload_size",
    )


def _of_runs(file: str) -> Table:
    return _table(
        file,
        "ledger",
        "step",
        "first_entry",
        "last_entry",
        "entries",
        "size",
        "places",
        "digests",
        "bad",
    )


def _of_flaws(file: str) -> Table:
    return _table(file, "kind:string", "offset", "end_offset", "ledger", "entry", "detail:string")


LOG = {
    "entries": _of_entries("log"),
    "runs": _of_runs("log"),
    "flaws": _of_flaws("log"),
    "parts": _table(
        "log",
        "file_size",
        "walked",
        "records",
        "entries",
        "bad",
        "unverified",
        "flaws",
        "map_records",
        "fillers",
        "ending:string",
        "ending_offset",
        "seconds:double",
    ),
}
JOURNAL = {
    "entries": _of_entries("journal"),
    "runs": _of_runs("journal"),
    "flaws": _of_flaws("journal"),
    "parts": _table(
        "journal",
        "file_size",
        "records",
        "entries",
        "bad",
        "unverified",
        "flaws",
        "owner:string",
        "ending:string",
        "ending_offset",
        "seconds:double",
    ),
}
INDEX = {
    "entries": _table("ledger", "entry", "log", "offset"),
    "runs": _table("ledger", "log", "step", "first_entry", "last_entry", "entries", "places"),
    "flaws": _table("ledger", "entry", "log", "offset", "detail:string"),
    "parts": _table("ledgers", "entries", "flaws", "seconds:double"),
}

PAYLOAD = ("payload", "binary")


def with_payload(table: Table) -> Table:
    """Add the payload column."""
    return Table((*table.columns, PAYLOAD))
