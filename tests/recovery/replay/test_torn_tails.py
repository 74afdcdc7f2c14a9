"""The quarantine gets the torn tails of journals that count, and nothing of journals that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal_builder import START, OurJournal, entry_record, scan_all, zero

from recovery.crashlab import SimulatedDisk
from recovery.replay.chain import judge
from recovery.replay.decision import Decision
from recovery.replay.torn_tails import save_torn_tails, save_uncounted
from storage.disk import filenames

if TYPE_CHECKING:
    from storage.open_report import TornTail


def saved(files: dict[int, bytes]) -> tuple[list[Decision], list[TornTail]]:
    """Return the decision about each journal, and the tails that are saved."""
    root = SimulatedDisk().root()
    for journal_id, content in files.items():
        with root.create(filenames.journal(journal_id)) as file:
            file.write(0, [content])
    verdict = judge(START, scan_all(files, START), [])
    tails = [*save_torn_tails(verdict, root, root.directory("quarantine"))]
    return [one.decision for one in verdict.standings], tails


def test_the_tail_of_a_journal_that_is_cut_is_saved() -> None:
    journal = OurJournal(1).group(entry_record(1, 0)).group(entry_record(1, 1))
    start = journal.ends[0]

    decided, tails = saved({1: zero(journal.file(), start, start + 40)})

    assert decided == [Decision.CUT]
    assert [(one.file, one.offset) for one in tails] == [("1.txn", start)]


def test_bytes_in_a_journal_without_a_first_group_are_not_a_torn_tail() -> None:
    first = OurJournal(1).group(entry_record(1, 0))
    second = OurJournal(2, salt=1, synced=first.position).group(entry_record(1, 3))
    third = OurJournal(3, synced=first.position).group(entry_record(1, 3))
    torn = zero(second.file(), 4096, 4096 + 40)

    decided, tails = saved({1: first.file(), 2: torn, 3: third.file()})

    assert decided == [Decision.USE, Decision.VOID, Decision.USE]
    assert tails == []


def test_whole_groups_that_never_counted_are_saved_before_a_handover() -> None:
    first = OurJournal(1).group(entry_record(1, 0))
    second = OurJournal(2, salt=1, synced=first.position).group(entry_record(1, 3))
    third = OurJournal(3, synced=first.position).group(entry_record(1, 3))
    root = SimulatedDisk().root()
    for journal in (first, second, third):
        with root.create(filenames.journal(journal.journal_id)) as file:
            file.write(0, [journal.file()])

    tails = [*save_uncounted(root, {}, root.directory("quarantine"))]

    [tail] = tails
    assert tail.file == "2.txn"
    assert tail.offset + tail.size >= second.ends[0] > 4096 > tail.offset
