"""When collections begin, how fast they go, what ends them, and what they report."""

from __future__ import annotations

import errno
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from stepped_store import LEDGERS, SMALL, Site
from store_internals import StoreInternals

from recovery.crashlab import Lasting, Refused, Verb, When
from storage.entry.read_result import Damaged, Flaw
from storage.entrylog.format import HEADER_SIZE
from storage.gc.collector import facts_of
from storage.gc.compactor import Compactor, Purged
from storage.gc.policy import PolicyFacts, Problem, ProblemKind, ReasonKind, Standing
from storage.gc.report import CollectionEnd, CollectionStats
from storage.gc.usage import LogUsage
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Generator

    from storage.config import StoreConfig
    from storage.gc.report import CollectionReport
    from storage.store import Store

RECORD = 1000 + 4 + 32 + 4  # payload, length word, head, digest
OF_A_LEDGER = 29
OF_A_LOG = 2 * OF_A_LEDGER
"""A log has room for the entries of two ledgers."""
CONFIG = replace(
    SMALL,
    entry_log_size_max=64 << 10,
    collection_interval_s=900.0,
    compaction_interval_s=86_400.0,
    compaction_rate=None,
)
DAY = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)


class Room:
    """The space of a file system that a test decides."""

    def __init__(self) -> None:
        self.is_low = False
        self.bytes = 1 << 40

    def free(self) -> int:
        return self.bytes


class Collecting:
    """A store with five sealed logs of two ledgers each, and its collector, which a test steps."""

    def __init__(self, **settings: Any) -> None:
        self.config: StoreConfig = replace(CONFIG, **settings)
        # The store's own collector never begins by itself.
        self.site = Site(replace(CONFIG, collection_interval_s=None))
        self.time = 0.0
        self.room = Room()
        self.open()
        for ledger_id in range(10):
            self.add(ledger_id)
        self.checkpoint()
        self.log_size = len(self.site.bytes_of(f"{LEDGERS}/0.log"))
        self.reopen()

    def open(self) -> None:
        self.store: Store = self.site.open()
        self.collector = StoreInternals(self.store).new_collector(
            self.config, self.room, lambda: self.time, lambda: DAY + timedelta(seconds=self.time)
        )

    def reopen(self) -> None:
        self.store.close()
        self.open()

    def add(self, ledger_id: int, count: int = OF_A_LEDGER) -> None:
        self.store.ledger(ledger_id).append_many([bytes(1000)] * count)

    def delete(self, *ledger_ids: int) -> None:
        for ledger_id in ledger_ids:
            self.store.ledger(ledger_id).delete()

    def checkpoint(self) -> None:
        self.site.checkpoint(self.store)

    @property
    def logs(self) -> list[int]:
        return sorted(StoreInternals(self.store).index_state.log_ends)

    def step(self) -> float | None:
        """Take one step of the collector, and all steps of the other workers."""
        pause = self.collector.step()
        self.site.workers.run()
        return pause

    def run(self) -> float | None:
        """Step until the collector waits. Return its pause. Time passes only within a collection."""
        while (pause := self.step()) == AT_ONCE or self.collector.is_collecting:
            self.time += pause or 0.0
        return pause

    def collect(self) -> CollectionReport:
        """Request a collection, and step until it has ended."""
        self.collector.request()
        self.run()
        assert self.collector.report is not None
        return self.collector.report

    def check(self, *deleted: int) -> None:
        """Check that every ledger has all its entries, but for the deleted ones."""
        assert self.store.ledgers() == sorted(set(range(10)) - set(deleted))
        for ledger_id in self.store.ledgers():
            assert len(list(self.store.ledger(ledger_id).payloads())) == OF_A_LEDGER


