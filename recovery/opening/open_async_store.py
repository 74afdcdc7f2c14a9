"""Opening a store for the coroutines of an event loop: as `recovery.opening.open_store`, in a thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from recovery.opening.open_store import open_store
from recovery.replay.progress import ignore
from storage.aio.opening import AsyncOpening
from storage.config import StoreConfig
from storage.disk.posix import absolute_path

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from storage.open_report import ReplayProgress


def open_async_store(
    path: str | os.PathLike[str],
    config: StoreConfig = StoreConfig(),  # noqa: B008 - frozen
    progress: Callable[[ReplayProgress], None] = ignore,
) -> AsyncOpening:
    """Open the store at `path` for the running event loop: use `async with`, or await it and close the store.

    Like `open_store`; a relative path means the directory that it names when this is called. Recovery and
    closing run in a thread, so that the loop goes on; `progress` is called in that thread.
    """
    # Resolved now and not in the opening thread, because the current directory may be another one by then.
    return AsyncOpening(partial(open_store, absolute_path(path), config, progress))
