"""The index in LMDB: its map, its file and its directories."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import traceback
from array import array
from collections import Counter
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import lmdb
import pytest

from storage.disk.posix import PosixDirectory
from storage.entry import ledger_record_format
from storage.entry.ledger_record import LedgerRecord
from storage.entry.model import ID_MAX
from storage.entry.read_result import Damaged, Flaw
from storage.errors import AlreadyOpen
from storage.index import state_format
from storage.index.lmdb import checksum_format, page_checksums
from storage.index.lmdb import index as index_module
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.lmdb.environment import PUT_AGAIN_MAX, IndexBatch, LmdbEnvironment, LocationRun
from storage.index.lmdb.index import LmdbChange, LmdbIndex
from storage.index.lmdb.page_checksums import PageChecksums
from storage.index.lmdb.page_snapshot import PageSnapshot
from storage.index.port import NoIndex
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from storage.disk.files import Directory
    from storage.index.lmdb.checksum_format import ChecksumRecord

MAP_SIZE = 1 << 20
PAGE = 4096


@pytest.fixture
def place(tmp_path: Path) -> LmdbIndexDirectory:
    """An index directory with the smallest possible map."""
    return LmdbIndexDirectory(PosixDirectory(tmp_path), tmp_path, MAP_SIZE)


@pytest.fixture
def index(place: LmdbIndexDirectory) -> Iterator[LmdbIndex]:
    new = made(place)
    yield new
    new.close()


@pytest.fixture
def data(index: LmdbIndex, tmp_path: Path) -> Path:
    """The path of LMDB's file of a few pages, which no process has open."""
    with index.change() as change:
        change.put(1, range(2000), range(1, 2001))
        change.commit(IndexState(1))
    index.close()
    return tmp_path / "index" / "data.mdb"


def made(place: LmdbIndexDirectory) -> LmdbIndex:
    draft = place.draft()
    with draft.change() as change:
        change.commit(IndexState())
    return draft.publish()


def opened(place: LmdbIndexDirectory) -> LmdbIndex:
    found = place.open()
    assert isinstance(found, LmdbIndex), found
    return found


def damage(place: LmdbIndexDirectory) -> Damaged:
    found = place.open()
    assert isinstance(found, Damaged), found
    return found


def inner(index: LmdbIndex) -> lmdb.Environment:
    return index._environment._environment


def put_rows(index: LmdbIndex, ledger_ids: Iterable[int]) -> None:
    with index.change() as change:
        change.put_rows(LedgerRecord(ledger_id, 1) for ledger_id in ledger_ids)
        change.commit(None)


def fill(index: LmdbIndex, generation: int, count: int = 20_000) -> None:
    """Commit a change in which each location equals the generation."""
    with index.change() as change:
        for ledger_id in range(3):
            change.put(ledger_id, range(count), [generation] * count)
        change.commit(IndexState(generation))


# ── the map ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_map_that_is_too_small_grows(index: LmdbIndex) -> None:
    for generation in range(1, 5):
        fill(index, generation)

    assert inner(index).info()["map_size"] > 3 * MAP_SIZE
    assert [index.count(ledger_id) for ledger_id in range(3)] == [20_000] * 3
    assert {place for _, place in index.locations(1, 0, 20_000)} == {4}


def test_a_change_is_repeated_as_a_whole_in_a_larger_map(index: LmdbIndex) -> None:
    with index.change() as change:
        change.put(1, range(1000), [7] * 1000)
        change.put_rows([LedgerRecord(1, 1)])
        change.commit(IndexState(1))
    with index.change() as change:
        change.remove([1])
        change.put(1, [5000], [8])
        change.put(2, range(200_000), [9] * 200_000)
        change.put_rows([LedgerRecord(1, 2)])
        change.commit(None)

    assert inner(index).info()["map_size"] > MAP_SIZE
    assert (index.locations(1, 0, 10), index.count(2)) == ([(5000, 8)], 200_000)
    assert (list(index.rows()), index.state()) == ([LedgerRecord(1, 2)], IndexState(1))


def test_a_draft_s_map_grows(place: LmdbIndexDirectory) -> None:
    draft = place.draft()
    with draft.change() as change:
        change.put(1, range(200_000), [7] * 200_000)
        change.commit(IndexState(1))
    index = draft.publish()

    assert index.count(1) == 200_000
    index.close()


def test_an_index_that_has_outgrown_the_map_opens_in_a_larger_one(
    place: LmdbIndexDirectory, index: LmdbIndex
) -> None:
    fill(index, 1)
    index.close()

    again = opened(place)
    fill(again, 2)
    assert again.last(2) == (19_999, 2)
    again.close()


def test_any_size_of_the_map_will_do(tmp_path: Path) -> None:
    index = made(LmdbIndexDirectory(PosixDirectory(tmp_path), tmp_path, 1))
    fill(index, 1)
    assert index.find(2, 19_999) == 1
    index.close()


def test_the_map_takes_no_space_on_the_disk(tmp_path: Path) -> None:
    made(LmdbIndexDirectory(PosixDirectory(tmp_path), tmp_path)).close()
    assert (tmp_path / "index" / "data.mdb").stat().st_size < 64 << 10


