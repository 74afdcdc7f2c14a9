"""The findings that the facts about a journal give."""

from __future__ import annotations

import struct

import pytest
from audited_journals import JOURNAL_ID, part_of
from journal_builder import OurJournal, entry_record

from recovery.audit.checks import journal_rules
from recovery.audit.findings.finding import Severity
from recovery.audit.model.store_facts import DirectoryOwner, StoreFacts
from storage.checkpoint.mark_format import Mark
from storage.entry.position import JournalPosition

_OF_A_KIND_TO_COME = struct.pack(">iqq", 20, 7, -0x9000) + b"more"


def _facts(mark: JournalPosition) -> StoreFacts:
    journal = OurJournal(JOURNAL_ID)
    journal.group(entry_record(7, 0, b"first"))
    journal.group(_OF_A_KIND_TO_COME, entry_record(7, 1, b"second"))
    journal.group(entry_record(7, 2, b"third"))
    start = mark.offset if mark.journal_id == JOURNAL_ID else None if mark.journal_id > JOURNAL_ID else 0
    part = part_of(journal.file(), start)
    return StoreFacts(
        store="", owner=DirectoryOwner.OURS, mark=Mark(mark), replay_from=mark, journals=(part,)
    )


@pytest.mark.parametrize(
    ("mark", "severity"),
    [
        (JournalPosition(JOURNAL_ID, 0), Severity.ERROR),
        (JournalPosition(JOURNAL_ID + 1, 0), Severity.WARNING),
    ],
    ids=["replayed", "before the mark"],
)
def test_a_record_of_a_future_kind_under_a_sound_seal_is_not_damage(
    mark: JournalPosition, severity: Severity
) -> None:
    found = [one for one in journal_rules.findings(_facts(mark)) if one.kind != "MRK-002"]
    assert [(one.kind, one.severity) for one in found] == [("DIR-003", severity)]
    assert "of kind -36864" in found[0].detail
