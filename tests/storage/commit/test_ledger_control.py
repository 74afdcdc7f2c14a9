"""What is said of ledgers in a running store, and over crashes: fences, confirmations, deletes.

Whatever was answered holds at every operation behind it; what was not answered is there whole or not at all.
"""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from bookie_clients import AddingClient
from sampling import every
from stepped_store import JOURNAL, LEDGERS, SMALL, Site, payloads
from store_internals import EngineCall, StoreInternals, confirm

from recovery.crashlab import (
    FailedSync,
    KeepAll,
    Lasting,
    LoseAll,
    RandomFate,
    Refused,
    ShortWrite,
    Verb,
    When,
)
from storage.entry import format as entry_format
from storage.entry.digest import master_key
from storage.entry.model import DigestType, Entry
from storage.errors import (
    CorruptionError,
    DiskFull,
    EntryUnreadable,
    LedgerFenced,
    LedgerUnproven,
    NoSuchEntry,
    NoSuchLedger,
    StoreFailed,
    Unauthorized,
)
from storage.index.location_cache import LOOK_UPS
from storage.journal import format as journal_format
from storage.memtable.table import Memtable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.crashlab import Fate, Fault, Operation
    from storage.config import StoreConfig
    from storage.entry.ledger_record import LedgerRecord, Tombstone
    from storage.ledger import Ledger
    from storage.store import Store

KIB = 1 << 10
OLD, NEW = b"old", b"new"
"""The passwords of a ledger, and of the one that has its id when it was deleted."""

ROLLING = replace(SMALL, journal_size=160 * KIB, memtable_size_max=4 << 20)
CHECKPOINT = "ledgerstore-checkpoint"
FOREVER = Lasting.UNTIL_MENDED
JOURNAL_SYNC = When(verb=Verb.SYNC, name="*.txn*")


def opened(config: StoreConfig = SMALL) -> tuple[Site, Store]:
    site = Site(config)
    return site, site.open()


def twin_of(site: Site) -> Site:
    """Another machine with the same disk; the first one goes on."""
    return Site(site.config, site.disk.copy())


# ── moments ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Moment:
    """A disk before an operation, with the number of deeds that were answered by then."""

    site: Site
    answered: int

    def recoveries(self) -> Iterator[Site]:
        """What a kill and several power cuts leave of it."""
        fates: list[Fate] = [LoseAll(), KeepAll(), RandomFate(1), RandomFate(2)]
        for fate in fates:
            site = twin_of(self.site)
            site.disk.power_cut(fate)
            yield site
        site = twin_of(self.site)
        site.disk.kill()
        yield site


def moments(site: Site, *deeds: Callable[[], object]) -> list[Moment]:
    """The disk before each operation of these deeds, and behind the last."""
    found: list[Moment] = []
    answered = 0

    def look(_: Operation) -> None:
        found.append(Moment(twin_of(site), answered))

    site.disk.watch(look)
    for deed in deeds:
        deed()
        answered += 1
    found.append(Moment(twin_of(site), answered))
    return found


def reopenings(site: Site) -> Iterator[Store]:
    """The store when it is opened, when it was closed and opened again, and without its index."""
    store = site.open()
    yield store
    store.close()
    store = site.open()
    yield store
    store.close()
    if "index" in site.names(LEDGERS):
        site.remove(f"{LEDGERS}/index")
        store = site.open()
        yield store


# ── fences ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fence_waits_for_adds_before_it_and_refuses_those_after_it() -> None:
    site, store = opened()
    ledger = store.ledger(7)
    ledger.append(b"first")
    waiting = [ledger.submit(b"second"), ledger.submit(b"third")]
    refused: list[str] = []

    def come_late(operation: Operation) -> None:
        if operation.verb in (Verb.WRITE, Verb.SYNC) and ".txn" in operation.path:
            with pytest.raises(LedgerFenced):
                ledger.submit(b"late")
            with ThreadPoolExecutor(1) as pool, pytest.raises(LedgerFenced):
                pool.submit(ledger.append, b"late").result(10)
            refused.append(operation.verb)

    site.disk.watch(come_late)
    assert ledger.fence() == 2
    assert [future.result(0) for future in waiting] == [1, 2]
    assert refused == [Verb.WRITE, Verb.SYNC]
    assert payloads(store, 7) == [b"first", b"second", b"third"]
    assert payloads(site.after_power_cut(), 7) == [b"first", b"second", b"third"]


def test_a_fence_is_written_after_the_entries_that_it_waited_for() -> None:
    site, store = opened()
    store.ledger(7).submit(b"in the same group")
    store.ledger(7).fence()
    data = site.bytes_of(f"{JOURNAL}/1.txn")
    assert 0 < data.index(b"in the same group") < data.index(journal_format.encode_fence(7))


def led_by_another(site: Site, store: Store, deed: Callable[[], object]) -> threading.Thread:
    """A thread whose deed comes while the next group is being written, and waits for the turn behind it."""
    thread = threading.Thread(target=deed)

    def begin(operation: Operation) -> None:
        if operation.verb is Verb.WRITE and thread.ident is None:
            thread.start()
            while not StoreInternals(store).waiting_threads:
                thread.join(0.001)
                assert thread.is_alive()

    site.disk.watch(begin)
    return thread


def test_a_fence_waits_for_the_turn_under_way() -> None:
    site, store = opened()
    ledger, answers = store.ledger(7), list[int | None]()
    store.ledger(8).append(b"so that there is a journal")
    thread = led_by_another(site, store, lambda: answers.append(ledger.fence()))
    assert ledger.append(b"under way") == 0
    thread.join(60)
    assert answers == [0]
    with pytest.raises(LedgerFenced):
        ledger.append(b"late")


