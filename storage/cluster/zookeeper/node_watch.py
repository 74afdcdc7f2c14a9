"""Watches of the client: the state of one node again and again, also over lost connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from storage.cluster.errors import MetadataUnavailable, SessionExpired
from storage.cluster.metadata.znodes import ChildNames, Gone, Node, Unchanged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from storage.cluster.zookeeper.client import ZookeeperClient

State = TypeVar("State", bound=Node | ChildNames | Gone)


class ZookeeperWatch(Generic[State]):
    """Follows one node. `read` reads it and sets a watch, which calls the callback that `read` gets."""

    def __init__(
        self,
        client: ZookeeperClient,
        read: Callable[[Callable[[object], None]], Awaitable[State]],
    ) -> None:
        self._client = client
        self._read = read
        self._changed = asyncio.Event()
        self._changed.set()
        self._last: State | None = None

    async def next(self, timeout_s: float | None = None) -> State | Unchanged:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._next()
        except TimeoutError:
            return Unchanged()

    def close(self) -> None:
        # kazoo keeps the watch on the server until it fires. That changes nothing here.
        self._last = None

    async def _next(self) -> State:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                state = await self._read(self._client.in_loop(self._changed.set))
            except MetadataUnavailable as error:
                self._changed.set()
                if isinstance(error, SessionExpired) or not self._client.connects_again(error):
                    raise
                # The watch was lost with the connection.
                await self._client.connected()
                continue
            except BaseException:
                self._changed.set()
                raise
            if self._last is None or _identity(state) != _identity(self._last):
                self._last = state
                return state


def _identity(state: Node | ChildNames | Gone) -> tuple[object, ...]:
    """Return what tells two states of a node apart: also a node that was deleted and created again."""
    match state:
        case Node(_, stat):
            return (stat.created_zxid, stat.modified_zxid)
        case ChildNames(_, stat):
            return (stat.created_zxid, stat.children_zxid)
        case Gone():
            return ()
