"""All contenders read the same entries, and every answer is checked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import crc32c
import pytest
from contenders import raw, raw_scan, readers
from contenders.raw_scan import RawScan
from contest import contest
from contest.run_size import TINY
from contest.workload import Work, WrongAnswer
from scenarios import reading
from store_internals import StoreInternals, store_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from contenders.readers import ReadingContender

WORK = Work(size=100, batch=10, ledgers=4)
ODD = Work(size=101, batch=10)
ENTRIES = 50
PACKAGES = {"LevelDbReader": "plyvel", "RocksDbReader": "rocksdict"}
PEERS = ["LevelDbReader", "RocksDbReader", "SqliteReader", "LmdbReader"]
EVERYBODY = ["OurReader", *PEERS]
READS: dict[str, Callable[[ReadingContender], object]] = {
    "random": lambda reader: reader.one_by_one(ENTRIES, 100),
    "in order": lambda reader: reader.scan(ENTRIES),
    "newest": lambda reader: reader.newest(ENTRIES, 100),
}


def make(name: str, place: Path) -> ReadingContender:
    pytest.importorskip(PACKAGES.get(name, "lmdb"))
    ours: dict[str, Any] = {"kind": "default", "journal_size": 0} if name == "OurReader" else {}
    made: ReadingContender = getattr(readers, name)(place, **ours, **WORK.settings())
    return made


@pytest.fixture(params=EVERYBODY)
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReadingContender]:
    """Yield a reading contender that was filled, closed and opened again."""
    filled = make(request.param, tmp_path)
    filled.fill(ENTRIES)
    filled.close()
    opened = make(request.param, tmp_path)
    yield opened
    opened.close()


def names_read(reader: ReadingContender, read: Callable[[ReadingContender], object]) -> list[object]:
    """Return the names of the entries that the reader requests from its store."""
    found: list[object] = []
    make_requests = reader.requests

    def requests(names: Any) -> Any:
        found.extend(names)
        return make_requests(names)

    reader.requests = requests  # type: ignore[method-assign]
    read(reader)
    return found


def test_all_entries_that_were_added_are_read(reader: ReadingContender) -> None:
    count = ENTRIES * WORK.ledgers
    assert reader.one_by_one(ENTRIES, count)["count"] == count
    assert reader.scan(ENTRIES)["count"] == count


@pytest.mark.parametrize("name", ["random", "in order"])
def test_an_answer_of_another_length_is_an_error(reader: ReadingContender, name: str) -> None:
    reader.work = replace(WORK, size=WORK.size + 1)
    with pytest.raises(WrongAnswer):
        READS[name](reader)


def test_a_newest_entry_of_another_length_is_an_error(reader: ReadingContender) -> None:
    append = reader.append
    reader.append = lambda name, payload: append(name, payload[1:])  # type: ignore[method-assign]
    with pytest.raises(WrongAnswer):
        READS["newest"](reader)


def test_the_order_is_random_and_the_same_for_all_contenders(reader: ReadingContender) -> None:
    chosen = names_read(reader, READS["random"])
    lmdb = readers.LmdbReader.__new__(readers.LmdbReader)
    lmdb.work = WORK
    lmdb.get = lambda _: None  # type: ignore[method-assign,assignment]
    assert chosen == names_read(lmdb, READS["random"])
    assert len(set(chosen)) == 100
    assert chosen != sorted(chosen)  # type: ignore[type-var]


def test_the_newest_entries_are_those_of_the_ledgers_in_turn(reader: ReadingContender) -> None:
    assert names_read(reader, READS["newest"]) == [(n, ENTRIES) for n in (1, 2, 3, 4)] * 25
    assert names_read(reader, READS["newest"]) == [(n, ENTRIES + 1) for n in (1, 2, 3, 4)] * 25


def test_our_store_reads_old_entries_from_logs_and_the_newest_from_memory(tmp_path: Path) -> None:
    ours = make("OurReader", tmp_path)
    ours.fill(ENTRIES)
    ours.close()
    ours = make("OurReader", tmp_path)
    engine = StoreInternals(store_of(ours))
    READS["random"](ours)
    assert engine.table_sizes[0] == 0
    READS["newest"](ours)
    assert engine.active_table.get(1, ENTRIES) is not None
    ours.close()


@pytest.fixture
def scanned(tmp_path: Path) -> Callable[[int], RawScan]:
    if why := raw_scan.why_unavailable():
        pytest.skip(why)
    place = tmp_path / "row" / "raw"
    place.mkdir(parents=True)

    def make(lanes: int) -> RawScan:
        made = RawScan(place, lanes, **ODD.settings())
        made.fill(ENTRIES)
        return made

    return make


def test_the_raw_scan_sums_all_records_of_a_log(scanned: Callable[[int], RawScan], tmp_path: Path) -> None:
    one = scanned(1)
    assert one.scan(ENTRIES)["count"] == ENTRIES
    data = (tmp_path / "row" / "raw" / "raw").read_bytes()
    assert one.sum == crc32c.crc32c(data)
    assert len(data) == ENTRIES * (4 + 32 + 4 + ODD.size)
    assert len(data) % 8


def test_three_sums_at_once_cover_every_byte(scanned: Callable[[int], RawScan], tmp_path: Path) -> None:
    path = tmp_path / "row" / "raw" / "raw"
    one = scanned(3)
    one.scan(ENTRIES)
    sums = {one.sum}
    data = bytearray(path.read_bytes())
    for at in (0, len(data) // 2, len(data) * 3 // 4, len(data) - 1):
        data[at] ^= 1
        path.write_bytes(data)
        one.scan(ENTRIES)
        sums.add(one.sum)
    assert len(sums) == 5


def test_the_raw_scan_is_noted_as_missing_without_a_crc_instruction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "crc_flags", lambda: ())
    monkeypatch.setattr(raw, "why_unavailable", lambda: "")
    [row] = [one for one in reading.scenarios(TINY) if one.name == "payloads-1k"]
    only_raw = replace(row, contenders=[one for one in row.contenders if one.name.startswith("raw")])
    assert contest.run_scenario(only_raw, tmp_path).notes == [raw_scan.NO_INSTRUCTION]


def test_a_peer_that_is_not_installed_is_noted_in_every_row(tmp_path: Path) -> None:
    for row in reading.scenarios(TINY):
        missing = [replace(one, package="no-such-peer") for one in row.contenders if one.name == "plyvel"]
        found = contest.run_scenario(replace(row, contenders=missing), tmp_path)
        assert found.notes == ["no-such-peer is not installed: pip install no-such-peer"]
        assert not found.flaws
