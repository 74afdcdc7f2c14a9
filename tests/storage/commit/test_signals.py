"""Signals whose handlers raise, or add themselves, while their thread is inside of an add."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from async_stores import in_time
from bookie_clients import AddingClient
from stepped_store import Site, payloads
from store_internals import EngineCall, StoreInternals

from storage.errors import ReentrantCall, Unauthorized
from storage.journal.writer import JournalWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.entry.position import JournalPosition
    from storage.journal.writer import Group

ROOT = Path(__file__).parents[3]

STORM = """
import random, signal, sys
from recovery import open_store
from storage import StoreConfig

class Struck(Exception):
    pass

is_armed = False

def strike(number, frame):
    if is_armed:
        raise Struck

path, seconds, kind = sys.argv[1], float(sys.argv[2]), sys.argv[3]
sizes = dict(journal_size=1 << 20, memtable_size_max=1 << 20, entry_size_max=1 << 16, group_size_max=1 << 17)
config = StoreConfig(**sizes)
dice = random.Random(kind)
answered, raised, number = {}, 0, 0
with open_store(path, config) as store:
    ledger = store.ledger(1)
    signal.signal(signal.SIGALRM, strike)
    while number < 1000:
        number += 1
        text = b"%d " % number + dice.randbytes(dice.choice([10, 1000, 20_000]))
        if kind == "group":
            store.ledger(2).submit(text)
        signal.setitimer(signal.ITIMER_REAL, seconds * dice.random() + 1e-6, seconds)
        try:
            is_armed = True
            ids = ledger.append_many([text, text]) if kind == "append_many" else [ledger.append(text)]
            is_armed = False
        except Struck:
            raised += 1
            is_armed, ids = False, []
        answered |= dict.fromkeys(ids, text)
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    last = ledger.append(b"the store still writes")
    there = {one.entry_id: one.payload for one in ledger.entries()}
    assert sorted(there) == list(range(last + 1)), "no id is skipped"
    assert all(there[id] == text for id, text in answered.items()), "what was answered is there"
    assert store.stats().failed is None
with open_store(path, config) as store:
    again = {one.entry_id: one.payload for one in store.ledger(1).entries()}
    assert again == there, "and there after an opening"
print(raised, len(answered))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["append", "group", "append_many"])
@pytest.mark.parametrize("seconds", [1e-4, 1e-3])
def test_a_storm_of_signals_that_raise_loses_nothing_and_skips_no_id(
    tmp_path: Path, seconds: float, kind: str
) -> None:
    command = [sys.executable, "-c", STORM, str(tmp_path / "store"), str(seconds), kind]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    raised, answered = map(int, done.stdout.split())
    assert raised > 100
    assert raised + answered >= 1000


def during_a_sync(store: object, act: Callable[[], None]) -> None:
    """Calls it once in the middle of the next sync of the journal, as a signal handler is called."""
    engine = StoreInternals(store)  # type: ignore[arg-type]
    sync, acts = engine.call(EngineCall.SYNC_JOURNAL), [act]

    def struck() -> None:
        if acts:
            acts.pop()()
        sync()

    setattr(*engine.at(EngineCall.SYNC_JOURNAL), struck)


def test_an_exception_of_a_handler_is_raised_when_the_add_is_durable() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"zero")

    def strike() -> None:
        raise TimeoutError("too late")

    during_a_sync(store, strike)
    with pytest.raises(TimeoutError, match="too late"):
        ledger.append(b"one")
    assert (
        payloads(store, 1) == payloads(Site(disk=site.disk.copy()).after_power_cut(), 1) == [b"zero", b"one"]
    )
    assert in_time(partial(ledger.append, b"two"))
    assert payloads(site.after_power_cut(), 1) == [b"zero", b"one", b"two"]


