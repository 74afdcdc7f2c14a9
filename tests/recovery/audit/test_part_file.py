"""A part survives encoding and decoding. Any other file is ignored and does no harm."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from entry_log_tasks import part_values
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import every, many

from recovery.audit.cache import part_file, part_json
from recovery.audit.cache.part_json import NotAPart
from recovery.audit.model.runs import RUN
from recovery.audit.model.scan_results import FlawAt, FlawKind, LogPart, MapRecord
from storage.entry.model import DigestType
from storage.entry.position import LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog.format import EmptyLog, LogHeader, Origin

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 1_000_000
_ids = st.integers(-(2**63), 2**63 - 1)
_offsets = st.integers(0, 2**40)
_damage = st.builds(Damaged, _offsets, st.sampled_from(Flaw), st.text(st.characters()))
_stops = st.builds(EndOfData, _offsets) | st.builds(Torn, _offsets, st.sampled_from(Flaw)) | _damage
_origins = st.builds(
    Origin,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**64 - 1),
    st.none() | st.builds(LogPosition, st.integers(0, 2**31 - 1), _offsets),
)
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
    st.text(st.characters()),
    _offsets,
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
    flaws=st.lists(_flaws, max_size=3).map(tuple),
    maps=st.lists(_maps, max_size=3).map(tuple),
    fillers=_offsets,
    stop=st.none() | _stops,
    types=st.dictionaries(_ids, st.sampled_from(DigestType), max_size=3),
    unverified=st.dictionaries(_ids, _offsets, max_size=3),
    seconds=st.floats(0, allow_infinity=False),
)


@pytest.mark.sampled
@settings(max_examples=many(100, 30))
@given(_parts, st.text(st.characters(exclude_categories=["Cs"])))
def test_a_part_is_decoded_as_it_was_encoded(part: LogPart, label: str) -> None:
    read = part_file.decode(part_file.encode(part, label), MANY)
    assert read is not None
    assert read.label == label
    assert part_values(read.part) == part_values(part)


def test_every_field_of_a_part_is_kept() -> None:
    kept = json.loads(part_json.encode(_part()))
    # A part with unreadable blocks is not kept.
    assert kept.keys() == set(LogPart.__slots__) - {"runs", "unreadable", "number"}


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
    assert len(fields(kind)) == count, "write it, read it, and raise part_file.FORMAT"


def test_numbers_of_numpy_are_numbers() -> None:
    end = EndOfData(np.int64(5))  # type: ignore[arg-type]
    read = part_file.decode(part_file.encode(_part(exit=np.int64(7), stop=end)), MANY)
    assert read is not None
    assert (type(read.part.exit), read.part.exit, read.part.stop) == (int, 7, EndOfData(5))


def test_other_programs_can_read_the_runs_as_a_table() -> None:
    table = pq.read_table(io.BytesIO(part_file.encode(_part())))
    assert table.column_names == list(RUN.names or ())
    assert table["ledger"].to_pylist() == [7, 8]
    assert table["places"].to_pylist() == [-1, 6]


# ── not used ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_cut_short_anywhere_is_not_used() -> None:
    content = part_file.encode(_part())
    assert [size for size in range(len(content)) if part_file.decode(content[:size], MANY)] == []


@pytest.mark.sampled
def test_a_flipped_bit_is_never_believed() -> None:
    content, whole = part_file.encode(_part()), part_values(_part())
    believed = []
    for place in every(5, range(0, len(content), 3)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        read = part_file.decode(bytes(damaged), MANY)
        # Some bytes of a Parquet file have no meaning: then the part is unchanged.
        if read is not None and (part_values(read.part), read.label) != (whole, ""):
            believed.append(place)
    assert believed == []


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"PAR1" * 100, pickle.dumps(print), bytes(5000)],
    ids=["nothing", "magic", "magics", "a pickle", "zeros"],
)
def test_another_kind_of_file_is_not_used(content: bytes) -> None:
    assert part_file.decode(content, MANY) is None


def test_another_format_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_file, "FORMAT", part_file.FORMAT + 1)
    newer = part_file.encode(_part())
    monkeypatch.undo()
    assert part_file.decode(newer, MANY) is None


def test_more_runs_than_possible_are_not_even_read() -> None:
    content = part_file.encode(_part())
    assert part_file.decode(content, 2) is not None
    assert part_file.decode(content, 1) is None


def test_rows_that_are_not_runs_are_not_used() -> None:
    assert part_file.decode(part_file.encode(_part(runs=_rows(step=0))), MANY) is None
    assert part_file.decode(part_file.encode(_part(runs=_rows(first=3))), MANY) is None


@pytest.mark.parametrize("name", ["an int32", "a column less", "another name", "holes"])
def test_a_table_with_another_schema_is_not_used(name: str) -> None:
    content = part_file.encode(_part())
    table, notes = pq.read_table(io.BytesIO(content)), pq.read_metadata(io.BytesIO(content)).metadata
    changes: dict[str, Callable[[], pa.Table]] = {
        "an int32": lambda: table.set_column(0, "file", table["file"].cast(pa.int32())),
        "a column less": lambda: table.drop_columns(["bad"]),
        "another name": lambda: table.rename_columns(["log", *table.column_names[1:]]),
        "holes": lambda: table.set_column(0, "file", pa.array([None, 1], pa.int64())),
    }
    changed = io.BytesIO()
    pq.write_table(changes[name]().replace_schema_metadata(notes), changed)
    assert part_file.decode(changed.getvalue(), MANY) is None


def test_json_with_another_structure_is_refused() -> None:
    told_well = json.loads(part_json.encode(_part()))
    shapes: list[Any] = [{}, True, "x", [[]], [1, 2], [[1, 2, 3]], 2**64]
    for name, wrong in (
        *((name, wrong) for name in told_well for wrong in shapes),
        ("exit", -(2**63) - 1),
        ("seconds", float("nan")),
        ("seconds", float("inf")),
        ("types", [[1, "ROT13"]]),
        ("stop", ["end"]),
        ("stop", ["damaged", 1, "NO_SUCH_FLAW", ""]),
        ("header", ["torn", 1, "DIGEST"]),
        ("header", ["header", 1, 2, 3, ["ff", 1, None]]),
        ("header", ["header", 1, 2, 3, ["no hexadecimal", 1, None]]),
        ("flaws", [["DIGEST", None, 1, 2, None, "3", "", 1]]),
        ("maps", [[1, 2, {"damage": ["end", 1]}]]),
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - whichever is raised, it is caught as that
            part_json.decode(json.dumps(told_well | {name: wrong}), _rows())


@pytest.mark.parametrize("name", ["exit", "header", "flaws", "unverified"])
def test_a_missing_field_is_refused(name: str) -> None:
    told_well = json.loads(part_json.encode(_part()))
    del told_well[name]
    with pytest.raises(NotAPart):
        part_json.decode(json.dumps(told_well), _rows())


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 10_000, "[]", "{", "NaN"])
def test_hostile_text_is_refused_quickly(text: str) -> None:
    with pytest.raises(NotAPart):
        part_json.load(text)


def _rows(step: int = 1, first: int = 0) -> Any:
    return np.array(
        [(1, 7, step, first, 2, 3, 90, 2**64 - 1, 5, 0), (1, 8, 1, 0, 0, 1, 30, 6, 7, 1)], dtype=RUN
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
        "stop": Torn(4096, Flaw.LENGTH_CUT),
        "types": {7: DigestType.CRC32},
        "unverified": {8: 1},
        "seconds": 0.25,
    }
    return LogPart(**values | changes)