def test_a_reader_that_sees_a_fence_sees_all_entries_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _, store = opened()
    ledger = store.ledger(7)
    seen: list[int | None] = []
    settle = StoreInternals(store).call(EngineCall.APPLY_JOURNALED)

    def watched(
        ledger_id: int, revise: Callable[[LedgerRecord], LedgerRecord], table: Memtable
    ) -> LedgerRecord:
        row = settle(ledger_id, revise, table)
        if ledger.is_fenced:
            seen.append(ledger.last_entry_id)
        return row  # type: ignore[no-any-return]

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.APPLY_JOURNALED), watched)
    ledger.submit(b"one")
    ledger.submit(b"two")
    ledger.fence()
    assert seen == [1]


@pytest.mark.parametrize("said", ["fence", "last add confirmed"])
def test_a_repeated_fence_or_confirmation_is_not_written_again(said: str) -> None:
    site, store = opened()
    ledger = store.ledger(7)

    def say() -> None:
        if said == "fence":
            ledger.fence()
        else:
            confirm(ledger, 5)

    say()
    done = len(site.disk.trace)
    say()
    assert len(site.disk.trace) == done


def test_two_fences_at_once_write_one_record() -> None:
    site, store = opened()
    ledger, answers = store.ledger(7), list[int | None]()
    ledger.append(b"one")
    thread = led_by_another(site, store, lambda: answers.append(ledger.fence()))
    assert ledger.fence() == 0
    thread.join(60)
    assert answers == [0]
    assert site.bytes_of(f"{JOURNAL}/1.txn").count(journal_format.encode_fence(7)) == 1


def test_a_wrong_password_fences_nothing() -> None:
    site, store = opened()
    store.ledger(7, password=OLD).append(b"one")
    deeds: list[Callable[[Ledger], object]] = [
        lambda ledger: ledger.fence(),
        lambda ledger: ledger.set_explicit_lac(0),
        lambda ledger: ledger.delete(),
    ]
    for _ in range(2):
        for deed in deeds:
            with pytest.raises(Unauthorized):
                deed(store.ledger(7, password=NEW))
        assert (store.ledger(7).is_fenced, store.ledger(7).explicit_lac, store.ledgers()) == (False, -1, [7])
        store = site.after_power_cut()
    assert store.ledger(7, password=OLD).append(b"two") == 1


@pytest.mark.sampled
def test_a_fence_of_a_ledger_without_entries_holds_at_every_operation_after_its_answer() -> None:
    site, store = opened()
    store.ledger(8).append(b"one")
    found = moments(
        site,
        lambda: store.ledger(9, password=OLD).fence(),
        lambda: store.ledger(8).append(b"two"),
        lambda: site.checkpoint(store),
        lambda: store.ledger(8).append(b"three"),
        lambda: site.checkpoint(store),
        store.close,
    )
    assert len(found) > 30
    for moment in every(27, found):
        for after in moment.recoveries():
            for recovered in reopenings(after):
                ledger = recovered.ledger(9, password=OLD)
                if moment.answered or ledger.is_fenced:
                    assert ledger.is_fenced
                    assert 9 in recovered.ledgers()
                    with pytest.raises(LedgerFenced):
                        ledger.append(b"refused")
                    with pytest.raises(Unauthorized):
                        recovered.bookie.recover(AddingClient(9).entry(0), master_key(NEW))


@pytest.mark.sampled
def test_a_confirmation_holds_at_every_operation_after_its_answer() -> None:
    site, store = opened()
    ledger = store.ledger(9, password=OLD)
    numbers = [3, 5, 11]
    found = moments(
        site,
        lambda: confirm(ledger, 3),
        lambda: confirm(ledger, 5),
        lambda: site.checkpoint(store),
        lambda: confirm(ledger, 11),
        lambda: site.checkpoint(store),
        store.close,
    )
    at_least = [-1, 3, 5, 5, 11, 11, 11]
    for moment in every(27, found):
        for after in moment.recoveries():
            for recovered in reopenings(after):
                said = recovered.ledger(9, password=OLD).explicit_lac
                assert said in [-1, *numbers]
                assert said >= at_least[moment.answered]
                packet = recovered.bookie.explicit_lac(9) if said >= 0 else b""
                assert packet in (b"", AddingClient(9, password=OLD).packet(said))


@pytest.mark.parametrize("said", ["fence", "last add confirmed"])
@pytest.mark.parametrize("fault", [FailedSync(JOURNAL_SYNC, seed=1), Refused(JOURNAL_SYNC)])
def test_a_fence_or_confirmation_in_a_group_that_failed_is_not_answered(fault: Fault, said: str) -> None:
    site, store = opened()
    ledger = store.ledger(7)
    ledger.append(b"one")
    site.disk.plant(fault)
    with pytest.raises(StoreFailed):
        ledger.fence() if said == "fence" else confirm(ledger, 5)
    assert (ledger.is_fenced, ledger.explicit_lac) == (False, -1)
    with pytest.raises(StoreFailed):
        ledger.fence()
    for after in (twin_of(site).after_power_cut(), twin_of(site).after_kill()):
        assert payloads(after, 7) == [b"one"]
        after.ledger(7).fence()


@pytest.fixture
def full() -> tuple[Site, Store]:
    """A store whose next group finds no space."""
    site, store = opened(replace(SMALL, memtable_size_max=64 << 20))
    store.ledger(7).append(b"one")
    site.disk.plant(Refused(When(verb=Verb.ZERO_FILL, lasting=FOREVER), errno.ENOSPC))
    while True:
        try:
            store.ledger(8).append(b"the smallest group")
        except DiskFull:
            return site, store


def test_a_fence_that_found_no_space_leaves_the_ledger_open(full: tuple[Site, Store]) -> None:
    site, store = full
    ledger = store.ledger(7)
    with pytest.raises(DiskFull):
        ledger.fence()
    assert not ledger.is_fenced
    site.disk.mend()
    assert ledger.append(b"two") == 1
    ledger.fence()
    assert site.after_power_cut().ledger(7).is_fenced


def test_a_confirmation_that_found_no_space_was_never_said(full: tuple[Site, Store]) -> None:
    site, store = full
    with pytest.raises(DiskFull):
        confirm(store.ledger(7), 5)
    assert store.ledger(7).explicit_lac == -1
    site.disk.mend()
    confirm(store.ledger(7), 3)
    assert site.after_power_cut().ledger(7).explicit_lac == 3


