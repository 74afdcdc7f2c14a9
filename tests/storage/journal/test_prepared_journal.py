"""The next journal is prepared while the active one is in use: a roll syncs nothing, and no crash harms."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import pytest
from stepped_store import JOURNAL, LEDGERS, Site, payloads
from store_internals import EngineCall, StoreInternals

from recovery.crashlab import FailedSync, LoseAll, Refused, SimulatedDisk, Verb, When
from recovery.crashlab.model.operations import SYNCING
from storage import StoreConfig
from storage.errors import CorruptionError, StoreFailed

if TYPE_CHECKING:
    from recovery.crashlab import Operation
    from storage.store import Store

CONFIG = StoreConfig(
    memtable_size_max=64 << 10,
    entry_size_max=2 << 10,
    group_size_max=4 << 10,
    journal_size=32 << 10,
    journal_max_backups=0,
    throttle_timeout_s=0.0,
    checkpoint_interval_s=None,
    idle_seal_s=None,
)
"""A journal takes only a few groups."""


def text(number: int) -> bytes:
    return b"%d " % number * 100


def journals_of(site: Site) -> list[int]:
    return sorted(int(name.removesuffix(".txn"), 16) for name in site.names(JOURNAL, ".txn"))


def name_of(journal_id: int) -> str:
    return f"{JOURNAL}/{journal_id:x}.txn"


def prepared(config: StoreConfig = CONFIG) -> tuple[Site, Store, int]:
    """Return a store whose next journal is prepared, and how many entries it has."""
    site = Site(config)
    store = site.open()
    count = 0
    while len(journals_of(site)) < 3:
        store.ledger(1).append(text(count))
        count += 1
        site.workers.run()
    journal = StoreInternals(store).journal
    assert journal is not None
    assert journals_of(site)[-1] == journal.journal_id + 1
    return site, store, count


def test_an_add_that_rolls_to_a_prepared_journal_syncs_its_group_and_nothing_else() -> None:
    site = Site(CONFIG)
    store = site.open()
    store.ledger(1).append(text(0))
    for number in range(1, 60):
        site.workers.run()
        start = len(site.disk.trace)
        store.ledger(1).append(text(number))
        syncs = [one for one in site.disk.trace[start:] if one.verb in SYNCING]
        if number > 4:  # the first journal is too small to be half full before it is full
            assert len(syncs) == 1
    assert len(journals_of(site)) > 5


def test_a_writer_that_is_faster_than_the_worker_makes_the_journal_itself() -> None:
    site = Site(CONFIG)
    store = site.open()
    for number in range(60):
        store.ledger(1).append(text(number))
    assert len(journals_of(site)) > 5
    assert payloads(site.after_kill(), 1) == [text(number) for number in range(60)]


def test_a_group_too_large_for_the_prepared_journal_gets_another_one() -> None:
    site, store, count = prepared()
    StoreInternals(store).call(EngineCall.ROLL_JOURNAL)(
        60 << 10
    )  # as much as the keys of very many ledgers need
    store.ledger(1).append(text(count))
    # The prepared journal stays without a group, so none of its bytes counts.
    assert store.stats().checkpoint.lag_bytes < 64 << 10
    assert max(len(site.bytes_of(name_of(one))) for one in journals_of(site)) > 60 << 10
    expected = list(map(text, range(count + 1)))
    assert payloads(store, 1) == expected
    store = site.after_kill()
    assert payloads(store, 1) == expected
    site.checkpoint(store)
    store.close()
    assert payloads(site.open(), 1) == expected


def test_a_prepared_journal_does_not_count_as_bytes_after_the_mark() -> None:
    site, store, _ = prepared()
    before = store.stats().checkpoint.lag_bytes
    assert before < sum(len(site.bytes_of(name_of(one))) for one in journals_of(site)[:-1])


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("damage", ["missing", "empty", "zeros", "cut"])
@pytest.mark.parametrize("which", ["in use", "prepared"])
def test_the_loss_of_the_active_or_the_prepared_journal_is_reported(damage: str, which: str) -> None:
    site, _, _ = prepared()
    victim = journals_of(site)[-2 if which == "in use" else -1]
    site.disk.kill()
    data = site.bytes_of(name_of(victim))
    if damage == "missing":
        site.remove(name_of(victim))
    else:
        site.put(name_of(victim), {"empty": b"", "zeros": bytes(len(data)), "cut": data[:4096]}[damage])
    with pytest.raises(CorruptionError) as caught:
        site.open()
    assert caught.value.file == f"{victim:x}.txn"


def test_a_journal_that_was_made_by_the_writer_itself_names_the_one_before_it_too() -> None:
    """Only the header shows it between the new journal's announcement and its first group."""
    site = Site(CONFIG)
    store = site.open()
    found: list[SimulatedDisk] = []

    def keep(operation: Operation) -> None:
        if len(journals_of(site)) == 3:
            found.append(site.disk.copy())

    site.disk.watch(keep)
    for number in range(30):
        store.ledger(1).append(text(number))
    refused = 0
    for disk in found[:6]:
        other = Site(CONFIG, disk)
        other.disk.kill()
        other.remove(name_of(journals_of(other)[-2]))
        with pytest.raises(CorruptionError):
            other.open()
        refused += 1
    assert refused == 6


