"""What is said of a journal by its facts."""

from __future__ import annotations

import struct

import pytest
from audited_journals import JOURNAL_ID, part_of
from journals import OurJournal, entry_record

from recovery.verify import journal_rules
from recovery.verify.facts import Owner, StoreFacts
from recovery.verify.finding import Severity
from storage.codec.mark import Mark
from storage.position import JournalPosition

_OF_A_KIND_TO_COME = struct.pack(">iqq", 20, 7, -0x9000) + b"more"


def _facts(mark: JournalPosition) -> StoreFacts:
    journal = OurJournal(JOURNAL_ID)
    journal.group(entry_record(7, 0, b"first"))
    journal.group(_OF_A_KIND_TO_COME, entry_record(7, 1, b"second"))
    journal.group(entry_record(7, 2, b"third"))
    start = mark.offset if mark.journal_id == JOURNAL_ID else None if mark.journal_id > JOURNAL_ID else 0
    part = part_of(journal.file(), start)
    return StoreFacts(store="", owner=Owner.OURS, mark=Mark(mark), journals=(part,))


@pytest.mark.parametrize(
    ("mark", "severity"),
    [
        (JournalPosition(JOURNAL_ID, 0), Severity.ERROR),
        (JournalPosition(JOURNAL_ID + 1, 0), Severity.WARNING),
    ],
    ids=["replayed", "before the mark"],
)
def test_a_record_of_a_kind_to_come_under_a_sound_seal_is_no_damage(
    mark: JournalPosition, severity: Severity
) -> None:
    found = [one for one in journal_rules.findings(_facts(mark)) if one.kind != "MRK-002"]
    assert [(one.kind, one.severity) for one in found] == [("DIR-003", severity)]
    assert "of kind -36864" in found[0].detail
