"""The index made again: what the rows say of digests and deletes, and what damage in the logs means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from journals import entry_bytes
from written_logs import STORE_ID, Ground, entries, ids

from recovery.placing import Figures, graves
from recovery.rebuild import rebuild
from storage.codec.digest import master_key
from storage.entry import DigestType
from storage.position import JournalPosition, LogPosition
from storage.registry import plain
from storage.report import RebuildProgress
from storage.row import LedgerRow, Tombstone

if TYPE_CHECKING:
    from recovery.rebuild import Rebuilt

HERE = JournalPosition(3, 4096)
"""A place in a journal: what a tombstone says of journals does not matter here."""


def deleted(ledger_id: int, log: LogPosition | None) -> LedgerRow:
    row = plain(ledger_id)
    return LedgerRow(ledger_id, 7, row.digest_type, master_key=row.master_key, tombstone=Tombstone(HERE, log))


def protected(ledger_id: int, digest_type: DigestType | None) -> LedgerRow:
    return LedgerRow(ledger_id, 1, digest_type, master_key=master_key(b"password"))


def places(ground: Ground, rebuilt: Rebuilt, ledger_id: int) -> list[int]:
    return ids(ground.placed(rebuilt.index), ledger_id)


# ── the rows ─────────────────────────────────────────────────────────────────────────────────────────────


def test_every_row_is_in_the_new_index() -> None:
    ground, rows = Ground(), [protected(4, DigestType.MAC), deleted(2, None)]
    ground.checkpoint(*entries(1, range(3)))
    index = ground.rebuilt(*rows).index
    assert list(index.rows()) == [rows[1], rows[0]]
    assert index.state() == ground.state


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
def test_entries_are_verified_as_the_row_says_and_placed_whatever_comes_of_it(
    row: DigestType | str | None, written: DigestType, findings: int
) -> None:
    ground = Ground()
    ground.checkpoint(*(entry_bytes(1, number, digest=written) for number in range(3)))
    rows = [] if row is None else [protected(1, row if isinstance(row, DigestType) else None)]
    rebuilt = ground.rebuilt(*rows)
    assert places(ground, rebuilt, 1) == [0, 1, 2]
    assert [one[:7] for one in rebuilt.findings] == ["ELG-003"] * findings
    assert rebuilt.figures.unreadable == findings


# ── what is deleted ──────────────────────────────────────────────────────────────────────────────────────


def test_a_tombstone_without_a_log_kills_every_record() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(2)), *entries(2, range(2)))
    ground.new_run()
    ground.checkpoint(*entries(1, range(2, 4)))
    rebuilt = ground.rebuilt(deleted(1, None))
    assert list(rebuilt.index.ledgers()) == [2]
    assert rebuilt.index.state().is_whole


def test_a_tombstone_kills_what_stands_before_it_and_nothing_behind() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(2)))
    end = ground.checkpoint(*entries(1, range(2, 4)), *entries(2, range(1)))
    ground.checkpoint(*entries(1, range(1)))
    ground.new_run()
    ground.checkpoint(*entries(1, range(1, 2)))
    rebuilt = ground.rebuilt(deleted(1, end))
    assert places(ground, rebuilt, 1) == [0, 1]
    assert places(ground, rebuilt, 2) == [0]


def test_before_is_by_the_order_of_the_logs_and_not_by_their_ids() -> None:
    ground = Ground(last_log=0x7FFFFFFD)
    first = ground.checkpoint(*entries(1, [0]))
    ground.new_run()
    second = ground.checkpoint(*entries(1, [1]))
    ground.new_run()
    ground.checkpoint(*entries(1, [2]))
    assert (first.log_id, second.log_id, ground.state.last_log) == (0x7FFFFFFE, 0, 1)
    assert places(ground, ground.rebuilt(deleted(1, first)), 1) == [1, 2]
    assert places(ground, ground.rebuilt(deleted(1, second)), 1) == [2]


@pytest.mark.parametrize("log", [LogPosition(0, 0), LogPosition(5, 8192)])
def test_a_tombstone_that_names_no_place_in_the_lineage_kills_nothing(log: LogPosition) -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(3)))
    assert places(ground, ground.rebuilt(deleted(1, log)), 1) == [0, 1, 2]


def test_a_tombstone_at_the_end_of_a_log_that_was_only_read_kills_all_of_it() -> None:
    rows = {1: deleted(1, LogPosition(4, 1024))}
    assert graves(rows, [3, 4, 5]) == {1: (2, 0)}


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_index_of_sound_logs_is_whole() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(3)))
    rebuilt = ground.rebuilt()
    assert rebuilt.index.state().is_whole
    assert rebuilt.findings == ()
    assert rebuilt.figures == Figures(1, len(ground.log(0)), 0, 0)


def test_an_index_with_a_hole_before_the_end_is_not_whole() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(3)))
    ground.flip(0, 4096)  # the size of the first record
    ground.flip(0, 4096 + 30)  # and its digest does not prove it either
    rebuilt = ground.rebuilt()
    assert places(ground, rebuilt, 1) == [1, 2]
    assert not rebuilt.index.state().is_whole
    assert [one[:18] for one in rebuilt.findings] == ["ELG-004 0.log@4096"]
    assert rebuilt.figures.holes == 1


def test_an_index_of_a_log_that_ends_in_zeros_before_its_end_is_not_whole() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(2)))
    end = ground.checkpoint(*entries(1, range(2, 4)))
    ground.put_log(0, ground.log(0)[:8192].ljust(end.offset, b"\0"))
    rebuilt = ground.rebuilt()
    assert places(ground, rebuilt, 1) == [0, 1]
    assert not rebuilt.index.state().is_whole


def test_damage_behind_the_end_is_what_an_interrupted_checkpoint_left() -> None:
    ground = Ground()
    end = ground.checkpoint(*entries(1, range(2)))
    ground.write(*entries(1, range(2, 4)))
    ground.flip(0, end.offset)
    rebuilt = ground.rebuilt()
    assert places(ground, rebuilt, 1) == [0, 1]
    assert (rebuilt.findings, rebuilt.index.state().is_whole) == ((), True)


def test_a_damaged_payload_is_unreadable_though_an_older_copy_is_sound() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, [0], b"older"))
    ground.checkpoint(*entries(1, [0], b"newer"))
    ground.flip(0, ground.log(0).index(b"newer"))
    rebuilt = ground.rebuilt()
    assert ground.placed(rebuilt.index)[1, 0].endswith(b"wer")
    assert [one[:18] for one in rebuilt.findings] == ["ELG-003 0.log@8192"]
    assert rebuilt.index.state().is_whole


def test_a_damaged_copy_in_front_of_a_sound_one_is_no_finding() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, [0], b"older"))
    ground.checkpoint(*entries(1, [0], b"newer"))
    ground.flip(0, ground.log(0).index(b"older"))
    rebuilt = ground.rebuilt()
    assert (rebuilt.findings, rebuilt.figures.unreadable) == ((), 0)


def test_a_header_that_hides_what_was_before_makes_the_index_doubtful() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, [0]))
    ground.new_run()
    ground.checkpoint(*entries(1, [1]))
    ground.flip(1, 60)
    rebuilt = ground.rebuilt()
    assert places(ground, rebuilt, 1) == [0, 1]
    assert not rebuilt.index.state().is_whole


def test_of_many_damaged_entries_not_all_are_told_one_by_one() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(150)))
    rebuilt = ground.rebuilt(protected(1, DigestType.CRC32))
    assert rebuilt.figures.unreadable == 150
    assert len(rebuilt.findings) == 101
    assert "50 more" in rebuilt.findings[-1]


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────


def test_progress_ends_with_everything_done() -> None:
    ground = Ground()
    ground.checkpoint(*entries(1, range(30), b"x" * 60_000))
    told: list[RebuildProgress] = []
    rebuild(ground.place, ground.ledgers, ground.mark, STORE_ID, {}, 0, told.append)
    assert len(told) > 1
    assert [one.bytes_done for one in told] == sorted(one.bytes_done for one in told)
    assert told[-1] == RebuildProgress(len(ground.log(0)), len(ground.log(0)), 30)
    assert told[-1].fraction == 1.0
    assert RebuildProgress(0, 0, 0).fraction == 1.0
