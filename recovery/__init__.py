"""Opening, verifying and repairing stores, and the laboratory that crashes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.opening import open_store
    from recovery.opening_async import open_async_store
    from recovery.viewing import open_view

__all__ = ["open_async_store", "open_store", "open_view"]


def __getattr__(name: str) -> object:
    # Looked up when it is first used: the command and the crash lab start without lmdb, nobody with asyncio.
    if name == "open_store":
        from recovery.opening import open_store

        return open_store
    if name == "open_async_store":
        from recovery.opening_async import open_async_store

        return open_async_store
    if name == "open_view":
        from recovery.viewing import open_view

        return open_view
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
