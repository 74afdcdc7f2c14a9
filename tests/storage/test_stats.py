"""The figures of a store: they are right, begin at 0, never go back, and are available after a failure."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped_store import JOURNAL, LEDGERS, SMALL, Site

from recovery import open_async_store, open_store
from recovery.crashlab import Lasting, Refused, Verb, When
from storage.errors import DiskFull, StoreClosed, StoreFailed

if TYPE_CHECKING:
    from pathlib import Path

    from storage.stats import StoreStats
    from storage.store import Store

BLOCK = b"x" * (50 << 10)


def test_adds_and_groups_are_counted_however_they_come() -> None:
    store = Site().open()
    assert store.stats().adds == 0
    ledger = store.ledger(1)
    ledger.append(b"one")
    ledger.append(b"alone")
    ledger.append_many([b"two", b"three"])
    pending = ledger.submit(b"four")
    assert store.stats().waiting_adds == 1
    ledger.append(b"five")
    assert pending.done()
    stats = store.stats()
    assert (stats.adds, stats.groups, stats.syncs, stats.waiting_adds) == (6, 4, 4, 0)
    assert (stats.memtable.entries, stats.ledgers) == (6, 1)


def test_adds_never_go_back_over_checkpoints_and_deletes() -> None:
    site = Site()
    store = site.open()
    for number in range(1, 6):
        store.ledger(number).append_many([b"x"] * 10)
        assert store.stats().adds == 10 * number
        if number % 2:
            site.checkpoint(store)
        else:
            site.workers.run()
            store.ledger(number).delete()
        assert store.stats().adds == 10 * number
    site.workers.run()
    stats = store.stats()
    assert (stats.ledgers, stats.tombstones) == (3, 2)


def test_counters_begin_at_0_when_a_store_is_opened_again() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append_many([b"x"] * 100)
    again = site.after_kill()
    assert (again.stats().adds, again.stats().memtable.entries) == (0, 100)
    again.ledger(1).append(b"y")
    site.checkpoint(again)
    assert again.stats().adds == 1


def test_an_idle_store_seals_with_a_sync_that_is_no_group() -> None:
    site = Site(replace(SMALL, idle_seal_s=1.0))
    store = site.open()
    store.ledger(1).append(b"one")
    for _ in range(3):
        site.workers.elapse()
    assert (store.stats().groups, store.stats().syncs) == (1, 2)


def test_the_lag_is_what_an_opening_would_replay() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"before")
    site.checkpoint(store)
    assert store.stats().checkpoint.lag_bytes == 0
    written = store.stats().journal_bytes_written
    store.ledger(1).append_many([b"x" * 1000] * 20)
    stats = store.stats()
    assert stats.checkpoint.lag_bytes == stats.journal_bytes_written - written > 20_000
    again = site.after_kill()
    # Groups that no seal had proven durable were written again, to another journal.
    assert stats.checkpoint.lag_bytes < again.stats().checkpoint.lag_bytes <= 3 * stats.checkpoint.lag_bytes
    site.checkpoint(again)
    assert again.stats().checkpoint.lag_bytes == 0


def test_the_lag_counts_every_journal_from_the_mark_on() -> None:
    site = Site()
    store = site.open()
    for _ in range(4):
        store.ledger(1).append(BLOCK)
    stats = store.stats()
    assert len(site.names(JOURNAL, ".txn")) > 1
    assert stats.checkpoint.lag_bytes >= 4 * len(BLOCK)
    assert stats.checkpoint.lag_bytes <= stats.journal_bytes_written


def test_checkpoints_are_counted_and_timed() -> None:
    site = Site()
    store = site.open()
    assert store.stats().checkpoint.last_seconds is None
    store.ledger(1).append(b"one")
    site.checkpoint(store)
    stats = store.stats().checkpoint
    assert stats.count == 1
    assert stats.last_seconds is not None
    assert 0 < stats.last_seconds < 60


def test_files_are_counted_as_they_are_on_the_disk(tmp_path: Path) -> None:
    began = time.time()
    with open_store(tmp_path / "store") as store:
        store.ledger(1).append_many([b"x" * 1000] * 100)
        store.checkpoint()
        stats = store.stats()
        journals = list((tmp_path / "store" / JOURNAL).glob("*.txn"))
        logs = list((tmp_path / "store" / LEDGERS).glob("*.log"))
        index = [
            path for path in (tmp_path / "store" / LEDGERS / "index").iterdir() if path.name != "lock.mdb"
        ]
        assert (stats.journals.count, stats.entry_logs.count) == (len(journals), len(logs)) == (1, 1)
        assert stats.journals.bytes == sum(path.stat().st_size for path in journals)
        assert stats.entry_logs.bytes == sum(path.stat().st_size for path in logs) > 100_000
        assert stats.index_bytes == sum(path.stat().st_size for path in index) > 0
        assert began <= stats.opened_at <= time.time()


# ── when something is wrong ──────────────────────────────────────────────────────────────────────────────


def refusing(verb: Verb, name: str, number: int) -> Refused:
    return Refused(When(verb=verb, name=name, nth=1, lasting=Lasting.UNTIL_MENDED), number)


def test_stats_of_a_failed_store_name_the_cause() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"one")
    assert store.stats().failed is None
    site.disk.plant(refusing(Verb.SYNC, "*.txn.draft", errno.EIO))
    with pytest.raises(StoreFailed):
        store.ledger(1).append(b"two")
    stats = store.stats()
    assert stats.failed is not None
    assert "OSError" in stats.failed
    assert (stats.adds, stats.disk_full) == (1, False)


def test_stats_show_a_full_disk_until_a_write_succeeds() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"one")
    site.disk.plant(refusing(Verb.ZERO_FILL, "*", errno.ENOSPC))
    with pytest.raises(DiskFull):
        fill(store)
    assert store.stats().disk_full
    assert store.stats().failed is None
    site.disk.mend()
    site.workers.run()
    store.ledger(1).append(b"two")
    assert not store.stats().disk_full


def fill(store: Store) -> None:
    for _ in range(100):
        store.ledger(1).append(BLOCK)


def test_stats_show_a_checkpoint_that_waits_for_space() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"one")
    site.disk.plant(refusing(Verb.WRITE, "*.log*", errno.ENOSPC))
    site.checkpoint(store)
    stats = store.stats()
    assert stats.checkpoint.waits_for_space
    assert stats.disk_full
    assert stats.checkpoint.count == 0


def test_a_closed_store_has_no_figures(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.close()
    with pytest.raises(StoreClosed):
        store.stats()


# ── exporting them ───────────────────────────────────────────────────────────────────────────────────────


def test_as_dict_is_flat_and_has_every_figure() -> None:
    figures = Site().open().stats().as_dict()
    assert figures["adds"] == 0
    assert figures["memtable_bytes_max"] == 256 << 10
    assert figures["checkpoint_last_seconds"] is None
    assert figures["entry_logs_count"] == 0
    assert all(isinstance(value, int | float | None) for value in figures.values())
    assert list(figures)[:3] == ["opened_at", "adds", "groups"]


def test_coroutines_have_the_same_figures(tmp_path: Path) -> None:
    async def figures() -> StoreStats:
        async with open_async_store(tmp_path / "store") as store:
            await asyncio.gather(*(store.ledger(1).append(b"%d" % number) for number in range(50)))
            return await store.stats()

    stats = asyncio.run(figures())
    assert (stats.adds, stats.ledgers) == (50, 1)
    assert stats.groups < 50


def test_the_figures_do_not_release_the_lock_that_tells_other_processes_of_the_writer(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from storage.disk.posix import is_locked_elsewhere
raise SystemExit(not is_locked_elsewhere(Path({str(tmp_path)!r}) / "s/{LEDGERS}/index/lock.mdb"))
"""
    with open_store(tmp_path / "s") as store:
        store.stats()
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
