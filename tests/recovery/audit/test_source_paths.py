from __future__ import annotations

from typing import TYPE_CHECKING

import fixtures
import pytest
import small_stores

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.spark import source_paths
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_stores.make(tmp_path_factory.mktemp("located") / "store")


@pytest.mark.parametrize("inside", ["", "ledgers", "ledgers/current"])
def test_logs_and_index_are_found_from_the_store_and_from_their_directory(store: Path, inside: str) -> None:
    found = source_paths.logs(str(store / inside))
    assert [(one.path, one.file_id) for one in found] == [
        (str(store / f"ledgers/current/{number}.log"), number) for number in range(3)
    ]
    assert source_paths.index(str(store / inside)) == str(store / "ledgers/current/index")


@pytest.mark.parametrize("inside", ["", "journal", "journal/current"])
def test_journals_are_found_the_same_way(store: Path, inside: str) -> None:
    (found,) = source_paths.journals(str(store / inside))
    assert (found.path, found.file_id) == (str(store / "journal/current/1.txn"), 1)


def test_ids_are_in_the_names_and_hexadecimal(tmp_path: Path) -> None:
    for name in ("a.log", "9.log", "10.log", "b.log.draft", "c.log.1.compacted", "notes.txt"):
        (tmp_path / name).touch()
    assert [one.file_id for one in source_paths.logs(str(tmp_path))] == [9, 10, 16]


def test_a_single_file_may_be_a_compacted_log(tmp_path: Path) -> None:
    (tmp_path / "c.log.1.compacted").touch()
    assert [one.file_id for one in source_paths.logs(str(tmp_path / "c.log.1.compacted"))] == [12]


def test_a_missing_path_and_a_wrong_kind_of_file_are_different_errors(store: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"9\.log"):
        source_paths.logs(str(store / "ledgers/current/9.log"))
    with pytest.raises(ValueError, match="neither a directory nor named like"):
        source_paths.logs(str(store / "journal/current/1.txn"))


@pytest.mark.parametrize("inside", ["", "ledgers", "ledgers/current", "ledgers/current/1.log"])
def test_the_digest_types_come_from_the_store_for_any_path_in_it(store: Path, inside: str) -> None:
    known = source_paths.known(str(store / inside), DigestPolicy(password=b"secret"))
    assert known.policy.presumed is DigestType.CRC32C
    assert known.policy.password == b"secret"
    assert set(known.rows) <= set(small_stores.LEDGERS)


def test_for_a_bookie_only_the_given_policy_is_known() -> None:
    known = source_paths.known(
        str(fixtures.bookie("08_digests") / "bookie"), DigestPolicy(password=b"secret")
    )
    assert known.policy == DigestPolicy(password=b"secret")


def test_a_directory_of_something_else_is_not_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FileNotFoundError, match="no entry log, and nothing else of a store"):
        source_paths.logs(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no journal"):
        source_paths.journals(str(tmp_path))


def test_a_store_without_logs_is_empty(store: Path, tmp_path: Path) -> None:
    (tmp_path / "VERSION").write_bytes((store / "ledgers/current/VERSION").read_bytes())
    assert source_paths.logs(str(tmp_path)) == []
