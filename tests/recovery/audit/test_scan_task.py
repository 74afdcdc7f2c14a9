"""A scan task divides its result, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import small_stores
from entry_log_tasks import OURS, log_file, part_values, scan
from journal_builder import OurJournal, entry_record

from recovery.audit.engines.task import ReadThrottle, UnreadFile
from recovery.audit.model.scan_results import IndexPart, JournalPart, LogPart, Scanned
from recovery.audit.scan.index import ScanIndex
from recovery.audit.scan.journal import ScanJournal
from recovery.audit.scan.scan_task import ScanTask
from storage.entry.model import ID_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.engines.task import AuditTask
    from recovery.audit.model.scan_results import Part


def scanned(task: AuditTask[Part], number: int) -> Scanned:
    found = ScanTask(number, 0, task).run(ReadThrottle())
    assert isinstance(found, Scanned)
    return found


def test_the_runs_and_the_ledgers_map_of_a_log_are_separated(tmp_path: Path) -> None:
    task = scan(log_file(tmp_path, 3))
    part, found = task.run(ReadThrottle()), scanned(task, 8)
    assert isinstance(found.part, LogPart)
    assert (len(found.part.runs), found.part.number, list(found.rows)) == (0, 8, [8])
    assert found.part.maps
    assert {one.pairs for one in found.part.maps} == {()}
    assert found.mapped["ledger"].tolist() == [7, 8]
    whole = found.whole()
    assert isinstance(whole, LogPart)
    assert without_time(part_values(whole)) == without_time(part_values(part)) | {"number": 8}


def without_time(values: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name != "seconds"}


def test_a_journal_has_two_numbers(tmp_path: Path) -> None:
    journal = OurJournal(5)
    journal.group(entry_record(7, 0, b"first"))
    begin = journal.end
    journal.group(entry_record(7, 1, b"second"), entry_record(7, 2, b"third"))
    (tmp_path / "5.txn").write_bytes(journal.file())
    task = ScanJournal(str(tmp_path / "5.txn"), 5, begin, {}, OURS)
    part, found = task.run(ReadThrottle()), scanned(task, 4)
    assert isinstance(found.part, JournalPart)
    assert (len(found.part.after_mark), len(found.part.before_mark)) == (0, 0)
    assert (found.part.entries_before, found.part.entries_after) == (1, 2)
    whole = found.whole()
    assert isinstance(whole, JournalPart)
    assert whole.after_mark.tolist() == part.after_mark.tolist() == found.rows[4].tolist()
    assert whole.before_mark.tolist() == part.before_mark.tolist() == found.rows[5].tolist()


def test_the_runs_of_an_index_are_separated(tmp_path: Path) -> None:
    path = small_stores.make(tmp_path / "store") / "ledgers/current/index"
    task = ScanIndex(str(path), 0, ID_MAX)
    part, found = task.run(ReadThrottle()), scanned(task, 2)
    assert isinstance(found.part, IndexPart)
    assert found.part.count == part.count > 0
    assert found.rows[2].tolist() == part.runs.tolist()


def test_a_file_that_cannot_be_read_is_a_result(tmp_path: Path) -> None:
    task = scan(log_file(tmp_path, 3))
    (tmp_path / "3.log").unlink()
    found = ScanTask(2, 0, task).run(ReadThrottle())
    assert isinstance(found, UnreadFile)
    assert found.file.endswith("3.log")
