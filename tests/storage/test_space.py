"""What takes the space of an open store, and collections through the public face, also for coroutines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped_store import JOURNAL, LEDGERS, SMALL, Site

from recovery import open_async_store, open_store
from storage.errors import StoreClosed
from storage.gc.report import CollectionEnd, CollectionProgress

if TYPE_CHECKING:
    from pathlib import Path

    from storage.store import Store

RECORD = 1000 + 4 + 32 + 4  # payload, length word, head, digest
CONFIG = replace(SMALL, entry_log_size_max=72 << 10)


def fill(store: Store) -> None:
    """Fill three logs with two ledgers each, and a fourth one with one."""
    for ledger_id in range(7):
        store.ledger(ledger_id).append_many([bytes(1000)] * 29)
        store.checkpoint()


def size(path: Path, pattern: str) -> int:
    return sum(one.stat().st_size for one in path.glob(pattern) if one.is_file())


def test_the_space_of_a_store_is_that_of_its_files(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        fill(store)
        store.ledger(0).delete()
        space = store.space()
        assert space.journals.bytes == size(tmp_path, f"{JOURNAL}/*.txn*")
        assert space.entry_logs.bytes == size(tmp_path, f"{LEDGERS}/*.log")
        assert space.entry_logs.count == 4
        assert space.entry_logs.live == 5 * 29 * RECORD
        assert space.entry_logs.unknown == size(tmp_path, f"{LEDGERS}/3.log")
        assert (
            space.entry_logs.dead == space.entry_logs.bytes - space.entry_logs.live - space.entry_logs.unknown
        )
        assert space.index.bytes == size(tmp_path, f"{LEDGERS}/index/[!l]*")
        assert 0 < space.index.used < space.index.bytes
        assert space.index.free == space.index.bytes - space.index.used
        assert space.metadata_log == size(tmp_path, f"{LEDGERS}/ledgers.rows")
        assert (space.tombstones, space.quarantine.count, space.audit_links.count) == (1, 0, 0)
        assert space.total == size(tmp_path, "*/current/*") + space.index.bytes


def test_journal_backups_are_those_before_the_mark() -> None:
    site = Site(replace(SMALL, journal_max_backups=2))
    store = site.open()
    for _ in range(4):
        store.ledger(1).append_many([bytes(1000)] * 200)
        site.checkpoint(store)
    space = store.space()
    before = [name for name in site.names(JOURNAL, ".txn") if int(name[:-4], 16) < site.mark().journal_id]
    assert space.journal_backups.count == len(before) == 2


def test_a_collection_gives_the_space_of_deleted_ledgers_back(tmp_path: Path) -> None:
    seen: list[CollectionProgress] = []
    with open_store(tmp_path, CONFIG) as store:
        fill(store)
        for ledger_id in (0, 1, 2):
            store.ledger(ledger_id).delete()
        report = store.collect(seen.append)
        assert (report.end, report.removed) == (CollectionEnd.COMPLETE, (0, 1))
        assert report.freed > store.space().entry_logs.dead
        assert len(list(store.ledger(3).payloads())) == 29
    assert not (tmp_path / LEDGERS / "0.log").exists()
    assert seen
    assert all(0 <= one.read <= one.total for one in seen)


def test_a_paused_store_collects_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        fill(store)
        store.ledger(0).delete()
        store.ledger(1).delete()
        store.pause_collection()
        assert store.collect().end is CollectionEnd.PAUSED
        assert store.stats().collection.is_paused
        store.resume_collection()
        assert store.collect().removed == (0,)


def test_a_closed_store_neither_collects_nor_measures(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        pass
    for call in (store.collect, store.pause_collection, store.resume_collection, store.space):
        with pytest.raises(StoreClosed):
            call()


def test_coroutines_collect_and_measure_too(tmp_path: Path) -> None:
    async def program() -> None:
        async with open_async_store(tmp_path, CONFIG) as store:
            for ledger_id in range(5):
                await store.ledger(ledger_id).append_many([bytes(1000)] * 29)
                await store.checkpoint()
            await store.ledger(0).delete()
            await store.ledger(1).delete()
            before = await store.space()
            store.pause_collection()
            assert (await store.collect()).end is CollectionEnd.PAUSED
            store.resume_collection()
            report = await store.collect()
            assert report.removed == (0,)
            assert (await store.space()).entry_logs.bytes == before.entry_logs.bytes - report.freed

    asyncio.run(program())
