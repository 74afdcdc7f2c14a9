"""Runs coroutines of a test to their end, several of them at the same time if wanted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from memory_znodes import MemoryServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from memory_znodes import MemoryZnodes

_T = TypeVar("_T")


def run(work: Callable[[MemoryZnodes], Coroutine[Any, Any, _T]]) -> _T:
    """Run a test with one session of a new server in memory."""
    return run_with_server(lambda server: work(server.session()))


def run_with_server(work: Callable[[MemoryServer], Coroutine[Any, Any, _T]]) -> _T:
    """Run a test with a new server in memory."""

    async def main() -> _T:
        return await asyncio.wait_for(work(MemoryServer()), 20)

    return asyncio.run(main())


async def collected(items: AsyncIterator[_T]) -> list[_T]:
    """Return all items."""
    return [item async for item in items]
