"""An index made again on request: whose directory it is, which rows count, and what the mark says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from crc32c import crc32c
from entrylogs import Log
from written_logs import Ground, entries

from recovery.remaking import check_may_be_remade, remake
from storage import filenames, lastmark, ledger_rows
from storage.codec import mark as mark_codec
from storage.errors import CorruptionError, NewerFormat, NotAStore
from storage.index_state import IndexState
from storage.lastmark import mark_of
from storage.ledger_rows import LedgerRows
from storage.position import JournalPosition
from storage.registry import plain
from storage.row import LedgerRow, Tombstone


def store(*rows: LedgerRow) -> Ground:
    """A store of ours with an entry of each of two ledgers, and these rows."""
    ground = Ground()
    ground.put_cookies()
    ground.checkpoint(*entries(1, [0]), *entries(2, [0]))
    if rows:
        ground.state = replace(ground.state, rows_sequence=ground.put_rows(*rows))
    ground.put_index(*rows)
    ground.put_mark(mark_codec.encode(ground.mark))
    return ground


def deleted(ledger_id: int, change: int) -> LedgerRow:
    return replace(plain(ledger_id), change=change, tombstone=Tombstone(JournalPosition(1, 4096)))


def test_a_mark_of_ours_makes_it_ours_and_stays_as_it_is() -> None:
    ground = store()
    remade = remake(ground.layout, ground.place)
    assert not remade.was_a_bookie_s
    assert list(remade.index.ledgers()) == [1, 2]
    assert lastmark.load(ground.ledgers) == ground.mark == mark_of(remade.index.state(), 0)


@pytest.mark.parametrize("written", [b"", bytes(9), bytes(16)], ids=["empty", "short", "a bookie's"])
def test_any_other_mark_is_a_bookie_s(written: bytes) -> None:
    ground = store()
    ground.put_mark(written)
    remade = remake(ground.layout, ground.place)
    assert remade.was_a_bookie_s
    assert isinstance(mark := lastmark.load(ground.ledgers), mark_codec.Mark)
    assert mark.trailer is not None


def test_a_tombstone_counts_that_only_the_index_still_has() -> None:
    ground = store(replace(plain(1), change=3, fenced=True))
    ground.put_index(deleted(1, 4))
    remade = remake(ground.layout, ground.place)
    assert list(remade.index.ledgers()) == [2]
    assert remade.rows[1].tombstone is not None
    assert ledger_rows.load(ground.ledgers, 0).rows == remade.rows


def test_the_rows_of_an_older_index_do_not_count() -> None:
    ground = store()
    ground.put_index(deleted(1, 4), state=IndexState(0))
    assert list(remake(ground.layout, ground.place).index.ledgers()) == [1, 2]


def test_rows_that_no_mark_names_are_made_durable_before_they_are_believed() -> None:
    ground = store(replace(plain(2), change=3, fenced=True))
    known = ledger_rows.load(ground.ledgers, 0)
    with_more = LedgerRows(ground.ledgers, known.rows, known.sequence)
    with_more.append([deleted(1, 4)])
    with_more.append([deleted(2, 5)])
    with_more.close()
    remade = remake(ground.layout, ground.place)
    assert list(remade.index.ledgers()) == []
    assert mark_of(remade.index.state(), 0) == ground.mark
    loaded = ledger_rows.load(ground.ledgers, 0)
    assert (loaded.rows, loaded.sequence) == (remade.rows, 4)


def test_a_damaged_mark_is_refused_and_nothing_is_written() -> None:
    ground = store()
    ground.put_mark(bytes(40))
    before = ground.disk.image()
    with pytest.raises(CorruptionError, match="MRK-001"):
        remake(ground.layout, ground.place)
    assert ground.disk.image() == before


def test_a_mark_of_a_newer_version_is_refused() -> None:
    ground = store()
    data = bytearray(mark_codec.encode(ground.mark))
    data[20:24] = (2).to_bytes(4, "big")
    data[64:] = crc32c(bytes(data[:64])).to_bytes(4, "big")
    ground.put_mark(bytes(data))
    with pytest.raises(NewerFormat):
        remake(ground.layout, ground.place)


def test_nothing_to_make_an_index_of_is_refused() -> None:
    ground = Ground()
    ground.put_cookies()
    with pytest.raises(NotAStore):
        check_may_be_remade(ground.layout)
    ground.put(ground.ledgers, filenames.entry_log(0), Log().file())
    check_may_be_remade(ground.layout)