def test_a_caller_that_waited_for_a_fence_that_found_no_space_fences_the_ledger(
    full: tuple[Site, Store],
) -> None:
    site, store = full
    ledger, answers = store.ledger(7), list[int | None]()
    thread = threading.Thread(target=lambda: answers.append(ledger.fence()))

    def begin(operation: Operation) -> None:
        if operation.verb is Verb.ZERO_FILL and thread.ident is None:
            thread.start()
            while not StoreInternals(store).waiting_threads:
                thread.join(0.001)

    site.disk.watch(begin)
    site.disk.mend()
    site.disk.plant(Refused(When(verb=Verb.ZERO_FILL), errno.ENOSPC))
    with pytest.raises(DiskFull):
        ledger.fence()
    thread.join(60)
    assert (answers, ledger.is_fenced) == ([0], True)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_in_each_journal_the_key_of_a_ledger_comes_before_its_records() -> None:
    site, store = opened(ROLLING)
    said: dict[int, bytes] = {}
    for number in range(20, 44):
        ledger = store.ledger(number, password=OLD)
        if number % 2:
            ledger.fence()
            said[number] = journal_format.encode_fence(number)
        else:
            confirm(ledger, number)
            packet = AddingClient(number, password=OLD).packet(number)
            said[number] = journal_format.encode_explicit_lac(number, packet)
        store.ledger(1).append(b"x" * (40 * KIB))
    journals = [site.bytes_of(f"{JOURNAL}/{name}") for name in site.names(JOURNAL, ".txn")]
    assert len(journals) > 3
    for number, record in said.items():
        key = journal_format.encode_ledger_key(number, master_key(OLD))
        (journal,) = [data for data in journals if record in data]
        assert 0 < journal.index(key) < journal.index(record)


def test_a_ledger_that_is_spoken_of_in_several_journals_has_its_key_in_each() -> None:
    site, store = opened(ROLLING)
    for number in range(10):
        confirm(store.ledger(9, password=OLD), number)
        store.ledger(1).append(b"x" * (50 * KIB))
    key = journal_format.encode_ledger_key(9, master_key(OLD))
    word = journal_format.encode_explicit_lac(9, b"")[4:20]
    journals = [site.bytes_of(f"{JOURNAL}/{name}") for name in site.names(JOURNAL, ".txn")]
    spoken = [data for data in journals if word in data]
    assert len(spoken) > 2
    assert all(data.count(key) == 1 and data.index(key) < data.index(word) for data in spoken)


def test_records_that_an_opening_writes_again_come_after_their_keys_too() -> None:
    site, store = opened()
    store.ledger(9, password=OLD).fence()
    store = site.after_kill()
    assert store.opened.records_carried == 1
    confirm(store.ledger(9, password=OLD), 5)
    data = site.bytes_of(f"{JOURNAL}/2.txn")
    key = journal_format.encode_ledger_key(9, master_key(OLD))
    assert 0 < data.index(key) < data.index(journal_format.encode_fence(9))
    assert data.count(key) == 1


def test_an_opening_writes_entries_again_although_the_last_one_cannot_be_read() -> None:
    site, store = opened()
    bookie, writer = store.bookie, AddingClient()
    bookie.add(writer.entry(9), writer.key)
    site.checkpoint(store)
    bookie.add(writer.entry(3), writer.key)
    site.disk.kill()
    site.flip(f"{LEDGERS}/0.log", site.bytes_of(f"{LEDGERS}/0.log").index(writer.entry(9)) + 40)
    bookie = site.open().bookie
    assert bookie.read(7, 3) == writer.entry(3)
    with pytest.raises(EntryUnreadable):
        bookie.read(7, 9)


def test_where_no_key_is_known_a_fence_is_written_without() -> None:
    site, store = opened()
    bare = {9: lambda row: replace(row, master_key=None, fenced=False, explicit_lac=b"\0" * 20)}
    StoreInternals(store).declare_rows(bare)
    with pytest.raises(LedgerUnproven):
        store.ledger(9).append(b"refused")
    store.ledger(9).fence()
    data = site.bytes_of(f"{JOURNAL}/1.txn")
    assert journal_format.encode_fence(9) in data
    assert journal_format.encode_ledger_key(9, b"")[4:20] not in data
    assert site.after_power_cut().ledger(9).is_fenced


def test_a_ledger_that_is_made_again_with_the_same_password_has_its_key_once_more() -> None:
    """The one that the journal has already is passed over with all that was deleted."""
    site, store = opened()
    store.ledger(1, password=OLD).append(b"deleted")
    store.ledger(1, password=OLD).delete()
    store.ledger(1, password=OLD).append(b"made again")
    site.disk.power_cut(LoseAll())
    again = site.open()
    assert again.ledger(1, password=OLD).append(b"and added to") == 1
    with pytest.raises(Unauthorized):
        again.ledger(1).append(b"by somebody else")


def test_a_ledger_that_is_made_again_has_its_own_key_in_a_journal_that_has_the_old_one() -> None:
    site, store = opened()
    for password in (OLD, NEW):
        store.ledger(7, password=password).append(b"one")
        if password == OLD:
            store.ledger(7, password=OLD).delete()
    data = site.bytes_of(f"{JOURNAL}/1.txn")
    keys = [data.index(journal_format.encode_ledger_key(7, master_key(one))) for one in (OLD, NEW)]
    assert 0 < keys[0] < keys[1]
    store = site.after_power_cut()
    for wrong in (OLD, b""):
        with pytest.raises(Unauthorized):
            store.ledger(7, password=wrong).append(b"refused")
    assert store.ledger(7, password=NEW).append(b"two") == 1