def test_a_collection_begins_some_time_after_a_delete_and_removes_dead_logs() -> None:
    this = Collecting()
    assert this.run() is None  # nothing has died
    this.delete(0, 1)
    assert this.run() == 900.0
    assert this.collector.count == 0
    this.time += 899.9
    assert this.run() == pytest.approx(0.1)
    this.time += 0.1
    assert this.run() is None
    assert (this.collector.count, this.logs[0]) == (1, 1)
    assert this.site.names(LEDGERS, ".log")[0] == "1.log"
    this.check(0, 1)


def test_adds_alone_make_no_collection_begin() -> None:
    this = Collecting()
    this.add(20)
    this.collect()
    this.add(21)
    this.checkpoint()
    this.time += 10_000
    assert this.run() is None
    assert this.collector.count == 1


def test_entries_deleted_before_an_opening_are_collected_after_its_first_change() -> None:
    this = Collecting()
    this.delete(0, 1)
    this.reopen()
    this.add(20)
    assert this.run() == 900.0


def test_without_an_interval_nothing_begins_by_itself() -> None:
    this = Collecting(collection_interval_s=None)
    this.delete(0, 1)
    assert this.run() is None
    assert this.collect().removed == (0,)


def test_a_request_removes_dead_logs_and_compacts_logs_below_the_threshold() -> None:
    this = Collecting()
    this.delete(0, 1, 2, 5)
    report = this.collect()
    assert (report.end, report.removed, report.freed) == (
        CollectionEnd.COMPLETE,
        (0, 1, 2),
        3 * this.log_size,
    )
    assert (report.moved_entries, report.moved_bytes) == (OF_A_LOG, OF_A_LOG * RECORD)
    assert [one.kind for one in report.logs] == [ReasonKind.LIVE] * 4 + [ReasonKind.ACTIVE]
    assert report.problems == ()
    this.check(0, 1, 2, 5)
    this.site.disk.kill()
    this.open()
    this.check(0, 1, 2, 5)


def test_deletes_that_no_checkpoint_has_seen_are_collected_too() -> None:
    this = Collecting()
    this.add(20)
    this.delete(0, 1)
    assert this.collect().removed == (0,)


def test_logs_between_the_thresholds_wait_for_the_major_compaction() -> None:
    this = Collecting(compaction_minor=0.2, compaction_major=0.7)
    assert this.collect().removed == ()  # the first one counts as a major one
    this.delete(0)  # half of log 0
    this.run()
    this.time += 900
    pause = this.run()
    assert (this.collector.count, this.logs[0]) == (2, 0)
    report = this.collector.report
    assert report is not None
    [waits] = [one for one in report.logs if one.kind is ReasonKind.WAITS]
    assert waits.reason == "waits until 2026-11-20 12:00"
    assert pause == pytest.approx(86_400 - 900)
    this.time = 86_400
    this.run()
    assert (this.collector.count, this.logs[0]) == (3, 1)
    this.check(0)


def test_the_rate_counts_the_bytes_that_a_compaction_reads() -> None:
    this = Collecting(compaction_rate=64 << 10)
    this.delete(0, 2, 4)
    began = this.time
    assert this.collect().removed == (0, 1, 2)
    # A step reads up to 256 KiB, but each of these logs has only 64 KiB.
    assert this.time - began == pytest.approx(3 * 4, abs=1)


def test_the_removal_of_dead_logs_is_not_held_up_by_the_rate() -> None:
    this = Collecting(compaction_rate=64 << 10)
    this.delete(0, 1, 2, 3)
    assert this.collect().removed == (0, 1)
    assert this.time == 0


def test_outside_of_its_window_a_collection_only_removes_dead_logs() -> None:
    this = Collecting(compaction_window="01:00-05:00")
    this.delete(0, 1, 2)
    this.run()
    this.time += 900
    pause = this.run()
    assert (this.collector.count, this.logs[0]) == (1, 1)
    assert pause == 13 * 3600 - 900
    this.time += pause
    this.run()
    assert this.logs[0] == 2
    this.check(0, 1, 2)


