"""Snapshots of a store, with a process that writes to it and without one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import fixtures
import pytest
import small_stores

from recovery.audit.snapshot import index_copy, live_store
from recovery.audit.snapshot.live_store import take_snapshot
from recovery.directory import audit_links
from recovery.directory.layout import Layout
from recovery.opening.open_store import open_store
from storage.checkpoint.mark_format import Mark
from storage.config import StoreConfig
from storage.disk import filenames
from storage.disk.posix import PosixDirectory, open_file
from storage.entry.read_result import Damaged
from storage.entrylog import format as entrylog_format
from storage.errors import AlreadyOpen
from storage.index.lmdb.directory import open_copy
from storage.index.lmdb.index import LmdbIndex
from storage.index.port import NoIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.audit.snapshot.live_store import StoreSnapshot
    from storage.disk.files import Directory

WRITER = """
import sys
from recovery.opening.open_store import open_store
from storage.config import StoreConfig

CONFIG = StoreConfig(
    memtable_size_max=128 << 10, entry_size_max=1 << 10, group_size_max=16 << 10, journal_size=64 << 10,
    entry_log_size_max=64 << 10, journal_max_backups=0, checkpoint_interval_s=None,
)
with open_store(sys.argv[1], CONFIG) as store:
    for line in sys.stdin:
        for _ in range(int(line)):
            for ledger_id in (1, 2):
                store.ledger(ledger_id).append_many([b"payload %d" % one for one in range(200)])
            store.checkpoint()
        print("done", flush=True)
"""


class Writer:
    """Another process that has the store open and writes on request."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.write(3)

    def begin(self, checkpoints: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{checkpoints}\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "done\n"

    def write(self, checkpoints: int) -> None:
        self.begin(checkpoints)
        self.wait()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait() == 0
        self._process.stdout.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    one = Writer(tmp_path / "store")
    yield one
    one.close()


@contextmanager
def held(tmp_path: Path, name: str = "store") -> Iterator[StoreSnapshot]:
    into = tmp_path / "copy"
    into.mkdir(exist_ok=True)
    with take_snapshot(Layout(PosixDirectory(tmp_path / name)), into) as it:
        yield it


def link_directories(root: Path) -> list[str]:
    parent = root / filenames.AUDIT_LINKS
    return sorted(path.name for path in parent.iterdir()) if parent.exists() else []


def check_consistent(it: StoreSnapshot) -> None:
    """Check that every place in the copied index is that of a record with the right ids in a held log."""
    assert isinstance(it.index, Path)
    assert it.state is not None
    assert set(it.log_ids) == set(it.state.log_ends)
    index = open_copy(it.index)
    assert isinstance(index, LmdbIndex)
    for ledger_id in index.ledgers():
        places = index.locations(ledger_id, 0, 1 << 20)
        assert [entry_id for entry_id, _ in places] == list(range(len(places)))
        for entry_id, location in places[:: max(1, len(places) // 50)]:
            with open_file(it.log_path(location >> 32)) as log:
                ids = log.read(location & 0xFFFF_FFFF, 16)
            assert (int.from_bytes(ids[:8]), int.from_bytes(ids[8:])) == (ledger_id, entry_id)
    index.close()
    assert isinstance(it.mark, Mark)
    for journal_id in range(
        max(it.mark.position.journal_id, it.state.mark.journal_id), it.journal_ids[-1] + 1
    ):
        assert it.journal_path(journal_id).exists()


# ── with a writer ────────────────────────────────────────────────────────────────────────────────────────


def test_a_snapshot_beside_an_active_writer_is_consistent(tmp_path: Path, writer: Writer) -> None:
    writer.begin(60)
    for _ in range(6):
        with held(tmp_path) as it:
            assert it.is_live
            check_consistent(it)
    writer.wait()


def test_files_that_the_store_removes_meanwhile_stay_readable(tmp_path: Path, writer: Writer) -> None:
    with held(tmp_path) as it:
        before = {one: it.journal_path(one).read_bytes()[:512] for one in it.journal_ids}
        writer.write(5)
        gone = [one for one in before if not (tmp_path / "store/journal/current" / f"{one:x}.txn").exists()]
        assert gone
        assert {one: it.journal_path(one).read_bytes()[:512] for one in it.journal_ids} == before
        check_consistent(it)


def test_links_are_removed_at_the_end(tmp_path: Path, writer: Writer) -> None:
    with held(tmp_path):
        assert len(link_directories(tmp_path / "store")) == 1
    assert not (tmp_path / "store" / filenames.AUDIT_LINKS).exists()
    writer.write(1)


def test_two_audits_have_links_of_their_own(tmp_path: Path, writer: Writer) -> None:
    with held(tmp_path) as first:
        (tmp_path / "other").mkdir()
        with take_snapshot(Layout(PosixDirectory(tmp_path / "store")), tmp_path / "other"):
            assert len(link_directories(tmp_path / "store")) == 2
        assert len(link_directories(tmp_path / "store")) == 1
        assert all(first.log_path(one).exists() for one in first.log_ids)
    writer.write(1)


KILLED = """
import os, sys
from pathlib import Path
from recovery.audit.snapshot.live_store import take_snapshot
from recovery.directory import audit_links
from recovery.directory.layout import Layout
from storage.disk.posix import PosixDirectory

with take_snapshot(Layout(PosixDirectory(sys.argv[1])), Path(sys.argv[2])):
    os._exit(9)
"""


def test_what_a_killed_audit_leaves_is_ignored_by_the_store_and_removed_by_the_next(
    tmp_path: Path, writer: Writer
) -> None:
    (tmp_path / "theirs").mkdir()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "store"), str(tmp_path / "theirs")], check=False
    )
    assert killed.returncode == 9
    (left,) = link_directories(tmp_path / "store")
    writer.write(1)
    with held(tmp_path):
        assert left not in link_directories(tmp_path / "store")
    assert link_directories(tmp_path / "store") == []