@pytest.mark.parametrize("later_key", [NEW, b""], ids=["another key", "the usual key"])
def test_the_key_of_an_add_that_found_no_space_does_not_count(later_key: bytes) -> None:
    site, store = opened(replace(SMALL, memtable_size_max=64 << 20))
    store.ledger(8).append(b"so that the next group needs another journal")
    site.disk.plant(Refused(When(verb=Verb.ZERO_FILL, lasting=FOREVER), errno.ENOSPC))
    with pytest.raises(DiskFull):
        store.ledger(7, DigestType.CRC32, OLD).append_many([b"x" * (60 * KIB)] * 60)
    site.disk.mend()
    assert store.ledgers() == [8]
    assert store.ledger(7, DigestType.CRC32, later_key).append(b"one") == 0
    for store in (site.after_power_cut(), site.after_kill()):
        with pytest.raises(Unauthorized):
            store.ledger(7, password=OLD).append(b"refused")
    assert store.ledger(7, password=later_key).append(b"two") == 1


# ── deletes ──────────────────────────────────────────────────────────────────────────────────────────────

PLACES = ["in the journal", "in the log", "in both", "frozen"]


def with_old_ledger(where: str, config: StoreConfig = SMALL) -> tuple[Site, Store]:
    """A store with ledger 7, which is to be deleted, and 8, which stays."""
    site, store = opened(config)
    old, other = store.ledger(7, DigestType.CRC32, OLD), store.ledger(8)
    old.append_many([b"old 0", b"old 1"])
    old.set_explicit_lac(0)
    other.append(b"other 0")
    if where in ("in the log", "in both"):
        site.checkpoint(store)
    if where == "in both":
        old.append(b"old 2")
    if where == "frozen":
        StoreInternals(store).freeze()
    return site, store


def new_ledger(store: Store) -> Ledger:
    return store.ledger(7, DigestType.MAC, NEW)


def assert_gone(store: Store) -> None:
    """Nothing of the old ledger is there; the other one is."""
    ledger = store.ledger(7)
    assert (store.ledgers(), ledger.exists, ledger.last_entry_id) == ([8], False, None)
    assert (ledger.is_fenced, ledger.explicit_lac, ledger.entry_ids()) == (False, -1, [])
    for entry_id in range(4):
        with pytest.raises(NoSuchLedger):
            ledger.read(entry_id)
    assert payloads(store, 8)[0] == b"other 0"


def assert_new(store: Store, *texts: bytes) -> None:
    """Another ledger has the id, with key and digest of its own."""
    ledger = store.ledger(7, password=NEW)
    assert list(ledger.payloads()) == list(texts)
    assert [ledger.read(number).payload for number in range(len(texts))] == list(texts)
    assert (ledger.digest_type, ledger.is_fenced, ledger.entry_ids()) == (
        DigestType.MAC,
        False,
        [range(len(texts))],
    )
    assert store.ledgers() == [7, 8]
    with pytest.raises(Unauthorized):
        store.ledger(7, password=OLD).append(b"refused")
    assert payloads(store, 8)[0] == b"other 0"


def shown(store: Store) -> list[bytes]:
    """The payloads of ledger 7, whoever it is now; and that everything about it agrees."""
    if 7 not in store.ledgers():
        assert_gone(store)
        return []
    if store.ledger(7).digest_type is DigestType.MAC:
        found = list(store.ledger(7, password=NEW).payloads())
        assert_new(store, *found)
        return found
    ledger = store.ledger(7, password=OLD)
    with pytest.raises(Unauthorized):
        store.ledger(7, password=NEW).append(b"refused")
    return list(ledger.payloads())


@pytest.mark.parametrize("where", PLACES)
def test_a_deleted_ledger_is_gone_at_once_and_its_id_is_free(where: str) -> None:
    site, store = with_old_ledger(where)
    store.ledger(7, password=OLD).fence()
    store.ledger(7, password=OLD).delete()
    assert_gone(store)
    with pytest.raises(NoSuchLedger):
        store.ledger(7, password=OLD).delete()
    ledger = new_ledger(store)
    assert [ledger.append(b"new 0"), ledger.append(b"new 1")] == [0, 1]
    assert ledger.read(1).length == len(b"new 0new 1")
    assert_new(store, b"new 0", b"new 1")
    site.workers.run()
    assert_new(store, b"new 0", b"new 1")


@pytest.mark.sampled
@pytest.mark.parametrize("where", PLACES)
def test_a_delete_is_whole_at_every_operation_and_holds_after_its_answer(where: str) -> None:
    site, store = with_old_ledger(where)
    old = payloads_with(store, OLD)
    found = moments(
        site,
        lambda: store.ledger(7, password=OLD).delete(),
        lambda: new_ledger(store).append(b"new 0"),
        lambda: site.checkpoint(store),
        lambda: new_ledger(store).append(b"new 1"),
        lambda: site.checkpoint(store),
        store.close,
    )
    none: list[bytes] = []
    one, both = [b"new 0"], [b"new 0", b"new 1"]
    allowed = [[old, none], [none, one], [one], [one, both], [both], [both], [both]]
    assert len(found) > 40
    for moment in every(27, found):
        for after in moment.recoveries():
            answers = [shown(recovered) for recovered in reopenings(after)]
            assert answers[0] in allowed[moment.answered]
            assert answers == answers[:1] * len(answers)


def payloads_with(store: Store, password: bytes) -> list[bytes]:
    return list(store.ledger(7, password=password).payloads())


def test_a_delete_waits_for_the_adds_before_it_and_they_are_answered() -> None:
    site, store = opened()
    futures = [store.ledger(7).submit(b"one"), store.ledger(7).submit(b"two")]
    store.ledger(8).append_many([b"other 0"])
    futures.append(store.ledger(7).submit(b"three"))
    store.ledger(7).delete()
    assert [future.result(0) for future in futures] == [0, 1, 2]
    assert_gone(store)
    assert_gone(site.after_power_cut())


