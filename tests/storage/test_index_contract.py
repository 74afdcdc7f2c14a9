"""What both adapters of `storage.index` do alike: LMDB, and the file that stands in for it."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest
from file_index import FileIndexPlace

from recovery.crashlab import SimulatedDisk
from storage.entry import ID_MAX, DigestType
from storage.index import NoIndex
from storage.index_state import IndexState
from storage.lmdb_place import LmdbPlace
from storage.outcome import Damaged
from storage.position import JournalPosition, LogPosition
from storage.posix_files import PosixDirectory
from storage.row import KnownBy, LedgerRow, Tombstone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from storage.files import Directory
    from storage.index import Index, IndexPlace

STATE = IndexState(7, JournalPosition(3, 8192), 1, {0: 4096, 1: 70_000}, 12_288)
PLACE_MAX = (2**31 - 1) << 32 | 0xFFFF_FFFF
ROW = LedgerRow(
    7,
    31,
    DigestType.MAC,
    KnownBy.INFERRED,
    b"key",
    fenced=True,
    explicit_lac=bytes(range(80)),
    tombstone=Tombstone(JournalPosition(3, 512), LogPosition(1, 4096)),
    in_limbo=True,
)


@pytest.fixture(params=["lmdb", "file"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    """An empty ledger directory."""
    return SimulatedDisk().root() if request.param == "file" else PosixDirectory(tmp_path)


@pytest.fixture
def place(directory: Directory, tmp_path: Path) -> IndexPlace:
    if isinstance(directory, PosixDirectory):
        return LmdbPlace(directory, tmp_path)
    return FileIndexPlace(directory)


@pytest.fixture
def index(place: IndexPlace) -> Iterator[Index]:
    """A new index without places."""
    new = made(place)
    yield new
    new.close()


def made(place: IndexPlace, state: IndexState = IndexState()) -> Index:  # noqa: B008 - frozen
    draft = place.draft()
    with draft.change() as change:
        change.commit(state)
    return draft.publish()


def opened(place: IndexPlace) -> Index:
    found = place.open()
    assert not isinstance(found, NoIndex | Damaged), found
    return found


def put(index: Index, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
    with index.change() as change:
        change.put(ledger_id, entry_ids, locations)
        change.commit(index.state())


def put_rows(index: Index, *rows: LedgerRow) -> None:
    with index.change() as change:
        change.put_rows(rows)
        change.commit(None)


def remove(index: Index, ledger_ids: Iterable[int]) -> None:
    with index.change() as change:
        change.remove(ledger_ids)
        change.commit(None)


def everything(index: Index) -> dict[int, list[tuple[int, int]]]:
    return {ledger_id: index.places(ledger_id, 0, 1 << 20) for ledger_id in index.ledgers()}


# ── finding ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_put_is_found_and_nothing_beside_it(index: Index) -> None:
    put(index, 5, [0, 1, 7], [10, 11, 17])

    assert [index.find(5, entry_id) for entry_id in (0, 1, 2, 6, 7, 8)] == [10, 11, None, None, 17, None]
    assert index.find(4, 0) is None
    assert index.find(6, 0) is None


def test_an_entry_is_not_taken_for_one_of_the_next_ledger(index: Index) -> None:
    put(index, 5, [0], [10])
    put(index, 6, [9], [19])

    assert index.find(5, 9) is None
    assert index.places(5, 1, 10) == []


def test_the_largest_ids_and_places(index: Index) -> None:
    put(index, ID_MAX, [0, ID_MAX], [1, PLACE_MAX])

    assert index.find(ID_MAX, ID_MAX) == PLACE_MAX
    assert index.last(ID_MAX) == (ID_MAX, PLACE_MAX)
    assert list(index.ledgers()) == [ID_MAX]


def test_of_an_empty_index_nothing_is_found(index: Index) -> None:
    assert index.find(0, 0) is None
    assert index.places(0, 0, 10) == []
    assert index.last(0) is None
    assert index.count(0) == 0
    assert list(index.ledgers()) == []
    assert list(index.rows()) == []


@pytest.mark.parametrize(
    ("first", "count", "expected"),
    [
        (0, 10, [(2, 12), (3, 13), (9, 19)]),
        (2, 2, [(2, 12), (3, 13)]),
        (3, 1, [(3, 13)]),
        (4, 9, [(9, 19)]),
        (10, 9, []),
        (0, 0, []),
    ],
)
def test_places_are_the_next_ones_up_to_a_count(
    index: Index, first: int, count: int, expected: list[tuple[int, int]]
) -> None:
    put(index, 5, [2, 3, 9], [12, 13, 19])
    put(index, 6, [0], [99])

    assert index.places(5, first, count) == expected


@pytest.mark.parametrize("count", [1, 255, 256, 257, 600, 5000])
@pytest.mark.parametrize("first", [0, 1, 500, 999, 1000, 1001, 1999, 2000, ID_MAX])
def test_many_places_are_the_next_ones_too(index: Index, first: int, count: int) -> None:
    put(index, 6, range(1, 4000), range(1, 4000))
    put(index, 7, range(0, 2000, 2), range(10**6, 10**6 + 1000))
    put(index, 8, [5], [9])
    expected = [(one, 10**6 + one // 2) for one in range(0, 2000, 2) if one >= first][:count]
    assert index.places(7, first, count) == expected
    assert index.places(9, first, count) == []


def test_the_last_of_a_ledger_with_one_entry_and_of_one_with_many(index: Index) -> None:
    put(index, 1, [4], [14])
    put(index, 2, range(5000), [77] * 5000)

    assert index.last(1) == (4, 14)
    assert index.last(2) == (4999, 77)
    assert (index.count(1), index.count(2)) == (1, 5000)


def test_all_ledgers_are_named_in_order(index: Index) -> None:
    ledger_ids = [*range(0, 7500, 3), ID_MAX]
    with index.change() as change:
        for ledger_id in reversed(ledger_ids):
            change.put(ledger_id, [0, 1], [1, 1])
        change.commit(STATE)

    assert list(index.ledgers()) == ledger_ids


# ── putting ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 2, 100, 5000])
@pytest.mark.parametrize("new", [5, 50_000], ids=["smaller", "larger"])
def test_an_entry_that_is_put_again_has_one_place(index: Index, count: int, new: int) -> None:
    put(index, 1, range(count), range(10_000, 10_000 + count))
    put(index, 1, range(count), range(new, new + count))

    assert index.count(1) == count
    assert index.places(1, 0, count + 1) == list(zip(range(count), range(new, new + count), strict=True))


def test_an_entry_may_be_put_at_its_own_place_again(index: Index) -> None:
    for _ in range(2):
        put(index, 1, [0, 1], [10, 11])

    assert everything(index) == {1: [(0, 10), (1, 11)]}


def test_one_change_may_put_an_entry_twice(index: Index) -> None:
    with index.change() as change:
        change.put(1, [0, 1], [10, 11])
        change.put(1, [1, 2], [21, 22])
        change.commit(STATE)

    assert everything(index) == {1: [(0, 10), (1, 21), (2, 22)]}


def test_entries_come_in_any_order(index: Index) -> None:
    put(index, 1, [100, 300], [1, 3])
    put(index, 1, [200], [2])
    put(index, 1, [0, 150, 300, 400], [9, 8, 7, 6])

    assert everything(index) == {1: [(0, 9), (100, 1), (150, 8), (200, 2), (300, 7), (400, 6)]}


def test_places_may_be_given_as_any_sequence(index: Index) -> None:
    put(index, 1, range(3), (7, 8, 9))
    put(index, 2, [], [])

    assert everything(index) == {1: [(0, 7), (1, 8), (2, 9)]}


def test_what_is_put_is_what_it_was_when_it_was_put(index: Index) -> None:
    entry_ids, locations = [0, 1], [10, 11]
    with index.change() as change:
        change.put(1, entry_ids, locations)
        entry_ids[:], locations[:] = [5, 6], [15, 16]
        change.commit(STATE)

    assert everything(index) == {1: [(0, 10), (1, 11)]}


@pytest.mark.parametrize(
    ("ledger_id", "entry_ids", "locations"),
    [
        (-1, [0], [1]),
        (1, [-1, 0], [1, 2]),
        (1, [0, 0], [1, 2]),
        (1, [1, 0], [1, 2]),
        (1, [0], [0]),
        (1, [0, 1], [1, -1]),
        (1, [0, 1], [1]),
    ],
)
def test_a_mistaken_put_is_refused(
    index: Index, ledger_id: int, entry_ids: list[int], locations: list[int]
) -> None:
    with index.change() as change, pytest.raises((AssertionError, ValueError)):
        change.put(ledger_id, entry_ids, locations)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_is_what_was_put(index: Index) -> None:
    put_rows(index, ROW)
    assert list(index.rows()) == [ROW]


def test_rows_come_by_ascending_ledger(index: Index) -> None:
    ledger_ids = [*range(0, 5200, 2), ID_MAX]
    put_rows(index, *(LedgerRow(ledger_id, 1) for ledger_id in reversed(ledger_ids)))
    put_rows(index, LedgerRow(3, 2))

    assert [row.ledger_id for row in index.rows()] == sorted([*ledger_ids, 3])


def test_a_row_takes_the_place_of_its_ledger_s(index: Index) -> None:
    put_rows(index, LedgerRow(6, 1), ROW, LedgerRow(8, 1))
    put_rows(index, LedgerRow(7, 40))
    assert list(index.rows()) == [LedgerRow(6, 1), LedgerRow(7, 40), LedgerRow(8, 1)]

    put_rows(index, LedgerRow(7, 41, explicit_lac=bytes(3000)))
    assert list(index.rows()) == [
        LedgerRow(6, 1),
        LedgerRow(7, 41, explicit_lac=bytes(3000)),
        LedgerRow(8, 1),
    ]


def test_of_two_rows_in_a_change_the_last_stays(index: Index) -> None:
    with index.change() as change:
        change.put_rows([LedgerRow(7, 1), LedgerRow(7, 2)])
        change.put_rows(iter([LedgerRow(7, 3)]))
        change.commit(None)

    assert list(index.rows()) == [LedgerRow(7, 3)]


def test_a_row_makes_no_place_and_a_place_no_row(index: Index) -> None:
    put_rows(index, ROW)
    put(index, 8, [0], [10])

    assert everything(index) == {8: [(0, 10)]}
    assert list(index.rows()) == [ROW]


def test_a_mistaken_row_is_refused(index: Index) -> None:
    with index.change() as change, pytest.raises(AssertionError):
        change.put_rows([LedgerRow(-1, 1)])


# ── removing ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 2, 100, 5000])
def test_of_a_removed_ledger_nothing_is_found(index: Index, count: int) -> None:
    for ledger_id in (4, 5, 6):
        put(index, ledger_id, range(count), [10] * count)
    remove(index, [5])

    assert list(index.ledgers()) == [4, 6]
    assert (index.find(5, 0), index.last(5), index.count(5), index.places(5, 0, 10)) == (None, None, 0, [])
    assert [index.count(4), index.count(6)] == [count, count]


def test_many_ledgers_are_removed_at_once_in_any_order(index: Index) -> None:
    with index.change() as change:
        for ledger_id in range(3000):
            change.put(ledger_id, [0, 1], [10, 11])
        change.commit(STATE)
    remove(index, Random(1).sample(range(2999), 2999))

    assert everything(index) == {2999: [(0, 10), (1, 11)]}


def test_a_ledger_without_a_place_may_be_removed(index: Index) -> None:
    put(index, 1, [0], [10])
    remove(index, [0, 2, ID_MAX])
    assert everything(index) == {1: [(0, 10)]}


@pytest.mark.parametrize("first", ["put", "remove"])
def test_what_a_change_puts_it_does_not_remove(index: Index, first: str) -> None:
    put(index, 5, [0, 1, 7], [10, 11, 17])
    put(index, 6, [0], [20])
    with index.change() as change:
        if first == "remove":
            change.remove([5, 6])
        change.put(5, [1, 2], [31, 32])
        if first == "put":
            change.remove([5])
            change.remove([6])
        change.commit(STATE)

    assert everything(index) == {5: [(1, 31), (2, 32)]}


def test_the_row_of_a_removed_ledger_stays(index: Index) -> None:
    put(index, ROW.ledger_id, [0], [10])
    put_rows(index, ROW)
    remove(index, [ROW.ledger_id])

    assert everything(index) == {}
    assert list(index.rows()) == [ROW]


def test_a_removed_ledger_may_come_again(index: Index) -> None:
    put(index, 5, range(1000), [10] * 1000)
    remove(index, [5])
    put(index, 5, [3], [13])

    assert everything(index) == {5: [(3, 13)]}


def test_a_mistaken_removal_is_refused(index: Index) -> None:
    with index.change() as change, pytest.raises(AssertionError):
        change.remove([1, -1])


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_state_is_committed_with_the_places(index: Index) -> None:
    assert index.state() == IndexState()
    with index.change() as change:
        change.put(1, [0], [10])
        change.commit(STATE)

    assert index.state() == STATE


def test_a_change_may_be_of_the_state_alone(index: Index) -> None:
    put(index, 1, [0], [10])
    with index.change() as change:
        change.commit(STATE)

    assert index.state() == STATE
    assert everything(index) == {1: [(0, 10)]}


def test_a_change_without_a_state_leaves_it_as_it_is(index: Index, place: IndexPlace) -> None:
    with index.change() as change:
        change.commit(STATE)
    with index.change() as change:
        change.put(1, [0], [10])
        change.commit(None)
    assert index.state() == STATE
    index.close()

    again = opened(place)
    assert (again.state(), everything(again)) == (STATE, {1: [(0, 10)]})
    again.close()


def test_a_state_may_speak_of_many_logs(index: Index) -> None:
    state = IndexState(1, log_ends={log_id: log_id * 1000 for log_id in range(20_000)})
    with index.change() as change:
        change.commit(state)

    assert index.state() == state


def test_nothing_is_seen_of_a_change_before_its_commit(index: Index) -> None:
    put(index, 1, [0], [10])
    with index.change() as change:
        change.remove([1])
        change.put(2, [0, 1], [20, 21])
        change.put_rows([ROW])
        assert (everything(index), list(index.rows())) == ({1: [(0, 10)]}, [])
        change.commit(STATE)
        assert (everything(index), list(index.rows())) == ({2: [(0, 20), (1, 21)]}, [ROW])


def test_a_change_that_is_not_committed_never_happened(index: Index, place: IndexPlace) -> None:
    put(index, 1, [0], [10])
    with index.change() as change:
        change.put(1, [0, 1], [20, 21])
        change.put_rows([ROW])
    with suppress(ZeroDivisionError), index.change() as change:
        change.remove([1])
        change.put(1, [0, 1], [30, 31])
        change.commit(IndexState(1 // 0))
    index.close()

    again = opened(place)
    assert everything(again) == {1: [(0, 10)]}
    assert list(again.rows()) == []
    assert again.state() == IndexState()
    again.close()


def test_what_was_committed_is_there_when_it_is_opened_again(index: Index, place: IndexPlace) -> None:
    with index.change() as change:
        change.put(1, range(300), range(10, 310))
        change.put_rows([ROW])
        change.commit(STATE)
    index.close()

    again = opened(place)
    assert list(again.rows()) == [ROW]
    assert everything(again) == {1: list(zip(range(300), range(10, 310), strict=True))}
    assert again.state() == STATE
    again.close()


@pytest.mark.parametrize("seed", range(12))
def test_any_history_leaves_what_was_put_last(place: IndexPlace, seed: int) -> None:
    dice = Random(seed)
    index, expected, rows = made(place), dict[int, dict[int, int]](), dict[int, LedgerRow]()
    for number in range(30):
        with index.change() as change:
            if dice.random() < 0.3:
                gone = dice.sample(range(200), dice.choice([1, 10, 150]))
                change.remove(gone)
                expected = {one: entries for one, entries in expected.items() if one not in gone}
            for ledger_id in dice.sample(range(200), dice.randint(0, 50)):
                rows[ledger_id] = LedgerRow(ledger_id, number, explicit_lac=bytes(dice.randrange(3000)))
                change.put_rows([rows[ledger_id]])
            for _ in range(dice.randint(0, 4)):
                ledger_id = dice.randrange(dice.choice([3, 200]))
                entry_ids = some_entries(dice)
                locations = [dice.randint(1, PLACE_MAX) for _ in entry_ids]
                change.put(ledger_id, entry_ids, locations)
                entries = expected.setdefault(ledger_id, {})
                entries.update(zip(entry_ids, locations, strict=True))
            change.commit(dice.choice([STATE, None]))
        if dice.random() < 0.2:
            index.close()
            index = opened(place)

    assert everything(index) == {one: sorted(expected[one].items()) for one in sorted(expected)}
    assert all(index.count(ledger_id) == len(entries) for ledger_id, entries in expected.items())
    assert list(index.rows()) == [rows[one] for one in sorted(rows)]
    index.close()


def some_entries(dice: Random) -> Sequence[int]:
    count = dice.choice([1, 3, 120, 130, 300, 900])
    if dice.random() < 0.5:
        first = dice.randrange(1500)
        return range(first, first + count)
    return sorted(dice.sample(range(3000), count))


# ── places of an index ───────────────────────────────────────────────────────────────────────────────────


def test_looking_for_an_index_makes_none(place: IndexPlace, directory: Directory) -> None:
    assert isinstance(place.open(), NoIndex)
    assert directory.names() == []


def test_a_draft_is_no_index_before_it_is_published(place: IndexPlace) -> None:
    draft = place.draft()
    with draft.change() as change:
        change.put(1, [0], [10])
        change.commit(STATE)
    assert isinstance(place.open(), NoIndex)

    index = draft.publish()
    assert everything(index) == {1: [(0, 10)]}
    index.close()
    draft.close()

    again = opened(place)
    assert (everything(again), again.state()) == ({1: [(0, 10)]}, STATE)
    again.close()


def test_a_draft_that_was_given_up_leaves_nothing_to_the_next(place: IndexPlace) -> None:
    for entry_id in (1, 2):
        draft = place.draft()
        with draft.change() as change:
            change.put(1, [entry_id], [10])
            change.commit(STATE)
        draft.close()
    assert isinstance(place.open(), NoIndex)

    index = made(place)
    assert everything(index) == {}
    index.close()


def test_what_had_the_name_is_kept_aside(place: IndexPlace, directory: Directory) -> None:
    for generation in (1, 2, 3):
        made(place, IndexState(generation)).close()
    assert directory.names() == ["index", "index.damaged"]

    newest = opened(place)
    assert newest.state().generation == 3
    newest.close()
    directory.rename("index", "elsewhere")
    directory.rename("index.damaged", "index")
    aside = opened(place)
    assert aside.state().generation == 2
    aside.close()


def test_a_closed_index_says_so(index: Index) -> None:
    put(index, 1, [0], [10])
    index.close()
    index.close()

    for asks in (
        lambda: index.find(1, 0),
        lambda: index.places(1, 0, 1),
        lambda: index.last(1),
        lambda: index.count(1),
        lambda: list(index.ledgers()),
        lambda: list(index.rows()),
        index.state,
    ):
        with pytest.raises(OSError, match="closed"):
            asks()
    with index.change() as change, pytest.raises(OSError, match="closed"):
        change.commit(STATE)


def test_an_index_can_be_synced(index: Index, place: IndexPlace) -> None:
    put(index, 1, [0], [10])
    index.sync()
    index.close()

    again = opened(place)
    assert everything(again) == {1: [(0, 10)]}
    again.close()