def test_a_request_does_not_wait_for_the_window() -> None:
    this = Collecting(compaction_window="01:00-05:00")
    this.delete(0)
    assert this.collect().removed == (0,)


def test_a_compaction_ends_with_its_window() -> None:
    this = Collecting(compaction_window="12:00-12:20", compaction_rate=64 << 10)
    this.delete(0, 2, 4, 6)
    this.run()
    this.time += 20 * 60 - 6  # each log takes four seconds
    this.run()
    assert this.logs[0] == 2
    report = this.collector.report
    assert report is not None
    assert (report.end, report.removed) == (CollectionEnd.WINDOW, (0, 1))
    this.check(0, 2, 4, 6)


def test_while_collection_is_paused_none_begins_and_a_request_says_so() -> None:
    this = Collecting()
    this.collector.pause()
    this.delete(0, 1)
    this.time += 10_000
    assert this.run() is None
    report = this.collect()
    assert (report.end, report.removed) == (CollectionEnd.PAUSED, ())
    assert report.logs[0].kind is ReasonKind.PAUSED
    this.collector.resume()
    assert this.collect().removed == (0,)


def test_a_pause_ends_the_collection_under_way_and_the_next_one_goes_on() -> None:
    this = Collecting()
    this.delete(0, 2, 4)
    this.collector.request()
    while this.collector.progress is None or not this.collector.progress.read:
        this.step()
    this.collector.pause()
    this.run()
    report = this.collector.report
    assert report is not None
    assert report.end is CollectionEnd.PAUSED
    this.check(0, 2, 4)
    this.collector.resume()
    this.collect()
    assert this.logs[0] == 3
    this.check(0, 2, 4)


def test_low_space_makes_a_collection_begin_at_once_and_without_a_rate() -> None:
    this = Collecting(compaction_rate=64 << 10, compaction_window="01:00-05:00")
    this.delete(0, 2)
    this.room.is_low = True
    this.run()
    assert (this.time, this.logs[0]) == (0, 2)
    # Again, because it was of use, and soon not any more until something else dies.
    while (pause := this.run()) is not None:
        assert pause == pytest.approx(10.0)
        this.time += pause
    count = this.collector.count
    assert count <= 3
    this.time += 10
    this.delete(4)
    this.run()
    assert (this.collector.count, this.logs[0]) == (count + 1, 3)


def test_only_logs_are_compacted_whose_live_entries_have_room() -> None:
    this = Collecting()
    this.delete(0)
    this.room.bytes = OF_A_LEDGER * RECORD - 1
    report = this.collect()
    assert report.removed == ()
    assert report.logs[0].kind is ReasonKind.NO_ROOM


def test_a_damaged_log_is_reported_and_passed_over() -> None:
    this = Collecting()
    this.delete(0, 2, 4)
    this.store.close()
    at = 4096 + 40 * RECORD + 500  # inside of a live payload of log 1
    this.site.flip(f"{LEDGERS}/1.log", at)
    this.open()
    report = this.collect()
    assert report.removed == (0, 2)
    [problem] = report.problems
    assert (problem.log.log_id, problem.kind) == (1, ReasonKind.DAMAGED)
    assert problem.reason == f"damaged, ELG-003 at {4096 + 40 * RECORD}"
    assert 1 in this.logs


def test_a_damaged_log_is_read_again_on_request_only() -> None:
    this = Collecting()
    this.delete(0, 2, 4)
    this.store.close()
    this.site.flip(f"{LEDGERS}/1.log", 4096 + 40 * RECORD + 500)
    this.open()
    this.collect()
    this.site.flip(f"{LEDGERS}/1.log", 4096 + 40 * RECORD + 500)  # restored
    this.delete(6)
    this.run()
    this.time += 90_000
    this.run()
    assert 1 in this.logs
    assert this.collect().removed == (1,)
    this.check(0, 2, 4, 6)


