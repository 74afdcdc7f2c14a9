"""The way into the open turn: what was handed out to somebody who came to no turn never happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.access import Access
from storage.codec.digest import mac_key, master_key
from storage.entrance import Entrance, Limits
from storage.entry import DigestType
from storage.grouping import Load, Statement
from storage.latch import Latch
from storage.memtable import Memtable, Slot, Tables
from storage.position import JournalPosition
from storage.registry import plain
from storage.row import LedgerRow
from storage.tail import EMPTY, LedgerEnd, Run, Tail
from storage.turnstile import Signal, Turnstile

if TYPE_CHECKING:
    from collections.abc import Callable

WRITER = Access(master_key(b"password"), mac_key=mac_key(b"password"))
MAC_WRITER = Access(master_key(b"password"), DigestType.MAC, mac_key(b"password"))
STRANGER = Access(master_key(b"another"))
NEW = plain(7)
KNOWN = LedgerRow(7, 1, DigestType.CRC32C, master_key=WRITER.master_key)
SOME = LedgerEnd(4, 100)


class Wanted:
    """What a coroutine wants."""

    def __init__(self, tail: Tail, access: Access, make: Callable[[Tail], Run]) -> None:
        self.tail = tail
        self.access = access
        self.run: Run | None = None
        self.error: Exception | None = None
        self._make = make

    def make(self, tail: Tail) -> Run:
        self.run = self._make(tail)
        return self.run


def entrance() -> Entrance:
    turnstile = Turnstile[Load](Load, lambda _: None)
    slot = Slot(Tables(Memtable(JournalPosition(0, 0))))
    return Entrance(turnstile, Signal(), slot, Latch("here"), Limits(1 << 20, 1 << 20, 0))


def interrupted(tail: Tail, access: Access = WRITER) -> Run:
    """Ids are handed out, and then comes a Ctrl-C."""
    tail.append([b"abc"], access)
    raise KeyboardInterrupt


def claimed() -> Tail:
    tail = Tail(7, SOME, KNOWN)
    tail.admit(WRITER)
    return tail


def test_ids_that_no_run_has_are_handed_out_again() -> None:
    tail = claimed()
    with pytest.raises(KeyboardInterrupt):
        entrance().enter(tail, WRITER, interrupted)
    entered = entrance().enter(tail, WRITER, lambda tail: tail.append([b"x"], WRITER))
    assert entered is not None
    run, turn = entered
    assert (run.first_id, run.length) == (5, 101)
    assert turn.load.runs == [run]


def test_nor_are_they_missing_behind_what_is_on_its_way() -> None:
    tail, way = claimed(), entrance()
    first = way.enter(tail, WRITER, lambda tail: tail.append([b"x"], WRITER))
    with pytest.raises(KeyboardInterrupt):
        way.enter(tail, WRITER, interrupted)
    second = way.enter(tail, WRITER, lambda tail: tail.append([b"y"], WRITER))
    assert first is not None
    assert second is not None
    assert [run.first_id for run in second[1].load.runs] == [5, 6]
    assert second[1].load.runs == [first[0], second[0]]


def test_a_claim_that_came_to_no_turn_never_was() -> None:
    tail = Tail(7, EMPTY, NEW)
    with pytest.raises(KeyboardInterrupt):
        entrance().enter(tail, MAC_WRITER, lambda tail: interrupted(tail, MAC_WRITER))
    assert (tail.is_claimed, tail.facts) == (False, NEW)
    entered = entrance().enter(tail, STRANGER, lambda tail: tail.append([b"x"], STRANGER))
    assert entered is not None
    assert (entered[0].first_id, entered[0].length) == (0, 1)
    assert tail.facts.digest_type is DigestType.CRC32C


@pytest.mark.parametrize("access", [WRITER, MAC_WRITER])
def test_a_wish_that_was_interrupted_has_no_run_and_took_no_id(access: Access) -> None:
    tail = Tail(7, EMPTY, NEW)
    if access is WRITER:
        tail.admit(WRITER)
    wish = Wanted(tail, access, lambda tail: interrupted(tail, access))
    with pytest.raises(KeyboardInterrupt):
        entrance().join([wish], lambda _: None)
    assert (wish.run, tail.next_id, tail.next_length) == (None, 0, 0)


class Unmeasured(Run):
    """A run during whose counting a Ctrl-C comes."""

    @property
    def size(self) -> int:
        raise KeyboardInterrupt

    @size.setter
    def size(self, size: int) -> None:
        """Whatever it is."""


def unmeasured(tail: Tail) -> Run:
    run = tail.append([b"abc"], WRITER)
    return Unmeasured(tail, run.first_id, run.last_id, run.fronts, run.payloads, 0, run.length, -1)


@pytest.mark.parametrize("is_admitted", [True, False])
def test_nor_has_one_that_was_made_and_not_taken_along(*, is_admitted: bool) -> None:
    tail, way = Tail(7, SOME, KNOWN), entrance()
    if is_admitted:
        tail.admit(WRITER)
    wish = Wanted(tail, WRITER, unmeasured)
    with pytest.raises(KeyboardInterrupt):
        way.join([wish], lambda _: None)
    assert (wish.run, tail.next_id, tail.next_length) == (None, 5, 100)
    load = way.join([Wanted(tail, WRITER, lambda tail: tail.append([b"x"], WRITER))], lambda _: None)
    assert load is not None
    assert [run.first_id for run in load.runs] == [5]


def fence(tail: Tail) -> Statement | None:
    tail.fence()
    return Statement(tail, b"", lambda row: row)


def test_a_fence_that_nobody_writes_refuses_nobody() -> None:
    tail = claimed()

    def fence_and_stop() -> Statement | None:
        fence(tail)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        entrance().enter_statement(tail, fence_and_stop)
    tail.admit(WRITER)
    assert (tail.facts, tail.next_id) == (KNOWN, 5)


def test_a_fence_behind_another_s_is_taken_back_alone() -> None:
    tail, other, way = claimed(), claimed(), entrance()
    entered = way.enter_statement(other, lambda: fence(other))

    def confirm_and_stop() -> Statement | None:
        tail.confirm(b"packet")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        way.enter_statement(tail, confirm_and_stop)
    assert tail.facts.explicit_lac is None
    assert entered is not None
    assert entered[1].load.statements == [entered[0]]
    assert other.facts.fenced
