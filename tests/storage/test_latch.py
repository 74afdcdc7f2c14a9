"""What a store still does after an error, a close, a fork."""

from __future__ import annotations

import pytest

from storage.errors import ForkedStore, StoreClosed, StoreFailed
from storage.latch import Latch


def test_a_store_that_has_failed_still_reads_and_names_the_first_error() -> None:
    latch = Latch("data")
    first = OSError("the first")
    latch.fail(first)
    latch.fail(OSError("the second"))
    latch.check_reads()
    with pytest.raises(StoreFailed) as raised:
        latch.check_writes()
    assert raised.value.__cause__ is first
    assert latch.has_ended


def test_while_it_closes_it_reads_and_takes_nothing() -> None:
    latch = Latch("data")
    assert latch.begin_close()
    assert not latch.begin_close()
    latch.check_reads()
    with pytest.raises(StoreClosed):
        latch.check_writes()
    latch.close()
    with pytest.raises(StoreClosed):
        latch.check_reads()


def test_a_fork_does_nothing_and_has_nothing_to_close() -> None:
    latch = Latch("data")
    latch.fork()
    assert not latch.begin_close()
    for check in (latch.check_reads, latch.check_writes):
        with pytest.raises(ForkedStore):
            check()


def test_a_store_that_was_closed_before_the_fork_is_closed_in_it_too() -> None:
    latch = Latch("data")
    assert latch.begin_close()
    latch.close()
    latch.fork()
    with pytest.raises(ForkedStore):
        latch.check_reads()


def test_a_new_one_does_everything() -> None:
    latch = Latch("data")
    latch.check_reads()
    latch.check_writes()
    assert not latch.has_ended
