"""Whatever ends an adoption: who adopts again, or finds that it was done, has the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from entrylogs import Log
from file_index import FileIndex
from journals import BookieJournal, entry_record
from written_logs import Ground, entries

from recovery.crashlab import LoseAll, RandomFate, SimulatedDisk, Stopped, Tearing, Verb
from recovery.leftovers import check_logs
from storage import filenames, lastmark, ledger_rows
from storage.codec import journal as journal_codec
from storage.codec.mark import Mark
from storage.lastmark import mark_of
from storage.position import JournalPosition
from storage.registry import plain
from storage.row import LedgerRow, Tombstone

if TYPE_CHECKING:
    from recovery.crashlab import Fate
    from storage.index import Index

Shown = tuple[object, object, object, object, tuple[str, ...]]


def beginning(sector_size: int = 512) -> Ground:
    """A store of ours with something of everything, on which a bookie has run."""
    ground = Ground(sector_size=sector_size)
    ground.checkpoint(*entries(1, range(3)), *entries(2, range(3)), *entries(3, range(3)))
    rows = (
        replace(plain(1), change=4, fenced=True),
        replace(plain(2), change=5, tombstone=Tombstone(JournalPosition(1, 4096))),
    )
    ground.state = replace(ground.state, rows_sequence=ground.put_rows(*rows))
    ground.put_index(*rows, ledgers=(8,))
    ground.put_log(1, Log().add(*entries(2, range(9, 12)), *entries(7, range(40)), *entries(8, [0])))
    ground.put_log(2, b"")
    words = [journal_codec.encode_ledger_key(7, b"7" * 20), journal_codec.encode_fence(3)]
    ground.put_journal(4, BookieJournal(4).flush(*words, entry_record(7, 40)).file())
    ground.put_mark()
    return ground


def shown(ground: Ground, index: Index, rows: dict[int, LedgerRow], findings: tuple[str, ...]) -> Shown:
    """All that an adoption leads to, but for the numbers that count the attempts.

    How much of our logs is known to be durable was in the old index, which a crash may put aside.
    """
    ends = {log_id: min(1024, end) for log_id, end in index.state().log_ends.items()}
    state = replace(index.state(), generation=0, rows_sequence=0, log_ends=ends)
    return ground.placed(index), list(index.rows()), rows, state, findings


def adopted(ground: Ground) -> Shown:
    found = ground.adopted()
    assert found.mark == mark_of(found.index.state(), found.mark.position.journal_id)
    return shown(ground, found.index, dict(found.rows.rows), found.findings)


def after_a_crash(ground: Ground, expected: Shown) -> None:
    """Adopts again, unless the adoption had ended: then everything is there already."""
    mark = lastmark.load(ground.ledgers)
    assert isinstance(mark, Mark)
    if mark.trailer is None:
        assert adopted(ground) == expected
    index = ground.place.open()
    assert isinstance(index, FileIndex)
    state = index.state()
    mark = lastmark.load(ground.ledgers)
    assert mark == mark_of(state, state.mark.journal_id)
    check_logs(ground.ledgers, state)
    loaded = ledger_rows.load(ground.ledgers, state.rows_sequence)
    assert shown(ground, index, loaded.rows, expected[-1]) == expected


def interrupted(disk: SimulatedDisk) -> SimulatedDisk:
    with pytest.raises(Stopped):
        Ground(disk).adopted()
    return disk


@pytest.mark.parametrize("sector_size", [512, 4096])
def test_a_crash_anywhere_costs_nothing_but_the_work(sector_size: int) -> None:
    start = beginning(sector_size)
    whole = Ground(start.disk.copy())
    expected = adopted(whole)
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
                after_a_crash(Ground(cut), expected)
        killed = disk.copy()
        killed.kill()
        after_a_crash(Ground(killed), expected)
        # And what it then leaves behind is durable.
        killed.power_cut(LoseAll())
        after_a_crash(Ground(killed), expected)
    assert len(images) > 20


def test_a_kill_in_the_middle_of_a_write_costs_nothing_but_the_work() -> None:
    start = beginning()
    whole = Ground(start.disk.copy())
    expected = adopted(whole)
    done = whole.disk.trace[len(start.disk.trace) :]
    writes = [one for one in done if one.verb is Verb.WRITE]
    assert len(writes) >= 3
    for operation in writes:
        disk = start.disk.copy()
        disk.stop_within(operation.number)
        interrupted(disk).kill()
        after_a_crash(Ground(disk), expected)


def test_a_bookie_s_log_may_lose_what_was_never_durable_once_it_was_adopted() -> None:
    ground = Ground()
    ground.put_mark()
    with ground.ledgers.create(filenames.entry_log(0)) as file:
        file.write(0, [Log().add(*entries(1, range(3))).file()])
    state = ground.adopted().index.state()
    ground.disk.power_cut(LoseAll())
    assert ground.log(0) == b""
    check_logs(ground.ledgers, state)


def test_the_files_that_were_read_stay_though_nobody_had_made_their_names_durable() -> None:
    ground = Ground()
    ground.put_mark()
    for directory, name in ((ground.ledgers, "0.log"), (ground.layout.journal, "9.txn")):
        with directory.create(name) as file:
            file.write(0, [Log().file()])
            file.sync()
    ground.adopted()
    ground.disk.power_cut(LoseAll())
    assert "0.log" in ground.ledgers.names()
    assert "9.txn" in ground.layout.journal.names()
