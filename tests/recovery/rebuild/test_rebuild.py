"""A rebuilt index: digest types and deletes of the metadata, and damage in the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from journal_builder import entry_bytes
from simulated_directories import STORE_ID, SimulatedDirectories, entries, ids

from recovery.rebuild.index_builder import RebuildFigures, tombstone_positions
from recovery.rebuild.rebuild import rebuild
from storage.entry.digest import master_key
from storage.entry.ledger_record import LedgerRecord, Tombstone
from storage.entry.model import DigestType
from storage.entry.position import JournalPosition, LogPosition
from storage.ledgers.metadata import plain
from storage.open_report import RebuildProgress

if TYPE_CHECKING:
    from recovery.rebuild.rebuild import RebuiltIndex

HERE = JournalPosition(3, 4096)
"""Any position in a journal, because the journals do not matter here."""


def deleted(ledger_id: int, log: LogPosition | None) -> LedgerRecord:
    row = plain(ledger_id)
    return LedgerRecord(
        ledger_id, 7, row.digest_type, master_key=row.master_key, tombstone=Tombstone(HERE, log)
    )


def protected(ledger_id: int, digest_type: DigestType | None) -> LedgerRecord:
    return LedgerRecord(ledger_id, 1, digest_type, master_key=master_key(b"password"))


def places(site: SimulatedDirectories, rebuilt: RebuiltIndex, ledger_id: int) -> list[int]:
    return ids(site.placed(rebuilt.index), ledger_id)


# ── the rows ─────────────────────────────────────────────────────────────────────────────────────────────


def test_every_row_is_in_the_new_index() -> None:
    site, rows = SimulatedDirectories(), [protected(4, DigestType.MAC), deleted(2, None)]
    site.checkpoint(*entries(1, range(3)))
    index = site.rebuilt(*rows).index
    assert list(index.rows()) == [rows[1], rows[0]]
    assert index.state() == site.state


@pytest.mark.parametrize(
    ("row", "written", "findings"),
    [
        (None, DigestType.CRC32C, 0),
        (None, DigestType.CRC32, 3),
        (DigestType.CRC32, DigestType.CRC32, 0),
        (DigestType.CRC32, DigestType.CRC32C, 3),
        (DigestType.MAC, DigestType.MAC, 0),
        (DigestType.MAC, DigestType.CRC32, 0),
        (DigestType.DUMMY, DigestType.DUMMY, 0),
        ("unknown", DigestType.MAC, 0),
        ("unknown", DigestType.CRC32C, 0),
    ],
)
def test_entries_are_verified_by_the_row_and_indexed_in_any_case(
    row: DigestType | str | None, written: DigestType, findings: int
) -> None:
    site = SimulatedDirectories()
    site.checkpoint(*(entry_bytes(1, number, digest=written) for number in range(3)))
    rows = [] if row is None else [protected(1, row if isinstance(row, DigestType) else None)]
    rebuilt = site.rebuilt(*rows)
    assert places(site, rebuilt, 1) == [0, 1, 2]
    assert [one[:7] for one in rebuilt.findings] == ["ELG-003"] * findings
    assert rebuilt.figures.unreadable == findings


# ── what is deleted ──────────────────────────────────────────────────────────────────────────────────────


def test_a_tombstone_without_a_log_deletes_every_record() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(2)), *entries(2, range(2)))
    site.new_run()
    site.checkpoint(*entries(1, range(2, 4)))
    rebuilt = site.rebuilt(deleted(1, None))
    assert list(rebuilt.index.ledgers()) == [2]
    assert rebuilt.index.state().is_whole


def test_a_tombstone_deletes_earlier_records_and_no_later_ones() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(2)))
    end = site.checkpoint(*entries(1, range(2, 4)), *entries(2, range(1)))
    site.checkpoint(*entries(1, range(1)))
    site.new_run()
    site.checkpoint(*entries(1, range(1, 2)))
    rebuilt = site.rebuilt(deleted(1, end))
    assert places(site, rebuilt, 1) == [0, 1]
    assert places(site, rebuilt, 2) == [0]


def test_earlier_means_the_order_of_the_logs_and_not_of_their_ids() -> None:
    site = SimulatedDirectories(last_log=0x7FFFFFFD)
    first = site.checkpoint(*entries(1, [0]))
    site.new_run()
    second = site.checkpoint(*entries(1, [1]))
    site.new_run()
    site.checkpoint(*entries(1, [2]))
    assert (first.log_id, second.log_id, site.state.last_log) == (0x7FFFFFFE, 0, 1)
    assert places(site, site.rebuilt(deleted(1, first)), 1) == [1, 2]
    assert places(site, site.rebuilt(deleted(1, second)), 1) == [2]


def test_a_tombstone_before_all_logs_deletes_nothing() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(3)))
    assert places(site, site.rebuilt(deleted(1, LogPosition(0, 0))), 1) == [0, 1, 2]


def test_a_tombstone_whose_log_was_removed_deletes_the_records_before_that_log() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(3)), *entries(2, [0]))
    site.new_run()
    bound = site.checkpoint(*entries(3, [0]))
    site.new_run()
    site.checkpoint(*entries(1, [7]))
    site.remove_logs(bound.log_id)
    rebuilt = site.rebuilt(deleted(1, bound))
    assert places(site, rebuilt, 1) == [7]
    assert places(site, rebuilt, 2) == [0]


@pytest.mark.parametrize(
    ("bounds", "order", "ranks"),
    [
        ([4], [3, 5, 6], [1]),
        ([2], [3, 5], [0]),
        ([4, 6, 8], [3, 5, 9], [1, 2, 2]),
        # Ids continue from 0 after the largest one.
        ([0x7FFFFFFD, 1], [0x7FFFFFFC, 0x7FFFFFFE, 2], [1, 2]),
        ([0x7FFFFFFD], [1, 2], [0]),
        ([5], [], [0]),
    ],
)
def test_a_bound_in_a_removed_log_is_where_its_id_belongs_in_the_order(
    bounds: list[int], order: list[int], ranks: list[int]
) -> None:
    rows = {number: deleted(number, LogPosition(log_id, 8192)) for number, log_id in enumerate(bounds)}
    assert tombstone_positions(rows, order) == {number: (rank, 0) for number, rank in enumerate(ranks)}


def test_a_bound_before_all_logs_does_not_count_as_a_log() -> None:
    rows = {1: deleted(1, LogPosition(0, 0)), 2: deleted(2, LogPosition(0x7FFFFFFB, 8192))}
    order = [0x7FFFFFFA, 0x7FFFFFFC]
    assert tombstone_positions(rows, order) == {1: (0, 0), 2: (1, 0)}


def test_a_tombstone_at_the_end_of_an_imported_log_deletes_all_of_it() -> None:
    rows = {1: deleted(1, LogPosition(4, 1024))}
    assert tombstone_positions(rows, [3, 4, 5]) == {1: (2, 0)}


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_index_of_sound_logs_is_whole() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(3)))
    rebuilt = site.rebuilt()
    assert rebuilt.index.state().is_whole
    assert rebuilt.findings == ()
    assert rebuilt.figures == RebuildFigures(1, len(site.log(0)), 0, 0)


def test_an_index_with_a_hole_before_the_end_is_not_whole() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(3)))
    site.flip(0, 4096)  # the size of the first record
    site.flip(0, 4096 + 30)  # and its digest cannot verify either
    rebuilt = site.rebuilt()
    assert places(site, rebuilt, 1) == [1, 2]
    assert not rebuilt.index.state().is_whole
    assert [one[:18] for one in rebuilt.findings] == ["ELG-004 0.log@4096"]
    assert rebuilt.figures.holes == 1


def test_an_index_of_a_log_that_ends_in_zeros_before_its_end_is_not_whole() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(2)))
    end = site.checkpoint(*entries(1, range(2, 4)))
    site.put_log(0, site.log(0)[:8192].ljust(end.offset, b"\0"))
    rebuilt = site.rebuilt()
    assert places(site, rebuilt, 1) == [0, 1]
    assert not rebuilt.index.state().is_whole


def test_damage_after_the_end_is_a_leftover_of_a_checkpoint() -> None:
    site = SimulatedDirectories()
    end = site.checkpoint(*entries(1, range(2)))
    site.write(*entries(1, range(2, 4)))
    site.flip(0, end.offset)
    rebuilt = site.rebuilt()
    assert places(site, rebuilt, 1) == [0, 1]
    assert (rebuilt.findings, rebuilt.index.state().is_whole) == ((), True)


def test_a_damaged_payload_is_unreadable_though_an_older_copy_is_sound() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, [0], b"older"))
    site.checkpoint(*entries(1, [0], b"newer"))
    site.flip(0, site.log(0).index(b"newer"))
    rebuilt = site.rebuilt()
    assert site.placed(rebuilt.index)[1, 0].endswith(b"wer")
    assert [one[:18] for one in rebuilt.findings] == ["ELG-003 0.log@8192"]
    assert rebuilt.index.state().is_whole


def test_a_damaged_copy_before_a_sound_one_is_no_finding() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, [0], b"older"))
    site.checkpoint(*entries(1, [0], b"newer"))
    site.flip(0, site.log(0).index(b"older"))
    rebuilt = site.rebuilt()
    assert (rebuilt.findings, rebuilt.figures.unreadable) == ((), 0)


def test_a_damaged_header_makes_the_index_not_whole() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, [0]))
    site.new_run()
    site.checkpoint(*entries(1, [1]))
    site.flip(1, 60)
    rebuilt = site.rebuilt()
    assert places(site, rebuilt, 1) == [0, 1]
    assert not rebuilt.index.state().is_whole


def test_many_damaged_entries_are_summarised() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(150)))
    rebuilt = site.rebuilt(protected(1, DigestType.CRC32))
    assert rebuilt.figures.unreadable == 150
    assert len(rebuilt.findings) == 101
    assert "50 more" in rebuilt.findings[-1]


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────


def test_progress_ends_with_everything_done() -> None:
    site = SimulatedDirectories()
    site.checkpoint(*entries(1, range(30), b"x" * 60_000))
    told: list[RebuildProgress] = []
    rebuild(site.place, site.ledgers, site.mark, STORE_ID, {}, 0, told.append)
    assert len(told) > 1
    assert [one.bytes_done for one in told] == sorted(one.bytes_done for one in told)
    assert told[-1] == RebuildProgress(len(site.log(0)), len(site.log(0)), 30)
    assert told[-1].fraction == 1.0
    assert RebuildProgress(0, 0, 0).fraction == 1.0