def test_an_opening_removes_what_a_killed_audit_has_left(tmp_path: Path) -> None:
    root = small_stores.make(tmp_path / "store")
    made = audit_links.make_links(str(root))
    made.hold(str(root / "ledgers/current"), ["0.log"])
    made._lock.close()
    with open_store(root) as store:
        assert (store.opened.findings, store.opened.unknown) == ((), ())
    assert link_directories(root) == []


def test_an_opening_leaves_the_links_of_a_running_audit(tmp_path: Path) -> None:
    root = small_stores.make(tmp_path / "store")
    made = audit_links.make_links(str(root))
    made.hold(str(root / "ledgers/current"), ["0.log"])
    with open_store(root):
        assert made.paths()["0.log"].read_bytes() == (root / "ledgers/current/0.log").read_bytes()
    made.close()
    assert not (root / filenames.AUDIT_LINKS).exists()


def test_if_files_cannot_be_linked_the_audit_continues_and_says_so(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refuse)
    with held(tmp_path) as it:
        assert any("another file system" in note for note in it.notes)
        assert all(it.log_path(one).parent.name == filenames.CURRENT for one in it.log_ids)
    writer.write(1)


def test_a_writer_that_comes_during_the_copy_makes_it_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_stores.make(tmp_path / "store")
    copy, copied = index_copy.copy, []

    def late(index: Path, path: os.PathLike[str]) -> bool:
        is_good = copy(index, path)
        copied.append(path)
        return is_good and len(copied) > 2

    monkeypatch.setattr(index_copy, "copy", late)
    with held(tmp_path) as it:
        assert it.index == copied[-1]
        check_consistent(it)
    assert len(copied) == 3


def test_a_log_that_no_checkpoint_has_completed_is_listed_as_not_covered(
    tmp_path: Path, writer: Writer
) -> None:
    unfinished = tmp_path / "store/ledgers/current/ffff.log"
    unfinished.write_bytes(entrylog_format.encode_header())
    with held(tmp_path) as it:
        assert 0xFFFF not in it.log_ids
        assert any("ffff.log" in note for note in it.notes)
    unfinished.unlink()
    writer.write(1)


