"""Everybody reads the same entries, and no answer is taken unseen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import contest
import crc32c
import pytest
import raw
import raw_scan
import readers
import reading
from effort import TINY
from raw_scan import RawScan
from readers import Reader, WrongAnswer
from work import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WORK = Work(size=100, batch=10, ledgers=4)
ODD = Work(size=101, batch=10)
ENTRIES = 50
PACKAGES = {"LevelDbReader": "plyvel", "RocksDbReader": "rocksdict"}
PEERS = ["LevelDbReader", "RocksDbReader", "SqliteReader", "LmdbReader"]
EVERYBODY = ["OurReader", *PEERS]
READS: dict[str, Callable[[Reader], object]] = {
    "random": lambda reader: reader.one_by_one(ENTRIES, 100),
    "in order": lambda reader: reader.scan(ENTRIES),
    "newest": lambda reader: reader.newest(ENTRIES, 100),
}


def make(name: str, place: Path) -> Reader:
    pytest.importorskip(PACKAGES.get(name, "lmdb"))
    ours: dict[str, Any] = {"kind": "default", "journal_size": 0} if name == "OurReader" else {}
    made: Reader = getattr(readers, name)(place, **ours, **WORK.settings())
    return made


@pytest.fixture(params=EVERYBODY)
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reader]:
    """Filled, closed, and opened again."""
    filled = make(request.param, tmp_path)
    filled.fill(ENTRIES)
    filled.close()
    opened = make(request.param, tmp_path)
    yield opened
    opened.close()


def names_read(reader: Reader, read: Callable[[Reader], object]) -> list[object]:
    """Whatever the reader asks its store for."""
    found: list[object] = []
    make_requests = reader.requests

    def requests(names: Any) -> Any:
        found.extend(names)
        return make_requests(names)

    reader.requests = requests  # type: ignore[method-assign]
    read(reader)
    return found


def test_all_that_was_filled_is_read(reader: Reader) -> None:
    count = ENTRIES * WORK.ledgers
    assert reader.one_by_one(ENTRIES, count)["count"] == count
    assert reader.scan(ENTRIES)["count"] == count


@pytest.mark.parametrize("name", ["random", "in order"])
def test_an_answer_of_another_length_is_no_answer(reader: Reader, name: str) -> None:
    reader.work = replace(WORK, size=WORK.size + 1)
    with pytest.raises(WrongAnswer):
        READS[name](reader)


def test_a_newest_entry_of_another_length_is_no_answer(reader: Reader) -> None:
    append = reader.append
    reader.append = lambda name, payload: append(name, payload[1:])  # type: ignore[method-assign]
    with pytest.raises(WrongAnswer):
        READS["newest"](reader)


def test_the_order_is_random_and_the_same_for_everybody(reader: Reader) -> None:
    chosen = names_read(reader, READS["random"])
    lmdb = readers.LmdbReader.__new__(readers.LmdbReader)
    lmdb.work = WORK
    lmdb.get = lambda _: None  # type: ignore[method-assign,assignment]
    assert chosen == names_read(lmdb, READS["random"])
    assert len(set(chosen)) == 100
    assert chosen != sorted(chosen)  # type: ignore[type-var]


def test_the_newest_entries_are_those_of_the_ledgers_in_turn(reader: Reader) -> None:
    assert names_read(reader, READS["newest"]) == [(n, ENTRIES) for n in (1, 2, 3, 4)] * 25
    assert names_read(reader, READS["newest"]) == [(n, ENTRIES + 1) for n in (1, 2, 3, 4)] * 25


def test_ours_reads_what_was_filled_from_logs_and_the_newest_from_memory(tmp_path: Path) -> None:
    ours = make("OurReader", tmp_path)
    ours.fill(ENTRIES)
    ours.close()
    ours = make("OurReader", tmp_path)
    tables = ours._store._parts.slot.tables  # type: ignore[attr-defined]
    READS["random"](ours)
    assert tables.active.size == 0
    READS["newest"](ours)
    assert tables.active.get(1, ENTRIES) is not None
    ours.close()


@pytest.fixture
def scanned(tmp_path: Path) -> Callable[[int], RawScan]:
    if why := raw_scan.why_not():
        pytest.skip(why)
    place = tmp_path / "row" / "raw"
    place.mkdir(parents=True)

    def make(lanes: int) -> RawScan:
        made = RawScan(place, lanes, **ODD.settings())
        made.fill(ENTRIES)
        return made

    return make


def test_the_raw_scan_sums_all_that_a_log_would_hold(
    scanned: Callable[[int], RawScan], tmp_path: Path
) -> None:
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


def test_where_a_processor_has_no_instruction_the_raw_scan_is_noted_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "crc_flags", lambda: ())
    monkeypatch.setattr(raw, "why_not", lambda: "")
    [row] = [one for one in reading.scenarios(TINY) if one.name == "payloads-1k"]
    only_raw = replace(row, contenders=[one for one in row.contenders if one.name.startswith("raw")])
    assert contest.hold(only_raw, tmp_path).notes == [raw_scan.NO_INSTRUCTION]


def test_a_peer_that_is_not_installed_is_noted_in_every_row(tmp_path: Path) -> None:
    for row in reading.scenarios(TINY):
        missing = [replace(one, package="no-such-peer") for one in row.contenders if one.name == "plyvel"]
        found = contest.hold(replace(row, contenders=missing), tmp_path)
        assert found.notes == ["no-such-peer is not installed: pip install no-such-peer"]
        assert not found.flaws
