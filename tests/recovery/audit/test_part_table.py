"""A part survives encoding and decoding. Any other file is ignored and does no harm."""

from __future__ import annotations

import io
import pickle
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from entry_log_tasks import part_values
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import many

from recovery.audit.cache import part_table
from recovery.audit.cache.part_identity import Identity
from recovery.audit.cache.part_table import Label, LabelledPart
from recovery.audit.model.runs import RUN
from recovery.audit.model.scan_results import FlawAt, FlawKind, LogPart, MapRecord
from storage.entry.model import DigestType
from storage.entry.position import LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog.format import EmptyLog, LogHeader, Origin

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANY = 1_000_000
_ids = st.integers(-(2**63), 2**63 - 1)
_offsets = st.integers(0, 2**40)
_words = st.text(st.characters(exclude_categories=["Cs"]))
_origins = st.builds(
    Origin,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**64 - 1),
    st.none() | st.builds(LogPosition, st.integers(0, 2**31 - 1), _offsets),
)
_damage = st.builds(Damaged, _offsets, st.sampled_from(Flaw), _words)
_stops = st.builds(EndOfData, _offsets) | st.builds(Torn, _offsets, st.sampled_from(Flaw)) | _damage
_headers = (
    st.builds(EmptyLog)
    | _damage
    | st.builds(LogHeader, st.integers(0, 9), _offsets, _offsets, st.none() | _origins, _offsets)
)
_flaws = st.builds(
    FlawAt,
    st.sampled_from(FlawKind),
    st.none() | st.sampled_from(Flaw),
    _offsets,
    _offsets,
    st.none() | _ids,
    st.none() | _ids,
    _words,
    _offsets,
    st.none() | _ids,
    st.booleans(),
)
_maps = st.builds(
    MapRecord, _offsets, _offsets, _damage | st.lists(st.tuples(_ids, _ids), max_size=3).map(tuple)
)


@st.composite
def _runs(draw: st.DrawFn) -> Any:
    rows = []
    for _ in range(draw(st.integers(0, 5))):
        first, last = sorted((draw(_ids), draw(_ids)))
        wide = st.integers(0, 2**64 - 1)
        counts = [draw(_offsets) for _ in range(2)]
        rows.append(
            (
                draw(_ids),
                draw(_ids),
                draw(st.integers(1, 9)),
                first,
                last,
                *counts,
                draw(wide),
                draw(wide),
                draw(_ids),
            )
        )
    return np.array(rows, dtype=RUN)


_parts = st.builds(
    LogPart,
    log_id=_offsets,
    start=_offsets,
    end=_offsets,
    entry=_offsets,
    exit=_offsets,
    file_size=_offsets,
    header=_headers,
    runs=_runs(),
    records=_offsets,
    size=_offsets,
    maps=st.lists(_maps, max_size=3).map(tuple),
    fillers=_offsets,
    flaws=st.lists(_flaws, max_size=3).map(tuple),
    stop=st.none() | _stops,
    types=st.dictionaries(_ids, st.sampled_from(DigestType), max_size=3),
    unverified=st.dictionaries(_ids, _offsets, max_size=3),
    seconds=st.floats(0, allow_infinity=False),
)


def _label(part: LogPart, **changes: Any) -> Label:
    place = (part.log_id, part.start, part.end)
    identity = Identity("/stores/a", *place, changes.pop("begins_at", None), part.file_size, 5, 6, "head")
    fields = {"settings": "0f", "salt": "aa", "is_final": True, "read_at_ns": 7, **changes}
    return Label(identity, **fields)


def _decoded(content: bytes, runs_max: int = MANY) -> LabelledPart | None:
    return part_table.decode(content, part_table.content_digest(content), runs_max)


def _content(**changes: Any) -> bytes:
    part = _part(**changes)
    return part_table.encode(part, _label(part))


@pytest.mark.sampled
@settings(max_examples=many(100, 30))
@given(_parts, _words, st.booleans(), st.none() | _offsets)
def test_a_part_is_decoded_as_it_was_encoded(
    part: LogPart,
    words: str,
    is_final: bool,
    begins_at: int | None,
) -> None:
    label = _label(part, settings=words, is_final=is_final, begins_at=begins_at)
    read = _decoded(part_table.encode(part, label))
    assert read is not None
    assert read.label == label
    assert part_values(read.part) == part_values(part)


