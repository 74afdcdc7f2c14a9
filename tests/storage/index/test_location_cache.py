"""The cache of locations: what it keeps, and that it never returns an obsolete location."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from file_index import FileIndex, FileIndexContent, FileIndexPlace

from recovery.crashlab import SimulatedDisk
from storage.index.location_cache import BLOCK_ENTRIES, BLOCK_SIZE, LOOK_UPS, LocationCache
from storage.index.state import IndexState

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterator

LEDGER = 3


class CountingIndex(FileIndex):
    """Counts look-ups of entries and of blocks.

    Calls `before_answer` when it has the locations of a block but has not returned them.
    """

    def __init__(self) -> None:
        super().__init__(FileIndexPlace(SimulatedDisk().root()), FileIndexContent())
        self.found: list[tuple[int, int]] = []
        self.blocks: list[tuple[int, int]] = []
        self.before_answer: Callable[[], None] = lambda: None

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        self.found.append((ledger_id, entry_id))
        return super().find(ledger_id, entry_id)

    def locations(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        if count == 1:
            return super().locations(ledger_id, first, count)  # a check, and no block
        self.blocks.append((ledger_id, first))
        answer = super().locations(ledger_id, first, count)
        self.before_answer()
        return answer

    def put(self, ledger_id: int, places: dict[int, int]) -> None:
        with self.change() as change:
            change.put(ledger_id, sorted(places), [places[entry_id] for entry_id in sorted(places)])
            change.commit(IndexState())


@pytest.fixture
def index() -> CountingIndex:
    index = CountingIndex()
    index.put(LEDGER, {entry_id: 100 + entry_id for entry_id in range(3000)})
    return index


def cache_of(index: CountingIndex, blocks: int = 8) -> LocationCache:
    return LocationCache(index, blocks * BLOCK_SIZE)


def load_blocks(cache: LocationCache, *numbers: int, ledger_id: int = LEDGER) -> None:
    """Load these blocks into the cache."""
    for number in numbers:
        for _ in range(LOOK_UPS):
            cache.find(ledger_id, number * BLOCK_ENTRIES)


# ── loading blocks ───────────────────────────────────────────────────────────────────────────────────────


def test_many_look_ups_in_a_block_load_the_block(index: CountingIndex) -> None:
    cache = cache_of(index)
    assert [cache.find(LEDGER, 5) for _ in range(LOOK_UPS - 1)] == [105] * (LOOK_UPS - 1)
    assert index.blocks == []
    assert cache.find(LEDGER, 900) == 1000
    assert index.blocks == [(LEDGER, 0)]

    asked = len(index.found)
    assert [cache.find(LEDGER, entry_id) for entry_id in range(BLOCK_ENTRIES)] == list(range(100, 1124))
    assert len(index.found) == asked
    assert len(index.blocks) == 1


def test_blocks_and_ledgers_are_distinguished(index: CountingIndex) -> None:
    index.put(LEDGER + 1, {0: 9, 1024: 8})
    cache = cache_of(index)
    load_blocks(cache, 0, 1)
    load_blocks(cache, 0, 1, ledger_id=LEDGER + 1)

    assert index.blocks == [(LEDGER, 0), (LEDGER, 1024), (LEDGER + 1, 0), (LEDGER + 1, 1024)]
    assert [cache.find(LEDGER, entry_id) for entry_id in (0, 1023, 1024, 2047)] == [100, 1123, 1124, 2147]
    assert [cache.find(LEDGER + 1, entry_id) for entry_id in (0, 1, 1024)] == [9, None, 8]


def test_a_location_that_a_block_lacks_is_looked_up_in_the_index(index: CountingIndex) -> None:
    index.put(7, {0: 10, 5: 15})
    cache = cache_of(index)
    load_blocks(cache, 0, ledger_id=7)
    index.found.clear()

    assert cache.find(7, 5) == 15
    assert index.found == []
    assert cache.find(7, 3) is None
    assert index.found == [(7, 3)]
    index.put(7, {3: 13})
    assert cache.find(7, 3) == 13


def test_entries_after_a_block_s_end_are_not_in_it(index: CountingIndex) -> None:
    index.put(7, {1023: 1, 1024: 2, 2048: 3, 5000: 4})
    cache = cache_of(index)
    for _ in range(LOOK_UPS):
        cache.find(7, 1023)

    assert [cache.find(7, entry_id) for entry_id in (0, 1023)] == [None, 1]
    assert index.blocks == [(7, 0)]


def test_look_ups_of_missing_entries_load_no_block(index: CountingIndex) -> None:
    cache = cache_of(index)
    for _ in range(LOOK_UPS + 1):
        assert cache.find(99, 0) is None
    assert index.blocks == []


def test_the_largest_entry_id(index: CountingIndex) -> None:
    index.put(7, {2**63 - 1: 1})
    cache = cache_of(index)
    assert [cache.find(7, 2**63 - 1) for _ in range(LOOK_UPS + 1)] == [1] * (LOOK_UPS + 1)
    assert len(index.found) == LOOK_UPS


# ── look-ups without the index ───────────────────────────────────────────────────────────────────────────


def test_a_known_location_is_returned_with_the_following_one(index: CountingIndex) -> None:
    index.put(7, {0: 10, 1: 11, 3: 13, 1023: 14, 1024: 15, 1026: 16})
    cache = cache_of(index)
    assert cache.known(7, 0) == (0, 0)
    load_blocks(cache, 0, ledger_id=7)
    index.found.clear()

    known = {0: (10, 11), 1: (11, 0), 2: (0, 13), 3: (13, 0), 1023: (14, 15), 1024: (0, 0), -1: (0, 0)}
    assert {entry_id: cache.known(7, entry_id) for entry_id in known} == known
    assert (index.found, index.blocks) == ([], [(7, 0)])


def test_known_locations_are_forgotten_too(index: CountingIndex) -> None:
    cache = cache_of(index)
    load_blocks(cache, 0)
    cache.forget({LEDGER})
    assert cache.known(LEDGER, 5) == (0, 0)


# ── many locations at once ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("blocks", [0, 1, 8])
@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 1), (0, 2000), (5, 128), (5, 129), (1000, 100), (1020, 1030), (2990, 10), (0, 3000)],
)
def test_many_locations_are_returned_whatever_fits_in_the_cache(
    index: CountingIndex, blocks: int, first: int, count: int
) -> None:
    cache = cache_of(index, blocks)
    for _ in range(3):
        assert list(cache.locations(LEDGER, first, count)) == list(range(100 + first, 100 + first + count))


def test_entries_without_a_location_are_zeros(index: CountingIndex) -> None:
    index.put(7, {0: 10, 1: 11, 3: 13, 1023: 14, 1025: 15, 5000: 16})
    for count in (5, 500):
        cache = cache_of(index)
        for _ in range(2):
            assert list(cache.locations(7, 0, count))[:5] == [10, 11, 0, 13, 0]
            assert (
                list(cache.locations(7, 1023, count))[:3]
                == [14, 0, 15][: len(cache.locations(7, 1023, count))]
            )
            assert list(cache.locations(7, 4, count)) == [0] * len(cache.locations(7, 4, count))
            assert cache.locations(99, 0, count)[0] == 0


def test_few_locations_load_no_block_and_many_do(index: CountingIndex) -> None:
    cache = cache_of(index)
    cache.locations(LEDGER, 5, 128)
    assert len(cache._blocks) == 0
    cache.locations(LEDGER, 5, 129)
    assert [*cache._blocks] == [(LEDGER, 0)]
    cache.locations(LEDGER, 5, 2000)
    assert [*cache._blocks] == [(LEDGER, 0), (LEDGER, 1)]
    asked = len(index.blocks)
    assert cache.find(LEDGER, 1500) == 1600
    assert list(cache.locations(LEDGER, 1000, 30)) == list(range(1100, 1130))
    assert len(index.blocks) == asked
    cache.locations(99, 0, 2000)
    assert len(cache._blocks) == 2


def test_locations_loaded_before_a_commit_are_not_seen_after_it(index: CountingIndex) -> None:
    cache = cache_of(index)

    def checkpoint() -> None:
        index.before_answer = lambda: None
        index.put(LEDGER, {5: 9, 1500: 8})
        cache.forget({LEDGER})

    index.before_answer = checkpoint
    assert cache.locations(LEDGER, 0, 2000)[5] == 105  # begun before the commit
    assert cache.locations(LEDGER, 0, 2000)[5] == 9
    assert [cache.find(LEDGER, entry_id) for entry_id in (5, 1500)] == [9, 8]


@pytest.mark.parametrize("seed", range(3))
def test_many_locations_equal_those_of_the_index(index: CountingIndex, seed: int) -> None:
    dice, cache = Random(seed), cache_of(index, blocks=2)
    for _ in range(300):
        if dice.random() < 0.05:
            index.put(LEDGER, {dice.randrange(4000): dice.randint(1, 10**9) for _ in range(5)})
            cache.forget({LEDGER})
        first, count = dice.randrange(4000), dice.choice([1, 5, 100, 300, 3000])
        found = cache.locations(LEDGER, first, count)
        assert 1 <= len(found) <= count
        assert [place or None for place in found] == [
            FileIndex.find(index, LEDGER, first + at) for at in range(len(found))
        ]


# ── the limit of its memory ──────────────────────────────────────────────────────────────────────────────


def test_the_least_recently_used_block_is_removed(index: CountingIndex) -> None:
    cache = cache_of(index, blocks=2)
    load_blocks(cache, 0, 1)
    cache.find(LEDGER, 7)
    load_blocks(cache, 2)
    index.found.clear()

    cache.find(LEDGER, 8)
    cache.find(LEDGER, 2050)
    assert index.found == []
    cache.find(LEDGER, 1030)
    assert index.found == [(LEDGER, 1030)]


def test_a_new_block_finds_room_although_all_blocks_are_marked_used(index: CountingIndex) -> None:
    cache = cache_of(index, blocks=2)
    load_blocks(cache, 0, 1)
    for entry_id in (7, 1030):
        cache.find(LEDGER, entry_id)
    load_blocks(cache, 2)
    index.found.clear()
    cache.find(LEDGER, 2050)
    assert index.found == []
    assert len(cache._blocks) == 2


def test_known_marks_its_block_as_used(index: CountingIndex) -> None:
    cache = cache_of(index, blocks=2)
    load_blocks(cache, 0, 1)
    assert cache.known(LEDGER, 7) == (107, 108)
    load_blocks(cache, 2)
    assert cache.known(LEDGER, 7) == (107, 108)
    assert cache.known(LEDGER, 1030) == (0, 0)


def test_the_cache_never_holds_more_blocks_than_fit(index: CountingIndex) -> None:
    cache = cache_of(index, blocks=3)
    dice = Random(1)
    index.put(8, {entry_id * 700: 5 for entry_id in range(40)})
    for _ in range(500):
        wanted = 700 * dice.randrange(40)
        for _ in range(LOOK_UPS * dice.randrange(2) + 1):
            cache.find(8, wanted)
        assert len(cache._blocks) <= 3
        assert len(cache._looked_up) <= 3
    assert len(cache._blocks) == 3


def test_without_room_for_a_block_each_look_up_asks_the_index(index: CountingIndex) -> None:
    cache = LocationCache(index, BLOCK_SIZE - 1)
    assert [cache.find(LEDGER, 5) for _ in range(4)] == [105] * 4
    assert len(index.found) == 4
    assert index.blocks == []


def test_a_block_takes_no_more_memory_than_block_size(index: CountingIndex) -> None:
    cache = cache_of(index)
    load_blocks(cache, 0)
    ((key, places),) = cache._blocks.items()
    parts = [places.__sizeof__(), key.__sizeof__(), *(number.__sizeof__() for number in key)]
    assert sum(parts) + 200 <= BLOCK_SIZE


# ── forgetting ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_forgotten_ledger_has_no_old_locations(index: CountingIndex) -> None:
    cache = cache_of(index)
    load_blocks(cache, 0, 1)
    index.put(LEDGER, {5: 9, 1030: 8})
    cache.forget({LEDGER})

    assert [cache.find(LEDGER, entry_id) for entry_id in (5, 1030)] == [9, 8]
    assert len(index.blocks) == 2  # the counters are reset, so the first look-up loads no block


def test_other_ledgers_are_not_forgotten(index: CountingIndex) -> None:
    index.put(7, {0: 10})
    cache = cache_of(index)
    load_blocks(cache, 0)
    load_blocks(cache, 0, ledger_id=7)
    cache.forget([LEDGER, 12])
    index.found.clear()

    assert cache.find(7, 0) == 10
    assert index.found == []


def test_a_block_loaded_before_a_commit_is_not_used_after_it(index: CountingIndex) -> None:
    cache = cache_of(index)
    for _ in range(LOOK_UPS - 1):
        cache.find(LEDGER, 5)

    def checkpoint() -> None:
        index.before_answer = lambda: None
        index.put(LEDGER, {5: 9})
        cache.forget({LEDGER})

    index.before_answer = checkpoint
    assert cache.find(LEDGER, 5) == 105  # begun before the commit
    assert cache.find(LEDGER, 5) == 9
    load_blocks(cache, 0)
    assert cache.find(LEDGER, 5) == 9


def test_a_block_loaded_after_the_dict_was_replaced_is_used(index: CountingIndex) -> None:
    cache = cache_of(index)
    cache.forget({LEDGER})
    load_blocks(cache, 0)
    index.found.clear()
    assert cache.find(LEDGER, 5) == 105
    assert index.found == []


def test_a_block_that_another_thread_removes_does_no_harm(index: CountingIndex) -> None:
    class Emptied(OrderedDict[tuple[int, int], "array[int]"]):
        def move_to_end(self, key: tuple[int, int], last: bool = True) -> None:
            self.clear()
            super().move_to_end(key, last)

        def popitem(self, last: bool = True) -> tuple[tuple[int, int], array[int]]:
            self.clear()
            return super().popitem(last)

    cache = cache_of(index, blocks=1)
    cache._blocks = Emptied()
    load_blocks(cache, 0)
    assert cache.find(LEDGER, 5) == 105
    load_blocks(cache, 0, 1)
    assert cache.find(LEDGER, 1030) == 1130


def test_a_reader_that_changes_the_order_does_not_disturb_forgetting(index: CountingIndex) -> None:
    class Disturbed(OrderedDict[tuple[int, int], "array[int]"]):
        disturbed = 0

        def __iter__(self) -> Iterator[tuple[int, int]]:
            self.disturbed += 1
            if self.disturbed == 1:
                raise RuntimeError("OrderedDict mutated during iteration")
            return super().__iter__()

        def items(self) -> Any:
            return [(key, self[key]) for key in self]

    cache = cache_of(index)
    load_blocks(cache, 0)
    cache._blocks = Disturbed(cache._blocks)
    index.put(LEDGER, {5: 9})
    cache.forget({LEDGER})
    assert cache.find(LEDGER, 5) == 9


@pytest.mark.parametrize("seed", range(5))
def test_the_cache_always_agrees_with_the_index(index: CountingIndex, seed: int) -> None:
    dice, cache = Random(seed), cache_of(index, blocks=2)
    for _ in range(2000):
        if dice.random() < 0.01:
            index.put(LEDGER, {dice.randrange(4000): dice.randint(1, 10**9) for _ in range(5)})
            cache.forget({LEDGER})
        entry_id = dice.randrange(4000)
        assert cache.find(LEDGER, entry_id) == FileIndex.find(index, LEDGER, entry_id)


@pytest.mark.slow
def test_threads_that_load_and_remove_blocks_return_what_the_index_has(index: CountingIndex) -> None:
    """Locations only grow, and no look-up returns one older than the last `forget`."""
    cache, least, is_over = cache_of(index, blocks=2), [0], threading.Event()
    wrong: list[int] = []

    def rewrite() -> None:
        for version in range(1, 60):
            index.put(LEDGER, {entry_id: version * 10**6 + entry_id for entry_id in range(0, 3000, 100)})
            cache.forget({LEDGER})
            least[0] = version
        is_over.set()

    def ask(seed: int) -> None:
        dice = Random(seed)
        while not is_over.is_set() and not wrong:
            entry_id, known = 100 * dice.randrange(30), least[0]
            place = (
                cache.find(LEDGER, entry_id)
                if dice.random() < 0.8
                else cache.locations(LEDGER, entry_id, 300)[0]
            )
            if place is None or (place % 10**6 != entry_id and known) or place // 10**6 < known:
                wrong.append(entry_id)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [
            threading.Thread(target=rewrite),
            *(threading.Thread(target=ask, args=(n,)) for n in range(3)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    assert len(cache._blocks) <= 2 + 3
