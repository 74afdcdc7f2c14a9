"""How many bytes of each log live, from ledgers maps, walks, deletes and truncations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped_store import LEDGERS, SMALL, Site
from store_internals import StoreInternals

from storage.entry.ledger_record import Truncation
from storage.entry.position import LOG_ID_MAX, LogPosition
from storage.gc.usage import ContentCache, LogUsage, UsageSurvey, take_all_steps

if TYPE_CHECKING:
    from storage.store import Store

RECORD = 1000 + 4 + 32 + 4  # payload, length word, head, digest
SITE = replace(SMALL, entry_log_size_max=64 << 10)
"""A log has room for about 58 of these records."""


def add(store: Store, ledger_id: int, count: int = 20) -> None:
    store.ledger(ledger_id).append_many([bytes(1000)] * count)


def usages(store: Store, cache: ContentCache | None = None) -> dict[int, LogUsage]:
    survey = StoreInternals(store).usage_survey(cache)
    return {log_id: take_all_steps(survey.usage_of(log_id)) for log_id in survey.log_ends}


def size(store: Store, log_id: int) -> int:
    return StoreInternals(store).usage_survey().size_of(log_id)


def site_with_logs() -> tuple[Site, Store]:
    """Return a store with ledgers 1 and 2 in log 0, ledgers 2 and 3 in log 1, and ledger 4 in log 2."""
    site = Site(SITE)
    store = site.open()
    for ledgers in ((1, 2), (2, 3), (4,)):
        for ledger_id in ledgers:
            add(store, ledger_id)
        site.checkpoint(store)
        store.close()
        store = site.open()
    return site, store


def test_the_records_of_ledgers_that_exist_live() -> None:
    _, store = site_with_logs()
    assert usages(store) == {
        log_id: LogUsage(log_id, size(store, log_id), count * RECORD, count * RECORD, ledgers, ledgers, 0)
        for log_id, count, ledgers in ((0, 40, 2), (1, 40, 2), (2, 20, 1))
    }


def test_the_records_of_a_deleted_ledger_are_dead_before_and_after_a_checkpoint() -> None:
    site, store = site_with_logs()
    store.ledger(2).delete()
    for deleted in (1, 0):
        found = usages(store)
        assert [found[log_id].deleted_ledgers for log_id in (0, 1, 2)] == [deleted, deleted, 0]
        assert [found[log_id].live for log_id in (0, 1, 2)] == [20 * RECORD] * 3
        assert [found[log_id].live_ledgers for log_id in (0, 1, 2)] == [1, 1, 1]
        site.checkpoint(store)


def test_the_records_of_a_ledger_that_was_made_again_live_and_those_before_the_delete_do_not() -> None:
    site, store = site_with_logs()
    store.ledger(2).delete()
    site.checkpoint(store)
    add(store, 2, 5)
    site.checkpoint(store)
    assert {log_id: found.live for log_id, found in usages(store).items()} == {
        0: 20 * RECORD,
        1: 20 * RECORD,
        2: 20 * RECORD,
        3: 5 * RECORD,
    }


def test_a_log_that_was_never_sealed_is_walked_once() -> None:
    site, store = site_with_logs()
    add(store, 5, 3)
    site.checkpoint(store)  # into log 3, which stays open
    cache = ContentCache()
    assert usages(store, cache)[3] == LogUsage(3, size(store, 3), 3 * RECORD, 3 * RECORD, 1, 1, 0)
    survey = StoreInternals(store).usage_survey(cache)
    assert survey.known_usage_of(3) == LogUsage(3, size(store, 3), 3 * RECORD, 3 * RECORD, 1, 1, 0)
    assert StoreInternals(store).usage_survey(None).known_usage_of(3) is None


def test_a_log_that_is_not_committed_has_no_known_usage() -> None:
    _, store = site_with_logs()
    assert StoreInternals(store).usage_survey(None).known_usage_of(7) is None


@pytest.mark.parametrize("offset", [0, 75])
def test_a_log_whose_map_is_not_proven_is_walked(offset: int) -> None:
    site, store = site_with_logs()
    store.close()
    if offset:
        site.flip(f"{LEDGERS}/0.log", offset)  # in the checksum of the map
    store = site.open()
    survey = StoreInternals(store).usage_survey(None)
    assert (survey.known_usage_of(0) is None) == bool(offset)
    assert take_all_steps(survey.usage_of(0)) == LogUsage(
        0, size(store, 0), 40 * RECORD, 40 * RECORD, 2, 2, 0
    )


def test_a_walk_stops_at_a_record_that_has_no_sound_length() -> None:
    site, store = site_with_logs()
    store.close()
    site.flip(f"{LEDGERS}/0.log", 75)
    site.flip(f"{LEDGERS}/0.log", 4096 + 10 * RECORD)  # the first byte of a length word
    usage = usages(site.open())[0]
    assert usage.recorded == 10 * RECORD
    assert usage.damage is not None
    assert usage.damage.offset == 4096 + 10 * RECORD


def test_the_entries_before_a_truncation_are_dead() -> None:
    site = Site(SITE)
    store = site.open()
    for _ in range(3):
        add(store, 1)
        site.checkpoint(store)
        store.close()
        store = site.open()
    StoreInternals(store).declare_rows({1: lambda row: replace(row, truncation=Truncation(25))})
    assert [usages(store)[log_id].live for log_id in (0, 1, 2)] == [0, 15 * RECORD, 20 * RECORD]


def test_the_size_of_a_truncated_ledger_whose_first_record_is_damaged_is_not_guessed() -> None:
    site = Site(SITE)
    store = site.open()
    for _ in range(3):
        add(store, 1)
        site.checkpoint(store)
        store.close()
        store = site.open()
    StoreInternals(store).declare_rows({1: lambda row: replace(row, truncation=Truncation(25))})
    site.flip(f"{LEDGERS}/1.log", 4096 + 5 * RECORD)  # the first byte of the length word of entry 25
    assert [usages(store)[log_id].live for log_id in (0, 1, 2)] == [0, 0, 20 * RECORD]


def test_the_cache_keeps_so_many_pairs_and_forgets_the_oldest_logs() -> None:
    _, store = site_with_logs()
    cache = ContentCache(pairs_max=3)
    assert usages(store, cache) == usages(store)
    ends = StoreInternals(store).usage_survey(None).log_ends
    assert [cache.get(log_id, ends[log_id]) is not None for log_id in (0, 1, 2)] == [False, True, True]


def test_logs_are_ordered_by_the_time_when_their_ids_were_given_out() -> None:
    _, store = site_with_logs()
    survey = StoreInternals(store).usage_survey(None)
    wrapped = replace_state(survey, {LOG_ID_MAX - 1: 5000, 0: 5000, 1: 5000}, last_log=1)
    before = LogPosition(0, 4999)
    assert [wrapped.is_before(log_id, before) for log_id in (LOG_ID_MAX - 1, 0, 1)] == [True, False, False]
    assert wrapped.is_before(0, LogPosition(0, 5000))
    # There was no log at the delete, so that every record is of a ledger that was made later.
    assert not wrapped.is_before(LOG_ID_MAX - 1, LogPosition(0, 0))


def replace_state(survey: UsageSurvey, log_ends: dict[int, int], last_log: int) -> UsageSurvey:
    return UsageSurvey(survey.directory, survey.index, survey.visible, survey.records, log_ends, last_log)


def test_a_survey_takes_many_small_steps() -> None:
    site = Site(SITE)
    store = site.open()
    for ledger_id in range(100):
        store.ledger(ledger_id).append(b"x")
    site.checkpoint(store)
    survey = StoreInternals(store).usage_survey(None)
    steps = survey.usage_of(0)
    assert sum(1 for _ in iter(lambda: next(steps, "end"), "end")) >= 4
