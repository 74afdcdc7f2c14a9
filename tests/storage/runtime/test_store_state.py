"""The state of a store after an error, a close and a fork."""

from __future__ import annotations

import pytest

from storage.entry.credentials import Purpose
from storage.errors import DiskFull, ForkedStore, StoreClosed, StoreFailed
from storage.runtime.store_state import LowSpace, NoReserve, StoreState


def test_a_store_that_has_failed_still_reads_and_names_the_first_error() -> None:
    store_state = StoreState("data")
    first = OSError("the first")
    store_state.fail(first)
    store_state.fail(OSError("the second"))
    store_state.check_reads()
    with pytest.raises(StoreFailed) as raised:
        store_state.check_writes()
    assert raised.value.__cause__ is first
    assert store_state.has_ended


def test_a_closing_store_reads_and_refuses_adds() -> None:
    store_state = StoreState("data")
    assert store_state.begin_close()
    assert not store_state.begin_close()
    assert store_state.has_ended
    assert not store_state.is_open
    store_state.check_reads()
    with pytest.raises(StoreClosed):
        store_state.check_writes()
    store_state.close()
    with pytest.raises(StoreClosed):
        store_state.check_reads()


def test_a_fork_does_nothing_and_has_nothing_to_close() -> None:
    store_state = StoreState("data")
    store_state.fork()
    assert not store_state.is_open
    assert not store_state.begin_close()
    for check in (store_state.check_reads, store_state.check_writes):
        with pytest.raises(ForkedStore):
            check()


def test_a_store_that_was_closed_before_the_fork_is_closed_in_it_too() -> None:
    store_state = StoreState("data")
    assert store_state.begin_close()
    store_state.close()
    store_state.fork()
    with pytest.raises(ForkedStore):
        store_state.check_reads()


def test_a_new_state_allows_everything() -> None:
    store_state = StoreState("data")
    store_state.check_reads()
    store_state.check_writes()
    assert store_state.is_open
    assert not store_state.has_ended
    assert not store_state.is_closed


def test_a_store_that_is_closed_or_has_failed_accepts_no_adds() -> None:
    for end in (StoreState.close, StoreState.fork, lambda one: one.fail(OSError("the disk"))):
        store_state = StoreState("data")
        end(store_state)
        assert store_state.has_ended
        assert not store_state.is_open


def test_each_caller_gets_its_own_error_with_the_cause() -> None:
    store_state = StoreState("data")
    cause = OSError("the disk")
    one, other = store_state.as_told(cause), store_state.as_told(cause)
    assert one is not other
    assert isinstance(one, StoreFailed)
    assert one.__cause__ is other.__cause__ is cause


def test_the_error_that_stops_a_store_is_logged_at_once_and_only_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store_state = StoreState("data")
    store_state.fail(OSError("the first"))
    assert [one.levelname for one in caplog.records] == ["ERROR"]
    store_state.fail(OSError("the second"))
    with pytest.raises(StoreFailed):
        store_state.check_writes()
    assert len(caplog.records) == 1
    assert "the first" in caplog.text


@pytest.mark.parametrize(
    ("refusal", "refused"),
    [
        (None, []),
        (LowSpace("little"), [Purpose.WRITING]),
        (NoReserve("none"), [Purpose.WRITING, Purpose.RECOVERING]),
    ],
    ids=["nothing", "little space", "no reserve"],
)
def test_adds_of_recoveries_are_refused_only_where_the_reserve_is_gone(
    refusal: LowSpace | NoReserve | None, refused: list[Purpose]
) -> None:
    store_state = StoreState("data")
    store_state.refuse_adds(refusal)
    for purpose in (Purpose.WRITING, Purpose.RECOVERING):
        if purpose in refused:
            with pytest.raises(DiskFull):
                store_state.check_space(purpose)
        else:
            store_state.check_space(purpose)
