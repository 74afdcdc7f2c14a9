"""The steps of a commit that cannot be repeated from their middle: they are taken where no handler runs.

The main thread of the tests is the one in which Python calls signal handlers.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from stepped_store import Site
from store_internals import EngineCall, StoreInternals

from storage.commit.pending_deletes import PendingDelete
from storage.entry.model import DigestType
from storage.journal.writer import JournalWriter

if TYPE_CHECKING:
    from collections.abc import Callable


class Case:
    """A store on a simulated disk, and the threads in which one of its calls was made."""

    def __init__(self) -> None:
        self.site = Site()
        self.store = self.site.open()
        self.engine = StoreInternals(self.store)
        self.threads: list[threading.Thread] = []

    def watch(self, call: EngineCall) -> None:
        inner = self.engine.call(call)

        def noted(*arguments: object) -> object:
            self.threads.append(threading.current_thread())
            return inner(*arguments)

        setattr(*self.engine.at(call), noted)

    def note(self, _: object = None) -> None:
        self.threads.append(threading.current_thread())

    def decide_delete(self) -> None:
        self.store.ledger(7).append(b"old")
        assert self.engine.join(PendingDelete(self.engine.tail(7), None)) is not None


def begins_a_journal(case: Case) -> None:
    case.watch(EngineCall.ROLL_JOURNAL)
    case.store.ledger(1).append(b"first")


def declares_a_ledger(case: Case) -> None:
    case.store.ledger(2).append(b"makes the journal")
    case.watch(EngineCall.PERSIST_ROWS)
    case.store.ledger(1, digest=DigestType.CRC32, password=b"secret").append(b"first")


def decides_a_delete(case: Case) -> None:
    case.decide_delete()
    case.watch(EngineCall.TAKE_DELETES)
    case.store.ledger(2).append(b"leads the group of the delete")


def hides_a_deleted_ledger(case: Case) -> None:
    case.decide_delete()
    case.engine.flush()
    deletes = case.engine.begin_deletes()
    assert deletes is not None
    case.engine.write_tombstones(deletes)
    case.watch(EngineCall.HIDE_DELETED)
    case.store.ledger(2).append(b"leads the group that hides the ledger")
    case.engine.end_deletes(deletes)
    assert case.store.ledgers() == [2]


def answers_a_future(case: Case) -> None:
    case.store.ledger(2).append(b"makes the journal")
    future = case.store.ledger(1).submit(b"first")
    future.add_done_callback(case.note)
    case.store.ledger(2).append(b"leads the group of the future")
    assert future.result(0) == 0


CASES: list[Callable[[Case], None]] = [
    begins_a_journal,
    declares_a_ledger,
    decides_a_delete,
    hides_a_deleted_ledger,
    answers_a_future,
]


@pytest.mark.parametrize("act", CASES)
def test_a_step_that_cannot_be_repeated_is_not_taken_in_the_main_thread(act: Callable[[Case], None]) -> None:
    case = Case()
    act(case)
    assert case.threads
    assert threading.main_thread() not in case.threads


@pytest.mark.parametrize("act", CASES)
def test_where_no_thread_can_be_started_the_caller_takes_all_steps(
    act: Callable[[Case], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr("storage.commit.committer.start_new_thread", refuse)
    case = Case()
    act(case)
    assert threading.main_thread() in case.threads
    assert case.store.stats().failed is None


@pytest.mark.parametrize("act", CASES)
def test_another_thread_takes_all_steps_itself(act: Callable[[Case], None]) -> None:
    case = Case()
    caller = threading.Thread(target=act, args=(case,))
    caller.start()
    caller.join(20)
    assert {*case.threads} == {caller}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_error_in_the_thread_that_resumes_a_commit_is_raised_in_the_caller(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: JournalWriter) -> None:
        raise error

    store = Site().open()
    monkeypatch.setattr(JournalWriter, "sync", fail)
    with pytest.raises(type(error)) as told:
        store.ledger(1).append(b"begins a journal, which the main thread leaves to another one")
    assert told.value is error
    assert store.stats().failed is not None
