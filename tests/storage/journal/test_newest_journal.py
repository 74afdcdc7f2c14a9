"""The newest journal damaged as a whole: nothing in it can show that, so the mark and the header must."""

from __future__ import annotations

import errno
from functools import cache
from typing import TYPE_CHECKING

import pytest
from sampling import every, many
from stepped_store import JOURNAL, LEDGERS, Site, payloads
from store_internals import StoreInternals

from recovery.crashlab import Lasting, LoseAll, Refused, Verb, When
from storage import StoreConfig
from storage.errors import CorruptionError, DiskFull, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.crashlab import Operation, SimulatedDisk
    from storage.store import Store

CONFIG = StoreConfig(
    memtable_size_max=16 << 10,
    entry_size_max=2 << 10,
    group_size_max=4 << 10,
    journal_size=32 << 10,
    journal_max_backups=0,
    throttle_timeout_s=0.0,
    checkpoint_interval_s=None,
    idle_seal_s=None,
)
"""A journal takes only a few groups."""

Moment = tuple["SimulatedDisk", int]
"""A disk, and how many entries were acknowledged by then."""


def texts(count: int) -> list[bytes]:
    return [b"%d " % number * 100 for number in range(count)]


@cache
def moments() -> list[Moment]:
    """Return the disk before every third operation of three runs: the first is killed, the others close."""
    site, found, acknowledged = Site(CONFIG), list[Moment](), 0

    def keep(operation: Operation) -> None:
        if operation.number % 3 == 0 and acknowledged:
            found.append((site.disk.copy(), acknowledged))

    site.disk.watch(keep)
    store = site.open()
    for number, text in enumerate(texts(45)):
        assert store.ledger(1).append(text) == number
        acknowledged += 1
        if number in (12, 34):
            site.checkpoint(store)
        if number == 20:
            store = site.after_kill()
        if number == 28:
            store.close()
            store = site.open()
    found.append((site.disk.copy(), acknowledged))
    store.close()
    found.append((site.disk.copy(), acknowledged))
    return found


def name_of(number: int) -> str:
    return f"{JOURNAL}/{number:x}.txn"


def journals_of(site: Site) -> list[int]:
    return sorted(int(name.removesuffix(".txn"), 16) for name in site.names(JOURNAL, ".txn"))


def missing(site: Site, newest: int) -> None:
    site.remove(name_of(newest))


def empty(site: Site, newest: int) -> None:
    site.put(name_of(newest), b"")


def zeros(site: Site, newest: int) -> None:
    site.put(name_of(newest), bytes(len(site.bytes_of(name_of(newest)))))


def cut_behind_its_header(site: Site, newest: int) -> None:
    site.put(name_of(newest), site.bytes_of(name_of(newest))[:4096])