def test_a_log_that_ends_in_the_middle_of_a_record_is_damaged() -> None:
    this = Collecting()
    this.delete(0)
    this.store.close()
    this.site.flip(f"{LEDGERS}/0.log", 75)  # the checksum of the map, so that the log is walked
    this.site.flip(f"{LEDGERS}/0.log", 4096)
    this.open()
    [problem] = this.collect().problems
    assert problem.reason == "damaged, ELG-004 at 4096"


def test_a_record_that_nothing_explains_keeps_its_log() -> None:
    this = Collecting()
    this.delete(0)
    this.checkpoint()
    StoreInternals(this.store).lose_location(1, 7)
    report = this.collect()
    [problem] = report.problems
    assert (problem.log.log_id, problem.kind) == (0, ReasonKind.UNACCOUNTED)
    assert problem.reason.startswith("unaccounted record at ")
    assert problem.reason.endswith(", IDX-003")
    assert report.removed == ()


def test_a_full_disk_ends_a_collection_which_is_repeated_and_loses_nothing() -> None:
    this = Collecting()
    this.delete(0, 2)
    this.run()
    this.time += 900
    full = When(verb=Verb.WRITE, name="*.log*", lasting=Lasting.UNTIL_MENDED)
    this.site.disk.plant(Refused(full, errno.ENOSPC))
    pause = this.run()
    report = this.collector.report
    assert report is not None
    assert (report.end, report.removed) == (CollectionEnd.NO_SPACE, ())
    assert pause == pytest.approx(60.0)
    this.site.disk.mend()
    this.time += 60
    this.run()
    assert this.logs[0] == 2
    this.check(0, 2)


def test_a_store_that_is_closed_meanwhile_goes_on_with_the_rest_when_it_is_opened_again() -> None:
    this = Collecting()
    this.delete(0, 2, 4)
    this.collector.request()
    for _ in range(12):
        this.step()
    this.reopen()
    this.check(0, 2, 4)
    this.collect()
    assert this.logs[0] == 3
    this.check(0, 2, 4)


def test_adds_and_deletes_go_on_between_the_steps() -> None:
    this = Collecting()
    this.delete(0, 2, 4)
    this.collector.request()
    step = 0
    while this.collector.count == 0:
        step += 1
        if step % 5 == 0:
            this.store.ledger(50).append(b"x")
        if step == 11:
            this.delete(1)
        this.step()
    assert len(list(this.store.ledger(50).payloads())) == step // 5
    this.delete(50)
    this.check(0, 1, 2, 4)


def test_the_progress_ends_at_the_bytes_of_the_chosen_logs() -> None:
    this = Collecting()
    this.delete(0, 1, 2)
    this.collector.request()
    seen = []
    while this.collector.count == 0:
        this.step()
        if this.collector.progress is not None:
            seen.append(this.collector.progress)
    assert seen[-1].read == seen[-1].total == 2 * this.log_size
    assert this.collector.progress is None


def test_the_figures_of_a_store_count_all_collections_since_it_was_opened() -> None:
    this = Collecting()
    assert this.store.stats().collection == CollectionStats(0, is_paused=False)
    this.delete(0, 1, 2)
    first = this.collect()
    this.delete(4)
    second = this.collect()
    this.collector.pause()
    stats = this.store.stats().collection
    assert (stats.count, stats.is_paused, stats.last_seconds) == (2, True, second.seconds)
    assert stats.logs_removed == len(first.removed) + len(second.removed) == 3
    assert stats.bytes_freed == first.freed + second.freed == 3 * this.log_size
    assert stats.entries_moved == 2 * OF_A_LEDGER
    assert stats.bytes_moved == 2 * OF_A_LEDGER * RECORD
    assert stats.logs_passed_over == 0