@pytest.fixture
def removing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make the store remove a file after the snapshot has linked it and before the index is copied."""
    copy_verified = index_copy.copy_verified

    def later(path: Path) -> None:
        def copied(ledgers: Directory, into: Path) -> Path | NoIndex | Damaged:
            path.unlink(missing_ok=True)
            return copy_verified(ledgers, into)

        monkeypatch.setattr(index_copy, "copy_verified", copied)

    return later


def test_a_log_that_is_removed_while_the_snapshot_is_taken_is_not_being_written(
    tmp_path: Path, writer: Writer, removing: Callable[[Path], None]
) -> None:
    victim = tmp_path / "store/ledgers/current/ffff.log"
    victim.write_bytes(entrylog_format.encode_header())
    removing(victim)
    with held(tmp_path) as it:
        assert 0xFFFF not in it.log_ids
        assert it.notes == ()
    assert not victim.exists()


def test_a_journal_that_is_trimmed_while_the_snapshot_is_taken_is_left_out(
    tmp_path: Path, writer: Writer, removing: Callable[[Path], None]
) -> None:
    # Its tombstones may have been purged before the index was copied.
    victim = tmp_path / "store/journal/current/1.txn"
    victim.write_bytes(bytes(512))
    with held(tmp_path) as it:
        assert 1 in it.journal_ids
    removing(victim)
    with held(tmp_path) as it:
        assert 1 not in it.journal_ids
        check_consistent(it)


def test_a_journal_that_the_store_may_need_is_kept_although_it_was_removed_since(
    tmp_path: Path, writer: Writer, removing: Callable[[Path], None]
) -> None:
    victim = tmp_path / "store/journal/current/7fffffffffffffff.txn"
    victim.write_bytes(bytes(512))
    removing(victim)
    with held(tmp_path) as it:
        assert 0x7FFFFFFFFFFFFFFF in it.journal_ids


# ── without one ──────────────────────────────────────────────────────────────────────────────────────────


def listing(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


def test_a_store_that_no_process_has_open_is_not_changed(tmp_path: Path) -> None:
    root = small_stores.make(tmp_path / "store")
    before = listing(root)
    with held(tmp_path) as it:
        assert not it.is_live
        assert listing(root) == before
        check_consistent(it)
        assert it.notes == ()
    assert listing(root) == before


@pytest.mark.parametrize("name", ["01_clean", "04a_fence_lac_crash"])
def test_a_bookie_s_directory_has_no_index_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / "copy").mkdir()
    root = fixtures.bookie(name) / "bookie"
    with take_snapshot(Layout(PosixDirectory(root)), tmp_path / "copy") as it:
        assert (it.is_live, it.state, dict(it.rows)) == (False, None, {})
        assert isinstance(it.index, NoIndex)
        assert [it.journal_path(one) for one in it.journal_ids] == fixtures.journals(name)
        assert len(it.log_ids) == len(fixtures.entry_logs(name))


def test_a_damaged_index_is_reported_and_not_copied(tmp_path: Path) -> None:
    root = small_stores.make(tmp_path / "store")
    data = root / "ledgers/current/index/data.mdb"
    damaged = bytearray(data.read_bytes())
    damaged[-2000] ^= 1
    data.write_bytes(damaged)
    with held(tmp_path) as it:
        assert isinstance(it.index, Damaged)
        assert list((tmp_path / "copy").iterdir()) == []
        assert it.log_ids


def test_a_process_cannot_audit_a_store_that_it_has_open_itself(tmp_path: Path) -> None:
    with (
        open_store(tmp_path / "store", StoreConfig()),
        pytest.raises(AlreadyOpen, match="already open"),
        held(tmp_path),
    ):
        pass


def test_attempts_end_when_a_named_file_stays_missing(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    look = live_store._SnapshotTaker._read_store

    def counted(holding: live_store._SnapshotTaker) -> object:
        looks.append(holding)
        return look(holding)

    monkeypatch.setattr(live_store._SnapshotTaker, "_read_store", counted)
    monkeypatch.setattr(live_store._SnapshotTaker, "_missing_files", lambda *_: {"1.log"})
    with held(tmp_path):
        assert len(looks) == 2
    writer.write(1)
