"""The tables of an audit: their columns, documented, and Arrow tables of them.

    files   →  runs, flaws, parts  →  findings
    what is    what the scan          what the checks
    there      has read               have found

Every number is a `bigint`. Neither Spark nor the checks know unsigned numbers, so that digests and
fingerprints are stored with the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from recovery.audit.model.store_tables import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.audit.model.runs import Runs

_TYPES = {
    "bigint": pa.int64(),
    "string": pa.string(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
}


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

    def whole(self, rows: Iterable[Sequence[object]]) -> pa.Table:
        """Return an Arrow table of all rows."""
        return self.joined(self.rows(rows))

    def joined(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return an Arrow table of these batches."""
        return pa.Table.from_batches(list(batches), self.schema)


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


def constant_column(value: str, count: int) -> pa.Array:
    """Return a column that has the same word in each row."""
    return pa.repeat(pa.scalar(value, pa.string()), count)


def table(*columns: str) -> Table:
    """Return a table with these columns: `name`, or `name:type` if the type is not `bigint`."""
    pairs = (column.partition(":") for column in columns)
    return Table(tuple((name, kind or "bigint") for name, _, kind in pairs))


STORES = table("store:string", "is_indexed:boolean")
"""The stores of an audit. `is_indexed` says whether the index of the store was read, and decides what counts.
"""

RUNS = table(
    "store:string",
    "source:string",  # log, index, or journal: the part of a journal that a replay would read
    "file",  # the id of the log or journal; of an index row that of the log it points into
    "ledger",
    "step",  # the distance of the ids
    "first_entry",
    "last_entry",
    "entries",
    "size",  # bytes of the records, length words included; 0 where only the index was read
    "places",  # fingerprint of the locations
    "digests",  # fingerprint of the digests of readable entries
    "bad",  # entries among them that cannot be read
)
"""Runs of entries, as `recovery.audit.model.runs` describes them."""

ENSEMBLES = table(
    "ledger",
    "size",
    "write_quorum",
    "step",
    "last_entry",  # null while the ledger is open
    "confirmed",  # of an open ledger: every entry up to this one was acknowledged,
    "settled",  # and no copy of an entry up to this one is in flight
)
MEMBERS = table("ledger", "first_entry", "place", "store:string")
"""The stores of each segment of a ledger. `first_entry` is the first one of the segment."""

NUMBERS = table("number")


def runs_batch(store: str, source: str, runs: Runs) -> pa.RecordBatch:
    """Return rows of `RUNS`."""
    words = {"store": constant_column(store, len(runs)), "source": constant_column(source, len(runs))}
    return RUNS.batch({**columns_of(runs), **words})
