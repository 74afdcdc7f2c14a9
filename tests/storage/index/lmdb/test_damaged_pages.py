"""Damage to the index: no damaged page is used, and no process is killed by one."""

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
from journal_builder import flip
from lmdb_images import PAGE, fill, head_of, live_pages, unsynced
from sampling import every, many
from store_internals import known_pages, page_sums_of

from storage.disk.posix import PosixDirectory, PosixWriteFile, open_file
from storage.entry.read_result import Damaged, Flaw
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.lmdb.environment import LmdbEnvironment
from storage.index.lmdb.index import LmdbIndex
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from storage.entry.ledger_record import LedgerRecord

    Everything = tuple[dict[int, list[tuple[int, int]]], list[LedgerRecord], IndexState]

MAP_SIZE = 1 << 20


@pytest.fixture
def place(tmp_path: Path) -> LmdbIndexDirectory:
    return LmdbIndexDirectory(PosixDirectory(tmp_path), tmp_path, MAP_SIZE)


@pytest.fixture
def index(place: LmdbIndexDirectory) -> Iterator[LmdbIndex]:
    """Create an index with a little of everything."""
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
    places = {one: index.locations(one, 0, 1 << 20) for one in index.ledgers()}
    return places, list(index.rows()), index.state()


def opened(found: object) -> LmdbIndex:
    assert isinstance(found, LmdbIndex), found
    return found


def files(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in (path / "index").iterdir() if one.name != "lock.mdb"}


def lose_checksums(index: LmdbIndex, path: Path) -> None:
    """Leave the index as a kill between LMDB's commit and its checksums would."""
    before = (path / "index" / "sums").read_bytes()
    grow(index, Random(9), 9)
    index.close()
    (path / "index" / "sums").write_bytes(before)


# ── every block of LMDB's file ───────────────────────────────────────────────────────────────────────────

READ_DAMAGED = """
import sys
from functools import partial
from pathlib import Path
from random import Random
import lmdb
from storage.disk import posix
from storage.index.state import IndexState
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.entry.read_result import Damaged
from storage.disk.posix import PosixDirectory

lmdb.open = partial(lmdb.Environment, sync=False)  # the same file, in a tenth of the time
posix._sync = lambda *_: None
path, step, dice, block = Path(sys.argv[1]), int(sys.argv[2]), Random(1), 512
data = path / "index" / "data.mdb"
whole, sums = data.read_bytes(), (path / "index" / "sums").read_bytes()

def everything(index):
    found = {one: index.locations(one, 0, 1 << 20) for one in index.ledgers()}
    return found, list(index.rows()), index.state()

def read_all():
    index = LmdbIndexDirectory(PosixDirectory(path), path, 1 << 20).open()
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

good, noticed = read_all(), 0
for at in range(0, len(whole), step * block):
    for name, changed in changes(at):
        print(at, name, file=sys.stderr, flush=True)
        data.write_bytes(whole[:at] + changed + whole[at + block :])
        seen = read_all()
        noticed += seen is None
        assert seen in (None, good), (at, name)
print(noticed)
"""


