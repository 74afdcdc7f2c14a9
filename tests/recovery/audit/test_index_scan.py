"""The index read page by page: the same places as LMDB gives out, however it is cut."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import indexes
import lmdb
import numpy as np
import pytest
from lmdb_images import unsynced

from recovery.audit import index_rows, index_scan
from recovery.audit.drill_index import DrillIndex
from recovery.audit.index_scan import ScanIndex, plan_index
from recovery.audit.task import Pace
from recovery.verify.parts import IndexPart, RowFlaw
from recovery.verify.runs import merged
from storage.entry import ID_MAX
from storage.lmdb_leaves import LeafReader
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOG = 1 << 32


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of what is written here has to be durable."""
    monkeypatch.setattr(lmdb, "open", unsynced)


def scan(path: Path, steps: Mapping[int, int] | None = None) -> IndexPart:
    return ScanIndex(str(path / "index"), 0, ID_MAX, steps or {}).run(Pace())


def put_raw(path: Path, key: bytes, *values: bytes) -> None:
    """What no change of ours would put there."""
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
def test_every_place_is_told_as_lmdb_has_it(tmp_path: Path, seed: int) -> None:
    index = indexes.made(tmp_path)
    indexes.at_random(index, seed)
    places = indexes.every(index)
    index.close()
    part = scan(tmp_path)
    assert part.count == sum(map(len, places.values()))
    assert indexes.told(part.runs) == indexes.slowly_told(places)
    assert ids(part) == sorted((of, one, place >> 32) for of, every in places.items() for one, place in every)
    assert part.flaws == ()