def test_a_pause_ends_a_compaction_in_the_middle_of_a_log() -> None:
    this = Collecting()
    this.store.close()
    this.site.config = replace(this.site.config, entry_log_size_max=4 << 20)
    this.open()
    for _ in range(5):  # interleaved, so that every block of the log has live records
        this.add(20, 100)
        this.add(21, 100)
        this.checkpoint()
    this.reopen()
    this.delete(20)
    this.add(22)
    this.checkpoint()  # into a later log, so that the large one is not the last
    this.collector.request()
    while this.collector.progress is None or not this.collector.progress.read:
        this.step()
    this.collector.pause()
    this.run()
    report = this.collector.report
    assert report is not None
    assert (report.end, report.moved_entries) == (CollectionEnd.PAUSED, 0)
    this.collector.resume()
    assert this.collect().moved_entries == 500


def test_a_pause_waits_for_the_slice_that_is_being_written() -> None:
    this = Collecting()
    this.store.close()
    this.site.config = replace(this.site.config, entry_log_size_max=4 << 20)
    this.open()
    for _ in range(5):
        this.add(20, 100)
        this.add(21, 100)
        this.checkpoint()
    this.reopen()
    this.delete(20)
    this.add(22)
    this.checkpoint()
    StoreInternals(this.store).make_each_chunk_a_slice()
    this.collector.request()
    while this.collector.progress is None or not this.collector.progress.read:
        this.step()
    this.collector.pause()

    assert [this.collector.step() for _ in range(3)] == [None] * 3
    assert this.collector.count == 0, "the runner has taken no step"
    this.run()

    report = this.collector.report
    assert report is not None
    assert (report.end, report.moved_entries) == (CollectionEnd.PAUSED, 0)
    this.collector.resume()
    assert 0 < this.collect().moved_entries < 500, "the slice has moved the others"
    assert len(list(this.store.ledger(21).payloads())) == 500


def test_a_collection_removes_logs_while_a_checkpoint_waits_for_space_and_moves_nothing() -> None:
    this = Collecting()
    this.delete(0, 1, 2)  # the first log is dead, the second one is half dead
    this.checkpoint()
    this.add(20)
    this.site.disk.plant(
        Refused(When(verb=Verb.WRITE, name="*.log*", lasting=Lasting.UNTIL_MENDED), errno.ENOSPC)
    )
    this.checkpoint()
    assert StoreInternals(this.store).disk_full_error is not None
    this.collector.request()
    for _ in range(500):
        this.step()
        if this.collector.report is not None:
            break
    report = this.collector.report
    assert report is not None, "it waits for ever"
    assert (report.end, report.removed, report.moved_entries) == (CollectionEnd.NO_SPACE, (0,), 0)
    this.site.disk.mend()
    this.checkpoint()
    assert len(list(this.store.ledger(20).payloads())) == OF_A_LEDGER
    this.site.disk.kill()
    this.open()
    assert len(list(this.store.ledger(20).payloads())) == OF_A_LEDGER
    assert this.logs[0] == 1


def with_a_dead_half_in_use(*deleted: int) -> Collecting:
    """A store whose log in use has two ledgers, of which these are deleted."""
    this = Collecting(compaction_major=0.7)
    this.add(20)
    this.add(21, OF_A_LEDGER - 2)
    this.checkpoint()
    this.delete(*deleted)
    this.checkpoint()
    return this


def test_a_requested_collection_ends_a_log_in_use_that_is_mostly_dead_and_moves_its_live_entries() -> None:
    this = with_a_dead_half_in_use(20)
    in_use = this.logs[-1]
    report = this.collect()
    assert report.end is CollectionEnd.COMPLETE
    assert (report.removed, report.moved_entries) == ((in_use,), OF_A_LEDGER - 2)
    assert this.logs[-1] > in_use
    this.reopen()
    assert len(list(this.store.ledger(21).payloads())) == OF_A_LEDGER - 2
    assert this.collect().moved_entries == 0  # what was moved is not moved again


def test_a_log_in_use_without_live_entries_goes_when_a_later_log_was_begun() -> None:
    this = with_a_dead_half_in_use(20, 21)
    in_use = this.logs[-1]
    assert this.collect().removed == ()
    assert in_use in this.logs
    this.add(22, 1)
    this.checkpoint()
    assert this.logs[-1] > in_use
    assert this.collect().removed == (in_use,)