def test_readers_go_on_while_the_map_grows(index: LmdbIndex) -> None:
    environment, generations = index._environment, 6
    fill(index, 7, 10)
    reading = threading.Semaphore(0)
    seen: list[int] = []

    def read() -> None:
        generation = 0
        while generation < generations:
            # A state of many pages, whose first and last page hold the same number.
            state = environment.state()
            generation = state[0]
            assert state[-1] == generation
            assert len(state) == generation << 20 or not generation
            assert index.find(1, 9) == 7
            assert index.locations(2, 5, 99) == [(entry_id, 7) for entry_id in range(5, 10)]
            reading.release()
        seen.append(generation)

    threads = [threading.Thread(target=read) for _ in range(3)]
    environment.commit(IndexBatch(), bytes(1 << 10))
    for thread in threads:
        thread.start()
    for generation in range(1, generations + 1):
        reading.acquire()
        environment.commit(IndexBatch(), bytes([generation]) * (generation << 20))
    for thread in threads:
        thread.join()

    assert environment._environment.info()["map_size"] >= 16 * MAP_SIZE
    assert seen == [generations] * 3


class WouldWait(Exception):
    """Raised in the place of waiting."""


def wait(_: float) -> None:
    raise WouldWait


CALLS: dict[str, Callable[[LmdbIndex], object]] = {
    "find": lambda index: index.find(1, 5),
    "places": lambda index: index.locations(1, 0, 10),
    "last": lambda index: index.last(1),
    "count": lambda index: index.count(1),
    "ledgers": lambda index: list(index.ledgers()),
    "rows": lambda index: list(index.rows()),
    "state": lambda index: index.state(),
    "sync": lambda index: index.sync(),
    "commit": lambda index: index.change().commit(IndexState()),
}


@pytest.mark.parametrize("asks", CALLS.values(), ids=CALLS)
def test_no_reader_uses_the_map_while_it_is_replaced(
    index: LmdbIndex, monkeypatch: pytest.MonkeyPatch, asks: Callable[[LmdbIndex], object]
) -> None:
    monkeypatch.setattr("storage.index.lmdb.reader_barrier.time.sleep", wait)
    with index._environment._barrier.exclusive(), pytest.raises(WouldWait):
        asks(index)
    asks(index)
    with index._environment._barrier.exclusive():  # all readers have left
        pass


