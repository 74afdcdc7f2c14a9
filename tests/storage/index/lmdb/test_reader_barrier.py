"""The barrier: no reader is inside during exclusive access."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from storage.index.lmdb.reader_barrier import ReaderBarrier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class WouldWait(Exception):
    """Raised in the place of a wait that would never end."""


@pytest.fixture
def barrier(monkeypatch: pytest.MonkeyPatch) -> ReaderBarrier:
    """A barrier that raises `WouldWait` instead of waiting."""
    when_waiting(monkeypatch, _raise_would_wait)
    return ReaderBarrier("the map")


def _raise_would_wait() -> None:
    raise WouldWait


def when_waiting(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    monkeypatch.setattr("storage.index.lmdb.reader_barrier.time.sleep", lambda _: happens())


def test_many_readers_are_inside_at_once(barrier: ReaderBarrier) -> None:
    barrier.enter()
    barrier.enter()
    barrier.leave()
    barrier.leave()
    with barrier.exclusive():
        pass


def test_exclusive_access_waits_for_the_last_reader_to_leave(
    barrier: ReaderBarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = [1, 2, 3]
    for _ in inside:
        barrier.enter()

    def one_leaves() -> None:
        inside.pop()
        barrier.leave()

    when_waiting(monkeypatch, one_leaves)
    with barrier.exclusive():
        assert inside == []


def test_no_reader_enters_during_exclusive_access(barrier: ReaderBarrier) -> None:
    with barrier.exclusive(), pytest.raises(WouldWait):
        barrier.enter()


def test_a_waiting_reader_leaves_no_token(barrier: ReaderBarrier) -> None:
    with barrier.exclusive(), pytest.raises(WouldWait):
        barrier.enter()
    with barrier.exclusive():
        pass


def test_no_reader_enters_while_a_thread_waits_for_exclusive_access(
    barrier: ReaderBarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier.enter()
    with pytest.raises(WouldWait), barrier.exclusive():
        pass
    barrier.enter()  # the thread that gave up has opened it again

    def another_comes() -> None:
        when_waiting(monkeypatch, _raise_would_wait)
        barrier.enter()

    when_waiting(monkeypatch, another_comes)
    with pytest.raises(WouldWait), barrier.exclusive():
        pass


def test_a_waiting_reader_enters_after_exclusive_access_ends(
    barrier: ReaderBarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = barrier.exclusive()
    alone.__enter__()
    when_waiting(monkeypatch, lambda: alone.__exit__(None, None, None))
    barrier.enter()

    when_waiting(monkeypatch, _raise_would_wait)
    with pytest.raises(WouldWait), barrier.exclusive():
        pass


def test_two_threads_never_have_exclusive_access_at_once(barrier: ReaderBarrier) -> None:
    with barrier.exclusive(), pytest.raises(WouldWait), barrier.exclusive():
        pass
    with barrier.exclusive():
        pass


def test_closing_waits_until_no_reader_is_inside(
    barrier: ReaderBarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier.enter()
    waited = []

    def leaves() -> None:
        waited.append("until the last has left")
        barrier.leave()

    when_waiting(monkeypatch, leaves)
    barrier.close()
    assert waited


def test_a_closed_barrier_lets_no_thread_enter(barrier: ReaderBarrier) -> None:
    barrier.close()
    barrier.close()
    with pytest.raises(OSError, match=r"closed.*the map"):
        barrier.enter()
    with pytest.raises(OSError, match="closed"), barrier.exclusive():
        pass


def test_a_waiting_reader_stops_waiting_when_the_barrier_is_closed(
    barrier: ReaderBarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closes() -> None:
        barrier._closed = True

    with barrier.exclusive():
        when_waiting(monkeypatch, closes)
        with pytest.raises(OSError, match="closed"):
            barrier.enter()


def test_several_threads_may_close_at_once() -> None:
    barrier = ReaderBarrier("the map")
    returned: list[str] = []

    def close() -> None:
        barrier.close()
        returned.append("without an error")

    barrier.enter()
    threads = [threading.Thread(target=close) for _ in range(3)]
    for thread in threads:
        thread.start()
    barrier.leave()
    for thread in threads:
        thread.join()
    assert len(returned) == 3


def test_an_error_during_exclusive_access_closes_the_barrier(barrier: ReaderBarrier) -> None:
    with pytest.raises(ZeroDivisionError), barrier.exclusive():
        _ = 1 / 0
    with pytest.raises(OSError, match="closed"):
        barrier.enter()


def test_a_reader_that_never_leaves_does_not_block_other_threads_for_ever() -> None:
    barrier = ReaderBarrier("the map", wait_max_s=0)
    barrier.enter()
    for alone in (barrier.close, barrier.exclusive().__enter__):
        with pytest.raises(OSError, match="did not finish in time"):
            alone()
    barrier.enter()


class Tokens(list[None]):
    """The tokens of readers; calls a function just before a token is added or checked."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens = happens

    def append(self, token: None) -> None:
        self._happens()
        super().append(token)

    def __len__(self) -> int:
        self._happens()
        return super().__len__()


def test_a_reader_checks_the_barrier_after_adding_its_token(barrier: ReaderBarrier) -> None:
    barrier._inside = Tokens(lambda: setattr(barrier, "_shut", True))
    with pytest.raises(WouldWait):
        barrier.enter()


def test_exclusive_access_shuts_the_barrier_before_checking_for_tokens(barrier: ReaderBarrier) -> None:
    seen = []
    barrier._inside = Tokens(lambda: seen.append(barrier._shut))
    with barrier.exclusive():
        assert set(seen) == {True}


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads switch as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_no_thread_is_inside_during_exclusive_access() -> None:
    barrier = ReaderBarrier("the map")
    alone = [False]
    met: set[bool] = set()
    done = threading.Event()

    def pass_through() -> None:
        while not done.is_set():
            barrier.enter()
            met.add(alone[0])
            barrier.leave()

    threads = [threading.Thread(target=pass_through) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        with barrier.exclusive():
            alone[0] = True
            sum(range(10_000))
            alone[0] = False
    done.set()
    for thread in threads:
        thread.join()
    assert met == {False}
