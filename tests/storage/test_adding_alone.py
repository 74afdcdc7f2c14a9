"""An add that meets nobody else: the order of a turn, without one; and where it must not go alone."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped import SMALL, Site, payloads

from recovery.crashlab import Refused, Verb, When
from storage.entry import DigestType
from storage.errors import LedgerFenced, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.ledger import Ledger
    from storage.store import Store


class Turns:
    """Counts the turns of a store: who goes alone takes none."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        committer = store._committer
        stages = committer.stages

        def counted(load: object) -> object:
            self.count += 1
            return stages(load)  # type: ignore[arg-type]

        monkeypatch.setattr(committer, "stages", counted)


def test_who_meets_nobody_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    turns = Turns(store, monkeypatch)
    assert [ledger.append(b"1"), *ledger.append_many([b"2", b"3"]), store.ledger(1).append(b"4")] == [
        1,
        2,
        3,
        4,
    ]
    assert turns.count == 0
    assert payloads(store, 1) == payloads(site.after_power_cut(), 1) == [b"0", b"1", b"2", b"3", b"4"]


def test_what_is_answered_survives_a_power_cut_at_once() -> None:
    site = Site()
    ledger = site.open().ledger(1)
    for number in range(4):
        ledger.append(b"%d" % number)
        # Another machine with the same disk: this one goes on.
        cut = Site(disk=site.disk.copy())
        assert payloads(cut.after_power_cut(), 1) == [b"%d" % before for before in range(number + 1)]


def _submitted(ledger: Ledger) -> None:
    ledger.submit(b"waits")


def _of_another(ledger: Ledger) -> None:
    ledger._parts.adding.submit(2, ledger._access, b"waits")


@pytest.mark.parametrize("wait", [_submitted, _of_another])
def test_what_waits_already_is_written_first(
    wait: Callable[[Ledger], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"before")
    turns = Turns(store, monkeypatch)
    wait(ledger)
    ledger.append(b"behind")
    assert turns.count == 1
    found = site.after_power_cut()
    waited = [b"waits"] if wait is _submitted else []
    assert payloads(found, 1) == [b"before", *waited, b"behind"]
    assert found.ledgers() == ([1] if waited else [1, 2])


def has_room(store: Store) -> bool:
    """Whether the next small add certainly rolls no journal."""
    journal = store._parts.journals.active
    return journal is not None and journal.room > 40 << 10


def test_the_first_add_of_a_ledger_and_of_a_journal_takes_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    store = site.open()
    turns = Turns(store, monkeypatch)
    store.ledger(1).append(b"0")
    assert turns.count == 1
    store.ledger(2).append(b"0")
    assert turns.count == 2
    first = store._parts.journals.active
    while store._parts.journals.active is first or not has_room(store):
        store.ledger(1).append(bytes(30 << 10))
        site.crew.run()
    rolled = turns.count
    store.ledger(2).append(b"its key is not in this journal yet")
    assert turns.count == rolled + 1
    store.ledger(2).append(b"now it is")
    assert turns.count == rolled + 1


@pytest.mark.parametrize("digest_type", [one for one in DigestType if one is not DigestType.CRC32C])
def test_what_another_digest_protects_takes_a_turn(
    digest_type: DigestType, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1, digest=digest_type, password=b"password")
    ledger.append(b"0")
    turns = Turns(store, monkeypatch)
    assert (ledger.append(b"1"), list(ledger.append_many([b"2", b"3"]))) == (1, [2, 3])
    assert turns.count == 2
    again = site.after_power_cut().ledger(1, digest=digest_type, password=b"password")
    assert list(again.payloads()) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("size", [0, 1 << 10, (16 << 10) - 40, (16 << 10) - 39, 20 << 10])
def test_of_any_size_it_is_the_same(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(config=replace(SMALL, journal_size=4 << 20))
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    turns = Turns(store, monkeypatch)
    ledger.append(b"x" * size)
    assert turns.count == 0
    ledger.append(b"behind it")
    expected = [b"0", b"x" * size, b"behind it"]
    assert payloads(store, 1) == payloads(site.after_power_cut(), 1) == expected


def test_a_full_table_is_frozen_behind_the_add_that_fills_it() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    tables = store._parts.slot.tables
    while tables.frozen is None:
        assert tables.active.size < site.config.memtable_size_max
        ledger.append(bytes(20 << 10))
        tables = store._parts.slot.tables
    covered = tables.frozen.covers_until
    assert covered == store._parts.journals.durable_up_to
    site.crew.run()
    assert site.mark() == covered


def test_a_fenced_ledger_is_refused_to_who_has_added_alone() -> None:
    ledger = Site().open().ledger(1)
    ledger.append(b"0")
    ledger.append(b"1")
    ledger.fence()
    with pytest.raises(LedgerFenced):
        ledger.append(b"2")


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.SYNC])
def test_an_error_of_the_disk_is_told_and_nothing_is_written_behind_it(verb: Verb) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    site.disk.plant(Refused(When(verb=verb, name="*.txn.draft")))
    with pytest.raises(StoreFailed) as told:
        ledger.append(b"1")
    assert isinstance(told.value.__cause__, OSError)
    assert store._latch.failure is told.value.__cause__
    with pytest.raises(StoreFailed):
        store.ledger(2).append(b"0")
    assert payloads(store, 1) == [b"0"]


