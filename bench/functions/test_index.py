"""Times the LMDB index: 100 ledgers that grow in 20 transactions, like those of checkpoints."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from storage.disk.posix import PosixDirectory
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.location_cache import LocationCache
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from storage.index.lmdb.index import LmdbIndex

LEDGERS = 100
CHANGES = 20
LOOK_UPS = 1000


def empty(path: Path) -> LmdbIndex:
    path.mkdir()
    draft = LmdbIndexDirectory(PosixDirectory(path), path).draft()
    with draft.change() as change:
        change.commit(IndexState())
    return draft.publish()


def grow(index: LmdbIndex, run: int) -> None:
    """Add a run of entries to every ledger in each transaction."""
    locations = array("q", range(1, run + 1))
    for number in range(CHANGES):
        with index.change() as change:
            for ledger_id in range(LEDGERS):
                change.put(ledger_id, range(number * run, (number + 1) * run), locations)
            change.commit(IndexState(number))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LmdbIndex]:
    """An index with 200,000 entries."""
    index = empty(tmp_path_factory.mktemp("index") / "ledgers")
    grow(index, 100)
    yield index
    index.close()


def some_entries() -> list[tuple[int, int]]:
    """Entries that are far apart from each other."""
    return [(number * 37 % LEDGERS, number * 1543 % 2000) for number in range(LOOK_UPS)]


@pytest.mark.parametrize(("entries", "bytes_max"), [(200_000, 35), (1_000_000, 20)])
def test_put(benchmark: BenchmarkFixture, tmp_path: Path, entries: int, bytes_max: int) -> None:
    """Fill an index. A small one takes more bytes per entry: LMDB keeps the pages of three transactions."""
    paths = (tmp_path / str(number) for number in range(100))
    made: list[LmdbIndex] = []

    def setup() -> tuple[tuple[LmdbIndex, int], dict[str, object]]:
        made.append(empty(next(paths)))
        return (made[-1], entries // CHANGES // LEDGERS), {}

    benchmark.pedantic(grow, setup=setup, rounds=3)  # type: ignore[no-untyped-call]
    size = (tmp_path / "0" / "index" / "data.mdb").stat().st_size / entries
    benchmark.extra_info |= {"entries": entries, "bytes per entry": round(size, 1)}
    for index in made:
        index.close()
    assert size < bytes_max


def test_put_again(benchmark: BenchmarkFixture, index: LmdbIndex) -> None:
    """Put all 200,000 entries at new locations, like a compaction that moves every entry."""
    places = iter(range(10**6, 10**9, 10**6))

    def overwrite() -> None:
        place = next(places)
        with index.change() as change:
            for ledger_id in range(LEDGERS):
                change.put(ledger_id, range(2000), range(place, place + 2000))
            change.commit(IndexState())

    benchmark.pedantic(overwrite, rounds=3)  # type: ignore[no-untyped-call]


def test_find(benchmark: BenchmarkFixture, index: LmdbIndex) -> None:
    entries = some_entries()

    def find() -> int:
        return sum(index.find(*entry) is not None for entry in entries)

    assert benchmark(find) == LOOK_UPS


def test_find_in_the_cache(benchmark: BenchmarkFixture, index: LmdbIndex) -> None:
    entries, cache = some_entries(), LocationCache(index, 16 << 20)

    def find() -> int:
        return sum(cache.find(*entry) is not None for entry in entries)

    find()
    assert benchmark(find) == LOOK_UPS


def test_places(benchmark: BenchmarkFixture, index: LmdbIndex) -> None:
    assert len(benchmark(index.locations, 50, 500, 1000)) == 1000
