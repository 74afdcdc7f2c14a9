"""A part of an entry log as a Parquet file: its runs as a table, all else as JSON in the file's metadata.

    ledgerstore.format    the version of all this
    ledgerstore.label     what whoever keeps the part says of it
    ledgerstore.part      see `recovery.audit.part_text`
    ledgerstore.digest    over label, part and the bytes of the runs

A table, so that a report's parts can be asked with SQL; never a pickle, because a report may come from
anybody. The digest is for what happens to files: it finds the flipped bit, and proves nothing of who wrote
them.
"""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recovery.audit import part_text
from recovery.audit.part_text import NotAPart
from recovery.verify.runs import RUN

if TYPE_CHECKING:
    from recovery.verify.parts import LogPart
    from recovery.verify.runs import Runs

FORMAT = 2
"""To be raised when the form changes, and when a scan finds more than it did: what is kept is old then."""

_FORMAT, _LABEL, _PART, _DIGEST = (f"ledgerstore.{one}" for one in ("format", "label", "part", "digest"))
# The fingerprints too, with the bits that they have: Spark has no unsigned numbers.
_TABLE = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in RUN.names or ()])


class Labelled(NamedTuple):
    """A part, and what was said of it when it was written."""

    label: str
    part: LogPart


def encode(part: LogPart, label: str = "") -> bytes:
    """The file's content."""
    told = part_text.encode(part)
    file = io.BytesIO()
    # Its own note of the schema would hold all metadata a second time.
    with pq.ParquetWriter(file, _TABLE, compression="zstd", store_schema=False) as writer:
        writer.write_table(pa.table([part.runs[name].view(np.int64) for name in _TABLE.names], schema=_TABLE))
        digest = _digest(label, told, part.runs)
        writer.add_key_value_metadata({_FORMAT: str(FORMAT), _LABEL: label, _PART: told, _DIGEST: digest})
    return file.getvalue()


def decode(content: bytes, rows_max: int) -> Labelled | None:
    """What the file holds; `None`: nothing that could be used. It never holds more runs than `rows_max`."""
    try:
        return _decode(content, rows_max)
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return None


def _decode(content: bytes, rows_max: int) -> Labelled:
    with pq.ParquetFile(io.BytesIO(content)) as file:
        told = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
        if told.get(_FORMAT) != str(FORMAT) or not {_LABEL, _PART, _DIGEST} <= told.keys():
            raise NotAPart("another format")
        if file.metadata.num_rows > rows_max or not file.schema_arrow.remove_metadata().equals(_TABLE):
            raise NotAPart("another table")
        runs = _runs(file.read())
    if told[_DIGEST] != _digest(told[_LABEL], told[_PART], runs):
        raise NotAPart("damaged")
    return Labelled(told[_LABEL], part_text.decode(told[_PART], runs))


def _runs(table: pa.Table) -> Runs:
    runs = np.empty(table.num_rows, dtype=RUN)
    for name in _TABLE.names:
        runs[name] = table[name].to_numpy().view(RUN[name])
    if len(runs) and (runs["step"].min() < 1 or (runs["first"] > runs["last"]).any()):
        raise NotAPart("rows that are no runs")
    return runs


def _digest(label: str, told: str, runs: Runs) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in (label.encode(), told.encode(), runs.tobytes()):
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()
