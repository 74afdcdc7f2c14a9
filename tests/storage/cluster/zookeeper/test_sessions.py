"""Which sessions live, and until when."""

from __future__ import annotations

import pytest

from storage.cluster.zookeeper.sessions import Sessions, TimeoutRange, first_session_id, is_password_of
from storage.cluster.zookeeper.tree import DurableSession


@pytest.mark.parametrize(("asked", "granted"), [(0, 4000), (5000, 5000), (10**9, 40_000), (-1, 4000)])
def test_a_time_out_is_granted_within_the_range(asked: int, granted: int) -> None:
    assert TimeoutRange().granted(asked) == granted


def test_a_session_expires_when_nothing_was_heard_for_its_time_out() -> None:
    sessions = Sessions({}, 0, 1)
    sessions.begin(1, 1000, now_ms=0)
    sessions.begin(2, 5000, now_ms=0)
    assert sessions.expired(999) == []
    sessions.hear(1, 999)
    assert sessions.expired(1998) == []
    assert sessions.expired(1999) == [1]
    assert sessions.expired(5000) == [1, 2]
    sessions.end(1)
    assert sessions.expired(5000) == [2]
    sessions.hear(1, 6000)  # a frame that was under way when it ended
    assert sessions.expired(99_999) == [2]
    assert 1 not in sessions
    assert len(sessions) == 1


def test_after_a_restart_each_session_has_its_whole_time_out() -> None:
    sessions = Sessions({7: DurableSession(1000, b"")}, now_ms=50_000, first_id=3)
    assert sessions.expired(50_999) == []
    assert sessions.expired(51_000) == [7]
    assert sessions.new_id() == 8


def test_ids_are_larger_than_those_of_earlier_runs_and_below_the_highest_byte() -> None:
    now_ms = 1_800_000_000_000
    assert first_session_id(now_ms + 1) > first_session_id(now_ms) + 1000
    assert first_session_id(now_ms * 10) < 1 << 56
    sessions = Sessions({}, 0, first_session_id(now_ms))
    assert sessions.new_id() + 1 == sessions.new_id()


def test_only_the_password_of_the_session_opens_it() -> None:
    session = DurableSession(1000, b"p" * 16)
    assert is_password_of(session, b"p" * 16)
    assert not is_password_of(session, b"q" * 16)
    assert not is_password_of(session, b"")
    assert not is_password_of(session, None)
