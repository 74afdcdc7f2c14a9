"""The directories of a bookie that has several of a kind."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import bookie_indexes
import pytest
from fixtures import bookie, manifest

from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.bookkeeper.directories import BookieDirectories, check_are_there, of_configuration
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.model.audit_report import AuditReport

SETS = ("01_clean", "03a_crash_after_checkpoint", "05a_compaction")


def spread(root: Path, journals: int, ledgers: int) -> BookieDirectories:
    """Spread the journals and logs of different bookies over directories, as one bookie would have them."""
    names = [*(f"j{number}" for number in range(journals)), *(f"l{number}" for number in range(ledgers))]
    for number in range(ledgers):
        made = bookie_indexes.bookie_with_index(SETS[number], root / f"set{number}")
        shutil.move(made / "ledgers", root / f"l{number}")
        (root / f"l{number}/current/lastMark").unlink()
    for number in range(journals):
        shutil.copytree(bookie(SETS[number]) / "bookie/journal", root / f"j{number}")
        mark = (bookie(SETS[number]) / "bookie/ledgers/current/lastMark").read_bytes()
        for other in range(ledgers):
            name = "lastMark" if journals == 1 else f"lastMark.{number}"
            (root / f"l{other}/current/{name}").write_bytes(mark)
    cookie = (bookie(SETS[0]) / "bookie/ledgers/current/VERSION").read_bytes()
    for name in names:
        (root / f"{name}/current/VERSION").write_bytes(cookie)
    paths = [str(root / name) for name in names]
    return BookieDirectories(tuple(paths[:journals]), tuple(paths[journals:]))


def audit(directories: BookieDirectories) -> AuditReport:
    parts = {part.path: part for part in directories.parts()}
    return run_audit(AuditRequest(tuple(parts), parts=parts))


@pytest.mark.parametrize(("journals", "ledgers"), [(1, 1), (2, 2), (1, 2), (2, 1)])
def test_a_sound_bookie_with_several_directories_is_sound(
    journals: int, ledgers: int, tmp_path: Path
) -> None:
    report = audit(spread(tmp_path, journals, ledgers))
    assert [one for one in report.findings if one.is_wrong] == []
    assert len(report.stores) == max(journals, ledgers)
    assert {one.identity.instance_id for one in report.stores} == {report.stores[0].identity.instance_id}
    assert sum(one.coverage.logs for one in report.stores) == sum(
        len(list((bookie(SETS[number]) / "bookie/ledgers/current").glob("*.log")))
        for number in range(ledgers)
    )
    assert sum(one.coverage.journals for one in report.stores) == sum(
        len(list((bookie(SETS[number]) / "bookie/journal/current").glob("*.txn")))
        for number in range(journals)
    )


def test_each_journal_has_its_own_mark(tmp_path: Path) -> None:
    directories = spread(tmp_path, 2, 2)
    facts = [store.facts for store in audit(directories).stores]
    expected = [manifest(SETS[number])["last_mark"] for number in range(2)]
    marks = [next(iter(one.values()))["journal_id"] for one in expected]
    assert [one.mark.position.journal_id for one in facts] == marks  # type: ignore[union-attr]


def test_a_lost_log_of_the_second_directory_is_found_there(tmp_path: Path) -> None:
    directories = spread(tmp_path, 1, 2)
    next((tmp_path / "l1/current").glob("*.log")).unlink()
    wrong = {one.store for one in audit(directories).findings if one.is_wrong}
    assert wrong == {str(tmp_path / "l1")}


def test_a_lost_journal_of_the_second_directory_is_found_there(tmp_path: Path) -> None:
    directories = spread(tmp_path, 2, 1)
    for journal in (tmp_path / "j1/current").glob("*.txn"):
        journal.unlink()
    wrong = {(one.kind, one.store) for one in audit(directories).findings if one.is_wrong}
    assert wrong == {("MRK-002", str(tmp_path / "j1"))}


def test_the_configuration_file_of_a_bookie_names_them(tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text("# a bookie\njournalDirectories=/j0, /j1\nledgerDirectories = /l0,\\\n  /l1\n")
    assert of_configuration(str(conf)) == BookieDirectories(("/j0", "/j1"), ("/l0", "/l1"))
    conf.write_text("journalDirectory=/j\nledgerDirectories=/l\n")
    assert of_configuration(str(conf)) == BookieDirectories(("/j",), ("/l",))


def test_a_directory_that_no_bookie_has_used_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no directory of a bookie"):
        check_are_there(BookieDirectories((str(tmp_path),), (str(tmp_path),)))