def test_the_map_is_not_replaced_while_a_reader_uses_it(
    index: LmdbIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = index._environment
    monkeypatch.setattr("storage.index.lmdb.reader_barrier.time.sleep", wait)
    with environment.reading(), pytest.raises(WouldWait) as kept:
        fill(index, 1, 30_000)
    assert index.state() == IndexState()
    assert is_over(transaction_of(kept, "_grow", "too_large"))


def test_a_commit_that_is_interrupted_leaves_no_transaction(index: LmdbIndex) -> None:
    mistaken = LocationRun(1, array("q", [1, 1]), array("q", [1, 1]))
    with pytest.raises(AssertionError) as kept:
        index._environment.commit(IndexBatch(runs=[mistaken]), b"")
    assert is_over(transaction_of(kept, "_attempt", "transaction"))
    assert index.count(1) == 0


def transaction_of(kept: pytest.ExceptionInfo[BaseException], function: str, name: str) -> Any:
    """Return a local variable of a function that raised an error."""
    return next(
        frame.f_locals[name] for frame, _ in traceback.walk_tb(kept.tb) if frame.f_code.co_name == function
    )


def is_over(transaction: lmdb.Transaction[bytes]) -> bool:
    try:
        transaction.id()
    except lmdb.Error:
        return True
    return False


NO_MEMORY = """
import resource, sys
from storage.index.state import IndexState
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.disk.posix import PosixDirectory

index = LmdbIndexDirectory(PosixDirectory(sys.argv[1]), sys.argv[1], 1 << 30).open()
with index.change() as change:
    change.put(1, range(1000), [7] * 1000)
    change.commit(IndexState(1))
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
try:
    index._environment._grow(index._environment._environment.begin(write=True))
except OSError as error:
    print(error.errno)
try:
    index.find(1, 1)
except OSError as error:
    print(error)
index.close()
print("closed it")
"""


def test_without_memory_for_a_larger_map_all_reads_are_refused(index: LmdbIndex, tmp_path: Path) -> None:
    index.close()
    told = run(NO_MEMORY, tmp_path).splitlines()
    assert told[0] == str(errno.ENOMEM)
    assert "closed" in told[1]
    assert told[2] == "closed it"


# ── closing ──────────────────────────────────────────────────────────────────────────────────────────────


def test_readers_in_other_threads_get_an_error_after_close(index: LmdbIndex) -> None:
    fill(index, 1)
    reading = threading.Semaphore(0)
    told: list[int | None] = []

    def read() -> None:
        try:
            while True:
                index.find(1, 5)
                index.locations(2, 0, 100)
                reading.release()
        except OSError as error:
            told.append(error.errno)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        reading.acquire()
    index.close()
    for thread in threads:
        thread.join()

    assert told == [errno.EBADF] * 3


LISTING: dict[str, Callable[[LmdbIndex], Iterator[int | LedgerRecord]]] = {
    "ledgers": lambda index: index.ledgers(),
    "rows": lambda index: index.rows(),
}


@pytest.mark.parametrize("lists", LISTING.values(), ids=LISTING)
def test_an_iteration_that_stops_in_the_middle_holds_no_snapshot(
    index: LmdbIndex, monkeypatch: pytest.MonkeyPatch, lists: Callable[[LmdbIndex], Iterator[object]]
) -> None:
    monkeypatch.setattr(index._environment._barrier, "_wait_max_s", 0)
    put_rows(index, range(3))
    fill(index, 1, 10)
    listed = lists(index)
    assert next(listed) in (0, LedgerRecord(0, 1))
    assert inner(index).readers().splitlines()[1].split()[-1] == "-"
    index.close()
    with pytest.raises(OSError, match="closed"):
        list(listed)


def test_ledgers_are_listed_a_part_at_a_time(index: LmdbIndex) -> None:
    with index.change() as change:
        for ledger_id in range(0, 6000, 2):
            change.put(ledger_id, [0], [1])
        change.commit(IndexState(1))
    ledgers = index.ledgers()
    first = next(ledgers)
    with index.change() as change:
        change.put(5001, [0], [1])
        change.commit(IndexState(2))
    assert [first, *ledgers] == sorted([*range(0, 6000, 2), 5001])


def test_rows_are_listed_a_part_at_a_time(index: LmdbIndex) -> None:
    put_rows(index, range(0, 6000, 2))
    rows = index.rows()
    first = next(rows)
    put_rows(index, [5001])
    assert [row.ledger_id for row in (first, *rows)] == sorted([*range(0, 6000, 2), 5001])


def test_the_largest_id_is_listed_after_a_full_part(index: LmdbIndex) -> None:
    ledger_ids = range(ID_MAX - 1000, ID_MAX + 1)
    put_rows(index, ledger_ids)
    with index.change() as change:
        for ledger_id in ledger_ids:
            change.put(ledger_id, [0], [1])
        change.commit(None)

    assert [row.ledger_id for row in index.rows()] == list(ledger_ids)
    assert list(index.ledgers()) == list(ledger_ids)


def test_an_error_keeps_no_snapshot(index: LmdbIndex) -> None:
    with pytest.raises(OSError, match="VALSIZE") as kept:
        index._environment.value_from(b"", b"")
    assert kept.value.errno == errno.EIO
    assert inner(index).readers().splitlines()[1].split()[-1] == "-"


# ── files that are no index ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.write_bytes(b"")])
def test_an_index_without_its_file_is_damaged_and_no_file_is_created(
    place: LmdbIndexDirectory, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "index")
    assert damage(place).flaw is Flaw.FILE_SHORT
    assert [path.name for path in tmp_path.rglob("*")] == ["index"]


def test_a_file_that_was_cut_anywhere_is_damaged(place: LmdbIndexDirectory, data: Path) -> None:
    whole = data.read_bytes()
    sizes = [*range(0, len(whole), PAGE), *(size - 1 for size in range(PAGE, len(whole) + 1, PAGE)), 100]
    for size in sizes:
        data.write_bytes(whole[:size])
        assert damage(place).flaw is Flaw.FILE_SHORT, size
        assert data.stat().st_size == size
    data.write_bytes(whole)
    opened(place).close()


def both_metas(offset: int, value: bytes) -> Callable[[bytes], bytes]:
    """Change bytes of both meta pages; offsets as in `storage.index.lmdb.meta_format`."""

    def change(whole: bytes) -> bytes:
        for start in (offset, PAGE + offset):
            whole = whole[:start] + value + whole[start + len(value) :]
        return whole

    return change


def second_meta(offset: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda whole: whole[: PAGE + offset] + value + whole[PAGE + offset + len(value) :]


def zeros(whole: bytes) -> bytes:
    return bytes(len(whole))


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], int, Flaw]] = {
    "zeros": (zeros, 0, Flaw.BAD_MAGIC),
    "another magic": (both_metas(16, b"\0"), 0, Flaw.BAD_MAGIC),
    "a later format": (both_metas(20, b"\3"), 0, Flaw.FUTURE_VERSION),
    "no second meta": (second_meta(0, bytes(PAGE)), PAGE, Flaw.BAD_MAGIC),
    "the root of all databases is elsewhere": (both_metas(128, b"\xee"), PAGE, Flaw.CHECKSUM),
    "no databases": (both_metas(128, b"\xff" * 8), PAGE + 88, Flaw.BAD_FIELD),
    "pages of two sizes": (second_meta(40, b"\0\x20"), PAGE, Flaw.BAD_FIELD),
    "a transaction of the other page": (both_metas(144, b"\x45"), 0, Flaw.OTHER_PLACE),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_is_no_index_is_damaged(place: LmdbIndexDirectory, data: Path, name: str) -> None:
    change, offset, flaw = DAMAGE[name]
    data.write_bytes(change(data.read_bytes()))

    found = damage(place)
    assert (found.offset, found.flaw) == (offset, flaw)


def test_a_file_is_as_long_as_its_newer_meta_page_states(place: LmdbIndexDirectory, data: Path) -> None:
    whole = data.read_bytes()
    metas = [int.from_bytes(whole[start : start + 8], sys.byteorder) for start in (144, PAGE + 144)]
    later = metas.index(max(metas)) * PAGE
    data.write_bytes(whole[: later + 136] + b"\xff" + whole[later + 137 :])
    assert damage(place).flaw is Flaw.FILE_SHORT

    earlier = PAGE - later
    data.write_bytes(whole[: earlier + 136] + b"\xff" + whole[earlier + 137 :])
    opened(place).close()


def create_file(path: Path, **databases: dict[bytes, bytes] | None) -> None:
    """Create an LMDB file with these databases, and its checksums; `None` means the flags of locations."""
    with lmdb.open(str(path / "index"), max_dbs=4) as environment:
        for name, content in databases.items():
            if content is None:
                environment.open_db(name.encode(), dupsort=True, dupfixed=True)
                continue
            database = environment.open_db(name.encode())
            with environment.begin(database, write=True) as transaction:
                for key, value in content.items():
                    transaction.put(key, value)
    write_checksums(path / "index")


def write_checksums(path: Path) -> None:
    """Write the checksums of an LMDB file that was made without our code."""
    directory = PosixDirectory(path)
    data = directory.open("data.mdb")
    pages = page_checksums.snapshot_all_pages(data)
    assert isinstance(pages, PageSnapshot), pages
    sums = PageChecksums(directory, data, pages)
    sums.rewrite()
    sums.close()


GOOD_STATE = state_format.encode(IndexState(3))
GOOD: dict[str, dict[bytes, bytes] | None] = {
    "places": None,
    "rows": {b"%8d" % 1: b"never looked at"},
    "state": {b"state": GOOD_STATE},
}


def without(name: str) -> dict[str, dict[bytes, bytes] | None]:
    return {one: content for one, content in GOOD.items() if one != name}


OTHER_FILES: dict[str, tuple[dict[str, Any], Flaw]] = {
    "nothing": ({}, Flaw.BAD_FIELD),
    "no places": (without("places"), Flaw.BAD_FIELD),
    "no rows": (without("rows"), Flaw.BAD_FIELD),
    "no state": (without("state"), Flaw.BAD_FIELD),
    "an empty state": (GOOD | {"state": {}}, Flaw.CHECKSUM),
    "a bad state": (GOOD | {"state": {b"state": GOOD_STATE[:-1] + b"x"}}, Flaw.CHECKSUM),
    "other places": (GOOD | {"places": {}}, Flaw.BAD_FIELD),
    "other rows": (GOOD | {"rows": None}, Flaw.BAD_FIELD),
    "another state": (GOOD | {"state": None}, Flaw.BAD_FIELD),
}


@pytest.mark.parametrize("name", OTHER_FILES)
def test_a_file_of_another_kind_is_damaged(
    place: LmdbIndexDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    databases, flaw = OTHER_FILES[name]
    create_file(tmp_path, **databases)
    environments = []

    def kept_open(*arguments: Any, **options: Any) -> lmdb.Environment:
        environments.append(lmdb.Environment(*arguments, **options))
        return environments[-1]

    monkeypatch.setattr(lmdb, "open", kept_open)
    assert damage(place).flaw is flaw
    # It was closed again, because LMDB opens no file twice in a process.
    assert damage(place).flaw is flaw
    assert len(environments) == 2


def test_a_file_whose_locations_may_differ_in_size_is_damaged(
    place: LmdbIndexDirectory, tmp_path: Path
) -> None:
    with lmdb.open(str(tmp_path / "index"), max_dbs=4) as environment:
        environment.open_db(b"places", dupsort=True)
    create_file(tmp_path, **without("places"))

    assert damage(place) == Damaged(0, Flaw.BAD_FIELD, "a database with other flags")


def test_an_error_of_lmdb_without_a_number_is_an_error_of_the_device(
    place: LmdbIndexDirectory, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_arguments: Any, **_options: Any) -> lmdb.Environment:
        raise lmdb.Error("without a number")

    monkeypatch.setattr(lmdb, "open", refused)
    with pytest.raises(OSError, match="without a number") as kept:
        place.open()
    assert kept.value.errno == errno.EIO


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """The room that each commit has reserved for its checksums, and what each record of them has taken."""
    prepared, written = list[int](), list[int]()
    prepare, encode = PageChecksums.prepare, checksum_format.encode

    def noting_prepare(sums: PageChecksums, size: int) -> None:
        prepared.append(size)
        prepare(sums, size)

    def noting_encode(record: ChecksumRecord, start: int) -> bytes:
        written.append(record.size)
        return encode(record, start)

    monkeypatch.setattr(PageChecksums, "prepare", noting_prepare)
    monkeypatch.setattr(checksum_format, "encode", noting_encode)
    return prepared, written


def test_the_room_for_checksums_is_enough_for_the_pages_of_a_large_state(
    index: LmdbIndex, room: tuple[list[int], list[int]]
) -> None:
    state = IndexState(1, last_log=0, log_ends=dict.fromkeys(range(300_000), 1 << 30))
    with index.change() as change:
        change.commit(state)

    prepared, written = room
    assert written[-1] <= prepared[-1]
    assert index.state() == state


def put_large(change: LmdbChange) -> None:
    """One ledger whose locations take six hundred pages."""
    change.put(1, range(150_000), range(1, 150_001))


def put_long(change: LmdbChange) -> None:
    """Ledgers of which as many entries are kept as are put again at once, and a hundred are not."""
    for ledger_id in range(16):
        change.put(ledger_id, range(100 + PUT_AGAIN_MAX), range(1, 101 + PUT_AGAIN_MAX))


def put_many(change: LmdbChange) -> None:
    """Ledgers that have one entry each."""
    for ledger_id in range(3000):
        change.put(ledger_id, [0], [1])


def put_records(change: LmdbChange) -> None:
    change.put_rows(LedgerRecord(ledger_id, 1) for ledger_id in range(20_000))


def move_many(change: LmdbChange) -> None:
    for ledger_id in range(3000):
        change.move(ledger_id, [0], [1], [2])


def move_large(change: LmdbChange) -> None:
    change.move(1, range(40_000), range(1, 40_001), range(7, 40_007))


def truncate_long(change: LmdbChange) -> None:
    for ledger_id in range(16):
        change.remove_before(ledger_id, 100)


LARGE_CHANGES: dict[str, tuple[Callable[[LmdbChange], None], Callable[[LmdbChange], None]]] = {
    "entries": (put_records, put_large),
    "ledgers": (put_records, put_many),
    "moves": (put_large, move_large),
    "moves of many ledgers": (put_many, move_many),
    "a removed ledger": (put_large, lambda change: change.remove([1])),
    "removed ledgers": (put_many, lambda change: change.remove(range(0, 3000, 2))),
    "a truncated ledger": (put_large, lambda change: change.remove_before(1, 149_990)),
    "truncated ledgers": (put_long, truncate_long),
    "records": (put_many, put_records),
    "removed records": (put_records, lambda change: change.remove_rows(range(0, 20_000, 2))),
}
"""Changes of many pages, with what the index has before them."""


@pytest.mark.parametrize("change_of", LARGE_CHANGES.values(), ids=LARGE_CHANGES)
def test_the_room_for_checksums_is_enough_for_the_pages_of_a_large_change(
    change_of: tuple[Callable[[LmdbChange], None], Callable[[LmdbChange], None]],
    index: LmdbIndex,
    room: tuple[list[int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Otherwise the padding would be room for hundreds of pages more.
    monkeypatch.setattr(checksum_format, "ALIGNMENT", 4)
    for generation, step in enumerate(change_of, 1):
        with index.change() as change:
            step(change)
            change.commit(IndexState(generation))
    prepared, written = room
    assert 0 < written[-1] <= prepared[-1]


def test_a_file_of_that_kind_is_an_index(place: LmdbIndexDirectory, tmp_path: Path) -> None:
    create_file(tmp_path, **GOOD)
    index = opened(place)
    assert index.state() == IndexState(3)
    index.close()


def test_a_damaged_state_is_an_error(index: LmdbIndex) -> None:
    index._environment.commit(IndexBatch(), GOOD_STATE[:-1] + b"x")
    with pytest.raises(OSError, match="checksum"):
        index.state()


def test_a_change_without_a_state_does_not_read_the_state(index: LmdbIndex) -> None:
    bad = GOOD_STATE[:-1] + b"x"
    index._commit(IndexBatch(), bad)
    put_rows(index, [1])
    assert index._environment.state() == bad
    assert list(index.rows()) == [LedgerRecord(1, 1)]


GOOD_ROW = ledger_record_format.encode(LedgerRecord(5, 1))
BAD_ROWS: dict[str, tuple[bytes, bytes, str]] = {
    "cut": (bytes(7) + b"\5", GOOD_ROW[:-1], "checksum"),
    "empty": (bytes(7) + b"\5", b"", "checksum"),
    "of another ledger": (bytes(7) + b"\6", GOOD_ROW, "belongs to ledger 5"),
    "under a longer key": (bytes(7) + b"\5\0", GOOD_ROW, "belongs to ledger 5"),
    "under a negative ledger": (b"\xff" * 8, GOOD_ROW, "belongs to ledger 5"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_damaged_row_is_an_error(index: LmdbIndex, name: str) -> None:
    key, value, told = BAD_ROWS[name]
    put_rows(index, [1])
    index._environment.commit(IndexBatch(rows={key: value}), None)
    with pytest.raises(OSError, match=told) as kept:
        list(index.rows())
    assert kept.value.errno == errno.EIO


@pytest.mark.parametrize("name", ["cut", "empty", "of another ledger", "under a negative ledger"])
def test_a_damaged_row_among_all_rows_is_an_error(index: LmdbIndex, name: str) -> None:
    key, value, told = BAD_ROWS[name]
    put_rows(index, [1])
    index._environment.commit(IndexBatch(rows={key: value}), None)
    with pytest.raises(OSError, match=told) as kept:
        index.all_rows({})
    assert kept.value.errno == errno.EIO


def test_a_damaged_index_is_kept_aside_by_the_new_one(
    place: LmdbIndexDirectory, data: Path, tmp_path: Path
) -> None:
    data.write_bytes(b"damaged")
    made(place).close()
    assert (tmp_path / "index.damaged" / "data.mdb").read_bytes() == b"damaged"
    opened(place).close()


def test_an_error_of_the_system_is_not_damage(place: LmdbIndexDirectory, index: LmdbIndex) -> None:
    with pytest.raises(AlreadyOpen, match="already open"):
        place.open()


# ── drafts ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_draft_of_a_killed_process_is_replaced(place: LmdbIndexDirectory, tmp_path: Path) -> None:
    draft = place.draft()
    with draft.change() as change:
        change.put(1, [1], [1])
        change.commit(IndexState(1))
    draft.close()
    (tmp_path / "index.draft" / "data.mdb").write_bytes(b"half made")
    assert isinstance(place.open(), NoIndex)

    index = made(place)
    assert list(index.ledgers()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]
    index.close()


def test_a_kill_between_the_two_renames_leaves_no_index_and_both_directories(
    place: LmdbIndexDirectory, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "index").rename(tmp_path / "index.damaged")
    assert isinstance(place.open(), NoIndex)

    made(place).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "index.damaged"]
    (tmp_path / "index").rename(tmp_path / "other")
    (tmp_path / "index.damaged").rename(tmp_path / "index")
    old = opened(place)
    assert old.count(1) == 2000
    old.close()


class RecordingDirectory(PosixDirectory):
    """Records the order in which names are changed and synced."""

    def __init__(self, path: str | os.PathLike[str], noted: list[str]) -> None:
        super().__init__(path)
        self._noted = noted

    def directory(self, name: str) -> Directory:
        return RecordingDirectory(f"{self.path}/{name}", self._noted)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self._noted.append(f"rename {old} {new}")

    def sync(self) -> None:
        super().sync()
        self._noted.append(f"sync {self.path.rpartition('/')[2]}")


def record_calls(monkeypatch: pytest.MonkeyPatch, verb: str, noted: list[str]) -> None:
    """Record each call of a method of the environment."""
    does = getattr(LmdbEnvironment, verb)

    def noting(environment: LmdbEnvironment) -> None:
        noted.append(verb)
        does(environment)

    monkeypatch.setattr(LmdbEnvironment, verb, noting)


def test_a_draft_s_names_are_durable_before_it_is_renamed_and_the_index_s_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    record_calls(monkeypatch, "sync", noted)
    record_calls(monkeypatch, "close", noted)
    place = LmdbIndexDirectory(RecordingDirectory(ledgers, noted), ledgers, MAP_SIZE)

    index = made(place)
    made_in_order = [
        "sync",
        "close",
        "rename sums.draft sums",
        "sync index.draft",
        "rename index.draft index",
        "sync ledgers",
    ]
    assert noted == made_in_order

    noted.clear()
    index.sync()
    assert noted == ["sync", "sync index", "sync ledgers"]

    noted.clear()
    index.close()
    made(place).close()
    aside = made_in_order.index("rename index.draft index")
    made_in_order.insert(aside, "rename index index.damaged")
    assert noted == ["close", *made_in_order, "close"]


def test_every_commit_is_synced_and_the_map_is_read_only(index: LmdbIndex) -> None:
    environment = inner(index)
    assert environment.flags()["sync"]
    assert environment.flags()["metasync"]
    assert not environment.flags()["writemap"]
    assert environment.flags()["lock"]


# ── other processes ──────────────────────────────────────────────────────────────────────────────────────


def run(program: str, *arguments: str | Path, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    ).stdout


class Child:
    """Run another process; kill it at the end."""

    def __init__(self, program: str, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()


@pytest.fixture
def children() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


COMMITTING = """
import sys
from itertools import count
from storage.index.state import IndexState
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.disk.posix import PosixDirectory
from storage.entry.ledger_record import LedgerRecord

index = LmdbIndexDirectory(PosixDirectory(sys.argv[1]), sys.argv[1], 1 << 20).open()
for generation in count(1):
    with index.change() as change:
        for ledger_id in range(3):
            change.put(ledger_id, range(500 * generation), [generation] * 500 * generation)
        change.remove([10 + generation - 1])
        change.put(10 + generation, range(1000), [generation] * 1000)
        change.put_rows([LedgerRecord(1, generation)])
        change.commit(IndexState(generation))
    print(generation, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [1, 7, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_process_leaves_whole_changes(
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path, children: ExitStack, acknowledged: int
) -> None:
    index.close()
    child = Child(COMMITTING, tmp_path)
    children.callback(child.kill)
    while int(child.line()) < acknowledged:
        pass
    child.kill()

    again = opened(place)
    generation = again.state().generation
    assert generation >= acknowledged
    assert list(again.ledgers()) == [0, 1, 2, 10 + generation]
    assert list(again.rows()) == [LedgerRecord(1, generation)]
    for ledger_id in range(3):
        assert again.locations(ledger_id, 0, 1 << 20) == [
            (one, generation) for one in range(500 * generation)
        ]
    again.sync()
    fill(again, generation + 1)
    again.close()


READING = """
import sys
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.disk.posix import PosixDirectory

index = LmdbIndexDirectory(PosixDirectory(sys.argv[1]), sys.argv[1]).open()
with index._environment.reading() as cursor:
    print(index.find(1, 5), flush=True)
    sys.stdin.read() if len(sys.argv) < 3 else None
print(index.find(1, 5), flush=True)
"""


def test_another_process_reads_beside_the_store(index: LmdbIndex, tmp_path: Path) -> None:
    fill(index, 9)
    assert run(READING, tmp_path, "at once").split() == ["9", "9"]


def test_a_reader_that_was_killed_keeps_no_page_from_being_used_again(
    index: LmdbIndex, tmp_path: Path, children: ExitStack
) -> None:
    fill(index, 1, 100)
    child = Child(READING, tmp_path)
    children.callback(child.kill)
    assert child.line() == "1"
    assert str(child.process.pid) in inner(index).readers()
    child.kill()
    assert str(child.process.pid) in inner(index).readers()

    fill(index, 2, 100)
    assert str(child.process.pid) not in inner(index).readers()


TOO_LARGE = """
import resource, sys
from storage.index.state import IndexState
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.disk.posix import PosixDirectory

index = LmdbIndexDirectory(PosixDirectory(sys.argv[1]), sys.argv[1]).open()
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    with index.change() as change:
        change.put(1, range(200_000), [7] * 200_000)
        change.commit(IndexState(7))
except OSError as error:
    print(error.errno)
print(index.state().generation, index.count(1))
index.close()
"""


def test_a_commit_that_the_system_refuses_raises_and_changes_nothing(
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path
) -> None:
    fill(index, 1, 100)
    index.close()
    # LMDB does not report the cause of a short write.
    assert run(TOO_LARGE, tmp_path).split() in ([str(one), "1", "100"] for one in (errno.EFBIG, errno.EIO))

    again = opened(place)
    assert again.count(1) == 100
    again.close()


MADE = """
import sys
from storage.index.state import IndexState
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.disk.posix import PosixDirectory

draft = LmdbIndexDirectory(PosixDirectory(sys.argv[1]), sys.argv[1]).draft()
with draft.change() as change:
    change.commit(IndexState(4))
draft.publish().close()
"""


def test_an_index_has_the_format_we_read_whatever_lmdb_prefers(
    place: LmdbIndexDirectory, tmp_path: Path
) -> None:
    run(MADE, tmp_path, LMDB_DEFAULT_LIB_VERSION="1")
    index = opened(place)
    assert index.state().generation == 4
    index.close()


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_change_is_over_after_its_commit(index: LmdbIndex) -> None:
    with index.change() as change:
        change.commit(IndexState(1))
        with pytest.raises(AssertionError, match="over"):
            change.put(1, [0], [1])
        with pytest.raises(AssertionError, match="over"):
            change.commit(IndexState(2))
    assert index.state() == IndexState(1)


def test_a_change_is_one_transaction(index: LmdbIndex) -> None:
    fill(index, 1, 10)
    before = inner(index).info()["last_txnid"]
    with index.change() as change:
        change.remove([0, 1])
        change.put(1, [5], [7])
        change.put_rows([LedgerRecord(1, 1)])
        change.commit(IndexState(2))
    assert inner(index).info()["last_txnid"] == before + 1


def test_overwriting_everything_again_and_again_takes_bounded_space(
    place: LmdbIndexDirectory, data: Path
) -> None:
    index = opened(place)
    sizes = []
    for generation in range(1, 25):
        fill(index, generation, 1000)
        sizes.append(data.stat().st_size)
    index.close()
    assert sizes[-1] < sizes[7] * 1.2


# ── the end of the file ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Create files of the same size in a tenth of the time."""
    monkeypatch.setattr(lmdb, "open", partial(lmdb.Environment, sync=False))


def removed(place: LmdbIndexDirectory, index: LmdbIndex, ledger_ids: Iterable[int]) -> LmdbIndex:
    """Return the reopened index after removing these ledgers."""
    with index.change() as change:
        change.remove(ledger_ids)
        change.commit(None)
    index.close()
    return opened(place)


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("ledgers", [24, 30, 36, 42])
def test_a_removal_that_empties_the_last_page_leaves_a_file_that_can_be_opened(
    place: LmdbIndexDirectory, index: LmdbIndex, ledgers: int
) -> None:
    with index.change() as change:
        for ledger_id in range(ledgers):
            change.put(ledger_id, range(60), [7] * 60)
        change.commit(None)
    index = removed(place, index, range(ledgers // 2, ledgers))
    index = removed(place, index, range(ledgers // 4, 3 * ledgers // 4))
    assert list(index.ledgers()) == list(range(ledgers // 4))
    index.close()


@pytest.mark.usefixtures("unsynced")
def test_a_removal_that_empties_most_pages_leaves_a_file_that_can_be_opened(
    place: LmdbIndexDirectory, index: LmdbIndex
) -> None:
    with index.change() as change:
        for ledger_id in range(1000):
            change.put(ledger_id, range(60), [7] * 60)
        change.commit(None)
    gone = Random(1).sample(range(1000), 950)
    index = removed(place, index, gone)
    assert list(index.ledgers()) == sorted({*range(1000)} - {*gone})
    index.close()


@pytest.mark.sampled(one_of=10)
@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("seed", range(150))
def test_a_file_is_never_shorter_than_its_meta_page_states(place: LmdbIndexDirectory, seed: int) -> None:
    dice, index, expected = Random(seed), made(place), set[int]()
    count = dice.randrange(2, 300)
    size = dice.choice([1, 20, 60, 60, 100, 126, 300] if count > 10 else [3000, 20_000, 70_000])
    for number in range(6):
        with index.change() as change:
            if number:
                gone = some_ledgers(dice, count)
                change.remove(gone)
                expected -= {*gone}
            if not number or dice.random() < 0.2:
                come = range(count) if not number else some_ledgers(dice, count)
                for ledger_id in come:
                    change.put(ledger_id, range(size), [7] * size)
                expected |= {*come}
            if dice.random() < 0.3:
                change.put_rows(
                    LedgerRecord(one, 1, explicit_lac=bytes(300)) for one in some_ledgers(dice, count)
                )
            change.commit(dice.choice([None, IndexState(number)]))
        index.close()
        index = opened(place)
        assert list(index.ledgers()) == sorted(expected)
    index.close()


@pytest.mark.sampled(one_of=6)
@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("seed", range(60))
def test_truncations_of_any_size_leave_a_file_that_can_be_opened(
    place: LmdbIndexDirectory, seed: int
) -> None:
    dice, index, ends = Random(seed), made(place), dict[int, tuple[int, int]]()
    for number in range(5):
        with index.change() as change:
            for ledger_id in range(dice.choice([1, 5, 40])):
                first, end = ends.get(ledger_id, (0, 0))
                more = dice.choice([0, 1, 60, 300, 9000]) if ledger_id < 2 else dice.choice([0, 1, 60, 300])
                change.put(ledger_id, range(end, end + more), [7] * more)
                if dice.random() < 0.7:
                    first = dice.choice([end + more, max(first, end - 5), (first + end) // 2])
                    change.remove_before(ledger_id, first)
                ends[ledger_id] = first, end + more
            change.commit(dice.choice([None, IndexState(number)]))
        index.close()
        index = opened(place)
        assert {one: (index.count(one)) for one in ends} == {
            one: end - first for one, (first, end) in ends.items()
        }
    index.close()


def some_ledgers(dice: Random, count: int) -> Sequence[int]:
    """Choose a range of ledgers, or scattered ledgers."""
    first = dice.randrange(count)
    if dice.random() < 0.7:
        return range(first, dice.randrange(first, count + 1))
    return dice.sample(range(count), first)


def test_an_index_whose_opening_fails_can_be_opened_again_in_the_same_process(
    place: LmdbIndexDirectory, index: LmdbIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patched:
        patched.setattr(PageChecksums, "record_commit", broken)
        with pytest.raises(OSError, match="broken"):
            fill(index, 1, 10)
    index.close()
    errors: list[OSError] = []
    of: type
    for of, name in ((LmdbEnvironment, "sync"), (PageChecksums, "rewrite")):
        with monkeypatch.context() as patched:
            patched.setattr(of, name, broken)
            with pytest.raises(OSError, match="broken") as caught:
                place.open()
        errors.append(caught.value)  # kept, because its traceback refers to what the opening has opened
    again = opened(place)
    assert again.state() == IndexState(1)
    again.close()


EMPTYING: dict[str, Callable[[LmdbChange], None]] = {
    "ledgers are removed": lambda change: change.remove([1]),
    "a ledger is truncated": lambda change: change.remove_before(1, 2),
    "rows are removed": lambda change: change.remove_rows([1]),
    "a location is replaced": lambda change: change.put(1, [0], [9]),
    "the only location of a ledger is replaced": lambda change: change.put(2, [0], [9]),
    "a location is moved": lambda change: change.move(1, [0], [7], [9]),
}


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("name", EMPTYING)
def test_a_commit_that_may_empty_pages_uses_up_what_is_left_of_them(index: LmdbIndex, name: str) -> None:
    def fillers() -> int:
        states = index._environment._states
        with inner(index).begin(states) as transaction:
            return int(transaction.stat(states)["entries"]) - 1

    with index.change() as change:
        change.put(1, range(3), [7] * 3)
        change.put(2, range(1), [7])
        change.put_rows([LedgerRecord(1, 1)])
        change.commit(IndexState(1))
    assert fillers() == 0
    with index.change() as change:
        EMPTYING[name](change)
        change.commit(IndexState(2))
    assert fillers() > 0


@pytest.mark.usefixtures("unsynced")
def test_every_location_is_counted_once_however_large_the_parts_are(
    index: LmdbIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {0: 3, 1: 25, 2: 4, 3: 10, 7: 11, 8: 1, 20: 30}
    with index.change() as change:
        for ledger_id, size in sizes.items():
            change.put(ledger_id, range(size), [(ledger_id << 32) + 7] * size)
        change.commit(None)
    for at_once in (1, 5, 10, 11, 29, 100):
        monkeypatch.setattr(index_module, "_COUNTED_AT_ONCE", at_once)
        counts = Counter[int]()
        for part in index.count_by_log():
            counts.update(part)
        assert counts == sizes
