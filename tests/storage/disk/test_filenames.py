"""Names, made and parsed in one place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.disk import filenames
from storage.disk.filenames import FileKind, FileName
from storage.entry.model import ID_MAX
from storage.entry.position import LOG_ID_MAX

JOURNALS = st.integers(0, ID_MAX)
LOGS = st.integers(0, LOG_ID_MAX)


@given(JOURNALS)
def test_journals(journal_id: int) -> None:
    name = filenames.journal(journal_id)
    assert filenames.parse(name) == FileName(FileKind.JOURNAL, journal_id)
    assert filenames.parse(filenames.draft(name)) == FileName(FileKind.JOURNAL_DRAFT, journal_id)
    assert not filenames.draft(name).endswith(".txn")


@given(LOGS, LOGS)
def test_entry_logs(log_id: int, victim: int) -> None:
    name = filenames.entry_log(log_id)
    assert filenames.parse(name) == FileName(FileKind.ENTRY_LOG, log_id)
    assert filenames.parse(filenames.draft(name)) == FileName(FileKind.ENTRY_LOG_DRAFT, log_id)
    assert not filenames.draft(name).endswith(".log")
    assert filenames.parse(name + ".compacting") == FileName(FileKind.COMPACTING_LOG, log_id)
    compacted = f"{name}.{victim:x}.compacted"
    assert filenames.parse(compacted) == FileName(FileKind.COMPACTED_LOG, log_id, victim)


@given(st.integers(0, 10**6))
def test_marks(index: int) -> None:
    assert filenames.parse(f"lastMark.{index}") == FileName(FileKind.LAST_MARK, index)
    assert filenames.parse(filenames.LAST_MARK) == FileName(FileKind.LAST_MARK)
    assert filenames.parse(filenames.draft(filenames.LAST_MARK)) == FileName(FileKind.LAST_MARK_DRAFT)


def test_names_are_those_of_a_bookie() -> None:
    assert filenames.journal(0x19B0A1B2C3D) == "19b0a1b2c3d.txn"
    assert filenames.entry_log(0) == "0.log"
    assert filenames.entry_log(0x1F4) == "1f4.log"


STRANGERS = [
    *("", "txn", ".txn", "0A.txn", "01.txn", "-1.txn", "1.TXN", "1.txn ", "1.txn\n", f"{ID_MAX + 1:x}.txn"),
    *("00.log", "x.log", "1.log.bak", f"{LOG_ID_MAX + 1:x}.log", f"1.log.{LOG_ID_MAX + 1:x}.compacted"),
    *(f"{LOG_ID_MAX + 1:x}.log.draft", "01.log.draft", "1.log.compacting.draft", "1.log.78.compacted.draft"),
    *("lastmark", "lastMark.x", "lastMark.01", "version"),
]


@pytest.mark.parametrize("name", STRANGERS)
def test_a_name_that_no_store_would_write_is_unknown(name: str) -> None:
    assert filenames.parse(name) == FileName(FileKind.UNKNOWN)
