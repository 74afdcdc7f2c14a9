"""What the mark says beside its position."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from pathlib import Path

import pytest
from stepped_store import LEDGERS, Site
from store_internals import HeldLock, LockIsHeld

from recovery.crashlab import Refused, Verb, When
from storage.checkpoint import mark
from storage.checkpoint.mark_format import Mark, Trailer
from storage.disk.posix import PosixDirectory
from storage.entry.position import START, JournalPosition
from storage.index.state import IndexState


@pytest.mark.parametrize("found", [None, Mark(JournalPosition(7, 1024), None)])
def test_without_a_trailer_of_ours_the_mark_names_no_journal(found: Mark | None) -> None:
    assert mark.newest_named(found) == 0


def test_the_newest_journal_of_the_mark_is_the_one_that_is_written() -> None:
    site = Site()
    site.open().ledger(1).append(b"0")
    found = mark.load(site.directory(LEDGERS))
    assert isinstance(found, Mark)
    assert mark.newest_named(found) == site.trailer().newest_journal == 1


def test_a_journal_that_cannot_be_announced_gets_no_name() -> None:
    site = Site()
    ledgers = site.directory(LEDGERS)
    site.open().close()
    found = mark.load(ledgers)
    assert isinstance(found, Mark)
    last_mark = mark.LastMark(ledgers, found, nullcontext())
    site.disk.plant(Refused(When(verb=Verb.WRITE, name="*lastMark*"), errno.EIO))
    named: list[int] = []
    with pytest.raises(OSError, match="lastMark"), last_mark.announcing(7):
        named.append(7)
    assert named == []
    assert mark.load(ledgers) == found


def test_a_journal_is_announced_after_its_name_is_durable() -> None:
    site = Site()
    ledgers = site.directory(LEDGERS)
    site.open().close()
    found = mark.load(ledgers)
    assert isinstance(found, Mark)
    last_mark = mark.LastMark(ledgers, found, nullcontext())
    with last_mark.announcing(7):
        assert mark.load(ledgers) == found
    announced = mark.load(ledgers)
    assert isinstance(announced, Mark)
    assert (announced.position, mark.newest_named(announced)) == (found.position, 7)


@pytest.mark.parametrize(
    ("found", "generation"),
    [(Mark(START, None), None), (Mark(START, Trailer(3, 0, None, 0)), 3)],
    ids=["a bookie's", "ours"],
)
def test_a_mark_of_ours_names_the_generation_of_the_index(found: Mark, generation: int | None) -> None:
    last_mark = mark.LastMark(Site().directory(LEDGERS), found, nullcontext())
    assert last_mark.generation == generation
    assert last_mark.position == START


@pytest.mark.parametrize(("stored", "newest"), [(0, 5), (5, 5), (7, 7)])
def test_the_mark_of_a_checkpoint_names_no_older_journal_than_its_position_and_the_mark_before(
    stored: int, newest: int
) -> None:
    root = Site().disk.root()
    last_mark = mark.LastMark(root, Mark(START, Trailer(3, stored, None, 0)), nullcontext())
    assert last_mark.advance(IndexState(generation=4, mark=JournalPosition(5, 1024))) is None
    found = mark.load(root)
    assert isinstance(found, Mark)
    assert (found.position, mark.newest_named(found)) == (JournalPosition(5, 1024), newest)
    assert last_mark.generation == 4


@pytest.mark.parametrize("content", [bytes(16), b"no mark"])
def test_the_file_of_the_mark_is_closed_after_it_was_loaded(tmp_path: Path, content: bytes) -> None:
    directory, before = PosixDirectory(tmp_path), len([*Path("/proc/self/fd").iterdir()])
    (tmp_path / "lastMark").write_bytes(content)
    loaded = [mark.load(directory) for _ in range(2)]
    assert loaded[0] == loaded[1]
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_the_mark_changes_only_under_its_lock() -> None:
    root = Site().disk.root()
    last_mark = mark.LastMark(root, Mark(START, Trailer(3, 0, None, 0)), HeldLock())
    with pytest.raises(LockIsHeld):
        last_mark.advance(IndexState(generation=4))
    with pytest.raises(LockIsHeld), last_mark.announcing(7):
        pass
    assert root.names() == []


def test_a_mark_that_could_not_be_put_in_its_place_counts_for_no_reader() -> None:
    disk = Site().disk
    last_mark = mark.LastMark(disk.root(), Mark(START, Trailer(3, 0, None, 0)), nullcontext())
    disk.plant(Refused(When(verb=Verb.RENAME), errno.EIO))
    with pytest.raises(OSError, match="lastMark"):
        last_mark.advance(IndexState(generation=4, mark=JournalPosition(5, 1024)))
    assert (last_mark.position, last_mark.generation) == (START, 3)
