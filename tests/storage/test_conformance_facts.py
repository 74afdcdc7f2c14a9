"""Counterparts of BookKeeper's own tests of ledger metadata; docs/conformance.md has the list."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from bookie_clients import AddingClient
from file_index import FileIndexPlace
from stepped_store import JOURNAL, LEDGERS, SMALL, Site
from store_internals import StoreInternals

from recovery.crashlab import FailedSync, Lasting, Refused, Verb, When
from recovery.directory.layout import Layout
from recovery.opening.rebuild_index import rebuild_index
from storage.entry import format as entry_format
from storage.entry.digest import master_key
from storage.entry.model import DigestType
from storage.entrylog import format as entrylog_format
from storage.errors import (
    AnswerUnknown,
    DiskFull,
    LedgerFenced,
    LedgerUnproven,
    NoSuchEntry,
    NoSuchLedger,
    NotAStore,
    StoreFailed,
    Unauthorized,
)
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.bookie import Bookie
    from storage.entry.position import JournalPosition
    from storage.store import Store

WRITER = AddingClient()
WRONG = master_key(b"wrong")
ORIGIN_START = 20
"""The range of an entry log's header that is zero in a bookie's log."""


def opened() -> tuple[Site, Store, Bookie]:
    site = Site()
    store = site.open()
    return site, store, store.bookie


def add(bookie: Bookie, writer: AddingClient, *entry_ids: int) -> None:
    for entry_id in entry_ids:
        bookie.add(writer.entry(entry_id), writer.key)


def syncs(site: Site) -> int:
    """Return how often a journal was synced."""
    return sum(operation.verb is Verb.SYNC and ".txn" in operation.path for operation in site.disk.trace)


def next_mark(store: Store) -> JournalPosition:
    """Return the position that a mark written now would have."""
    return StoreInternals(store).covered_until


def with_rebuilt_index(site: Site) -> Store:
    """Return the store with its index rebuilt."""
    site.disk.kill()
    site.remove(f"{LEDGERS}/index")
    store = site.open()
    assert store.opened.index is IndexFound.REBUILT
    return store


# ── J: deferred sync, explicit confirmations ─────────────────────────────────────────────────────────────


def test_j15_a_deferred_add_is_answered_without_a_sync_and_the_mark_stays() -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0)
    done, mark = len(site.disk.trace), next_mark(store)
    bookie.defer(WRITER.entry(1), WRITER.key)
    assert len(site.disk.trace) == done
    assert next_mark(store) == mark
    assert not bookie.has(7, 1)
    bookie.force(7)
    assert next_mark(store) > mark
    assert bookie.has(7, 1)


def test_j16_a_burst_of_deferred_adds_is_written_whenever_there_is_a_group_of_them() -> None:
    site = Site(replace(SMALL, group_size_max=4 << 10))
    bookie = site.open().bookie
    add(bookie, WRITER, 0)
    done = syncs(site)
    sent = [WRITER.entry(entry_id, b"x" * 400) for entry_id in range(1, 61)]
    for data in sent:
        bookie.defer(data, WRITER.key)
    assert syncs(site) - done > 4
    bookie.force(7)
    bookie = site.after_power_cut().bookie
    assert [bookie.read(7, entry_id) for entry_id in range(1, 61)] == sent


def test_j18_a_force_is_answered_after_a_sync_and_the_mark_moves() -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0)
    bookie.defer(WRITER.entry(1), WRITER.key)
    mark, seen = next_mark(store), list[bool]()
    site.disk.watch(lambda operation: seen.append(bookie.has(7, 1)))
    bookie.force(7)
    assert (seen, bookie.has(7, 1)) == ([False, False], True)
    assert next_mark(store) > mark
    assert [operation.verb for operation in site.disk.trace[-2:]] == [Verb.WRITE, Verb.SYNC]


def test_j25_an_add_waits_for_its_sync_unless_it_was_deferred() -> None:
    site, _, bookie = opened()
    counts: list[int] = []
    for entry_id, verb in enumerate([bookie.add, bookie.defer, bookie.recover, bookie.defer, bookie.add]):
        done = syncs(site)
        verb(WRITER.entry(entry_id), WRITER.key)
        counts.append(min(syncs(site) - done, 1))
    assert counts == [1, 0, 1, 0, 1]


@pytest.mark.parametrize("forced", [True, False], ids=["forced", "not forced"])
def test_j27_a_deferred_ledger_that_was_never_closed_is_recovered_up_to_what_was_forced(forced: bool) -> None:
    site, _, bookie = opened()
    sent = [WRITER.entry(entry_id, confirmed=-1) for entry_id in range(10)]
    for data in sent:
        bookie.defer(data, WRITER.key)
    if forced:
        bookie.force(7)
        bookie.set_explicit_lac(7, WRITER.packet(9), WRITER.key)
    bookie = site.after_power_cut().bookie
    last = bookie.fence(7, WRITER.key)
    if forced:
        assert (last, bookie.last_add_confirmed(7)) == (sent[9], 9)
        assert [bookie.read(7, entry_id) for entry_id in range(10)] == sent
    else:
        assert (last, bookie.last_add_confirmed(7)) == (None, -1)


@pytest.mark.parametrize("digest_type", DigestType)
def test_j29_an_explicit_confirmation_is_replayed_and_its_packet_verifies(digest_type: DigestType) -> None:
    site, _, bookie = opened()
    writer = AddingClient(digest_type=digest_type)
    add(bookie, writer, *range(10))
    bookie.set_explicit_lac(7, writer.packet(8), writer.key)
    for _ in range(2):
        bookie = site.after_kill().bookie
        packet = bookie.explicit_lac(7)
        assert packet is not None
        assert entry_format.decode_lac(packet, writer.digester) == 8
    site.checkpoint(site.after_kill())
    bookie = site.after_power_cut().bookie
    assert bookie.explicit_lac(7) == writer.packet(8)


# ── D: the ledger storage ────────────────────────────────────────────────────────────────────────────────


def test_d45_every_question_about_an_unknown_ledger_raises_no_such_ledger() -> None:
    _, store, bookie = opened()
    questions: list[Callable[[], object]] = [
        lambda: bookie.is_fenced(3),
        lambda: bookie.read(3, 0),
        lambda: bookie.read_last(3),
        lambda: bookie.last_add_confirmed(3),
        lambda: bookie.delete(3),
    ]
    for question in questions:
        with pytest.raises(NoSuchLedger):
            question()
    assert not store.ledger(3).exists
    assert store.ledgers() == []


def test_d45_another_master_key_is_refused_and_the_same_one_is_not() -> None:
    site, store, bookie = opened()
    for _ in range(2):
        add(bookie, WRITER, 0)
        with pytest.raises(Unauthorized):
            bookie.add(WRITER.entry(1), WRONG)
        site.checkpoint(store)
        store = site.after_power_cut()
        bookie = store.bookie
    assert bookie.entry_ids(7) == [range(1)]


def test_d45_a_ledger_is_fenced_once_read_before_and_after_a_flush_and_gone_when_it_is_deleted() -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 3)
    assert not bookie.is_fenced(7)
    assert bookie.fence(7, WRITER.key) == WRITER.entry(3)
    done = len(site.disk.trace)
    assert bookie.fence(7, WRITER.key) == WRITER.entry(3)
    assert len(site.disk.trace) == done
    for _ in range(2):
        assert (bookie.is_fenced(7), bookie.read(7, 3)) == (True, WRITER.entry(3))
        assert (bookie.read_last(7), bookie.last_add_confirmed(7)) == (WRITER.entry(3), 2)
        with pytest.raises(NoSuchEntry):
            bookie.read(7, 1)
        site.checkpoint(store)
    bookie.delete(7)
    for _ in range(2):
        for question in (bookie.is_fenced, bookie.read_last, bookie.last_add_confirmed, bookie.delete):
            with pytest.raises(NoSuchLedger):
                question(7)
        assert store.ledgers() == []
        site.checkpoint(store)
        store = site.after_power_cut()
        bookie = store.bookie


def test_d46_the_new_location_of_an_entry_replaces_the_old_one() -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1, 2)
    site.checkpoint(store)
    index = StoreInternals(store).index
    old = index.find(7, 1)
    assert old is not None
    bookie.add(WRITER.entry(1, b"rewritten"), WRITER.key)
    site.checkpoint(store)
    new = index.find(7, 1)
    assert new not in (None, old)
    # As a compaction would do it, here with the location of the first copy.
    assert [bookie.read(7, 1) for _ in range(3)] == [WRITER.entry(1, b"rewritten")] * 3
    with index.change() as change:
        change.put(7, [1], [old])
        change.commit(None)
    StoreInternals(store).forget_places(7)
    for _ in range(2):
        assert [bookie.read(7, entry_id) for entry_id in range(3)] == [WRITER.entry(one) for one in range(3)]
        bookie = site.after_power_cut().bookie


@pytest.mark.parametrize("checkpoints", ["neither", "between", "behind", "both"])
def test_d49_a_recreated_ledger_has_its_own_entries_and_none_of_the_deleted_one(checkpoints: str) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0, 1, 2)
    if checkpoints in ("between", "both"):
        site.checkpoint(store)
    bookie.delete(7)
    another = AddingClient(password=b"another")
    bookie.add(another.entry(1, b"of another life"), another.key)
    if checkpoints in ("behind", "both"):
        site.checkpoint(store)
    reopenings: list[Callable[[], Store]] = [
        lambda: store,
        site.after_power_cut,
        lambda: with_rebuilt_index(site),
    ]
    for reopen in reopenings:
        bookie = reopen().bookie
        assert bookie.entry_ids(7) == [range(1, 2)]
        assert bookie.read(7, 1) == another.entry(1, b"of another life")
        for entry_id in (0, 2):
            with pytest.raises(NoSuchEntry):
                bookie.read(7, entry_id)


def test_d50_in_limbo_only_present_entries_are_reported_also_after_a_restart() -> None:
    site, _, bookie = opened()
    add(bookie, WRITER, 0, 2)
    bookie.enter_limbo(7)
    for _ in range(2):
        assert (bookie.read(7, 0), bookie.has(7, 2)) == (WRITER.entry(0), True)
        for question in (lambda: bookie.read(7, 1), lambda: bookie.has(7, 1)):  # noqa: B023
            with pytest.raises(AnswerUnknown):
                question()
        bookie = site.after_power_cut().bookie
    bookie.leave_limbo(7)
    for _ in range(2):
        with pytest.raises(NoSuchEntry):
            bookie.read(7, 1)
        assert not bookie.has(7, 1)
        bookie = site.after_power_cut().bookie


def test_d50_in_limbo_a_fence_is_reported_but_not_its_absence() -> None:
    site, _, bookie = opened()
    add(bookie, WRITER, 0)
    bookie.enter_limbo(7)
    with pytest.raises(AnswerUnknown):
        bookie.is_fenced(7)
    bookie.fence(7, WRITER.key)
    assert bookie.is_fenced(7)
    assert site.after_power_cut().bookie.is_fenced(7)


@pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpointed", "in the journal"])
def test_d55_a_delete_keeps_the_neighbouring_ledgers_and_later_entries(
    checkpoints: bool,
) -> None:
    site, store, bookie = opened()
    around = [AddingClient(ledger_id) for ledger_id in (6, 8, (7 << 32) + 7, 0)]
    for writer in (*around, WRITER):
        add(bookie, writer, *range(5))
    if checkpoints:
        site.checkpoint(store)
    bookie.delete(7)
    add(bookie, WRITER, 9)
    for end in ("at once", "checkpoint", "power cut", "index lost"):
        if end == "checkpoint":
            site.checkpoint(store)
        elif end == "power cut":
            store = site.after_power_cut()
        elif end == "index lost":
            store = with_rebuilt_index(site)
        bookie = store.bookie
        assert bookie.entry_ids(7) == [range(9, 10)]
        assert store.ledgers() == [0, 6, 7, 8, (7 << 32) + 7]
        assert [bookie.entry_ids(writer.ledger_id) for writer in around] == [[range(5)]] * 4


# ── R: the index made again ──────────────────────────────────────────────────────────────────────────────


def test_r75_after_a_rebuild_of_the_index_everything_is_unchanged() -> None:
    site, store, bookie = opened()
    writers = [AddingClient(number, list(DigestType)[number % 4], b"%d" % number) for number in range(8)]
    for writer in writers:
        add(bookie, writer, 0, 1, 5)
    for writer in writers[::2]:
        bookie.fence(writer.ledger_id, writer.key)
        bookie.set_explicit_lac(writer.ledger_id, writer.packet(3), writer.key)
    site.checkpoint(store)
    for _ in range(2):
        store = with_rebuilt_index(site)
        bookie = store.bookie
        assert store.opened.findings == ()
        for writer in writers:
            one = writer.ledger_id
            assert [bookie.read(one, entry_id) for entry_id in (0, 1, 5)] == [
                writer.entry(entry_id) for entry_id in (0, 1, 5)
            ]
            assert (bookie.entry_ids(one), bookie.read_last(one)) == (
                [range(2), range(5, 6)],
                writer.entry(5),
            )
            assert bookie.is_fenced(one) is (one % 2 == 0)
            assert bookie.explicit_lac(one) == (None if one % 2 else writer.packet(3))
            with pytest.raises(Unauthorized):
                bookie.recover(writer.entry(6), WRONG)
        store.close()


def as_a_bookie_leaves_it(site: Site) -> None:
    """Remove our own fields from logs and mark, and remove index and rows."""
    site.disk.kill()
    for log in (f"{LEDGERS}/{name}" for name in site.names(LEDGERS, ".log")):
        data = site.bytes_of(log)
        plain = data[:ORIGIN_START].ljust(entrylog_format.HEADER_SIZE, b"\0")
        site.put(log, plain + data[entrylog_format.HEADER_SIZE :])
    site.put(f"{LEDGERS}/lastMark", site.bytes_of(f"{LEDGERS}/lastMark")[:16])
    for name in ("index", "ledgers.rows"):
        site.remove(f"{LEDGERS}/{name}")
    layout = Layout(site.disk.root())
    assert rebuild_index(layout, FileIndexPlace(layout.ledgers)).was_imported


def test_r76_a_rebuild_finds_fences_in_logs_and_journals_and_ledgers_without_a_key_are_unproven() -> None:
    site, store, bookie = opened()
    fenced, free, unproven = AddingClient(1), AddingClient(2), AddingClient(3)
    add(bookie, unproven, 0)
    site.checkpoint(store)
    store = site.after_kill()
    for writer in (fenced, free):
        add(store.bookie, writer, 0)
    store.bookie.fence(fenced.ledger_id, fenced.key)
    site.checkpoint(store)
    assert site.names(JOURNAL, ".txn") == ["2.txn"]  # the journal with the third ledger's key was removed
    as_a_bookie_leaves_it(site)
    store = site.open()
    bookie = store.bookie
    assert store.ledgers() == [1, 2, 3]
    for writer in (fenced, free, unproven):
        assert bookie.read(writer.ledger_id, 0) == writer.entry(0)
    assert [bookie.is_fenced(number) for number in (1, 2, 3)] == [True, False, False]
    with pytest.raises(LedgerFenced):
        add(bookie, fenced, 1)
    with pytest.raises(Unauthorized):
        bookie.add(free.entry(1), WRONG)
    add(bookie, free, 1)
    with pytest.raises(LedgerUnproven):
        add(bookie, unproven, 1)
    bookie.recover(unproven.entry(1), unproven.key)


# ── K: cookies and full disks ────────────────────────────────────────────────────────────────────────────

DIRECTORIES = pytest.mark.parametrize("directory", [JOURNAL, LEDGERS])


@DIRECTORIES
@pytest.mark.parametrize("what", ["its cookie is gone", "all is gone", "another store's cookie"])
def test_k78_a_directory_that_is_not_this_store_s_is_refused_and_nothing_is_changed(
    directory: str, what: str
) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0)
    store.close()
    if what == "another store's cookie":
        cookie = site.bytes_of(f"{directory}/VERSION").replace(b"5" * 32, b"6" * 32)
        site.put(f"{directory}/VERSION", cookie)
    else:
        for name in ["VERSION"] if "cookie" in what else site.names(directory):
            if name != "lastMark":
                site.remove(f"{directory}/{name}")
    before = site.disk.image()
    with pytest.raises(NotAStore):
        site.open()
    assert site.disk.image() == before


@DIRECTORIES
def test_k78_the_path_of_a_store_is_not_compared(directory: str) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0)
    store.close()
    cookie = site.bytes_of(f"{directory}/VERSION").replace(b"ledgerstore:0", b"elsewhere:3181")
    site.put(f"{directory}/VERSION", cookie.replace(b"1\\tledgers", b"1\\t/data/elsewhere"))
    assert site.open().bookie.read(7, 0) == WRITER.entry(0)


def test_k79_on_a_full_disk_adds_are_refused_reads_go_on_and_adds_resume_by_themselves() -> None:
    site, _, bookie = opened()
    add(bookie, WRITER, 0)
    full = Refused(When(verb=Verb.ZERO_FILL, lasting=Lasting.UNTIL_MENDED), errno.ENOSPC)
    site.disk.plant(full)
    taken = 1
    for _ in range(1000):
        try:
            add(bookie, WRITER, taken)
        except DiskFull:
            break
        taken += 1
    refused: list[Callable[[], object]] = [
        lambda: add(bookie, WRITER, taken),
        lambda: bookie.recover(WRITER.entry(taken), WRITER.key),
        lambda: bookie.fence(7, WRITER.key),
    ]
    for verb in refused:
        with pytest.raises(DiskFull):
            verb()
    assert (bookie.entry_ids(7), bookie.read(7, 0)) == ([range(taken)], WRITER.entry(0))
    assert not bookie.is_fenced(7)
    site.disk.mend()
    add(bookie, WRITER, taken)
    assert site.after_power_cut().bookie.entry_ids(7) == [range(taken + 1)]


# ── F: fencing ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_f80_a_fenced_ledger_stays_fenced_over_restarts(restarts: int) -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, *range(10))
    assert bookie.fence(7, WRITER.key) == WRITER.entry(9)
    for restart in range(restarts):
        if restart % 2:
            store.close()
        store = site.after_power_cut()
    with pytest.raises(LedgerFenced):
        add(store.bookie, WRITER, 10)
    assert store.bookie.entry_ids(7) == [range(10)]


def test_f80_with_a_wrong_password_nothing_is_fenced() -> None:
    site, _, bookie = opened()
    add(bookie, WRITER, 0)
    with pytest.raises(Unauthorized):
        bookie.fence(7, WRONG)
    bookie = site.after_power_cut().bookie
    assert not bookie.is_fenced(7)
    add(bookie, WRITER, 1)


def test_f80_a_recovery_copies_its_entries_to_a_fenced_ledger() -> None:
    site, _, bookie = opened()
    add(bookie, WRITER, 0, 1)
    bookie.fence(7, WRITER.key)
    for entry_id in (2, 3):
        bookie.recover(WRITER.entry(entry_id), WRITER.key)
    bookie = site.after_power_cut().bookie
    assert bookie.entry_ids(7) == [range(4)]
    with pytest.raises(LedgerFenced):
        add(bookie, WRITER, 4)


def test_f80_an_add_after_fence_and_delete_creates_a_new_ledger() -> None:
    site, _, bookie = opened()
    add(bookie, WRITER, 0)
    bookie.fence(7, WRITER.key)
    bookie.delete(7)
    add(bookie, WRITER, 1)
    bookie = site.after_power_cut().bookie
    assert (bookie.entry_ids(7), bookie.is_fenced(7)) == ([range(1, 2)], False)


def test_f80_a_fence_whose_journal_fails_is_not_answered() -> None:
    site, store, bookie = opened()
    add(bookie, WRITER, 0)
    site.disk.plant(FailedSync(When(verb=Verb.SYNC, name="*.txn*")))
    with pytest.raises(StoreFailed):
        bookie.fence(7, WRITER.key)
    assert not store.ledger(7).is_fenced
