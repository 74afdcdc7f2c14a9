"""When a store accepts adds: refusals for lack of space come and go, failures and closes stay."""

from __future__ import annotations

import pytest

from storage.entry.credentials import Purpose
from storage.errors import DiskFull
from storage.runtime.store_state import LowSpace, NoReserve, StoreState


def test_adds_are_accepted_again_when_the_refusal_ends() -> None:
    state = StoreState("store")
    state.refuse_adds(LowSpace("little"))
    assert not state.is_open
    state.refuse_adds(None)
    assert state.is_open


@pytest.mark.parametrize("end", ["fail", "close", "begin_close", "fork"])
def test_a_store_that_has_ended_accepts_no_adds_when_the_refusal_ends(end: str) -> None:
    state = StoreState("store")
    state.refuse_adds(LowSpace("little"))
    if end == "fail":
        state.fail(OSError("broken"))
    else:
        getattr(state, end)()
    state.refuse_adds(None)
    assert not state.is_open


def test_little_space_refuses_writers_and_no_reserve_refuses_recoveries_too() -> None:
    state = StoreState("store")
    state.refuse_adds(LowSpace("little"))
    state.check_space(Purpose.RECOVERING)
    with pytest.raises(DiskFull, match="store takes no adds: little; nothing was stored"):
        state.check_space(Purpose.WRITING)
    state.refuse_adds(NoReserve("none"))
    with pytest.raises(DiskFull, match="none"):
        state.check_space(Purpose.RECOVERING)


def test_the_reason_is_kept_for_each_caller_of_a_group() -> None:
    told = StoreState("store").as_told(DiskFull("store", "little"))
    assert isinstance(told, DiskFull)
    assert told.reason == "little"


@pytest.mark.parametrize("purpose", Purpose)
def test_with_space_adds_of_every_purpose_are_accepted(purpose: Purpose) -> None:
    StoreState("store").check_space(purpose)