def test_an_add_after_a_delete_waits_and_makes_another_ledger() -> None:
    site, store = with_old_ledger("in both")
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(new_ledger(store).append(b"new 0")))
    waits = threading.Event()

    def begin(operation: Operation) -> None:
        if "ledgers.rows" in operation.path and thread.ident is None:
            thread.start()
            assert waits.wait(60)
            assert StoreInternals(store).tail(7).is_held

    site.disk.watch(begin)
    with StoreInternals(store).looks_watched(waits.set):
        store.ledger(7, password=OLD).delete()
        thread.join(60)
    assert answers == [0]
    assert_new(store, b"new 0")
    assert_new(site.after_power_cut(), b"new 0")


def test_a_reader_beside_a_delete_finds_the_ledger_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, store = with_old_ledger("in both")
    seen: set[bool] = set()
    drop, forget = Memtable.drop, StoreInternals(store).call(EngineCall.FORGET_PLACES)

    def look() -> None:
        for entry_id in range(3):
            try:
                assert store.bookie.read(7, entry_id).endswith(b"old %d" % entry_id)
                seen.add(True)
            except KeyError:
                seen.add(False)

    def watched_drop(table: Memtable, ledger_id: int) -> None:
        look()
        drop(table, ledger_id)
        look()

    def watched_forget(ledger_ids: set[int]) -> None:
        look()
        forget(ledger_ids)
        look()

    monkeypatch.setattr(Memtable, "drop", watched_drop)
    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.FORGET_PLACES), watched_forget)
    store.ledger(7, password=OLD).delete()
    assert seen == {True, False}
    assert_gone(store)


@pytest.mark.parametrize("times", [2, 5])
def test_a_ledger_is_deleted_and_made_again_and_again(times: int) -> None:
    site, store = with_old_ledger("in the log")
    store.ledger(7, password=OLD).delete()
    for number in range(times):
        digest_type = list(DigestType)[number % 4]
        ledger = store.ledger(7, digest_type, b"%d" % number)
        assert ledger.append(b"life %d" % number) == 0
        if number % 2:
            site.checkpoint(store)
        for recovered in (store, twin_of(site).after_power_cut(), twin_of(site).after_kill()):
            again = recovered.ledger(7, password=b"%d" % number)
            assert (list(again.payloads()), again.digest_type) == ([b"life %d" % number], digest_type)
        ledger.delete()
    assert_gone(store)
    assert_gone(site.after_power_cut())


def test_a_delete_after_adds_that_found_no_space_is_refused_with_them(full: tuple[Site, Store]) -> None:
    site, store = full
    refused: list[DiskFull] = []

    def delete() -> None:
        try:
            store.ledger(7).delete()
        except DiskFull as error:
            refused.append(error)

    thread = threading.Thread(target=delete)

    def begin(operation: Operation) -> None:
        if operation.verb is Verb.ZERO_FILL and thread.ident is None:
            thread.start()
            while not StoreInternals(store).waiting_threads:
                thread.join(0.001)

    site.disk.watch(begin)
    with pytest.raises(DiskFull):
        store.ledger(7).append(b"refused")
    thread.join(60)
    assert len(refused) == 1
    for recovered in (store, twin_of(site).after_power_cut()):
        assert payloads(recovered, 7) == [b"one"]
    site.disk.mend()
    assert store.ledger(7).append(b"two") == 1
    store.ledger(7).delete()
    assert not store.ledger(7).exists


def test_an_empty_ledger_is_deleted_too() -> None:
    site, store = opened()
    store.ledger(8).append(b"other 0")
    store.ledger(7, password=OLD).fence()
    store.ledger(7, password=OLD).delete()
    assert_gone(store)
    assert_gone(site.after_power_cut())


def test_a_ledger_that_does_not_exist_cannot_be_deleted_and_nothing_is_written() -> None:
    site, store = opened()
    store.ledger(8).append(b"other 0")
    done = len(site.disk.trace)
    with pytest.raises(NoSuchLedger):
        store.ledger(7).delete()
    assert len(site.disk.trace) == done


# ── deletes during a checkpoint ──────────────────────────────────────────────────────────────────────────


def steps_of(site: Site, store: Store) -> Iterator[None]:
    """The checkpoint, one step at a time."""
    StoreInternals(store).request_checkpoint()
    hand = site.workers.by_name[CHECKPOINT]
    while hand.step():
        yield


def in_a_checkpoint(before: str, step: int) -> tuple[Site, Store]:
    """A store with a checkpoint that has done so many of its steps."""
    site, store = with_old_ledger(before)
    store.ledger(7, password=OLD).append(b"in the table")
    confirm(store.ledger(7, password=OLD), 2)
    store.ledger(8).append(b"in the table")
    for number, _ in enumerate(steps_of(site, store), 1):
        if number >= step:
            break
    return site, store


def count_of_steps(before: str) -> int:
    return sum(1 for _ in steps_of(*with_old_ledger(before)))


STEPS = range(12)


def test_the_steps_of_a_checkpoint_are_all_among_those_that_are_tried() -> None:
    assert STEPS.stop > max(count_of_steps(before) for before in PLACES) > 5


def without_index(site: Site) -> Store:
    twin = twin_of(site)
    twin.disk.kill()
    if "index" in twin.names(LEDGERS):
        twin.remove(f"{LEDGERS}/index")
    return twin.open()


def with_rotten_rows(site: Site) -> Store | None:
    """Where the last group of the rows has rotted, and nothing tells that from a write cut short."""
    twin = twin_of(site)
    twin.disk.kill()
    twin.flip(f"{LEDGERS}/ledgers.rows", len(twin.bytes_of(f"{LEDGERS}/ledgers.rows")) - 4096 + 20)
    try:
        return twin.open()
    except CorruptionError:
        return None


