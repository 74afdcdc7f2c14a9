"""The table of scanned parts: each part is a Parquet file of one row, so that SQL can query all of them.

    store, inode, mtime_ns, head, begins_at     which bytes were read, see `Identity`
    settings, salt, is_final, read_at_ns        how and when they were read, see `Label`
    log_id ... seconds                          what was found
    runs                                        the runs of entries, one element each

A part is not a pickle, and a file with another schema is not read, because a report may come from a source
that is not trusted. The name of a file has the digest of its bytes. The digest is compared before anything is
parsed, because a library may crash on a damaged table. It detects damage, but does not prove where the file
comes from.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recovery.audit.cache.part_identity import Identity, encodable
from recovery.audit.model.runs import RUN
from recovery.audit.model.scan_results import FlawAt, FlawKind, LogPart, MapRecord
from storage.entry.model import DigestType
from storage.entry.position import LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog.format import STORE_ID_SIZE, EmptyLog, LogHeader, Origin

if TYPE_CHECKING:
    from recovery.audit.model.runs import Runs
    from storage.entry.read_result import Stop

FORMAT = 4
"""Raise this number when the format changes, and when a scan finds more than before, so that old parts are
not used.
"""


def _numbers(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.int64(), nullable=False) for name in names]


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


_PART = ("log_id", "start", "end", "entry", "exit", "file_size", "records", "size", "fillers")
_HEADER = ("version", "map_offset", "ledger_count", "map_checksum")
# Fingerprints are stored as signed numbers with the same bits, because Spark has no unsigned ones.
_RUN = pa.struct(_numbers(*(RUN.names or ())))
_STOP = pa.struct(
    [
        pa.field("kind", pa.string(), nullable=False),
        *_numbers("offset"),
        pa.field("flaw", pa.string()),
        pa.field("detail", pa.string(), nullable=False),
    ]
)
_FLAW = pa.struct(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("flaw", pa.string()),
        *_numbers("offset", "end"),
        pa.field("ledger_id", pa.int64()),
        pa.field("entry_id", pa.int64()),
        pa.field("detail", pa.string(), nullable=False),
        *_numbers("count"),
        pa.field("last_entry_id", pa.int64()),
        pa.field("is_proven_otherwise", pa.bool_(), nullable=False),
    ]
)
_MAP = pa.struct(
    [
        *_numbers("offset", "end"),
        pa.field("pairs", _list(pa.struct(_numbers("ledger", "size"))), nullable=False),
        pa.field("damage", _STOP),
    ]
)
_ORIGIN = pa.struct(
    [
        pa.field("store_id", pa.binary(), nullable=False),
        pa.field("generation", pa.uint64(), nullable=False),
        pa.field("previous", pa.struct(_numbers("log_id", "offset"))),
    ]
)
SCHEMA = pa.schema(
    [
        *_numbers("format", "inode", "mtime_ns", "read_at_ns"),
        *(pa.field(name, pa.string(), nullable=False) for name in ("store", "head", "settings", "salt")),
        pa.field("begins_at", pa.int64()),
        pa.field("is_final", pa.bool_(), nullable=False),
        *_numbers(*_PART),
        pa.field("header", pa.struct([*_numbers(*_HEADER), pa.field("origin", _ORIGIN)])),
        pa.field("header_damage", _STOP),
        pa.field("flaws", _list(_FLAW), nullable=False),
        pa.field("maps", _list(_MAP), nullable=False),
        pa.field("stop", _STOP),
        pa.field("types", _list(pa.struct(_numbers("ledger", "type"))), nullable=False),
        pa.field("unverified", _list(pa.struct(_numbers("ledger", "entries"))), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("runs", _list(_RUN), nullable=False),
    ]
)


class NotAPart(ValueError):
    """A file that `encode` has not written."""


@dataclass(frozen=True, slots=True)
class Label:
    """How and when a part was read."""

    identity: Identity
    settings: str
    """See `recovery.audit.cache.settings_fingerprint`."""
    salt: str
    is_final: bool
    """Whether no process was going to write to its range any more."""
    read_at_ns: int


class LabelledPart(NamedTuple):
    """A part, and the label that was written with it."""

    label: Label
    part: LogPart


def is_sound(part: LogPart) -> bool:
    """Return whether the part has no damage of any kind."""
    return (
        isinstance(part.header, LogHeader)
        and not part.flaws
        and not part.runs["bad"].any()
        and not any(isinstance(one.pairs, Damaged) for one in part.maps)
        and (part.stop is None or isinstance(part.stop, EndOfData))
    )


def encode(part: LogPart, label: Label) -> bytes:
    """Return the content of the file."""
    row: dict[str, Any] = {
        **{name: int(getattr(part, name)) for name in _PART},
        **asdict(label.identity),
        "settings": label.settings,
        "salt": label.salt,
        "is_final": label.is_final,
        "read_at_ns": label.read_at_ns,
        "format": FORMAT,
        "header": _header_row(part.header) if isinstance(part.header, LogHeader) else None,
        "header_damage": _stop_row(part.header) if isinstance(part.header, Damaged) else None,
        "flaws": [
            {
                **asdict(one),
                "kind": one.kind.name,
                "flaw": None if one.flaw is None else one.flaw.name,
                "detail": encodable(one.detail),
            }
            for one in part.flaws
        ],
        "maps": [
            {
                "offset": one.offset,
                "end": one.end,
                "pairs": []
                if isinstance(one.pairs, Damaged)
                else [{"ledger": ledger, "size": size} for ledger, size in one.pairs],
                "damage": _stop_row(one.pairs) if isinstance(one.pairs, Damaged) else None,
            }
            for one in part.maps
        ],
        "stop": None if part.stop is None else _stop_row(part.stop),
        "types": [{"ledger": ledger, "type": kind.value} for ledger, kind in part.types.items()],
        "unverified": [{"ledger": one, "entries": count} for one, count in part.unverified.items()],
        "seconds": float(part.seconds),
    }
    struct = pa.StructArray.from_arrays(
        [pa.array(part.runs[name].view(np.int64)) for name in _RUN.names], fields=list(_RUN)
    )
    ends = pa.array([0, len(part.runs)], pa.int32())
    runs = pa.ListArray.from_arrays(ends, struct, type=SCHEMA.field("runs").type)
    columns = [runs if field.name == "runs" else pa.array([row[field.name]], field.type) for field in SCHEMA]
    file = io.BytesIO()
    # The copy of the schema is left out, because it would be as large as everything else.
    pq.write_table(pa.table(columns, schema=SCHEMA), file, compression="zstd", store_schema=False)
    return file.getvalue()


def _header_row(header: LogHeader) -> dict[str, Any]:
    origin = None if header.origin is None else _origin_row(header.origin)
    return {**{name: int(getattr(header, name)) for name in _HEADER}, "origin": origin}


def _stop_row(stop: Stop) -> dict[str, Any]:
    flaw = None if isinstance(stop, EndOfData) else stop.flaw.name
    detail = encodable(stop.detail) if isinstance(stop, Damaged) else ""
    return {"kind": type(stop).__name__, "offset": stop.offset, "flaw": flaw, "detail": detail}


def _origin_row(origin: Origin) -> dict[str, Any]:
    previous = origin.previous
    return {
        "store_id": origin.store_id,
        "generation": origin.generation,
        "previous": None if previous is None else {"log_id": previous.log_id, "offset": previous.offset},
    }


def content_digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def decode(content: bytes, digest: str, runs_max: int) -> LabelledPart | None:
    """Return the content of a file, or `None` if it is unusable. It never has more than `runs_max` runs."""
    if content_digest(content) != digest:
        return None
    try:
        return _decode(content, runs_max)
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError, OverflowError):
        return None


def _decode(content: bytes, runs_max: int) -> LabelledPart:
    with pq.ParquetFile(io.BytesIO(content)) as file:
        if file.metadata.num_rows != 1 or not file.schema_arrow.remove_metadata().equals(SCHEMA):
            raise NotAPart("another table")
        group = file.metadata.row_group(0)
        values = [group.column(number).num_values for number in range(group.num_columns)]
        if max(values) > runs_max + 1:
            raise NotAPart("more runs than the log has space for")
        table = file.read()
    [row] = table.drop_columns(["runs"]).to_pylist()
    runs = _runs(table["runs"].chunk(0).flatten())
    if row["format"] != FORMAT:
        raise NotAPart("of another version")
    identity = Identity(**{name: row[name] for name in Identity.__slots__})
    label = Label(identity, row["settings"], row["salt"], row["is_final"], row["read_at_ns"])
    part = LogPart(
        **{name: row[name] for name in _PART},
        header=_read_header(row),
        runs=runs,
        maps=tuple(
            MapRecord(
                one["offset"],
                one["end"],
                tuple((pair["ledger"], pair["size"]) for pair in one["pairs"])
                if one["damage"] is None
                else _read_damage(one["damage"]),
            )
            for one in row["maps"]
        ),
        flaws=tuple(
            FlawAt(
                **{
                    **one,
                    "kind": FlawKind[one["kind"]],
                    "flaw": None if one["flaw"] is None else Flaw[one["flaw"]],
                }
            )
            for one in row["flaws"]
        ),
        stop=None if row["stop"] is None else _read_stop(row["stop"]),
        types={one["ledger"]: DigestType(one["type"]) for one in row["types"]},
        unverified={one["ledger"]: one["entries"] for one in row["unverified"]},
        seconds=row["seconds"],
    )
    return LabelledPart(label, part)


def _read_header(row: dict[str, Any]) -> LogHeader | EmptyLog | Damaged:
    if row["header_damage"] is not None:
        return _read_damage(row["header_damage"])
    if row["header"] is None:
        return EmptyLog()
    version, map_offset, ledgers, checksum = (row["header"][name] for name in _HEADER)
    return LogHeader(version, map_offset, ledgers, _read_origin(row["header"]["origin"]), checksum)


def _read_stop(row: dict[str, Any]) -> Stop:
    match row["kind"]:
        case "EndOfData":
            return EndOfData(row["offset"])
        case "Torn":
            return Torn(row["offset"], Flaw[row["flaw"]])
    return _read_damage(row)


def _read_damage(row: dict[str, Any]) -> Damaged:
    return Damaged(row["offset"], Flaw[row["flaw"]], row["detail"])


def _read_origin(row: dict[str, Any] | None) -> Origin | None:
    if row is None:
        return None
    if len(row["store_id"]) != STORE_ID_SIZE:
        raise NotAPart("not a store's id")
    previous = row["previous"]
    position = None if previous is None else LogPosition(previous["log_id"], previous["offset"])
    return Origin(row["store_id"], row["generation"], position)


def _runs(struct: pa.StructArray) -> Runs:
    runs = np.empty(len(struct), dtype=RUN)
    for name in _RUN.names:
        runs[name] = struct.field(name).to_numpy().view(RUN[name])
    if len(runs) and (runs["step"].min() < 1 or (runs["first"] > runs["last"]).any()):
        raise NotAPart("rows that are not runs")
    return runs
