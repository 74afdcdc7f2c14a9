"""Crashes in an import: another import, or an opening after it, has the same result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from entry_log_builder import Log
from file_index import FileIndex
from journal_builder import BookieJournal, entry_record
from simulated_directories import STORE_ID, SimulatedDirectories, entries

from recovery.crashlab import LoseAll, RandomFate, SimulatedDisk, Stopped, Tearing, Verb
from recovery.directory.orphans import check_logs
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark import mark_of
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.entry.ledger_record import LedgerRecord, Tombstone
from storage.entry.position import JournalPosition, LogPosition
from storage.entrylog import lineage
from storage.entrylog.lineage_format import Lineage
from storage.journal import format as journal_format
from storage.ledgers import metadata_log
from storage.ledgers.metadata import plain

if TYPE_CHECKING:
    from recovery.crashlab import Fate
    from storage.index.port import Index

Shown = tuple[object, object, object, object, tuple[str, ...]]


def beginning(sector_size: int = 512) -> SimulatedDirectories:
    """A store of ours with every kind of metadata, on which a bookie has run."""
    site = SimulatedDirectories(sector_size=sector_size)
    site.checkpoint(*entries(1, range(3)), *entries(2, range(3)), *entries(3, range(3)))
    rows = (
        replace(plain(1), change=4, fenced=True),
        replace(plain(2), change=5, tombstone=Tombstone(JournalPosition(1, 4096))),
    )
    site.state = replace(site.state, rows_sequence=site.put_rows(*rows))
    site.put_index(*rows, ledgers=(8,))
    site.put_lineage(LogPosition(77, 8192))  # a log that the bookie has removed
    site.put_log(1, Log().add(*entries(2, range(9, 12)), *entries(7, range(40)), *entries(8, [0])))
    site.put_log(2, b"")
    words = [journal_format.encode_ledger_key(7, b"7" * 20), journal_format.encode_fence(3)]
    site.put_journal(4, BookieJournal(4).flush(*words, entry_record(7, 40)).file())
    site.put_mark()
    return site


def shown(
    site: SimulatedDirectories, index: Index, rows: dict[int, LedgerRecord], findings: tuple[str, ...]
) -> Shown:
    """The result of an import, without the numbers that count the attempts.

    The durable ends of our logs are left out, because a crash may put the old index aside, which had them.
    """
    ends = {log_id: min(1024, end) for log_id, end in index.state().log_ends.items()}
    state = replace(index.state(), generation=0, rows_sequence=0, log_ends=ends)
    return site.placed(index), list(index.rows()), rows, state, findings


def imported(site: SimulatedDirectories) -> Shown:
    found = site.imported()
    assert found.mark == mark_of(found.index.state(), found.mark.position.journal_id)
    return shown(site, found.index, dict(found.rows.rows), found.findings)


def after_a_crash(site: SimulatedDirectories, expected: Shown) -> None:
    """Import again, unless the first import has ended."""
    mark = lastmark.load(site.ledgers)
    assert isinstance(mark, Mark)
    if mark.trailer is None:
        assert imported(site) == expected
    index = site.place.open()
    assert isinstance(index, FileIndex)
    state = index.state()
    mark = lastmark.load(site.ledgers)
    assert mark == mark_of(state, state.mark.journal_id)
    check_logs(site.ledgers, state)
    known = lineage.load(site.ledgers, STORE_ID)
    assert isinstance(known, Lineage)
    assert (known.generation, {one.log_id for one in known.kept}) == (state.generation, {0, 1, 2})
    loaded = metadata_log.load(site.ledgers, state.rows_sequence)
    assert shown(site, index, dict(loaded.rows), expected[-1]) == expected


def interrupted(disk: SimulatedDisk) -> SimulatedDisk:
    with pytest.raises(Stopped):
        SimulatedDirectories(disk).imported()
    return disk


@pytest.mark.slow
@pytest.mark.parametrize("sector_size", [512, 4096])
def test_a_crash_at_any_operation_of_an_import_loses_nothing(sector_size: int) -> None:
    start = beginning(sector_size)
    whole = SimulatedDirectories(start.disk.copy())
    expected = imported(whole)
    images: set[str] = set()
    for operation in whole.disk.trace[len(start.disk.trace) :]:
        disk = start.disk.copy()
        disk.stop_before(operation.number)
        interrupted(disk)
        fates: list[Fate] = [*disk.fates(exhaustive_up_to=6)]
        fates += [RandomFate(seed, Tearing.RUINED) for seed in range(4)]
        for fate in fates:
            cut = disk.copy()
            cut.power_cut(fate)
            if cut.image() not in images:
                images.add(cut.image())
                after_a_crash(SimulatedDirectories(cut), expected)
        killed = disk.copy()
        killed.kill()
        after_a_crash(SimulatedDirectories(killed), expected)
        # And its result is durable.
        killed.power_cut(LoseAll())
        after_a_crash(SimulatedDirectories(killed), expected)
    assert len(images) > 20


def test_a_kill_inside_a_write_of_an_import_loses_nothing() -> None:
    start = beginning()
    whole = SimulatedDirectories(start.disk.copy())
    expected = imported(whole)
    done = whole.disk.trace[len(start.disk.trace) :]
    writes = [one for one in done if one.verb is Verb.WRITE]
    assert len(writes) >= 3
    for operation in writes:
        disk = start.disk.copy()
        disk.stop_within(operation.number)
        interrupted(disk).kill()
        after_a_crash(SimulatedDirectories(disk), expected)


def test_an_imported_log_of_a_bookie_may_lose_bytes_that_were_never_durable() -> None:
    site = SimulatedDirectories()
    site.put_mark()
    with site.ledgers.create(filenames.entry_log(0)) as file:
        file.write(0, [Log().add(*entries(1, range(3))).file()])
    state = site.imported().index.state()
    site.disk.power_cut(LoseAll())
    assert site.log(0) == b""
    check_logs(site.ledgers, state)


def test_an_import_makes_the_names_of_the_files_durable() -> None:
    site = SimulatedDirectories()
    site.put_mark()
    for directory, name in ((site.ledgers, "0.log"), (site.layout.journal, "9.txn")):
        with directory.create(name) as file:
            file.write(0, [Log().file()])
            file.sync()
    site.imported()
    site.disk.power_cut(LoseAll())
    assert "0.log" in site.ledgers.names()
    assert "9.txn" in site.layout.journal.names()