@pytest.mark.sampled(one_of=6)
@pytest.mark.parametrize("again", ["gone for good", "made again"])
@pytest.mark.parametrize("before", PLACES)
@pytest.mark.parametrize("step", STEPS)
def test_a_checkpoint_never_brings_a_ledger_back(step: int, before: str, again: str) -> None:
    site, store = in_a_checkpoint(before, step)
    store.ledger(7, password=OLD).delete()
    if again == "made again":
        new_ledger(store).append(b"new 0")

    def check(store: Store) -> None:
        if again == "made again":
            assert_new(store, b"new 0")
        else:
            assert_gone(store)

    def check_all() -> None:
        check(store)
        check(twin_of(site).after_power_cut())
        check(twin_of(site).after_kill())
        check(without_index(site))

    def check_without_rows() -> None:
        # The index has the tombstone too. What a ledger was made with anew was durable nowhere else.
        if again != "made again" and (store := with_rotten_rows(site)) is not None:
            check(store)
            checked.append(store)

    checked: list[Store] = []
    check_all()
    check_without_rows()
    site.workers.run()
    check_all()
    check_without_rows()
    assert checked or again == "made again"
    for _ in range(2):
        store.ledger(8).append(b"later")
        site.checkpoint(store)
        check_all()
    assert site.trailer().generation > 2
    store.close()
    check(site.open())


@pytest.mark.parametrize("step", STEPS)
def test_a_checkpoint_takes_no_step_back_when_a_ledger_goes_that_it_has_written(step: int) -> None:
    site, store = in_a_checkpoint("in the log", step)
    store.ledger(7, password=OLD).delete()
    site.workers.run()
    store = site.after_power_cut()
    assert payloads(store, 8) == [b"other 0", b"in the table"]


# ── tombstones ───────────────────────────────────────────────────────────────────────────────────────────


def tombstone_of(store: Store) -> Tombstone | None:
    return StoreInternals(store).row(7).tombstone


def tombstone_log(store: Store) -> object:
    tombstone = tombstone_of(store)
    assert tombstone is not None
    return tombstone.log


def test_a_tombstone_gets_its_log_position_at_the_first_checkpoint_that_freezes_after_the_delete() -> None:
    site, store = with_old_ledger("in the log")
    store.ledger(7, password=OLD).append(b"in the table")
    steps = steps_of(site, store)
    next(steps)
    store.ledger(7, password=OLD).delete()
    site.workers.run()
    # What was under way when the ledger went has written of it: nothing is known of the logs yet.
    assert site.trailer().generation == 2
    assert tombstone_log(store) is None
    end = StoreInternals(store).index_state.log_end
    new_ledger(store).append(b"new 0")
    site.checkpoint(store)
    assert tombstone_log(store) == end
    site.checkpoint(store)
    store.ledger(8).append(b"later")
    site.checkpoint(store)
    assert tombstone_log(store) == end
    assert_new(without_index(site), b"new 0")


@pytest.mark.parametrize("crash", ["killed", "cut", "closed"])
def test_a_tombstone_that_knows_no_logs_is_not_forgotten_by_an_opening(crash: str) -> None:
    site, store = with_old_ledger("in the log")
    store.ledger(7, password=OLD).delete()
    assert tombstone_log(store) is None
    if crash == "closed":
        store.close()
        store = site.open()
    else:
        store = site.after_kill() if crash == "killed" else site.after_power_cut()
        assert tombstone_log(store) is None
        site.checkpoint(store)
    assert tombstone_log(store) is not None
    new_ledger(store).append(b"new 0")
    site.checkpoint(store)
    assert_new(without_index(site), b"new 0")


# ── ledgers.rows on a bad disk ───────────────────────────────────────────────────────────────────────────

ROWS = "ledgers.rows*"
ROWS_VERBS = {
    "write": Verb.WRITE,
    "sync": Verb.SYNC,
    "create": Verb.CREATE,
    "rename": Verb.RENAME,
}


def with_rows_open() -> tuple[Site, Store]:
    """A store that has written its rows in this run: the next append goes behind them."""
    site, store = with_old_ledger("in both")
    assert "ledgers.rows" in site.names(LEDGERS)
    return site, store


def with_rows_closed() -> tuple[Site, Store]:
    """A store that has not: the next append rewrites the file."""
    site, _ = with_old_ledger("in both")
    return site, site.after_kill()


@pytest.mark.parametrize("verb", ROWS_VERBS.values(), ids=ROWS_VERBS)
def test_a_delete_without_space_for_a_new_file_of_rows_has_not_happened(verb: Verb) -> None:
    site, store = with_rows_closed()
    old = shown(store)
    site.disk.plant(Refused(When(verb=verb, name=ROWS, lasting=FOREVER), errno.ENOSPC))
    with pytest.raises(DiskFull):
        store.ledger(7, password=OLD).delete()
    assert shown(store) == old
    assert shown(twin_of(site).after_power_cut()) == old
    assert shown(twin_of(site).after_kill()) == old
    site.disk.mend()
    assert store.ledger(7, password=OLD).append(b"goes on") == len(old)
    store.ledger(7, password=OLD).delete()
    assert_gone(site.after_power_cut())


OPEN_ROWS_FAULTS: dict[str, Fault] = {
    "no space to write": Refused(When(verb=Verb.WRITE, name=ROWS, lasting=FOREVER), errno.ENOSPC),
    "space for a part": ShortWrite(When(verb=Verb.WRITE, name=ROWS, lasting=FOREVER)),
    "no space at the sync": Refused(When(verb=Verb.SYNC, name=ROWS, lasting=FOREVER), errno.ENOSPC),
    "errors": Refused(When(name=ROWS, lasting=FOREVER)),
    "a sync that forgets, and errors": FailedSync(When(verb=Verb.SYNC, name=ROWS, lasting=FOREVER), seed=1),
    "a name that is not durable": FailedSync(
        When(verb=Verb.SYNC_DIRECTORY, name="*/ledgers/current", lasting=FOREVER)
    ),
}


