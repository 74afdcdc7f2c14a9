"""The sessions of a server: when each was last heard of, and which of them have expired.

A session belongs to one connection at a time. It outlives connections, and it expires when the server has
heard nothing of it for its time-out. The durable facts of a session are in the tree; this module keeps when
the server heard of it last. After a restart each session has its whole time-out again, because the server
cannot know how long the client has tried to reach it.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.cluster.zookeeper.tree import DurableSession

_SESSION_MAX = (1 << 56) - 1
"""Ids stay below, because ZooKeeper gives owners with a higher byte another meaning."""


@dataclass(frozen=True, slots=True)
class TimeoutRange:
    """The time-outs that the server grants, in milliseconds. The defaults are ZooKeeper's."""

    least_ms: int = 4_000
    most_ms: int = 40_000

    def granted(self, asked_ms: int) -> int:
        """Return the time-out nearest to the one asked for."""
        return min(max(asked_ms, self.least_ms), self.most_ms)


class Sessions:
    """The sessions of a server, and when each will expire. Times are in milliseconds of any clock."""

    def __init__(self, durable: Mapping[int, DurableSession], now_ms: int, first_id: int) -> None:
        """`first_id` is the least id of a new session, larger than any that the server may have given."""
        self._timeout_ms = {one: session.timeout_ms for one, session in durable.items()}
        self._heard_ms = dict.fromkeys(durable, now_ms)
        self._next_id = max([first_id, *(one + 1 for one in durable)])

    def __len__(self) -> int:
        return len(self._timeout_ms)

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._timeout_ms

    def new_id(self) -> int:
        """Return the id for a new session."""
        session_id, self._next_id = self._next_id, self._next_id + 1
        assert session_id <= _SESSION_MAX
        return session_id

    def begin(self, session_id: int, timeout_ms: int, now_ms: int) -> None:
        """Note a session that has begun, or that has moved to another connection with that time-out."""
        self._timeout_ms[session_id] = timeout_ms
        self._heard_ms[session_id] = now_ms

    def hear(self, session_id: int, now_ms: int) -> None:
        """Note that the client of the session has sent something."""
        if session_id in self._heard_ms:
            self._heard_ms[session_id] = now_ms

    def end(self, session_id: int) -> None:
        """Forget a session that was closed."""
        self._timeout_ms.pop(session_id, None)
        self._heard_ms.pop(session_id, None)

    def expired(self, now_ms: int) -> list[int]:
        """Return the sessions of which nothing was heard for their time-out, in the order of their ids."""
        timeout_ms = self._timeout_ms
        return sorted(one for one, heard in self._heard_ms.items() if now_ms - heard >= timeout_ms[one])


def is_password_of(session: DurableSession, password: bytes | None) -> bool:
    """Compare in a time that does not depend on the bytes."""
    return password is not None and hmac.compare_digest(session.password, password)


def first_session_id(now_ms: int) -> int:
    """Return an id that is larger than those which earlier runs of a server have given, by the wall clock.

    A server would have to begin a thousand sessions in each millisecond of its life to reach it.
    """
    return (now_ms << 10) & _SESSION_MAX
