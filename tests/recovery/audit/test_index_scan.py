"""The index read page by page: the same places as LMDB returns, for any division into tasks."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import index_builder
import lmdb
import numpy as np
import pytest
from lmdb_images import unsynced

from recovery.audit.engines.task import ReadThrottle
from recovery.audit.model.runs import merged
from recovery.audit.model.scan_results import IndexPart, RowFlaw
from recovery.audit.scan import index as scan_index
from recovery.audit.scan import index_rows
from recovery.audit.scan.index import ScanIndex, plan_index
from recovery.audit.scan.index_entries import ReadIndexRows
from storage.disk.posix import open_file
from storage.entry.model import ID_MAX
from storage.index.lmdb.leaves import LeafReader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOG = 1 << 32


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here has to be durable."""
    monkeypatch.setattr(lmdb, "open", unsynced)


def scan(path: Path, steps: Mapping[int, int] | None = None) -> IndexPart:
    return ScanIndex(str(path / "index"), 0, ID_MAX, steps or {}).run(ReadThrottle())


def put_raw(path: Path, key: bytes, *values: bytes) -> None:
    """Write rows that no index change of ours would write."""
    with lmdb.open(str(path / "index"), max_dbs=8, map_size=1 << 26) as environment:
        places = environment.open_db(b"places", create=False)
        with environment.begin(places, write=True) as transaction:
            for value in values:
                transaction.put(key, value)


def ids(part: IndexPart) -> list[tuple[int, int, int]]:
    return sorted(
        (int(run["ledger"]), entry_id, int(run["file"]))
        for run in part.runs
        for entry_id in range(int(run["first"]), int(run["last"]) + 1, int(run["step"]))
    )


@pytest.mark.parametrize("seed", range(6))
def test_every_place_is_read_as_lmdb_returns_it(tmp_path: Path, seed: int) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.random_index(index, seed)
    places = index_builder.every(index)
    index.close()
    part = scan(tmp_path)
    assert part.count == sum(map(len, places.values()))
    assert index_builder.totals(part.runs) == index_builder.slow_totals(places)
    assert ids(part) == sorted((of, one, place >> 32) for of, every in places.items() for one, place in every)
    assert part.flaws == ()


@pytest.mark.parametrize("pages", [1, 3])
def test_pages_are_read_in_pieces_of_any_size(
    tmp_path: Path, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.random_index(index, 11)
    index.close()
    whole = scan(tmp_path)
    monkeypatch.setattr(index_rows, "_PAGES_AT_ONCE", pages)
    monkeypatch.setattr(index_rows, "_FEW_AT_ONCE", 10)
    assert np.array_equal(scan(tmp_path).runs, whole.runs)


def test_merged_parts_equal_the_whole_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.random_index(index, 5)
    index.close()
    monkeypatch.setattr(scan_index, "_ROWS_OF_A_TASK", 1000)
    planned = plan_index(str(tmp_path / "index"), 3)
    assert len(planned) > 3
    assert [planned[0][0], planned[-1][1]] == [0, ID_MAX]
    assert all(before[1] + 1 == behind[0] for before, behind in pairwise(planned))
    parts = [
        ScanIndex(str(tmp_path / "index"), first, last).run(ReadThrottle()) for first, last, _ in planned
    ]
    whole = scan(tmp_path)
    assert [part.count for part in parts] == [rows for _, _, rows in planned]
    assert np.array_equal(merged(part.runs for part in parts), whole.runs)


def test_an_empty_index_has_no_rows(tmp_path: Path) -> None:
    index_builder.index_with(tmp_path).close()
    assert plan_index(str(tmp_path / "index"), 4) == [(0, ID_MAX, 0)]
    assert (scan(tmp_path).count, len(scan(tmp_path).runs)) == (0, 0)


def test_runs_end_where_the_log_changes_or_an_id_is_missing(tmp_path: Path) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.put(index, {7: [(0, LOG + 10), (1, LOG + 20), (2, 2 * LOG + 10), (4, 2 * LOG + 20)]})
    index.close()
    runs = scan(tmp_path).runs
    assert [(run["file"], run["first"], run["last"]) for run in runs] == [(1, 0, 1), (2, 2, 2), (2, 4, 4)]


def test_striped_ledgers_have_runs_of_one_residue_each(tmp_path: Path) -> None:
    index = index_builder.index_with(tmp_path)
    striped = [(one, LOG + one + 1) for one in range(9000) if one % 3 != 1]
    index_builder.put(index, {7: striped, 8: [(one, LOG + one + 1) for one in range(10)]})
    index.close()
    part = scan(tmp_path, {7: 3})
    assert [(run["ledger"], run["step"], run["first"], run["last"]) for run in part.runs] == [
        (7, 3, 0, 8997),
        (7, 3, 2, 8999),
        (8, 1, 0, 9),
    ]
    assert index_builder.totals(part.runs) == index_builder.totals(scan(tmp_path).runs)
    assert part.flaws == ()


@pytest.mark.parametrize("count", [3, 5000])
def test_an_entry_with_two_places_is_reported(tmp_path: Path, count: int) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.put(index, {7: [(one, LOG + one + 1) for one in range(count)], 8: [(0, 5)]})
    index.close()
    for entry_id in (1, count - 1):
        put_raw(tmp_path, struct.pack(">q", 7), struct.pack(">qq", entry_id, 2 * LOG + 5))
    part = scan(tmp_path)
    assert [(flaw.ledger_id, flaw.entry_id, flaw.location, flaw.is_double) for flaw in part.flaws] == [
        (7, 1, 2 * LOG + 5, True),
        (7, count - 1, 2 * LOG + 5, True),
    ]
    assert part.count == count + 3


def test_two_places_are_reported_in_striped_ledgers_too(tmp_path: Path) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.put(index, {7: [(one, LOG + one + 1) for one in range(3000) if one % 3 != 1]})
    index.close()
    put_raw(
        tmp_path, struct.pack(">q", 7), struct.pack(">qq", 1500, LOG + 5), struct.pack(">qq", 1500, LOG + 6)
    )
    part = scan(tmp_path, {7: 3})
    assert [(flaw.entry_id, flaw.is_double) for flaw in part.flaws] == [(1500, True), (1500, True)]


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (struct.pack(">qq", -3, LOG + 5), "a negative entry id"),
        (struct.pack(">qq", 5, 0), "no place in a log"),
        (struct.pack(">qq", 5, -1), "no place in a log"),
    ],
)
def test_invalid_rows_are_reported(tmp_path: Path, value: bytes, detail: str) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.put(index, {7: [(0, LOG + 5), (1, LOG + 6)]})
    index.close()
    put_raw(tmp_path, struct.pack(">q", 7), value)
    part = scan(tmp_path)
    entry_id, location = struct.unpack(">qq", value)
    assert part.flaws == (RowFlaw(7, entry_id, location, detail),)
    assert (part.count, ids(part)) == (3, [(7, 0, 1), (7, 1, 1)])


