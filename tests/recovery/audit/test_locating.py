from __future__ import annotations

from typing import TYPE_CHECKING

import fixtures
import pytest
import small_stores

from recovery.audit import locating
from recovery.audit.ways import Ways
from storage.entry import DigestType

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_stores.make(tmp_path_factory.mktemp("located") / "store")


@pytest.mark.parametrize("inside", ["", "ledgers", "ledgers/current"])
def test_logs_and_index_are_found_from_the_store_and_from_their_directory(store: Path, inside: str) -> None:
    found = locating.logs(str(store / inside))
    assert [(one.path, one.file_id) for one in found] == [
        (str(store / f"ledgers/current/{number}.log"), number) for number in range(3)
    ]
    assert locating.index(str(store / inside)) == str(store / "ledgers/current/index")


@pytest.mark.parametrize("inside", ["", "journal", "journal/current"])
def test_journals_are_found_the_same_way(store: Path, inside: str) -> None:
    (found,) = locating.journals(str(store / inside))
    assert (found.path, found.file_id) == (str(store / "journal/current/1.txn"), 1)


def test_ids_are_in_the_names_and_hexadecimal(tmp_path: Path) -> None:
    for name in ("a.log", "9.log", "10.log", "b.log.draft", "c.log.1.compacted", "notes.txt"):
        (tmp_path / name).touch()
    assert [one.file_id for one in locating.logs(str(tmp_path))] == [9, 10, 16]


def test_one_file_may_be_what_compaction_has_made(tmp_path: Path) -> None:
    (tmp_path / "c.log.1.compacted").touch()
    assert [one.file_id for one in locating.logs(str(tmp_path / "c.log.1.compacted"))] == [12]


def test_what_is_not_there_and_what_is_no_such_file_are_told_apart(store: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"9\.log"):
        locating.logs(str(store / "ledgers/current/9.log"))
    with pytest.raises(ValueError, match="neither a directory nor named like"):
        locating.logs(str(store / "journal/current/1.txn"))


@pytest.mark.parametrize("inside", ["", "ledgers", "ledgers/current", "ledgers/current/1.log"])
def test_the_store_tells_of_its_ledgers_digests_wherever_the_path_leads(store: Path, inside: str) -> None:
    known = locating.known(str(store / inside), Ways(password=b"secret"))
    assert known.ways.presumed is DigestType.CRC32C
    assert known.ways.password == b"secret"
    assert set(known.rows) <= set(small_stores.LEDGERS)


def test_nothing_is_known_of_a_bookie_s_ledgers() -> None:
    known = locating.known(str(fixtures.bookie("08_digests") / "bookie"), Ways(password=b"secret"))
    assert known.ways == Ways(password=b"secret")