def test_a_write_that_is_repeated_brings_the_key_of_a_new_ledger_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"makes the journal")
    write = JournalWriter.write

    def struck_once(journal: JournalWriter, group: Group, durable_up_to: JournalPosition) -> None:
        monkeypatch.undo()
        write(journal, group, durable_up_to)
        raise TimeoutError

    monkeypatch.setattr(JournalWriter, "write", struck_once)
    with pytest.raises(TimeoutError):
        store.ledger(2, password=b"secret").append(b"one")
    again = site.after_power_cut()
    with pytest.raises(Unauthorized):
        again.ledger(2).append(b"of a stranger")
    assert again.ledger(2, password=b"secret").append(b"two") == 1


def test_the_callers_that_share_the_group_hear_nothing_of_it() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"zero")
    future = ledger.submit(b"one")

    def strike() -> None:
        raise KeyboardInterrupt

    during_a_sync(store, strike)
    with pytest.raises(KeyboardInterrupt):
        ledger.append(b"two")
    assert future.result(10) == 1
    assert payloads(site.after_power_cut(), 1) == [b"zero", b"one", b"two"]


def test_a_follower_that_is_interrupted_raises_when_its_add_is_durable() -> None:
    store = Site().open()
    ledger = store.ledger(1)
    ledger.append(b"zero")
    at_sync, may_sync = threading.Event(), threading.Event()

    def hold() -> None:
        at_sync.set()
        assert may_sync.wait(10)

    during_a_sync(store, hold)
    leader = threading.Thread(target=ledger.append, args=(b"one",), daemon=True)
    leader.start()
    assert at_sync.wait(10)

    def strike(*_: object) -> None:
        assert ledger.last_entry_id == 0
        threading.Timer(0.05, may_sync.set).start()
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError):
            ledger.append(b"two")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert payloads(store, 1) == [b"zero", b"one", b"two"]
    leader.join(10)
    assert in_time(partial(ledger.append, b"three"))


def test_an_interrupted_run_is_inserted_although_its_last_entry_was_there_before() -> None:
    """A client may send entries again, and one of them may be new here."""
    site = Site()
    store = site.open()
    writer, bookie = AddingClient(), store.bookie
    bookie.add(writer.entry(9), writer.key)

    def strike() -> None:
        raise TimeoutError("too late")

    work = bookie.pending_run(7, 8, [writer.entry(8), writer.entry(9)], writer.key)
    assert work is not None
    during_a_sync(store, strike)
    with pytest.raises(TimeoutError, match="too late"):
        StoreInternals(store).go_through(work)
    assert work.is_durable
    assert bookie.read(7, 8) == writer.entry(8)
    site.checkpoint(store)
    assert site.after_power_cut().bookie.read(7, 8) == writer.entry(8)


def test_a_handler_that_adds_inside_of_an_add_is_refused_and_the_add_goes_on() -> None:
    site = Site()
    store = site.open()
    ledger, refused = store.ledger(1), list[ReentrantCall]()
    ledger.append(b"zero")

    def add() -> None:
        try:
            store.ledger(2).append(b"by the handler")
        except ReentrantCall as error:
            refused.append(error)

    during_a_sync(store, add)
    assert ledger.append(b"one") == 1
    assert len(refused) == 1
    during_a_sync(store, store.ledger(2).delete)
    with pytest.raises(ReentrantCall):
        ledger.append(b"two")
    assert payloads(site.after_power_cut(), 1) == [b"zero", b"one", b"two"]


def test_a_handler_may_submit_inside_of_an_add() -> None:
    store = Site().open()
    ledger, futures = store.ledger(1), list[object]()
    ledger.append(b"zero")
    during_a_sync(store, lambda: futures.append(store.ledger(2).submit(b"by the handler")))
    assert ledger.append(b"one") == 1
    StoreInternals(store).flush()
    assert [future.result(10) for future in futures] == [0]  # type: ignore[attr-defined]


def test_a_wait_for_room_is_interrupted_at_once() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append(b"zero")
    state = StoreInternals(store).tail(1)
    state.is_held = True

    def strike(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError):
            ledger.append(b"never began")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    state.is_held = False
    assert ledger.append(b"one") == 1
    with suppress(StopIteration):
        assert payloads(site.after_power_cut(), 1) == [b"zero", b"one"]