@pytest.mark.parametrize("what", OPEN_ROWS_FAULTS)
def test_a_delete_with_an_unknown_outcome_stops_the_store_and_the_next_opening_decides(what: str) -> None:
    site, store = with_rows_closed() if what == "a name that is not durable" else with_rows_open()
    old = shown(store)
    site.disk.plant(OPEN_ROWS_FAULTS[what])
    with pytest.raises(StoreFailed):
        store.ledger(7, password=OLD).delete()
    site.disk.mend()
    # Read as it was, and nothing more is promised.
    assert list(store.ledger(7, password=OLD).payloads()) == old
    with pytest.raises(StoreFailed):
        store.ledger(8).append(b"refused")
    with pytest.raises(StoreFailed):
        store.ledger(7, password=OLD).fence()
    for after in (twin_of(site), twin_of(site)):
        for fate in (LoseAll(), KeepAll()):
            after.disk.power_cut(fate)
            found = [shown(recovered) for recovered in reopenings(after)]
            assert found[0] in (old, [])
            assert found == found[:1] * len(found)


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.SYNC])
@pytest.mark.parametrize("start", [with_rows_open, with_rows_closed])
def test_a_write_of_rows_that_fails_once_is_repeated_in_a_new_file(
    start: Callable[[], tuple[Site, Store]], verb: Verb
) -> None:
    site, store = start()
    site.disk.plant(Refused(When(verb=verb, name=ROWS)))
    store.ledger(7, password=OLD).delete()
    assert any(operation.outcome == "EIO" for operation in site.disk.trace)
    new_ledger(store).append(b"new 0")
    assert_new(store, b"new 0")
    assert_new(site.after_power_cut(), b"new 0")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_delete_needs_no_index_and_an_opening_tells_the_index_of_it(error: int) -> None:
    site, store = with_old_ledger("in both")
    site.disk.plant(Refused(When(name="index*", lasting=FOREVER), error))
    store.ledger(7, password=OLD).delete()
    assert_gone(store)
    new_ledger(store).append(b"new 0")
    assert_new(store, b"new 0")
    site.checkpoint(store)
    assert list(new_ledger(store).payloads()) == [b"new 0"]
    site.disk.mend()
    site.disk.kill()
    for recovered in reopenings(site):
        assert_new(recovered, b"new 0")


def test_while_a_tombstone_is_synced_adds_to_other_ledgers_go_on() -> None:
    site, store = with_old_ledger("in both")
    answers: list[int] = []
    syncs: list[int] = []

    def add_beside(operation: Operation) -> None:
        if operation.verb is Verb.SYNC and "ledgers.rows" in operation.path:
            adding = threading.Thread(target=lambda: answers.append(store.ledger(8).append(b"beside")))
            adding.start()
            adding.join(10)
            syncs.append(len(answers))

    site.disk.watch(add_beside)
    store.ledger(7, password=OLD).delete()
    assert syncs == [1, 2]
    assert payloads(store, 8) == [b"other 0", b"beside", b"beside"]
    assert_gone(store)


def test_ledgers_that_are_deleted_at_the_same_moment_share_two_syncs() -> None:
    site, store = opened()
    store.ledger(8).append(b"other 0")
    for ledger_id in range(10, 15):
        store.ledger(ledger_id).append(b"old")
    store.ledger(10).delete()
    deleting = [threading.Thread(target=store.ledger(one).delete) for one in range(12, 15)]

    def begin(operation: Operation) -> None:
        if "ledgers.rows" in operation.path and deleting[0].ident is None:
            for thread in deleting:
                thread.start()
            while len(StoreInternals(store).waiting_deletes) < len(deleting):
                deleting[0].join(0.001)

    before = len(site.disk.trace)
    site.disk.watch(begin)
    store.ledger(11).delete()
    for thread in deleting:
        thread.join(10)
    rows = [one.verb for one in site.disk.trace[before:] if "ledgers.rows" in one.path]
    assert rows == [Verb.WRITE, Verb.SYNC] * 4
    assert store.ledgers() == [8]
    assert site.after_power_cut().ledgers() == [8]


@pytest.mark.parametrize("offset", [4, 45, 60, 4096 + 4, 4096 + 41])
def test_rot_in_what_a_delete_has_written_never_brings_the_ledger_back(offset: int) -> None:
    site, store = with_old_ledger("in both")
    store.ledger(7, password=OLD).delete()
    site.disk.kill()
    rows = f"{LEDGERS}/ledgers.rows"
    site.flip(rows, len(site.bytes_of(rows)) - 8192 + offset)
    if offset < 4096:
        with pytest.raises(CorruptionError, match="was durable"):
            site.open()
    else:
        assert_gone(site.open())


def test_limbo_that_comes_while_a_ledger_is_deleted_does_not_bring_it_back() -> None:
    site, store = with_old_ledger("in both")
    entering = threading.Thread(target=lambda: store.bookie.enter_limbo(7))

    def begin(operation: Operation) -> None:
        if operation.verb is Verb.SYNC and "ledgers.rows" in operation.path and entering.ident is None:
            entering.start()

    site.disk.watch(begin)
    store.ledger(7, password=OLD).delete()
    entering.join(10)
    for _ in range(2):
        assert store.ledgers() == [8]
        assert StoreInternals(store).row(7).in_limbo
        assert tombstone_of(store) is not None
        store = site.after_kill()


def test_entries_of_a_deleted_ledger_are_not_found_at_any_step_of_a_checkpoint() -> None:
    site, store = with_old_ledger("in the log")
    store.ledger(7, password=OLD).delete()
    new_ledger(store).append(b"new 0")
    for _ in steps_of(site, store):
        assert_new(store, b"new 0")
        with pytest.raises(NoSuchEntry):
            store.ledger(7).read(1)
    assert StoreInternals(store).index.count(7) == 1
    assert_new(store, b"new 0")


@pytest.mark.parametrize("end", ["a new ledger", "a power cut"])
def test_a_checkpoint_between_a_tombstone_and_the_end_of_its_delete_does_not_bring_the_ledger_back(
    end: str,
) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(9)
    ledger.append(b"one")
    ledger.delete()
    ledger.append(b"another")
    ledger.fence()
    # The tombstone is durable, and readers find the ledger still.
    StoreInternals(store).between_tombstone_and_answer(lambda: site.checkpoint(store))
    ledger.delete()
    assert not ledger.exists
    if end == "a new ledger":
        assert ledger.append(b"new") == 0
        assert payloads(site.after_power_cut(), 9) == [b"new"]
    else:
        assert site.after_power_cut().ledgers() == []


