"""The gate: whoever is alone is alone."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from storage.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Waits(Exception):
    """Somebody has to wait, and nobody will change that."""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate that says so when somebody waits."""
    when_waiting(monkeypatch, _raise_waits)
    return Gate("the map")


def _raise_waits() -> None:
    raise Waits


def when_waiting(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    monkeypatch.setattr("storage.gate.time.sleep", lambda _: happens())


def test_many_are_inside_at_once(gate: Gate) -> None:
    gate.enter()
    gate.enter()
    gate.leave()
    gate.leave()
    with gate.alone():
        pass


def test_who_wants_to_be_alone_waits_for_the_last_to_leave(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = [1, 2, 3]
    for _ in inside:
        gate.enter()

    def one_leaves() -> None:
        inside.pop()
        gate.leave()

    when_waiting(monkeypatch, one_leaves)
    with gate.alone():
        assert inside == []


def test_nobody_comes_in_while_one_is_alone(gate: Gate) -> None:
    with gate.alone(), pytest.raises(Waits):
        gate.enter()


def test_who_waited_outside_left_nothing_inside(gate: Gate) -> None:
    with gate.alone(), pytest.raises(Waits):
        gate.enter()
    with gate.alone():
        pass


def test_nobody_comes_in_while_one_waits_to_be_alone(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.enter()
    with pytest.raises(Waits), gate.alone():
        pass
    gate.enter()  # who gave up has opened it again

    def another_comes() -> None:
        when_waiting(monkeypatch, _raise_waits)
        gate.enter()

    when_waiting(monkeypatch, another_comes)
    with pytest.raises(Waits), gate.alone():
        pass


def test_who_waited_is_let_in_when_the_one_has_gone(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = gate.alone()
    alone.__enter__()
    when_waiting(monkeypatch, lambda: alone.__exit__(None, None, None))
    gate.enter()

    when_waiting(monkeypatch, _raise_waits)
    with pytest.raises(Waits), gate.alone():
        pass


def test_two_are_never_alone_together(gate: Gate) -> None:
    with gate.alone(), pytest.raises(Waits), gate.alone():
        pass
    with gate.alone():
        pass


def test_closing_waits_until_nobody_is_inside(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.enter()
    waited = []

    def leaves() -> None:
        waited.append("until the last has left")
        gate.leave()

    when_waiting(monkeypatch, leaves)
    gate.close()
    assert waited


def test_a_closed_gate_lets_nobody_in(gate: Gate) -> None:
    gate.close()
    gate.close()
    with pytest.raises(OSError, match=r"closed.*the map"):
        gate.enter()
    with pytest.raises(OSError, match="closed"), gate.alone():
        pass


def test_who_waits_when_it_is_closed_does_not_wait_on(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def closes() -> None:
        gate._closed = True

    with gate.alone():
        when_waiting(monkeypatch, closes)
        with pytest.raises(OSError, match="closed"):
            gate.enter()


def test_several_may_close_at_once() -> None:
    gate = Gate("the map")
    returned: list[str] = []

    def close() -> None:
        gate.close()
        returned.append("without an error")

    gate.enter()
    threads = [threading.Thread(target=close) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.leave()
    for thread in threads:
        thread.join()
    assert len(returned) == 3


def test_what_was_left_half_done_is_shut_for_good(gate: Gate) -> None:
    with pytest.raises(ZeroDivisionError), gate.alone():
        _ = 1 / 0
    with pytest.raises(OSError, match="closed"):
        gate.enter()


def test_one_who_never_leaves_does_not_hang_the_others_forever() -> None:
    gate = Gate("the map", wait_max_s=0)
    gate.enter()
    for alone in (gate.close, gate.alone().__enter__):
        with pytest.raises(OSError, match="not come back"):
            alone()
    gate.enter()


class Tokens(list[None]):
    """The tokens of those inside; something happens just before one is put down, or looked for."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens = happens

    def append(self, token: None) -> None:
        self._happens()
        super().append(token)

    def __len__(self) -> int:
        self._happens()
        return super().__len__()


def test_who_comes_looks_at_the_gate_after_putting_a_token_down(gate: Gate) -> None:
    gate._inside = Tokens(lambda: setattr(gate, "_shut", True))
    with pytest.raises(Waits):
        gate.enter()


def test_who_wants_to_be_alone_shuts_the_gate_before_looking_for_tokens(gate: Gate) -> None:
    seen = []
    gate._inside = Tokens(lambda: seen.append(gate._shut))
    with gate.alone():
        assert set(seen) == {True}


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_never_meet_one_who_is_alone() -> None:
    gate = Gate("the map")
    alone = [False]
    met: set[bool] = set()
    done = threading.Event()

    def pass_through() -> None:
        while not done.is_set():
            gate.enter()
            met.add(alone[0])
            gate.leave()

    threads = [threading.Thread(target=pass_through) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        with gate.alone():
            alone[0] = True
            sum(range(10_000))
            alone[0] = False
    done.set()
    for thread in threads:
        thread.join()
    assert met == {False}
