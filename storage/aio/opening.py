"""A store that is being opened for a loop."""

from __future__ import annotations

from asyncio import get_running_loop
from functools import partial
from typing import TYPE_CHECKING

from storage.aio.store import AsyncStore
from storage.aio.thread_calls import ThreadCalls
from storage.runtime.worker import begin_thread
from storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType


class AsyncOpening:
    """The result of `open_async_store`: enter it with `async with`, or await it and close the store."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[object, None, AsyncStore]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        assert self._store is not None, "it was entered"
        await self._store.close()

    async def _open(self) -> AsyncStore:
        calls = ThreadCalls(get_running_loop(), partial(begin_thread, "ledgerstore-open"))
        # If the task is cancelled meanwhile, the store is closed, because no variable refers to it.
        opening = calls.begin(self._open_store, Store.close)
        assert opening is not None
        try:
            return AsyncStore(await opening)
        except BaseException:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                calls.discard(opening.result(), Store.close)
            raise
