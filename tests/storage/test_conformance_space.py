"""Counterparts of BookKeeper's own tests of collection and compaction; docs/conformance.md has the list."""

from __future__ import annotations

import errno
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from stepped_store import LEDGERS, SMALL, Site, payloads
from store_internals import StoreInternals

from recovery.crashlab import Refused, Verb, When
from storage.entry.position import EntryLocation
from storage.gc.collector import Collector
from storage.gc.proof import KeptBecause
from storage.gc.report import CollectionEnd
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.gc.report import CollectionReport
    from storage.store import Store

DAY = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)
LEDGER_IDS = range(1, 5)
COUNT = 12
CONFIG = replace(SMALL, entry_log_size_max=64 << 10, collection_interval_s=None, compaction_rate=None)


class Room:
    """A file system with room."""

    is_low = False

    def free(self) -> int:
        return 1 << 40


class Written:
    """A store with sealed logs, in each of which all four ledgers have a quarter of the bytes."""

    def __init__(self, **settings: Any) -> None:
        self.site = Site(CONFIG)
        self.settings = settings
        self.store: Store = self.site.open()
        for _ in range(3):
            for ledger_id in LEDGER_IDS:
                self.store.ledger(ledger_id).append_many([self.payload(ledger_id)] * COUNT)
            self.site.checkpoint(self.store)
        self.reopen()
        # The last log of a run is never collected.
        self.store.ledger(9).append(b"last")
        self.site.checkpoint(self.store)
        self.sealed = StoreInternals(self.store).log_ids[:-1]

    @staticmethod
    def payload(ledger_id: int) -> bytes:
        return bytes([48 + ledger_id]) * 1000

    def reopen(self) -> None:
        self.store.close()
        self.store = self.site.open()

    def delete(self, *ledger_ids: int) -> None:
        for ledger_id in ledger_ids:
            self.store.ledger(ledger_id).delete()
        self.site.checkpoint(self.store)

    def collect(self, prepare: Callable[[Collector], None] = lambda _: None) -> CollectionReport:
        config = replace(CONFIG, **self.settings)
        collector = StoreInternals(self.store).new_collector(config, Room(), lambda: 0.0, lambda: DAY)
        prepare(collector)
        collector.request()
        while collector.step() == AT_ONCE or collector.is_collecting:
            self.site.workers.run()
        assert collector.report is not None
        return collector.report

    @property
    def logs(self) -> list[int]:
        return StoreInternals(self.store).log_ids

    def check(self, *ledger_ids: int) -> None:
        assert self.store.ledgers() == [*ledger_ids, 9]
        for ledger_id in ledger_ids:
            assert payloads(self.store, ledger_id) == [self.payload(ledger_id)] * (3 * COUNT)


# ── C: collection and compaction ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "deleted", "is_compacted"),
    [
        ({}, (1, 2, 3), True),
        ({"compaction_minor": 0.1, "compaction_major": 0.6}, (1, 2, 3), True),
        ({"compaction_minor": 0.1, "compaction_major": 0.2}, (1, 2, 3), False),
        ({}, (1,), False),
        ({"compaction_minor": 0.0, "compaction_major": 0.0}, (1, 2, 3), False),
    ],
    ids=["minor and major", "major", "above the threshold", "mostly alive", "disabled"],
)
def test_c64_logs_below_a_threshold_are_compacted_and_others_are_not_touched(
    settings: dict[str, float], deleted: tuple[int, ...], is_compacted: bool
) -> None:
    this = Written(**settings)
    this.delete(*deleted)
    this.collect()
    assert set(this.sealed).isdisjoint(this.logs) is is_compacted
    assert set(this.sealed).issubset(this.logs) is not is_compacted
    this.check(*(one for one in LEDGER_IDS if one not in deleted))


def test_c65_after_a_restart_entries_are_read_from_the_new_log() -> None:
    this = Written()
    this.delete(1, 2, 3)
    this.collect()
    this.reopen()
    this.check(4)
    for _, packed in StoreInternals(this.store).index.locations(4, 0, 1000):
        assert EntryLocation.unpack(packed).log_id not in this.sealed


def test_c66_the_index_is_never_changed_before_the_copies_are_durable() -> None:
    this = Written()
    this.delete(1, 2, 3)
    before = len(this.site.disk.trace)
    StoreInternals(this.store).move(this.sealed[0])
    done = [
        (one.verb, one.path.rpartition("/")[2].removesuffix(".draft"))
        for one in this.site.disk.trace[before:]
    ]
    commit = done.index((Verb.CREATE, "index"))
    logs = [
        number for number, (verb, name) in enumerate(done) if verb is Verb.WRITE and name.endswith(".log")
    ]
    syncs = [
        number for number, (verb, name) in enumerate(done) if verb is Verb.SYNC and name.endswith(".log")
    ]
    assert max(logs) < max(syncs) < commit


