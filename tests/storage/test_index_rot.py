"""Rot in the index: nothing of it is read, and no process dies of it."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING, Any

import lmdb
import pytest
from journals import flip
from lmdb_images import PAGE, fill, head_of, live_pages, unsynced

from storage.index_state import IndexState
from storage.lmdb_environment import LmdbEnvironment
from storage.lmdb_index import LmdbIndex
from storage.lmdb_place import LmdbPlace
from storage.outcome import Damaged, Flaw
from storage.posix_files import PosixDirectory, PosixWriteFile, open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from storage.row import LedgerRow

    Everything = tuple[dict[int, list[tuple[int, int]]], list[LedgerRow], IndexState]

MAP_SIZE = 1 << 20


@pytest.fixture
def place(tmp_path: Path) -> LmdbPlace:
    return LmdbPlace(PosixDirectory(tmp_path), tmp_path, MAP_SIZE)


@pytest.fixture
def index(place: LmdbPlace) -> Iterator[LmdbIndex]:
    """An index with a little of everything."""
    draft = place.draft()
    with draft.change() as change:
        change.commit(IndexState())
    new = draft.publish()
    dice = Random(2)
    for generation in range(1, 5):
        grow(new, dice, generation)
    yield new
    new.close()


def grow(index: LmdbIndex, dice: Random, generation: int) -> None:
    with index.change() as change:
        fill(change, dice, ledgers=12, counts=(1, 20, 126, 500))
        change.commit(IndexState(generation))


def everything(index: LmdbIndex) -> Everything:
    places = {one: index.places(one, 0, 1 << 20) for one in index.ledgers()}
    return places, list(index.rows()), index.state()


def opened(found: object) -> LmdbIndex:
    assert isinstance(found, LmdbIndex), found
    return found


def files(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in (path / "index").iterdir() if one.name != "lock.mdb"}


def ahead(index: LmdbIndex, path: Path) -> None:
    """Leaves the index as a kill does between LMDB's commit and its checksums."""
    before = (path / "index" / "sums").read_bytes()
    grow(index, Random(9), 9)
    index.close()
    (path / "index" / "sums").write_bytes(before)


# ── every block of LMDB's file ───────────────────────────────────────────────────────────────────────────

LOOKS = """
import sys
from functools import partial
from pathlib import Path
from random import Random
import lmdb
from storage import posix_files
from storage.index_state import IndexState
from storage.lmdb_place import LmdbPlace
from storage.outcome import Damaged
from storage.posix_files import PosixDirectory

lmdb.open = partial(lmdb.Environment, sync=False)  # the same file, in a tenth of the time
posix_files._sync = lambda *_: None
path, dice, block = Path(sys.argv[1]), Random(1), 512
data = path / "index" / "data.mdb"
whole, sums = data.read_bytes(), (path / "index" / "sums").read_bytes()

def everything(index):
    return {one: index.places(one, 0, 1 << 20) for one in index.ledgers()}, list(index.rows()), index.state()

def looked_at():
    index = LmdbPlace(PosixDirectory(path), path, 1 << 20).open()
    if isinstance(index, Damaged):
        return None
    seen = [everything(index)]
    for number in range(2):  # what LMDB trusts when it writes
        with index.change() as change:
            change.put(number, range(9000, 9100), range(1, 101))
            change.commit(IndexState(100 + number))
        seen.append(everything(index))
    index.close()
    data.write_bytes(whole)
    (path / "index" / "sums").write_bytes(sums)
    return seen

def changes(at):
    old, other = whole[at : at + block], dice.randrange(len(whole) // block) * block
    bit = dice.randrange(8 * block)
    yield "flipped", old[: bit // 8] + bytes([old[bit // 8] ^ 1 << bit % 8]) + old[bit // 8 + 1 :]
    yield "zeros", bytes(block)
    yield "misdirected", whole[other : other + block]

good, noticed = looked_at(), 0
for at in range(0, len(whole), block):
    for name, changed in changes(at):
        print(at, name, file=sys.stderr, flush=True)
        data.write_bytes(whole[:at] + changed + whole[at + block :])
        seen = looked_at()
        noticed += seen is None
        assert seen in (None, good), (at, name)
print(noticed)
"""


