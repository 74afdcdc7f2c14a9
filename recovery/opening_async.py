"""Opening a store for the coroutines of an event loop: as `recovery.opening`, in a thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from recovery.opening import open_store
from storage.aio.opening import AsyncOpening
from storage.config import StoreConfig

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from storage.report import ReplayProgress


def _nowhere(_: ReplayProgress) -> None:
    """Progress that nobody watches."""


def open_async_store(
    path: str | os.PathLike[str],
    config: StoreConfig = StoreConfig(),  # noqa: B008 - frozen
    progress: Callable[[ReplayProgress], None] = _nowhere,
) -> AsyncOpening:
    """The store at `path` for the event loop that runs: use `async with`, or await it and close the store.

    As `open_store`. Recovering and closing take a thread, and the loop goes on; `progress` is told in that
    thread.
    """
    return AsyncOpening(partial(open_store, path, config, progress))