@pytest.mark.parametrize("step", STEPS)
def test_a_checkpoint_does_not_show_what_another_delete_has_hidden_meanwhile(step: int) -> None:
    site, store = with_old_ledger("in the log")
    store.ledger(7, password=OLD).delete()
    new_ledger(store).append_many([b"new 0", b"new 1"])
    for number, _ in enumerate(steps_of(site, store), 1):
        if number >= step:
            break
    store.ledger(7, password=NEW).delete()
    assert_gone(store)
    for _ in steps_of(site, store):
        assert_gone(store)
    assert_gone(store)
    assert_gone(twin_of(site).after_power_cut())
    site.checkpoint(store)
    assert StoreInternals(store).index.count(7) == 0
    assert_gone(store)


def test_places_that_readers_have_brought_into_memory_go_with_their_ledger() -> None:
    site, store = with_old_ledger("in the log")
    for _ in range(2 * LOOK_UPS):
        store.ledger(7, password=OLD).read(0)
    store.ledger(7, password=OLD).delete()
    assert_gone(store)
    new_ledger(store).append(b"new 0")
    site.checkpoint(store)
    assert_new(store, b"new 0")


def test_a_digest_type_that_cannot_be_written_down_is_not_used() -> None:
    site, store = with_rows_closed()
    site.disk.plant(Refused(When(name=ROWS, lasting=FOREVER), errno.ENOSPC))
    with pytest.raises(DiskFull):
        store.ledger(20, DigestType.MAC, NEW).append(b"refused")
    assert store.ledger(21).append(b"needs no row") == 0
    assert (store.ledgers(), store.ledger(20).exists) == ([7, 8, 21], False)
    site.disk.mend()
    assert store.ledger(20, DigestType.CRC32, OLD).append(b"another digest") == 0
    store = site.after_power_cut()
    assert store.ledger(20).digest_type is DigestType.CRC32
    assert list(store.ledger(20, password=OLD).payloads()) == [b"another digest"]


def test_a_digest_type_is_durable_before_its_first_entry_is() -> None:
    site, store = with_rows_closed()
    found = moments(site, lambda: store.ledger(20, DigestType.MAC, NEW).append(b"one"))
    for moment in every(27, found):
        for after in moment.recoveries():
            recovered = after.open()
            assert 20 not in recovered.ledgers() or recovered.ledger(20).digest_type is DigestType.MAC


def test_errors_of_the_rows_stop_an_add_that_needs_them_and_the_store() -> None:
    site, store = with_rows_closed()
    site.disk.plant(Refused(When(name=ROWS, lasting=FOREVER)))
    with pytest.raises(StoreFailed):
        store.ledger(20, DigestType.MAC, NEW).append(b"unknown")
    with pytest.raises(StoreFailed):
        store.ledger(8).append(b"refused")
    site.disk.mend()
    assert site.after_power_cut().ledgers() == [7, 8]


@pytest.mark.parametrize("start", [with_rows_open, with_rows_closed])
def test_a_checkpoint_waits_for_space_for_its_rows(start: Callable[[], tuple[Site, Store]]) -> None:
    site, store = start()
    mark = site.mark()
    store.ledger(30, password=OLD).fence()
    site.disk.plant(Refused(When(name=ROWS, lasting=FOREVER), errno.ENOSPC))
    site.checkpoint(store)
    assert site.mark() == mark
    assert StoreInternals(store).disk_full_error is not None
    assert store.ledger(8).append(b"goes on") == 1
    assert twin_of(site).after_power_cut().ledger(30).is_fenced
    site.disk.mend()
    site.workers.elapse()
    assert site.mark() > mark
    store = site.after_power_cut()
    assert store.ledger(30).is_fenced
    with pytest.raises(Unauthorized):
        store.ledger(30, password=NEW).fence()


@pytest.mark.parametrize("lasting", Lasting)
def test_errors_of_the_rows_in_a_checkpoint_are_tried_again_and_then_stop_the_store(lasting: Lasting) -> None:
    site, store = with_rows_open()
    mark = site.mark()
    store.ledger(30).fence()
    site.disk.plant(Refused(When(name=ROWS, lasting=lasting)))
    site.checkpoint(store)
    if lasting is Lasting.ONCE:
        assert site.mark() > mark
        assert store.ledger(8).append(b"goes on") == 1
    else:
        assert site.mark() == mark
        with pytest.raises(StoreFailed):
            store.ledger(8).append(b"refused")
    site.disk.mend()
    assert site.after_power_cut().ledger(30).is_fenced


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_name_of_the_rows_that_is_not_durable_stops_a_checkpoint_at_once(error: int) -> None:
    site, store = with_rows_closed()
    mark = site.mark()
    store.ledger(30).fence()
    # The first sync of the directory is that of a new log's name.
    where = When(verb=Verb.SYNC_DIRECTORY, name="*/ledgers/current", nth=2)
    site.disk.plant(FailedSync(where, error))
    site.checkpoint(store)
    assert site.mark() == mark
    with pytest.raises(StoreFailed) as caught:
        store.ledger(8).append(b"refused")
    assert isinstance(caught.value.__cause__, OSError)
    assert site.after_power_cut().ledger(30).is_fenced


# ── entries that are written before they are said to be a ledger's ───────────────────────────────────────


def test_the_head_of_an_entry_says_which_ledger_it_is_of_whatever_its_digest() -> None:
    # What this file relies on: a packet and an entry of each digest type differ in nothing but the digest.
    packets = {entry_format.encode_lac(7, 3, AddingClient(7, kind).digester)[:16] for kind in DigestType}
    heads = {
        entry_format.encode(Entry(7, 3, 2, 9, b""), AddingClient(7, kind).digester)[:32]
        for kind in DigestType
    }
    assert (len(packets), len(heads)) == (1, 1)