@pytest.mark.sampled
@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_no_damaged_block_is_read_and_none_ends_the_process(
    index: LmdbIndex, tmp_path: Path, ended: str
) -> None:
    if ended == "closed":
        index.close()
    else:
        (tmp_path / "index" / "lock.mdb").rename(tmp_path / "the lock of a process that is gone")
    step = many(1, 50)
    result = subprocess.run(
        [sys.executable, "-c", READ_DAMAGED, str(tmp_path), str(step)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr.splitlines()[-3:]
    assert int(result.stdout) > many(100, 0)


@pytest.mark.sampled
def test_every_bit_at_the_start_of_each_page_in_use_is_verified(
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path
) -> None:
    index.close()
    data = tmp_path / "index" / "data.mdb"
    whole, dice = data.read_bytes(), Random(4)
    with open_file(data) as file:
        live = live_pages(file)
    for page in live:
        for bit in every(11, [*range(16 * 8), *(dice.randrange(PAGE * 8) for _ in range(9))]):
            data.write_bytes(flip(whole, page * PAGE + bit // 8, bit % 8))
            found = place.open()
            assert isinstance(found, Damaged)
            assert (found.offset, found.flaw) == (page * PAGE, Flaw.CHECKSUM)


def test_an_older_version_of_a_page_is_damage(
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path
) -> None:
    """The disk has lost a write."""
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
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path, lose: Callable[[Path], object]
) -> None:
    index.close()
    lose(tmp_path / "index" / "sums")
    assert isinstance(place.open(), Damaged)
    assert isinstance(place.view(), Damaged)


def test_a_commit_with_torn_checksums_is_accepted_and_its_checksums_are_rewritten(
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path
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
        followed = page_sums_of(again)
        assert followed is not None
        assert not followed.is_ahead
        again.close()


def test_pages_that_a_kill_left_without_checksums_are_synced_before_they_get_them(
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_checksums(index, tmp_path)
    done = record_operations(monkeypatch)
    opened(place.open()).close()
    assert done == ["sync index", "write sums.draft", "sync sums.draft"]


def test_without_space_for_the_checksums_of_a_killed_process_the_opening_closes_everything(
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_checksums(index, tmp_path)
    with monkeypatch.context() as full:
        full.setattr(PosixWriteFile, "write", raise_no_space)
        with pytest.raises(OSError, match="no space"):
            place.open()
    again = opened(place.open())
    assert again.state() == IndexState(9)
    again.close()


# ── commits ──────────────────────────────────────────────────────────────────────────────────────────────


def raise_no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space")


def assert_commit_refused(index: LmdbIndex) -> None:
    with pytest.raises(OSError, match="no space"):
        grow(index, Random(6), 6)


def record_operations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the operations of LMDB and on the file of checksums, in order."""
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
    done = record_operations(monkeypatch)
    grow(index, Random(6), 6)
    done.append("answered")
    assert done == ["commit index", "write sums.draft", "sync sums.draft", "answered"]


def test_a_commit_whose_checksums_fail_raises_and_the_next_commit_writes_them(
    place: LmdbIndexDirectory, index: LmdbIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(PosixWriteFile, "write", raise_no_space)
        assert_commit_refused(index)
    assert index.state() == IndexState(6)  # so the checkpoint can repeat the commit
    grow(index, Random(7), 7)
    seen = everything(index)
    index.close()
    again = opened(place.open())
    assert everything(again) == seen
    again.close()


def test_a_process_that_ends_after_a_commit_whose_checksums_fail_loses_nothing(
    place: LmdbIndexDirectory, index: LmdbIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(PosixWriteFile, "write", raise_no_space)
        assert_commit_refused(index)
    seen = everything(index)
    index.close()
    again = opened(place.open())
    assert everything(again) == seen
    again.close()


def test_without_space_for_checksums_nothing_is_committed(
    index: LmdbIndex, place: LmdbIndexDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.close()
    again = opened(place.open())
    before = everything(again)
    with monkeypatch.context() as full:
        full.setattr(PosixWriteFile, "zero_fill", raise_no_space)
        assert_commit_refused(again)
    assert everything(again) == before
    grow(again, Random(6), 6)
    assert again.state() == IndexState(6)
    again.close()


@pytest.mark.sampled(one_of=5)
@pytest.mark.parametrize("seed", range(30))
def test_an_index_is_never_reported_damaged_after_commits(
    place: LmdbIndexDirectory, monkeypatch: pytest.MonkeyPatch, seed: int, tmp_path: Path
) -> None:
    """Also checks that the recorded pages equal those of a walk over all pages."""
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
            record = known_pages(index)
            assert dict(zip(record.pages, record.sums, strict=True)) == live_pages(data)
            assert record.number == head_of(data).meta.number
        if dice.random() < 0.4:
            index.close()
            index = opened(place.open())
    index.close()


# ── readers ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_view_verifies_pages_and_changes_no_file(
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path
) -> None:
    lose_checksums(index, tmp_path)
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
from storage.index.state import IndexState
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.disk.posix import PosixDirectory

index = LmdbIndexDirectory(PosixDirectory(sys.argv[1]), sys.argv[1], 1 << 20).open()
print("begun", flush=True)
for generation in count(10):
    with index.change() as change:
        change.put(generation % 5, range(generation % 90, 500), range(1, 501 - generation % 90))
        change.remove([(generation + 2) % 5])
        change.commit(IndexState(generation))
"""


def test_beside_a_writer_no_page_is_reported_damaged(
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path
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
    place: LmdbIndexDirectory, index: LmdbIndex, tmp_path: Path
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
