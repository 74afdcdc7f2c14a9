"""Which exceptions are those of a signal handler, so that a commit is repeated, and which are failures."""

from __future__ import annotations

import errno
from _thread import start_new_thread
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stepped_store import Site, payloads
from store_internals import EngineCall, StoreInternals, access_of

from storage.commit.interruption import is_interruption
from storage.commit.pending import PendingEntries
from storage.entry.model import DigestType
from storage.errors import DiskFull, LedgerFenced, StoreFailed
from storage.journal import writer
from storage.memtable.table import Memtable

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.store import Store


OURS = """
def act(call, handled):
    if handled is None:
        call()
    try:
        raise handled
    except OSError:
        call()
"""
FAILING = """
def fail(error):
    raise error
"""


def function_of_ours(source: str, name: str) -> Callable[..., None]:
    """A function that seems to stand in a module of ours."""
    names: dict[str, Callable[..., None]] = {}
    exec(source, {"__name__": "storage.journal.writer"}, names)
    return names[name]


def caught(act: Callable[[], None]) -> BaseException:
    """The exception of the call, with a traceback that begins in the function that was called."""
    with pytest.raises(BaseException) as found:  # noqa: PT011 - whatever it is
        act()
    error = found.value
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return error.with_traceback(traceback)


def raised_in_ours(error: BaseException) -> BaseException:
    """The error of code of ours: nothing but functions of ours is in its traceback."""
    return caught(partial(function_of_ours(FAILING, "fail"), error))


def raised_by_a_handler(error: BaseException, handled: OSError | None = None) -> BaseException:
    """The error of a function of a user that was called in code of ours, perhaps while it handled another."""

    def handle() -> None:
        raise error

    return caught(partial(function_of_ours(OURS, "act"), handle, handled))


DISK = OSError(errno.EIO, "the disk")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), TimeoutError(), SystemExit(1), ValueError("a user's"), LedgerFenced(1)]
)
def test_an_exception_of_a_handler_is_an_interruption(error: BaseException) -> None:
    assert is_interruption(raised_by_a_handler(error))


def test_a_ctrl_c_leaves_no_trace_of_its_handler() -> None:
    assert is_interruption(raised_in_ours(KeyboardInterrupt()))


@pytest.mark.parametrize(
    "error",
    [DISK, DiskFull("full"), AssertionError("ours"), MemoryError(), RecursionError(), ValueError("ours")],
    ids=repr,
)
def test_an_error_of_ours_is_a_failure(error: BaseException) -> None:
    assert not is_interruption(raised_in_ours(error))


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "a handler's"), TimeoutError(errno.ETIMEDOUT, "a handler's"), AssertionError()],
)
def test_an_exception_that_could_be_a_failure_of_the_disk_or_of_the_program_counts_as_one(
    error: BaseException,
) -> None:
    assert not is_interruption(raised_by_a_handler(error))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeoutError()], ids=repr)
def test_a_handler_that_raises_while_an_error_of_the_disk_is_handled_does_not_hide_it(
    error: BaseException,
) -> None:
    found = raised_by_a_handler(error, OSError(errno.EIO, "the disk"))
    assert isinstance(found.__context__, OSError)
    assert not is_interruption(found)


def test_an_error_that_the_program_handles_around_the_add_is_not_the_disk_s() -> None:
    found: BaseException = AssertionError()
    try:
        Path("/no such file").stat()
    except FileNotFoundError:
        found = raised_by_a_handler(KeyboardInterrupt())
    assert isinstance(found.__context__, FileNotFoundError)
    assert is_interruption(found)