@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_no_damaged_block_is_read_and_none_ends_the_process(
    index: LmdbIndex, tmp_path: Path, ended: str
) -> None:
    if ended == "closed":
        index.close()
    else:
        (tmp_path / "index" / "lock.mdb").rename(tmp_path / "the lock of a process that is gone")
    result = subprocess.run(
        [sys.executable, "-c", LOOKS, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr.splitlines()[-3:]
    assert int(result.stdout) > 100


def test_every_bit_in_front_of_each_page_that_counts_is_looked_at(
    place: LmdbPlace, index: LmdbIndex, tmp_path: Path
) -> None:
    index.close()
    data = tmp_path / "index" / "data.mdb"
    whole, dice = data.read_bytes(), Random(4)
    with open_file(data) as file:
        live = live_pages(file)
    for page in live:
        for bit in [*range(16 * 8), *(dice.randrange(PAGE * 8) for _ in range(9))]:
            data.write_bytes(flip(whole, page * PAGE + bit // 8, bit % 8))
            found = place.open()
            assert isinstance(found, Damaged)
            assert (found.offset, found.flaw) == (page * PAGE, Flaw.CHECKSUM)


def test_a_page_as_it_was_before_is_damaged(place: LmdbPlace, index: LmdbIndex, tmp_path: Path) -> None:
    """A write that the disk has lost."""
    data = tmp_path / "index" / "data.mdb"
    old = data.read_bytes()
    for generation in range(6, 10):
        grow(index, Random(generation), generation)
    index.close()
    new = data.read_bytes()
    with open_file(data) as file:
        live = live_pages(file)
    stale = [page for page in live if page * PAGE < len(old) and page_of(old, page) != page_of(new, page)]
    assert stale
    for page in stale:
        data.write_bytes(new[: page * PAGE] + page_of(old, page) + new[(page + 1) * PAGE :])
        assert isinstance(place.open(), Damaged)


def page_of(data: bytes, page: int) -> bytes:
    return data[page * PAGE : (page + 1) * PAGE]


# ── the checksums themselves ─────────────────────────────────────────────────────────────────────────────

LOST: dict[str, Callable[[Path], object]] = {
    "missing": lambda sums: sums.unlink(),
    "empty": lambda sums: sums.write_bytes(b""),
    "zeros": lambda sums: sums.write_bytes(bytes(9000)),
    "cut in the first record": lambda sums: sums.write_bytes(sums.read_bytes()[:3000]),
    "flipped in the first record": lambda sums: sums.write_bytes(flip(sums.read_bytes(), 60, 1)),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
def test_an_index_without_its_checksums_is_damaged(
    place: LmdbPlace, index: LmdbIndex, tmp_path: Path, lose: Callable[[Path], object]
) -> None:
    index.close()
    lose(tmp_path / "index" / "sums")
    assert isinstance(place.open(), Damaged)
    assert isinstance(place.view(), Damaged)


def test_a_commit_whose_checksums_are_torn_is_believed_and_gets_them(
    place: LmdbPlace, index: LmdbIndex, tmp_path: Path
) -> None:
    sums = tmp_path / "index" / "sums"
    grow(index, Random(6), 6)
    seen, end = everything(index), len(sums.read_bytes().rstrip(b"\0"))
    index.close()
    whole = sums.read_bytes()
    for cut in range(end - 40, end, 3):
        sums.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        again = opened(place.open())
        assert everything(again) == seen
        again.close()
        again = opened(place.open())
        assert again._sums is not None
        assert not again._sums.is_ahead
        again.close()


def test_what_a_kill_left_without_checksums_is_durable_before_it_gets_them(
    place: LmdbPlace, index: LmdbIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead(index, tmp_path)
    done = noted(monkeypatch)
    opened(place.open()).close()
    assert done == ["sync index", "write sums.draft", "sync sums.draft"]


def test_without_space_for_the_checksums_of_what_a_kill_left_nothing_stays_open(
    place: LmdbPlace, index: LmdbIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead(index, tmp_path)
    with monkeypatch.context() as full:
        full.setattr(PosixWriteFile, "write", refuses)
        with pytest.raises(OSError, match="no space"):
            place.open()
    again = opened(place.open())
    assert again.state() == IndexState(9)
    again.close()


# ── commits ──────────────────────────────────────────────────────────────────────────────────────────────


def refuses(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space")


def refused(index: LmdbIndex) -> None:
    with pytest.raises(OSError, match="no space"):
        grow(index, Random(6), 6)


def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to the file of checksums and by LMDB, in order."""
    done: list[str] = []

    def note(owner: type, verb: str, name: Callable[[Any], str]) -> None:
        does = getattr(owner, verb)

        def noting(own: Any, *arguments: Any) -> Any:
            result = does(own, *arguments)
            done.append(f"{verb} {name(own)}")
            return result

        monkeypatch.setattr(owner, verb, noting)

    note(LmdbEnvironment, "commit", lambda _: "index")
    note(LmdbEnvironment, "sync", lambda _: "index")
    note(PosixWriteFile, "write", lambda file: os.path.basename(file.name))  # noqa: PTH119 - a text
    note(PosixWriteFile, "sync", lambda file: os.path.basename(file.name))  # noqa: PTH119
    return done


def test_a_commit_is_answered_when_its_checksums_are_durable(
    index: LmdbIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = noted(monkeypatch)
    grow(index, Random(6), 6)
    done.append("answered")
    assert done == ["commit index", "write sums.draft", "sync sums.draft", "answered"]


def test_a_commit_whose_checksums_fail_fails_and_the_next_makes_up_for_them(
    place: LmdbPlace, index: LmdbIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(PosixWriteFile, "write", refuses)
        refused(index)
    assert index.state() == IndexState(6)  # the checkpoint sees by it that another try is none
    grow(index, Random(7), 7)
    seen = everything(index)
    index.close()
    again = opened(place.open())
    assert everything(again) == seen
    again.close()


def test_a_process_that_ends_behind_a_commit_whose_checksums_fail_loses_nothing(
    place: LmdbPlace, index: LmdbIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(PosixWriteFile, "write", refuses)
        refused(index)
    seen = everything(index)
    index.close()
    again = opened(place.open())
    assert everything(again) == seen
    again.close()


def test_without_space_for_checksums_nothing_is_committed(
    index: LmdbIndex, place: LmdbPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.close()
    again = opened(place.open())
    before = everything(again)
    with monkeypatch.context() as full:
        full.setattr(PosixWriteFile, "zero_fill", refuses)
        refused(again)
    assert everything(again) == before
    grow(again, Random(6), 6)
    assert again.state() == IndexState(6)
    again.close()


@pytest.mark.parametrize("seed", range(30))
def test_an_index_is_never_called_damaged_behind_commits(
    place: LmdbPlace, monkeypatch: pytest.MonkeyPatch, seed: int, tmp_path: Path
) -> None:
    """And what is recorded is what a walk over all pages finds."""
    monkeypatch.setattr(lmdb, "open", unsynced)
    dice = Random(seed)
    draft = place.draft()
    for _ in range(dice.randrange(1, 4)):
        with draft.change() as change:
            fill(change, dice, ledgers=60)
            change.commit(IndexState())
    index = draft.publish()
    for generation in range(1, 9):
        with index.change() as change:
            fill(change, dice, ledgers=60)
            change.commit(dice.choice([IndexState(generation), None]))
        with open_file(tmp_path / "index" / "data.mdb") as data:
            assert index._sums is not None
            record = index._sums._snapshot.record()
            assert dict(zip(record.pages, record.sums, strict=True)) == live_pages(data)
            assert record.number == head_of(data).meta.number
        if dice.random() < 0.4:
            index.close()
            index = opened(place.open())
    index.close()


# ── readers ──────────────────────────────────────────────────────────────────────────────────────────────


def test_who_only_reads_verifies_and_changes_nothing(
    place: LmdbPlace, index: LmdbIndex, tmp_path: Path
) -> None:
    ahead(index, tmp_path)
    before = files(tmp_path)
    view = opened(place.view())
    assert view.state() == IndexState(9)
    with view.change() as change, pytest.raises(OSError, match="Permission"):
        change.commit(IndexState(10))
    view.close()
    assert files(tmp_path) == before

    opened(place.open()).close()
    data = tmp_path / "index" / "data.mdb"
    data.write_bytes(flip(data.read_bytes(), max(live(data)) * PAGE + 900, 1))
    before = files(tmp_path)
    assert isinstance(place.view(), Damaged)
    assert files(tmp_path) == before


def live(data: Path) -> dict[int, int]:
    with open_file(data) as file:
        return live_pages(file)


WRITING = """
import sys
from itertools import count
from storage.index_state import IndexState
from storage.lmdb_place import LmdbPlace
from storage.posix_files import PosixDirectory

index = LmdbPlace(PosixDirectory(sys.argv[1]), sys.argv[1], 1 << 20).open()
print("begun", flush=True)
for generation in count(10):
    with index.change() as change:
        change.put(generation % 5, range(generation % 90, 500), range(1, 501 - generation % 90))
        change.remove([(generation + 2) % 5])
        change.commit(IndexState(generation))
"""


def test_beside_a_writer_nothing_is_called_damaged(
    place: LmdbPlace, index: LmdbIndex, tmp_path: Path
) -> None:
    index.close()
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        generations = []
        for _ in range(150):
            view = opened(place.view())
            generations.append(view.state().generation)
            view.close()
        assert generations == sorted(generations)
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()
    again = opened(place.open())
    assert again.state().generation >= generations[-1]
    again.close()


def test_an_old_meta_whose_number_has_rotted_does_not_bring_old_content_back(
    place: LmdbPlace, index: LmdbIndex, tmp_path: Path
) -> None:
    index.close()
    data = tmp_path / "index" / "data.mdb"
    whole = data.read_bytes()
    numbers = [struct.unpack_from("<Q", whole, at + 144)[0] for at in (0, PAGE)]
    old = numbers.index(min(numbers)) * PAGE
    for ahead_by in (1, 3, 1 << 40):
        rotten = bytearray(whole)
        struct.pack_into("<Q", rotten, old + 144, max(numbers) + ahead_by)
        data.write_bytes(rotten)
        assert isinstance(place.open(), Damaged)
