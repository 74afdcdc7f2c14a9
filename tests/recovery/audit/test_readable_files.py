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
from recovery.audit.snapshot import index_copy, readable_files
from storage.config import StoreConfig
from storage.disk.posix import open_file
from storage.errors import NotAStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.disk.posix import PosixReadFile

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


KINDS = (pipe, directory, link_to_nothing, link_to_itself)
NAMES = {
    "ledgers/current/77.log": {("DIR-004", "77.log")},
    "journal/current/77.txn": {("DIR-004", "77.txn")},
    "ledgers/current/lastMark": {("DIR-004", "lastMark"), ("MRK-001", "lastMark")},
    "ledgers/current/VERSION": {("DIR-004", "VERSION"), ("CKE-001", "ledgers/VERSION")},
    "ledgers/current/index/data.mdb": {("DIR-004", "index"), ("IDX-004", "index")},
    "ledgers/current/index/lock.mdb": {("DIR-004", "index"), ("IDX-004", "index")},
    "ledgers/current/index/sums": {("DIR-004", "index"), ("IDX-004", "index")},
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", KINDS)
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