def test_c67_on_a_full_disk_and_while_it_is_suspended_nothing_is_compacted_or_lost() -> None:
    this = Written()
    this.delete(1, 2, 3)
    this.site.disk.plant(Refused(When(verb=Verb.WRITE, name="*.log*"), errno.ENOSPC))
    moved = StoreInternals(this.store).move(this.sealed[0])
    assert moved.error is not None
    assert moved.entries_moved == 0
    this.check(4)
    this.site.disk.mend()
    assert this.collect(Collector.pause).end is CollectionEnd.PAUSED
    assert set(this.sealed) <= set(this.logs)
    this.collect()
    assert set(this.sealed).isdisjoint(this.logs)
    this.check(4)


def test_c68_a_crash_before_the_index_has_the_new_places_leaves_the_victim_and_no_copy() -> None:
    this = Written()
    this.delete(1, 2, 3)
    logs = this.site.names(LEDGERS, ".log")
    this.site.disk.plant(Refused(When(verb=Verb.CREATE, name="index.draft"), errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        StoreInternals(this.store).move(this.sealed[0])
    this.store = this.site.after_power_cut()
    this.check(4)
    assert set(logs) <= set(this.site.names(LEDGERS, ".log"))
    this.collect()
    assert set(this.sealed).isdisjoint(this.logs)
    this.check(4)


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.SYNC])
def test_c69_a_copy_that_fails_leaves_the_victim_and_duplicates_nothing(verb: Verb) -> None:
    this = Written()
    this.delete(1, 2, 3)
    before = StoreInternals(this.store).index.count(4)
    this.site.disk.plant(Refused(When(verb=verb, name="*.log*"), errno.EIO))
    assert StoreInternals(this.store).move(this.sealed[0]).error is not None
    assert this.sealed[0] in this.logs
    assert StoreInternals(this.store).index.count(4) == before
    this.check(4)
    this.site.disk.mend()
    this.collect()
    assert set(this.sealed).isdisjoint(this.logs)
    assert StoreInternals(this.store).index.count(4) == before
    this.check(4)


def test_c70_a_store_that_is_closed_ends_a_collection_that_is_under_way() -> None:
    this = Written()
    this.delete(1, 2, 3)
    verb = StoreInternals(this.store).compactor.move(this.sealed[0])
    next(verb)
    this.store.close()
    this.store = this.site.open()
    this.check(4)
    this.collect()
    this.check(4)


def test_c71_only_logs_with_nothing_else_disappear_and_never_the_log_in_use() -> None:
    site = Site(CONFIG)
    store = site.open()
    for ledger_ids in ((1,), (1, 2), (2,), (1,)):
        for ledger_id in ledger_ids:
            store.ledger(ledger_id).append_many([bytes(1000)] * 50)
        site.checkpoint(store)
    logs = StoreInternals(store).log_ids
    store.ledger(1).delete()
    site.checkpoint(store)
    removed = StoreInternals(store).remove(*logs)
    why = {one.log_id: one.because for one in removed.why_kept}
    assert removed.logs_removed
    assert why[logs[-1]] is KeptBecause.LAST
    assert {because for log_id, because in why.items() if log_id != logs[-1]} == {KeptBecause.LIVE}
    assert len(payloads(store, 2)) == 100


def test_c72_the_share_of_live_bytes_is_between_none_and_all() -> None:
    this = Written(compaction_minor=0.0, compaction_major=0.0)
    shares = []
    for deleted in ((), (1,), (2, 3)):
        this.delete(*deleted)
        found = [one.log for one in this.collect().logs if one.log.log_id in this.sealed]
        assert all(0 <= (one.live or 0) <= one.bytes for one in found)
        shares.append(sum(one.live or 0 for one in found))
    assert shares == sorted(shares, reverse=True)
    assert len(set(shares)) == 3


def test_c74_what_is_known_of_the_logs_is_the_same_after_a_restart() -> None:
    this = Written(compaction_minor=0.0, compaction_major=0.0)
    this.delete(1, 2)
    before = {one.log.log_id: one.log.live for one in this.collect().logs if one.log.log_id in this.sealed}
    this.reopen()
    after = {one.log.log_id: one.log.live for one in this.collect().logs if one.log.log_id in this.sealed}
    assert before == after
    assert before
