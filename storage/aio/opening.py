"""A store that is being opened for a loop."""

from __future__ import annotations

from asyncio import get_running_loop
from functools import partial
from typing import TYPE_CHECKING

from storage.aio.calls import Calls
from storage.aio.store import AsyncStore
from storage.store import Store
from storage.worker import begin_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType


class AsyncOpening:
    """What `open_async_store` answers: to be entered with `async with`, or awaited, and the store closed."""

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
        calls = Calls(get_running_loop(), partial(begin_thread, "ledgerstore-open"))
        # Whoever is cancelled meanwhile must not leave a store behind that nobody can close.
        opening = calls.begin(self._open_store, Store.close)
        assert opening is not None
        try:
            return AsyncStore(await opening)
        except BaseException:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                calls.forsake(opening.result(), Store.close)
            raise
