"""An index rebuilt on request: the owner of the directory, the rows that count, and the mark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from crc32c import crc32c
from entry_log_builder import Log
from simulated_directories import SimulatedDirectories, entries

from recovery.opening.rebuild_index import check_can_be_rebuilt, rebuild_index
from storage.checkpoint import mark as lastmark
from storage.checkpoint import mark_format as mark_codec
from storage.checkpoint.mark import mark_of
from storage.disk import filenames
from storage.entry.ledger_record import LedgerRecord, Tombstone
from storage.entry.position import JournalPosition
from storage.errors import CorruptionError, NewerFormat, NotAStore
from storage.index.state import IndexState
from storage.ledgers import metadata_log
from storage.ledgers.metadata import plain
from storage.ledgers.metadata_log import MetadataLog


def store(*rows: LedgerRecord) -> SimulatedDirectories:
    """A store of ours with one entry in each of two ledgers, and these rows."""
    site = SimulatedDirectories()
    site.put_cookies()
    site.checkpoint(*entries(1, [0]), *entries(2, [0]))
    if rows:
        site.state = replace(site.state, rows_sequence=site.put_rows(*rows))
    site.put_index(*rows)
    site.put_mark(mark_codec.encode(site.mark))
    return site


def deleted(ledger_id: int, change: int) -> LedgerRecord:
    return replace(plain(ledger_id), change=change, tombstone=Tombstone(JournalPosition(1, 4096)))


def test_a_directory_with_a_mark_of_ours_is_ours_and_the_mark_stays() -> None:
    site = store()
    rebuilt = rebuild_index(site.layout, site.place)
    assert not rebuilt.was_imported
    assert list(rebuilt.index.ledgers()) == [1, 2]
    assert lastmark.load(site.ledgers) == site.mark == mark_of(rebuilt.index.state(), 0)


@pytest.mark.parametrize("written", [b"", bytes(9), bytes(16)], ids=["empty", "short", "a bookie's"])
def test_a_directory_with_any_other_mark_is_imported(written: bytes) -> None:
    site = store()
    site.put_mark(written)
    rebuilt = rebuild_index(site.layout, site.place)
    assert rebuilt.was_imported
    assert isinstance(mark := lastmark.load(site.ledgers), mark_codec.Mark)
    assert mark.trailer is not None


def test_a_tombstone_that_only_the_index_has_counts() -> None:
    site = store(replace(plain(1), change=3, fenced=True))
    site.put_index(deleted(1, 4))
    rebuilt = rebuild_index(site.layout, site.place)
    assert list(rebuilt.index.ledgers()) == [2]
    assert rebuilt.rows[1].tombstone is not None
    assert metadata_log.load(site.ledgers, 0).rows == rebuilt.rows


def test_the_rows_of_an_older_index_do_not_count() -> None:
    site = store()
    site.put_index(deleted(1, 4), state=IndexState(0))
    assert list(rebuild_index(site.layout, site.place).index.ledgers()) == [1, 2]


def test_rows_that_no_mark_names_are_made_durable_before_they_are_used() -> None:
    site = store(replace(plain(2), change=3, fenced=True))
    known = metadata_log.load(site.ledgers, 0)
    with_more = MetadataLog(site.ledgers, known.rows, known.sequence)
    with_more.append([deleted(1, 4)])
    with_more.append([deleted(2, 5)])
    with_more.close()
    rebuilt = rebuild_index(site.layout, site.place)
    assert list(rebuilt.index.ledgers()) == []
    assert mark_of(rebuilt.index.state(), 0) == site.mark
    loaded = metadata_log.load(site.ledgers, 0)
    assert (loaded.rows, loaded.sequence) == (rebuilt.rows, 4)


def test_a_damaged_mark_is_refused_and_nothing_is_written() -> None:
    site = store()
    site.put_mark(bytes(40))
    before = site.disk.image()
    with pytest.raises(CorruptionError, match="MRK-001"):
        rebuild_index(site.layout, site.place)
    assert site.disk.image() == before


def test_a_mark_of_a_newer_version_is_refused() -> None:
    site = store()
    data = bytearray(mark_codec.encode(site.mark))
    data[20:24] = (2).to_bytes(4, "big")
    data[64:] = crc32c(bytes(data[:64])).to_bytes(4, "big")
    site.put_mark(bytes(data))
    with pytest.raises(NewerFormat):
        rebuild_index(site.layout, site.place)


def test_a_directory_without_data_is_refused() -> None:
    site = SimulatedDirectories()
    site.put_cookies()
    with pytest.raises(NotAStore):
        check_can_be_rebuilt(site.layout)
    site.put(site.ledgers, filenames.entry_log(0), Log().file())
    check_can_be_rebuilt(site.layout)