# ── crashes ──────────────────────────────────────────────────────────────────────────────────────────────


@cache
def moments() -> list[tuple[SimulatedDisk, int]]:
    """Return the disk at every operation of three runs with prepared journals, and what was acknowledged."""
    site, found, acknowledged = Site(CONFIG), list[tuple[SimulatedDisk, int]](), 0

    def keep(_: Operation) -> None:
        if acknowledged:
            found.append((site.disk.copy(), acknowledged))

    store = site.open()
    site.disk.watch(keep)
    for number in range(50):
        store.ledger(1).append(text(number))
        acknowledged += 1
        site.workers.run()
        if number in (20, 30):
            site.checkpoint(store)
        if number == 25:
            store = site.after_kill()
        if number == 38:
            store.close()
            store = site.open()
    store.close()
    found.append((site.disk.copy(), acknowledged))
    return found


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("crash", ["kill", "power cut"])
@pytest.mark.parametrize("part", range(4))
def test_no_crash_around_a_prepared_journal_loses_an_entry_or_is_called_damage(crash: str, part: int) -> None:
    for disk, acknowledged in moments()[part::12]:
        site = Site(CONFIG, disk.copy())
        site.disk.kill() if crash == "kill" else site.disk.power_cut(LoseAll())
        for _ in range(2):
            store = site.open()
            shown = payloads(store, 1)
            assert shown[:acknowledged] == [text(number) for number in range(acknowledged)]
            store.ledger(1).append(text(len(shown)))
            acknowledged = len(shown) + 1
            site.workers.run()
            site.disk.kill()


def test_openings_and_kills_after_a_prepared_journal_do_not_pile_up_journals() -> None:
    site, _, count = prepared()
    before = len(journals_of(site))
    store = site.after_kill()
    for _ in range(60):
        store = site.after_kill()
    assert len(journals_of(site)) <= before + 1
    assert payloads(store, 1) == [text(number) for number in range(count)]


def test_runs_that_each_prepare_a_journal_and_are_killed_leave_few() -> None:
    site, _, count = prepared()
    for _ in range(20):
        store = site.after_kill()
        for _ in range(12):
            store.ledger(1).append(text(count))
            count += 1
            site.workers.run()
        assert len(journals_of(site)) <= 12
    assert payloads(site.after_kill(), 1) == [text(number) for number in range(count)]


# ── the end of a run ─────────────────────────────────────────────────────────────────────────────────────


def test_a_store_that_is_closed_leaves_no_prepared_journal_and_the_mark_names_none() -> None:
    site, store, count = prepared()
    journal = StoreInternals(store).journal
    assert journal is not None
    store.close()
    assert journals_of(site)[-1] == journal.journal_id == site.trailer().newest_journal
    names = site.names(JOURNAL), site.names(LEDGERS)
    store = site.open()
    assert payloads(store, 1) == [text(number) for number in range(count)]
    store.close()
    assert (site.names(JOURNAL), site.names(LEDGERS)) == names


def test_a_close_that_cannot_withdraw_the_announcement_leaves_the_prepared_journal() -> None:
    site, store, count = prepared()
    StoreInternals(store).request_checkpoint()
    site.workers.run()
    site.disk.plant(Refused(When(verb=Verb.CREATE, name="lastMark*")))
    store.close()
    site.disk.mend()
    assert site.trailer().newest_journal == journals_of(site)[-1]
    assert payloads(site.open(), 1) == [text(number) for number in range(count)]


def test_a_journal_whose_name_cannot_be_made_durable_stops_the_store() -> None:
    site = Site(CONFIG)
    store = site.open()
    for number in range(6):
        store.ledger(1).append(text(number))
    site.disk.plant(FailedSync(When(verb=Verb.SYNC_DIRECTORY, name=f"/{JOURNAL}")))
    count = 6
    with suppress(StoreFailed):
        for count in range(6, 60):
            store.ledger(1).append(text(count))
            site.workers.run()
    assert count < 59
    shown = payloads(store, 1)
    assert payloads(site.after_kill(), 1)[: len(shown)] == shown