FAILURES: dict[str, Callable[[], BaseException]] = {
    "an error of the disk": lambda: OSError(errno.EIO, "the disk"),
    "an assertion": lambda: AssertionError("a broken program"),
    "memory": MemoryError,
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_sync_that_fails_is_never_repeated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Site().open()
    ledger, syncs = store.ledger(1), []
    ledger.append(b"zero")

    def fail(_: object) -> None:
        syncs.append(name)
        error = FAILURES[name]()
        raise error

    monkeypatch.setattr(writer.JournalWriter, "sync", fail)
    with pytest.raises((StoreFailed, MemoryError)):
        ledger.append(b"one")
    assert syncs == [name]
    assert store.stats().failed


def test_a_sync_that_a_handler_interrupts_is_repeated_once_and_in_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    store = site.open()
    ledger, syncs = store.ledger(1), []
    ledger.append(b"zero")
    sync = writer.JournalWriter.sync

    def struck_once(journal: writer.JournalWriter) -> object:
        syncs.append(journal)
        if len(syncs) == 1:
            raise TimeoutError
        return sync(journal)

    monkeypatch.setattr(writer.JournalWriter, "sync", struck_once)
    with pytest.raises(TimeoutError):
        ledger.append(b"one")
    assert len(syncs) == 2
    assert ledger.append(b"two") == 2
    assert [one.payload for one in site.after_power_cut().ledger(1).entries()] == [b"zero", b"one", b"two"]


def test_an_error_that_repeats_itself_stops_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Site().open()
    ledger, syncs = store.ledger(1), []
    ledger.append(b"zero")

    def struck(_: object) -> None:
        syncs.append(1)
        raise TimeoutError

    monkeypatch.setattr(writer.JournalWriter, "sync", struck)
    with pytest.raises(TimeoutError):
        ledger.append(b"one")
    assert len(syncs) == 2
    assert store.stats().failed


class WatchedEntries(PendingEntries):
    """Notes whether the queue's lock is held when a thread begins to play the part of the caller."""

    def __init__(self, store: Store) -> None:
        self._engine = StoreInternals(store)
        super().__init__(self._engine.tail(1), access_of(store.ledger(1)), [b"one"])
        self._is_resumed = False
        self.locked: list[bool] = []

    @property
    def is_resumed(self) -> bool:
        return self._is_resumed

    @is_resumed.setter
    def is_resumed(self, value: bool) -> None:
        self._is_resumed = value
        self.locked.append(self._engine.is_queue_locked)


def test_only_one_thread_begins_to_play_the_part_of_an_interrupted_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Site().open()
    store.ledger(1).append(b"zero")
    work = WatchedEntries(store)

    def strike(_: object) -> None:
        monkeypatch.undo()
        raise TimeoutError

    monkeypatch.setattr(writer.JournalWriter, "sync", strike)
    with pytest.raises(TimeoutError):
        StoreInternals(store).go_through(work)
    assert work.locked == [True]


def test_an_insert_that_is_interrupted_and_repeated_takes_no_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    for is_struck in (False, True):
        store = Site().open()
        store.ledger(1).append(b"zero")
        insert = Memtable.insert_parts

        def struck_once(table: Memtable, *parts: Any, insert: Any = insert) -> None:
            monkeypatch.undo()
            insert(table, *parts)
            raise TimeoutError

        if is_struck:
            monkeypatch.setattr(Memtable, "insert_parts", struck_once)
            with pytest.raises(TimeoutError):
                store.ledger(1).append_many([b"one", b"two"])
        else:
            store.ledger(1).append_many([b"one", b"two"])
        assert payloads(store, 1) == [b"zero", b"one", b"two"]
        sizes.append(StoreInternals(store).table_sizes)
    assert sizes[0] == sizes[1]


def test_nothing_is_written_after_another_thread_has_met_an_error_of_the_disk() -> None:
    """The error comes while this commit makes a row durable, before it writes to the journal."""
    site = Site()
    store = site.open()
    store.ledger(1).append(b"zero")
    engine = StoreInternals(store)
    persist = engine.call(EngineCall.PERSIST_ROWS)

    def fail_meanwhile(*arguments: object) -> None:
        persist(*arguments)
        engine.fail(DISK)

    setattr(*engine.at(EngineCall.PERSIST_ROWS), fail_meanwhile)
    groups, before = engine.journal_groups, site.bytes_of("journal/current/1.txn")
    with pytest.raises(StoreFailed) as told:
        store.ledger(2, digest=DigestType.CRC32).append(b"one")
    assert told.value.__cause__ is DISK
    assert engine.journal_groups == groups
    assert site.bytes_of("journal/current/1.txn") == before


def test_an_error_while_the_callers_are_let_go_loses_no_add() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"zero")
    engine = StoreInternals(store)
    end = engine.call(EngineCall.END)

    def fail_once(*arguments: object) -> None:
        setattr(*engine.at(EngineCall.END), end)
        raise MemoryError

    setattr(*engine.at(EngineCall.END), fail_once)
    assert store.ledger(1).append(b"one") == 1
    assert store.ledger(1).append(b"two") == 2
    assert payloads(site.after_power_cut(), 1) == [b"zero", b"one", b"two"]


def test_a_second_interruption_is_ignored_while_another_thread_ends_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"zero")
    sync, starts = writer.JournalWriter.sync, list[str]()

    def strike(_: object) -> None:
        monkeypatch.setattr(writer.JournalWriter, "sync", sync)
        raise TimeoutError("the first")

    def strike_again(*arguments: Any) -> None:
        starts.append("a thread")
        if len(starts) == 1:
            raise KeyboardInterrupt
        start_new_thread(*arguments)
        if len(starts) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("storage.commit.committer.start_new_thread", strike_again)
    monkeypatch.setattr(writer.JournalWriter, "sync", strike)
    with pytest.raises(TimeoutError, match="the first"):
        store.ledger(1).append(b"one")
    assert len(starts) >= 2
    assert payloads(site.after_power_cut(), 1) == [b"zero", b"one"]