@pytest.mark.parametrize(
    ("key", "ledger_id"), [(struct.pack(">q", -5), -5), (b"short", -1), (struct.pack(">q", 9) + b"x", 9)]
)
def test_keys_that_are_not_ledger_ids_are_reported(tmp_path: Path, key: bytes, ledger_id: int) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.put(index, {7: [(0, LOG + 5)]})
    index.close()
    put_raw(tmp_path, key, struct.pack(">qq", 0, LOG + 5))
    path = str(tmp_path / "index")
    parts = [ScanIndex(path, first, last).run(ReadThrottle()) for first, last, _ in plan_index(path, 2)]
    flaws = [flaw for part in parts for flaw in part.flaws]
    assert len(flaws) == 1
    assert flaws[0].ledger_id == (ledger_id if len(key) >= 8 else flaws[0].ledger_id)


def test_reading_index_rows_returns_every_row_of_the_given_ledgers(tmp_path: Path) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.random_index(index, 3)
    places = index_builder.every(index)
    index.close()
    ledgers = frozenset(sorted(places)[::3])
    rows = ReadIndexRows(str(tmp_path / "index"), ledgers).run(ReadThrottle())
    assert rows.tolist() == [(of, one, place) for of in sorted(ledgers) for one, place in places[of]]
    assert len(ReadIndexRows(str(tmp_path / "index"), frozenset({99})).run(ReadThrottle())) == 0


def test_the_leaves_of_a_file_are_those_that_lmdb_counts(tmp_path: Path) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.random_index(index, 4)
    places = index_builder.every(index)
    index.close()
    with open_file(tmp_path / "index" / "data.mdb") as data:
        counted = {struct.unpack(">q", key)[0]: count for key, count in LeafReader(data).counts()}
    assert counted == {of: len(every) for of, every in places.items()}


def test_an_invalid_file_is_an_error(tmp_path: Path) -> None:
    index = index_builder.index_with(tmp_path)
    index_builder.put(index, {7: [(one, LOG + one + 1) for one in range(5000)]})
    index.close()
    path = tmp_path / "index" / "data.mdb"
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        path.write_bytes(data[: page * 4096] + bytes(4096) + data[(page + 1) * 4096 :])
        try:
            part = scan(tmp_path)
        except OSError:
            continue
        assert part.count == 5000, page
