"""The table of ledger records: the record of each ledger, whatever way it was put in and is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import many

from storage.entry import ledger_record_format
from storage.entry.digest import master_key
from storage.entry.ledger_record import KnownBy, LedgerRecord, Tombstone
from storage.entry.ledger_record_table import LedgerRecordTable, is_plain_tombstone, table_of
from storage.entry.model import ID_MAX, DigestType
from storage.entry.position import LOG_ID_MAX, JournalPosition, LogPosition

PLAIN = LedgerRecord(7, 1, DigestType.CRC32C, master_key=master_key(b""))
GRAVE = Tombstone(JournalPosition(3, 8192))

IDS = st.one_of(
    *(st.integers(low, high) for low, high in [(0, 300), (65000, 66000), (2**32 - 9, 2**32 + 9), (0, ID_MAX)])
)
LOGS = st.none() | st.builds(LogPosition, st.integers(0, 300) | st.integers(0, LOG_ID_MAX), IDS)
GRAVES = st.builds(Tombstone, st.builds(JournalPosition, IDS, IDS), LOGS)
DELETED = st.builds(
    lambda one, change, grave: replace(PLAIN, ledger_id=one, change=change, tombstone=grave), IDS, IDS, GRAVES
)
OTHERS = st.builds(
    LedgerRecord,
    IDS,
    IDS,
    st.none() | st.sampled_from(DigestType),
    st.sampled_from(KnownBy),
    st.none() | st.just(master_key(b"")) | st.binary(max_size=40),
    st.booleans(),
    st.none() | st.binary(max_size=40),
    st.none() | GRAVES,
    st.booleans(),
)


def latest(rows: list[LedgerRecord]) -> dict[int, LedgerRecord]:
    found: dict[int, LedgerRecord] = {}
    for row in rows:
        if row.ledger_id not in found or found[row.ledger_id].change <= row.change:
            found[row.ledger_id] = row
    return found


@pytest.mark.sampled
@settings(max_examples=many(100, 13))
@given(st.lists(DELETED | OTHERS, unique_by=lambda row: row.ledger_id))
def test_rows_taken_many_at_once_are_those_that_were_written(rows: list[LedgerRecord]) -> None:
    table = LedgerRecordTable()
    assert table.take([ledger_record_format.encode(row) for row in rows]) is None
    assert table == {row.ledger_id: row for row in rows}
    assert len(table) == len(rows)
    assert table.highest_change == max((row.change for row in rows), default=0)
    assert table.living == {row.ledger_id: row for row in rows if not is_plain_tombstone(row)}
    assert sorted(table.encoded()) == sorted(map(ledger_record_format.encode, rows))
    unbounded = {row.ledger_id for row in rows if row.tombstone is not None and row.tombstone.log is None}
    assert {row.ledger_id for row in table.unbounded_tombstones()} == unbounded
    assert table == table_of(rows)


@settings(max_examples=40)
@given(st.lists(DELETED | OTHERS, max_size=12), st.lists(DELETED | OTHERS, max_size=12))
def test_the_later_of_two_records_of_a_ledger_stays(
    first: list[LedgerRecord], second: list[LedgerRecord]
) -> None:
    table = table_of(first)
    table.merge(table_of(second))
    assert table == latest([*latest(first).values(), *latest(second).values()])
    assert table.differing(table_of(first)) == {
        one for one, row in table.items() if latest(first).get(one) != row
    }


def test_merging_newer_rows_keeps_a_row_with_the_same_change() -> None:
    table = table_of([replace(PLAIN, tombstone=GRAVE)])
    table.merge_newer(table_of([replace(PLAIN, fenced=True), replace(PLAIN, ledger_id=8, fenced=True)]))
    assert table == {7: replace(PLAIN, tombstone=GRAVE), 8: replace(PLAIN, ledger_id=8, fenced=True)}


def test_bytes_that_are_no_row_are_reported_by_their_number() -> None:
    good, bad = ledger_record_format.encode(replace(PLAIN, fenced=True)), b"no row"
    assert LedgerRecordTable().take([good, bad, good]) == 1


def test_a_record_with_more_than_a_deletion_is_no_plain_tombstone() -> None:
    deleted = replace(PLAIN, tombstone=GRAVE)
    assert is_plain_tombstone(deleted)
    for row in (
        PLAIN,
        replace(deleted, fenced=True),
        replace(deleted, in_limbo=True),
        replace(deleted, explicit_lac=b""),
        replace(deleted, master_key=None),
        replace(deleted, digest_type=DigestType.MAC),
        replace(deleted, known_by=KnownBy.INFERRED),
    ):
        assert not is_plain_tombstone(row)
        assert table_of([row]).living == {7: row}


@settings(max_examples=40)
@given(st.lists(DELETED | OTHERS, max_size=12), st.lists(DELETED | OTHERS, max_size=12))
def test_rows_that_another_table_has_byte_for_byte_are_taken_and_the_others_returned(
    first: list[LedgerRecord], second: list[LedgerRecord]
) -> None:
    like, wanted = table_of(first), table_of([*second, *first[::2]])
    table = LedgerRecordTable()
    rest = table.take_like({one: ledger_record_format.encode(row) for one, row in wanted.items()}, like)
    assert table.take(list(rest.values())) is None
    assert table == dict(wanted.items())


def test_a_row_that_takes_the_place_of_a_tombstone_is_found_by_a_reader_in_between() -> None:
    table = table_of([replace(PLAIN, tombstone=GRAVE)])
    again = replace(PLAIN, change=2, fenced=True, tombstone=GRAVE)

    class Looked(dict[int, LedgerRecord]):
        """The writer comes between the first and the second look of a reader."""

        def get(self, ledger_id: int, default: LedgerRecord | None = None) -> LedgerRecord | None:  # type: ignore[override]
            found = super().get(ledger_id, default)
            if not self:
                self[ledger_id] = again
                del table.tombstones[ledger_id]
            return found

    table.living = Looked()
    assert table.get(7) == again
