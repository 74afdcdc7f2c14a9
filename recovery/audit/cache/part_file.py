"""A part of an entry log as a Parquet file: its runs as a table, all else as JSON in the file's metadata.

    ledgerstore.format    the version of this format
    ledgerstore.label     the identity of the file and the verification settings
    ledgerstore.part      see `recovery.audit.cache.part_json`
    ledgerstore.digest    over label, part and the bytes of the runs

It is a table, so that SQL can query a report's parts. It is not a pickle, because a report may come from
anybody. The digest finds damage to the file; it proves nothing about who wrote it.
"""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recovery.audit.cache import part_json
from recovery.audit.cache.part_json import NotAPart
from recovery.audit.model.runs import RUN

if TYPE_CHECKING:
    from recovery.audit.model.runs import Runs
    from recovery.audit.model.scan_results import LogPart

FORMAT = 3
"""Raise this number when the format changes, and when a scan finds more than before, so that old parts are
not used.
"""

_FORMAT, _LABEL, _PART, _DIGEST = (f"ledgerstore.{one}" for one in ("format", "label", "part", "digest"))
# Fingerprints are stored as signed numbers with the same bits, because Spark has no unsigned ones.
_TABLE = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in RUN.names or ()])


class LabelledPart(NamedTuple):
    """A part, and the label that was written with it."""

    label: str
    part: LogPart


def encode(part: LogPart, label: str = "") -> bytes:
    """Return the content of the file."""
    metadata = part_json.encode(part)
    file = io.BytesIO()
    # Without a copy of the schema, which would contain all metadata a second time.
    with pq.ParquetWriter(file, _TABLE, compression="zstd", store_schema=False) as writer:
        writer.write_table(pa.table([part.runs[name].view(np.int64) for name in _TABLE.names], schema=_TABLE))
        digest = _digest(label, metadata, part.runs)
        writer.add_key_value_metadata({_FORMAT: str(FORMAT), _LABEL: label, _PART: metadata, _DIGEST: digest})
    return file.getvalue()


def decode(content: bytes, rows_max: int) -> LabelledPart | None:
    """Return the content of a file, or `None` if it is unusable. It never has more than `rows_max` runs."""
    try:
        return _decode(content, rows_max)
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return None


def _decode(content: bytes, rows_max: int) -> LabelledPart:
    with pq.ParquetFile(io.BytesIO(content)) as file:
        metadata = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
        if metadata.get(_FORMAT) != str(FORMAT) or not {_LABEL, _PART, _DIGEST} <= metadata.keys():
            raise NotAPart("another format")
        if file.metadata.num_rows > rows_max or not file.schema_arrow.remove_metadata().equals(_TABLE):
            raise NotAPart("another table")
        runs = _runs(file.read())
    if metadata[_DIGEST] != _digest(metadata[_LABEL], metadata[_PART], runs):
        raise NotAPart("damaged")
    return LabelledPart(metadata[_LABEL], part_json.decode(metadata[_PART], runs))


def _runs(table: pa.Table) -> Runs:
    runs = np.empty(table.num_rows, dtype=RUN)
    for name in _TABLE.names:
        runs[name] = table[name].to_numpy().view(RUN[name])
    if len(runs) and (runs["step"].min() < 1 or (runs["first"] > runs["last"]).any()):
        raise NotAPart("rows that are not runs")
    return runs


def _digest(label: str, metadata: str, runs: Runs) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in (label.encode(), metadata.encode(), runs.tobytes()):
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()