def test_every_field_of_a_part_and_of_its_label_is_a_column() -> None:
    # A part with unreadable blocks is not kept.
    columns = set(LogPart.__slots__) - {"unreadable", "number"}
    columns |= set(Identity.__slots__) | set(Label.__slots__) - {"identity"}
    assert columns == {*part_table.SCHEMA.names} - {"format", "header_damage"}


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (FlawAt, 10),
        (MapRecord, 3),
        (LogHeader, 5),
        (EmptyLog, 0),
        (Origin, 3),
        (LogPosition, 2),
        (EndOfData, 1),
        (Torn, 2),
        (Damaged, 3),
    ],
)
def test_every_field_inside_a_part_is_written(kind: Any, count: int) -> None:
    assert len(fields(kind)) == count, "write it, read it, and raise part_table.FORMAT"


def test_numbers_of_numpy_are_numbers() -> None:
    end = EndOfData(np.int64(5))  # type: ignore[arg-type]
    read = _decoded(_content(exit=np.int64(7), stop=end))
    assert read is not None
    assert (type(read.part.exit), read.part.exit, read.part.stop) == (int, 7, EndOfData(5))


def test_the_parts_of_a_report_are_a_table_for_sql(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.parquet").write_bytes(_content(log_id=number))
    query = "SELECT log_id, store, inode, unnest(runs, recursive := true) FROM"
    rows = duckdb.connect().execute(f"{query} '{tmp_path}/*.parquet' ORDER BY ALL").fetchall()
    assert [row[:3] for row in rows] == [(0, "/stores/a", 6)] * 2 + [(1, "/stores/a", 6)] * 2
    assert [row[4] for row in rows] == [7, 8, 7, 8]


# ── not used ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_was_cut_or_changed_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    content = _content()
    digest = part_table.content_digest(content)
    monkeypatch.setattr(part_table, "_decode", lambda *_: pytest.fail("it was parsed"))
    for size in range(0, len(content), 7):
        assert part_table.decode(content[:size], digest, MANY) is None
        changed = content[:size] + bytes([content[size] ^ 1]) + content[size + 1 :]
        assert part_table.decode(changed, digest, MANY) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"PAR1" * 100, pickle.dumps(print), bytes(5000)],
    ids=["nothing", "magic", "magics", "a pickle", "zeros"],
)
def test_another_kind_of_file_is_not_used(content: bytes) -> None:
    assert _decoded(content) is None


def test_another_format_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_table, "FORMAT", part_table.FORMAT + 1)
    newer = _content()
    monkeypatch.undo()
    assert _decoded(newer) is None


def test_more_runs_than_possible_are_not_even_read() -> None:
    content = _content()
    assert _decoded(content, 2) is not None
    assert _decoded(_content(runs=_rows().repeat(9)), 2) is None


def test_rows_that_are_not_runs_are_not_used() -> None:
    assert _decoded(_content(runs=_rows(step=0))) is None
    assert _decoded(_content(runs=_rows(first=3))) is None


@pytest.mark.parametrize("name", ["an int32", "a column less", "another name", "no value", "two rows"])
def test_a_table_with_another_schema_is_not_used(name: str) -> None:
    table = pq.read_table(io.BytesIO(_content()))
    at = table.column_names.index("inode")
    changes: dict[str, Callable[[], pa.Table]] = {
        "an int32": lambda: table.set_column(at, "inode", table["inode"].cast(pa.int32())),
        "a column less": lambda: table.drop_columns(["inode"]),
        "another name": lambda: table.rename_columns([f"{one}s" for one in table.column_names]),
        "no value": lambda: table.set_column(at, "inode", pa.array([None], pa.int64())),
        "two rows": lambda: pa.concat_tables([table, table]),
    }
    file = io.BytesIO()
    pq.write_table(changes[name](), file, store_schema=False)
    assert _decoded(file.getvalue()) is None
    same = io.BytesIO()
    pq.write_table(table, same, store_schema=False)
    assert _decoded(same.getvalue()) is not None


def _rows(step: int = 1, first: int = 0) -> Any:
    return np.array(
        [(1, 7, step, first, 2, 3, 90, 2**64 - 1, 5, 0), (1, 8, 1, 0, 0, 1, 30, 6, 7, 0)], dtype=RUN
    )


def _part(**changes: Any) -> LogPart:
    values: dict[str, Any] = {
        "log_id": 1,
        "start": 1024,
        "end": 4096,
        "entry": 1024,
        "exit": 4096,
        "file_size": 4096,
        "header": LogHeader(1, 4000, 2, Origin(bytes(16), 3, LogPosition(0, 2048))),
        "runs": _rows(),
        "flaws": (FlawAt(FlawKind.DIGEST, Flaw.DIGEST, 1024, 1060, 8, 0, "one", 2, 3, True),),
        "maps": (MapRecord(4000, 4096, ((7, 90), (8, 30))), MapRecord(1, 2, Damaged(1, Flaw.BAD_MAP))),
        "stop": EndOfData(4096),
        "types": {7: DigestType.CRC32},
        "unverified": {8: 1},
        "seconds": 0.25,
    }
    return LogPart(**values | changes)
