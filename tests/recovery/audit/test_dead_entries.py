"""Damage in the leftovers of a deleted ledger is information, because no data is lost."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import audited_stores
import pytest
from fault_trials import audited

from recovery import open_store
from recovery.audit.findings.finding import Severity
from recovery.audit.scan import entry_log_flaws
from recovery.audit.self_test.directories import StoreCopy
from storage.config import StoreConfig
from storage.entry.format import HEAD
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.findings.finding import Finding
    from recovery.audit.self_test.content import FileContent, Piece

_BEHIND_THE_HEAD = 4 + HEAD.size + DigestType.CRC32C.width


def _dead(name: str) -> tuple[FileContent, Piece]:
    content = audited_stores.content(name)
    return next(
        (log, piece)
        for log in content.logs
        for piece in log.entries
        if content.is_dead(piece) and piece.digest is DigestType.CRC32C
    )


def _damaged(name: str, root: Path) -> tuple[Finding, ...]:
    (log, record), copy = _dead(name), StoreCopy(audited_stores.store(name), root)
    data = bytearray(log.path.read_bytes())
    data[record.start + _BEHIND_THE_HEAD] ^= 1
    copy.replace(log.path, bytes(data))
    return audited(root, audited_stores.passwords(name))


@pytest.mark.parametrize("name", ["closed", "killed"])
def test_damage_in_a_dead_entry_is_information(name: str, tmp_path: Path) -> None:
    found = _damaged(name, tmp_path / "store")
    log, record = _dead(name)
    (one_finding,) = [one for one in found if one.kind == "ELG-003"]
    assert one_finding.severity is Severity.INFORMATION
    assert (one_finding.file, one_finding.offset, one_finding.end) == (log.name, record.start, record.end)
    assert (one_finding.ledger_id, one_finding.first_entry) == (record.ledger_id, record.entry_id)
    assert "deleted ledger" in one_finding.detail
    assert not [one for one in found if one.is_wrong]


def test_a_ledger_that_was_deleted_since_the_last_checkpoint_has_no_wrong_places(tmp_path: Path) -> None:
    with open_store(tmp_path / "live", StoreConfig(idle_seal_s=None)) as store:
        for ledger_id in (1, 2, 3):
            store.ledger(ledger_id).append_many([b"old"] * 20)
        store.checkpoint()
        store.ledger(1).delete()
        store.ledger(2).delete()
        store.ledger(2).append(b"another")
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    assert not [one for one in audited(tmp_path / "killed", {}) if one.is_wrong]


def test_places_of_a_ledger_that_was_deleted_before_an_interrupted_checkpoint_are_void(
    tmp_path: Path,
) -> None:
    live, killed = tmp_path / "live", tmp_path / "killed"
    with open_store(live, StoreConfig(idle_seal_s=None)) as store:
        store.ledger(1).append_many([b"old"] * 20)
        store.ledger(2).append_many([b"kept"] * 20)
        store.checkpoint()
        shutil.copytree(live, killed)
        store.ledger(1).delete()
        store.ledger(2).append(b"more")
        store.checkpoint()
        # Everything of the second checkpoint but its commit of the index, and what follows it.
        before = ("index", "lastMark")
        shutil.copytree(live, killed, dirs_exist_ok=True, ignore=lambda _, names: {*before} & {*names})
    assert not [one for one in audited(killed, {}) if one.is_wrong]


@pytest.mark.parametrize("name", ["closed", "killed"])
def test_whole_entries_are_not_reported(name: str) -> None:
    found = audited(audited_stores.store(name), audited_stores.passwords(name))
    assert not [one for one in found if one.kind == "ELG-003"]


def test_many_dead_entries_with_another_digest_are_one_information(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_log_flaws, "EXACT_MAX", 10)
    with open_store(tmp_path / "store", StoreConfig(idle_seal_s=None)) as store:
        earlier = store.ledger(1, DigestType.MAC, b"secret")
        earlier.append_many([b"old"] * 30)
        store.checkpoint()
        earlier.delete()
        store.ledger(1, DigestType.CRC32C).append_many([b"new"] * 30)
    found = [one for one in audited(tmp_path / "store", {}) if one.kind == "ELG-003"]
    assert [(one.severity, one.ledger_id, one.count) for one in found] == [(Severity.INFORMATION, 1, 30)]