def test_who_comes_meanwhile_leads_the_next_turn() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    journal = store._parts.journals.active
    assert journal is not None
    at_sync, may_sync, sync = threading.Event(), threading.Event(), journal._file.sync

    def held() -> None:
        at_sync.set()
        assert may_sync.wait(10)
        sync()

    journal._file.sync = held  # type: ignore[method-assign]
    alone = threading.Thread(target=ledger.append, args=(b"1",), daemon=True)
    alone.start()
    assert at_sync.wait(10)
    followers = [threading.Thread(target=ledger.append, args=(b"later",), daemon=True) for _ in range(3)]
    for one in followers:
        one.start()
    deadline = time.monotonic() + 10
    while len(store._committer.turnstile.open.waiting) < len(followers):
        assert time.monotonic() < deadline
    before = store._parts.journals.groups
    may_sync.set()
    for one in (alone, *followers):
        one.join(10)
        assert not one.is_alive()
    assert store._parts.journals.groups == before + 2
    assert payloads(site.after_power_cut(), 1) == [b"0", b"1", b"later", b"later", b"later"]


def test_two_ctrl_c_as_it_ends_leave_the_others_a_way_through(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Site().open()
    ledger = store.ledger(1)
    ledger.append(b"0")
    turnstile = store._committer.turnstile
    end, strikes = turnstile.end_alone, iter([KeyboardInterrupt, KeyboardInterrupt])

    def struck() -> None:
        for strike in strikes:
            raise strike
        end()

    monkeypatch.setattr(turnstile, "end_alone", struck)
    with pytest.raises(KeyboardInterrupt):
        ledger.append(b"1")
    other = threading.Thread(target=ledger.append, args=(b"2",), daemon=True)
    other.start()
    other.join(10)
    assert payloads(store, 1) == [b"0", b"1", b"2"]


def test_a_ctrl_c_as_it_freezes_a_table_stops_the_store_as_it_would_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"0")

    def struck() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store._parts.slot, "freeze", struck)
    written = [b"0"]
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the add that fills the table
        while True:
            written.append(bytes(20 << 10))
            ledger.append(written[-1])
    monkeypatch.undo()
    with pytest.raises(StoreFailed) as told:
        ledger.append(b"behind it")
    assert isinstance(told.value.__cause__, KeyboardInterrupt)
    assert payloads(site.after_kill(), 1) == written


def test_what_a_turn_counts_too_much_is_not_in_its_group() -> None:
    site = Site()
    store = site.open()
    ledgers = [store.ledger(number) for number in (1, 2)]
    store._committer.turnstile.open.load.size += 100  # as of somebody who was interrupted on the way in
    store._parts.adding.append(ledgers[0]._tail(), ledgers[0]._access, [b"0"])
    store._committer.turnstile.open.load.size += 100
    futures = [ledger.submit(b"1") for ledger in ledgers]
    store._flush()
    assert [future.result(10) for future in futures] == [1, 0]
    again = site.after_power_cut()
    assert [payloads(again, number) for number in (1, 2)] == [[b"0", b"1"], [b"1"]]
