"""A table whose entries are in the journals answers like a table in memory."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING

import pytest
import sealed_journals
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_builder import OurJournal, entry_record, flip
from memory_files import MemoryFile
from sealed_journals import JOURNAL_ID
from store_internals import runs_of

from recovery.replay.journal_backed_table import ExtentsInJournal, JournalBackedTable
from storage.entry.ledger_record import LedgerRecord
from storage.entry.model import DigestType
from storage.entry.position import START
from storage.entry.record_format import FRONT_SIZE
from storage.errors import EntryUnreadable
from storage.journal.extents import JournalExtents
from storage.journal.group_reader import groups
from storage.memtable.table import Memtable, Tables

if TYPE_CHECKING:
    from collections.abc import Sequence

Entry = tuple[int, int, bytes]


class Closing(MemoryFile):
    """A file that records whether it was closed."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def backlog_of(*journals: bytes) -> tuple[JournalBackedTable, list[Closing]]:
    """The records of these journals, in their order."""
    files, parts, stack = [], dict[int, list[ExtentsInJournal]](), ExitStack()
    for data in journals:
        noted = JournalExtents(1 << 20)
        list(groups(sealed_journals.reader(data), 0, noted))
        assert noted.is_plain
        files.append(Closing(data))
        stack.callback(files[-1].close)
        for ledger_id, packed in noted.packed.items():
            parts.setdefault(ledger_id, []).append(ExtentsInJournal(files[-1], bytes(packed)))
    return JournalBackedTable(START, parts, [], stack), files


def journal_of(*entries: Entry) -> bytes:
    """A few groups of these records, after an empty group."""
    journal = OurJournal(JOURNAL_ID).group()
    for first in range(0, len(entries), 7):
        journal.group(*[entry_record(*one) for one in entries[first : first + 7]])
    return journal.file()


def even(ledger_id: int, first: int, end: int) -> list[Entry]:
    return [(ledger_id, entry_id, b"%6d" % entry_id) for entry_id in range(first, end)]


def uneven(ledger_id: int, first: int, end: int) -> list[Entry]:
    return [(ledger_id, entry_id, b"x" * (entry_id % 5)) for entry_id in range(first, end)]


THREE = (
    [*even(1, 0, 10), *uneven(2, 5, 30), *even(4, 3, 4)],
    [*uneven(1, 10, 20), *even(2, 40, 60)],
    [*even(1, 25, 30), *even(3, 100, 101), *uneven(4, 10, 12)],
)
"""Three journals with ledgers in one of them or more, with and without gaps in the ids."""


@pytest.fixture
def backlog() -> JournalBackedTable:
    return backlog_of(*[journal_of(*entries) for entries in THREE])[0]


@pytest.fixture
def table() -> Memtable:
    """The same entries in a table in memory."""
    table = Memtable(START)
    for ledger_id, entry_id, payload in chain.from_iterable(THREE):
        table.insert(ledger_id, entry_id, [entry_record(ledger_id, entry_id, payload)])
    return table


def test_a_journal_backed_table_answers_like_a_table_in_memory(
    backlog: JournalBackedTable, table: Memtable
) -> None:
    assert len(backlog) == len(table)
    assert backlog.ledgers() == table.ledgers()
    assert backlog.has_content
    for ledger_id in range(6):
        assert backlog.last_id(ledger_id) == table.last_id(ledger_id)
        for entry_id in range(110):
            record = table.get(ledger_id, entry_id)
            assert backlog.get(ledger_id, entry_id) == record
            entries = backlog.find(ledger_id)
            assert (entries is not None and entries.has(entry_id)) == (record is not None)
            for count in (0, 1, 9, 200):
                assert backlog.ids_from(ledger_id, entry_id, count) == table.ids_from(
                    ledger_id, entry_id, count
                )


def test_its_chunks_are_the_records_of_each_ledger(backlog: JournalBackedTable, table: Memtable) -> None:
    for ledger_id in range(6):
        chunks = list(backlog.chunks(ledger_id))
        assert all(one.ledger_id == ledger_id for one in chunks)
        assert all(sum(one.sizes) == one.size == len(b"".join(one.buffers)) for one in chunks)
        found = [pair for one in chunks for pair in zip(one.ids, one.records(), strict=True)]
        expected = [pair for run in runs_of(table, ledger_id) for pair in zip(*run, strict=True)]
        assert found == expected


