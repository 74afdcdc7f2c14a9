"""The verifier accepts what a crash and the next opening leave, and reports damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.proving.file_kinds import fields
from recovery.proving.observation import recover
from recovery.proving.store_under_test import STORE
from recovery.proving.verifier import verify
from recovery.proving.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recorded import FinishedWorkload

    Play = Callable[[str], FinishedWorkload]


def ledgers_of(root: Path) -> Path:
    return root / STORE / "ledgers" / "current"


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_verifier_accepts_the_files_of_every_workload(name: str, played: Play) -> None:
    root = played(name).root
    assert verify(root) == []
    recover(root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert verify(root) == []
    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert {path.name for path in before if before[path] != after.get(path)} <= {"lock.mdb"}


def test_a_torn_tail_is_no_finding(played: Play) -> None:
    root = played("checkpoints").root
    journal = max((root / STORE / "journal" / "current").glob("*.txn"), key=lambda path: int(path.stem, 16))
    payloads = [one for one in fields("journal", journal.read_bytes()) if one[0] == "entry: payload"]
    flip(journal, payloads[-1][1])
    recover(root)
    assert verify(root) == []


@pytest.mark.parametrize("field", ["entry: payload", "entry: digest", "entry: entry", "header: generation"])
def test_a_damaged_entry_log_is_found(field: str, played: Play) -> None:
    root = played("checkpoints").root
    log = ledgers_of(root) / "3.log"
    _, offset, _ = next(one for one in fields("entry log", log.read_bytes()) if one[0] == field)
    flip(log, offset)
    assert verify(root)


@pytest.mark.parametrize("field", ["entry: payload", "seal: magic", "seal: crc", "header: salt"])
def test_a_damaged_journal_is_found(field: str, played: Play) -> None:
    root = played("checkpoints").root
    # The newest of the journals with the most groups, because it is replayed as a whole and later seals prove
    # its start.
    journal = max((root / STORE / "journal" / "current").glob("*.txn"), key=seals_and_id)
    _, offset, _ = next(one for one in fields("journal", journal.read_bytes()) if one[0] == field)
    flip(journal, offset)
    assert verify(root)


def seals_and_id(journal: Path) -> tuple[int, int]:
    seals = sum(name == "seal: magic" for name, _, _ in fields("journal", journal.read_bytes()))
    return seals, int(journal.stem, 16)


@pytest.mark.parametrize("name", ["lastMark", "ledgers.rows", "VERSION", "index/data.mdb", "3.log"])
def test_a_file_that_is_gone_is_found(name: str, played: Play) -> None:
    root = played("ledgers").root
    (ledgers_of(root) / name).unlink()
    assert verify(root)


@pytest.mark.parametrize(("name", "offset"), [("lastMark", 3), ("ledgers.rows", 60), ("VERSION", 0)])
def test_a_damaged_small_file_is_found(name: str, offset: int, played: Play) -> None:
    root = played("ledgers").root
    flip(ledgers_of(root) / name, offset)
    assert verify(root)


def test_an_index_that_names_another_place_is_found(played: Play) -> None:
    one, other = played("endings").root, played("checkpoints").root
    for name in ("data.mdb", "sums"):
        if (ledgers_of(other) / "index" / name).exists():
            (ledgers_of(one) / "index" / name).write_bytes((ledgers_of(other) / "index" / name).read_bytes())
    assert verify(one)