def test_a_collection_by_itself_leaves_the_log_in_use_alone() -> None:
    this = with_a_dead_half_in_use(20)
    logs = this.logs
    this.time = 1000.0
    assert this.run() is not None
    this.time += 1000.0
    this.run()
    assert this.collector.count > 0
    assert this.logs == logs


def test_a_log_in_use_that_is_mostly_live_is_not_ended() -> None:
    this = Collecting()
    this.add(20, 5)
    this.checkpoint()
    logs = this.logs
    assert this.collect().moved_entries == 0
    this.add(22, 1)
    this.checkpoint()
    assert this.logs == logs


def test_the_log_that_was_the_last_one_is_moved_after_all_others() -> None:
    this = with_a_dead_half_in_use(20)
    this.delete(0)  # half of log 0
    in_use = this.logs[-1]
    assert this.collect().removed == (0, in_use)
    first, last = (StoreInternals(this.store).index.find(ledger_id, 0) for ledger_id in (1, 21))
    assert first is not None
    assert last is not None
    assert first < last


def test_the_purged_tombstones_are_in_the_report() -> None:
    this = Collecting()
    this.delete(0, 1)
    assert this.collect().tombstones == 0  # a journal may have what they kill
    this.add(20)
    this.checkpoint()
    this.reopen()
    this.add(20)
    this.checkpoint()
    assert this.collect().tombstones > 0
    assert this.store.stats().collection.tombstones_purged > 0


def test_an_error_of_the_disk_while_tombstones_are_purged_is_in_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    this = Collecting()
    this.delete(0, 1)

    def refused(_: Compactor) -> Generator[None, None, Purged]:
        yield
        return Purged(0, 2, OSError(errno.EIO, "the disk"))

    monkeypatch.setattr(Compactor, "purge_tombstones", refused)
    report = this.collect()
    assert (report.end, report.removed, report.tombstones) == (CollectionEnd.FAILED, (0,), 0)


# ── the facts about a log ────────────────────────────────────────────────────────────────────────────────

EARLIER = Problem(ProblemKind.UNACCOUNTED, "IDX-003", 9)


def usage_of(live: int = 2000, deleted: int = 0, damaged_at: int | None = None) -> LogUsage:
    damage = None if damaged_at is None else Damaged(damaged_at, Flaw.BODY_CUT)
    return LogUsage(3, 5000, 4000, live, 7, 2, deleted, damage)


def test_the_facts_about_a_log_are_its_usage_and_what_an_earlier_collection_has_found() -> None:
    facts = facts_of(usage_of(), Standing.LAST, EARLIER)
    assert facts == PolicyFacts(3, Standing.LAST, 5000, 4000, 2000, EARLIER)
    assert facts_of(usage_of(), Standing.LAST, None).problem is None


@pytest.mark.parametrize(
    ("offset", "finding"), [(0, "ELG-001"), (HEADER_SIZE - 1, "ELG-001"), (HEADER_SIZE, "ELG-004")]
)
def test_damage_of_a_log_is_told_by_its_place_and_before_what_was_found_earlier(
    offset: int, finding: str
) -> None:
    facts = facts_of(usage_of(damaged_at=offset), Standing.COMMITTED, EARLIER)
    assert facts.problem == Problem(ProblemKind.DAMAGED, finding, offset)


@pytest.mark.parametrize(
    ("deleted", "live", "waits"), [(0, 0, False), (1, 0, True), (2, 0, True), (1, 1, False), (1, 2000, False)]
)
def test_a_dead_log_waits_for_the_checkpoint_that_takes_its_deleted_ledgers_out_of_the_index(
    deleted: int, live: int, waits: bool
) -> None:
    assert facts_of(usage_of(live, deleted), Standing.COMMITTED, None).waits_for_checkpoint is waits