def test_parts_of_consecutive_entries_may_come_from_several_extents(
    backlog: JournalBackedTable, table: Memtable
) -> None:
    for ledger_id in range(6):
        for first in range(110):
            for count in (1, 4, 30):
                fronts, payloads = backlog.parts(ledger_id, first, count, FRONT_SIZE)
                expected: list[bytes] = []
                while (record := table.get(ledger_id, first + len(expected))) and len(expected) < count:
                    expected.append(record)
                assert fronts == b"".join(record[:FRONT_SIZE] for record in expected)
                assert payloads == [record[FRONT_SIZE:] for record in expected]
    assert backlog.parts(1, 0, 5, FRONT_SIZE + 7) == (b"", [])  # larger than the front of any record


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from([0, 0, 3]), st.integers(1, 30), st.sampled_from([even, uneven])
        ),
        max_size=8,
    ),
    st.integers(1, 3),
)
def test_for_random_journals_it_answers_like_a_dict(
    runs: Sequence[tuple[int, int, int, type]], count: int
) -> None:
    journals: list[list[Entry]] = [[] for _ in range(count)]
    next_ids = [0, 0, 0]
    for number, (ledger_id, gap, length, make) in enumerate(runs):
        first = next_ids[ledger_id] + gap
        journals[number * count // len(runs)] += make(ledger_id, first, first + length)
        next_ids[ledger_id] = first + length
    model = {
        (ledger_id, entry_id): entry_record(ledger_id, entry_id, payload)
        for ledger_id, entry_id, payload in chain.from_iterable(journals)
    }
    backlog, _ = backlog_of(*[journal_of(*entries) for entries in journals])
    for ledger_id in range(3):
        ids = [entry for ledger, entry in model if ledger == ledger_id]
        assert backlog.ids_from(ledger_id, 0, 999) == ids
        assert [backlog.get(ledger_id, one) for one in range(260)] == [
            model.get((ledger_id, one)) for one in range(260)
        ]
        found = {
            one.ids[at]: record
            for one in backlog.chunks(ledger_id)
            for at, record in enumerate(one.records())
        }
        assert found == {one: model[ledger_id, one] for one in ids}


def test_a_dropped_ledger_is_gone_and_its_iterators_continue(backlog: JournalBackedTable) -> None:
    size, walk = backlog.size, backlog.chunks(1)
    next(walk)
    Tables(Memtable(START), backlog).drop(1)
    assert (backlog.get(1, 0), backlog.last_id(1), backlog.ledgers()) == (None, None, [2, 3, 4])
    assert backlog.size < size
    assert sum(len(one.ids) for one in walk) > 0
    for ledger_id in (2, 3, 4):
        backlog.drop(ledger_id)
    assert (backlog.size, backlog.has_content, len(backlog)) == (0, False, 0)


def test_a_journal_backed_table_takes_little_memory(backlog: JournalBackedTable, table: Memtable) -> None:
    large, _ = backlog_of(journal_of(*even(1, 0, 1000)))
    in_memory = Memtable(START)
    in_memory.insert(1, 0, [entry_record(*one) for one in even(1, 0, 1000)])
    assert large.size < in_memory.size / 5


def test_it_has_its_ledger_records_and_accepts_no_entries(backlog: JournalBackedTable) -> None:
    row = LedgerRecord(9, 1, DigestType.CRC32C, fenced=True)
    with_rows = JournalBackedTable(START, {}, [row], ExitStack())
    assert (with_rows.rows, with_rows.has_content) == ({9: row}, True)
    with pytest.raises(AssertionError, match="a frozen table never changes"):
        backlog.put_row(row)
    with pytest.raises(AssertionError, match="a frozen table never changes"):
        backlog.insert(1, 30, [entry_record(1, 30)])


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", [even, uneven])
@pytest.mark.parametrize("place", [1, 7, 15], ids=["length", "ledger", "entry"])
def test_a_record_damaged_after_the_replay_is_unreadable_and_not_missing(make: type, place: int) -> None:
    data = journal_of(*make(1, 0, 7))
    _, files = backlog_of(data)
    offset = OurJournal(JOURNAL_ID).group().end + place
    backlog, files = backlog_of(data)
    files[0].become(flip(data, offset))
    with pytest.raises(EntryUnreadable) as raised:
        backlog.get(1, 0)
    assert raised.value.file == "memory"


def test_a_file_that_cannot_be_read_makes_its_entries_unreadable() -> None:
    class Failing(Closing):
        def read(self, offset: int, size: int) -> bytes:
            raise OSError(5, "the disk is gone")

    data = journal_of(*even(1, 0, 3))
    noted = JournalExtents(99)
    list(groups(sealed_journals.reader(data), 0, noted))
    backlog = JournalBackedTable(
        START, {1: [ExtentsInJournal(Failing(data), bytes(noted.packed[1]))]}, [], ExitStack()
    )
    with pytest.raises(EntryUnreadable, match="the disk is gone"):
        backlog.get(1, 1)
    with pytest.raises(OSError, match="the disk is gone"):
        list(backlog.chunks(1))


@pytest.mark.parametrize("make", [even, uneven])
@pytest.mark.parametrize("place", [0, 20, 43, 200])
def test_a_record_damaged_after_the_replay_is_never_checkpointed(make: type, place: int) -> None:
    data = journal_of(*make(1, 0, 7))
    backlog, files = backlog_of(data)
    files[0].become(flip(data, OurJournal(JOURNAL_ID).group().end + place))
    with pytest.raises(OSError, match="damaged since it was replayed"):
        list(backlog.chunks(1))


def test_a_file_that_has_become_shorter_is_damaged_too() -> None:
    data = journal_of(*even(1, 0, 7))
    backlog, files = backlog_of(data)
    files[0].become(data[: OurJournal(JOURNAL_ID).group().end + 100])
    with pytest.raises(OSError, match="damaged since"):
        list(backlog.chunks(1))
    with pytest.raises(EntryUnreadable):
        backlog.get(1, 3)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_journals_stay_open_while_the_table_is_referenced() -> None:
    backlog, files = backlog_of(journal_of(*even(1, 0, 3)), journal_of(*even(1, 3, 4)))
    reader = [backlog]
    del backlog
    assert reader[0].get(1, 3) == entry_record(*even(1, 3, 4)[0])
    assert [file.is_closed for file in files] == [False, False]
    reader.clear()
    assert [file.is_closed for file in files] == [True, True]


def test_closing_the_table_closes_the_journals() -> None:
    backlog, files = backlog_of(journal_of(*even(1, 0, 3)))
    backlog.close()
    backlog.close()
    assert files[0].is_closed