@pytest.mark.parametrize("pages", [1, 3])
def test_pages_are_read_in_pieces_of_any_size(
    tmp_path: Path, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexes.made(tmp_path)
    indexes.at_random(index, 11)
    index.close()
    whole = scan(tmp_path)
    monkeypatch.setattr(index_rows, "_PAGES_AT_ONCE", pages)
    monkeypatch.setattr(index_rows, "_FEW_AT_ONCE", 10)
    assert np.array_equal(scan(tmp_path).runs, whole.runs)


def test_parts_put_together_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = indexes.made(tmp_path)
    indexes.at_random(index, 5)
    index.close()
    monkeypatch.setattr(index_scan, "_ROWS_OF_A_TASK", 1000)
    planned = plan_index(str(tmp_path / "index"), 3)
    assert len(planned) > 3
    assert [planned[0][0], planned[-1][1]] == [0, ID_MAX]
    assert all(before[1] + 1 == behind[0] for before, behind in pairwise(planned))
    parts = [ScanIndex(str(tmp_path / "index"), first, last).run(Pace()) for first, last, _ in planned]
    whole = scan(tmp_path)
    assert [part.count for part in parts] == [rows for _, _, rows in planned]
    assert np.array_equal(merged(part.runs for part in parts), whole.runs)


def test_an_empty_index_has_no_rows(tmp_path: Path) -> None:
    indexes.made(tmp_path).close()
    assert plan_index(str(tmp_path / "index"), 4) == [(0, ID_MAX, 0)]
    assert (scan(tmp_path).count, len(scan(tmp_path).runs)) == (0, 0)


def test_runs_end_where_the_log_changes_or_an_id_is_missing(tmp_path: Path) -> None:
    index = indexes.made(tmp_path)
    indexes.put(index, {7: [(0, LOG + 10), (1, LOG + 20), (2, 2 * LOG + 10), (4, 2 * LOG + 20)]})
    index.close()
    runs = scan(tmp_path).runs
    assert [(run["file"], run["first"], run["last"]) for run in runs] == [(1, 0, 1), (2, 2, 2), (2, 4, 4)]


def test_striped_ledgers_have_runs_of_one_residue_each(tmp_path: Path) -> None:
    index = indexes.made(tmp_path)
    striped = [(one, LOG + one + 1) for one in range(9000) if one % 3 != 1]
    indexes.put(index, {7: striped, 8: [(one, LOG + one + 1) for one in range(10)]})
    index.close()
    part = scan(tmp_path, {7: 3})
    assert [(run["ledger"], run["step"], run["first"], run["last"]) for run in part.runs] == [
        (7, 3, 0, 8997),
        (7, 3, 2, 8999),
        (8, 1, 0, 9),
    ]
    assert indexes.told(part.runs) == indexes.told(scan(tmp_path).runs)
    assert part.flaws == ()


@pytest.mark.parametrize("count", [3, 5000])
def test_an_entry_with_two_places_is_told(tmp_path: Path, count: int) -> None:
    index = indexes.made(tmp_path)
    indexes.put(index, {7: [(one, LOG + one + 1) for one in range(count)], 8: [(0, 5)]})
    index.close()
    for entry_id in (1, count - 1):
        put_raw(tmp_path, struct.pack(">q", 7), struct.pack(">qq", entry_id, 2 * LOG + 5))
    part = scan(tmp_path)
    assert [(flaw.ledger_id, flaw.entry_id, flaw.location, flaw.is_double) for flaw in part.flaws] == [
        (7, 1, 2 * LOG + 5, True),
        (7, count - 1, 2 * LOG + 5, True),
    ]
    assert part.count == count + 3


def test_doubles_are_told_in_striped_ledgers_too(tmp_path: Path) -> None:
    index = indexes.made(tmp_path)
    indexes.put(index, {7: [(one, LOG + one + 1) for one in range(3000) if one % 3 != 1]})
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
def test_rows_that_cannot_be_are_told(tmp_path: Path, value: bytes, detail: str) -> None:
    index = indexes.made(tmp_path)
    indexes.put(index, {7: [(0, LOG + 5), (1, LOG + 6)]})
    index.close()
    put_raw(tmp_path, struct.pack(">q", 7), value)
    part = scan(tmp_path)
    entry_id, location = struct.unpack(">qq", value)
    assert part.flaws == (RowFlaw(7, entry_id, location, detail),)
    assert (part.count, ids(part)) == (3, [(7, 0, 1), (7, 1, 1)])


@pytest.mark.parametrize(
    ("key", "ledger_id"), [(struct.pack(">q", -5), -5), (b"short", -1), (struct.pack(">q", 9) + b"x", 9)]
)
def test_keys_that_are_no_ledger_are_told(tmp_path: Path, key: bytes, ledger_id: int) -> None:
    index = indexes.made(tmp_path)
    indexes.put(index, {7: [(0, LOG + 5)]})
    index.close()
    put_raw(tmp_path, key, struct.pack(">qq", 0, LOG + 5))
    path = str(tmp_path / "index")
    parts = [ScanIndex(path, first, last).run(Pace()) for first, last, _ in plan_index(path, 2)]
    flaws = [flaw for part in parts for flaw in part.flaws]
    assert len(flaws) == 1
    assert flaws[0].ledger_id == (ledger_id if len(key) >= 8 else flaws[0].ledger_id)


def test_drilling_gives_every_row_of_the_suspects(tmp_path: Path) -> None:
    index = indexes.made(tmp_path)
    indexes.at_random(index, 3)
    places = indexes.every(index)
    index.close()
    suspects = frozenset(sorted(places)[::3])
    rows = DrillIndex(str(tmp_path / "index"), suspects).run(Pace())
    assert rows.tolist() == [(of, one, place) for of in sorted(suspects) for one, place in places[of]]
    assert len(DrillIndex(str(tmp_path / "index"), frozenset({99})).run(Pace())) == 0


def test_the_leaves_of_a_file_are_those_that_lmdb_counts(tmp_path: Path) -> None:
    index = indexes.made(tmp_path)
    indexes.at_random(index, 4)
    places = indexes.every(index)
    index.close()
    with open_file(tmp_path / "index" / "data.mdb") as data:
        counted = {struct.unpack(">q", key)[0]: count for key, count in LeafReader(data).counts()}
    assert counted == {of: len(every) for of, every in places.items()}


def test_a_file_that_makes_no_sense_is_an_error_and_no_answer(tmp_path: Path) -> None:
    index = indexes.made(tmp_path)
    indexes.put(index, {7: [(one, LOG + one + 1) for one in range(5000)]})
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