def cut_in_the_middle(site: Site, newest: int) -> None:
    data = site.bytes_of(name_of(newest))
    site.put(name_of(newest), data[: len(data) // 8192 * 4096])


def with_the_header_of_another(site: Site, newest: int) -> None:
    data = site.bytes_of(name_of(newest))
    other = Site(CONFIG, first_salt=1000)
    other.open().ledger(1).append(b"")
    header = other.bytes_of(name_of(1))[:512]
    site.put(name_of(newest), header + data[512:])


DAMAGES: list[Callable[[Site, int], None]] = [
    missing,
    empty,
    zeros,
    cut_behind_its_header,
    cut_in_the_middle,
    with_the_header_of_another,
]


def damaged(moment: Moment, damage: Callable[[Site, int], None]) -> Iterator[tuple[Site, str]]:
    """Return the disk as a kill and as a power cut leave it, with the damage done to its newest journal."""
    for crash in ("kill", "power cut"):
        site = Site(CONFIG, moment[0].copy())
        site.disk.kill() if crash == "kill" else site.disk.power_cut(LoseAll())
        if found := journals_of(site):
            damage(site, found[-1])
            yield site, f"{found[-1]:x}.txn"


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("damage", DAMAGES)
def test_any_damage_to_the_newest_journal_as_a_whole_is_noticed(
    damage: Callable[[Site, int], None],
) -> None:
    refused = 0
    for moment in every(2, moments()):
        for site, newest in damaged(moment, damage):
            found = shown_or_refused(site)
            if isinstance(found, CorruptionError):
                assert found.file == newest
                refused += 1
            else:
                assert found[: moment[1]] == texts(moment[1])
    assert refused > many(100, 40)


def shown_or_refused(site: Site) -> list[bytes] | CorruptionError:
    try:
        return payloads(site.open(), 1)
    except CorruptionError as error:
        return error


def test_without_damage_none_of_these_is_refused() -> None:
    for disk, acknowledged in moments():
        site = Site(CONFIG, disk.copy())
        assert payloads(site.after_kill(), 1)[:acknowledged] == texts(acknowledged)


@pytest.mark.parametrize(
    ("damage", "finding", "reason"),
    [
        (missing, "MRK-002", "missing, and named by the mark's trailer"),
        (empty, "JRN-003", "damaged or gone"),
        (zeros, "JRN-003", "damaged or gone"),
        (cut_behind_its_header, "JRN-003", "the file has lost its end"),
        (with_the_header_of_another, "JRN-003", "header and groups are of different journals"),
    ],
)
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_the_refusal_names_file_and_reason(
    damage: Callable[[Site, int], None], finding: str, reason: str, *, is_closed: bool
) -> None:
    site = Site(CONFIG)
    store = site.open()
    for text in texts(3):
        store.ledger(1).append(text)
    if is_closed:
        # A mark in the middle of the journal: that the rest of it is missing must still be noticed.
        store.close()
        store = site.open()
        for text in texts(3):
            store.ledger(1).append(text)
    site.disk.kill()
    newest = journals_of(site)[-1]
    damage(site, newest)
    with pytest.raises(CorruptionError) as caught:
        site.open()
    assert (caught.value.file, caught.value.finding) == (f"{newest:x}.txn", finding)
    assert reason in str(caught.value)


# ── the announcement ─────────────────────────────────────────────────────────────────────────────────────


def test_a_journal_is_announced_after_its_name_and_before_its_first_group() -> None:
    site = Site(CONFIG)
    store = site.open()
    start = len(site.disk.trace)
    store.ledger(1).append(b"first")
    renames = [one for one in site.disk.trace[start:] if one.verb is Verb.RENAME]
    assert [one.target.rpartition("/")[2] for one in renames] == ["1.txn", "lastMark"]
    group = [one for one in site.disk.trace[start:] if one.verb is Verb.WRITE][-1]
    assert site.disk.trace.index(group) > site.disk.trace.index(renames[-1])
    assert site.trailer().newest_journal == 1


def test_every_roll_is_announced_and_a_checkpoint_forgets_none() -> None:
    site = Site(CONFIG)
    store = site.open()
    for text in texts(20):
        store.ledger(1).append(text)
        assert site.trailer().newest_journal == journals_of(site)[-1]
    before = site.trailer()
    site.checkpoint(store)
    assert site.trailer().generation == before.generation + 1
    assert site.trailer().newest_journal == before.newest_journal == journals_of(site)[-1]


def test_a_journal_that_is_begun_while_a_checkpoint_is_made_stays_announced() -> None:
    site = Site(CONFIG)
    store = site.open()
    store.ledger(1).append(b"first")
    StoreInternals(store).request_checkpoint()
    site.workers.step()  # from here on the checkpoint is about the first entry alone
    for text in texts(10):
        store.ledger(1).append(text)
    site.workers.run()
    newest = journals_of(site)[-1]
    assert (site.mark().journal_id, site.trailer().newest_journal) == (1, newest)
    site.disk.kill()
    missing(site, newest)
    with pytest.raises(CorruptionError, match="missing"):
        site.open()


def test_an_announcement_leaves_the_rest_of_the_mark_as_it_is() -> None:
    site = Site(CONFIG)
    store = site.open()
    store.ledger(1).append(b"first")
    site.checkpoint(store)
    before, mark = site.trailer(), site.mark()
    store = site.after_kill()
    store.ledger(1).append(b"second")
    after = site.trailer()
    assert (after.generation, after.log_end, site.mark()) == (before.generation, before.log_end, mark)
    assert after.newest_journal > before.newest_journal


def test_a_journal_of_carried_over_records_is_announced_before_the_opening_ends() -> None:
    site = Site(CONFIG)
    site.open().ledger(1).append(b"first")
    site.after_kill()
    assert site.trailer().newest_journal == journals_of(site)[-1] == 2


def test_an_opening_without_adds_stores_no_mark() -> None:
    site = Site(CONFIG)
    store = site.open()
    store.ledger(1).append(b"first")
    store.close()
    start = len(site.disk.trace)
    site.open()
    assert not [one for one in site.disk.trace[start:] if one.verb in (Verb.WRITE, Verb.RENAME)]


def test_a_disk_too_full_for_the_announcement_refuses_the_add_and_leaves_nothing() -> None:
    site = Site(CONFIG)
    store = site.open()
    store.ledger(1).append(b"first")
    store = site.after_kill()
    before = journals_of(site)
    full = When(verb=Verb.WRITE, name="lastMark.draft", lasting=Lasting.UNTIL_MENDED)
    site.disk.plant(Refused(full, error=errno.ENOSPC))
    while len(journals_of(site)) == len(before):
        try:
            store.ledger(1).append(texts(100)[-1])
        except DiskFull:
            break
    assert journals_of(site) == before
    assert not [name for name in site.names(JOURNAL) if name.endswith(".draft")]
    site.disk.mend()
    entries = payloads(store, 1)
    assert store.ledger(1).append(b"last") == len(entries)
    assert payloads(site.after_power_cut(), 1) == [*entries, b"last"]


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        (Verb.SYNC, "lastMark.draft"),
        (Verb.RENAME, "lastMark.draft"),
        (Verb.RENAME, "*.txn"),
        (Verb.SYNC_DIRECTORY, f"/{JOURNAL}"),
        (Verb.SYNC_DIRECTORY, f"/{LEDGERS}"),
    ],
)
def test_an_announcement_that_fails_stops_the_store_and_loses_nothing(verb: Verb, name: str) -> None:
    site = Site(CONFIG)
    store = site.open()
    store.ledger(1).append(b"first")
    site.disk.plant(Refused(When(verb=verb, name=name)))
    with pytest.raises(StoreFailed):
        appended_until_it_fails(store)
    taken = payloads(store, 1)
    assert taken == [b"first", *texts(50)][: len(taken)]
    with pytest.raises(StoreFailed):
        store.ledger(1).append(b"more")
    assert payloads(site.after_power_cut(), 1) == taken


def appended_until_it_fails(store: Store) -> None:
    for text in texts(50):
        store.ledger(1).append(text)
