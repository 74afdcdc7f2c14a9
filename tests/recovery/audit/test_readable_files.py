"""Names that cannot be read as files: each is a finding, and everything else is verified."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery import open_store
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.audit.scan import entry_log, journal, log_entries
from recovery.audit.snapshot import index_copy, readable_files
from storage.config import StoreConfig
from storage.disk.posix import PosixReadFile, open_file, open_regular
from storage.errors import NotAStore

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = StoreConfig(
    journal_size=1 << 18,
    group_size_max=1 << 16,
    entry_size_max=1 << 15,
    memtable_size_max=1 << 20,
    index_size_max=1 << 24,
    checkpoint_interval_s=None,
    journal_max_backups=0,
)
PAYLOAD = b"to be found" * 20


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    with open_store(root, CONFIG) as store:
        store.ledger(7).append_many([PAYLOAD] * 40)
        store.checkpoint()
        store.ledger(7).delete()
        store.ledger(8).append_many([PAYLOAD] * 40)
        store.checkpoint()
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def wrong(*stores: Path) -> list[tuple[str, str, str]]:
    report = run_audit(AuditRequest(tuple(map(str, stores))))
    return [(Path(one.store).name, one.kind, one.file) for one in report.findings if one.is_wrong]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


NAMES = {
    "ledgers/current/77.log": {("DIR-004", "77.log")},
    "journal/current/77.txn": {("DIR-004", "77.txn")},
    "ledgers/current/lastMark": {("DIR-004", "lastMark"), ("MRK-001", "lastMark")},
    "ledgers/current/VERSION": {("DIR-004", "VERSION"), ("CKE-001", "ledgers/VERSION")},
    "ledgers/current/index/data.mdb": {("DIR-004", "index"), ("IDX-004", "index")},
    "ledgers/current/index/lock.mdb": {("DIR-004", "index"), ("IDX-004", "index")},
    "ledgers/current/index/sums": {("DIR-004", "index"), ("IDX-004", "index")},
}


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((pipe, name) for name in NAMES),
        (directory, "ledgers/current/lastMark"),
        (directory, "journal/current/77.txn"),
        (link_to_nothing, "ledgers/current/index/sums"),
        (link_to_nothing, "ledgers/current/77.log"),
        (link_to_itself, "ledgers/current/77.log"),
    ],
)
def test_a_name_that_is_no_file_is_reported_and_all_others_are_verified(
    store: Path, make: Callable[[Path], None], name: str
) -> None:
    (store / name).unlink(missing_ok=True)
    make(store / name)
    log = store / "ledgers/current/0.log"
    data = log.read_bytes()
    log.write_bytes(data.replace(PAYLOAD, PAYLOAD.upper()))  # the entries of both ledgers
    found = {(kind, file) for _, kind, file in wrong(store)}
    assert NAMES[name] <= found
    assert ("ELG-003", "0.log") in found


def test_a_file_that_the_disk_cannot_read_is_reported(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_mark(path: str) -> PosixReadFile:
        if path.endswith("lastMark"):
            raise OSError(errno.EIO, "Input/output error", path)
        return open_file(path)

    monkeypatch.setattr(readable_files, "open_file", refuse_mark)
    assert ("store", "DIR-004", "lastMark") in wrong(store)


def test_an_index_that_the_disk_cannot_read_is_damaged(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(index_copy, "copy", refuse)
    assert ("store", "IDX-004", "index") in wrong(store)


class BadSector(PosixReadFile):
    """A file with 4 KiB that the disk cannot read."""

    EXTENT = (8192, 12288)

    def read(self, offset: int, size: int) -> bytes:
        self._check(offset, size)
        return super().read(offset, size)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        self._check(offset, len(buffer))
        return super().read_into(offset, buffer)

    def _check(self, offset: int, size: int) -> None:
        start, end = self.EXTENT
        if max(start, offset) < min(end, offset + size, self.size()):
            raise OSError(errno.EIO, "Input/output error")


def with_bad_sector(path: str) -> PosixReadFile:
    return BadSector(open_regular(path), path)


def test_a_bad_sector_of_a_log_costs_only_its_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (entry_log, log_entries):
        monkeypatch.setattr(module, "open_file", with_bad_sector)
    with open_store(tmp_path / "store", CONFIG) as store:
        store.ledger(7).append_many([PAYLOAD] * 200)
    report = run_audit(AuditRequest((str(tmp_path / "store"),)))
    found = {one.kind: one for one in report.findings if one.is_wrong}
    assert (found["DIR-004"].file, found["DIR-004"].offset, found["DIR-004"].end) == ("0.log", 8192, 12288)
    # The rest of the log was verified, and the entries that were lost are named.
    size = len(PAYLOAD) + 36 + 4
    assert sorted(found) == ["DIR-004", "ELG-003", "ELG-004", "ELG-007"]
    lost = found["ELG-007"]
    assert lost.ledger_id == 7
    assert lost.first_entry is not None
    assert lost.last_entry is not None
    assert 4096 // size <= lost.last_entry - lost.first_entry + 1 <= 4096 // size + 2


def test_a_bad_sector_of_a_journal_is_reported_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "open_file", with_bad_sector)
    with open_store(tmp_path / "store", CONFIG) as store:
        for _ in range(20):
            store.ledger(7).append_many([PAYLOAD] * 4)
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
    report = run_audit(AuditRequest((str(tmp_path / "killed"),)))
    places = {(one.kind, one.file, one.offset, one.end) for one in report.findings if one.is_wrong}
    assert ("DIR-004", "1.txn", 8192, 12288) in places
    assert "JRN-003" in {kind for kind, *_ in places}
    assert "MRK-002" not in {kind for kind, *_ in places}


def test_a_log_that_cannot_be_opened_is_one_finding(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> PosixReadFile:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(entry_log, "open_file", refuse)
    assert wrong(store) == [("store", "DIR-004", "0.log")]


def test_a_directory_with_a_name_that_no_store_uses_is_only_unknown(store: Path) -> None:
    (store / "ledgers/current/notes").mkdir()
    assert wrong(store) == []


def test_an_empty_mark_is_reported(store: Path) -> None:
    (store / "ledgers/current/lastMark").write_bytes(b"")
    assert ("store", "MRK-001", "lastMark") in wrong(store)


def test_a_path_that_is_no_store_is_a_finding_beside_others(store: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert wrong(tmp_path / "empty", store, tmp_path / "nowhere") == [
        ("empty", "DIR-005", ""),
        ("nowhere", "DIR-005", ""),
    ]


def test_if_no_path_is_a_store_the_error_is_raised(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="first"):
        run_audit(AuditRequest((str(tmp_path / "first"), str(tmp_path / "second"))))
