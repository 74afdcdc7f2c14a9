"""The contract of `storage.index.port`, for LMDB and for the tests' own index."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest
from file_index import FileIndexPlace

from recovery.crashlab import SimulatedDisk
from storage.disk.posix import PosixDirectory
from storage.entry.ledger_record import KnownBy, LedgerRecord, Tombstone
from storage.entry.model import ID_MAX, DigestType
from storage.entry.position import JournalPosition, LogPosition
from storage.entry.read_result import Damaged
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.port import NoIndex
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from storage.disk.files import Directory
    from storage.index.port import Index, IndexDirectory

STATE = IndexState(7, JournalPosition(3, 8192), 1, {0: 4096, 1: 70_000}, 12_288)
PLACE_MAX = (2**31 - 1) << 32 | 0xFFFF_FFFF
ROW = LedgerRecord(
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
def place(directory: Directory, tmp_path: Path) -> IndexDirectory:
    if isinstance(directory, PosixDirectory):
        return LmdbIndexDirectory(directory, tmp_path)
    return FileIndexPlace(directory)


@pytest.fixture
def index(place: IndexDirectory) -> Iterator[Index]:
    """A new index without locations."""
    new = new_index(place)
    yield new
    new.close()


def new_index(place: IndexDirectory, state: IndexState = IndexState()) -> Index:  # noqa: B008 - frozen
    draft = place.draft()
    with draft.change() as change:
        change.commit(state)
    return draft.publish()


def opened(place: IndexDirectory) -> Index:
    found = place.open()
    assert not isinstance(found, NoIndex | Damaged), found
    return found


def put(index: Index, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
    with index.change() as change:
        change.put(ledger_id, entry_ids, locations)
        change.commit(index.state())


def put_rows(index: Index, *rows: LedgerRecord) -> None:
    with index.change() as change:
        change.put_rows(rows)
        change.commit(None)


def remove(index: Index, ledger_ids: Iterable[int]) -> None:
    with index.change() as change:
        change.remove(ledger_ids)
        change.commit(None)


def remove_before(index: Index, ledger_id: int, entry_id: int) -> None:
    with index.change() as change:
        change.remove_before(ledger_id, entry_id)
        change.commit(None)


def move(
    index: Index, ledger_id: int, entry_ids: Sequence[int], before: Sequence[int], after: Sequence[int]
) -> None:
    with index.change() as change:
        change.move(ledger_id, entry_ids, before, after)
        change.commit(None)


def locations_by_log(index: Index) -> dict[int, int]:
    counted: Counter[int] = Counter()
    for part in index.count_by_log():
        counted.update(part)
    return dict(counted)


def everything(index: Index) -> dict[int, list[tuple[int, int]]]:
    return {ledger_id: index.locations(ledger_id, 0, 1 << 20) for ledger_id in index.ledgers()}


# ── finding ──────────────────────────────────────────────────────────────────────────────────────────────


def test_locations_that_were_put_are_found_and_no_others(index: Index) -> None:
    put(index, 5, [0, 1, 7], [10, 11, 17])

    assert [index.find(5, entry_id) for entry_id in (0, 1, 2, 6, 7, 8)] == [10, 11, None, None, 17, None]
    assert index.find(4, 0) is None
    assert index.find(6, 0) is None


def test_an_entry_is_not_taken_for_one_of_the_next_ledger(index: Index) -> None:
    put(index, 5, [0], [10])
    put(index, 6, [9], [19])

    assert index.find(5, 9) is None
    assert index.locations(5, 1, 10) == []


def test_the_largest_ids_and_locations(index: Index) -> None:
    put(index, ID_MAX, [0, ID_MAX], [1, PLACE_MAX])

    assert index.find(ID_MAX, ID_MAX) == PLACE_MAX
    assert index.last(ID_MAX) == (ID_MAX, PLACE_MAX)
    assert list(index.ledgers()) == [ID_MAX]


def test_an_empty_index_has_no_locations(index: Index) -> None:
    assert index.find(0, 0) is None
    assert index.locations(0, 0, 10) == []
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
def test_locations_returns_the_next_entries_up_to_a_count(
    index: Index, first: int, count: int, expected: list[tuple[int, int]]
) -> None:
    put(index, 5, [2, 3, 9], [12, 13, 19])
    put(index, 6, [0], [99])

    assert index.locations(5, first, count) == expected


@pytest.mark.sampled(one_of=6)
@pytest.mark.parametrize("count", [1, 255, 256, 257, 600, 5000])
@pytest.mark.parametrize("first", [0, 1, 500, 999, 1000, 1001, 1999, 2000, ID_MAX])
def test_the_location_of_the_following_entry_is_a_hint(index: Index, first: int, count: int) -> None:
    put(index, 6, range(1, 4000), range(1, 4000))
    put(index, 7, range(0, 2000, 2), range(10**6, 10**6 + 1000))
    put(index, 8, [5], [9])
    expected = [(one, 10**6 + one // 2) for one in range(0, 2000, 2) if one >= first][:count]
    assert index.locations(7, first, count) == expected
    assert index.locations(9, first, count) == []


def test_the_last_entry_of_a_ledger_with_one_entry_and_with_many(index: Index) -> None:
    put(index, 1, [4], [14])
    put(index, 2, range(5000), [77] * 5000)

    assert index.last(1) == (4, 14)
    assert index.last(2) == (4999, 77)
    assert (index.count(1), index.count(2)) == (1, 5000)


def test_all_ledgers_are_listed_in_order(index: Index) -> None:
    ledger_ids = [*range(0, 7500, 3), ID_MAX]
    with index.change() as change:
        for ledger_id in reversed(ledger_ids):
            change.put(ledger_id, [0, 1], [1, 1])
        change.commit(STATE)

    assert list(index.ledgers()) == ledger_ids


# ── putting ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 2, 100, 5000])
@pytest.mark.parametrize("new", [5, 50_000], ids=["smaller", "larger"])
def test_an_entry_that_is_put_again_has_one_location(index: Index, count: int, new: int) -> None:
    put(index, 1, range(count), range(10_000, 10_000 + count))
    put(index, 1, range(count), range(new, new + count))

    assert index.count(1) == count
    assert index.locations(1, 0, count + 1) == list(zip(range(count), range(new, new + count), strict=True))


def test_an_entry_may_be_put_again_at_the_same_location(index: Index) -> None:
    for _ in range(2):
        put(index, 1, [0, 1], [10, 11])

    assert everything(index) == {1: [(0, 10), (1, 11)]}


def test_one_change_may_put_an_entry_twice(index: Index) -> None:
    with index.change() as change:
        change.put(1, [0, 1], [10, 11])
        change.put(1, [1, 2], [21, 22])
        change.commit(STATE)

    assert everything(index) == {1: [(0, 10), (1, 21), (2, 22)]}


def test_entries_may_be_put_in_any_order(index: Index) -> None:
    put(index, 1, [100, 300], [1, 3])
    put(index, 1, [200], [2])
    put(index, 1, [0, 150, 300, 400], [9, 8, 7, 6])

    assert everything(index) == {1: [(0, 9), (100, 1), (150, 8), (200, 2), (300, 7), (400, 6)]}


def test_locations_may_be_put_as_any_sequence(index: Index) -> None:
    put(index, 1, range(3), (7, 8, 9))
    put(index, 2, [], [])

    assert everything(index) == {1: [(0, 7), (1, 8), (2, 9)]}


def test_a_put_copies_its_arguments(index: Index) -> None:
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
def test_an_invalid_put_is_refused(
    index: Index, ledger_id: int, entry_ids: list[int], locations: list[int]
) -> None:
    with index.change() as change, pytest.raises((AssertionError, ValueError)):
        change.put(ledger_id, entry_ids, locations)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_reads_back_from_the_index(index: Index) -> None:
    put_rows(index, ROW)
    assert list(index.rows()) == [ROW]


def test_rows_come_by_ascending_ledger(index: Index) -> None:
    ledger_ids = [*range(0, 5200, 2), ID_MAX]
    put_rows(index, *(LedgerRecord(ledger_id, 1) for ledger_id in reversed(ledger_ids)))
    put_rows(index, LedgerRecord(3, 2))

    assert [row.ledger_id for row in index.rows()] == sorted([*ledger_ids, 3])


def test_a_row_replaces_the_row_of_its_ledger(index: Index) -> None:
    put_rows(index, LedgerRecord(6, 1), ROW, LedgerRecord(8, 1))
    put_rows(index, LedgerRecord(7, 40))
    assert list(index.rows()) == [LedgerRecord(6, 1), LedgerRecord(7, 40), LedgerRecord(8, 1)]

    put_rows(index, LedgerRecord(7, 41, explicit_lac=bytes(3000)))
    assert list(index.rows()) == [
        LedgerRecord(6, 1),
        LedgerRecord(7, 41, explicit_lac=bytes(3000)),
        LedgerRecord(8, 1),
    ]


def test_the_last_of_two_rows_in_a_change_stays(index: Index) -> None:
    with index.change() as change:
        change.put_rows([LedgerRecord(7, 1), LedgerRecord(7, 2)])
        change.put_rows(iter([LedgerRecord(7, 3)]))
        change.commit(None)

    assert list(index.rows()) == [LedgerRecord(7, 3)]


def test_a_row_adds_no_location_and_a_location_no_row(index: Index) -> None:
    put_rows(index, ROW)
    put(index, 8, [0], [10])

    assert everything(index) == {8: [(0, 10)]}
    assert list(index.rows()) == [ROW]


def test_an_invalid_row_is_refused(index: Index) -> None:
    with index.change() as change, pytest.raises(AssertionError):
        change.put_rows([LedgerRecord(-1, 1)])


# ── removing ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 2, 100, 5000])
def test_a_removed_ledger_has_no_locations(index: Index, count: int) -> None:
    for ledger_id in (4, 5, 6):
        put(index, ledger_id, range(count), [10] * count)
    remove(index, [5])

    assert list(index.ledgers()) == [4, 6]
    assert (index.find(5, 0), index.last(5), index.count(5), index.locations(5, 0, 10)) == (None, None, 0, [])
    assert [index.count(4), index.count(6)] == [count, count]


def test_many_ledgers_are_removed_at_once_in_any_order(index: Index) -> None:
    with index.change() as change:
        for ledger_id in range(3000):
            change.put(ledger_id, [0, 1], [10, 11])
        change.commit(STATE)
    remove(index, Random(1).sample(range(2999), 2999))

    assert everything(index) == {2999: [(0, 10), (1, 11)]}


def test_a_ledger_without_a_location_may_be_removed(index: Index) -> None:
    put(index, 1, [0], [10])
    remove(index, [0, 2, ID_MAX])
    assert everything(index) == {1: [(0, 10)]}


@pytest.mark.parametrize("first", ["put", "remove"])
def test_a_change_does_not_remove_what_it_puts(index: Index, first: str) -> None:
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


def test_a_removed_ledger_may_be_put_again(index: Index) -> None:
    put(index, 5, range(1000), [10] * 1000)
    remove(index, [5])
    put(index, 5, [3], [13])

    assert everything(index) == {5: [(3, 13)]}


def test_an_invalid_removal_is_refused(index: Index) -> None:
    with index.change() as change, pytest.raises(AssertionError):
        change.remove([1, -1])


# ── truncating ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("count", [1, 2, 100, 6000, 20_000])
@pytest.mark.parametrize("kept", [0, 1, 50, 4096, 4097, 5999])
def test_a_truncated_ledger_has_the_locations_of_the_entries_that_are_left(
    index: Index, count: int, kept: int
) -> None:
    put(index, 4, [0, 1], [7, 7])
    put(index, 5, range(count), range(10, 10 + count))
    put(index, 6, [0], [8])
    first = max(0, count - kept)
    remove_before(index, 5, first)

    assert index.locations(5, 0, count) == [(one, 10 + one) for one in range(first, count)]
    assert index.count(5) == count - first
    assert list(index.ledgers()) == [4, *([5] if first < count else []), 6]
    assert everything(index)[4] == [(0, 7), (1, 7)]


@pytest.mark.parametrize(
    ("before", "left"), [(0, [2, 3, 9]), (2, [2, 3, 9]), (3, [3, 9]), (4, [9]), (10, [])]
)
def test_a_truncation_may_begin_at_an_entry_that_is_missing(
    index: Index, before: int, left: list[int]
) -> None:
    put(index, 5, [2, 3, 9], [12, 13, 19])
    remove_before(index, 5, before)
    remove_before(index, 6, before)

    assert [entry_id for entry_id, _ in index.locations(5, 0, 10)] == left


def test_a_truncation_covers_what_its_change_puts(index: Index) -> None:
    with index.change() as change:
        change.remove_before(5, 3)
        change.put(5, range(5), range(1, 6))
        change.remove_before(5, 2)
        change.commit(None)
    assert index.locations(5, 0, 10) == [(3, 4), (4, 5)]
    put(index, 5, [0], [1])
    assert index.locations(5, 0, 10) == [(0, 1), (3, 4), (4, 5)]


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_state_is_committed_with_the_locations(index: Index) -> None:
    assert index.state() == IndexState()
    with index.change() as change:
        change.put(1, [0], [10])
        change.commit(STATE)

    assert index.state() == STATE


def test_a_change_may_change_only_the_state(index: Index) -> None:
    put(index, 1, [0], [10])
    with index.change() as change:
        change.commit(STATE)

    assert index.state() == STATE
    assert everything(index) == {1: [(0, 10)]}


def test_a_change_without_a_state_keeps_the_state(index: Index, place: IndexDirectory) -> None:
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


def test_a_state_may_name_many_logs(index: Index) -> None:
    state = IndexState(1, log_ends={log_id: log_id * 1000 for log_id in range(20_000)})
    with index.change() as change:
        change.commit(state)

    assert index.state() == state


def test_no_reader_sees_a_change_before_its_commit(index: Index) -> None:
    put(index, 1, [0], [10])
    with index.change() as change:
        change.remove([1])
        change.put(2, [0, 1], [20, 21])
        change.put_rows([ROW])
        assert (everything(index), list(index.rows())) == ({1: [(0, 10)]}, [])
        change.commit(STATE)
        assert (everything(index), list(index.rows())) == ({2: [(0, 20), (1, 21)]}, [ROW])


def test_a_change_without_a_commit_changes_nothing(index: Index, place: IndexDirectory) -> None:
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


def test_committed_changes_are_found_after_reopening(index: Index, place: IndexDirectory) -> None:
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


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("seed", range(12))
def test_any_history_leaves_what_was_put_last(place: IndexDirectory, seed: int) -> None:
    dice = Random(seed)
    index, expected, rows = new_index(place), dict[int, dict[int, int]](), dict[int, LedgerRecord]()
    for number in range(30):
        with index.change() as change:
            if dice.random() < 0.3:
                gone = dice.sample(range(200), dice.choice([1, 10, 150]))
                change.remove(gone)
                expected = {one: entries for one, entries in expected.items() if one not in gone}
            for ledger_id in dice.sample(range(200), dice.randint(0, 50)):
                rows[ledger_id] = LedgerRecord(ledger_id, number, explicit_lac=bytes(dice.randrange(3000)))
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


# ── directories of an index ──────────────────────────────────────────────────────────────────────────────


def test_opening_a_missing_index_creates_none(place: IndexDirectory, directory: Directory) -> None:
    assert isinstance(place.open(), NoIndex)
    assert directory.names() == []


def test_a_draft_is_no_index_before_it_is_published(place: IndexDirectory) -> None:
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


def test_a_draft_that_was_given_up_leaves_nothing_in_the_next(place: IndexDirectory) -> None:
    for entry_id in (1, 2):
        draft = place.draft()
        with draft.change() as change:
            change.put(1, [entry_id], [10])
            change.commit(STATE)
        draft.close()
    assert isinstance(place.open(), NoIndex)

    index = new_index(place)
    assert everything(index) == {}
    index.close()


def test_the_old_index_is_kept_aside(place: IndexDirectory, directory: Directory) -> None:
    for generation in (1, 2, 3):
        new_index(place, IndexState(generation)).close()
    assert directory.names() == ["index", "index.damaged"]

    newest = opened(place)
    assert newest.state().generation == 3
    newest.close()
    directory.rename("index", "elsewhere")
    directory.rename("index.damaged", "index")
    aside = opened(place)
    assert aside.state().generation == 2
    aside.close()


def test_a_closed_index_raises_an_error(index: Index) -> None:
    put(index, 1, [0], [10])
    index.close()
    index.close()

    for asks in (
        lambda: index.find(1, 0),
        lambda: index.locations(1, 0, 1),
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


def test_an_index_can_be_synced(index: Index, place: IndexDirectory) -> None:
    put(index, 1, [0], [10])
    index.sync()
    index.close()

    again = opened(place)
    assert everything(again) == {1: [(0, 10)]}
    again.close()


# ── moving ───────────────────────────────────────────────────────────────────────────────────────────────


def test_moved_entries_have_their_new_locations(index: Index) -> None:
    put(index, 5, [0, 1, 2, 3], [10, 11, 12, 13])

    move(index, 5, [1, 2], [11, 12], [91, 82])

    assert index.locations(5, 0, 9) == [(0, 10), (1, 91), (2, 82), (3, 13)]


def test_an_entry_that_has_another_location_by_now_is_not_moved(index: Index) -> None:
    put(index, 5, [0, 1, 2], [10, 99, 12])

    move(index, 5, [0, 1, 2], [10, 11, 12], [90, 91, 92])

    assert index.locations(5, 0, 9) == [(0, 90), (1, 99), (2, 92)]


def test_an_entry_without_a_location_gets_none_by_a_move(index: Index) -> None:
    put(index, 5, [0], [10])

    move(index, 5, [0, 1], [10, 11], [90, 91])
    move(index, 6, [0], [10], [90])

    assert everything(index) == {5: [(0, 90)]}


def test_the_only_entry_of_a_ledger_is_moved(index: Index) -> None:
    for ledger_id in range(300):
        put(index, ledger_id, [0], [10 + ledger_id])
    with index.change() as change:
        for ledger_id in range(300):
            change.move(ledger_id, [0], [10 + ledger_id], [5000 + ledger_id])
        change.commit(None)

    assert everything(index) == {one: [(0, 5000 + one)] for one in range(300)}


def test_entries_of_a_ledger_that_the_same_change_removes_are_not_moved(index: Index) -> None:
    put(index, 5, [0], [10])
    with index.change() as change:
        change.move(5, [0], [10], [90])
        change.remove([5])
        change.commit(None)

    assert everything(index) == {}


def test_a_move_that_is_not_committed_changes_nothing(index: Index) -> None:
    put(index, 5, [0], [10])
    with index.change() as change:
        change.move(5, [0], [10], [90])

    assert index.find(5, 0) == 10


def test_an_index_reopens_after_moves_of_any_of_its_entries(place: IndexDirectory) -> None:
    dice = Random(7)
    index, model = new_index(place), dict[int, dict[int, int]]()
    for ledger_id, count in enumerate((1, 2, 255, 256, 700)):
        model[ledger_id] = {one: 1 + one for one in range(count)}
        put(index, ledger_id, range(count), range(1, count + 1))
    for turn in range(1, 6):
        with index.change() as change:
            for ledger_id, entries in model.items():
                some = sorted(dice.sample(sorted(entries), dice.randint(1, len(entries))))
                after = [turn << 32 | 1 + one for one in some]
                change.move(ledger_id, some, [entries[one] for one in some], after)
                entries.update(zip(some, after, strict=True))
            change.commit(None)
        index.close()
        index = opened(place)
        assert everything(index) == {one: sorted(entries.items()) for one, entries in model.items()}
    index.close()


# ── rows that are removed ────────────────────────────────────────────────────────────────────────────────


def test_rows_are_removed_and_others_stay(index: Index) -> None:
    put_rows(index, *(LedgerRecord(one, 1) for one in range(5)))
    put(index, 3, [0], [10])
    with index.change() as change:
        change.remove_rows([1, 3, 77])
        change.commit(None)

    assert [row.ledger_id for row in index.rows()] == [0, 2, 4]
    assert index.find(3, 0) == 10


def test_a_row_that_the_same_change_puts_stays(index: Index) -> None:
    put_rows(index, LedgerRecord(1, 1))
    with index.change() as change:
        change.put_rows([LedgerRecord(1, 2)])
        change.remove_rows([1])
        change.commit(None)

    assert list(index.rows()) == [LedgerRecord(1, 2)]


# ── counting by log ──────────────────────────────────────────────────────────────────────────────────────


def test_the_locations_in_each_log_are_counted(index: Index) -> None:
    assert locations_by_log(index) == {}
    put(index, 5, [0, 1, 2], [1 << 32 | 5, 7 << 32 | 5, 1 << 32 | 9])
    put(index, 6, [0, 9], [7 << 32 | 50, PLACE_MAX])
    put(index, ID_MAX, [ID_MAX], [7])

    assert locations_by_log(index) == {0: 1, 1: 2, 7: 2, PLACE_MAX >> 32: 1}


def test_the_locations_of_large_ledgers_are_counted_in_parts(index: Index) -> None:
    put(index, 4, range(3), range(1, 4))
    put(index, 5, range(70_000), [(one // 30_000) << 32 | 1 + one for one in range(70_000)])
    put(index, 6, range(40_000), [9 << 32 | 1 + one for one in range(40_000)])
    put(index, 7, range(3), range(1, 4))

    assert locations_by_log(index) == {0: 30_006, 1: 30_000, 2: 10_000, 9: 40_000}
    assert all(sum(part.values()) <= 70_000 for part in index.count_by_log())
